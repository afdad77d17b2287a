"""The pictures of layouts: every rank, every part of attention and every collective in its place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from farandole.cli.draw import app
from farandole.errors import UsageError
from farandole.model_parallel.context.placement import PLACEMENTS
from farandole.model_parallel.grid import Grid
from farandole.report import layout_picture
from farandole.runtime.command_line import run_app
from farandole.sharded.steps import steps


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


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_has_a_box_for_each_computation_and_collective(stage: int) -> None:
    ordered = list(steps(stage, 3, accumulate=2))
    axes, *_ = layout_picture.sharded(ordered).axes
    assert [text.get_text() for text in axes.texts] == [str(step.unit) for step in ordered]
    below = sum(text.get_position()[1] < 0 for text in axes.texts)
    assert below == sum(step.kind in ("gather", "reduce") for step in ordered)


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
    assert {file.name for file in tmp_path.iterdir()} == {
        "grid-2x1x1x1x1x2.png", "context-contiguous-2.png", "zero-2-4x2.png",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["grid"], "a grid of 1 rank has no axis"),
        (["grid", "--data-ranks", "65"], "a picture of 65 ranks: give at most 64"),
        (["context", "-n", "20", "--positions", "30"], "cannot be divided over 20 ranks"),
        (["zero", "--units", "200"], "computations and collectives: give at most 120"),
        (["zero", "--stage", "4"], "--stage"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        run_app(app, words)
    assert not [*tmp_path.iterdir()]
