"""The trainings of a file, one after another in this launch: a command per line, as after `farandole run`.

Rank 0's answer: of each command the digests of the ranks' parameters, and the bytes and messages they have sent; and
the digest of this machine's arithmetic. One thread a rank, so that nothing depends on the number of cores.
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

from mpi4py import MPI
from numerics import numerics

from farandole.runtime import devices
from farandole.runtime.command_line import parse
from farandole.runtime.communicator import broadcast_text
from farandole.scenarios import load

devices.available_cores = lambda: 1
devices.limit_threads(1)
world = MPI.COMM_WORLD
answer = {"numerics": numerics(), "trainings": {}}
with tempfile.TemporaryDirectory() as own:
    folder = Path(broadcast_text(world, own))
    for number, command in enumerate(Path(sys.argv[1]).read_text().splitlines()):
        name, *words = command.split()
        module, out = load(name), folder / str(number)
        config = parse(module.Config, [*words, "--device", "cpu", "--out", str(out)])
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                module.main(config)
            except BaseException as error:
                error.add_note(f"in: {command}")
                raise
        world.Barrier()
        if world.rank == 0:
            summary = json.loads((out / "summary.json").read_text())
            answer["trainings"][command] = {
                "parameters": [each[:16] for each in summary["params_sha256"]],
                "bytes": summary["bytes_sent"],
                "messages": summary["messages_sent"],
            }
    world.Barrier()
if world.rank == 0:
    print(json.dumps(answer))
