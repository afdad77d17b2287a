"""``farandole memory``: what each rank of a large training would hold, by component."""

from dataclasses import asdict, dataclass
from typing import Literal

from cyclopts import Parameter
from rich.console import Console

from farandole.cli.plan_options import Flag, PlanOptions
from farandole.runtime.files import json_text

OF_A_SHAPE = ("batch", "micro_batch", "schedule", "chunks", "sequence_parallel", "recompute", "flash", "no_dropout")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MemoryOptions(PlanOptions):
    """And in which numbers."""

    optimizer: Literal["sgd", "momentum", "adam"] = "adam"
    """Plain, with momentum, or Adam; they keep 0, 1 and 2 numbers per parameter."""

    precision: Literal["mixed", "float32"] = "mixed"
    """Mixed: 2 bytes for parameters, gradients and activations, and a float32 copy with the optimizer."""

    float32_gradients: Flag = False
    """Gradients are added up in 4 bytes, in mixed precision too (Megatron-LM)."""

    flash: Flag = False
    """Fused attention, which keeps no square of positions."""

    no_dropout: Flag = False
    """The model has no dropout, so it keeps no masks."""


def memory(*, options: MemoryOptions | None = None) -> None:
    """Compute what each rank of a training would hold: parameters, gradients, optimizer state and activations.

    GB are 10⁹ bytes. farandole memory --params 70e9 --ranks 512 --tensor 8 --pipeline 4 --zero 1 knows no activations;
    --model, or --layers and --hidden in place of --params do.
    """
    from farandole.cost import memory as calculator
    from farandole.models.training_state import BytesPerParameter
    from farandole.report import calculator_tables

    options = options or MemoryOptions()
    mixed = options.precision == "mixed"
    each = BytesPerParameter.of(options.optimizer, mixed=mixed, float32_gradients=options.float32_gradients)
    shape, plan = options.shape(), options.plan()
    if shape is None:
        options.check_shape(*OF_A_SHAPE)
        assert options.params is not None
        stages = [calculator.of_parameters(options.params, plan, each)]
        parameters = options.params
    else:
        numbers = calculator.Numbers(each, 2 if mixed else 4, options.flash, not options.no_dropout)
        stages = calculator.by_stage(shape, plan, numbers)
        parameters = shape.parameters
    if options.json:
        found = [asdict(stage) | {"total": stage.total} for stage in stages]
        print(json_text({"parameters": parameters, "grid": calculator_tables.grid(plan), "stages": found}, indent=2))
        return
    Console().print(calculator_tables.memory(options.name, parameters, plan, stages))
