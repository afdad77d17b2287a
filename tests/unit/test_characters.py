"""Real text, character by character: nothing is lost, and no passage occurs twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.data import characters, datasets, documentation
from farandole.data.characters import CONTEXT, VOCABULARY


@pytest.fixture(scope="module")
def text() -> str:
    return "\n".join(documentation.topics())


def test_the_vocabulary_is_what_is_documented() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 97
    assert VOCABULARY[0] == "\n"
    assert VOCABULARY[1:96] == "".join(character for character in map(chr, range(128)) if character.isprintable())


@given(st.text(alphabet=VOCABULARY))
def test_text_of_the_vocabulary_comes_back(text: str) -> None:
    assert characters.decode(characters.encode(text)) == text


@given(st.text())
def test_of_other_text_each_unknown_character_becomes_the_stand_in(text: str) -> None:
    numbers = characters.encode(text)
    assert numbers.dtype == np.int64
    expected = "".join(character if character in VOCABULARY else VOCABULARY[-1] for character in text)
    assert characters.decode(numbers) == expected


def test_nearly_all_of_the_documentation_is_in_the_vocabulary(text: str) -> None:
    assert len(text) > 300_000
    unknown = sum(character not in VOCABULARY for character in text)
    assert unknown < len(text) / 500
    assert len(set(text) & set(VOCABULARY)) > 90, "and little of the vocabulary is in vain"


@pytest.mark.parametrize("given", [(), (1,), (1000,)])
def test_targets_are_the_next_characters(given: tuple[int, ...]) -> None:
    dataset = datasets.load("pydoc", *given)
    assert dataset.inputs.shape == dataset.targets.shape == (len(dataset), *(given or (64,)))
    assert dataset.inputs.dtype == dataset.targets.dtype == np.int64
    assert np.array_equal(dataset.inputs[:, 1:], dataset.targets[:, :-1])


@pytest.mark.parametrize("context", [CONTEXT, 1, 1000])
def test_passages_are_the_text_in_reading_order_and_do_not_overlap(text: str, context: int) -> None:
    dataset = datasets.load("pydoc", context)
    whole = np.concatenate([dataset.inputs, dataset.targets[:, -1:]], axis=1).ravel()
    assert np.array_equal(whole, characters.encode(text)[: len(whole)])
    assert 0 <= len(text) - len(whole) <= context, "only an incomplete passage at the end is left out"


def test_a_text_of_less_than_a_passage_gives_none() -> None:
    inputs, targets = characters.passages("x" * CONTEXT)
    assert inputs.shape == targets.shape == (0, CONTEXT)


def test_what_is_tested_on_has_rarely_been_learned_by_heart() -> None:
    """Some chapters are in the documentation twice; with them a third of the test passages were known."""
    splits = datasets.split(datasets.load("pydoc"), seed=0)
    length = 40

    def parts(passage: np.ndarray) -> set[bytes]:
        return {passage[start : start + length].tobytes() for start in range(CONTEXT - length + 1)}

    learned = set().union(*map(parts, splits.train.inputs))
    known = sum(not learned.isdisjoint(parts(passage)) for passage in splits.test.inputs)
    assert known < 0.15 * len(splits.test)
