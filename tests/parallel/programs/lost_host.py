"""A worker that Elastic Horovod's driver starts on a host that is no longer valid in the file of hosts.

Argument: the run's folder.
"""

import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

from farandole.errors import UsageError
from farandole.recovery.horovod_workers import Workers


class NoHosts:
    def neighbours(self, host):
        raise UsageError(f"{host} is no host")


workers = Workers(NoHosts(), Path(sys.argv[1]), ["unused"])
status, _ = workers.run(SimpleNamespace(hostname="gone", rank=0), [threading.Event()])
print(json.dumps({"status": status, "living": workers.living, "failed": workers.failed}))
