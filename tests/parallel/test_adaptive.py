"""The mode that `adaptive` chooses trains exactly as when the options request it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from farandole import UsageError, launch
from farandole.cli.advise import advise

RECIPE: dict[str, Any] = {"steps": 3, "hidden": 64, "depth": 4, "balance": "layers", "flops": 1e9}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("ranks", "options", "names"),
    [
        (4, {"precision": "float64"}, {"data", "grid", "pipeline", "tensor"}),
        # Parameters and gradients are 137 KB, and a half of them fits: no rank can hold them all.
        (3, {"memory_mb": 0.11}, {"pipeline", "tensor"}),
        (1, {}, {"single"}),
    ],
)
def test_the_choice_trains_as_the_same_grid_of_hybrid(
    ranks: int, options: dict[str, Any], names: set[str], tmp_path: Path
) -> None:
    """And `hybrid` equals the single process, as `test_model_parallel` checks at every step."""
    chosen = launch("adaptive", ranks, **RECIPE, **options, out=tmp_path / "adaptive")
    best, *others = chosen.modes["modes"]
    assert best["name"] in names
    assert best["fits"]
    assert all(best["step_s"] <= other["step_s"] for other in others if other["fits"])
    assert best["data"] * best["pipeline"] * best["tensor"] == ranks
    assert [device["flops"] for device in chosen.modes["devices"]] == [1e9] * ranks
    grid = {f"{axis}_ranks": best[axis] for axis in ("data", "pipeline", "tensor")}
    common = {name: value for name, value in (RECIPE | options).items() if name not in ("flops", "memory_mb")}
    asked = launch("hybrid", ranks, **common, **grid, micro_batches=best["micro_batches"], out=tmp_path / "hybrid")
    assert chosen.summary.params_sha256 == asked.summary.params_sha256
    memory = chosen.summary.memory
    assert memory
    held = [sum(memory["formula"][kind][rank] or 0 for kind in memory["formula"]) for rank in range(ranks)]
    assert max(held) == pytest.approx(best["memory"], rel=0.1), "the predicted memory is what the executor accounts for"


def test_a_training_that_fits_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no mode fits: \w+ \d×\d×\d in \d+ micro-batches needs .* MB"):
        launch("adaptive", 2, **RECIPE, memory_mb=0.01, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_advise_measures_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    advise(ranks=2, hidden=32, json=True)
    found = json.loads(capsys.readouterr().out)
    assert {mode["name"] for mode in found["modes"]} == {"data", "pipeline", "tensor"}
    assert all(device["flops"] > 0 and device["memory"] > 0 for device in found["devices"])
