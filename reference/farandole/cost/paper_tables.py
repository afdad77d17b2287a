"""Tables of three papers, computed by the calculators: what docs/calculators.md shows, and tests hold to the papers.

Each function returns rows of text, the headings first; `markdown` makes a table of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

from farandole.cost import memory, utilisation
from farandole.cost.memory import Numbers
from farandole.cost.published import A100, KORTHIKANTI, MODELS
from farandole.cost.training_plan import Recompute, TrainingPlan
from farandole.cost.volumes import volumes
from farandole.models.training_state import BytesPerParameter

Rows = list[tuple[str, ...]]

MIXED = BytesPerParameter.of("adam", mixed=True)
DEGREES = (1, 4, 16, 64, 256, 1024)
ZERO_MODELS = {"7.5B": 7.5e9, "128B": 128e9, "1T": 1e12}
STEP_S = {"gpt-22b": 1.10, "gpt3-175b": 13.75, "mt-nlg-530b": 37.83, "gpt-1t": 71.49}  # measured, Korthikanti's table 5
# Korthikanti's table 2: tensor ranks, whether they divide the sequence, what is computed again.
TECHNIQUES: dict[str, tuple[int, bool, Recompute]] = {
    "34 + 5as/h": (1, False, "none"),
    "10 + 24/t + 5as/(ht)": (8, False, "none"),
    "34/t + 5as/(ht)": (8, True, "none"),
    "10 + 24/t": (8, False, "selective"),
    "34/t": (8, True, "selective"),
    "2": (8, False, "full"),
}


def zero() -> Rows:
    """Return ZeRO's table 1: GB of parameters, gradients and optimizer state by degree and stage."""
    rows: Rows = [("ranks", *(f"{name}, stage {stage}" for name in ZERO_MODELS for stage in (1, 2, 3)))]
    for ranks in DEGREES:
        held = [
            memory.of_parameters(parameters, TrainingPlan(ranks, zero=stage), MIXED).total
            for parameters in ZERO_MODELS.values()
            for stage in (1, 2, 3)
        ]
        rows.append((str(ranks), *map(gigabytes, held)))
    return rows


def gigabytes(nbytes: float) -> str:
    """Return GB as ZeRO's table 1 prints them: whole ones from 100 on, cut off; below three digits, rounded."""
    exact = Decimal(nbytes) / 10**9
    if exact >= 100:
        return str(exact.quantize(Decimal(1), ROUND_DOWN))
    rounded = exact.quantize(Decimal("0.1") if exact >= 10 else Decimal("0.01"), ROUND_HALF_UP)
    return f"{rounded.normalize():f}"


def sizes() -> Rows:
    """Return the models' billions of parameters, by equation 2 of Narayanan et al."""
    rows: Rows = [("model", "layers", "width", "heads", "billions of parameters")]
    for name, each in MODELS.items():
        rows.append((name, str(each.layers), str(each.hidden), str(each.heads), f"{each.parameters / 1e9:.1f}"))
    return rows


def activations() -> Rows:
    """Return Korthikanti's table 2, in units of sbh bytes per layer, for GPT-3 and MT-NLG on 8 tensor ranks."""
    names = ("gpt3-175b", "mt-nlg-530b")
    rows: Rows = [("in sbh bytes", *names)]
    for formula, (tensor, sequence, recompute) in TECHNIQUES.items():
        plan = TrainingPlan(tensor, tensor, sequence_parallel=sequence, recompute=recompute)
        rows.append((formula, *(f"{per_layer(name, plan):.4g}" for name in names)))
    return rows


def per_layer(name: str, plan: TrainingPlan) -> float:
    """Return the bytes that a layer keeps on a rank, in units of s·b·h."""
    shape = MODELS[name]
    kept, _ = memory.per_layer(shape, plan, Numbers(MIXED))
    return kept / (shape.sequence * plan.micro_batch * shape.hidden)


def utilisations() -> Rows:
    """Return MFU and HFU of Korthikanti's table 5, from the step times measured there."""
    rows: Rows = [("model", "ranks", "step, s", "MFU", "HFU by equation 8", "HFU")]
    for name, plan in KORTHIKANTI.items():
        operations = (
            utilisation.model_operations(MODELS[name], plan.sequences),
            utilisation.equation_8(MODELS[name], plan.sequences),
            utilisation.hardware_operations(MODELS[name], plan.sequences, plan.recompute),
        )
        used = (utilisation.utilisation(each, STEP_S[name], plan.ranks, A100) for each in operations)
        rows.append((name, str(plan.ranks), f"{STEP_S[name]:.2f}", *(f"{each:.1%}" for each in used)))
    return rows


def days() -> Rows:
    """Return the days of two trainings, by equation 4 of Narayanan et al. (8TP/(nX): each layer computed again)."""
    rows: Rows = [("model", "tokens", "ranks", "teraFLOP/s of each", "days")]
    for name, tokens, ranks, teraflops in (("gpt3-175b", 300e9, 1024, 140), ("gpt-1t", 450e9, 3072, 163)):
        operations = utilisation.of_parameters(MODELS[name].parameters, tokens, "full")
        seconds = operations / (ranks * teraflops * 1e12)
        rows.append((name, f"{tokens / 1e9:g}·10⁹", str(ranks), str(teraflops), f"{seconds / 86_400:.0f}"))
    return rows


def sent() -> Rows:
    """Return what a rank of Korthikanti's trainings sends in a step; between stages each tensor rank sends its part."""
    rows: Rows = [("model", "tensor, GB", "pipeline, GB")]
    for name, plan in KORTHIKANTI.items():
        found = volumes(MODELS[name], plan)
        rows.append(
            (name, *(f"{found[axis].nbytes / 1e9:.1f}" if axis in found else "0" for axis in ("tensor", "pipeline")))
        )
    return rows


TABLES = {
    "zero": zero,
    "sizes": sizes,
    "activations": activations,
    "utilisations": utilisations,
    "days": days,
    "sent": sent,
}


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


if __name__ == "__main__":
    for name, table in TABLES.items():
        print(f"\n{name}\n\n{markdown(table())}")
