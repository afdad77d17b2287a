"""Ranks forked from a process that has imported torch: they behave like any other, and none is left."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import farandole
from farandole.runtime import rank_starter
from farandole_tools.forked_ranks import fork_client

PATIENCE_S = 120
START = (
    "import os; from farandole_tools.forked_ranks import fork_client, fork_server; "
    "fork_server.start(*os.environ.get('START_WITH', '').split()); "
    "print(os.environ[fork_client.ADDRESS], flush=True); input()"
)
# All properties of a process.
TELL = """
import json, os, resource, sys
print(json.dumps({
    "torch": "torch" in sys.modules, "argv": sys.argv[1:], "given": os.environ.get("GIVEN"), "folder": os.getcwd(),
    "cores": sorted(os.sched_getaffinity(0)), "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "pid": os.getpid(), "read": sys.stdin.read(), "umask": os.umask(0), "python": [sys.executable, *sys.path],
}), flush=True)
"""
SLEEP = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def start(words: list[str], environment: dict[str, str], **keywords: Any) -> subprocess.Popen[str]:
    """Start a process in this one's environment, without its fork server, and with `environment`."""
    cold = {name: value for name, value in os.environ.items() if name not in (fork_client.ADDRESS, rank_starter.MODULE)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, *words]
    return subprocess.Popen(command, env=cold | environment, text=True, **pipes, **keywords)  # type: ignore[call-overload, no-any-return]


@contextmanager
def owner(**environment: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A process that has started a fork server, and the server's address."""
    with start(["-c", START], environment) as process:
        address = process.stdout.readline().strip()
        yield process, environment | {fork_client.ADDRESS: address, rank_starter.MODULE: fork_client.__name__}
        process.stdin.close()


@pytest.fixture(scope="module")
def address() -> Iterator[dict[str, str]]:
    with owner() as (_, environment):
        yield environment


def rank(folder: Path, code: str, environment: dict[str, str], *words: str, **keywords: Any) -> subprocess.Popen[str]:
    """A process as mpirun starts one."""
    program = folder / "program.py"
    program.write_text(code)
    _, *command = rank_starter.command([str(program), *words], environment)
    return start(command, environment, cwd=folder, **keywords)


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate("asked", timeout=PATIENCE_S)
    assert process.returncode == 0, err
    said: dict[str, Any] = json.loads(out)
    return said


def restrict() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.umask(0o27)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("python_path", ["/somewhere", "here:/somewhere::here", ""])
def test_a_forked_rank_equals_a_started_one(python_path: str, address: dict[str, str], tmp_path: Path) -> None:
    words = ["--steps", "3", "a b"]
    given = {"GIVEN": "ü 1", "PYTHONPATH": python_path}
    warmed = told(rank(tmp_path, TELL, address | given, *words, preexec_fn=restrict))
    cold = told(rank(tmp_path, TELL, given, *words, preexec_fn=restrict))
    assert (warmed.pop("torch"), cold.pop("torch")) == (True, False)
    assert warmed.pop("pid") != cold.pop("pid")
    assert warmed == cold
    assert (warmed["given"], warmed["argv"], warmed["read"], warmed["files"]) == ("ü 1", words, "asked", 200)


def test_forked_ranks_do_not_share_unseeded_random_numbers(address: dict[str, str], tmp_path: Path) -> None:
    """Otherwise every model would start with the same parameters on all ranks, although no rank had sent them."""
    draw = "import numpy, random, torch; print(numpy.random.rand(), random.random(), float(torch.rand(1)))"
    drawn = [rank(tmp_path, draw, address).communicate(timeout=PATIENCE_S)[0].split() for _ in range(2)]
    assert len(drawn[0]) == 3
    assert not set(drawn[0]) & set(drawn[1])


def test_the_fork_server_imports_what_a_fork_had_to(tmp_path: Path) -> None:
    ask = "import sys; print('torch.fx.experimental.symbolic_shapes' in sys.modules)"
    with owner() as (_, environment):

        def knows() -> bool:
            shown, _ = rank(tmp_path, ask, environment).communicate(timeout=PATIENCE_S)
            return shown == "True\n"

        assert not knows()
        use = "import torch; torch.ones(2, requires_grad=True).exp().backward(torch.ones(2))"
        rank(tmp_path, use, environment).communicate(timeout=PATIENCE_S)
        until(knows)


def test_the_fork_server_imports_the_requested_modules_and_leaves_no_cache_of_torchs_compiler(tmp_path: Path) -> None:
    show = "import sys; print('mailbox' in sys.modules, 'torch._dynamo' in sys.modules)"
    with owner(START_WITH="mailbox torch._dynamo", TMPDIR=str(tmp_path)) as (_, environment):
        shown, _ = rank(tmp_path, show, environment).communicate(timeout=PATIENCE_S)
    assert shown == "True True\n"
    assert not list(tmp_path.glob("torchinductor*"))


@pytest.mark.parametrize("how", ["falls off its end", "calls exit"])
@pytest.mark.parametrize("warmed", [True, False])
def test_a_forked_rank_joins_threads_and_calls_exit_functions(
    how: str, warmed: bool, address: dict[str, str], tmp_path: Path
) -> None:
    code = """
import atexit, sys, threading, time
atexit.register(print, "exit function", end="")
threading.Thread(target=lambda: (time.sleep(0.5), print("thread"))).start()
"""
    code += "sys.exit(0)" if how == "calls exit" else ""
    process = rank(tmp_path, code, address if warmed else {})
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert (said, process.returncode) == ("thread\nexit function", 0)


def test_forked_ranks_share_this_package_and_have_an_mpi_of_their_own(address: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import sys
shared = "farandole.runtime.communicator" in sys.modules
from mpi4py import MPI
print(shared, MPI.Is_initialized(), MPI.COMM_WORLD.size)
""")
    # As the launcher starts a rank: with the fork server's own path, on which it finds the same package.
    processes = [start(["-P", "-m", "farandole.runtime", str(program)], address) for _ in range(2)]
    assert [process.communicate(timeout=PATIENCE_S)[0] for process in processes] == ["True True 1\n"] * 2


def test_a_forked_rank_runs_edited_modules(tmp_path: Path) -> None:
    package = Path(shutil.copytree(Path(farandole.__file__).parent, tmp_path / "edited" / "farandole"))
    show = "import farandole, sys; print(getattr(farandole, 'EDITED', 0), 'torch' in sys.modules)"
    with owner(PYTHONPATH=str(package.parent)) as (_, environment):
        before, _ = rank(tmp_path, show, environment).communicate(timeout=PATIENCE_S)
        with (package / "__init__.py").open("a") as file:
            file.write("\nEDITED = 1\n")
        after, _ = rank(tmp_path, show, environment).communicate(timeout=PATIENCE_S)
    assert (before, after) == ("0 True\n", "1 True\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGALRM, signal.SIGSEGV])
def test_the_client_ends_by_the_signal_that_ended_its_forked_rank(
    number: signal.Signals, address: dict[str, str], tmp_path: Path
) -> None:
    process = rank(tmp_path, f"import os; os.kill(os.getpid(), {int(number)})", address)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -number


def test_the_client_ends_with_its_forked_ranks_exit_code(address: dict[str, str], tmp_path: Path) -> None:
    process = rank(tmp_path, "import os; os._exit(75)", address)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 75


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_client_ends_its_forked_rank(
    number: signal.Signals, address: dict[str, str], tmp_path: Path
) -> None:
    process = rank(tmp_path, SLEEP, address)
    copy = psutil.Process(int(process.stdout.readline()))
    assert copy.pid != process.pid
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -number
    until(lambda: not copy.is_running())


def test_no_process_survives_the_owner_of_the_fork_server(tmp_path: Path) -> None:
    with owner() as (process, environment):
        client = rank(tmp_path, SLEEP, environment)
        copy = psutil.Process(int(client.stdout.readline()))
        server = copy.parent()
        process.kill()
        until(lambda: not copy.is_running() and not server.is_running())
        client.communicate(timeout=PATIENCE_S)
    assert client.returncode == -signal.SIGKILL


def test_started_as_python_starts_a_module_the_client_has_a_fork_too(address: dict[str, str], tmp_path: Path) -> None:
    """As a user may start one, with mpirun in a notebook: then the path is this Python's."""
    program = tmp_path / "program.py"
    program.write_text(TELL)
    warmed, cold = (
        told(start(["-m", "farandole.runtime", str(program)], each, cwd=tmp_path)) for each in (address, {})
    )
    assert (warmed["torch"], cold["torch"]) == (True, False)
    assert warmed["python"] == cold["python"]


@pytest.mark.parametrize("sent", [b"", b"\x10", fork_client.NUMBER.pack(100), fork_client.NUMBER.pack(100) + b"{"])
def test_a_rank_that_dies_in_the_middle_of_its_request_costs_the_others_nothing(
    sent: bytes, address: dict[str, str], tmp_path: Path
) -> None:
    """Else all later ranks would import torch: a launch that is ended as it starts would slow down all others."""
    with socket.socket(socket.AF_UNIX) as dies:
        dies.connect(address[fork_client.ADDRESS].rpartition(":")[2])
        dies.sendall(sent)
    assert told(rank(tmp_path, TELL, address))["torch"]


def test_without_a_fork_server_the_client_runs_the_program_itself(tmp_path: Path) -> None:
    nobody = {
        fork_client.ADDRESS: f"{sys.executable}:{tmp_path}/nobody",
        rank_starter.MODULE: fork_client.__name__,
    }
    assert told(rank(tmp_path, TELL, nobody))["torch"] is False


def test_in_a_slurm_job_the_client_runs_the_program_itself(address: dict[str, str], tmp_path: Path) -> None:
    assert told(rank(tmp_path, TELL, address | {"SLURM_JOB_ID": "7"}))["torch"] is False
