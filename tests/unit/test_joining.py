"""Asking for one more worker: what is refused, and how the answer is read from the logbook."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from farandole.errors import LaunchError, UsageError
from farandole.recovery import joining
from farandole.recovery.joining import Newcomer
from farandole.recovery.logbook import Line
from farandole.recovery.options import ElasticOptions


def run_in(folder: Path, **options: object) -> Path:
    (folder / "config.json").write_text(json.dumps(asdict(ElasticOptions()) | options, default=str))
    return folder


def book(*entries: tuple[str, int, int]) -> list[Line]:
    return [Line(float(when), what, rank, step) for when, (what, rank, step) in enumerate(entries)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], None),
        ([("first step", 0, 3)], None),
        ([("enlarged", 1, 20), ("enlarged", 0, 20)], None),
        ([("enlarged", 0, 20), ("start", 0, 20), ("first step", 0, 20)], Newcomer(None, 20)),
        ([("enlarged", 0, 20), ("sent for", 3, 20), ("first step", 0, 20)], None),
        ([("enlarged", 0, 20), ("sent for", 3, 20), ("first step", 0, 20), ("joined", 3, 40)], None),
        (
            [("enlarged", 0, 20), ("sent for", 3, 20), ("first step", 0, 20), ("joined", 3, 40), ("first step", 0, 40)],
            Newcomer(3, 40),
        ),
        ([("joined", 4, 10), ("enlarged", 0, 20), ("first step", 0, 20)], Newcomer(None, 20)),
    ],
)
def test_who_has_joined(entries: list[tuple[str, int, int]], expected: Newcomer | None) -> None:
    assert joining.newcomer(book(*entries)) == expected


def test_each_request_counts_once(tmp_path: Path) -> None:
    for name in ("join-1", "join-2", "metrics.jsonl"):
        (tmp_path / name).touch()
    assert joining.take(tmp_path) == 2
    assert joining.take(tmp_path) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"nobody has joined within 0.1 s; it has not been asked: does it still run"):
        joining.ask(run_in(tmp_path), 0.1, print)
    assert [each.name for each in tmp_path.iterdir()] == ["config.json"], "the request is withdrawn"


def test_what_nobody_can_join_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no run's folder"):
        joining.ask(tmp_path, 1.0, print)
    run_in(tmp_path)
    (tmp_path / "summary.json").touch()
    with pytest.raises(UsageError, match="the training is over"):
        joining.ask(tmp_path, 1.0, print)
    (tmp_path / "config.json").write_text(json.dumps({"steps": 3}))
    with pytest.raises(UsageError, match="a worker can join membership and backup"):
        joining.ask(tmp_path, 1.0, print)
