"""A prediction prints one line: right, close, wrong by how much, not entered, or no answer to its question."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farandole.report.predictions import predict

NOT_ENTERED = "no prediction was entered."
AS_PREDICTED = "you predicted {}, and so it is."


def compared(capsys: pytest.CaptureFixture[str], answer: object, measured: Any, *words: str, **options: Any) -> str:
    """Return the line that `compare` prints, without the question; `predict` has printed it as well, or nothing."""
    order, within = options.get("order", ()), options.get("within", 0.0)
    prediction = predict("the thing", answer, *words, order=order)
    first = capsys.readouterr().out
    prediction.compare(measured, within=within)
    line = capsys.readouterr().out
    assert first in ("", line)
    assert line.startswith("the thing: ")
    assert line.count("\n") == 1
    return line.removeprefix("the thing: ").strip()


@pytest.mark.parametrize(
    ("answer", "measured", "within", "line"),
    [
        (24, 24, 0, AS_PREDICTED.format("24")),
        (24.0, np.int64(24), 0, AS_PREDICTED.format("24")),
        (0.3, 0.1 + 0.2, 0, AS_PREDICTED.format("0.3")),
        (0, 0, 0, AS_PREDICTED.format("0")),
        (12_000_000, 16_000_000, 0, "you predicted 12,000,000, it is 16,000,000: too low by 25%."),
        (24, 18, 0, "you predicted 24, it is 18: too high by 33%."),
        (6, 18, 0, "you predicted 6, it is 18: too low by a factor of 3."),
        (100, 25.5, 0, "you predicted 100, it is 25.5: too high by a factor of 3.92."),
        (1, 0, 0.5, "you predicted 1, it is 0: too high."),
        (-1, 0.5, 0, "you predicted -1, it is 0.5: too low."),
        (24, 24.5, 0.05, "you predicted 24, it is 24.5: close."),
        (24, 26, 0.05, "you predicted 24, it is 26: too low by 8%."),
    ],
)
def test_a_number(capsys: pytest.CaptureFixture[str], answer: float, measured: float, within: float, line: str) -> None:
    assert compared(capsys, answer, measured, within=within) == line


@pytest.mark.parametrize(
    ("answer", "measured", "line"),
    [
        (True, True, AS_PREDICTED.format("yes")),
        ("no", np.bool_(False), AS_PREDICTED.format("no")),
        ("yes", "no", "you predicted yes, it is no."),
        (..., True, NOT_ENTERED),
        ("perhaps", True, "'perhaps' is not one of these: yes, no."),
        (1, True, "1 is not one of these: yes, no."),
    ],
)
def test_yes_or_no(capsys: pytest.CaptureFixture[str], answer: object, measured: object, line: str) -> None:
    assert compared(capsys, answer, measured, "yes", "no") == line


@pytest.mark.parametrize(
    ("answer", "measured", "line"),
    [
        ([3, 3, 2, 2], np.array([3, 3, 2, 2]), AS_PREDICTED.format("[3, 3, 2, 2]")),
        ((3, 3, 3, 1), [3, 3, 2, 2], "you predicted [3, 3, 3, 1], it is [3, 3, 2, 2]: 2 of 4 entries are right."),
        ([3], [3, 3, 2, 2], "you predicted [3], it is [3, 3, 2, 2]: 4 entries, not 1."),
        (3, [3, 3, 2, 2], "you predicted 3, but the answer is a list."),
        ([3], 3, "you predicted [3], but the answer is not a list."),
        ([3, "x"], [3, 3], "[3, 'x'] is neither a number nor a list of numbers."),
    ],
)
def test_a_list_of_numbers(capsys: pytest.CaptureFixture[str], answer: object, measured: object, line: str) -> None:
    assert compared(capsys, answer, measured) == line


def test_the_tolerance_holds_for_each_number_of_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(capsys, [10, 21], [10.1, 20], within=0.02).endswith("1 of 2 entries are right.")
    assert compared(capsys, [10, 21], [10.1, 20], within=0.05) == AS_PREDICTED.format("[10, 21]")


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (["tree", "ring"], AS_PREDICTED.format("[tree, ring]")),
        (["ring", "tree"], "you predicted [ring, tree], it is [tree, ring]: 0 of 2 entries are right."),
        (["ring"], "['ring'] is not a list of all of these: ring, tree."),
        ("ring", "'ring' is not a list of all of these: ring, tree."),
        (..., NOT_ENTERED),
    ],
)
def test_an_order(capsys: pytest.CaptureFixture[str], answer: object, line: str) -> None:
    assert compared(capsys, answer, ["tree", "ring"], order=("ring", "tree")) == line


def test_several_words_count_in_any_order(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("ring", "tree", "doubling")
    assert compared(capsys, ["tree", "ring"], ["ring", "tree"], *words) == AS_PREDICTED.format("[ring, tree]")
    assert compared(capsys, ["tree"], ["ring", "tree"], *words).endswith("2 entries, not 1.")
    assert compared(capsys, "tree", ["ring", "tree"], *words) == "you predicted tree, but the answer is a list."


@pytest.mark.parametrize("measured", [18, 0.123, [1, 2], np.ones(3), float("nan")])
def test_without_an_answer_the_line_does_not_depend_on_what_was_measured(
    capsys: pytest.CaptureFixture[str], measured: object
) -> None:
    assert compared(capsys, ..., measured) == NOT_ENTERED


@pytest.mark.parametrize(
    ("words", "order", "measured"),
    [((), (), "ring"), (("ring", "tree"), (), "star"), (("yes", "no"), (), 1), ((), ("ring", "tree"), ["ring"])],
)
def test_a_notebook_that_measures_no_answer_to_its_question_is_refused(
    words: tuple[str, ...], order: tuple[str, ...], measured: object
) -> None:
    with pytest.raises(ValueError, match=r"the thing: .* is no answer to this question"):
        predict("the thing", ..., *words, order=order).compare(measured)
