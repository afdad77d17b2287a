"""Asking for one more worker: what is refused, and how the answer is read from the event log."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import LaunchError, UsageError
from farandole.recovery import join_request
from farandole.recovery.event_log import EventLog
from farandole.recovery.events import Line
from farandole.recovery.join_request import Answer
from farandole.recovery.options import MembershipOptions


def run_in(folder: Path, **options: object) -> Path:
    (folder / "config.json").write_text(json.dumps(asdict(MembershipOptions()) | options, default=str))
    return folder


def book(*entries: tuple[Any, ...]) -> list[Line]:
    return [Line(float(when), *entry) for when, entry in enumerate(entries)]


ASKED = ("asked for", 3, 20, "join-7")
SENT = [ASKED, ("sent for", 3, 20), ("start", 0, 20), ("first step", 0, 20)]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], None),
        ([("enlarged", 0, 20), ("asked for", 3, 20, "join-6"), ("first step", 0, 20)], None),
        ([ASKED], Answer(3, False, 20)),
        ([("first step", 0, 3), ASKED, ("start", 0, 20), ("first step", 0, 20)], Answer(3, False, 20, 20)),
        ([ASKED, ("departed", 3, 20), ("first step", 0, 20)], Answer(3, False, 20, is_lost=True)),
        ([ASKED, ("first step", 0, 20), ("departed", 3, 20)], Answer(3, False, 20, 20)),
        (SENT, Answer(3, True, 20)),
        ([*SENT, ("departed", 1, 25), ("first step", 0, 25)], Answer(3, True, 20)),
        ([*SENT, ("departed", 3, 30)], Answer(3, True, 20, is_lost=True)),
        ([*SENT, ("joined", 3, 40)], Answer(3, True, 20)),
        ([*SENT, ("joined", 3, 40), ("first step", 0, 40)], Answer(3, True, 20, 40)),
        ([("sent for", 4, 10), ASKED, ("joined", 4, 30), ("first step", 0, 30)], Answer(3, False, 20, 30)),
    ],
)
def test_what_has_become_of_a_request(entries: list[tuple[Any, ...]], expected: Answer | None) -> None:
    assert join_request.answer_to("join-7", book(*entries)) == expected


def test_requests_are_answered_once_each_in_their_order(tmp_path: Path) -> None:
    event_log = EventLog(tmp_path / "logbook.jsonl")
    assert join_request.next_request(tmp_path, event_log) is None
    for name in ("join-2", "join-1", "metrics.jsonl"):
        (tmp_path / name).touch()
    for name in ("join-1", "join-2"):
        assert join_request.next_request(tmp_path, event_log) == name
        event_log.write("asked for", 3, 20, name)
    assert join_request.next_request(tmp_path, event_log) is None


def test_who_is_lost_on_the_way_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event_log = EventLog(tmp_path / "logbook.jsonl")

    def training(_: float) -> None:
        [request] = tmp_path.glob("join-*")
        event_log.write("asked for", 3, 20, request.name)
        event_log.write("sent for", 3, 20)
        event_log.write("departed", 3, 30)

    monkeypatch.setattr(join_request.time, "sleep", training)
    with pytest.raises(LaunchError, match="rank 3, which was to join, has died: ask again"):
        join_request.ask(run_in(tmp_path), 5.0, print)
    assert not list(tmp_path.glob("join-*"))


def test_a_training_that_ends_first_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_request.time, "sleep", lambda _: (tmp_path / "summary.json").touch())
    with pytest.raises(LaunchError, match="the training has ended, and no worker has joined it"):
        join_request.ask(run_in(tmp_path), 5.0, print)


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(
        LaunchError, match=r"no worker has joined within 0.1 s; it has not noticed the request: does it still run"
    ):
        join_request.ask(run_in(tmp_path), 0.1, print)
    assert [each.name for each in tmp_path.iterdir()] == ["config.json"], "the request is withdrawn"


def test_what_nobody_can_join_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no run's folder"):
        join_request.ask(tmp_path, 1.0, print)
    run_in(tmp_path)
    (tmp_path / "summary.json").touch()
    with pytest.raises(UsageError, match="the training is over"):
        join_request.ask(tmp_path, 1.0, print)
    (tmp_path / "config.json").write_text(json.dumps({"steps": 3}))
    with pytest.raises(UsageError, match="a worker can join membership and backup"):
        join_request.ask(tmp_path, 1.0, print)


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"[1]", b"null"])
def test_a_run_whose_options_are_damaged_is_refused_in_one_line(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "config.json").write_bytes(damage)
    with pytest.raises(UsageError, match=r"config\.json is damaged .*: give the folder of another run") as refused:
        join_request.ask(tmp_path, 1.0, print)
    assert "\n" not in str(refused.value)
    assert [each.name for each in tmp_path.iterdir()] == ["config.json"], "no request is left there"
