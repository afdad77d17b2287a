"""`make test` runs the first and every k-th case of a test marked one_in(k), and all cases of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import thinned_out


def item(test: str, case: int, one_in: int | None = None) -> Any:
    mark = SimpleNamespace(args=(one_in,)) if one_in else None
    return SimpleNamespace(nodeid=f"{test}[{case}-a[b]]", get_closest_marker=lambda name: mark)


@pytest.mark.parametrize(("one_in", "kept"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3]), (9, [0])])
def test_the_first_and_every_kth_case_stay(one_in: int, kept: list[int]) -> None:
    thinned = [item("x.py::test_a", case, one_in) for case in range(5)]
    others = [item("x.py::test_b", case) for case in range(5)]
    mixed = [each for pair in zip(thinned, others, strict=True) for each in pair]
    left_out = [*thinned_out(mixed)]
    assert [case for case in range(5) if thinned[case] not in left_out] == kept
    assert not [each for each in others if each in left_out]
