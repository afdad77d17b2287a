"""The event log: lines of several processes, including torn ones, and the failures in it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.recovery.event_log import EventLog, RankWitness
from farandole.recovery.events import UNKNOWN, What
from farandole.runtime.faults import Fail

Event = tuple[float, What, int, int] | tuple[float, What, int, int, str]

WRITER = """
import sys, time
from pathlib import Path
from farandole.recovery.event_log import EventLog
folder, rank, lines = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
event_log = EventLog(folder / "logbook.jsonl")
(folder / f"{rank}.ready").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
for step in range(lines):
    event_log.write("checkpoint", rank, step)
"""


@pytest.fixture
def event_log(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path / "logbook.jsonl")


def tell(event_log: EventLog, *events: Event) -> None:
    """Write events: time, rank, step and kind."""
    for when, what, rank, step, *kind in events:
        event_log.write(what, rank, step, "".join(kind), when)


def test_before_anything_has_happened_there_is_nothing_to_tell(event_log: EventLog) -> None:
    assert (event_log.lines(), event_log.struck(), event_log.faults()) == ([], set(), [])


def test_a_line_says_when_it_was_written(event_log: EventLog) -> None:
    before = time.time()
    event_log.write("start", 0, 7)
    [line] = event_log.lines()
    assert before <= line.when <= time.time()
    assert (line.what, line.rank, line.step, line.kind) == ("start", 0, 7, "")


def test_without_a_second_start_there_is_no_fault(event_log: EventLog) -> None:
    tell(event_log, (0, "start", 0, 0), (1, "first step", 0, 0), (2, "checkpoint", 0, 20))
    assert event_log.faults() == []
    tell(event_log, (3, "failure", 2, 25, "kill"))
    assert event_log.faults() == [], "nothing has been made good yet"


def test_a_kill_that_others_notice(event_log: EventLog) -> None:
    tell(
        event_log,
        (100.0, "start", 0, 0),
        (101.0, "first step", 0, 0),
        (105.0, "checkpoint", 0, 120),
        (110.0, "failure", 2, 130, "kill"),
        (110.5, "noticed", 2, 130, "lost"),
        (110.75, "noticed", 2, 130, "lost"),
        (112.0, "start", 0, 120),
        (113.0, "first step", 0, 120),
        (114.0, "checkpoint", 0, 140),
    )
    assert event_log.faults() == [
        {"rank": 2, "step": 130, "kind": "kill", "detected_s": 0.5, "resumed_s": 3.0, "steps_lost": 10}
    ]


def test_every_rank_that_dies_before_a_restart_is_a_fault_and_what_follows_from_it_is_none(event_log: EventLog) -> None:
    tell(
        event_log,
        (100.0, "start", 0, 0),
        (110.0, "failure", 2, 30, "kill"),
        (110.5, "noticed", UNKNOWN, 30, "lost"),
        (110.5, "failure", 1, 30, "kill"),
        (110.75, "noticed", 1, 30, "lost"),
        (111.0, "failure", 3, 30, "raise"),  # could not continue without the others
        (112.0, "start", 0, 20),
        (113.0, "first step", 0, 20),
    )
    assert [(fault["rank"], fault["kind"], fault["detected_s"]) for fault in event_log.faults()] == [
        (2, "kill", 0.5),
        (1, "kill", 0.0),
    ]


def test_who_can_be_named_is_named(event_log: EventLog) -> None:
    tell(
        event_log,
        (100.0, "start", 0, 0),
        (110.0, "noticed", UNKNOWN, 30, "lost"),
        (110.5, "noticed", 2, 30, "lost"),
        (112.0, "start", 0, 20),
    )
    assert [(fault["rank"], fault["step"]) for fault in event_log.faults()] == [(2, 30)]


def test_a_death_that_only_others_could_tell_of(event_log: EventLog) -> None:
    tell(
        event_log,
        (0.0, "start", 0, 0),
        (1.0, "first step", 0, 0),
        (2.0, "noticed", 1, 7, "lost"),
        (5.0, "start", 0, 0),
        (6.5, "first step", 0, 0),
    )
    assert event_log.faults() == [
        {"rank": 1, "step": 7, "kind": "lost", "detected_s": None, "resumed_s": 4.5, "steps_lost": 7}
    ]


def test_a_death_that_nobody_was_left_to_notice_counts_from_the_last_sign_of_life(event_log: EventLog) -> None:
    tell(
        event_log,
        (0.0, "start", 0, 0),
        (1.0, "first step", 0, 0),
        (4.0, "checkpoint", 0, 20),
        (8.0, "checkpoint", 0, 40),
        (20.0, "start", 0, 20),
        (21.0, "first step", 0, 20),
    )
    assert event_log.faults() == [
        {"rank": UNKNOWN, "step": 40, "kind": "lost", "detected_s": None, "resumed_s": 13.0, "steps_lost": 20}
    ]


def test_two_failures_in_two_restarts(event_log: EventLog) -> None:
    tell(
        event_log,
        (0, "start", 0, 0),
        (1, "first step", 0, 0),
        (5, "failure", 1, 30, "kill"),
        (6, "noticed", 1, 30, "lost"),
        (9, "start", 0, 20),
        (10, "first step", 0, 20),
        (20, "checkpoint", 0, 40),
        (24, "failure", 3, 47, "hang"),
        (34, "noticed", 3, 47, "lost"),
        (40, "start", 0, 40),
        (42, "first step", 0, 40),
    )
    assert event_log.faults() == [
        {"rank": 1, "step": 30, "kind": "kill", "detected_s": 1, "resumed_s": 5, "steps_lost": 10},
        {"rank": 3, "step": 47, "kind": "hang", "detected_s": 10, "resumed_s": 18, "steps_lost": 7},
    ]


def test_a_start_that_fails_before_its_first_step_delays_the_one_before_and_is_a_fault_itself(
    event_log: EventLog,
) -> None:
    tell(
        event_log,
        (0, "start", 0, 0),
        (1, "first step", 0, 0),
        (5, "failure", 1, 30, "raise"),
        (9, "start", 0, 20),
        (15, "start", 0, 20),
        (17, "first step", 0, 20),
    )
    assert event_log.faults() == [
        {"rank": 1, "step": 30, "kind": "raise", "detected_s": None, "resumed_s": 12, "steps_lost": 10},
        {"rank": UNKNOWN, "step": 20, "kind": "lost", "detected_s": None, "resumed_s": 8, "steps_lost": 0},
    ]


def test_a_failure_outside_the_steps_loses_none(event_log: EventLog) -> None:
    tell(event_log, (0, "start", 0, 20), (1, "failure", 1, -1, "raise"), (5, "start", 0, 20), (6, "first step", 0, 20))
    assert event_log.faults() == [
        {"rank": 1, "step": -1, "kind": "raise", "detected_s": None, "resumed_s": 5, "steps_lost": 0}
    ]


def test_a_stop_as_asked_is_no_fault(event_log: EventLog) -> None:
    tell(
        event_log,
        (0, "start", 0, 0),
        (1, "first step", 0, 0),
        (4, "checkpoint", 0, 33),
        (5, "stop", 0, 33),
        (60, "start", 0, 33),
        (61, "first step", 0, 33),
    )
    assert event_log.faults() == []
    tell(event_log, (70, "failure", 0, 40, "kill"), (75, "start", 0, 33), (77, "first step", 0, 33))
    assert event_log.faults() == [
        {"rank": 0, "step": 40, "kind": "kill", "detected_s": None, "resumed_s": 7, "steps_lost": 7}
    ]


def test_until_the_first_step_is_done_nothing_is_resumed(event_log: EventLog) -> None:
    tell(event_log, (0, "start", 0, 0), (1, "first step", 0, 0), (5, "failure", 1, 30, "kill"), (9, "start", 0, 20))
    assert [fault["resumed_s"] for fault in event_log.faults()] == [None]


def test_lines_are_in_order_of_time_whoever_was_quicker_to_write(event_log: EventLog) -> None:
    tell(event_log, (0, "start", 0, 0), (3, "noticed", 1, 5, "lost"), (2, "failure", 1, 5, "kill"), (9, "start", 0, 0))
    assert [line.when for line in event_log.lines()] == [0, 2, 3, 9]
    assert [fault["detected_s"] for fault in event_log.faults()] == [1]


def test_a_torn_line_costs_only_itself(event_log: EventLog) -> None:
    tell(event_log, (0, "start", 0, 0), (1, "first step", 0, 0), (5, "failure", 1, 30, "kill"))
    whole = event_log.file.read_bytes()
    tell(event_log, (6, "noticed", 1, 30, "lost"))
    for length in range(len(whole), event_log.file.stat().st_size):
        torn = event_log.file.read_bytes()[:length]
        after = EventLog(event_log.file.with_name(f"torn at {length}"))
        after.file.write_bytes(torn)
        seen = after.lines()[3:]
        assert [line.what for line in seen] in ([], ["noticed"])
        tell(after, (9, "start", 0, 20), (10, "first step", 0, 20))
        assert [(fault["kind"], fault["resumed_s"]) for fault in after.faults()] == [("kill", 5)], torn[-40:]
        assert after.struck() == {(1, 30)}


def test_lines_of_something_else_are_passed_over(event_log: EventLog) -> None:
    tell(event_log, (0, "start", 0, 0))
    with event_log.file.open("a") as file:
        file.write('\n\nnull\n[1]\n{}\n{"when": 1}\n"text"\n')
    tell(event_log, (1, "first step", 0, 0))
    assert [line.what for line in event_log.lines()] == ["start", "first step"]


def test_processes_that_write_at_the_same_time_lose_no_line(event_log: EventLog) -> None:
    ranks, lines = 4, 400
    folder = event_log.file.parent
    command = [sys.executable, "-c", WRITER, str(folder)]
    writers = [subprocess.Popen([*command, str(rank), str(lines)]) for rank in range(ranks)]
    deadline = time.monotonic() + 120
    while len(list(folder.glob("*.ready"))) < ranks:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (folder / "go").touch()
    assert [writer.wait(timeout=120) for writer in writers] == [0] * ranks
    found = sorted((line.rank, line.step) for line in event_log.lines())
    assert found == [(rank, step) for rank in range(ranks) for step in range(lines)]


def test_struck_is_who_has_failed_and_not_who_was_noticed(event_log: EventLog) -> None:
    tell(
        event_log,
        (0, "start", 0, 0),
        (5, "failure", 1, 30, "kill"),
        (6, "noticed", 1, 31, "lost"),
        (7, "failure", 2, 30, "kill"),
        (9, "start", 0, 20),
        (12, "failure", 1, 30, "raise"),
    )
    assert event_log.struck() == {(1, 30), (2, 30)}


def test_what_a_rank_witnesses_is_written_down(event_log: EventLog) -> None:
    witness = RankWitness(event_log, rank=3)
    witness.strikes(Fail(3, 7, "hang"))
    witness.fails(8)
    witness.notices([0, 2], 9)
    witness.notices([], 10)
    assert [(line.what, line.rank, line.step, line.kind) for line in event_log.lines()] == [
        ("failure", 3, 7, "hang"),
        ("failure", 3, 8, "raise"),
        ("noticed", 0, 9, "lost"),
        ("noticed", 2, 9, "lost"),
        ("noticed", UNKNOWN, 10, "lost"),
    ]


def test_the_logbook_is_no_program(event_log: EventLog) -> None:
    event_log.write("start", 0, 0)
    assert event_log.file.stat().st_mode & 0o111 == 0


def test_who_has_departed_is_a_fault_whoever_has_noticed_it(event_log: EventLog) -> None:
    """A silent rank, detected by one that knew no step; the second failure only the coordinator has detected."""
    tell(
        event_log,
        (0, "start", 0, 0),
        (1, "first step", 0, 0),
        (5, "noticed", 2, -1, "silent"),
        (6, "noticed", 2, 8, "lost"),
        (6.5, "noticed", 4, 8, "lost"),  # alive: it was only slow to answer
        (7, "departed", 2, 8, "lost"),
        (7, "departed", 3, 8, "lost"),
        (8, "start", 0, 8),
        (9, "first step", 0, 8),
    )
    assert [(fault["rank"], fault["step"], fault["kind"]) for fault in event_log.faults()] == [
        (2, 8, "silent"),
        (3, 8, "lost"),
    ]


def test_a_try_that_is_made_good_and_a_planned_change_are_told_apart_from_deaths(event_log: EventLog) -> None:
    tell(
        event_log,
        (0, "start", 0, 0),
        (1, "first step", 0, 0),
        (2, "failure", 1, 5, "raise"),
        (2.5, "retried", 1, 5),
        (3, "enlarged", 0, 10),
        (4, "start", 0, 10),
        (5, "first step", 0, 10),
    )
    (fault,) = event_log.faults()
    assert fault == {"rank": 1, "step": 5, "kind": "raise", "detected_s": 0.0, "resumed_s": 0.5, "steps_lost": 0}


def test_who_joins_is_no_fault_and_is_timed_from_when_it_was_sent_for(event_log: EventLog) -> None:
    tell(event_log, (0, "start", 0, 0), (1, "failure", 2, 33, "kill"), (2, "departed", 2, 33, "lost"))
    tell(event_log, (3, "sent for", 4, 33), (4, "start", 0, 33), (5, "first step", 0, 33))
    assert event_log.joined() == []
    tell(event_log, (7, "joined", 4, 40), (8, "start", 0, 40))
    assert event_log.joined() == [], "it has not worked yet"
    tell(event_log, (9, "first step", 0, 40), (10, "first step", 0, 50))
    assert event_log.joined() == [{"rank": 4, "step": 40, "joined_s": 6.0}]
    [fault] = event_log.faults()
    assert (fault["rank"], fault["resumed_s"]) == (2, 4.0)


def test_who_dies_before_its_first_step_has_not_joined(event_log: EventLog) -> None:
    tell(event_log, (0, "start", 0, 0), (3, "sent for", 4, 33), (7, "joined", 4, 40), (8, "start", 0, 40))
    tell(event_log, (9, "noticed", 4, 40, "lost"), (10, "departed", 4, 40, "lost"), (11, "start", 0, 40))
    tell(event_log, (12, "first step", 0, 40))
    assert event_log.joined() == []
    assert [fault["rank"] for fault in event_log.faults()] == [4]


def test_who_is_missed_before_the_first_step_is_a_fault_of_the_first_start(event_log: EventLog) -> None:
    tell(event_log, (1, "failure", 0, -1, "kill"), (2, "departed", 0, 0, "lost"), (3, "start", 1, 0))
    tell(event_log, (4, "first step", 1, 0))
    expected = {"rank": 0, "step": -1, "kind": "kill", "detected_s": 1.0, "resumed_s": 3.0, "steps_lost": 0}
    assert event_log.faults() == [expected]
    tell(event_log, (6, "failure", 2, 30, "kill"), (7, "departed", 2, 30, "lost"), (8, "start", 1, 20))
    assert [fault["rank"] for fault in event_log.faults()] == [0, 2]


def test_who_dies_before_the_first_step_and_is_missed_later_is_one_fault_of_when_it_died(event_log: EventLog) -> None:
    tell(event_log, (1, "failure", 3, -1, "kill"), (3, "start", 0, 0), (4, "first step", 0, 0))
    assert event_log.faults() == [], "a spare, whom nobody misses yet"
    tell(event_log, (6, "failure", 1, 30, "kill"), (7, "departed", 1, 30, "lost"), (7, "departed", 3, 30, "lost"))
    tell(event_log, (8, "start", 0, 30), (9, "first step", 0, 30))
    assert [(fault["rank"], fault["step"], fault["kind"]) for fault in event_log.faults()] == [
        (3, -1, "kill"),
        (1, 30, "kill"),
    ]


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\xfe\x00\n",
        b'{"when": "now", "what": "start", "rank": 0, "step": 0}\n',
        b'{"when": 2, "what": "start", "rank": null, "step": 0}\n',
        b'{"when": 2, "what": "start", "rank": 0, "step": "x"}\n',
        b'{"when": 2, "what": "start", "rank": 0, "step": 0, "kind": []}\n',
        b'{"when": 2, "what": ["start"], "rank": 0, "step": 0}\n',
        b'{"when": 2, "what": "lunch", "rank": 0, "step": 0}\n',
        b'["start"]\n3\nnull\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_damaged_lines_are_passed_over(event_log: EventLog, damage: bytes) -> None:
    tell(event_log, (0, "start", 0, 0), (1, "joined", 5, 3), (1.5, "first step", 0, 0))
    whole = event_log.lines()
    event_log.file.write_bytes(damage + event_log.file.read_bytes() + b"\n" + damage)
    assert event_log.lines() == whole
    assert (event_log.faults(), event_log.joined(), event_log.starts()) == ([], [], 1), (
        "of who joined no request is known"
    )


def test_every_line_of_the_file_is_json_and_a_line_after_a_torn_one_is_whole(event_log: EventLog) -> None:
    tell(event_log, (0, "start", 0, 0), (1, "first step", 0, 0))
    text = event_log.file.read_text()
    assert text.endswith("}\n")
    assert [json.loads(line)["what"] for line in text.splitlines()] == ["start", "first step"]
    event_log.file.write_text(text[:-9])
    tell(event_log, (2, "checkpoint", 0, 20))
    assert [line.what for line in event_log.lines()] == ["start", "checkpoint"]


def test_a_folder_in_the_place_of_the_logbook_is_refused(event_log: EventLog) -> None:
    event_log.file.mkdir()
    with pytest.raises(UsageError, match=r"logbook\.jsonl cannot be read \(Is a directory\)"):
        event_log.lines()
