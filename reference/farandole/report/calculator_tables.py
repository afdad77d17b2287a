"""Terminal tables of ``farandole memory`` and ``farandole flops``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from farandole.cost.memory import RankMemory
from farandole.cost.training_plan import TrainingPlan

COMPONENTS = ("parameters", "gradients", "optimizer_state", "gathered", "activations", "total")
UNKNOWN = "not known"


def grid(plan: TrainingPlan) -> dict[str, int]:
    """Return the number of ranks on each axis."""
    return {"data": plan.data, "context": plan.context, "pipeline": plan.pipeline, "tensor": plan.tensor}


def memory(name: str, parameters: float, plan: TrainingPlan, stages: Sequence[RankMemory]) -> Group:
    """Return a row per component: of a rank of the fullest stage, and of the last one if that is another."""
    fullest = max(range(len(stages)), key=lambda stage: stages[stage].total)
    shown = sorted({fullest, len(stages) - 1})
    headings = [f"GB, stage {stage}" if len(stages) > 1 else "GB per rank" for stage in shown]
    table = _table("component", *headings)
    for component in COMPONENTS:
        values = [getattr(stages[stage], component) for stage in shown]
        if component != "gathered" or any(values):
            table.add_row(
                component.replace("_", " "), *(UNKNOWN if value is None else _gigabytes(value) for value in values)
            )
    return _titled(name, parameters, plan, table)


def flops(name: str, plan: TrainingPlan, found: Mapping[str, Any]) -> Group:
    """Return a row per figure."""
    table = _table("figure", "value")
    if step := found.get("step"):
        sequences = f"{step['sequences']:,} sequence{'s' * (step['sequences'] > 1)}"
        table.add_row("step", f"{sequences}, {step['tokens']:,} tokens")
        table.add_row("model FLOPs per step", f"{step['model_flops']:.4g}")
        table.add_row("hardware FLOPs per step", f"{step['hardware_flops']:.4g}")
        table.add_row(
            "FLOPs per token", f"{step['flops_per_token']:.4g}, {step['flops_per_token'] / step['six_n']:.3f} × 6N"
        )
        table.add_row("of which attention's square", f"{step['attention_share']:.1%}")
    for axis, volume in found.get("sent", {}).items():
        table.add_row(
            f"a rank sends, {axis}", f"{_gigabytes(volume['nbytes'])} GB in {volume['messages']:,.0f} messages"
        )
    for part, seconds in found.get("predicted", {}).items():
        table.add_row(part.removesuffix("_s"), f"{seconds:.3g} s")
    if step and "mfu" in step:
        table.add_row("time of a step", f"{step['step_s']:.4g} s")
        table.add_row("MFU, HFU", f"{step['mfu']:.1%}, {step['hfu']:.1%}")
    if training := found.get("training"):
        table.add_row("model FLOPs of the training", f"{training['model_flops']:.4g}")
        table.add_row("hardware FLOPs of the training", f"{training['hardware_flops']:.4g}")
        if "days" in training:
            table.add_row("days", f"{training['days']:,.3g}")
    return _titled(name, found["parameters"], plan, table)


def _titled(name: str, parameters: float, plan: TrainingPlan, table: Table) -> Group:
    """Return the table below a line of its own: as a title it would be wrapped to the width of the table."""
    return Group(Text(f"{name}{parameters:,.0f} parameters, {_described(plan)}"), table)


def _table(*headings: str) -> Table:
    first, *others = headings
    columns = (Column(each, justify="right", no_wrap=True) for each in others)
    return Table(Column(first, no_wrap=True), *columns)


def _described(plan: TrainingPlan) -> str:
    axes = " × ".join(f"{axis} {length}" for axis, length in grid(plan).items() if length > 1)
    return f"{plan.ranks:,} rank{'s' * (plan.ranks > 1)}" + (f" = {axes}" if axes else "")


def _gigabytes(nbytes: float) -> str:
    return f"{nbytes / 1e9:,.2f}" if nbytes < 1e11 else f"{nbytes / 1e9:,.0f}"
