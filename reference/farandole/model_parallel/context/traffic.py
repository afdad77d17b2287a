"""The bytes that one step sends, and the memory of its activations, by formula.

For n = samples·T·width numbers, with equal parts, each layer's attention sends per rank

    ring       2(P−1)/P·n forward;  2(P−1)/P·n + 2n backward       as much with many ranks as with few
    Ulysses    4(P−1)/P²·n forward and as much backward            less with every rank

and each step all-reduces the gradients of all parameters. A position's activations are those of the unsplit model
(``model_parallel.footprint``), so a rank keeps 1/P of them; Ulysses keeps one vector more per position and layer, since
the answers are needed by heads and by positions.
"""

from __future__ import annotations

import torch
from torch import nn

from farandole.model_parallel.context import steps
from farandole.model_parallel.context.placement import Placement, length
from farandole.model_parallel.context.steps import PassBlock, PassGradient
from farandole.model_parallel.footprint import footprint
from farandole.models.transformer import Block


def attention_bytes(attention: str, placement: Placement, rank: int, row: int) -> dict[str, int]:
    """Return the bytes that one layer's attention sends from `rank`, "forward" and "backward".

    Args:
        row: bytes of one position's vector, of all samples together.
    """
    lengths, ranks = [length(parts) for parts in placement], len(placement)
    if attention == "ulysses":
        blocks = (ranks - 1) * max(lengths) * row // ranks
        return {"forward": 4 * blocks, "backward": 4 * blocks}

    def sent(step: steps.Step) -> int:
        return 2 * row * lengths[step.block] if isinstance(step, PassBlock | PassGradient) else 0

    return {
        "forward": sum(map(sent, steps.forward(rank, ranks))),
        "backward": sum(map(sent, steps.backward(rank, ranks))),
    }


def activation_bytes(attention: str, model: nn.Sequential, samples: int, placement: Placement, rank: int) -> int | None:
    """Return what autograd keeps on `rank` from forward to backward.

    Args:
        model: the unsplit one, on torch's meta device.
        samples: of a batch; each is divided by `placement`.
    """
    own, ranks = length(placement[rank]), len(placement)
    inputs = torch.empty((samples, own), dtype=torch.int64, device="meta")
    kept = footprint(model, inputs, loss=True)
    if kept is None:
        return None
    more = 0.0
    for layer in model:
        if attention == "ulysses" and ranks > 1 and isinstance(layer, Block):
            weight = layer.attention.output.weight
            width, heads = weight.shape[1], weight.shape[1] // layer.attention.head_width
            equal = sum(map(length, placement)) / ranks  # positions, of all heads: what attention itself has
            more += samples * (own * width + (equal - own) * (4 * width + heads)) * weight.itemsize
    return kept.activations + round(more)
