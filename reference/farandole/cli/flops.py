"""``farandole flops``: the operations of a large training, how much of the peak they use, and how long they take."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter
from rich.console import Console

from farandole.cli.plan_options import PlanOptions
from farandole.errors import UsageError
from farandole.runtime.files import json_text
from farandole.runtime.numbers import NotNegativeReal, Part, Positive

if TYPE_CHECKING:
    from farandole.collectives.costs import Link
    from farandole.cost.training_plan import TrainingPlan
    from farandole.models.shape import Shape

OF_A_SHAPE = (
    *("batch", "micro_batch", "schedule", "chunks", "sequence_parallel", "zero", "step_s"),
    *("node_gbps", "link_gbps", "latency_us"),
)
OF_A_PEAK = ("step_s", "efficiency", "node_gbps", "link_gbps", "latency_us")
DAY_S = 86_400


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FlopsOptions(PlanOptions):
    """And how fast the ranks are."""

    tokens: Positive | None = None
    """Tokens of the whole training, as 300e9."""

    peak_tflops: Positive | None = None
    """Operations per second of which a rank is capable, in 10¹²; an A100 of 312 in half precision."""

    step_s: Positive | None = None
    """Measured seconds of a step, from which the utilisation follows."""

    efficiency: Part | None = None
    """Share of the peak that a rank reaches while it computes, from which the time of a step follows."""

    node_gbps: Positive | None = None
    """Gbit/s between tensor ranks, each way. [default: their messages take no time]"""

    link_gbps: Positive | None = None
    """Gbit/s between stages and between data ranks. [default: their messages take no time]"""

    latency_us: NotNegativeReal = 0.0
    """Microseconds that any message takes at least."""


def flops(*, options: FlopsOptions | None = None) -> None:
    """Compute the operations of a training step, and the utilisation (MFU, HFU) or the time that follows from them.

    With --peak-tflops and --step-s, of a measured step; with --peak-tflops and --efficiency, of a predicted one.
    """
    from farandole.report import calculator_tables

    options = options or FlopsOptions()
    shape, plan = options.shape(), options.plan()
    _check(options)
    if shape is None:
        options.check_shape(*OF_A_SHAPE)
        found = _of_parameters(options, plan)
    else:
        found = _of_shape(options, shape, plan)
    if options.json:
        print(json_text(found, indent=2))
        return
    Console().print(calculator_tables.flops(options.name, plan, found))


def _check(options: FlopsOptions) -> None:
    """
    Raises:
        UsageError: options do not fit each other.
    """
    given = options.given()
    if options.peak_tflops is None and (beside := [name for name in OF_A_PEAK if name in given]):
        raise UsageError(f"--{beside[0].replace('_', '-')} is for a known peak: add --peak-tflops, as 312 of an A100")
    if options.step_s is not None:
        if beside := [name for name in OF_A_PEAK[1:] if name in given]:
            raise UsageError(f"--step-s is measured, and --{beside[0].replace('_', '-')} predicts: leave out one")
    elif options.peak_tflops is not None and options.efficiency is None:
        raise UsageError("--peak-tflops needs --step-s, the measured time of a step, or --efficiency, as 0.5")


def _of_parameters(options: FlopsOptions, plan: "TrainingPlan") -> dict[str, Any]:
    from farandole.cost import utilisation

    assert options.params is not None
    if options.tokens is None:
        raise UsageError("--params alone says nothing of a step: give --tokens of the whole training, as 300e9")
    model, hardware = (
        utilisation.of_parameters(options.params, options.tokens, each) for each in ("none", options.recompute)
    )
    found: dict[str, Any] = {"parameters": options.params, "tokens": options.tokens}
    found |= {"training": {"model_flops": model, "hardware_flops": hardware}}
    if options.peak_tflops and options.efficiency:
        seconds = hardware / (plan.ranks * options.peak_tflops * 1e12 * options.efficiency)
        found["training"] |= {"days": seconds / DAY_S, "mfu": model / hardware * options.efficiency}
    return found


def _of_shape(options: FlopsOptions, shape: "Shape", plan: "TrainingPlan") -> dict[str, Any]:
    from farandole.cost import utilisation
    from farandole.cost.volumes import volumes

    plan.stages(shape)  # refuses a model that cannot be divided so
    model = utilisation.model_operations(shape, plan.sequences)
    hardware = utilisation.hardware_operations(shape, plan.sequences, plan.recompute)
    tokens = plan.sequences * shape.sequence
    found: dict[str, Any] = {"parameters": shape.parameters}
    found["step"] = {
        "sequences": plan.sequences,
        "tokens": tokens,
        "model_flops": model,
        "hardware_flops": hardware,
        "flops_per_token": model / tokens,
        "six_n": 6 * shape.parameters,
        "attention_share": shape.attention_operations / shape.operations,
    }
    found["sent"] = {axis: asdict(each) for axis, each in volumes(shape, plan).items()}
    step_s = options.step_s
    if options.peak_tflops and options.efficiency:
        speed = options.peak_tflops * 1e12 * options.efficiency
        times = utilisation.step_time(
            shape, plan, speed, _link(options, options.node_gbps), _link(options, options.link_gbps)
        )
        step_s = times.step_s
        found["predicted"] = asdict(times)
    if options.peak_tflops and step_s:
        used = [
            utilisation.utilisation(each, step_s, plan.ranks, options.peak_tflops * 1e12) for each in (model, hardware)
        ]
        if options.step_s and used[1] > 1:
            raise UsageError(
                f"--step-s {step_s:g} would take {used[1]:.3g} times the peak of {plan.ranks} rank(s): "
                "give seconds, and --peak-tflops of one rank"
            )
        found["step"] |= {"step_s": step_s, "mfu": used[0], "hfu": used[1]}
    if options.tokens:
        steps = options.tokens / tokens
        found["training"] = {"tokens": options.tokens, "model_flops": model * steps, "hardware_flops": hardware * steps}
        if step_s:
            found["training"]["days"] = steps * step_s / DAY_S
    return found


def _link(options: FlopsOptions, gbps: float | None) -> "Link | None":
    from farandole.collectives.costs import Link

    if gbps is None and not options.latency_us:
        return None
    return Link(options.latency_us / 1e6, 8e-9 / gbps if gbps else 0.0)
