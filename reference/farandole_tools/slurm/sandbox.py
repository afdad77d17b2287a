"""A throwaway Slurm cluster on one machine: up, status, down, submit, wait.

What a Slurm cluster consists of, in the order in which `up` starts it:

1. **munged**, on every host, holds a secret key that all hosts share and signs messages with it:
   that is how one daemon knows that another, or a user's sbatch, is who it says it is. One is enough
   here, with a key and a socket of its own.
2. **slurmctld**, the controller, keeps the queue and decides which job gets which nodes, and when.
3. **slurmd**, one on each node, starts a job's processes there, through one slurmstepd for each step
   of the job. Here four of them run side by side as nodes n1 to n4 (`slurmd -N n1`).

The users' commands (sbatch, srun, squeue, scancel) find the controller through slurm.conf, whose path
is in the variable SLURM_CONF. The configuration is slurm/sandbox/slurm.conf in the checkout, with a
reason beside each line. All else lies below one folder (`layout.py`), and `down` leaves nothing of it.

Seen with Slurm 22.05.8 of Debian 12 on 2 idle cores: `up` and `down` take less than half a second each.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import UsageError
from farandole_tools.slurm import layout
from farandole_tools.slurm.processes import MARK, daemons, end, processes

INSTALL = "apt-get install -y --no-install-recommends slurm-wlm slurm-wlm-basic-plugins munge libpmix-dev"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "sinfo", "squeue")
# Daemons live in sbin, which is not on every user's PATH.
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
# The states of a job that has ended (man squeue, JOB STATE CODES).
FINISHED = frozenset(
    ["BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"]
)


class SandboxError(RuntimeError):
    """Slurm did not do what it was told; the message carries what it said."""


@dataclass(frozen=True)
class JobResult:
    """The end of a job.

    Attributes:
        state: Slurm's word for it: COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, …
        exit_code: the batch script's exit status; 128 + the signal's number if a signal ended it.
        output: the file with what the batch script printed.
    """

    state: str
    exit_code: int
    output: Path


@dataclass(frozen=True)
class Status:
    """The state of a sandbox.

    Attributes:
        folder: the sandbox's folder.
        up: every daemon lives and the controller answers.
        daemons: process id by daemon ("munged", "slurmctld", "n1", …); None for one that is missing.
        nodes: Slurm's state by node ("idle", "mixed", "allocated", "down*", …); empty if not up.
        jobs: how many jobs wait or run.
    """

    folder: Path
    up: bool
    daemons: dict[str, int | None]
    nodes: dict[str, str]
    jobs: int


@dataclass(frozen=True)
class Sandbox:
    """A running sandbox, and what its user can do with it."""

    folder: Path

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    def environment(self) -> dict[str, str]:
        """Return the variables that make sbatch, srun, squeue … talk to this cluster."""
        return {"SLURM_CONF": str(self.conf)}

    def run(self, *command: str, cwd: Path | None = None, timeout: float = 60) -> str:
        """Runs a command against this cluster, from the folder `cwd`, and returns what it printed.

        Raises:
            SandboxError: it failed, or took longer than `timeout` seconds.
        """
        # Inside a job of another cluster, that job's variables would be taken for options.
        outside = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH_"))}
        try:
            done = subprocess.run(
                command,
                check=False,
                env=outside | self.environment(),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise SandboxError(f"{' '.join(command)}: no end after {timeout:g} s") from None
        if done.returncode != 0:
            raise SandboxError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.strip()}")
        return done.stdout

    def submit(self, script: Path | str, *options: str, arguments: Sequence[str] = (), cwd: Path | None = None) -> int:
        """Hands a script to sbatch, from the folder `cwd`, and returns the job's number.

        Args:
            script: the batch script.
            options: sbatch's, as "--nodes=2"; they win over the script's own #SBATCH lines.
            arguments: the script's, its "$@".
        """
        printed = self.run("sbatch", "--parsable", *options, str(script), *arguments, cwd=cwd)
        return int(printed.split(";")[0])

    def wait(self, job_id: int | str, timeout: float = 120) -> JobResult:
        """Waits until the job has ended, however it ended.

        Args:
            job_id: its number; of an element of an array, "7_2".

        Raises:
            TimeoutError: after `timeout` seconds; names the job's state and Slurm's reason for it.
        """
        deadline = time.monotonic() + timeout
        while True:
            shown = self.run("scontrol", "show", "job", str(job_id))
            state, output = _field("JobState", shown), Path(_field("StdOut", shown))
            if state in FINISHED:
                code, signal = (int(number) for number in _field("ExitCode", shown).split(":"))
                return JobResult(state, 128 + signal if signal else code, output)
            if time.monotonic() > deadline:
                reason = _field("Reason", shown)
                raise TimeoutError(f"job {job_id} is {state} ({reason}) after {timeout:g} s; output: {output}")
            time.sleep(0.2)


def _field(name: str, shown: str) -> str:
    """One field of `scontrol show job`. A path may have blanks in it, and has a line of its own."""
    value = r"(.*)$" if name == "StdOut" else r"(\S*)"
    found = re.search(rf"^(?:.*\s)?{name}={value}", shown, re.MULTILINE)
    if found is None:
        raise SandboxError(f"no {name} in what scontrol shows of the job:\n{shown}")
    return found[1]


def missing_programs() -> list[str]:
    """Return the programs of Slurm and munge that this machine lacks; [] if a sandbox can be started."""
    return [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]


def up(folder: Path, nodes: int = 4, timeout: float = 60) -> Sandbox:
    """Starts a cluster of `nodes` nodes in `folder` and waits until all of them are idle.

    One that is already up is left as it is. What remains of one that was killed is cleared away first.

    Raises:
        UsageError: Slurm is not installed, or the folder or the number of nodes cannot be used.
        SandboxError: it did not come up within `timeout` seconds; says what the logs say.
    """
    folder = layout.resolve(folder)
    if missing := missing_programs():
        raise UsageError(f"Slurm is incomplete here (no {', '.join(missing)}); install it: {INSTALL}")
    if not 1 <= nodes <= layout.MAX_NODES:
        raise UsageError(f"--nodes {nodes}: a sandbox has 1 to {layout.MAX_NODES} nodes")
    if not layout.has_network():
        raise UsageError(
            "only loopback is up, and neither Slurm nor mpirun starts on it alone; connect a network, or make"
            " an idle interface: ip link add idle0 type dummy; ip addr add 192.0.2.1/24 dev idle0; ip link set idle0 up"
        )
    present = status(folder)
    if present.up:
        if len(present.nodes) != nodes:
            raise UsageError(f"a sandbox of {len(present.nodes)} nodes is up in {folder}; `farandole slurm down` first")
        return Sandbox(folder)

    down(folder)
    try:
        layout.create(folder, nodes)
        _start_daemons(folder)
        _wait_until_idle(folder, timeout)
    except BaseException:  # Ctrl-C too
        down(folder)
        raise
    return Sandbox(folder)


def down(folder: Path) -> bool:
    """Ends the sandbox's jobs and daemons and deletes its folder; True if there was anything to end.

    Raises:
        UsageError: called from inside one of the sandbox's own jobs.
        SandboxError: a process survived being killed.
    """
    folder = layout.resolve(folder)
    if os.environ.get(MARK) == str(folder):
        raise UsageError("this is a job of the sandbox itself; end the sandbox from outside")
    found = layout.is_sandbox(folder) or bool(processes(folder))
    if status(folder).jobs:
        # So that a command that waits for a job (srun, salloc, sbatch --wait) learns that it is over.
        with contextlib.suppress(SandboxError):
            Sandbox(folder).run("scancel", f"--user={layout.current_user()}", timeout=10)
            time.sleep(0.5)
    if left := end(folder):
        raise SandboxError(f"not to be killed: {', '.join(f'process {process.pid}' for process in left)}")
    if layout.is_sandbox(folder):
        shutil.rmtree(folder)
    return found


def status(folder: Path) -> Status:
    """Looks which daemons live and, if all do, asks the controller about nodes and jobs."""
    folder = layout.resolve(folder)
    alive = daemons(folder)
    expected = ["munged", "slurmctld", *layout.node_names(folder)]
    nodes: dict[str, str] = {}
    jobs: list[str] = []
    if layout.is_sandbox(folder) and all(name in alive for name in expected):
        sandbox = Sandbox(folder)
        with contextlib.suppress(SandboxError):  # the controller does not answer (yet)
            jobs = sandbox.run("squeue", "--noheader", "--format=%i", timeout=10).split()
            lines = sandbox.run("sinfo", "--noheader", "--Node", "--format=%N %T", timeout=10).splitlines()
            nodes = dict(line.split() for line in lines)
    return Status(folder, bool(nodes), {name: alive.get(name) for name in expected}, nodes, len(jobs))


def _start_daemons(folder: Path) -> None:
    """Starts munged, slurmctld and each slurmd; each returns once it has gone into the background."""
    munged = [
        "munged",
        "--force",  # a warning, not an error, if the folder lies below a group-writable home
        f"--socket={folder}/munge/socket",
        f"--key-file={folder}/munge/key",
        f"--seed-file={folder}/munge/seed",
        f"--pid-file={folder}/run/munged.pid",
        f"--log-file={folder}/log/munged.log",
    ]
    slurmds = {node: ["slurmd", "-N", node] for node in layout.node_names(folder)}
    for name, command in {"munged": munged, "slurmctld": ["slurmctld"], **slurmds}.items():
        with (folder / "log" / f"{name}.err").open("w", encoding="utf-8") as errors:
            try:
                subprocess.run(
                    command,
                    check=True,
                    executable=shutil.which(command[0], path=PATH),
                    env={"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf"), MARK: str(folder)}
                    # PMIx would take all nodes for one host, and count local ranks wrongly under srun.
                    | ({"PMIX_HOSTNAME": name} if name in slurmds else {}),
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    timeout=30,
                )
            except subprocess.SubprocessError as error:  # an exit status other than 0, or no end
                raise SandboxError(f"{name} did not start: {error}\n{layout.log_tail(folder, name)}") from None


def _wait_until_idle(folder: Path, timeout: float) -> None:
    started = time.monotonic()
    while True:
        now = status(folder)
        if now.up and set(now.nodes.values()) == {"idle"}:
            return
        waited = time.monotonic() - started
        missing = [name for name, process in now.daemons.items() if process is None]
        if missing and waited > 2:  # before, it may be between two forks on its way into the background
            raise SandboxError(f"{missing[0]} has ended\n{layout.log_tail(folder, missing[0])}")
        if waited > timeout:
            late = [name for name, state in now.nodes.items() if state != "idle"] or ["slurmctld"]
            raise SandboxError(f"not ready after {timeout:g} s, nodes: {now.nodes}\n{layout.log_tail(folder, late[0])}")
        time.sleep(0.1)
