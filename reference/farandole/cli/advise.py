"""``farandole advise``: the mode, number and kind of devices, predicted before a training starts."""

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
    """Recommend the mode, number and kind of devices, ranked by the predicted memory and time of a step.

    Without --device, the ranks of this machine are started and measured, and every mode of exactly that many ranks is
    ranked.

    Args:
        device: a kind of device, as name=A,memory-gb=80,tflops=300,count=8; optional are gbps=100 and latency-us=10 (of
            its link) and overhead-us=10 (the minimum for a layer's forward and backward pass). May be given again.
        ranks: number of ranks of this machine to measure. [default: 4]
        data: the data set; it decides the shapes.
        model: the model.
        hidden: width of the hidden layers.
        depth: number of hidden layers, convolutions or blocks.
        batch: samples per step, over all devices together.
        optimizer: plain, with momentum, or Adam; they keep 0, 1 and 2 numbers per parameter.
        target_ms: time limit for a step; finds the smallest number of each kind that meets it.
        flops: operations per second of each rank. [default: measured]
        memory_mb: memory of each rank. [default: an equal part of the free memory]
        link_mbps: speed of the links between the ranks, in Mbit/s.
        json: print only the predictions, as JSON.
    """
    training = {"data": data, "model": model, "hidden": hidden, "depth": depth, "batch": batch, "optimizer": optimizer}
    here = {"flops": flops, "memory_mb": memory_mb, "link_mbps": link_mbps}
    if device:
        given = [
            f"--{name.replace('_', '-')}" for name, value in (here | {"ranks": ranks}).items() if value is not None
        ]
        if given:
            raise UsageError(f"{given[0]} is for the ranks of this machine, --device for other devices: leave out one")
        _of_kinds(device, training, target_ms, json)
    else:
        _of_this_machine(ranks or 4, training, here, target_ms, json)


def _of_kinds(device: tuple[str, ...], training: dict[str, Any], target_ms: float | None, as_json: bool) -> None:
    from farandole import tasks
    from farandole.cost.advice import Kind, advised, verdicts
    from farandole.cost.layer_costs import of_model
    from farandole.model_parallel.options import AdaptiveOptions
    from farandole.report import modes_table

    kinds = [Kind.parse(text) for text in device]
    if len({kind.name for kind in kinds}) < len(kinds):
        raise UsageError("two --device have the same name: give each a different one")
    options = AdaptiveOptions(**training)
    rows = advised(of_model(tasks.built_in(options)), kinds, options.batch, options.optimizer)
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
    from farandole.launching import launch
    from farandole.report import modes_table

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
    console.print(f"choose {best.name} ({best.grid}): {1e3 * best.step_s:.3g} ms per step", highlight=False)
    if target_ms:
        verdict = "reach" if 1e3 * best.step_s <= target_ms else "do not reach"
        console.print(f"{ranks} ranks {verdict} {target_ms:g} ms per step", highlight=False)
