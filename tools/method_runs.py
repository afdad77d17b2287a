"""Record a run of each method for its page in the documentation: docs/method_runs.json.

    python tools/method_runs.py [METHOD …]    the first command on each page, and what it prints

The times are of this machine, the bytes, messages and steps of any. A method without an entry has none on its page.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from performance_page import DOCS, machine

sys.path.insert(0, str(DOCS))

from _ext import method_pages  # type: ignore[import-not-found]

from farandole.methods import METHODS

FILE = DOCS / "method_runs.json"
OF_THE_FOLDER = ("record:", "next:")  # lines that name the run's folder
TIMEOUT_S = 600


def record(names: Sequence[str], file: Path = FILE) -> None:
    """Run these methods one after another, and keep what each prints as soon as it is there."""
    for name in names:
        command = method_pages.commands(name)[0]
        print(command, file=sys.stderr, flush=True)
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        kept[name] = {"command": command, **machine(), "printed": printed(command)}
        in_order = {each: kept[each] for each in METHODS if each in kept}
        file.write_text(json.dumps(in_order, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def printed(command: str) -> str:
    """Return what a command prints on standard output in a new folder, without the lines about that folder."""
    words = [sys.executable, "-m", *shlex.split(command)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            words, cwd=folder, env=os.environ | {"COLUMNS": "100"}, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
        )
    if done.returncode:
        sys.exit(done.returncode)
    lines = [line.rstrip() for line in done.stdout.splitlines() if not line.startswith(OF_THE_FOLDER)]
    return "\n".join(lines).strip("\n")


if __name__ == "__main__":
    record(sys.argv[1:] or list(METHODS))
