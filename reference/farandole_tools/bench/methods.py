"""``farandole bench methods``: 38 ways to train the same model, on one axis, under three conditions.

- fast: as this machine is; messages go through memory.
- 100 Mbit/s: each rank has a link of that speed. What sends no messages of ours is left out.
- straggler: the last rank computes ten times more slowly.

Measured is the time until the training loss is `TARGET`, so that both count, the steps that it takes and the time of
one. The peer is synchronous SGD over a ring: a ratio above 1 means that the method is there sooner. All train the same
model from the same seed, with the same batches of all workers together; who has a server has one worker less. The
learning rate is the same for all but Downpour, whose Adagrad has a scale of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from farandole.errors import LaunchError, UsageError
from farandole.parameter_server.policies import POLICIES
from farandole.runtime import guard
from farandole.runtime.launcher import launch
from farandole_tools.bench.dynamic import time_to

ROUNDS = 3
TARGET = 0.5
PEER = "ring"
RECIPE: dict[str, Any] = {"data": "mnist5k", "hidden": 64, "batch": 256, "lr": 0.2, "steps": 160}
SERVED: dict[str, Any] = {"place": "servers=0,workers=1-3"}  # manager and server are one rank: three workers remain
PUSH_SUM: dict[str, Any] = {"method": "push-sum", "topology": "one-peer-exponential"}
CONDITIONS = ("fast", "100 Mbit/s", "straggler")


@dataclass(frozen=True)
class Method:
    """A scenario with options; `room` is where to read it."""

    name: str
    scenario: str
    room: str
    options: dict[str, Any] = field(default_factory=dict)


METHODS = (
    Method(PEER, "sync_sgd", "data_parallel"),
    Method("ring, overlapped", "sync_sgd", "data_parallel", {"overlap": True, "bucket_kb": 64}),
    Method("central aggregator", "sync_sgd", "data_parallel", {"collective": "central"}),
    Method("halving-doubling", "sync_sgd", "data_parallel", {"collective": "halving-doubling"}),
    Method("shared memory", "sync_sgd", "data_parallel", {"collective": "window"}),
    Method("MPI all-reduce", "sync_sgd", "data_parallel", {"collective": "mpi"}),
    Method("Horovod", "horovod_sgd", "data_parallel"),
    Method("torch DDP", "ddp_sgd", "data_parallel"),
    Method("ring, in bfloat16", "sync_sgd", "data_parallel", {"precision": "bfloat16"}),
    Method("local SGD, 8 steps", "local_sgd", "data_parallel", {"period": 8}),
    Method("agnostic", "agnostic_sgd", "data_parallel", {"local_batch": 16}),
    Method("dynamic rounds", "dynamic_sync", "data_parallel"),
    Method("float16", "compressed_sgd", "compression", {"compressor": "float16"}),
    Method("QSGD", "compressed_sgd", "compression", {"compressor": "qsgd"}),
    Method("sign, feedback", "compressed_sgd", "compression", {"compressor": "sign"}),
    Method("top-k, 1 %", "compressed_sgd", "compression", {"compressor": "top-k"}),
    Method("DGC, 1 %", "compressed_sgd", "compression", {"compressor": "dgc"}),
    Method("PowerSGD, rank 2", "compressed_sgd", "compression", {"compressor": "powersgd"}),
    Method("D-PSGD, ring", "gossip_sgd", "decentralised"),
    Method("push-sum, one peer", "gossip_sgd", "decentralised", PUSH_SUM),
    Method("AD-PSGD", "gossip_sgd", "decentralised", {"method": "ad-psgd"}),
    Method("central directions", "gossip_sgd", "decentralised", {"method": "central-directions"}),
    *(Method(f"server, {sync}", "parameter_server", "parameter_server", SERVED | {"sync": sync})
      for sync in POLICIES),
    Method("server, sign", "parameter_server", "parameter_server", SERVED | {"compressor": "sign"}),
    Method("server, in a window", "parameter_server", "parameter_server", SERVED | {"transport": "window"}),
    Method("server, EASGD", "parameter_server", "parameter_server", SERVED | {"update": "elastic"}),
    Method("Downpour", "downpour", "parameter_server", SERVED | {"lr": 0.02}),
    Method("layer split", "layer_split", "model_parallel"),
    Method("pipeline, 1F1B", "pipeline", "model_parallel", {"micro_batches": 8}),
    Method("two pipelines", "hybrid", "model_parallel", {"pipeline_ranks": 2}),
    Method("tensor split", "tensor_split", "model_parallel"),
    Method("sharded optimizer", "hybrid", "model_parallel", {"pipeline_ranks": 1, "shard_optimizer": True}),
)  # fmt: skip


def conditions(ranks: int) -> dict[str, dict[str, Any]]:
    """What each adds to the options."""
    disturbances: tuple[dict[str, Any], ...] = ({}, {"link_mbps": 100}, {"slow": f"rank={ranks - 1},factor=10"})
    return dict(zip(CONDITIONS, disturbances, strict=True))


def rows(ranks: int) -> list[dict[str, Any]]:
    """A row for each condition and method that runs under it; `median_s` is None where the loss is never reached."""
    ranks = 4  # which the places of servers and workers are for
    return [row for name, disturbance in conditions(ranks).items() for row in _under(name, disturbance, ranks)]


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """Who does not come to the loss."""
    never = [row["name"] for row in rows if row["median_s"] is None]
    return [
        f"to a loss of {TARGET}",
        *([f"not there after {RECIPE['steps']} steps: {'; '.join(never)}"] if never else []),
    ]


def _under(condition: str, disturbance: dict[str, Any], ranks: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for method in METHODS:
        try:
            seconds, last = _measured(method, disturbance, ranks)
        except UsageError:
            if method.name == PEER:
                raise
            continue  # it cannot have this condition: messages that are not ours have no slow link
        there = [each for each in seconds if each is not None]
        own = median(there) if len(there) == len(seconds) else None
        found.append({
            "name": f"{condition}: {method.name}", "size": last["bytes"], "ranks": ranks, "median_s": own,
            "wall_s": last["wall_s"], "test_accuracy": last["test_accuracy"], "peers": {},
        })  # fmt: skip
    [peer_s] = [row["median_s"] for row in found if row["name"] == f"{condition}: {PEER}"]
    if peer_s is None:
        raise LaunchError(f"synchronous SGD does not come to a loss of {TARGET} in {RECIPE['steps']} steps")
    for row in found:
        if row["median_s"] is not None:
            row["peers"] = {PEER: {"median_s": peer_s, "ratio": peer_s / row["median_s"]}}
    return found


def _measured(method: Method, disturbance: dict[str, Any], ranks: int) -> tuple[list[float | None], dict[str, Any]]:
    """Seconds to the loss in each round, and of the last one what else there is to say; `bytes` of who sent most."""
    seconds: list[float | None] = []
    with guard.temporary_folder("farandole-bench-") as folder:
        for number in range(ROUNDS):
            options = RECIPE | method.options | disturbance
            run = launch(method.scenario, ranks, **options, out=folder / str(number))
            seconds.append(time_to(TARGET, run))
        summary = run.summary
    last = {"wall_s": summary.wall_s, "test_accuracy": summary.test_accuracy, "bytes": max(summary.bytes_sent or [0])}
    return seconds, last
