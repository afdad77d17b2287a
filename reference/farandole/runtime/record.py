"""The record: what every run leaves behind, in one schema, so that any two methods compare.

    runs/<name>/config.json     the scenario's options
                metrics.jsonl   one line a step: step, wall_s, loss, samples, and where it changes lr
                trace.json      Chrome trace, one process per rank (opens in Perfetto)
                summary.json    the fields of `Summary`
                plan.json       only where a model is cut: which layers are where (`model_parallel.layer_split.Plan`)
                costs.json      only of `sync_cost`: what each way was predicted to cost, and did (`cost.sync_cost.Row`)
                trials.json     only of a search: what was tried, and how good it was
                serving.jsonl   only where predictions are served meanwhile (`parameter_server.serving.Served`)

This side only reads, and imports neither MPI nor torch; `runtime.recorder` writes.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from farandole.errors import UsageError


@dataclass(frozen=True)
class Summary:
    """One run in figures. A list has one entry per rank that has finished; None where a field has no meaning.

    Attributes:
        scenario: its name.
        ranks: number of processes at the end.
        members: their numbers, which are 0 to ranks − 1 unless some have died on the way.
        seed: what every random choice was drawn from.
        device: "cpu", or "cuda" with the card's name.
        wall_s: first step's start to last step's end on the slowest rank, in seconds.
        steps: optimizer steps.
        samples_per_s: samples of all ranks over `wall_s`.
        final_loss: mean training loss over the whole batch of the last step.
        test_accuracy: share of the test set classified right by the final parameters, 0 to 1.
        bytes_sent: what left each rank during the steps; None where a library sends on its own. After a restart
            this and the following describe the last start; the trace, too.
        messages_sent: likewise, in messages.
        compute_s: forward, backward and update.
        comm_s: communication, from the last rank's arrival to the own end.
        wait_s: in communication, but some rank had not arrived yet.
        staleness: histogram, updates applied by others between a gradient's pull and its application.
        lead: histogram, a worker's clock minus the slowest clock at each start of an iteration.
        cleaned: what a parameter server's cleaning node has removed: clients, pulls, clocks, pushes.
        memory: bytes held for parameters, gradients, optimizer_state and activations, "measured" and by "formula".
        params_sha256: digest of each rank's final parameters.
        faults: each with rank, step, kind (kill, raise, hang; silent: ended for its silence; ended: by
            Horovod, with another of its host; lost: nobody knows how), detected_s and resumed_s (seconds from the
            failure to the first survivor's notice, and to the first step done afterwards), steps_lost (done again);
            of drop, delay and duplicate also messages, how many were struck.
        versions: of everything that computes or communicates.
        joined: processes that have come later, each with rank, step (its first), joined_s (seconds from when it was
            sent for until that step was done).
        compression: where what is sent is compressed, encode_s, transfer_s and decode_s, parts of compute_s and comm_s
            (to a server, transfer is pushing and pulling), and ring_bytes, what would have been sent as it is: by a
            ring all-reduce, to the neighbours, or to the servers.
        server_changes: where a parameter server's servers came or went, each with step, servers (their ranks from then
            on), keys and bytes (what moved between servers), seconds (from when all workers waited until they went on).
        delivery: where messages were struck: repeated and repeated_bytes, sent again and counted in bytes_sent,
            and discarded, copies of what had arrived before.
        tasks: where the manager gives out what is to be computed, done_by (worker's rank: how many tasks it was the
            first to complete), resubmitted (given out again after a death), backups (given to a second worker).
        stopping: where a thread judges whether to go on, ended (why it ended the training; None: it did not) and
            checks, each with wall_s, updates (the first server's, when read) and loss (on validation samples).
    """

    scenario: str
    ranks: int
    members: list[int]
    seed: int
    device: str
    wall_s: float
    steps: int
    samples_per_s: float
    final_loss: float | None
    test_accuracy: float | None
    bytes_sent: list[int] | None
    messages_sent: list[int] | None
    compute_s: list[float]
    comm_s: list[float]
    wait_s: list[float]
    staleness: dict[str, int] | None
    lead: dict[str, int] | None
    cleaned: dict[str, int] | None
    memory: dict[str, dict[str, list[int | None]]] | None
    params_sha256: list[str] | None
    faults: list[dict[str, Any]]
    versions: dict[str, str]
    joined: list[dict[str, Any]] = field(default_factory=list)
    compression: dict[str, list[float]] | None = None
    server_changes: list[dict[str, Any]] = field(default_factory=list)
    delivery: dict[str, list[int]] | None = None
    tasks: dict[str, Any] | None = None
    stopping: dict[str, Any] | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @property
    def wait_share(self) -> float:
        """Share of all ranks' time spent waiting for another rank, 0 to 1."""
        total = sum(self.compute_s) + sum(self.comm_s) + sum(self.wait_s)
        return sum(self.wait_s) / total if total else 0.0

    @property
    def idle_share(self) -> float:
        """Share of all ranks' time in which they do not compute, 0 to 1: of a pipeline, the bubble."""
        return 1 - sum(self.compute_s) / (self.ranks * self.wall_s) if self.wall_s else 0.0


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, and what lies in it."""

    folder: Path
    output: str = ""

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """The run in `folder`.

        Raises:
            UsageError: there is no finished record.
        """
        folder = Path(folder)
        if not cls(folder).is_finished:
            kind = "a run that did not finish" if (folder / "config.json").is_file() else "not a run's folder"
            raise UsageError(f"{folder} is {kind}: no summary.json there; give a folder that a run has written")
        return cls(folder)

    @property
    def is_finished(self) -> bool:
        return (self.folder / "summary.json").is_file()

    @property
    def summary(self) -> Summary:
        values = self._json("summary.json")
        # Records from before these were measured.
        before: dict[str, Any] = {"server_changes": []}
        before |= dict.fromkeys(("compression", "delivery", "tasks", "stopping"))
        values = before | values
        missing = [field.name for field in fields(Summary) if field.name not in values]
        if missing:
            raise UsageError(f"{self.folder / 'summary.json'} lacks {', '.join(missing)}; run the scenario again")
        return Summary(**{field.name: values[field.name] for field in fields(Summary)})

    @property
    def config(self) -> dict[str, Any]:
        return self._json("config.json")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, in order of steps."""
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    @property
    def serving(self) -> list[dict[str, Any]]:
        """The lines of serving.jsonl, in order of time; none where nothing was served."""
        file = self.folder / "serving.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def trace(self) -> list[dict[str, Any]]:
        """The complete events ("ph": "X") of trace.json; ts and dur in microseconds, pid = rank."""
        return [event for event in self._json("trace.json")["traceEvents"] if event["ph"] == "X"]

    @property
    def rank_names(self) -> list[str]:
        """What each rank is called: "rank 1", or with its role "rank 1, server"."""
        events = self._json("trace.json")["traceEvents"]
        return [event["args"]["name"] for event in events if event["name"] == "process_name"]

    def _json(self, name: str) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads((self.folder / name).read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise UsageError(f"{self.folder / name} cannot be read ({error}); run the scenario again") from error
        return values


def new_folder(scenario: str, out: Path | None, resumes: bool = False) -> Path:
    """The folder for a record: `out`, or runs/SCENARIO-DATE-TIME, made unique by a number.

    Args:
        resumes: `out` may hold a run that did not finish.

    Raises:
        UsageError: `out` holds something else already; nothing is overwritten.
    """
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            if resumes and (out / "summary.json").is_file():
                raise UsageError(f"--out {out} has finished: give a new folder, or remove that one first")
            if not (resumes and (out / "config.json").is_file()):
                raise UsageError(f"--out {out} is not empty: give a new folder, or remove that one first")
        return out
    stem = Path("runs") / f"{scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = stem, 1
    while folder.exists():
        number += 1
        folder = stem.with_name(f"{stem.name}-{number}")
    return folder
