"""A pipeline's picture shows every computation once, at the time of the checker or the trace, and the totals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from farandole.errors import UsageError
from farandole.model_parallel.checker import Execution, check
from farandole.model_parallel.schedules import NAMES, choose
from farandole.model_parallel.steps import Times, Update
from farandole.report import pipeline_picture
from farandole.report.pass_colours import COLOURS, INK, PASSES
from farandole.report.pipeline_picture import measured, scheduled
from farandole.runtime.record import Run
from farandole.runtime.trace import Span, chrome_trace
from tests.unit.test_table import summary_of

PARALLELOGRAMS = {"zb-h2", "zb-v"}  # stages that begin later also end later: batches in a row have no bubble
UPDATE = to_rgb(INK)


def drawn(figure: Figure) -> Axes:
    [axes] = figure.axes
    return axes


def boxes(axes: Axes) -> list[Rectangle]:
    """Return the boxes of passes, without the updates."""
    return [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_facecolor()[:3] != UPDATE]


def updates(axes: Axes) -> int:
    return len(axes.patches) - len(boxes(axes))


def record(folder: Path, executions: list[Execution], schedule: str, lag: float = 0.0) -> Run:
    """Return a run as its ranks would record it, with the executions (in ms) one after another.

    Args:
        lag: how long after its stage's last pass each update ends, in ms.
    """
    names = {kind: name for name, kind in PASSES.items()}
    spans, begin = [], 1000.0
    ranks = executions[0].stages
    for execution in executions:
        for own in execution.intervals:
            start, end = (begin + own.start) / 1e3, (begin + own.end) / 1e3
            if isinstance(own.step, Update):
                spans.append(Span(own.stage, "update", "compute", start, end + lag / 1e3))
                continue
            chunk = f", chunk {own.step.chunk}" if choose(schedule).chunks > 1 else ""
            name = f"{names[type(own.step)]} {own.step.micro_batch}{chunk}"
            spans.append(Span(own.stage, name, "compute", start, end))
            spans.append(Span(own.stage, "forward 99", "compute", start, end, depth=1))  # inside: not a pass
            spans.append(Span(own.stage, f"send activation {own.step.micro_batch}", "communicate", end, end + 1e-5))
        begin += execution.total
    folder.mkdir()
    (folder / "trace.json").write_text(json.dumps(chrome_trace(spans, range(ranks))))
    (folder / "config.json").write_text(json.dumps({"schedule": schedule}))
    (folder / "summary.json").write_text(summary_of(ranks, scenario="pipeline").to_json())
    return Run.open(folder)


def shifted(events: list[dict[str, Any]], microseconds: float) -> list[dict[str, Any]]:
    """The complete events of a trace, later."""
    return [event | {"ts": event["ts"] + microseconds} for event in events if event["ph"] == "X"]


SIZES = [(1, 1), (2, 4), (4, 8), (8, 16)]
ONCE = ("zb-h2", "zb-v", "dualpipe")  # other sizes of these add nothing
LARGE = ("1f1b", "interleaved")  # as the others, but drawing takes a second
DRAWN = [(name, *size) for size in SIZES[:3] for name in NAMES if name not in ONCE or size == (4, 8)]
DRAWN += [(name, *SIZES[3]) for name in LARGE]


@pytest.mark.parametrize(("name", "stages", "micro_batches"), DRAWN)
def test_there_is_a_box_for_each_computation_with_its_number(name: str, stages: int, micro_batches: int) -> None:
    schedule = choose(name)
    execution = check(schedule, stages, micro_batches)
    axes = drawn(pipeline_picture.figure(scheduled(schedule, stages, micro_batches)))
    passes = [own for own in execution.intervals if not isinstance(own.step, Update)]
    assert len(boxes(axes)) == len(passes)
    assert updates(axes) == len(execution.intervals) - len(passes)
    numbers = Counter((text.get_text(), text.get_position()[1]) for text in axes.texts if text.get_text().isdigit())
    assert numbers == Counter((str(own.step.micro_batch), own.stage) for own in passes)


@pytest.mark.parametrize("name", NAMES)
def test_boxes_in_a_row_do_not_overlap_and_leave_the_bubble_empty(name: str) -> None:
    line = scheduled(choose(name), 4, 8)
    axes = drawn(pipeline_picture.figure(line))
    rows: dict[int, list[Rectangle]] = {row: [] for row in range(4)}
    for box in boxes(axes):
        rows[round(box.get_y() + box.get_height() / 2)].append(box)
    for row in rows.values():
        row.sort(key=lambda box: box.get_x())
        for before, after in pairwise(row):
            assert before.get_x() + before.get_width() <= after.get_x() + 1e-9
    filled = sum(box.get_width() for row in rows.values() for box in row)
    execution = check(choose(name), 4, 8)
    assert 1 - filled / (4 * line.end) == pytest.approx(execution.bubble_of_total)
    bubbles = f": bubble/total {execution.bubble_of_total:.1%}"
    if name in PARALLELOGRAMS:
        bubbles += ", /period 0.0%"
    assert axes.get_title("left").endswith(bubbles)


def test_what_a_stage_holds_stands_beside_it_in_micro_batches() -> None:
    def held(name: str) -> list[str]:
        texts = drawn(pipeline_picture.figure(scheduled(choose(name), 4, 8))).texts
        return [text.get_text() for text in texts if not text.get_text().isdigit()]

    assert held("gpipe") == ["holds 8"] * 4
    assert held("1f1b") == ["holds 4", "holds 3", "holds 2", "holds 1"]
    assert held("interleaved") == ["holds 5.5", "holds 4.5", "holds 3.5", "holds 2.5"]  # chunks are halves
    assert scheduled(choose("zb-h2"), 4, 8).held == [7] * 4
    assert scheduled(choose("zb-v"), 4, 8).held == [4] * 4
    assert scheduled(choose("dualpipe"), 4, 8).held == [5] * 4, "chunks of two models: each is a whole stage's"


def test_kinds_of_passes_and_chunks_can_be_told_apart() -> None:
    assert len(set(COLOURS.values())) == len(COLOURS) == len(PASSES)
    for name, kinds in {"1f1b": 2, "zero-bubble": 3, "interleaved": 4}.items():
        axes = drawn(pipeline_picture.figure(scheduled(choose(name), 4, 8)))
        colours = {box.get_facecolor() for box in boxes(axes)}
        legend = [text.get_text() for text in axes.get_legend().get_texts()]
        assert len(colours) == kinds
        assert len(legend) == kinds + 1
        assert legend[-1] == "update"


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_took_as_long_as_the_schedule_says_has_the_same_picture(name: str, tmp_path: Path) -> None:
    """The middle one of three steps; PipeDream's whole run."""
    schedule, times = choose(name), Times(5, 5, 5)
    execution = check(schedule, 4, 8, times)
    run = record(tmp_path / "run", [execution] * (3 if schedule.flushes else 1), name)
    line = measured(run) if schedule.flushes else measured(run, steps=8)
    expected = scheduled(schedule, 4, 8, times)
    assert line.end == pytest.approx(expected.end)
    assert line.held == expected.held
    by_start = [sorted(each.intervals, key=lambda own: (own.stage, own.end)) for each in (line, expected)]
    passes = [[own for own in intervals if not isinstance(own.step, Update)] for intervals in by_start]
    assert [(own.stage, own.step) for own in passes[0]] == [(own.stage, own.step) for own in passes[1]]
    assert [own.start for own in passes[0]] == pytest.approx([own.start for own in passes[1]], abs=1e-3)
    assert f"idle {execution.bubble_of_total:.1%}" in line.title
    assert line.title.startswith(f"{name}, measured, {'step 1 of 3' if schedule.flushes else 'steps 0 to 7 of 8'}")


def test_updates_of_a_run_have_a_length_and_are_work(tmp_path: Path) -> None:
    execution = check(choose("1f1b"), 2, 4, Times(5, 5, 5))
    run = record(tmp_path / "run", [execution], "1f1b", lag=3.0)
    line = measured(run, 0)
    assert line.end == pytest.approx(execution.total + 3)
    work = 4 * 15 + 3
    assert f"idle {1 - work / line.end:.1%}" in line.title


def test_a_stretch_of_pipedream_shows_the_other_batches_that_are_under_way(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [check(choose("pipedream"), 4, 16, Times(5, 5, 5))], "pipedream")
    line = measured(run, step=6, steps=2)
    batches = {own.step.micro_batch for own in line.intervals if not isinstance(own.step, Update)}
    assert {6, 7} < batches
    assert "idle 0.0%" in line.title, "it never drains"


def test_a_pass_in_several_pieces_is_held_once(tmp_path: Path) -> None:
    """A layer's communication interrupts the computation."""
    run = record(tmp_path / "run", [check(choose("gpipe"), 2, 4)], "gpipe", lag=0.1)
    trace = json.loads((run.folder / "trace.json").read_text())
    pieces = []
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["name"].startswith("forward") and not event["args"]["depth"]:
            half = event["dur"] / 2
            pieces += [event | {"dur": half}, event | {"dur": half, "ts": event["ts"] + half}]
        else:
            pieces.append(event)
    (run.folder / "trace.json").write_text(json.dumps({"traceEvents": pieces}))
    line = measured(run, 0)
    assert line.held == [4, 4]
    assert len(line.intervals) == 2 * (4 * 2 + 4 + 1)


def test_steps_that_a_run_does_not_have_are_refused(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [check(choose("1f1b"), 2, 4)] * 3, "1f1b")
    for step, steps in ((3, 1), (-1, 1), (2, 2), (None, 4), (0, 0)):
        with pytest.raises(UsageError, match="has steps 0 to 2"):
            measured(run, step, steps)


def test_a_run_of_something_else_is_refused(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [check(choose("1f1b"), 2, 4)], "1f1b")
    spans = [Span(rank, name, "compute", 0.0, 1.0) for rank in (0, 1) for name in ("forward and backward", "update")]
    (run.folder / "trace.json").write_text(json.dumps(chrome_trace(spans, range(2))))
    with pytest.raises(UsageError, match="is no run of a pipeline"):
        measured(run)


def test_steps_of_another_mode_before_the_pipeline_are_left_out_and_a_rank_without_a_stage_has_an_empty_row(
    tmp_path: Path,
) -> None:
    run = record(tmp_path / "run", [check(choose("1f1b"), 2, 4)] * 3, "1f1b")
    alone = measured(run)
    pipelined = json.loads((run.folder / "trace.json").read_text())["traceEvents"]
    spans = [Span(rank, "update", "compute", step / 1e3, (step + 1) / 1e3) for rank in range(3) for step in range(100)]
    before = chrome_trace(spans, range(3))["traceEvents"]
    (run.folder / "trace.json").write_text(json.dumps({"traceEvents": [*before, *shifted(pipelined, 1e9)]}))
    (run.folder / "summary.json").write_text(summary_of(3).to_json())
    line = measured(run)
    assert line.title.startswith("1f1b, measured, step 1 of 3")
    assert [(own.stage, own.step) for own in line.intervals] == [(own.stage, own.step) for own in alone.intervals]
    assert line.held == [*alone.held, 0]
    pipeline_picture.draw(tmp_path / "pipeline.png", line)


def test_more_than_can_be_seen_is_refused() -> None:
    with pytest.raises(UsageError, match="a picture of 20,000 passes: give fewer"):
        scheduled(choose("1f1b"), 100, 100)


def test_schedule_and_run_below_each_other_share_the_axis(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [check(choose("1f1b"), 4, 8, Times(6, 6, 6))] * 3, "1f1b")
    line = scheduled(choose("1f1b"), 4, 8, Times(5, 5, 5), "milliseconds")
    above, below = pipeline_picture.figure(line, measured(run)).axes
    assert above.get_xlim() == below.get_xlim()
    assert above.get_xlim()[1] >= 6 * 33
    assert len(boxes(above)) == len(boxes(below)) == 64
    above, below = pipeline_picture.figure(scheduled(choose("1f1b"), 4, 8), measured(run)).axes
    assert above.get_xlim() != below.get_xlim()


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (4, 8), (8, 32)])
def test_the_picture_is_written_and_widens_with_what_is_in_it(stages: int, micro_batches: int, tmp_path: Path) -> None:
    file = pipeline_picture.draw(tmp_path / "1f1b.png", scheduled(choose("1f1b"), stages, micro_batches))
    picture = imread(file)
    height, width, _ = picture.shape
    assert 900 < width < 4100
    assert 100 < height < 700
    assert len({tuple(pixel) for pixel in picture[height // 2]}) > 5, "something is drawn"


def test_drawing_leaves_pyplot_torch_and_mpi_alone() -> None:
    code = (
        "import sys; from farandole import cli; from farandole.report import pipeline_picture as p;"
        "from farandole.model_parallel.schedules import choose; p.figure(p.scheduled(choose('1f1b'), 2, 2));"
        "sys.exit(', '.join({'matplotlib.pyplot', 'torch', 'mpi4py'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
