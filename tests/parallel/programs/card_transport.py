"""`--card-transport direct` on the card for tests, whose memory MPI is given as a CUDA-aware MPI would read it.

Every rank must notice a harmful change, or the others would wait for it: so their number is a power of two, for which
`doubling` is the same on all.

The MPI here reads only the host's memory. So it is given the view of the card's memory that kernels have; the card
refuses it while a kernel or a copy still uses that memory. Everything on this side of MPI is what runs on a real card.
"""

import json
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from card_trainings import Noticed
from torch import Tensor

from farandole import Run
from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.executor import run
from farandole.collectives.schedules import SCHEDULES
from farandole.data_parallel import overlapped
from farandole.errors import UsageError
from farandole.runtime import card_vector, transport
from farandole.runtime.card_vector import CardVector
from farandole.runtime.copy_stream import GradientCopies
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.scenarios.sync_sgd import IN_HOST_MEMORY

BUCKETS = {"overlap": True, "bucket_kb": 16}
RUNS: dict[str, dict[str, Any]] = {
    "ring": {},
    "mpi": {"collective": "mpi"},
    "halving-doubling": {"collective": "halving-doubling", "optimizer": "adam", "lr": 0.003},
    "ring, overlapped": BUCKETS,
    "doubling, overlapped": BUCKETS | {"collective": "doubling"},  # ends with a sum
    "mpi, overlapped": BUCKETS | {"collective": "mpi"},
    "float16": {"precision": "float16"},
    "random factors": {"random_factors": 0.1},
}


def nothing(*_: Any) -> None:
    pass


# The change → its run, the place, and the replacement.
HARMFUL: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "MPI reads before kernels have ended": ("ring", card_vector.devices, "finish", nothing),
    "a bucket is sent before backward has computed it": ("ring, overlapped", GradientCopies, "begin_to_host", nothing),
    "an update before the sums": ("doubling, overlapped", GradientCopies, "begin_from_host", nothing),
}


class AtOnce:
    """Replaces the reducing thread: a bucket is sent as soon as it is submitted, on all ranks."""

    def __init__(self, *_: Any) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*arguments))
        return done

    def shutdown(self) -> None:
        pass


of_torch = Tensor.__dlpack__


def as_mpi_sees_it(self: Tensor, **wanted: Any) -> Any:
    seen = self if self.device.type == "cpu" else torch.get_device_module(self.device).for_library(self)
    return of_torch(seen, **wanted)


def outcome(name: str, folder: Path, **options: Any) -> Any:
    """Run sync_sgd; return its record and its parameters' digests, or how it failed."""
    scenario = import_module("farandole.scenarios.sync_sgd")
    given = RUNS[name] | options | {"steps": 4, "device": "auto", "share_cards": True, "json": True, "out": folder}
    try:
        scenario.main(scenario.Config(**given))
    except (Noticed, UsageError, RuntimeError) as error:
        return str(error)
    found = Run(folder)
    return {
        "parameters": found.summary.params_sha256,
        "losses": [line["loss"] for line in found.metrics],
        "bytes": found.summary.bytes_sent,
        "transports": [place["transport"] for place in found.summary.places],
    }


def schedules_run_on_the_card() -> list[str]:
    """Carry out each schedule on vectors on the card, and on the host; return the names of those that were equal."""
    right = []
    with World.start(RunOptions(device="auto", share_cards=True)) as world:
        for dtype in (np.float32, np.float16):
            for name in [*SCHEDULES, "segmented-ring", "double-binary-tree"]:
                values = np.random.default_rng(world.rank).standard_normal(11 * world.size).astype(dtype)
                on_card = CardVector(torch.from_numpy(values).to(world.device))
                for vector in (values, on_card):
                    if name in SCHEDULES:
                        run(SCHEDULES[name][0], world.comm, vector)  # type: ignore[arg-type]
                    else:
                        ALL_REDUCES[name](world.comm, vector)  # type: ignore[arg-type]
                if np.array_equal(on_card.tensor.cpu().numpy(), values):
                    right.append(f"{name} {dtype.__name__}")
    return right


def traffic() -> int:
    """Return the bytes that have left the card for the host so far."""
    found: int = torch.get_device_module("card").counts()["bytes_out"]
    return found


def main(folder: Path) -> None:
    def end(self: World, failure: Any) -> None:
        raise Noticed(failure.text)

    refused = outcome("ring", folder / "not aware", card_transport="direct")
    with (
        mock.patch.object(World, "_end", end),
        mock.patch.object(Tensor, "__dlpack__", as_mpi_sees_it),
        mock.patch.object(Tensor, "__dlpack_device__", return_value=(1, 0)),
        mock.patch.object(transport, "mpi_reads", lambda kind: kind == "card"),
    ):
        schedules = schedules_run_on_the_card()
        answer: dict[str, Any] = {"refused": refused, "schedules": schedules, "harmful": {}, "left the card": {}}
        for change, (name, place, attribute, instead) in HARMFUL.items():
            at_once = mock.patch.object(overlapped, "ThreadPoolExecutor", AtOnce)
            with mock.patch.object(place, attribute, instead), at_once:
                answer["harmful"][change] = outcome(name, folder / change, card_transport="direct")
        for wanted in ("staged", "direct"):
            before = traffic()
            answer[wanted] = {name: outcome(name, folder / f"{name} {wanted}", card_transport=wanted) for name in RUNS}
            answer["left the card"][wanted] = traffic() - before
        answer["auto"] = outcome("ring", folder / "auto", card_transport="auto")
        with redirect_stderr(StringIO()) as notes:
            answer["in host memory"] = {
                name: outcome("ring", folder / f"{name} auto", card_transport="auto", collective=name)
                for name in IN_HOST_MEMORY
            }
        answer["notes"] = notes.getvalue().splitlines()
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
