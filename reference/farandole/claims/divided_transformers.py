"""Claims about what the ranks of a divided transformer send, counted while they train."""

from __future__ import annotations

from typing import Any

from farandole.claims.claim import Bound, Claim, Measured, Source
from farandole.claims.trainings import trained

BATCH, CONTEXT, HIDDEN = 8, 64, 64
BSH = 4 * BATCH * CONTEXT * HIDDEN  # bytes of b·s·h numbers
TEXT: dict[str, Any] = {"data": "pydoc", "model": "transformer", "batch": BATCH, "hidden": HIDDEN, "lr": 0.1}
STEPS, BLOCKS = (1, 3), (2, 4)


def sent(scenario: str, ranks: int, **options: Any) -> list[int]:
    return trained(scenario, ranks, **TEXT, **options)[0].summary.bytes_sent or []


def per_layer(ranks: int, **options: Any) -> float:
    """Return what each rank sends for a block and a step, on average, in multiples of b·s·h numbers.

    Two blocks more and two steps more, both at once, leave out what is sent once for a step or for a training.
    """
    counted = {(blocks, steps): sum(sent("tensor_split", ranks, depth=blocks, steps=steps, **options))
               for blocks in BLOCKS for steps in STEPS}  # fmt: skip
    (few, many), (short, long) = BLOCKS, STEPS
    more = counted[many, long] - counted[few, long] - counted[many, short] + counted[few, short]
    return more / ((many - few) * (long - short) * ranks * BSH)


def messages() -> Measured:
    """Train a transformer that is divided over 2 and 4 tensor ranks, and one over 2 stages."""
    plain = {ranks: per_layer(ranks) for ranks in (2, 4)}
    by_positions = per_layer(2, sequence_parallel=True)
    short, long = (sent("pipeline", 2, depth=2, steps=steps, schedule="1f1b", micro_batches=4) for steps in STEPS)
    forward, backward = ((more - less) / ((STEPS[1] - STEPS[0]) * BSH) for less, more in zip(short, long, strict=True))
    figures = {f"{ranks} ranks: sent for a layer / 8bsh(t − 1)/t": own / (8 * (ranks - 1) / ranks)
               for ranks, own in plain.items()}  # fmt: skip
    figures |= {
        "from the first stage to the second / bsh": forward,
        "and back / bsh": backward,
        "with sequence parallelism / without": by_positions / plain[2],
    }
    return Measured(figures)


CLAIMS = (
    Claim(
        "megatron-messages",
        Source("Narayanan et al., Korthikanti et al.", 2021,
               "Efficient large-scale language model training on GPU clusters using Megatron-LM; Reducing activation "
               "recomputation in large transformer models (2022)", "section 3.2; section 4.2.2"),
        "For a micro-batch, tensor ranks send 8bsh(t − 1)/t numbers per layer, and a pipeline bsh between two stages "
        "in each direction. Sequence parallelism sends as much as tensor parallelism alone.",
        "real ranks",
        "a transformer of width 64, four heads, on passages of 64 characters, 8 a step; 2 and 4 tensor ranks, and two "
        "stages with 1F1B. Counted by the records, 2 and 4 blocks for 1 and 3 steps; the differences leave out "
        "embedding, output and test",
        25,
        messages,
        (
            *(
                Bound(f"{ranks} ranks: sent for a layer / 8bsh(t − 1)/t", "the tensor ranks' formula to the byte",
                      1 - 1e-9, 1 + 1e-9, core=True)
                for ranks in (2, 4)
            ),
            Bound("from the first stage to the second / bsh", "bsh between stages", 1, 1, core=True),
            Bound("and back / bsh", "and bsh back", 1, 1, core=True),
            Bound("with sequence parallelism / without", "as much, within 1 %", 0.99, 1.01,
                  otherwise="a rank keeps the inputs of a divided layer for its own positions only, and the backward "
                  "pass gathers them again: ten halves of an all-reduce where there were eight. Korthikanti et al. do "
                  "so, too, beside a matrix product, and do not count it. The gradients of the norms, 0.3 %, are added "
                  "over the ranks as well"),
        ),
        "model_parallel/tensor/exchange.py",
    ),
)  # fmt: skip
