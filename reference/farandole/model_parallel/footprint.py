"""The memory that a micro-batch takes in some layers, by formula: nothing is computed, only shapes are.

From its forward to its backward pass a micro-batch leaves the inputs of each linear layer of an MLP;
in a block of the transformer, of width w, for each character

    4w + 12w/t + h/t + 4 elements    h heads, t tensor ranks

These are the terms of `activations.block`, with fused attention and without dropout, and of each
norm mean and deviation. Where the tensor ranks divide the sequence too, all of it is
divided: (16w + h + 4)/t. Where h, the middle of a network or the vocabulary is no multiple of t, each rank counts the
whole heads, columns and symbols that it has.

The loss keeps its softmax and the targets. What looks a symbol up in a part of the vocabulary, the embedding and the
loss, also keeps 9 bytes a symbol: its row in the part, and whether it is there. How many micro-batches are held at once
is the schedule's matter (`step_costs.most_held`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from farandole.data.shares import equal_shares
from farandole.model_parallel import activations
from farandole.models.recomputation_options import Recomputed
from farandole.models.transformer import EXPANSION, Block, Embedding, Head

LOOKED_UP = 8 + 1  # of a symbol, where the vocabulary is divided: its row, and whether this rank has it


@dataclass(frozen=True)
class Footprint:
    """Bytes per micro-batch.

    Attributes:
        inputs: of the first layer.
        activations: kept from forward to backward, the inputs among them.
        again: what a backward pass computes again, and holds for a moment beside what has been kept so far.
        in_flight: the most that is on the device beside the inputs where all else is offloaded: two layers that follow
            each other, and what is computed again of the second.
        late: kept between the two halves of a backward pass: each linear layer's inputs and its outputs' gradient;
            nothing where tensor ranks share the layers, whose backward passes are not taken in halves.
    """

    inputs: int
    activations: int
    again: int
    in_flight: int
    late: int


def footprint(
    layers: Iterable[nn.Module],
    inputs: Tensor,
    *,
    loss: bool,
    tensor_ranks: int = 1,
    tensor_rank: int = 0,
    positions: int | None = None,
    recompute: Recomputed = "none",
    fused: bool = True,
) -> Footprint | None:
    """Return the memory that one micro-batch takes in these layers.

    Args:
        layers: the unsplit ones, on torch's meta device.
        inputs: of the first layer, on the meta device, too.
        loss: the outputs go into a cross-entropy.
        tensor_ranks: how many ranks share each layer.
        tensor_rank: which of them this is; the first has the largest share.
        positions: of a sequence, those of this rank, where tensor ranks divide it too (``tensor.sequence``); None: all.
        recompute: what is computed again for the backward pass.
        fused: attention keeps no square of positions.

    Returns:
        None where a layer's formula is not known.
    """
    kept: float = inputs.nbytes
    late = 0
    most_again = 0.0  # of what is kept up to a block, with the block computed again
    upto, regions = [kept], [0.0]  # kept up to each layer, and what is then computed again of it
    saved = True  # the tensor between two layers has been counted
    parts = 1.0  # the layer's size over this rank's part of it
    first = inputs.nbytes
    whole = 1.0 if positions is None else positions / inputs.shape[1]  # of what layers leave undivided

    def over_own(count: int) -> float:
        """Return `count` heads, columns or symbols over the number of them that this rank has."""
        return count / equal_shares(count, tensor_ranks)[tensor_rank]

    for layer in layers:
        regions.append(0.0)
        outputs = _like_outputs(layer, inputs)
        rows, width = prod(inputs.shape[:-1]), inputs.shape[-1]
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.MaxPool2d | Block | Head) and not saved:
            kept += inputs.nbytes * whole / parts
        match layer:
            case nn.Flatten():
                outputs_saved = saved
            case nn.Linear():
                late += inputs.nbytes
                parts = 1 if parts > 1 else over_own(outputs.shape[-1])  # by columns, then by rows
                late += outputs.nbytes
                outputs_saved = False
            case nn.Conv2d():
                outputs_saved = False
            case nn.ReLU():
                kept += outputs.nbytes / parts
                outputs_saved = True
            case nn.MaxPool2d():
                kept += 8 * outputs.numel()  # where each maximum was
                outputs_saved = False
            case Embedding():
                kept += 8 * inputs.shape[1] * whole  # the places' numbers
                kept += LOOKED_UP * inputs.numel() if tensor_ranks > 1 else 0
                outputs_saved = False
            case Block():
                heads = width // layer.attention.head_width
                own = activations.block(width, heads, inputs.shape[-2], inputs.itemsize, fused=fused, dropout=False)
                beside = own.whole + (4 - width) * inputs.itemsize  # its inputs are counted, its norms' means are not
                attention = rows * own.attention / over_own(heads)
                by_heads = rows * 4 * width * inputs.itemsize / over_own(heads)  # queries, keys, values, what they find
                by_columns = rows * 2 * EXPANSION * width * inputs.itemsize / over_own(EXPANSION * width)
                others = rows * whole * beside + by_heads + by_columns
                region = {"selective": attention, "full": attention + others}.get(recompute, 0.0)
                kept += attention + others - region
                # Before attention is computed again, all that comes after it is freed, with what attention found.
                after = rows * whole * (2 * width + 2) * inputs.itemsize + by_heads / 4 + by_columns
                regions[-1] = region - (after if recompute == "selective" else 0)
                most_again = max(most_again, kept + regions[-1])
                late += 16 * inputs.nbytes
                outputs_saved = False
            case Head():
                kept += rows * whole * (width + 2) * inputs.itemsize
                parts = over_own(outputs.shape[-1])
                late += inputs.nbytes + outputs.nbytes
                outputs_saved = False
            case _:
                return None
        inputs, saved = outputs, outputs_saved
        upto.append(kept)
    if loss:
        rows, itemsize = prod(inputs.shape[:-1]), max(4, inputs.itemsize)
        kept += inputs.numel() / parts * itemsize  # the softmax
        kept += LOOKED_UP * rows if parts > 1 else 8 * rows + itemsize  # the targets, and the number of these
    upto[-1] = kept
    changes = zip(upto, upto[1:], regions[1:], strict=False)
    ends = [(end, max(0.0, region)) for start, end, region in changes if end > start or region]
    starts = [first, first, *(end for end, _ in ends)]  # two layers before each end, of those that keep something
    in_flight = max((end - start + region for start, (end, region) in zip(starts, ends, strict=False)), default=0.0)
    if recompute == "stage":
        kept, most_again = first, kept
    again = max(0, round(most_again - kept))
    return Footprint(first, round(kept), again, round(in_flight), late if tensor_ranks == 1 else 0)


def _like_outputs(layer: nn.Module, inputs: Tensor) -> Tensor:
    """Return a tensor like what `layer` makes of `inputs`.

    Most layers' shapes are known: computing on the meta device makes torch load its compiler, 0.7 s.
    """
    match layer:
        case nn.Linear():
            return inputs.new_empty((*inputs.shape[:-1], layer.out_features))
        case nn.ReLU() | Block():
            return inputs.new_empty(inputs.shape)
        case Embedding():
            table = layer.places.weight
            return table.new_empty((*inputs.shape, table.shape[1]), device=inputs.device)
        case Head():
            return inputs.new_empty((*inputs.shape[:-1], layer.logits.out_features))
    outputs: Tensor = layer(inputs)
    return outputs
