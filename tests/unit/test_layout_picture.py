"""The pictures of layouts and of steps: every rank, part of attention, expert and collective in its place."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from farandole.cli.draw import app
from farandole.cost.sharding import timeline
from farandole.data_parallel.outer_step import Outer
from farandole.errors import UsageError
from farandole.model_parallel.context.placement import PLACEMENTS, contiguous
from farandole.model_parallel.grid import Grid
from farandole.report import layout_picture, steps_picture
from farandole.runtime.command_line import run_app
from farandole.sharded.steps import steps

SECONDS = {"forward": 1.0, "backward": 2.0, "gather": 1.5, "reduce": 1.5}


def test_a_rank_has_a_number_on_each_axis_and_shares_it_with_those_it_talks_to() -> None:
    layout = Grid(data=2, pipeline=3, tensor=4)
    [axes] = layout_picture.grid(layout).axes
    assert len(axes.texts) == 3 * 24
    for row, axis in enumerate(("data", "pipeline", "tensor")):
        numbers = [text.get_text() for text in sorted(axes.texts, key=lambda each: each.get_position()[0])
                   if -row < text.get_position()[1] < -row + 1]  # fmt: skip
        for rank in range(24):
            same = [other for other in range(24) if numbers[other] == numbers[rank]]
            assert same == layout.line(rank, axis)


@pytest.mark.parametrize(("name", "parts"), [("zigzag", 8), ("contiguous", 4)])
def test_attention_has_a_square_for_each_part_and_those_before_it(name: str, parts: int) -> None:
    [axes] = layout_picture.context(PLACEMENTS[name](64, 4)).axes
    assert len(axes.patches) == parts * (parts + 1) // 2
    steps_of = Counter(text.get_text() for text in axes.texts)
    assert steps_of["0"] == parts * (4 + parts) // 8, "its own keys, in both of a zig-zag's parts"


def test_ulysses_turns_positions_into_heads() -> None:
    outside, inside = layout_picture.ulysses(contiguous(10, 2), heads=4).axes
    assert [text.get_text() for text in outside.texts] == ["0", "0", "0", "0", "1", "1", "1", "1"], "to the head's rank"
    assert [text.get_text() for text in inside.texts] == ["0", "1"] * 4, "from the position's"
    colours = [[patch.get_facecolor() for patch in axes.patches] for axes in (outside, inside)]
    assert colours[0][0::2] == colours[0][:1] * 4, "the first half of the positions is on one rank"
    assert colours[1][:4] == colours[0][:1] * 4, "and in attention the first half of the heads"


def test_each_choice_of_an_expert_has_a_box_and_what_is_dropped_is_hollow() -> None:
    choices, kept = np.array([[0, 1, 1, 1], [1, 0, 2, 0]]), np.array([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=bool)
    axes = layout_picture.experts(choices, kept, [range(2), range(2, 3)], 2).axes[0]
    found = {(int(box.get_x()), int(-box.get_y())): box for box in axes.patches if isinstance(box, Rectangle)}
    assert set(found) == {(expert, token) for chosen in choices for token, expert in enumerate(chosen)}
    assert [place for place, box in found.items() if to_hex(box.get_facecolor()) == "#ffffff"] == [(1, 3)]
    assert (
        to_hex(found[0, 0].get_facecolor())
        == to_hex(found[0, 1].get_facecolor())
        != to_hex(found[2, 2].get_facecolor())
    )


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_has_a_box_for_each_computation_and_collective(stage: int) -> None:
    ordered = list(steps(stage, 3, accumulate=2))
    axes, *_ = steps_picture.sharded(list(timeline(ordered, SECONDS, prefetch=False))).axes
    assert [text.get_text() for text in axes.texts] == [str(step.unit) for step in ordered]
    below = sum(text.get_position()[1] < 0 for text in axes.texts)
    assert below == sum(step.kind in ("gather", "reduce") for step in ordered)


def test_with_prefetch_no_collective_begins_before_the_one_before_it_has_ended_and_no_pass_without_its_unit() -> None:
    ordered = list(steps(3, 3, accumulate=2))
    spans = list(timeline(ordered, SECONDS, prefetch=True))
    assert Counter(span.step for span in spans) == Counter(ordered)
    for kinds in (("gather", "reduce"), ("forward", "backward")):
        one_after_the_other = sorted((span.begin, span.end) for span in spans if span.step.kind in kinds)
        assert all(before[1] <= after[0] for before, after in pairwise(one_after_the_other))
    gathered = [span for span in spans if span.step.kind == "gather"]
    passes = [span for span in spans if span.step.kind in ("forward", "backward")]
    for gather, its in zip(gathered, passes, strict=True):
        assert gather.step.unit == its.step.unit
        assert gather.end <= its.begin
    in_turn = max(span.end for span in timeline(ordered, SECONDS, prefetch=False))
    assert max(span.end for span in spans) < in_turn


@pytest.mark.parametrize(("fragments", "delay"), [(1, 0), (4, 0), (3, 2)])
def test_diloco_has_a_box_for_each_outer_step_and_for_its_way(fragments: int, delay: int) -> None:
    settings = Outer(6, 0.7, 0.9, fragments, delay)
    axes, *_ = steps_picture.outer(settings, 12).axes
    boxes = [box for box in axes.patches if isinstance(box, Rectangle)]
    assert len([box for box in boxes if box.get_y() == 0]) == 12, "inner steps"
    for fragment in range(fragments):
        own = sorted(box.get_x() for box in boxes if box.get_y() == -1 - fragment)
        sent = [step for step in range(1, 13) if settings.sends(fragment, step)]
        assert own == sorted([*(sent if delay else []), *(min(step + delay, 12) for step in sent)])


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_app(app, ["grid", "--data-ranks", "2", "--tensor-ranks", "2"])
    told = capsys.readouterr().out
    assert "│ data   │ 0 2 | 1 3 " in told
    assert told.endswith("the picture: grid-2x1x1x1x1x2.png\n")
    run_app(app, ["context", "--placement", "contiguous", "-n", "2", "--positions", "4"])
    told = capsys.readouterr().out
    assert "│    1 │      3 │      4 │     7 │" in told
    assert "computes 7 pairs, 1.40 times the mean of all ranks\n" in told
    run_app(app, ["zero", "--stage", "2", "--accumulate", "2"])
    assert "a rank sends 3·(N−1)/N of the parameters' bytes" in capsys.readouterr().out
    run_app(app, ["zero", "--prefetch", "--collective", "1.5"])
    assert "a step takes 20 forward passes of a unit, 12 of them" in capsys.readouterr().out
    run_app(app, ["ulysses", "-n", "2", "--heads", "4"])
    told = capsys.readouterr().out
    assert "│ ulysses                    │     256 │      256 │" in told
    run_app(app, ["experts", "-n", "2", "--experts", "3", "--top-k", "1", "--capacity", "1"])
    assert "dropped: 2 of 16 choices" in capsys.readouterr().out
    run_app(app, ["diloco", "--fragments", "2", "--delay", "1"])
    assert "│ 1        │ 4 12 20          │ 5 13 21                │" in capsys.readouterr().out
    assert {file.name for file in tmp_path.iterdir()} == {
        "grid-2x1x1x1x1x2.png", "context-contiguous-2.png", "zero-2-4x2.png", "zero-3-4x1-prefetch.png",
        "ulysses-2x4.png", "experts-2x3.png", "diloco-8x2x1.png",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["grid"], "a grid of 1 rank has no axis"),
        (["grid", "--data-ranks", "65"], "a picture of 65 ranks: give at most 64"),
        (["context", "-n", "20", "--positions", "30"], "cannot be divided over 20 ranks"),
        (["zero", "--units", "200"], "computations and collectives: give at most 120"),
        (["zero", "--stage", "4"], "--stage"),
        (["zero", "--stage", "2", "--prefetch"], "--prefetch is for --stage 3"),
        (["ulysses", "-n", "3"], "8 heads cannot be divided equally over 3 ranks: use 1 or 2 or 4 or 8 ranks"),
        (["experts", "--top-k", "9"], "--top-k 9: there are 8 experts"),
        (["experts", "-n", "9"], "a picture of 72 tokens: give at most 64"),
        (["diloco", "--delay", "8"], "--delay 8 in a --period of 8 steps: give at most 7"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        run_app(app, words)
    assert not [*tmp_path.iterdir()]
