"""Starting the programs that the benchmark measures, under a time-out and leaving nothing behind."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from farandole.errors import LaunchError
from farandole.runtime import processes, rank
from farandole.runtime.launcher import TIMED_OUT, run_ranks

RAY = "farandole_tools.bench.ps_peers.ray_server"
TIMEOUT_S = 180.0
# Even so Ray 2.60 asks the addresses where a cloud would tell a machine about itself. Nothing listens here.
NO_PROXY_THERE = "http://127.0.0.1:9"
DAEMONS_MAY_START_MORE = 3  # so often is looked for what a daemon started before its own end
SHARED_MEMORY = Path("/dev/shm")
ROUNDS_IN_STORE = 3  # Ray frees a round's vectors a little later than the round's end
SMALLEST_STORE = 80 << 20  # Ray refuses one of less than 75 MiB


def mpi_rounds(module: str, ranks: int, elements: int, rounds: int, options: Sequence[str] = ()) -> list[float]:
    """Run the program as ranks and return the seconds of its rounds.

    Raises:
        LaunchError: it failed, a value was wrong, or the time-out passed.
    """
    words = ["-m", module, str(elements), str(rounds), *options]
    output = run_ranks(words, ranks, timeout_s=TIMEOUT_S, outlives=False)
    seconds: list[float] = json.loads("".join(output.stdout))
    return seconds


def object_store_bytes(workers: int, elements: int) -> int:
    """Return Ray's shared memory: more than it needs, little enough that pages are soon used again."""
    vectors_per_round = workers + 1
    return max(ROUNDS_IN_STORE * vectors_per_round * elements * 4, SMALLEST_STORE)


def why_no_ray(workers: int, elements: int) -> str | None:
    """Why Ray cannot be measured here, and what would mend it; None if it can."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed: pip install 'farandole[bench]'"
    needed, free = object_store_bytes(workers, elements), shutil.disk_usage(SHARED_MEMORY).free
    if free < needed:  # Ray would put its objects on the disk, which is not what we compare with
        return f"{SHARED_MEMORY} has {free >> 20} MiB free and Ray needs {needed >> 20} here: make it larger"
    return None


def ray_rounds(workers: int, elements: int, rounds: int) -> list[float]:
    """Run Ray's parameter server in processes of its own and return the seconds of its rounds.

    Not under mpirun, which may bind what it starts to one core. Ray's daemons leave their parent's
    process group; like a launch's ranks they are found by a number in their environment. Its agents
    write their titles over a part of theirs, but stay in the session that is begun for them.

    Raises:
        LaunchError: it failed, a value was wrong, or the time-out passed.
    """
    number = uuid.uuid4().hex
    environment = os.environ | {
        rank.LAUNCH: number,
        "RAY_USAGE_STATS_ENABLED": "0",
        "http_proxy": NO_PROXY_THERE,
        "RAY_AUTH_TOKEN": number,  # else Ray makes one and leaves it in the home folder
    }
    # Ray's sockets lie in the folder, and a socket's path has room for 107 characters.
    with tempfile.TemporaryDirectory(prefix="farandole-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", RAY, str(workers), str(elements), str(rounds), folder]
        output, errors = Path(folder, "output"), Path(folder, "errors")
        with output.open("wb") as out, errors.open("wb") as err:
            server = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        try:
            code = server.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"{RAY} was ended after {TIMEOUT_S:g} s, its time-out", TIMED_OUT) from error
        finally:
            server.kill()
            server.wait()
            for _ in range(DAEMONS_MAY_START_MORE):
                processes.end([*processes.find(rank.LAUNCH, number), *processes.of_session(server.pid)])
        if code:
            said = errors.read_text("utf-8", errors="replace").strip()
            raise LaunchError(f"{RAY} ended with {code}; the last it said:\n{said[-2000:]}")
        seconds: list[float] = json.loads(output.read_text(encoding="utf-8").splitlines()[-1])
        return seconds
