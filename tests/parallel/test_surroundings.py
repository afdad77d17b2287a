"""A run in an unusual environment works, or reports the obstacle in one line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from farandole_tools.forked_ranks import fork_client

FARANDOLE = [sys.executable, "-P", "-m", "farandole"]
SHADOWS = ("random", "queue", "types", "torch", "numpy", "mpi4py", "rich", "site")


def test_a_run_in_an_unusual_environment_completes_and_reports_its_lost_table(tmp_path: Path) -> None:
    """No HOME; left-over variables; no UTF-8; a folder with markup for a name and modules in it; a full output."""
    folder = tmp_path / "[red]x[" / "a $b$ \udcff"
    folder.mkdir(parents=True)
    for name in SHADOWS:
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    odd = {
        "SLURM_JOB_ID": "",
        "SLURM_JOBID": "7",
        "SLURM_JOB_NUM_NODES": "abc",
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_JOBID": "5",
        "PBS_NODEFILE": str(folder / "missing"),
        "OMP_NUM_THREADS": "abc",
        "HOROVOD_RANK": "3",
        "COLUMNS": "abc",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "TMPDIR": str(folder),
    }
    environment = {name: value for name, value in os.environ.items() if name != "HOME"} | odd
    command = [*FARANDOLE, "run", "sync_sgd", "-n", "2", "--steps", "2", "--out", "the run"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=full, stderr=subprocess.PIPE)
    assert done.stderr.decode().splitlines() == [
        "farandole: standard output could not be written: No space left on device; "
        "the run is done, and its record is in the run"
    ]
    assert done.returncode == 1
    assert json.loads((folder / "the run" / "summary.json").read_text())["steps"] == 2
    assert {path.name for path in folder.iterdir()} == {"the run", *(f"{name}.py" for name in SHADOWS)}


def test_too_little_shared_memory_is_refused_with_both_sizes(tmp_path: Path) -> None:
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("a small /dev/shm is mounted for this: run as root, with the right to unshare -m")
    run = [*FARANDOLE, "run", "sync_sgd", "-n", "2", "--steps", "2", "--collective", "window", "--out", "the-run"]
    script = f"mount -t tmpfs -o size=64k tmpfs /dev/shm && exec {' '.join(run)}"
    environment = dict(os.environ)
    environment.pop(fork_client.ADDRESS, None)  # the fork server has the usual /dev/shm
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.decode().splitlines()
    assert re.match(
        r"farandole: /dev/shm has [\d,]+ bytes free, and the ranks' shared memory needs [\d,]+ there:", line
    )
    free, needed = (int(number.replace(",", "")) for number in re.findall(r"(\S+) (?:bytes|there)", line))
    assert free <= 65536 < needed
    assert not list(tmp_path.iterdir())
