"""`parameter_server.minimal` under a plain mpirun: exact with s = 0, within its bounds otherwise, and it ends."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import psutil
import pytest

from farandole.runtime import mpirun, processes

MARK = "FARANDOLE_TEST_MINIMAL"
PROGRAM = [sys.executable, "-m", "farandole.parameter_server.minimal"]
RANKS = (2, 3, 4, 7)


def command(ranks: int, words: Sequence[str]) -> list[str]:
    mpi = mpirun.detect()
    return [str(mpi.mpirun), "-n", str(ranks), *(["--oversubscribe"] * (mpi.family == "Open MPI")), *PROGRAM, *words]


def environment() -> dict[str, str]:
    return mpirun.detect().environment(os.environ) | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def run(ranks: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(ranks, words), env=environment(), capture_output=True, text=True, timeout=400)


def trained(ranks: int, *words: str) -> tuple[dict[int, int], dict[int, int], float, str]:
    """Return lead, staleness, accuracy, and the parameters' digest."""
    done = run(ranks, *words)
    assert done.returncode == 0, done.stderr
    lead, staleness, result = done.stdout.splitlines()
    found = re.fullmatch(r"test accuracy ([\d.]+), parameters (\w{16})", result)
    assert found
    histograms = [ast.literal_eval(line[line.index("{") :]) for line in (lead, staleness)]
    return histograms[0], histograms[1], float(found[1]), found[2]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [1, 2, 3, 6])
def test_without_staleness_it_equals_one_torch_process_and_the_scenario(
    under_mpirun: Callable[..., Any], workers: int
) -> None:
    found = under_mpirun("ps_minimal.py", workers + 2, "30")
    assert set(found["differences"]) == {"torch", "bsp", "ssp"}
    assert max(found["differences"].values()) < 1e-12
    assert found["moved"] > 0.1
    assert found["lead"] == found["staleness"] == {"0": 30 * workers}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", RANKS)
def test_lead_and_staleness_stay_within_their_bounds(ranks: int) -> None:
    others = ranks - 2
    for s in (1, 3):
        lead, staleness, accuracy, _ = trained(ranks, "--staleness", str(s), "--steps", "60", "--slow-ms", "3")
        assert sum(lead.values()) == sum(staleness.values()) == 60 * (ranks - 1), "each gradient counts once"
        assert max(staleness) <= 2 * s * others
        assert max(lead) == (s if others else 0), "a worker slower by far is left behind as far as may be"
        assert accuracy > 0.8


def test_without_staleness_every_run_has_the_same_parameters() -> None:
    runs = [trained(3, "--staleness", "0", "--steps", "40", "--slow-ms", slow) for slow in ("0", "2")]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "words", [["--staleness", "-1"], ["--staleness", "two"], ["--steps", "0"], ["--slow-ms", "nan"], ["--fast"], []]
)
def test_bad_input_and_a_rank_without_workers_are_refused_in_one_line(words: list[str]) -> None:
    done = subprocess.run([*PROGRAM, *words], env=environment(), capture_output=True, text=True, timeout=400)
    assert done.returncode == 2
    assert re.fullmatch(r"farandole: .*\n", done.stderr)


def test_bad_input_on_several_ranks_is_reported_once() -> None:
    done = run(3, "--steps", "0")
    assert done.returncode == 2
    assert done.stderr.count("farandole: ") == 1


@pytest.mark.parametrize("killed", [0, 2])
def test_the_death_of_any_rank_ends_all_ranks(killed: int) -> None:
    mark = uuid.uuid4().hex
    words = ["--steps", "1000000", "--slow-ms", "10"]
    job = subprocess.Popen(command(3, words), env=environment() | {MARK: mark}, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not (rank := [each for each in processes.find(MARK, mark) if is_rank(each, killed)]):
            assert time.monotonic() < deadline
            assert job.poll() is None
            time.sleep(0.1)
        rank[0].send_signal(signal.SIGKILL)
        assert job.wait(120) != 0
    finally:
        job.kill()
        job.wait()
        left = processes.find(MARK, mark)
        processes.end(left)
    assert not left


def is_rank(process: psutil.Process, number: int) -> bool:
    try:
        given = process.environ()
        ranks = (given.get(name) for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK"))
        return str(number) in ranks and "farandole.parameter_server.minimal" in process.cmdline()
    except psutil.Error:  # gone in the meantime
        return False
