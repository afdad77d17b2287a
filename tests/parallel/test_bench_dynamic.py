"""`farandole bench dynamic`: equal conditions for all, when a loss counts as reached, and the output."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from farandole import launch
from farandole.runtime.faults import Slow
from farandole.runtime.links import LinkChange
from farandole.runtime.record import Run
from farandole_tools.bench import dynamic

Line = dict[str, float]


def test_every_choice_starts_equal_and_divides_steps_as_its_row_states(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[tuple[dict[str, Any], list[Line]]] = []

    def remembered(*what: Any, **options: Any) -> Run:
        run = launch(*what, **options)
        records.append((options, run.metrics))
        return run

    monkeypatch.setattr(dynamic, "launch", remembered)
    monkeypatch.setattr(dynamic, "ROUNDS", 1)
    monkeypatch.setattr(dynamic, "PACE", 2)
    monkeypatch.setattr(dynamic, "PERIODS", (8,))
    monkeypatch.setattr(dynamic, "TARGET", 2.1)
    monkeypatch.setattr(dynamic, "NETWORK", {"steps": 80, "link_mbps": 1000})
    monkeypatch.setattr(dynamic, "STRAGGLER", {"steps": 80})
    monkeypatch.setattr(dynamic, "CHANGE", 40)
    rows = dynamic.rows(2)
    assert [row["name"] for row in rows] == [
        "network, equal steps", "network, by speed", "straggler, equal steps", "straggler, by speed",
    ]  # fmt: skip
    for row in rows:
        assert row["peers"].keys() == {"period 8"}
        assert all("error" not in peer for peer in row["peers"].values())
    assert len(records) == 2 * (1 + 2)
    assert len({lines[0]["loss"] for _, lines in records}) == 1
    for options, lines in records:
        unequal = any(line["fewest_steps"] < line["most_steps"] for line in lines)
        if options.get("equal_steps"):
            assert not unequal
        elif "period" in options and "link_mbps" not in options:
            assert unequal


def test_each_change_comes_midway_and_all_else_is_equal() -> None:
    network, straggler = dynamic.changes(4).values()
    assert 0 < LinkChange.parse(network["link_change"]).step < network["steps"]
    *paces, before, after = map(Slow.parse, straggler["slow"])
    assert [pace.rank for pace in paces] == [0, 1, 2, 3]
    assert before.end == after.first < straggler["steps"]
    assert before.rank != after.rank
    assert before.factor == after.factor == 4 * paces[0].factor
    for choice, options in dynamic.choices().items():
        assert options.keys() <= {"period", "equal_steps"}, choice
    fixed = {(options["period"], options.get("equal_steps", False)) for options in list(dynamic.choices().values())[1:]}
    assert fixed == {(period, equal) for period in (1, 4, 8, 16, 64) for equal in (True, False)}


def test_a_choice_that_does_not_reach_the_loss_has_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses = {1: [2.0, 1.9, 1.8], 8: [2.0, 1.5, 1.4, 1.2, 1.0, 0.9], None: [2.0, 1.0, 0.5]}

    def launch(_: str, __: int, period: int | None = None, **___: Any) -> Any:
        return SimpleNamespace(metrics=[{"loss": loss, "wall_s": 1.0 + n} for n, loss in enumerate(losses[period])])

    monkeypatch.setattr(dynamic, "launch", launch)
    monkeypatch.setattr(dynamic, "PERIODS", (1, 8))
    monkeypatch.setattr(dynamic, "TARGET", 1.0)
    row = dynamic._rows_of("network", 2, {"steps": 48})[0]
    assert row["median_s"] == 2.0
    assert row["peers"]["period 1"] == {"error": "does not come to a loss of 1.0 in 48 steps"}
    assert row["peers"]["period 8"] == {"median_s": 5.0, "ratio": 2.5}


@pytest.mark.parametrize(
    ("losses", "when"), [([2, 1, 1], 1.0), ([2, 1, 3, 1, 0.5], 3.0), ([2, 2], None), ([0.9, 1.2, 0.9], 2.0)]
)
def test_a_loss_is_reached_when_it_stays(losses: list[float], when: float | None) -> None:
    run = SimpleNamespace(metrics=[{"loss": loss, "wall_s": float(n)} for n, loss in enumerate(losses)])
    assert dynamic.time_to(1.0, cast(Run, run)) == when
