"""A learner's prediction, entered before a notebook's cell runs and compared with what then happens.

    my_bytes = predict("bytes that rank 0 sends", ...)  # the learner replaces the three dots by an answer
    my_bytes.compare(12_000_000)  # prints one line, in the cell that measures

While the dots (`Ellipsis`) stand there, `compare` reports just that, so that a notebook without answers prints the same
on every machine. An answer that does not fit gets a line and no exception, since no cell depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from typing import Any

ROUNDING = 1e-9  # numbers that differ by less, absolutely or relatively, count as equal


class Prediction:
    """A question and its answer, as `predict` describes them."""

    def __init__(self, question: str, answer: object, words: Sequence[str], order: bool) -> None:
        self.question, self.words, self.order = question, tuple(words), order
        self.answer = self._arranged(answer)
        self.flaw = self._flaw()

    def compare(self, measured: Any, *, within: float = 0.0) -> None:
        """Print in one line what was predicted, what was measured, and how far apart they are.

        Args:
            measured: a number, a word, a truth value ("yes" or "no"), or a list of these; an array counts as a list.
            within: the relative error up to which a number counts as close.

        Raises:
            ValueError: `measured` is no answer to this question, which is the notebook's mistake.
        """
        found = self._arranged(measured)
        if not self._fits(found):
            raise ValueError(f"{self.question}: {found!r} was measured, which is no answer to this question")
        print(f"{self.question}: {self.flaw or self._comparison(found, max(within, ROUNDING))}")

    def _arranged(self, value: Any) -> Any:
        """Return a plain value; words are sorted unless the question is about their order."""
        value = plain(value)
        return sorted(value, key=str) if isinstance(value, list) and self.words and not self.order else value

    def _fits(self, value: Any) -> bool:
        if self.order:
            return isinstance(value, list) and sorted(map(str, value)) == sorted(self.words)
        entries = value if isinstance(value, list) else [value]
        return all(entry in self.words if self.words else isinstance(entry, int | float) for entry in entries)

    def _flaw(self) -> str | None:
        """Return why there is no answer to compare, or None."""
        if self.answer is ...:
            return "no prediction was entered."
        if self._fits(self.answer):
            return None
        if not self.words:
            return f"{self.answer!r} is neither a number nor a list of numbers."
        kind = "a list of all of" if self.order else "one of"
        return f"{self.answer!r} is not {kind} these: {', '.join(self.words)}."

    def _comparison(self, found: Any, within: float) -> str:
        answer, told, is_list = self.answer, f"you predicted {written(self.answer)}", isinstance(found, list)
        if isinstance(answer, list) != is_list:
            return f"{told}, but the answer is {'' if is_list else 'not '}a list."
        if not is_list:
            return f"{told}, {error(answer, found, within)}."
        if len(answer) != len(found):
            return f"{told}, it is {written(found)}: {len(found)} entries, not {len(answer)}."
        right = sum(is_near(*each, within) for each in zip(answer, found, strict=True))
        if right == len(found):
            return f"{told}, and so it is."
        return f"{told}, it is {written(found)}: {right} of {len(found)} entries are right."


def predict(question: str, answer: object, *words: str, order: Sequence[str] = ()) -> Prediction:
    """Return a prediction to compare with what happens, and print a line if the answer does not fit the question.

    Args:
        question: what is predicted, in a few words, with which the line of the comparison begins.
        answer: ``...`` until it is entered; then a number, one of `words`, or a list of these. True means "yes".
        words: what the answer is chosen from. Without words it consists of numbers.
        order: words that the answer, a list, has to bring into order.
    """
    prediction = Prediction(question, answer, order or words, bool(order))
    if prediction.flaw and prediction.answer is not ...:
        print(f"{question}: {prediction.flaw}")
    return prediction


def plain(value: Any) -> Any:
    """Return arrays and tuples as lists, numpy's numbers as Python's, and truth values as words."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return ("no", "yes")[value] if isinstance(value, bool) else value


def is_near(answer: Any, found: Any, within: float) -> bool:
    return bool(answer == found) if isinstance(found, str) else isclose(answer, found, rel_tol=within, abs_tol=ROUNDING)


def written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, float) and abs(value) < 10_000:
        return f"{value:.4g}"
    return value if isinstance(value, str) else f"{value:,.0f}"


def error(answer: Any, found: Any, within: float) -> str:
    """Return the second half of the line for a single answer."""
    if is_near(answer, found, ROUNDING):
        return "and so it is"
    if isinstance(found, str):
        return f"it is {found}"
    if is_near(answer, found, within):
        return f"it is {written(found)}: close"
    factor = max(answer / found, found / answer) if answer * found > 0 else 0.0
    size = f" by a factor of {factor:.3g}" if factor >= 2 else f" by {abs(answer / found - 1):.0%}" if factor else ""
    return f"it is {written(found)}: too {'high' if answer > found else 'low'}{size}"
