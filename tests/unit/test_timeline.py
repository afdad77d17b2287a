"""The timeline shows the steps in its title, and a dead rank's end."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from farandole.errors import UsageError
from farandole.report import timeline
from farandole.report.colours import RED
from farandole.runtime.record import Run, Summary
from farandole.runtime.trace import Span, chrome_trace

STEPS, SLOW = (
    20,
    3.0,
)  # the second half of the steps takes three times as long: a share of the time is no share of steps


def step_s(step: int) -> float:
    return 0.010 * (SLOW if step >= STEPS // 2 else 1)


def steps_of(rank: int, end: str = "update") -> list[Span]:
    """Spans of `STEPS` steps, each computing and then an update of 1 ms."""
    spans, now = [], 0.0
    for step in range(STEPS):
        ends = now + step_s(step)
        spans += [Span(rank, "forward", "compute", now, ends - 0.001), Span(rank, end, "compute", ends - 0.001, ends)]
        now = ends
    return spans


def recorded(folder: Path, spans: list[Span], members: list[int], faults: list[dict[str, object]]) -> Run:
    nothing = [0.0] * len(members)
    summary = Summary(
        scenario="sync_sgd", ranks=len(members), members=members, seed=0, device="cpu",
        wall_s=max(span.end for span in spans), steps=STEPS, samples_per_s=1.0, final_loss=None, test_accuracy=None,
        bytes_sent=None, messages_sent=None, compute_s=nothing, comm_s=nothing, wait_s=nothing, staleness=None,
        lead=None, cleaned=None, memory=None, params_sha256=None, faults=faults, versions={},
    )  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(asdict(summary)))
    (folder / "trace.json").write_text(json.dumps(chrome_trace(spans, members)))
    return Run(folder)


def plotted(run: Run, steps: int = 6) -> Axes:
    axes = Figure().subplots()
    timeline.plot(run, axes, steps, "a title")
    return axes


def test_it_shows_as_many_steps_as_it_says_from_the_middle(tmp_path: Path) -> None:
    axes = plotted(recorded(tmp_path, [*steps_of(0), *steps_of(1)], [0, 1], []))
    assert axes.get_title(loc="left") == "a title: 6 steps of 20, from step 7"
    assert axes.get_xlim() == pytest.approx((0, 1e3 * sum(step_s(step) for step in range(7, 13))))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    assert not axes.lines


def test_more_steps_than_there_are_is_all_of_them(tmp_path: Path) -> None:
    run = recorded(tmp_path, steps_of(0), [0], [])
    assert plotted(run, steps=1).get_title(loc="left") == "a title: 1 step of 20, from step 10"
    axes = plotted(run, steps=100)
    assert axes.get_title(loc="left") == "a title: 20 steps of 20, from step 0"
    assert axes.get_xlim() == pytest.approx((0, 1e3 * sum(map(step_s, range(STEPS)))))


def test_steps_that_cannot_be_told_apart_are_not_counted(tmp_path: Path) -> None:
    axes = plotted(recorded(tmp_path, steps_of(0, end="apply"), [0], []))
    assert axes.get_title(loc="left") == "a title: the time of about 6 steps of 20"
    assert axes.get_xlim() == pytest.approx((0, 1e3 * sum(map(step_s, range(STEPS))) * 6 / STEPS))


@pytest.mark.parametrize("step", [0, 4, 15, 19])
def test_a_killed_rank_has_a_row_which_ends_where_it_was_killed(tmp_path: Path, step: int) -> None:
    """Rank 1 of three dies as `step` begins; 2 ms later the others detect it, and then complete that step."""
    began = sum(map(step_s, range(step)))
    spans = [*steps_of(0), *steps_of(2)]
    caught_up = [Span(rank, "catch up", "communicate", began + 0.002, began + 0.003) for rank in (0, 2)]
    fault = {"rank": 1, "step": step, "kind": "kill", "detected_s": 0.002, "resumed_s": step_s(step), "steps_lost": 0}
    axes = plotted(recorded(tmp_path, [*spans, *caught_up], [0, 2], [fault]))
    first = min(max(step - 3, 0), STEPS - 6)
    assert axes.get_title(loc="left") == f"a title: 6 steps of 20, from step {first}"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1", "rank 2"]
    (line,) = axes.lines
    assert to_hex(line.get_color()) == RED.lower()
    assert line.get_xdata()[0] == pytest.approx(1e3 * (began - sum(map(step_s, range(first)))), abs=1e-6)
    (note,) = axes.texts
    assert note.get_text() == f" ✕ kill in step {step}"
    assert note.get_position()[1] == 1, "in the row of the dead rank"


def test_a_servers_lost_worker_is_marked_where_the_server_noticed(tmp_path: Path) -> None:
    spans = [*steps_of(0), Span(0, "clean up after rank 2", "compute", 0.150, 0.1501)]
    fault = {"rank": 2, "step": 9, "kind": "kill", "detected_s": 0.005, "resumed_s": None, "steps_lost": 0}
    run = recorded(tmp_path, spans, [0], [fault])
    failure = timeline.first_failure(run.summary, run.trace)
    assert failure
    assert failure.at == pytest.approx(145)
    assert len(plotted(run).lines) == 1


def test_a_failure_before_the_last_start_is_not_in_the_trace(tmp_path: Path) -> None:
    fault = {"rank": 0, "step": 3, "kind": "kill", "detected_s": 1.0, "resumed_s": 2.0, "steps_lost": 1}
    run = recorded(tmp_path, steps_of(0), [0], [fault])
    assert timeline.first_failure(run.summary, run.trace) is None


@pytest.mark.parametrize("named", [[0, 1], [0, 1, 2]])
def test_a_trace_of_another_run_is_refused(tmp_path: Path, named: list[int]) -> None:
    run = recorded(tmp_path, [*steps_of(0), *steps_of(1)], [0, 1], [])
    spans = [span for rank in (0, 2) for span in steps_of(rank)]
    (tmp_path / "trace.json").write_text(json.dumps(chrome_trace(spans, named)))
    with pytest.raises(UsageError, match=r"trace\.json is of other ranks than summary\.json"):
        plotted(run)
