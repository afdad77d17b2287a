"""`farandole bench ps`: all competitors do the work, and the medians are of the right rounds.

Every worker checks a round's values itself; here the vector is small.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from farandole.errors import LaunchError, UsageError
from farandole.runtime import processes
from farandole_tools.bench import ps, ps_task
from farandole_tools.bench.ps_peers import launching

RANKS = 4
ELEMENTS = 250_001
ROUNDS = 2

RAY = pytest.param("Ray", marks=pytest.mark.alone)  # its daemons must be there within 30 s, which no option changes


@pytest.mark.parametrize("name", [RAY, "torch RPC", "MPI Send and Recv", "1 copy", "4 copies at once"])
def test_a_peer_does_its_rounds(name: str) -> None:
    if name == "Ray" and (reason := launching.why_no_ray(RANKS - 1, ELEMENTS)):
        pytest.skip(reason)
    seconds = ps.peers(RANKS, ELEMENTS)[name](ROUNDS)
    assert len(seconds) == ROUNDS
    assert min(seconds) > 0


@pytest.mark.alone
def test_ray_leaves_no_process_when_it_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := launching.why_no_ray(RANKS - 1, ELEMENTS):
        pytest.skip(reason)
    monkeypatch.setattr(launching, "TIMEOUT_S", 8.0)
    monkeypatch.setenv("FARANDOLE_TEST_RAY", str(os.getpid()))
    folders = set(Path("/tmp").glob("farandole-ray-*"))
    with pytest.raises(LaunchError, match="ended after 8 s, its time-out"):
        launching.ray_rounds(RANKS - 1, ELEMENTS, 10**6)
    assert not processes.find("FARANDOLE_TEST_RAY", str(os.getpid()))
    assert set(Path("/tmp").glob("farandole-ray-*")) <= folders


def updated(rounds: int, pushed: Callable[[int], np.ndarray]) -> np.ndarray:
    """Return the parameters after `rounds` rounds with 3 workers; `pushed` is what each pushes."""
    parameters = np.zeros(ELEMENTS, dtype=np.float32)
    for _ in range(rounds):
        ps_task.apply_sum(parameters, sum(pushed(worker) for worker in (1, 2, 3)), 3)
    return parameters


def test_the_check_accepts_only_the_number_of_rounds_done() -> None:
    right = updated(5, lambda worker: ps_task.gradient(worker, ELEMENTS))
    ps_task.check(right, 3, 5)
    ps_task.check(right, 3, 5, every=ps_task.SAMPLE)
    for rounds in (4, 6):
        with pytest.raises(ValueError, match=f"after {rounds} rounds 250001 of 250001 parameters are wrong"):
            ps_task.check(right, 3, rounds)
    with pytest.raises(ValueError, match="are wrong"):
        ps_task.check(np.roll(right, 1024), 3, 5, every=ps_task.SAMPLE)
    right[-1] += 1
    with pytest.raises(ValueError, match="after 5 rounds 1 of 250001 parameters are wrong: number 250000"):
        ps_task.check(right, 3, 5)


def test_the_check_detects_a_worker_that_was_counted_twice() -> None:
    wrong = updated(1, lambda worker: ps_task.gradient(max(worker, 2), ELEMENTS))
    with pytest.raises(ValueError, match="are wrong"):
        ps_task.check(wrong, 3, 1)


def test_systems_alternate_and_the_warm_up_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    def taking(name: str, seconds: float) -> ps.Rounds:
        def measure(rounds: int) -> list[float]:
            order.append(name)
            return [100.0] * ps.WARM_UP + [seconds] * (rounds - ps.WARM_UP)

        return measure

    def ours(_ranks: int, _elements: int, rounds: int, options: Sequence[str] = ()) -> list[float]:
        return taking(" ".join(["ours", *options]), 1.0 if options else 0.5)(rounds)

    monkeypatch.setattr(ps, "farandole_rounds", ours)
    monkeypatch.setattr(
        ps,
        "peers",
        lambda _ranks, _elements: {"slow": taking("slow", 2.0), "4 copies at once": taking("fast", 0.1)},
    )
    row, *variants = ps.rows(4)
    assert order[0] == "ours"
    assert order[7:9] == ["slow", "fast"]
    assert order == order[:9] * ps.SWEEPS
    assert [each["peers"][ps.NAME]["ratio"] for each in variants] == [0.5] * 6
    in_place, others = ["in place", "in place, on 2 servers"], ["by messages", "on 2 servers", "on 4 servers"]
    assert [each["name"] for each in variants] == [*in_place, *others, ps.SPARSE]
    assert variants[-1]["rows_per_s"] == 3 * ps.TOUCHED / 1.0
    assert (row["size"], row["ranks"], row["median_s"]) == (40_000_000, 4, 0.5)
    assert row["peers"]["slow"] == {"median_s": 2.0, "ratio": 4.0}
    assert row["peers"]["4 copies at once"]["ratio"] == pytest.approx(0.2)
    # Four copies touch 8 · 40 MB in 0.1 s; a round of three workers touches 3 + 2 times 40 MB, and 3 · 2 for copies.
    assert row["memory_fraction"] == pytest.approx(11 / 8 * 0.1 / 0.5)
    assert variants[0]["memory_fraction"] == pytest.approx(5 / 8 * 0.1 / 1.0)
    assert variants[-1]["memory_fraction"] == pytest.approx(11 / 8 * 0.1 * (4 * ps.TOUCHED * ps.WIDTH / 40_000_000))


def test_without_ray_the_other_systems_are_measured_and_one_line_gives_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    peers = ps.peers(4, ELEMENTS)
    assert "Ray" not in peers
    assert "torch RPC" in peers
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pip install 'farandole[bench]'" in said


def test_too_little_shared_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "object_store_bytes", lambda _workers, _elements: 1 << 60)
    assert "MiB free and Ray needs" in str(launching.why_no_ray(3, ELEMENTS))


def test_one_rank_is_refused() -> None:
    with pytest.raises(UsageError, match="needs 2 or more"):
        ps.rows(1)
