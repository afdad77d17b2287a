"""``simulate --validate`` with real ranks: runs are predicted, started, and recorded. Their times are not judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.cli.simulate_validate import launchers
from farandole.cost import validated
from farandole.cost.calibrated import CALIBRATIONS
from farandole.cost.validated import validate
from farandole.cost.validated_runs import STRAGGLERS, cases


def test_two_methods_are_predicted_and_then_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [replace(case, steps=2, conditions=(STRAGGLERS,)) for case in cases() if case.method in ("async", "random-k")]
    monkeypatch.setattr(validated, "cases", lambda: iter([*few, *(case for case in cases() if case.method == "ring")]))
    short = {name: replace(CALIBRATIONS[name], steps=2) for name in ("ring", "bsp")}
    monkeypatch.setattr(validated, "CALIBRATIONS", short)
    rows = list(validate(["async", "random-k"], tmp_path, 0, launchers()))
    assert [row.prediction.name for row in rows] == ["async, stragglers", "random-k, stragglers"]
    predicted_at = json.loads((tmp_path / "predictions.json").read_text())["predicted"]
    for row in rows:
        assert row.prediction.predicted_s > 0
        assert row.measurement.measured_s > 0.06, "a worker sleeps for as long"
        assert row.measurement.began > predicted_at
    assert rows[1].measurement.encoding_s > 0
