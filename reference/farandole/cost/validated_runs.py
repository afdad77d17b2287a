"""The real runs with which `farandole simulate --validate` compares the simulator: a table, one row a run.

Each method of the simulator has a `Case`: the scenario that runs it, and the same options once for the scenario and
once for the simulator. Each case runs under the conditions that it names:

    even            all ranks compute equally fast, and no link is slowed down
    slow links      --link-mbps 20
    stragglers      the same, and two of four workers are slower all the time, by 1.5 and by 2.5

A case names the calibration that its prediction may use, which is a run of another method (`calibrated.CALIBRATIONS`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from farandole.compression.options import CompressionOptions
from farandole.cost import paced_task
from farandole.cost.choice import ALL_REDUCES, COMPRESSED, GRID, ZERO, Choice
from farandole.model_parallel.schedules import ONE_WAY
from farandole.parameter_server.core.policies import POLICIES

WORKERS = 4
MBPS = 20.0
BATCH = 48  # 12 samples a worker, and 16 of one of three
STEPS = 16
TASK = "farandole.cost.paced_task"
WIDE: dict[str, Any] = {"task": f"{TASK}:wide", "batch": BATCH}
NARROW: dict[str, Any] = {"task": f"{TASK}:narrow", "batch": BATCH}
PIPELINE_STEPS, MICRO_BATCHES, PACE_MS, PIPELINE_BATCH = 8, 8, 6.0, 384
IN_STAGES: dict[str, Any] = {
    "task": f"{TASK}:pieces", "balance": "layers", "micro_batches": MICRO_BATCHES, "pace_ms": PACE_MS,
    "batch": PIPELINE_BATCH,
}  # fmt: skip
BOUNDARY = 4 * paced_task.NARROW * PIPELINE_BATCH // MICRO_BATCHES  # bytes of a micro-batch's outputs
IN_PIPELINE = Choice(
    stages=WORKERS, micro_batches=MICRO_BATCHES, units=paced_task.PIECES, activation=BOUNDARY, sends_block=True
)


@dataclass(frozen=True)
class Condition:
    """The conditions of a run.

    Attributes:
        slow: worker → how many times as long it takes to compute.
        mbps: of each rank's link; None: not slowed down.
    """

    slow: Mapping[int, float] = field(default_factory=dict)
    mbps: float | None = None

    def options(self, first_worker: int) -> dict[str, Any]:
        """Return the scenario's options."""
        slow = [f"rank={first_worker + worker},factor={factor:g}" for worker, factor in self.slow.items()]
        return ({"slow": slow} if slow else {}) | ({"link_mbps": self.mbps} if self.mbps else {})


EVEN, LINKS, STRAGGLERS, FREE_STRAGGLERS = "even", "slow links", "stragglers", "stragglers, free links"
SLOW = {1: 1.5, 3: 2.5}
CONDITIONS: dict[str, Condition] = {
    EVEN: Condition(),
    LINKS: Condition(mbps=MBPS),
    STRAGGLERS: Condition(SLOW, MBPS),
    FREE_STRAGGLERS: Condition(SLOW),
}


@dataclass(frozen=True)
class Case:
    """A run of one method, and its simulation.

    Attributes:
        choice: the simulator's options.
        nbytes: of the parameters.
        first_worker: the rank of worker 0.
        calibration: the name of what is measured before.
        note: what the comparison leaves out, or how the scenario differs; "": nothing.
    """

    method: str
    scenario: str
    options: Mapping[str, Any]
    choice: Choice
    calibration: str
    conditions: tuple[str, ...] = (LINKS, STRAGGLERS)
    nbytes: int = paced_task.nbytes(paced_task.WIDE)
    steps: int = STEPS
    ranks: int = WORKERS
    first_worker: int = 0
    variant: str = ""
    note: str = ""


SERVED: dict[str, Any] = NARROW | {"staleness": 2, "place": f"servers=0,workers=1-{WORKERS}"}

# Simulated methods that have no row, each with the reason.
NOT_COMPARED: dict[str, str] = {}

ENCODING = "the time to encode and decode is left out"


def cases() -> Iterator[Case]:
    """Yield one case for each simulated method, and for variants of it."""
    everywhere = (EVEN, LINKS, STRAGGLERS)
    for sync in POLICIES:
        yield Case(
            sync, "parameter_server",
            SERVED | {"sync": sync}, Choice(staleness=2, enough=(WORKERS - 1) / WORKERS),
            "bsp" if sync == "async" else "async",
            everywhere if sync == "bsp" else (LINKS, STRAGGLERS),
            paced_task.nbytes(paced_task.NARROW), ranks=WORKERS + 1, first_worker=1,
        )  # fmt: skip
    for collective in ALL_REDUCES:
        shared = collective == "hierarchical"
        yield Case(
            collective, "sync_sgd", WIDE | {"collective": collective}, Choice(), "gossip",
            (EVEN, FREE_STRAGGLERS) if shared else everywhere if collective == "ring" else (LINKS, STRAGGLERS),
            note="ranks of one host share memory, which --link-mbps cannot slow down" if shared else "",
        )  # fmt: skip
    for compressor in COMPRESSED:
        given: dict[str, Any] = {"fraction": 0.1} if compressor in ("top-k", "random-k", "dgc") else {}
        options = CompressionOptions(**given)
        yield Case(
            compressor, "compressed_sgd", WIDE | {"compressor": compressor} | given,
            Choice(compression=options, units=paced_task.LAYERS), "ring", note=ENCODING,
        )  # fmt: skip
    yield Case("local-sgd", "local_sgd", WIDE | {"period": 4}, Choice(period=4), "ring", everywhere)
    yield Case("diloco", "diloco", WIDE | {"period": 4}, Choice(period=4), "ring")
    yield Case(
        "streaming-diloco", "diloco", WIDE | {"period": 4, "fragments": 2, "delay": 1},
        Choice(period=4, fragments=2, delay=1), "ring",
    )  # fmt: skip
    yield Case(
        "dynamic-rounds", "dynamic_sync", WIDE, Choice(), "ring", steps=3 * STEPS,
        note="the time of measuring the loss is not counted, as in the metrics of the scenario",
    )  # fmt: skip
    for number, stage in enumerate(ZERO, 1):
        options_of_stage = WIDE | {"stage": number, "optimizer": "sgd"}
        choice = Choice(units=paced_task.LAYERS)
        yield Case(
            stage, "sharded", options_of_stage, choice, "ring", everywhere if number == 3 else (LINKS, STRAGGLERS)
        )
    yield Case(
        ZERO[2], "sharded", options_of_stage | {"prefetch": True}, Choice(units=paced_task.LAYERS, prefetch=True),
        "ring", variant="--prefetch",
    )  # fmt: skip
    yield from _in_stages(everywhere)
    yield Case("gossip", "dpsgd", WIDE, Choice(), "ring", everywhere)
    yield Case("ad-psgd", "ad_psgd", WIDE, Choice(), "ring", everywhere)


def _in_stages(everywhere: tuple[str, ...]) -> Iterator[Case]:
    nbytes = paced_task.nbytes(paced_task.NARROW, paced_task.PIECES)
    for schedule in ONE_WAY:
        calibration = "1f1b" if schedule == "gpipe" else "gpipe"
        yield Case(
            schedule, "pipeline", IN_STAGES | {"schedule": schedule}, IN_PIPELINE, calibration,
            everywhere if schedule == "1f1b" else (LINKS, STRAGGLERS), nbytes, PIPELINE_STEPS,
        )  # fmt: skip
    halves = replace(IN_PIPELINE, stages=2, activation=BOUNDARY / 2)
    yield Case(
        GRID, "hybrid", IN_STAGES | {"pipeline_ranks": 2, "data_ranks": 2}, halves, "gpipe",
        nbytes=nbytes, steps=PIPELINE_STEPS,
        note="the scenario is hybrid, whose passes have a pace, without tensor ranks: one host has no faster links",
    )  # fmt: skip
