"""``farandole run`` prepares the launch before it reads the options."""

from __future__ import annotations

import pytest

from farandole.cli import run
from farandole.runtime import crowding


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("run sync_sgd", 4),
        ("run sync_sgd -n 2 --steps 3", 2),
        ("run sync_sgd --steps 3 --ranks 7", 7),
        ("run ssp --ranks=5", 5),
        ("run sinc_sgd", None),
        ("run sync_sgd -n x", None),
        ("run sync_sgd -n -3", None),
        ("run sync_sgd --help", None),
        ("run", None),
        ("compare bsp ssp -n 2", None),
    ],
)
def test_it_prepares_as_many_ranks_as_are_given(words: str, ranks: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[int] = []
    monkeypatch.setattr(crowding, "prepare", prepared.append)
    run.prepare(words.split())
    assert prepared == ([] if ranks is None else [ranks])
