"""``farandole bench launch``: its programs, its row, and that a failed launch is no measurement."""

from __future__ import annotations

import os

import pytest

from farandole.errors import LaunchError
from farandole_tools.bench import BENCHMARKS, launch
from farandole_tools.bench.launch import EACH_IMPORTS, OURS, TORCH_ALONE, TORCHRUN
from farandole_tools.forked_ranks import fork_client


def test_a_row_compares_our_median_with_each_peers() -> None:
    assert BENCHMARKS["launch"] == launch.__name__
    row = launch.row(4, {OURS: 2.0, EACH_IMPORTS: 4.0, TORCHRUN: 5.0, TORCH_ALONE: 1.5})
    assert {name: row[name] for name in ("name", "size", "ranks", "median_s")} == {
        "name": "launch, one step", "size": 0, "ranks": 4, "median_s": 2.0
    }  # fmt: skip
    assert {name: its["ratio"] for name, its in row["peers"].items()} == {
        EACH_IMPORTS: 2.0, TORCHRUN: 2.5, TORCH_ALONE: 0.75
    }  # fmt: skip


def test_the_systems_differ_in_what_starts_the_ranks() -> None:
    found = launch.systems(3)
    assert found[OURS][0] == found[EACH_IMPORTS][0]
    assert (found[OURS][1], found[EACH_IMPORTS][1]) == ({}, {fork_client.ADDRESS: "0"})
    assert "--nproc-per-node=3" in found[TORCHRUN][0]


def test_a_launch_is_timed_without_this_process_s_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fork_client.ADDRESS, "of this process")
    asserts = f"import os; assert {fork_client.ADDRESS!r} not in os.environ; assert os.getcwd() != {os.getcwd()!r}"
    assert launch.timed(["-c", asserts], {}) > 0
    with pytest.raises(LaunchError, match="ended with 3: told"):
        launch.timed(["-c", "import sys; print('told', file=sys.stderr); sys.exit(3)"], {})


@pytest.mark.soak
def test_all_systems_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "SWEEPS", 1)
    [row] = launch.rows(2)
    assert row["median_s"] > 0
    assert set(row["peers"]) == {EACH_IMPORTS, TORCHRUN, TORCH_ALONE}
