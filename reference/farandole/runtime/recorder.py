"""Writing the record: every rank measures, and rank 0 writes, or the rank that has taken over from it.

The clock runs from `start` to `stop`: set-up, data loading and evaluation are not part of
`wall_s`, and what is sent outside it is not part of `bytes_sent`.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from farandole.errors import UsageError
from farandole.runtime import board, folders, rank, trace, traffic
from farandole.runtime.clock import offset_to_rank_0
from farandole.runtime.communicator import gather_text
from farandole.runtime.files import json_text, read_object, write
from farandole.runtime.options import RunOptions
from farandole.runtime.record import Summary, new_folder
from farandole.runtime.summary import write_summary
from farandole.runtime.world import World


class Recorder:
    """The record that a run is writing. Every method is called by all ranks, or by all that are still alive.

    Raises:
        UsageError: the requested folder is not empty, or cannot be written.
    """

    def __init__(self, world: World, scenario: str, options: RunOptions) -> None:
        self.world = world
        self.scenario = scenario
        self.options = options
        self.offset = offset_to_rank_0(world.control)
        self.folder: Path | None = None
        self._metrics: FileIO | None = None
        self._board: board.Board | None = None
        self._void_from: int | None = None  # the first step of which an earlier start has written what does not hold
        self._started = self._wall_s = 0.0
        self._sent_before = self._sent = (0, 0, 0)  # bytes, messages, rows in the log of the traffic
        self._delivery_before = self._delivery = world.comm.delivery
        self._diverged: tuple[int, int | None] | None = (
            None  # the first step with a loss that is not finite, and its rank
        )
        self._unwritten: dict[str, str] = {}  # files that could not be written, and why
        if world.rank == 0:
            is_new = not (options.out and (options.out / "config.json").exists())
            was_there = bool(options.out and options.out.is_dir())
            self.folder = open_folder(scenario, options)
            self._metrics = _to_append(self.folder / "metrics.jsonl")
            if is_new:
                world.if_refused = partial(_discard, self.folder, was_there)

    def take_over(self, folder: Path) -> int:
        """Make this rank the one that writes, if another one has died; return the first step that is not written."""
        self.folder = folder
        if self._metrics is None:
            self._metrics = _to_append(folder / "metrics.jsonl")
        lines = (folder / "metrics.jsonl").read_text("utf-8", errors="replace").splitlines()
        return max((int(step) + 1 for step in map(_step_of, lines) if step < float("inf")), default=0)

    def go_on_from(self, step: int) -> None:
        """Delete the lines of metrics.jsonl from `step` on: an earlier start wrote them, and this one will again."""
        if self._metrics:
            self._metrics.close()
            file = Path(str(self._metrics.name))
            lines = file.read_text("utf-8", errors="replace").splitlines()  # damaged lines have no step and are dropped
            kept = [line for line in lines if _step_of(line) < step]
            self._void_from = step if len(kept) < len(lines) else None
            write(file, "".join(line + "\n" for line in kept))
            self._metrics = file.open("ab", buffering=0)

    def start(self, before_s: float = 0.0) -> None:
        """Start the clock of all ranks at the same moment: the first step begins. Collective.

        Args:
            before_s: seconds that the training has taken in earlier starts, and between them.
        """
        begun = np.array([time.perf_counter() + self.offset])
        # Before any rank begins: a responder thread may answer others before this rank leaves the barrier.
        self._sent_before = self._sent_so_far()
        self._delivery_before = self.world.comm.delivery
        try:
            with self.world.comm.waiting("start of the training", -1):
                self.world.control.Barrier()
                begun[0] = time.perf_counter() + self.offset
                self.world.control.Bcast(begun)
        finally:  # where ranks survive each other's death, it begins even if one of them has just died
            self._started = float(begun[0]) - self.offset - before_s
            self.world.begin_chaos()

    def agree_when_it_began(self, knows: bool) -> None:
        """Make all ranks of the group count from the same moment, which the ranks that took part know. Collective."""
        begun = np.array([self._started + self.offset if knows else np.inf])
        self.world.control.Allreduce(MPI.IN_PLACE, begun, MPI.MIN)
        self._started = float(begun[0]) - self.offset

    @property
    def clock(self) -> dict[str, float]:
        """Return what a joining process needs of this clock: its offset to rank 0's, and when the run began."""
        return {"offset": self.offset, "started": self._started}

    def join(self, offset: float, clock: Mapping[str, float]) -> None:
        """Set the clock of a joining process: `offset` leads from its clock to that of the rank that sent `clock`."""
        self.offset = offset + clock["offset"]
        self._started = clock["started"] - offset

    def log(self, **values: float) -> None:
        """Append one line to metrics.jsonl, and show it where TensorBoard looks."""
        if self._metrics:
            self.world.if_refused = None
            if not math.isfinite(values.get("loss", 0.0)) and self._diverged is None:
                self._diverged = int(values["step"]), None
            self._write(str(self._metrics.name), lambda: self._append(json_text(values) + "\n"))
            if self.options.tensorboard:
                self._write(str(self.options.tensorboard), lambda: self._show(values))

    def watch(self, step: int, loss: float, rank: int | None = None) -> None:
        """Remember the first loss of this rank (or of `rank`) that is not finite; the summary has the first of all."""
        if not math.isfinite(loss) and (self._diverged is None or self._diverged[1] is None):
            self._diverged = step, self.world.rank if rank is None else rank

    def write_beside(self, name: str, content: str) -> None:
        """Write a file of the method itself beside the record, on rank 0; a failure is named in the summary."""
        if self.folder:
            self._write(str(self.folder / name), partial(write, self.folder / name, content))

    def _write(self, file: str, write: Callable[[], None]) -> None:
        """Write to a file that training does not need; if the disk fails, training continues without the file."""
        if file not in self._unwritten:
            try:
                write()
            except OSError as error:
                self._unwritten[file] = error.strerror or str(error)

    def _append(self, line: str) -> None:
        """Append a line to metrics.jsonl, completely or not at all."""
        assert self._metrics
        data, before = line.encode(), self._metrics.seek(0, os.SEEK_END)
        try:
            if self._metrics.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with suppress(OSError):
                self._metrics.truncate(before)
            raise

    def _show(self, values: Mapping[str, float]) -> None:
        """Write the same values to TensorBoard's files as to metrics.jsonl."""
        assert self.folder
        assert self.options.tensorboard
        folder = self.options.tensorboard / self.folder.resolve().name
        self._board = self._board or board.Board(folder, self._void_from)
        self._board.log(values, time.time() - self.elapsed_s)

    @property
    def writes(self) -> bool:
        """Whether this rank is the one that writes."""
        return self._metrics is not None

    @property
    def shard_folder(self) -> Path | None:
        """Where rank 0 may keep the run's shards: beside its record, which all hosts of a cluster can read."""
        return self.folder / "shards" if self.folder else None

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._started

    def stop(self) -> None:
        """Stop the clock: the last step has ended on this rank."""
        self.world.end_chaos()
        self._wall_s = self.elapsed_s
        self._delivery = self.world.comm.delivery
        self._sent = self._sent_so_far()

    def _sent_so_far(self) -> tuple[int, int, int]:
        """Return the bytes, messages and rows of the traffic's log up to one moment, though other threads may send."""
        comm = self.world.comm
        while True:
            found = comm.bytes_sent, comm.messages_sent, len(comm.traffic)
            if comm.bytes_sent == found[0]:
                return found

    def finish(
        self,
        *,
        steps: int,
        samples: int,
        final_loss: float | None,
        test_metrics: Mapping[str, float | None] | None,
        params_sha256: str,
        bytes_are_counted: bool = True,
        staleness: dict[str, int] | None = None,
        lead: dict[str, int] | None = None,
        cleaned: dict[str, int] | None = None,
        memory: dict[str, dict[str, int | None]] | None = None,
        roles: Sequence[str] = (),
        faults: Sequence[dict[str, Any]] = (),
        joined: Sequence[dict[str, Any]] = (),
        ring_bytes: int | None = None,
        server_changes: Sequence[dict[str, Any]] = (),
        tasks: dict[str, Any] | None = None,
        stopping: dict[str, Any] | None = None,
    ) -> Summary | None:
        """Bring all ranks' measurements together and write summary.json and trace.json.

        Args:
            test_metrics: what the final model is worth on the test samples (`Summary.test_metrics`).
            bytes_are_counted: False where a library communicates past `world.comm`.
            memory: what this rank has held, "measured" and by "formula".
            roles: of each rank, where they differ.
            faults: the failures that the training has survived.
            joined: the processes that joined later.
            ring_bytes: where messages are compressed, the bytes that this rank would have sent without.
            server_changes: changes of a parameter server's servers (`Summary.server_changes`).
            tasks: how many tasks each worker completed, if the manager assigns them (`Summary.tasks`).
            stopping: the checks of the thread that may end the training early (`Summary.stopping`).

        Returns:
            The summary on the rank that writes, None elsewhere.
        """
        world = self.world
        own: dict[str, Any] = {
            "rank": world.rank,
            "sha256": params_sha256,
            "wall_s": self._wall_s,
            "bytes": self._sent[0] - self._sent_before[0],
            "messages": self._sent[1] - self._sent_before[1],
        }
        own["memory"] = memory
        own["place"] = world.place.described() | {"transport": world.transport}
        own["diverged"] = self._diverged
        own["never struck"], own["unused"] = world.never_struck, world.unused_link_changes
        own["ring_bytes"] = ring_bytes
        if self._delivery:
            before = self._delivery_before or {}
            delivery = {name: value - before.get(name, 0) for name, value in self._delivery.items()}
            own |= {"delivery": delivery, "struck": world.comm.struck}
        shifted = [replace(s, start=s.start + self.offset, end=s.end + self.offset) for s in world.trace.spans]
        operations = world.comm.traffic.operations(world.rank, self._sent_before[2], self._sent[2], self.offset)
        with world.comm.waiting("measurements of the others", -1):
            texts = gather_text(world.control, json.dumps(own))
            traces = gather_text(world.control, trace.to_json(shifted))
            logs = gather_text(world.control, traffic.to_json(operations))
        if self.folder is None or self._metrics is None:
            return None
        self._metrics.close()
        if self._board:
            self._write(str(self.options.tensorboard), partial(self._board.close, steps, test_metrics or {}))
        ranks = sorted((json.loads(text) for text in texts), key=lambda own: own["rank"])
        for line in without_effect(ranks, self.options, list(faults)):
            print(f"farandole: {line}", file=sys.stderr, flush=True)
        return write_summary(
            self.folder,
            self.scenario,
            self.options,
            ranks,
            [span for text in traces for span in trace.from_json(text)],
            [operation for text in logs for operation in traffic.from_json(text)],
            roles=roles,
            steps=steps,
            samples=samples,
            final_loss=final_loss,
            test_metrics=test_metrics,
            bytes_are_counted=bytes_are_counted,
            staleness=staleness,
            lead=lead,
            cleaned=cleaned,
            faults=list(faults),
            joined=joined,
            server_changes=list(server_changes),
            tasks=tasks,
            stopping=stopping,
            diverged=first_divergence(own["diverged"] for own in ranks),
            unwritten=[f"{file} ({why})" for file, why in self._unwritten.items()],
        )


def without_effect(ranks: Sequence[dict[str, Any]], options: RunOptions, faults: Sequence[Any]) -> list[str]:
    """Return a line for each requested fault or link change that had no effect.

    Args:
        ranks: for each remaining rank, the faults and link changes that had no effect on it.
        faults: the failures that have happened.
    """
    lines = [fault for own in ranks for fault in own["never struck"]]
    for change in map("--link-change {}".format, options.link_change):
        if all(change in own["unused"] for own in ranks):
            lines.append(f"{change} changed nothing: no rank came to that step")
    if options.chaos and not faults:
        lines.append(f"--chaos {options.chaos} never struck: the training was over before")
    return lines


def first_divergence(found: Iterable[Sequence[int | None] | None]) -> dict[str, int | None] | None:
    """Return the first diverged step that a rank has seen, for the summary; entries with a known rank come first."""
    known = sorted(filter(None, found), key=lambda each: (each[1] is None, each[0], each[1] or 0))
    return {"step": known[0][0], "rank": known[0][1]} if known else None


def open_folder(scenario: str, options: RunOptions) -> Path:
    """Make the record's folder, with the options in it; one process of a run does.

    Raises:
        UsageError: as `Recorder`.
    """
    if options.tensorboard:
        board.make_folder(options.tensorboard)
    if rank.SCRATCH in os.environ and options.out:  # the launcher has created and locked the folder
        folder = new_folder(scenario, options.out, options.resumes)
        folder.mkdir(parents=True, exist_ok=True)  # needed on a host that does not share the launcher's file system
    else:
        folder = folders.claim(scenario, options.out, options.resumes).folder  # until this process ends
    config = {field.name: getattr(options, field.name) for field in fields(options)}
    write_config(folder / "config.json", config, options.incidental)
    return folder


def _discard(folder: Path, was_there: bool) -> None:
    """Remove the files of a run that was refused, and its folder if the run created it."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    if not was_there:
        folder.rmdir()


def write_config(file: Path, config: dict[str, Any], incidental: Container[str]) -> None:
    """Write the options, or, where a run goes on, check that they are those it was started with.

    Raises:
        UsageError: the options differ, or the file is damaged.
    """
    text = json_text(config, indent=2, default=str)
    if file.exists():
        started = read_object(file, "give a new --out, or put the file back as it was")
        now = json.loads(text)
        if started.keys() != now.keys():
            raise UsageError(f"--out {file.parent} holds a run of another scenario: give a new folder")
        for name, value in started.items():
            if name not in incidental and value != now[name]:
                raise UsageError(
                    f"{file.parent} was started with --{name.replace('_', '-')} {value}, not {now[name]}: "
                    "give what it was started with, or another --out"
                )
    try:
        write(file, text)
    except OSError as error:
        raise UsageError(f"--out {file.parent} cannot be written ({error.strerror}): give another") from error


def _to_append(file: Path) -> FileIO:
    """Open a file whose lines must be there at once.

    Raises:
        UsageError: it cannot be written, as a folder of that name.
    """
    try:
        return file.open("ab", buffering=0)
    except OSError as error:
        raise UsageError(f"{file} cannot be written ({error.strerror}): remove it, or give another --out") from error


def _step_of(line: str) -> float:
    """Return the step that a line of metrics.jsonl is of; beyond all steps if it was torn."""
    try:
        step = float(json.loads(line)["step"])
        return step if math.isfinite(step) else float("inf")
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return float("inf")
