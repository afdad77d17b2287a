"""`farandole bench recovery`: what protection costs is a ratio of times that were measured next to each other."""

from __future__ import annotations

from farandole_tools.bench import recovery_rounds


def test_the_cost_is_compared_round_by_round() -> None:
    found = recovery_rounds.beside([1.0, 3.0, 2.0], [2.0, 4.0, 8.0])
    assert found == {"median_s": 2.0, "ratio": 0.5}, "the median of 1/2, 3/4 and 1/4"
