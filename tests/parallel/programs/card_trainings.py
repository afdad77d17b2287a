"""Trainings in one launch: on the card for tests, on the CPU, and with harmful changes of how the package copies.

A change is noticed if the run fails, or ends with other parameters than the run without it. A card's kernels and copies
do not wait for each other as a CPU's do, so each of these works on a CPU.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from farandole import Run
from farandole.model_parallel.context import exchange
from farandole.model_parallel.tensor import exchange as tensor_exchange
from farandole.runtime.buffers import WHOLE, FlatBuffers
from farandole.runtime.copy_stream import CopyStream
from farandole.runtime.devices import empty_on_host
from farandole.runtime.world import World

LANGUAGE = {"hidden": 16, "depth": 1, "batch": 4}
# A scenario, and how its runs differ. Each has its own way to the card and back. The parameter server is the last one:
# where ranks outlive each other, the launcher ignores failures after its end.
RUNS: dict[str, dict[str, Any]] = {
    "sync_sgd": {},
    "sync_sgd overlapped": {"overlap": True, "bucket_kb": 16},
    "local_sgd": {"period": 2},
    "push_sum": {},
    "compressed_sgd": {"compressor": "powersgd"},
    "sharded": {"stage": 3},
    "sharded offloaded": {"stage": 2, "offload": "host"},
    "pipeline": {"balance": "layers"},
    "hybrid": {"pipeline_ranks": 1, "shard_optimizer": True},
    "context_parallel": LANGUAGE,
    "expert_parallel": LANGUAGE,
    "tensor_split": {},
    "search": {"trials": 4},
    "parameter_server": {"sync": "bsp", "place": "servers=0,workers=1"},
}


def to_host_without_waiting(self: FlatBuffers, place: slice = WHOLE) -> None:
    self.collect()
    assert self._staged is not None
    self._staged[place].copy_(self._gradients[place], non_blocking=True)


def values_from_host_without_waiting(self: FlatBuffers, place: slice = WHOLE) -> None:
    assert self._staged_values is not None
    self.values[place].copy_(self._staged_values[place], non_blocking=True)
    self._staged_values.zero_()  # as the next message would


def nothing(*_: Any) -> None:
    pass


def on_host_without_waiting(tensor: Tensor) -> Tensor:
    return empty_on_host(tensor.shape, tensor.dtype, tensor.device).copy_(tensor.detach(), non_blocking=True)


def on_host_by_no_copy(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous()


def begun_and_done(self: CopyStream, target: Tensor, source: Tensor) -> torch.Event:
    with self._stream:
        before = self._stream.record_event()
        target.copy_(source, non_blocking=True)
    return before


# The change → its run, the place, and the replacement.
HARMFUL: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "gradients to the host without waiting": ("sync_sgd", FlatBuffers, "to_host", to_host_without_waiting),
    "gradients stay on the card": ("sync_sgd", FlatBuffers, "to_host", nothing),
    "sums stay on the host": ("sync_sgd", FlatBuffers, "from_host", nothing),
    "parameters stay on the card": ("push_sum", FlatBuffers, "values_to_host", nothing),
    "parameters stay on the host": ("push_sum", FlatBuffers, "values_from_host", nothing),
    "parameters from a buffer that is used again": (
        "push_sum", FlatBuffers, "values_from_host", values_from_host_without_waiting),
    "a bucket's copy does not wait for backward": ("sync_sgd overlapped", CopyStream, "follow", nothing),
    "a bucket is used before its copy is done": ("sync_sgd overlapped", CopyStream, "begin", begun_and_done),
    "activations to the host without waiting": ("context_parallel", exchange, "on_host", on_host_without_waiting),
    "the card's memory for numpy": ("context_parallel", exchange, "on_host", on_host_by_no_copy),
}  # fmt: skip
HARMLESS = {
    "memory of the host that is not pinned": (
        "tensor_split", tensor_exchange, "empty_on_host", lambda shape, dtype, _: torch.empty(shape, dtype=dtype)),
}  # fmt: skip


class Noticed(Exception):
    """A rank would have ended the job."""


def outcome(name: str, folder: Path, device: str = "auto") -> Any:
    """Run the scenario; return its parameters' digests and losses, or how it failed."""
    scenario = import_module(f"farandole.scenarios.{name.partition(' ')[0]}")
    options = RUNS[name] | {"steps": 4, "device": device, "json": True, "wait_timeout": 60.0, "out": folder}
    try:
        scenario.main(scenario.Config(**options))
    except Exception as error:  # `Noticed`, or a loss that is not finite
        return str(error).strip().splitlines()[-1]
    run = Run(folder)
    assert (run.summary.device == "cpu") == (device == "cpu")
    return {"parameters": run.summary.params_sha256, "losses": [line["loss"] for line in run.metrics]}


def main(folder: Path) -> None:
    changed = {}

    def end(self: World, failure: Any) -> None:
        raise Noticed(failure.text)

    with mock.patch.object(World, "_end", end):
        for change, (name, place, attribute, instead) in (HARMFUL | HARMLESS).items():
            with mock.patch.object(place, attribute, instead):
                changed[change] = outcome(name, folder / change)
        on_cpu = {name: outcome(name, folder / f"{name} on the CPU", "cpu") for name in RUNS}
        right = {name: outcome(name, folder / name) for name in RUNS}
    ends = {change: "same" if its == right[(HARMFUL | HARMLESS)[change][0]] else its for change, its in changed.items()}
    harmful, harmless = ({change: ends[change] for change in part} for part in (HARMFUL, HARMLESS))
    print(json.dumps({"right": right, "on the CPU": on_cpu, "harmful": harmful, "harmless": harmless}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
