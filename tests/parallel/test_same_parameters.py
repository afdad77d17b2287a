"""Every method that is deterministic still ends with the recorded bits, after the recorded bytes and messages."""

from __future__ import annotations

import pytest

from tests.parallel.same_parameters import KINDS, commands, differences, recorded, train

BY_RANKS = commands()


@pytest.mark.numerics
@pytest.mark.parametrize("ranks", BY_RANKS)
def test_every_training_ends_as_it_was_recorded(ranks: int) -> None:
    record, found = recorded(), train(ranks, BY_RANKS[ranks])
    same_machine = found["numerics"] == record["numerics"]
    compared = KINDS if same_machine else KINDS[1:]
    differing = [*differences(record["trainings"][str(ranks)], found["trainings"], compared)]
    assert not differing, "\n".join(differing)
    if not same_machine:
        pytest.skip("torch and numpy round otherwise here than where the record was made: only bytes and messages hold")


def test_a_training_that_differs_is_reported() -> None:
    expected = {"a -n 2": {"parameters": ["1", "1"], "bytes": [3, 3]}, "b": {"parameters": ["2"], "bytes": [0]}}
    found = {"a -n 2": {"parameters": ["1", "2"], "bytes": [3, 3]}, "c": {"parameters": ["2"], "bytes": [0]}}
    assert [*differences(expected, found, ("parameters", "bytes"))] == [
        "a -n 2: parameters ['1', '2'], not ['1', '1']",
        "b: not trained",
        "c: not recorded",
    ]
    assert not [*differences(expected, expected, ("parameters", "bytes"))]
    served = "parameter_server --steps 4"
    one, other = {"parameters": ["1"], "bytes": [3]}, {"parameters": ["1"], "bytes": [4]}
    assert not [*differences({served: one}, {served: other}, ("parameters", "bytes"))]
    assert [*differences({"a": one}, {"a": other}, ("parameters", "bytes"))]
