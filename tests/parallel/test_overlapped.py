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


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [3, 2, 7, 1, 4])  # three are no power of two
def test_overlap_and_buckets_leave_the_training_unchanged(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("overlapped.py", ranks)
    assert set(answer["one_bucket_is_the_whole"].values()) == {True}
    assert answer["moved"]
    assert answer["messages"] == 4 * BUCKETS * 2 * (ranks - 1), "four steps"


def around_backward(run: Run, rank: int) -> list[tuple[float, float]]:
    """Return the seconds from backward's end to the first bucket's start and the last one's end, for each step."""
    its = [event for event in run.trace if event["pid"] == rank]
    backwards = [event for event in its if event["name"] == "forward and backward"]
    reductions = [(event["ts"], event["ts"] + event["dur"]) for event in its if event["tid"] == 1]
    found = []
    for backward, after in zip(backwards, [*backwards[1:], None], strict=True):
        over = backward["ts"] + backward["dur"]
        next_one = after["ts"] if after else float("inf")
        own = [span for span in reductions if backward["ts"] <= span[0] < next_one]
        found.append(((min(own)[0] - over) / 1e6, (max(end for _, end in own) - over) / 1e6))
    return found


def test_the_trace_shows_overlap_and_the_record_exposed_communication(tmp_path: Path) -> None:
    """The link takes longer than backward: much can be hidden, and a part cannot."""
    options = {"steps": 12, "hidden": 512, "depth": 3, "batch": 256, "bucket_kb": 300}
    idle = {"slow": ["rank=0,factor=3", "rank=1,factor=3"], "link_mbps": 100}
    overlapped = launch("sync_sgd", 2, **options, **idle, overlap=True, out=tmp_path / "overlapped")
    waiting = launch("sync_sgd", 2, **options, out=tmp_path / "waiting")
    assert overlapped.summary.params_sha256 == waiting.summary.params_sha256
    for rank in range(2):
        assert all(first > 0 for first, _ in around_backward(waiting, rank))
        steps = around_backward(overlapped, rank)
        assert sum(first < 0 for first, _ in steps) > len(steps) / 2
        summary = overlapped.summary
        others = sum(event["dur"] for event in overlapped.trace if is_communication_between_steps(event, rank)) / 1e6
        recorded = summary.comm_s[rank] + summary.wait_s[rank] - others
        assert recorded == pytest.approx(sum(last for _, last in steps), rel=0.2), "from backward's end to the last sum"
    for run in (overlapped, waiting):
        busy = [sum(times) for times in zip(run.summary.compute_s, run.summary.comm_s, run.summary.wait_s, strict=True)]
        assert max(busy) <= 1.05 * run.summary.wall_s, "what runs beside is not counted twice"
    picture = timeline.draw(overlapped, tmp_path / "timeline.png")
    assert picture.stat().st_size > 10_000


def is_communication_between_steps(event: dict[str, Any], rank: int) -> bool:
    """Return whether the span is communication of the rank's own thread, such as an exchange of losses."""
    own = event["pid"] == rank and not event["tid"] and not event["args"]["depth"]
    return own and event["cat"] != "compute" and not event["name"].endswith("all-reduce")


def test_gradients_in_shared_memory_send_no_bytes(tmp_path: Path) -> None:
    options = {"steps": 10, "hidden": 32}
    window = launch("sync_sgd", 4, **options, collective="window", out=tmp_path / "window")
    overlapped = launch(
        "sync_sgd", 4, **options, collective="window", overlap=True, bucket_kb=4, out=tmp_path / "beside"
    )
    messages = launch("sync_sgd", 4, **options, collective="central", out=tmp_path / "messages")
    assert window.summary.bytes_sent == overlapped.summary.bytes_sent == [0] * 4
    assert window.summary.params_sha256 == overlapped.summary.params_sha256
    assert window.summary.params_sha256 == messages.summary.params_sha256, "both add in the order of the ranks"
