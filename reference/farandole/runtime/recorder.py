"""Writing the record: every rank measures, rank 0 writes.

The clock runs from `start` to `stop`: set-up, data loading and evaluation are not part of
`wall_s`, and what is sent outside it is not part of `bytes_sent`.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path
from typing import IO

import numpy as np
import torch
from mpi4py import MPI

import farandole
from farandole.errors import UsageError
from farandole.runtime import devices, trace
from farandole.runtime.clock import offset_to_rank_0
from farandole.runtime.communicator import gather_text
from farandole.runtime.options import RunOptions
from farandole.runtime.record import Summary, new_folder
from farandole.runtime.world import World


def versions() -> dict[str, str]:
    """What computes and communicates here."""
    found = {
        "farandole": farandole.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "mpi": MPI.Get_library_version().split(",")[0].strip(),
        "mpi4py": metadata.version("mpi4py"),
    }
    with suppress(metadata.PackageNotFoundError):
        found["horovod"] = metadata.version("horovod")
    return found


class Recorder:
    """One run's record in the making. Every method is called by all ranks.

    Raises:
        UsageError: the folder asked for holds something already, or cannot be written.
    """

    def __init__(self, world: World, scenario: str, options: RunOptions) -> None:
        self.world = world
        self.scenario = scenario
        self.options = options
        self.offset = offset_to_rank_0(world.control)
        self.folder: Path | None = None
        self._metrics: IO[str] | None = None
        self._started = self._wall_s = 0.0
        self._counted_before = (0, 0)
        if world.rank == 0:
            self.folder = new_folder(scenario, options.out)
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"--out {self.folder} cannot be written ({error.strerror}): give another") from error
            config = {field.name: getattr(options, field.name) for field in fields(options)}
            (self.folder / "config.json").write_text(json.dumps(config, indent=2, default=str))
            self._metrics = (self.folder / "metrics.jsonl").open("w")

    def start(self) -> None:
        """The first step begins on all ranks."""
        self.world.control.Barrier()
        self._counted_before = (self.world.comm.bytes_sent, self.world.comm.messages_sent)
        self._started = time.perf_counter()

    def log(self, **values: float) -> None:
        """Append one line to metrics.jsonl."""
        if self._metrics:
            self._metrics.write(json.dumps(values) + "\n")
            self._metrics.flush()

    @property
    def shard_folder(self) -> Path | None:
        """Where rank 0 may keep the run's shards: beside its record, which all hosts of a cluster can read."""
        return self.folder / "shards" if self.folder else None

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._started

    def stop(self) -> None:
        """The last step has ended on this rank."""
        self._wall_s = self.elapsed_s

    def finish(
        self,
        *,
        steps: int,
        samples: int,
        final_loss: float | None,
        test_accuracy: float | None,
        params_sha256: str,
        bytes_are_counted: bool = True,
        staleness: dict[str, int] | None = None,
        lead: dict[str, int] | None = None,
        cleaned: dict[str, int] | None = None,
        roles: Sequence[str] = (),
    ) -> Summary | None:
        """Bring all ranks' measurements together and write summary.json and trace.json.

        Args:
            bytes_are_counted: False where a library communicates past `world.comm`.
            roles: what each rank is, where they differ.

        Returns:
            The summary on rank 0, None elsewhere.
        """
        world = self.world
        sent = (world.comm.bytes_sent - self._counted_before[0], world.comm.messages_sent - self._counted_before[1])
        own = {"sha256": params_sha256, "wall_s": self._wall_s, "bytes": sent[0], "messages": sent[1]}
        texts = gather_text(world.control, json.dumps(own))
        shifted = [replace(s, start=s.start + self.offset, end=s.end + self.offset) for s in world.trace.spans]
        traces = gather_text(world.control, trace.to_json(shifted))
        if self.folder is None or self._metrics is None:
            return None
        self._metrics.close()
        ranks = [json.loads(text) for text in texts]
        spans = trace.split_waits(_joined(traces))
        (self.folder / "trace.json").write_text(json.dumps(trace.chrome_trace(spans, world.size, roles)))
        seconds = trace.seconds_by_category(spans, world.size)
        wall_s = max(rank["wall_s"] for rank in ranks)
        summary = Summary(
            scenario=self.scenario,
            ranks=world.size,
            seed=self.options.seed,
            device=devices.describe(world.device),
            wall_s=wall_s,
            steps=steps,
            samples_per_s=samples / wall_s if wall_s else 0.0,
            final_loss=final_loss,
            test_accuracy=test_accuracy,
            bytes_sent=[rank["bytes"] for rank in ranks] if bytes_are_counted else None,
            messages_sent=[rank["messages"] for rank in ranks] if bytes_are_counted else None,
            compute_s=seconds["compute"],
            comm_s=seconds["communicate"],
            wait_s=seconds["wait"],
            staleness=staleness,
            lead=lead,
            cleaned=cleaned,
            params_sha256=[rank["sha256"] for rank in ranks],
            faults=[],  # a run that loses a rank has no way to finish yet: it ends with a message instead
            versions=versions(),
        )
        (self.folder / "summary.json").write_text(summary.to_json())
        return summary


def _joined(traces: Sequence[str]) -> list[trace.Span]:
    return [span for text in traces for span in trace.from_json(text)]
