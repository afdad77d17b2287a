"""A whole launch in one sandbox: for labs whose checks hand objects to a submission that no other process can use.

The submission then shares a process with the checks, and could deceive them. It can still not reach the grader, other
submissions, the network or any file but those of the launch: neither a right answer nor this package's methods.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from farandole.errors import LaunchError
from farandole_tools.lab.contained.sandbox import Mode, Sandbox

PROGRAM = """
import sys
from farandole.errors import LaunchError
from farandole.runtime import rank_starter
from farandole.runtime.launcher import run_ranks
if sys.argv[3] == "True":
    rank_starter.prepare("torch._dynamo")
try:
    run_ranks(sys.argv[4:], int(sys.argv[1]), timeout_s=float(sys.argv[2]), with_torch=sys.argv[3] == "True")
except LaunchError as error:
    sys.exit(error.message)
"""
ENDED_S = 10.0
GRACE_S = 30.0  # that the sandbox may take beside the launch


def run_ranks(
    mode: Mode, folder: Path, shown: Sequence[Path], program: list[str], ranks: int, timeout_s: float, with_torch: bool
) -> None:
    """Run `program` on `ranks` processes in a sandbox that may write in `folder` and read what is `shown`.

    Raises:
        LaunchError: as `launcher.run_ranks`.
    """
    place = folder / "sandbox"
    place.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("OMPI_", "PRTE_", "PMIX_", "OMP_"))}
    environment = kept | {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"}
    box = Sandbox(mode, place, tuple(shown), environment=environment, whole=True, writable=(folder,))
    output = folder / "launch"
    with output.open("wb") as file:
        command = [sys.executable, "-P", "-B", "-c", PROGRAM, str(ranks), str(timeout_s), str(with_torch), *program]
        process = box.start(command, file.fileno())
        try:
            code_ = process.wait(timeout_s + GRACE_S)
        except subprocess.TimeoutExpired:
            code_ = 1
        finally:
            for stop in (process.terminate, process.kill):  # without namespaces it ends its children when asked to
                stop()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(ENDED_S)
    if code_:
        lines = output.read_text("utf-8", errors="replace").strip().splitlines()
        raise LaunchError(lines[-1] if lines else f"the sandbox ended with {code_}")
