"""`farandole bench methods`: every method under every condition that it can have, beside synchronous SGD."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from farandole import scenarios
from farandole.errors import LaunchError, UsageError
from farandole.methods import Method
from farandole.runtime.command_line import parse, to_arguments
from farandole_tools.bench import methods


def run_of(losses: list[float]) -> Any:
    summary = SimpleNamespace(wall_s=9.0, test_accuracy=0.9, bytes_sent=[100, 300])
    return SimpleNamespace(
        metrics=[{"loss": loss, "wall_s": 1.0 + n} for n, loss in enumerate(losses)], summary=summary
    )


def test_each_methods_row_is_relative_to_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(scenario: str, ranks: int, *, link_mbps: float | None = None, **options: Any) -> Any:
        if link_mbps and scenario in ("horovod_sgd", "ddp_sgd"):
            raise UsageError("no messages of ours")
        if scenario == "local_sgd":
            return run_of([0.4, 0.4])
        return run_of([2.0, 1.0] if scenario == "layer_split" else [2.0, 0.4, 0.4])

    monkeypatch.setattr(methods, "launch", launch)
    found = {row["name"]: row for row in methods.rows(4)}
    assert len(found) == 3 * len(methods.measured()) - 2
    assert "100 Mbit/s: Horovod" not in found
    assert found["fast: local SGD, 8 steps"]["peers"] == {"ring": {"median_s": 2.0, "ratio": 2.0}}
    assert found["straggler: layer split"]["median_s"] is None
    assert found["straggler: layer split"]["peers"] == {}
    assert found["fast: ring"]["size"] == 300
    assert "straggler: layer split" in methods.notes(list(found.values()))[-1]


def test_a_task_of_ones_own_is_trained_by_what_can_to_half_of_its_first_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(scenario: str, ranks: int, **options: Any) -> Any:
        assert (options["task"], options["steps"]) == ("my_task.py", 7)
        assert not {"data", "hidden"} & options.keys()
        if scenario == "tensor_split":
            raise UsageError("trains no task of one's own")
        return run_of([8.0, 4.1, 4.0, 3.0])

    monkeypatch.setattr(methods, "launch", launch)
    rows = methods.rows(4, methods.Recipe({"task": "my_task.py", "steps": 7}, None))
    assert {row["target"] for row in rows} == {4.0}
    assert {row["median_s"] for row in rows} == {3.0}
    assert "fast: tensor split" not in {row["name"] for row in rows}
    assert methods.notes(rows) == ["to a loss of 4", "tensor split is left out: trains no task of one's own"]


def test_without_the_ring_there_is_nothing_to_compare_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "launch", lambda *_, **__: run_of([2.0]))
    with pytest.raises(LaunchError, match="synchronous SGD does not come to a loss"):
        methods.rows(4)


@pytest.mark.parametrize("method", methods.measured(), ids=lambda method: method.name)
def test_each_methods_options_reach_its_scenario(method: methods.Method) -> None:
    """Options as `launch` passes them on; a condition changes only its own option."""
    kind = scenarios.load(method.scenario).Config
    given = methods.RECIPE | method.options
    plain = parse(kind, to_arguments(given))
    assert {name: getattr(plain, name) for name in given} == given
    for disturbance in methods.conditions(4).values():
        disturbed = parse(kind, to_arguments(given | disturbance))
        changed = {each.name for each in fields(kind) if getattr(disturbed, each.name) != getattr(plain, each.name)}
        assert changed == set(disturbance)


def test_one_method_of_each_room_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: dict[str, tuple[str, Method]] = {}
    for name, row in methods.METHODS.items():
        if row.measured:
            rooms.setdefault(row.room, (name, replace(row, measured=row.measured[:1])))
    monkeypatch.setattr(methods, "METHODS", dict(rooms.values()))
    monkeypatch.setattr(methods, "CONDITIONS", ("fast",))
    monkeypatch.setattr(methods, "conditions", lambda ranks: {"fast": {}})
    monkeypatch.setattr(methods, "RECIPE", methods.RECIPE | {"data": "digits", "steps": 8, "hidden": 16})
    monkeypatch.setattr(methods, "ROUNDS", 1)
    monkeypatch.setattr(methods, "TARGET", 3.0)
    rows = methods.rows(4)
    assert len(rows) == len(rooms) >= 5
    for row in rows:
        assert row["median_s"] > 0
        assert row["peers"]["ring"]["ratio"] == pytest.approx(row["peers"]["ring"]["median_s"] / row["median_s"])
