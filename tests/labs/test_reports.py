"""Messages about waiting ranks and errors, without any launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole_tools.lab import learner, rank_status
from farandole_tools.lab.labs import Wrong
from farandole_tools.lab.rank_status import RETURNED, RankStatus, StatusFile


def status(rank: int, call: str, to: int = -1, source: int = -1) -> RankStatus:
    return RankStatus(rank, call, to, source, changes=1)


@pytest.mark.parametrize(
    ("statuses", "told"),
    [
        (
            [status(0, "send", 1), status(1, "send", 2), status(2, "send", 0)],
            "ranks 0, 1 and 2 all wait in send: no rank",
        ),
        (
            [status(0, "receive", -1, 1), status(1, "receive", -1, 0)],
            "ranks 0 and 1 all wait in receive: no rank sends",
        ),
        (
            [status(0, "send", 1), status(1, RETURNED), status(2, RETURNED)],
            "rank 0 waits in send (to rank 1); ranks 1 and 2 have returned",
        ),
        (
            [status(0, "exchange", 1, 1), status(1, "barrier"), status(2, "")],
            "rank 0 waits in exchange (to rank 1, from rank 1); rank 1 waits in barrier; rank 2 computes",
        ),
        ([status(0, "barrier"), status(1, "barrier"), status(2, "send", 0)], "ranks 0 and 1 wait in barrier; rank 2"),
    ],
)
def test_who_waits_for_whom(statuses: list[RankStatus], told: str) -> None:
    assert rank_status.describe(statuses).startswith(told)


def test_nobody_is_stuck_while_one_computes_or_all_have_returned() -> None:
    assert rank_status.first_stuck([status(0, "send", 1), status(1, "")], 2) is None
    assert rank_status.first_stuck([status(0, RETURNED), status(1, RETURNED)], 2) is None
    assert rank_status.first_stuck([status(0, "send", 1)], 2) is None, "the other has not begun"
    assert rank_status.first_stuck([status(0, RETURNED), status(1, "send", 0)], 2) == 1


def test_a_status_file_shows_where_its_rank_is(tmp_path: Path) -> None:
    files = [StatusFile(rank, tmp_path) for rank in range(2)]
    with files[1].waiting("send", to=0):
        before = rank_status.read(tmp_path, 2)
        assert (before[1].call, before[1].to, before[1].waits) == ("send", 0, True)
        assert (before[0].call, before[0].waits) == ("", False)
    files[1].returned()
    after = rank_status.read(tmp_path, 2)
    assert after[1].call == RETURNED
    assert after[1].changes > before[1].changes


def test_an_error_is_told_with_its_case_and_cut_to_a_line() -> None:
    error = Wrong("x" * 1000)
    error.add_note("length 3")
    text = learner.explain(error, Path("mine.py"))
    assert text.startswith("length 3: xxx")
    assert len(text) == learner.MESSAGE_LENGTH
    assert "\n" not in learner.explain(ValueError("two\nlines"), Path("mine.py"))
