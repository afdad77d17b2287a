"""The bytes that one step sends, and the memory of a rank, by formula.

A rank sends, per layer, for rows of w numbers of which S leave it for other ranks' experts and R come from these

    counts      (P−1)·k·E integers of 8 bytes
    forward     (S + R)·w                       dispatch, combine
    backward    (S + R)·w                       the gradients of the answers, and of the tokens

and per step the all-reduce of the parameters that all ranks have: 2(P−1)/P of these. The experts' gradients are not
sent: the rows of all ranks have come to the expert, so its gradient is the sum already. With an even load S and R are
each k(P−1)/P·n for n tokens of a rank.

Parameters: all but the experts on every rank, and of E experts of 8w² + 5w numbers in each block only the own ones.
Activations: those of the unsplit model without its feed-forward networks, and per mixture what `mixture_bytes` lists.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from farandole.model_parallel.expert.model import MixtureBlock
from farandole.model_parallel.expert.plan import Plan
from farandole.model_parallel.footprint import footprint
from farandole.model_parallel.memory import Memory
from farandole.models.training_state import STATE_PER_PARAMETER
from farandole.models.transformer import EXPANSION

INTEGER = 8  # bytes


def layer_bytes(plan: Plan, rank: int, row: int) -> dict[str, int]:
    """Return the bytes that one mixture sends from `rank`: "counts", "forward" and "backward".

    Args:
        row: bytes of one token's vector.
    """
    ranks, k, experts = plan.chosen.shape
    between = int(plan.rows[rank].sum() + plan.rows[:, rank].sum() - 2 * plan.rows[rank, rank])
    return {"counts": (ranks - 1) * k * experts * INTEGER, "forward": between * row, "backward": between * row}


def even_bytes(tokens: int, k: int, ranks: int, row: int) -> float:
    """Return what one mixture sends forward, and backward again, if the load is even.

    Args:
        tokens: of this rank.
    """
    return 2 * k * (ranks - 1) / ranks * tokens * row


def expert_size(width: int) -> int:
    """Return the number of parameters of one expert."""
    return 2 * EXPANSION * width**2 + (EXPANSION + 1) * width


def mixture_bytes(plan: Plan, rank: int, width: int, itemsize: int) -> int:
    """Return what autograd keeps of one mixture on `rank` from forward to backward."""
    _, k, experts = plan.chosen.shape
    tokens = int(plan.chosen[rank, 0].sum())
    sent, computed = int(plan.rows[rank].sum()), int(plan.rows[:, rank].sum())
    numbers = tokens * (width + experts)  # the router's inputs and probabilities
    numbers += tokens * (2 * k + 1 if k > 1 else k)  # weights, before and after they are divided by their sum
    numbers += tokens * k * width  # the answers, by choice
    numbers += computed * (1 + 2 * EXPANSION) * width  # of each row what an expert's layers keep
    numbers += experts  # the shares
    places = tokens * k + sent + 2 * computed  # choices; which are sent; their order on this rank, and back
    kept: int = numbers * itemsize + places * INTEGER
    return kept


def memory(model: nn.Sequential, shared: int, plans: Sequence[Plan], inputs: Tensor, optimizer: str) -> Memory:
    """Return what a rank holds.

    Args:
        model: its part.
        shared: number of parameters that all ranks have.
        plans: of the mixtures, for the batch that is counted.
        inputs: a tensor like that of its samples, on torch's meta device.
        optimizer: its name.
    """
    blocks = [layer for layer in model if isinstance(layer, MixtureBlock)]
    width, itemsize = blocks[0].attention_norm.weight.numel(), blocks[0].attention_norm.weight.itemsize
    group = blocks[0].mixture.group
    size = (shared + len(blocks) * len(group.own) * expert_size(width)) * itemsize
    kept = footprint(model, inputs, loss=True)
    assert kept
    networks = len(blocks) * inputs.numel() * (1 + 2 * EXPANSION) * width * itemsize
    activations = kept.activations - networks + sum(mixture_bytes(plan, group.rank, width, itemsize) for plan in plans)
    return Memory(size, size, STATE_PER_PARAMETER[optimizer] * size, activations)
