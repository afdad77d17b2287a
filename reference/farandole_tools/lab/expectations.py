"""Expectations of many labs' checks, with one wording for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from farandole_tools.lab.labs import expect

if TYPE_CHECKING:
    from farandole.runtime.communicator import Buffer
    from farandole_tools.lab.communicator import LabCommunicator

THROUGH_COMM = "is everything sent through comm?"  # the hint where nothing has been sent


def expect_returned(answer: Any, call: str, by: str = "return") -> None:
    """Expect that `call` has given an answer: None is what a function without a return (or a yield) gives."""
    expect(answer is not None, f"{call} returns None: is there a {by}?")


def expect_sent(comm: LabCommunicator, messages: int) -> None:
    """Expect that this rank has sent some of `messages`."""
    expect(messages, f"rank {comm.rank} sent no message: {THROUGH_COMM}")


def expect_same_bits(vector: Buffer, comm: LabCommunicator, part: str, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Expect that all ranks hold the same `vector`, bit by bit. Collective.

    Args:
        part: what one rank should add up and the others copy.
        rtol, atol: below these, differences are told as the rounding of sums in several orders.
    """
    everybodys = comm.everybodys(vector)
    for other, result in enumerate(everybodys):
        differ = np.flatnonzero(everybodys[0] != result)
        if not differ.size:
            continue
        expect(
            not np.allclose(everybodys[0], result, rtol=rtol, atol=atol),
            f"ranks 0 and {other} differ in the last bits of {differ.size:,} elements: each rank adds up in a "
            f"different order; let one rank finish a {part}'s sum, and the others copy it",
        )
        expect(False, f"ranks 0 and {other} end with different vectors, from element {differ[0]} on")


def counted(number: int, one: str, many: str = "") -> str:
    """Return "1 row", "2,000 rows"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
