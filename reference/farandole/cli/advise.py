"""``farandole advise``: which mode, how many devices and of which kind, predicted before anything is trained."""

import tempfile
from dataclasses import fields
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from farandole.errors import UsageError
from farandole.runtime.numbers import AtLeastOne, Positive

Ranks = Annotated[AtLeastOne | None, Parameter(alias="-n")]
Texts = Annotated[tuple[str, ...], Parameter(n_tokens=1, negative="")]


def advise(
    *,
    device: Texts = (),
    ranks: Ranks = None,
    data: Literal["digits", "mnist5k", "pydoc"] = "digits",
    model: Literal["mlp", "cnn", "transformer"] = "mlp",
    hidden: AtLeastOne = 128,
    depth: AtLeastOne = 2,
    batch: AtLeastOne = 64,
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd",
    target_ms: Positive | None = None,
    flops: Positive | None = None,
    memory_mb: Positive | None = None,
    link_mbps: Positive | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Advise on mode, number and kind of devices: memory and time of a step in each, ranked.

    Without --device the ranks of this machine are started and measured, and every mode of exactly so many is ranked.

    Args:
        device: a kind of device, as name=A,memory-gb=80,tflops=300,count=8, perhaps with gbps=100 and latency-us=10 (of
            its link) and overhead-us=10 (a layer's forward and backward pass at least). May be given again.
        ranks: measure so many ranks of this machine. [default: 4]
        data: what is learned, which decides the shapes.
        model: what learns.
        hidden: width of the hidden layers.
        depth: hidden layers, convolutions or blocks.
        batch: samples per step, over all devices together.
        optimizer: plain, with momentum, or Adam: it keeps no, one or two numbers for each parameter.
        target_ms: what a step may take: the smallest number of each kind that reaches it.
        flops: operations a second of each rank. [default: measured]
        memory_mb: memory of each rank. [default: an equal part of what is free]
        link_mbps: connect the ranks by so many Mbit/s.
        json: print the predictions as JSON, and nothing else.
    """
    training = {"data": data, "model": model, "hidden": hidden, "depth": depth, "batch": batch, "optimizer": optimizer}
    here = {"flops": flops, "memory_mb": memory_mb, "link_mbps": link_mbps}
    if device:
        given = [
            f"--{name.replace('_', '-')}" for name, value in (here | {"ranks": ranks}).items() if value is not None
        ]
        if given:
            raise UsageError(f"{given[0]} is for the ranks of this machine, and --device for others: leave out one")
        _of_kinds(device, training, target_ms, json)
    else:
        _of_this_machine(ranks or 4, training, here, target_ms, json)


def _of_kinds(device: tuple[str, ...], training: dict[str, Any], target_ms: float | None, as_json: bool) -> None:
    from farandole.cost.advice import Kind, advised, verdicts
    from farandole.cost.layer_costs import of_model
    from farandole.model_parallel.options import AdaptiveOptions
    from farandole.models import choices
    from farandole.report import modes_table

    kinds = [Kind.parse(text) for text in device]
    if len({kind.name for kind in kinds}) < len(kinds):
        raise UsageError("two --device have one name: give each its own")
    options = AdaptiveOptions(**training)
    choices.check(options)
    rows = advised(of_model(options), kinds, options.batch, options.optimizer)
    said = verdicts(rows, target_ms / 1e3 if target_ms else None)
    if as_json:
        found = [{"device": row.kind, "count": row.count, "mode": row.mode and row.mode.to_dict()} for row in rows]
        print(dumps({"rows": found, "verdicts": said}, indent=2))
        return
    console = Console()
    console.print(modes_table.advice(rows))
    for sentence in said:
        console.print(sentence, highlight=False, markup=False)


def _of_this_machine(
    ranks: int, training: dict[str, Any], here: dict[str, Any], target_ms: float | None, as_json: bool
) -> None:
    from farandole.collectives.costs import Link
    from farandole.cost.modes import Device, Mode
    from farandole.report import modes_table
    from farandole.runtime.launcher import launch

    with tempfile.TemporaryDirectory(prefix="farandole-") as folder:
        given = {name: value for name, value in here.items() if value is not None}
        run = launch("adaptive", ranks, steps=1, **training, **given, out=Path(folder) / "run")
        found = run.modes
    if as_json:
        print(dumps(found, indent=2))
        return
    names = {field.name for field in fields(Mode)}
    modes = [Mode(**{name: value for name, value in mode.items() if name in names}) for mode in found["modes"]]
    devices = [
        Device(each["flops"], each["memory"], Link(each["alpha_s"], each["beta_s"]), each["overhead_s"])
        for each in found["devices"]
    ]
    console = Console()
    console.print(modes_table.modes(modes, devices))
    best = modes[0]
    console.print(f"take {best.name} ({best.grid}): {1e3 * best.step_s:.3g} ms a step", highlight=False)
    if target_ms:
        verdict = "reach" if 1e3 * best.step_s <= target_ms else "do not reach"
        console.print(f"{ranks} ranks {verdict} {target_ms:g} ms a step", highlight=False)
