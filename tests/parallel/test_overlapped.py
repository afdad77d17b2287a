"""Overlap: the same training to the bit, all-reduces that begin during backward, and nothing sent in the window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import Run, launch
from farandole.data_parallel.buckets import cut
from farandole.report import timeline

BUCKETS = len(cut([20 * 70, 70, 70 * 30, 30, 30 * 30, 30, 30 * 5, 5], 1000))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_overlapped_or_not_in_buckets_or_whole(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("overlapped.py", ranks)
    assert set(answer["one_bucket_is_the_whole"].values()) == {True}
    assert answer["moved"]
    assert answer["messages"] == 4 * BUCKETS * 2 * (ranks - 1), "four steps"


def first_bucket_begins_during_backward(run: Run) -> list[bool]:
    """For each rank and step."""
    found = []
    for rank in range(run.summary.ranks):
        its = [event for event in run.trace if event["pid"] == rank]
        backwards = [event for event in its if event["name"] == "forward and backward"]
        reductions = [event["ts"] for event in its if event["tid"] == 1]
        for backward, after in zip(backwards, [*backwards[1:], None], strict=True):
            end = after["ts"] if after else float("inf")
            first = min(moment for moment in reductions if backward["ts"] <= moment < end)
            found.append(first < backward["ts"] + backward["dur"])
    return found


def test_the_trace_shows_it(tmp_path: Path) -> None:
    options = {"steps": 20, "hidden": 512, "depth": 3, "batch": 256, "bucket_kb": 300}
    overlapped = launch("sync_sgd", 2, **options, overlap=True, out=tmp_path / "overlapped")
    waiting = launch("sync_sgd", 2, **options, out=tmp_path / "waiting")
    assert overlapped.summary.params_sha256 == waiting.summary.params_sha256
    assert any(first_bucket_begins_during_backward(overlapped))
    assert not any(first_bucket_begins_during_backward(waiting))
    for run in (overlapped, waiting):
        busy = [sum(times) for times in zip(run.summary.compute_s, run.summary.comm_s, run.summary.wait_s, strict=True)]
        assert max(busy) <= 1.05 * run.summary.wall_s, "what runs beside is not counted twice"
    picture = timeline.draw(overlapped, tmp_path / "timeline.png")
    assert picture.stat().st_size > 10_000


def test_gradients_in_the_window_are_not_sent(tmp_path: Path) -> None:
    options = {"steps": 30, "hidden": 32}
    window = launch("sync_sgd", 3, **options, collective="window", out=tmp_path / "window")
    overlapped = launch(
        "sync_sgd", 3, **options, collective="window", overlap=True, bucket_kb=4, out=tmp_path / "beside"
    )
    messages = launch("sync_sgd", 3, **options, collective="central", out=tmp_path / "messages")
    assert window.summary.bytes_sent == overlapped.summary.bytes_sent == [0, 0, 0]
    assert window.summary.params_sha256 == overlapped.summary.params_sha256
    assert window.summary.params_sha256 == messages.summary.params_sha256, "both add in the order of the ranks"
