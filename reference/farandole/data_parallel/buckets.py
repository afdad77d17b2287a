"""A flat gradient cut into buckets, in the order in which backward fills them.

Backward computes the last layer's gradients first. So the buckets, each the gradients of consecutive parameters, begin
at the vector's end. Once all gradients of a bucket are computed it can be sent, while backward continues with the
layers before it.

    parameters    w0  b0  w1  b1  w2  b2
    buckets       └──2──┘ └─1─┘ └──0──┘      0 is complete first

Few large buckets need few messages, but the first is sent late; many small ones need more messages and start earlier.
Source: Li et al., "PyTorch distributed: experiences on accelerating data parallel training", 2020, section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bucket:
    """Some parameters' gradients.

    Attributes:
        place: where they lie in the flat vector.
        parameters: which of the model's they are.
    """

    place: slice
    parameters: range


def cut(lengths: Sequence[int], most: int) -> list[Bucket]:
    """Buckets in the order of backward, each of `most` elements or of a single parameter that has more.

    Args:
        lengths: elements of each parameter, in the model's order.
    """
    buckets = []
    stop, last = sum(lengths), len(lengths)
    start = stop
    for number in reversed(range(len(lengths))):
        if start < stop and stop - start + lengths[number] > most:
            buckets.append(Bucket(slice(start, stop), range(number + 1, last)))
            stop, last = start, number + 1
        start -= lengths[number]
    if lengths:
        buckets.append(Bucket(slice(start, stop), range(last)))
    return buckets
