"""Every method that is deterministic still ends with the recorded bits, after the recorded bytes and messages."""

from __future__ import annotations

import pytest

from tests.conftest import SOAK
from tests.parallel.same_parameters import (
    HEADER_BYTES,
    KINDS,
    commands,
    differences,
    entered,
    on_machine,
    recorded,
    train,
)

BY_RANKS = commands()
# On four ranks make test trains every second of these, on two what it does not train on four. The methods' own tests
# compare them on the other numbers of ranks with one process, and count their messages there.
ONLY_SOAK = {1, 3, 7}
ON_FOUR = BY_RANKS[4] if SOAK else BY_RANKS[4][::2]


@pytest.mark.numerics
@pytest.mark.parametrize(
    "ranks", [pytest.param(ranks, marks=pytest.mark.soak if ranks in ONLY_SOAK else ()) for ranks in BY_RANKS]
)
def test_every_training_ends_as_it_was_recorded(ranks: int) -> None:
    commands = ON_FOUR if ranks == 4 else [each for each in BY_RANKS[ranks] if SOAK or each not in ON_FOUR]
    found = train(ranks, commands)
    trainings = on_machine(recorded()[str(ranks)], found["numerics"])
    trainings = {name: training for name, training in trainings.items() if name in commands}
    differing = [*differences(trainings, found["trainings"], KINDS)]
    assert not differing, "\n".join(differing)
    if unknown := sum(training["parameters"] is None for training in trainings.values()):
        pytest.skip(f"no machine that rounds like this one has recorded the parameters of {unknown} trainings")


def test_a_training_that_differs_is_reported() -> None:
    expected = {"a -n 2": {"parameters": ["1", "1"], "bytes": [3, 3]}, "b": {"parameters": ["2"], "bytes": [0]}}
    found = {"a -n 2": {"parameters": ["1", "2"], "bytes": [3, 3]}, "c": {"parameters": ["2"], "bytes": [0]}}
    assert [*differences(expected, found, ("parameters", "bytes"))] == [
        "a -n 2: parameters ['1', '2'], not ['1', '1']",
        "b: not trained",
        "c: not recorded",
    ]
    assert not [*differences(expected, expected, ("parameters", "bytes"))]


def test_parameters_are_recorded_for_each_machine_until_a_training_changes() -> None:
    found = {"parameters": ["1"], "bytes": [3], "messages": [1]}
    known = entered({}, "one", {"a": found})
    both = entered(known, "other", {"a": found | {"parameters": ["2"]}, "b": found})
    assert both["a"] == found | {"parameters": {"one": ["1"], "other": ["2"]}}
    assert both["b"] == found | {"parameters": {"other": ["1"]}}
    assert entered(both, "one", {"a": found})["a"] == both["a"]
    assert on_machine(both, "other")["a"] == found | {"parameters": ["2"]}
    unknown = {"a": on_machine(both, "third")["a"]}
    assert not [*differences(unknown, {"a": found | {"parameters": ["3"]}}, KINDS)]
    assert [*differences(unknown, {"a": found | {"bytes": [4]}}, KINDS)] == ["a: bytes [4], not [3]"]
    for changed in ({"parameters": ["4"]}, {"bytes": [4]}, {"messages": [2]}):
        now = found | changed
        assert entered(both, "one", {"a": now})["a"] == now | {"parameters": {"one": now["parameters"]}}


def test_heartbeats_are_not_counted_as_a_difference() -> None:
    served = "parameter_server --steps 4"
    expected = {served: {"parameters": ["1"], "bytes": [300, 500], "messages": [3, 5]}}
    for messages, sent in ([4, 5], [300 + HEADER_BYTES, 500]), ([3, 3], [300, 500 - 2 * HEADER_BYTES]):
        found = {served: {"parameters": ["1"], "bytes": sent, "messages": messages}}
        assert not [*differences(expected, found, KINDS)]
        found = {served: {"parameters": ["2"], "bytes": sent, "messages": messages}}
        assert len([*differences(expected, found, KINDS)]) == 1
        found = {served: {"parameters": ["1"], "bytes": [sent[0] + 8, sent[1]], "messages": messages}}
        assert len([*differences(expected, found, KINDS)]) == 2
    assert [*differences({"a": expected[served]}, {"a": found[served]}, KINDS)]
