"""How waiting ranks and errors are told, without any launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.lab import board, learner
from farandole.lab.board import RETURNED, Board, Place
from farandole.lab.labs import Wrong


def place(rank: int, call: str, to: int = -1, source: int = -1) -> Place:
    return Place(rank, call, to, source, changes=1)


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ([place(0, "send", 1), place(1, "send", 2), place(2, "send", 0)], "ranks 0, 1 and 2 all wait in send: nobody"),
        ([place(0, "receive", -1, 1), place(1, "receive", -1, 0)], "ranks 0 and 1 all wait in receive: nobody sends"),
        (
            [place(0, "send", 1), place(1, RETURNED), place(2, RETURNED)],
            "rank 0 waits in send (to rank 1); ranks 1 and 2 have returned",
        ),
        (
            [place(0, "exchange", 1, 1), place(1, "barrier"), place(2, "")],
            "rank 0 waits in exchange (to rank 1, from rank 1); rank 1 waits in barrier; rank 2 computes",
        ),
        ([place(0, "barrier"), place(1, "barrier"), place(2, "send", 0)], "ranks 0 and 1 wait in barrier; rank 2"),
    ],
)
def test_who_waits_for_whom(places: list[Place], told: str) -> None:
    assert board.describe(places).startswith(told)


def test_nobody_is_stuck_while_one_computes_or_all_have_returned() -> None:
    assert board.first_stuck([place(0, "send", 1), place(1, "")], 2) is None
    assert board.first_stuck([place(0, RETURNED), place(1, RETURNED)], 2) is None
    assert board.first_stuck([place(0, "send", 1)], 2) is None, "the other has not begun"
    assert board.first_stuck([place(0, RETURNED), place(1, "send", 0)], 2) == 1


def test_a_board_shows_where_its_rank_is(tmp_path: Path) -> None:
    boards = [Board(rank, tmp_path) for rank in range(2)]
    with boards[1].waiting("send", to=0):
        before = board.read(tmp_path, 2)
        assert (before[1].call, before[1].to, before[1].waits) == ("send", 0, True)
        assert (before[0].call, before[0].waits) == ("", False)
    boards[1].returned()
    after = board.read(tmp_path, 2)
    assert after[1].call == RETURNED
    assert after[1].changes > before[1].changes


def test_an_error_is_told_with_its_case_and_cut_to_a_line() -> None:
    error = Wrong("x" * 1000)
    error.add_note("length 3")
    text = learner.explain(error, Path("mine.py"))
    assert text.startswith("length 3: xxx")
    assert len(text) == learner.MESSAGE_LENGTH
    assert "\n" not in learner.explain(ValueError("two\nlines"), Path("mine.py"))
