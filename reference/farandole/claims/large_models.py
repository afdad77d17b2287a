"""Claims about large transformers: memory, messages and days, by the calculators that the documentation shows."""

from __future__ import annotations

from farandole.claims import printed
from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.cost import paper_tables
from farandole.cost.published import KORTHIKANTI, MODELS
from farandole.cost.training_plan import TrainingPlan
from farandole.cost.volumes import volumes

NARAYANAN = Source(
    "Narayanan et al.", 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM", ""
)
KORTHIKANTI_2022 = "Reducing activation recomputation in large transformer models"


def zero_table() -> Measured:
    """Compare every entry of ZeRO's table 1, as text, with the printed one."""
    rows = paper_tables.zero()[1:]
    entries = [(ours, theirs) for row, other in zip(rows, printed.zero(), strict=True)
               for ours, theirs in zip(row[1:], other[1:], strict=True)]  # fmt: skip
    stages = {f"stage {stage}": [(float(row[0]), float(row[stage])) for row in rows] for stage in (1, 2, 3)}
    figures = {
        "entries": len(entries),
        "entries with the printed digits": sum(ours == theirs for ours, theirs in entries),
    }
    return Measured(figures, Picture("data-parallel ranks", "GB of a rank, 7.5 billion parameters", stages, log="xy"))


def activation_memory() -> Measured:
    """Compare the activations of a block by technique, and the utilisation that follows from measured steps."""
    saved = {}
    for name in ("gpt3-175b", "mt-nlg-530b"):
        tensor = paper_tables.per_layer(name, TrainingPlan(8, 8))
        both = paper_tables.per_layer(name, TrainingPlan(8, 8, sequence_parallel=True, recompute="selective"))
        saved[name] = tensor / both
    used = {name: (float(mfu[:-1]), float(hfu[:-1])) for name, _, _, mfu, hfu, _ in paper_tables.utilisations()[1:]}
    figures: dict[str, float | None] = {
        f"tensor parallel / with both techniques, {name}": ratio for name, ratio in saved.items()
    }
    figures |= {
        f"largest error of MFU and HFU in points, {name}": max(
            abs(ours - theirs) for ours, theirs in zip(used[name], both_printed, strict=True)
        )
        for name, both_printed in printed.UTILISATION.items()
    }
    return Measured(figures)


def megatron_communication() -> Measured:
    """Count what tensor ranks and stages send for a layer and a micro-batch, in multiples of b·s·h numbers."""
    found = {}
    for tensor in (2, 4, 8):
        plan = TrainingPlan(2 * tensor, tensor, 2, batch=2)
        shape = MODELS["gpt3-175b"]
        sent, bsh = volumes(shape, plan), 2 * shape.sequence * shape.hidden  # bytes of b·s·h numbers
        per_layer = sent["tensor"].nbytes / (plan.micro_batches * shape.layers / 2) / bsh
        found[tensor] = per_layer, sent["pipeline"].nbytes / plan.micro_batches / bsh
    plan = KORTHIKANTI["gpt3-175b"]
    both = volumes(MODELS["gpt3-175b"], plan)
    figures = {
        "largest distance from 8(t − 1)/t": max(abs(own - 8 * (t - 1) / t) for t, (own, _) in found.items()),
        "b·s·h numbers between two stages, one way": found[8][1],
        "GPT-3 on 64 ranks: tensor bytes / pipeline bytes": both["tensor"].nbytes / both["pipeline"].nbytes,
    }
    lines = {"tensor, per layer": [(float(t), own) for t, (own, _) in found.items()],
             "pipeline, per border": [(float(t), other) for t, (_, other) in found.items()]}  # fmt: skip
    return Measured(figures, Picture("tensor ranks", "numbers sent for a micro-batch / bsh", lines))


def megatron_days() -> Measured:
    """Compute the days of two trainings from the throughput that the paper has measured."""
    found = {row[0]: float(row[-1]) for row in paper_tables.days()[1:]}
    return Measured({"days of GPT-3, 175 billion": found["gpt3-175b"], "days of a trillion": found["gpt-1t"]})


CLAIMS = (
    Claim(
        "zero-table-1",
        Source("Rajbhandari et al.", 2020, "ZeRO: memory optimizations toward training trillion parameter models",
               "table 1"),
        "54 figures: the memory of each rank for models of 7.5, 128 and 1,000 billion parameters, three stages and 1 "
        "to 1,024 ranks.",
        "computed",
        "`farandole memory`'s division, which is that of `sharded`, with mixed precision and Adam",
        1,
        zero_table,
        (
            Bound("entries", "all entries are compared", 54, 54, core=True),
            Bound("entries with the printed digits", "50 or more have the printed digits", least=50, core=True),
            Bound("entries with the printed digits", "all have", least=54),
        ),
        "sharded/stages.py",
    ),
    Claim(
        "activation-memory",
        Source("Korthikanti et al.", 2022, KORTHIKANTI_2022, "abstract, tables 2 and 5"),
        "Sequence parallelism with selective recomputation needs a fifth of tensor parallelism's activations. Table "
        "5's MFU and HFU are 51.4 and 52.8, 56.0 and 57.0, 56.3 and 57.0 %.",
        "computed",
        "the blocks' own activations, counted; the utilisation from the printed step times. Here no step was measured",
        1,
        activation_memory,
        (
            Bound("tensor parallel / with both techniques, gpt3-175b", "a fifth, within 10 %", 4.5, 5.5, core=True),
            Bound("tensor parallel / with both techniques, mt-nlg-530b", "a fifth, within 10 %", 4.5, 5.5, core=True),
            *(
                Bound(f"largest error of MFU and HFU in points, {name}", "the printed digits", most=0.05)
                for name in printed.UTILISATION
            ),
        ),
        "model_parallel/activations.py",
    ),
    Claim(
        "megatron-communication",
        Source(NARAYANAN.authors, NARAYANAN.year, NARAYANAN.title, "section 3.2"),
        "For a micro-batch, tensor ranks send 8bsh(t − 1)/t numbers per layer, and a pipeline bsh between two "
        "stages in each direction: tensor parallelism belongs within a node.",
        "computed",
        "counted over the ring's and the schedule's own steps, t = 2, 4 and 8, two stages; and for the trainings of "
        "Korthikanti et al.",
        1,
        megatron_communication,
        (
            Bound("largest distance from 8(t − 1)/t", "the tensor ranks' formula", most=1e-9, core=True),
            Bound("b·s·h numbers between two stages, one way", "bsh between stages", 1, 1, core=True),
            Bound("GPT-3 on 64 ranks: tensor bytes / pipeline bytes", "tensor ranks send ten times as much",
                  least=10),
        ),
        "cost/volumes.py",
    ),
    Claim(
        "megatron-days",
        Source(NARAYANAN.authors, NARAYANAN.year, NARAYANAN.title, "equation 4"),
        "GPT-3 takes 34 days on 1,024 GPUs at 140 teraFLOP/s each, and a model of a trillion parameters 84 days on "
        "3,072 at 163.",
        "computed",
        "`farandole flops`' count of operations over the throughput that the paper has measured",
        1,
        megatron_days,
        (
            Bound("days of GPT-3, 175 billion", "34 days", 34, 34, core=True),
            Bound("days of a trillion", "84 days", 84, 84, core=True),
        ),
        "cost/utilisation.py",
    ),
)  # fmt: skip
