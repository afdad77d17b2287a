"""Real text character by character: the training data of a small language model.

Python's documentation (`documentation`) is cut into passages of 65 characters that do not overlap,
5,742 of them with Python 3.11. A sample's inputs are the first 64, its targets the last 64: at every
place the target is the next character, of which the model may know those up to that place. Passages
may have another length, the context; the longer they are, the fewer.

The vocabulary is fixed, so that every rank knows it without the text: the newline, the 95 printable
ASCII characters in order, and one stand-in for all others, which are about 1 in 900.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

CONTEXT = 64  # characters that are seen at once, unless another number is given
VOCABULARY = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1))) + "\N{REPLACEMENT CHARACTER}"

OTHER = len(VOCABULARY) - 1
NUMBERS = np.full(128, OTHER)  # of the ASCII characters; the last of them is not printable
NUMBERS[[ord(character) for character in VOCABULARY[:OTHER]]] = np.arange(OTHER)


def encode(text: str) -> NDArray[np.int64]:
    """Return each character's number in the vocabulary, of shape (characters,)."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    numbers: NDArray[np.int64] = NUMBERS[np.minimum(codes, len(NUMBERS) - 1)]
    return numbers


def decode(numbers: Iterable[int]) -> str:
    """Return the text again, with the stand-in where a character is not in the vocabulary."""
    return "".join(VOCABULARY[number] for number in numbers)


def passages(text: str, context: int = CONTEXT) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Inputs and targets, each of shape (passages, context), in reading order; an incomplete passage is left out."""
    count = len(text) // (context + 1)
    cut = encode(text)[: count * (context + 1)].reshape(count, context + 1)
    return cut[:, :-1].copy(), cut[:, 1:].copy()
