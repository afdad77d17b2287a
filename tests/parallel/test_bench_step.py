"""`farandole bench step`: everyone trains the same model, which is checked inside; rows say what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole import LaunchError
from farandole.bench import step
from farandole.bench.step_task import CLASSES, DEPTH, OURS, SHAPE, parameters
from farandole.models.classifiers import mlp
from farandole.runtime.launcher import run_ranks


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "WIDTHS", {16: 2, 40: 2})
    monkeypatch.setattr(step, "SWEEPS", 1)
    rows = step.rows(3)
    assert [(row["name"], row["ranks"]) for row in rows] == [(name, 3) for name in OURS] * 2
    for row, width in zip(rows, [16] * len(OURS) + [40] * len(OURS), strict=True):
        assert row["size"] == 4 * sum(each.numel() for each in mlp(SHAPE, CLASSES, width, DEPTH).parameters())
        assert row["peers"].keys() == {"torch DDP", "Horovod", "our ring"}
        for peer in (its for its in row["peers"].values() if "error" not in its):
            assert peer["ratio"] == pytest.approx(peer["median_s"] / row["median_s"])


def test_whoever_trains_something_else_is_found(tmp_path: Path) -> None:
    program = tmp_path / "lazy.py"
    program.write_text(
        "from farandole.bench import step_rounds\n"
        "step_rounds.ALL_REDUCES['ring'] = lambda comm, vector: None\n"
        "step_rounds.main()\n"
    )
    with pytest.raises(LaunchError, match="ring trains something else"):
        run_ranks([str(program), "[[16, 2]]", "window", "ring"], 2)


def test_the_large_model_has_ten_million_parameters() -> None:
    assert parameters(max(step.WIDTHS)) == pytest.approx(10e6, rel=0.02)
    assert parameters(min(step.WIDTHS)) == pytest.approx(0.11e6, rel=0.05)
