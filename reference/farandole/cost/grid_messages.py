"""The collectives of a worker in a grid of six axes, by the schedules that the scenario `grid` runs.

For a micro-batch whose outputs at this worker's positions have b bytes, and for the parameters of its layers:

    tensor       a ring all-reduce of b: two of each block forward and two backward, one of the embedding forward, and
                 one of the head backward; three numbers of each position go round for the loss. Of a block with experts
                 only one each way, and one each way for each expert, of the rows that have come to it
    context      the blocks of `context.steps`: keys and values of 2b/T, beside attention; backward once more, and then
                 their gradients
    expert       two pairwise all-to-alls of the k·b of all choices forward, and two backward
    counts       a ring all-gather of k·E integers forward, over all ranks with other tokens
    shard        a ring all-gather of each unit before both passes, and its ring reduce-scatter after the backward pass
    gradients    the update: for each unit a ring all-reduce of this worker's part of it, over data, expert and context
                 ranks; over data and context ranks for an expert

Every expert has equally many rows, which a training's routers only approach. Without a named model there are only
blocks, of which each expert has twice as many parameters as all the rest, as 8w² are to 4w² in a transformer.

Cost: O(axes) for each piece of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from farandole.collectives.all_to_all import PAIRWISE
from farandole.collectives.costs import Link, coefficients
from farandole.collectives.ring import ALL_GATHER, REDUCE_SCATTER, RING
from farandole.collectives.steps import Exchange, Schedule
from farandole.cost.choice import BYTES, Choice
from farandole.cost.volumes import Volume
from farandole.data.shares import equal_shares
from farandole.grid import unit_sizes
from farandole.model_parallel.context import steps
from farandole.model_parallel.context.steps import PassBlock, PassGradient
from farandole.model_parallel.grid import Grid
from farandole.models.shape import Shape

INTEGER = 8  # bytes, of a count
MIDDLE = 4  # widths of a block's network
NUMBERS_OF_A_LOSS = 3  # for each position, where the logits are divided


def _passes(kind: type[PassBlock | PassGradient]) -> Schedule:
    """Return the messages of one kind of ring attention's backward pass."""

    def of(rank: int, size: int) -> Iterator[Exchange]:
        for step in steps.backward(rank, size):
            if isinstance(step, kind):
                yield Exchange(step.block, step.to, step.following, step.source)

    return Schedule(kind.__name__, of, chunks=lambda size: size, critical=lambda size: 0)


BLOCKS, BLOCK_GRADIENTS = _passes(PassBlock), _passes(PassGradient)  # the blocks pass forward as they do backward


@dataclass(frozen=True)
class Collective:
    """A collective operation of a worker with the other ranks of a line of the grid.

    Attributes:
        what: the axis, "counts" or "gradients", as in `grid.traffic`.
        nbytes: of the whole vector.
        times: how often, one after the other.
        beside: attention goes on meanwhile.
    """

    what: str
    schedule: Schedule
    ranks: int
    nbytes: float
    times: float = 1.0
    beside: bool = False

    @property
    def sent(self) -> Volume:
        """Return what the worker sends."""
        alphas, betas, _ = coefficients(self.schedule, self.ranks)
        return Volume(self.times * alphas, self.times * betas * self.nbytes)

    def seconds(self, link: Link) -> float:
        """Return for how long it sends, over this link."""
        return self.sent.messages * link.alpha + self.sent.nbytes * link.beta


@dataclass(frozen=True)
class Sends:
    """The collectives of one piece of the model: in a pass forward, in one backward, and in the update."""

    forward: Sequence[Collective]
    backward: Sequence[Collective]
    update: Sequence[Collective]


@dataclass(frozen=True)
class UnitBytes:
    """A unit of the parameters on one worker, before shard ranks divide it."""

    nbytes: float
    is_expert: bool = False


@dataclass(frozen=True)
class Held:
    """A worker's part of each kind of layer.

    Attributes:
        rows: positions of a micro-batch; 0 without a model.
    """

    block: Sequence[UnitBytes]
    embedding: Sequence[UnitBytes] = ()
    head: Sequence[UnitBytes] = ()
    rows: float = 0.0


def held(grid: Grid, choice: Choice, nbytes: float, tensor_rank: int = 0) -> Held:
    """Return the parameters of one worker.

    Args:
        nbytes: of all parameters, where there is no model.
        tensor_rank: of the worker; the first one has the most where something does not divide evenly.
    """
    experts = choice.experts
    own = experts // grid.expert
    if not choice.model:
        whole = nbytes / choice.units / grid.tensor
        if not experts:
            return Held([UnitBytes(whole)])
        each = whole / (1 + 2 * experts)
        return Held([UnitBytes(each), *[UnitBytes(2 * each, is_expert=True)] * own])
    return _held_of(choice.model, grid, experts, own, choice.micro_batch, tensor_rank)


def _held_of(model: Shape, grid: Grid, experts: int, own: int, samples: int, tensor_rank: int) -> Held:
    """Return the parameters of a transformer's layers."""
    width = model.hidden
    heads, middle, vocabulary = (
        equal_shares(number, grid.tensor)[tensor_rank] for number in (model.heads, MIDDLE * width, model.vocabulary)
    )
    block = unit_sizes.block(width, heads * width // model.heads, middle, experts, own)
    of_head = vocabulary if grid.pipeline > 1 or not model.tied else 0  # a tied matrix is the embedding's
    return Held(
        [UnitBytes(BYTES * unit.numel, unit.is_expert) for unit in block],
        [UnitBytes(BYTES * unit_sizes.embedding(width, vocabulary, model.sequence).numel)],
        [UnitBytes(BYTES * unit_sizes.head(width, of_head).numel)],
        samples * model.sequence / grid.context,
    )


def sends(
    grid: Grid, choice: Choice, activation: float, parts: Held, layers: float, first: bool = False, last: bool = False
) -> Sends:
    """Return the collectives of a piece of the model.

    Args:
        activation: bytes of a micro-batch's outputs at this worker's positions.
        parts: what the worker has of each layer.
        layers: blocks of the piece.
        first, last: the embedding and the head are in it.
    """
    forward = [*_of_blocks(grid, choice, activation, layers, is_forward=True)]
    backward = [*_of_blocks(grid, choice, activation, layers, is_forward=False)]
    if first:
        forward.append(Collective("tensor", RING, grid.tensor, activation))
    if last:
        of_loss = NUMBERS_OF_A_LOSS * parts.rows * BYTES * grid.tensor
        forward.append(Collective("tensor", ALL_GATHER, grid.tensor, of_loss))
        backward.append(Collective("tensor", RING, grid.tensor, activation))
    units = [(unit, layers) for unit in parts.block]
    units += [(unit, 1.0) for unit in (*(parts.embedding if first else ()), *(parts.head if last else ()))]
    update = []
    for unit, times in units:
        gather = Collective("shard", ALL_GATHER, grid.shard, unit.nbytes, times)
        forward.append(gather)
        backward += [gather, Collective("shard", REDUCE_SCATTER, grid.shard, unit.nbytes, times)]
        copies = grid.data * grid.context * (1 if unit.is_expert else grid.expert)
        update.append(Collective("gradients", RING, copies, unit.nbytes / grid.shard, times))
    return Sends(*([each for each in found if each.ranks > 1] for found in (forward, backward, update)))


def _of_blocks(
    grid: Grid, choice: Choice, activation: float, layers: float, *, is_forward: bool
) -> Iterator[Collective]:
    """Yield what a pass through blocks sends, but for their parameters."""
    choices, experts = choice.top_k * activation, choice.experts
    yield Collective("tensor", RING, grid.tensor, activation, layers if experts else 2 * layers)
    blocks = 2 * grid.context * activation / grid.tensor  # keys and values of all positions
    yield Collective("context", BLOCKS, grid.context, blocks, layers, beside=True)
    if not is_forward:
        yield Collective("context", BLOCK_GRADIENTS, grid.context, blocks, layers)
    if experts:
        own = experts // grid.expert
        yield Collective("tensor", RING, grid.tensor, choices / own, own * layers)
        yield Collective("expert", PAIRWISE, grid.expert, choices, 2 * layers)
        if is_forward:
            everyone = grid.data * grid.shard * grid.expert * grid.context
            yield Collective("counts", ALL_GATHER, everyone, everyone * choice.top_k * experts * INTEGER, layers)
