"""Run a batch script in the sandbox, or with an mpirun and srun that only print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole_tools.slurm.sandbox import Sandbox

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE = 120.0  # seconds for a job of a second or two, on a busy machine


class SrunStayed(TimeoutError):
    """Only the batch script is left of the job, and its srun still waits."""


@dataclass(frozen=True)
class Job:
    """A job that is over, what it printed, and where its record should be."""

    number: int
    state: str
    exit_code: int
    output_file: Path
    output: str
    folder: Path


def like_a_checkout(folder: Path) -> Path:
    """Make the folder like the checkout's root, to submit from: records and outputs land in it."""
    for name in ("reference", "slurm"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def run(cluster: Sandbox, checkout: Path, script: Path, *arguments: str, options: Sequence[str] = ()) -> Job:
    """Submit from the checkout's root, with sbatch's `options`, and wait until the job is over.

    The srun of Slurm 22.05 now and then stays when a step over two components has ended, because each
    component may start PMIx's abort agent, of which only one is ended (2 of 91 starts). Such a job is
    cancelled, and submitted once more.
    """
    try:
        return _run(cluster, checkout, script, arguments, options)
    except SrunStayed:
        return _run(cluster, checkout, script, arguments, options)


def _run(cluster: Sandbox, checkout: Path, script: Path, arguments: Sequence[str], options: Sequence[str]) -> Job:
    number = cluster.submit(script, *options, arguments=arguments, cwd=checkout)
    folder = checkout / "runs" / f"{script.stem}-{number}"
    try:
        result = cluster.wait(number, timeout=PATIENCE)
    except TimeoutError as error:
        steps = cluster.run("squeue", "--noheader", "--steps", f"--jobs={number}", "--format=%i").split()
        cluster.run("scancel", str(number))
        result = cluster.wait(number, timeout=30)
        if steps != [f"{number}.batch"]:
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise SrunStayed(f"{error}; printed: {result.output.read_text()}") from None
    return Job(number, result.state, result.exit_code, result.output, result.output.read_text(), folder)


def wait_for(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"still no {what}"
        time.sleep(0.1)


def words_of(script: Path, folder: Path, *arguments: str, **environment: str) -> list[str]:
    """Return the words with which the script would call mpirun, srun or python, as job 7 (of an array, element 2)."""
    (folder / "reference" / "farandole").mkdir(parents=True)
    done = run_it(script, folder, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run_it(script: Path, folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script without Slurm, as if submitted from the folder; launchers that do not exist yet only print."""
    for name in ("mpirun", "srun", "python", "scontrol"):
        if not (folder / name).exists():
            printing = "" if name == "scontrol" else f"printf '%s\\n' {name} \"$@\"\n"
            (folder / name).write_text(f"#!/bin/sh\n{printing}")
            (folder / name).chmod(0o755)
    slurm = {
        "SLURM_SUBMIT_DIR": str(folder),
        "SLURM_JOB_NAME": script.stem,
        "SLURM_JOB_ID": "7",
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_NTASKS": _asked_for(script),
        "SLURM_CPUS_PER_TASK": "4",
    }
    if script.stem.endswith("_het"):
        slurm |= {"SLURM_NTASKS": "2", "SLURM_HET_SIZE": "2"}
        for group, tasks, nodes in ((0, 2, "cpu1"), (1, 4, "gpu[1-2]")):
            slurm |= {
                f"SLURM_NTASKS_HET_GROUP_{group}": str(tasks),
                f"SLURM_JOB_NODELIST_HET_GROUP_{group}": nodes,
                f"SLURM_CPUS_PER_TASK_HET_GROUP_{group}": "4",
            }
    path = os.pathsep.join([str(folder), os.defpath])
    return subprocess.run(
        ["bash", str(script), *arguments],
        env={"PATH": path, **slurm, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _asked_for(script: Path) -> str:
    """Return Slurm's number of tasks for the script's nodes and tasks per node."""
    asked = dict(re.findall(r"^#SBATCH --(nodes|ntasks-per-node)=(\d+)", script.read_text(), re.MULTILINE))
    return str(int(asked["nodes"]) * int(asked["ntasks-per-node"]))


def programs(words: list[str]) -> list[list[str]]:
    """Return the modules that a launcher's words start, each with its options."""
    found = []
    for component in " ".join(words).split(" : "):
        _, _, program = component.partition("python -m ")
        found.append(program.split())
    return found
