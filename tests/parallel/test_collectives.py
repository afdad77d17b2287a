"""All-reduce under mpirun: equal to MPI's, the same bits on all ranks, at the counted cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.fitting import MODELLED
from farandole.launching import launch


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_all_reduces_equal_mpis(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("collectives.py", ranks)
    assert answer["checked"] == len(ALL_REDUCES) + 3
    assert answer["ring_bytes_of_1000_floats"] == pytest.approx(2 * (ranks - 1) / ranks * 4000, abs=8)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_auto_sums_by_the_schedule_that_is_the_fastest_by_what_it_measured_once(
    under_mpirun: Callable[..., Any], ranks: int
) -> None:
    answer = under_mpirun("automatic_all_reduce.py", ranks)
    assert answer["files"] == ["network.json"]
    assert set(answer["figures"]["chosen"].values()) <= set(MODELLED)


def test_a_training_with_auto_is_that_of_the_schedule_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    auto = launch("sync_sgd", 3, steps=4, collective="auto", out=tmp_path / "auto")
    said = json.loads((tmp_path / "auto" / "collective.json").read_text(encoding="utf-8"))
    [(nbytes, name)] = said["chosen"].items()
    assert said["kept"] == str(tmp_path / "cache" / "farandole" / "network.json")
    named = launch("sync_sgd", 3, steps=4, collective=name, out=tmp_path / "named")
    assert auto.summary.params_sha256 == named.summary.params_sha256
    assert auto.summary.bytes_sent == named.summary.bytes_sent
    assert int(nbytes) == 4 * 26_122


@pytest.mark.parametrize("scenario", ["local_sgd", "diloco", "agnostic_sgd"])
def test_methods_that_form_means_know_auto(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    launch(scenario, 2, steps=4, collective="auto", out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "collective.json").read_text(encoding="utf-8"))["chosen"]
