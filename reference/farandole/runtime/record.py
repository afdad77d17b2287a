"""The record: what every run leaves behind, in one schema, so that any two methods compare.

    runs/<name>/config.json     the scenario's options
                metrics.jsonl   one line a step: step, wall_s, loss, samples, and where it changes lr
                trace.json      Chrome trace, one process per rank (opens in Perfetto), with its messages
                summary.json    the fields of `Summary`
                plan.json       only where a model is cut: which layers are where (`model_parallel.layer_split.Plan`)
                costs.json      only of `sync_cost`: each method's cost, predicted and measured (`cost.findings.Row`)
                modes.json      only with `adaptive`: the measured devices, and the prediction for each mode
                trials.json     only of a search: what was tried, and how good it was
                serving.jsonl   only where predictions are served meanwhile (`parameter_server.serving.Served`)

This side only reads, and imports neither MPI nor torch; `runtime.recorder` writes.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from farandole.errors import UsageError
from farandole.runtime.files import json_text, read_lines, read_object
from farandole.runtime.numbers import LARGEST_SEED
from farandole.runtime.trace import CATEGORIES
from farandole.runtime.traffic import COLLECTIVES, MESSAGE, RECEIVE, SEND

AGAIN = "run the scenario again"  # the remedy for a damaged record
LINE: dict[str, Any] = {"step": int, "wall_s": float, "loss": float | None}  # required keys of a metrics.jsonl line
EVENT: dict[str, Any] = {"name": str, "cat": str, "pid": int, "tid": int, "ts": float, "dur": float, "args": dict}
FAULT: dict[str, Any] = {
    "rank": int, "step": int, "kind": str, "detected_s": float | None, "resumed_s": float | None, "steps_lost": int,
}  # fmt: skip
OPERATIONS = dict.fromkeys((SEND, RECEIVE), ("peer", "message")) | dict.fromkeys(COLLECTIVES, ("size", "group"))
PER_RANK = ("bytes_sent", "messages_sent", "compute_s", "comm_s", "wait_s", "params_sha256")  # fields of `Summary`
LONGEST_US = 1e15  # of a trace: 30 years
RUNS = Path("runs")  # where a run without --out makes its folder
LATEST = "latest"  # in place of a run's folder: the newest in `RUNS`


@dataclass(frozen=True)
class Summary:
    """One run in figures. A list has one entry per rank that has finished; None where a field has no meaning.

    Attributes:
        scenario: its name.
        ranks: number of processes at the end.
        members: their numbers, which are 0 to ranks − 1 unless some have died during the run.
        seed: what every random choice was drawn from.
        device: what the training computes on: "cpu", or the kind of card, as "cuda", with the name of the first one.
        wall_s: first step's start to last step's end on the slowest rank, in seconds.
        steps: optimizer steps.
        samples_per_s: samples of all ranks over `wall_s`.
        final_loss: mean training loss over the whole batch of the last step.
        test_accuracy: share of the test set classified right by the final parameters, 0 to 1: the metric "accuracy".
        bytes_sent: what left each rank during the steps; None where a library sends on its own. After a restart
            this and the following describe the last start; the trace, too.
        messages_sent: the number of messages that left each rank.
        compute_s: forward, backward and update.
        comm_s: communication, from the last rank's arrival to the own end.
        wait_s: in communication, but some rank had not arrived yet.
        staleness: histogram, updates applied by others between a gradient's pull and its application.
        lead: histogram, a worker's clock minus the slowest clock at each start of an iteration.
        cleaned: what a parameter server's cleaning node has removed: clients, pulls, clocks, pushes.
        memory: bytes held for parameters, gradients, optimizer_state and activations, "measured" and by "formula";
            and activations copied "out" of the device and "in", where these are "offloaded".
        params_sha256: digest of each rank's final parameters.
        faults: each with rank, step, kind (kill, raise, hang, partition; silent: ended for its silence; ended: by
            Horovod, with another of its host; lost: of an unknown kind), detected_s and resumed_s (seconds from the
            failure to the first survivor's notice, and to the first step done afterwards), steps_lost (done again);
            faults of messages also have messages, the number of messages struck.
        versions: of everything that computes or communicates; on a card also "arithmetic", how its libraries compute.
        joined: processes that joined later, each with rank, step (its first), joined_s (seconds from the request
            until that step was done).
        compression: where what is sent is compressed, encode_s, transfer_s and decode_s, parts of compute_s and comm_s
            (to a server, transfer is pushing and pulling), and ring_bytes, what would have been sent as it is: by a
            ring all-reduce, to the neighbours, or to the servers.
        server_changes: each change of a parameter server's servers, with step, servers (their ranks after the change),
            keys and bytes (moved between servers), and seconds (how long all workers waited).
        delivery: with message faults, repeated and repeated_bytes (messages sent again, also counted in bytes_sent),
            discarded (copies of messages that had already arrived), and corrupted (copies whose checksum was wrong).
        tasks: if the manager assigns the computing tasks, done_by (worker's rank: number of tasks that it completed
            first), resubmitted (assigned again after a death) and backups (assigned to a second worker).
        stopping: if a thread decides when to stop, ended (why it ended the training; None: it did not) and checks,
            each with wall_s, updates (of the first server, when read) and loss (on validation samples).
        diverged: if a loss was not finite, the first such step and its rank (null: the loss of the whole batch).
            A number that is not finite is null in every file.
        test_metrics: each metric of the task, by its name: its mean over the test set with the final parameters.
        flops: operations of the forward and backward passes over all samples that were used (model FLOPs: without what
            is computed again); None where the model's are not known. A task of the user's own is counted only with
            --peak-flops.
        mfu: model FLOPs utilisation, flops / (wall_s × ranks × --peak-flops), 0 to 1; None without --peak-flops.
        hardware_flops: the same with the operations that backward passes computed again (--recompute).
        hfu: hardware FLOPs utilisation, of these.
        places: where each rank computes, with device, card (its UUID; null on the CPU), host, the cores that it may
            use, and transport, how its messages leave the card ("staged" or "direct"; null on the CPU).
        unwritten: files of the record that could not be written, and why. trace.json is written last, after this
            summary, so its failure is only printed.
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
    diverged: dict[str, int | None] | None = None
    test_metrics: dict[str, float | None] | None = None
    flops: float | None = None
    mfu: float | None = None
    hardware_flops: float | None = None
    hfu: float | None = None
    places: list[dict[str, str | None]] = field(default_factory=list)
    unwritten: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        return json_text(asdict(self), indent=2)

    def without(self, error: OSError) -> Summary:
        """Return a copy of this summary that names one more file that could not be written."""
        return replace(self, unwritten=[*self.unwritten, f"{error.filename} ({error.strerror})"])

    @property
    def flaws(self) -> list[str]:
        """Return the defects of this run, one phrase each; usually empty."""
        found = []
        if self.diverged:
            rank = self.diverged["rank"]
            whose = "the batch's loss" if rank is None else f"the loss of rank {rank}"
            found.append(
                f"{self.scenario} diverged: {whose} is not finite at step {self.diverged['step']}; "
                "try a smaller --lr, and see metrics.jsonl for what came before"
            )
        if self.unwritten:
            files = ", ".join(self.unwritten)
            found.append(f"the training has ended, but parts of its record could not be written: {files}")
        return found

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
        """Return the run in `folder`; of "latest", the run below runs/ that finished last.

        Raises:
            UsageError: there is no finished record.
        """
        folder = _latest() if str(folder) == LATEST and not Path(LATEST).exists() else Path(folder)
        if not cls(folder).is_finished:
            kind = "a run that did not finish" if (folder / "config.json").is_file() else "not a run's folder"
            raise UsageError(f"{folder} is {kind}: no summary.json there; give a folder that a run has written")
        return cls(folder)

    @property
    def is_finished(self) -> bool:
        return (self.folder / "summary.json").is_file()

    @property
    def summary(self) -> Summary:
        values, file = self._json("summary.json"), self.folder / "summary.json"
        hints = get_type_hints(Summary)
        known = {name: values[name] for name in hints if name in values}
        if wrong := [name for name, value in known.items() if not _fits(value, hints[name])]:
            raise UsageError(f"{file} is damaged ({wrong[0]} is not of type {_type_name(hints[wrong[0]])}): {AGAIN}")
        try:
            summary = Summary(**known)  # a record of an older version may lack fields that have a default
        except TypeError as error:
            lacking = [name for name in hints if name not in values]
            raise UsageError(f"{file} lacks {', '.join(lacking)}: {AGAIN}") from error
        if why := _contradiction(summary):
            raise UsageError(f"{file} is damaged ({why}): {AGAIN}")
        return summary

    @property
    def config(self) -> dict[str, Any]:
        return self._json("config.json")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, in order of steps; a loss that is null in the file (not finite) becomes nan."""
        lines = read_lines(self.folder / "metrics.jsonl", AGAIN)
        for number, line in enumerate(lines, start=1):
            if not all(_fits(line.get(name, ""), kind) for name, kind in LINE.items()):
                raise UsageError(f"{self.folder / 'metrics.jsonl'}, line {number}, is damaged: {AGAIN}")
        return [line | {"loss": math.nan} if line["loss"] is None else line for line in lines]

    @property
    def serving(self) -> list[dict[str, Any]]:
        """Return the lines of serving.jsonl, in order of time; none where nothing was served."""
        file = self.folder / "serving.jsonl"
        return read_lines(file, AGAIN) if file.exists() else []

    @property
    def modes(self) -> dict[str, Any]:
        """The contents of modes.json: the measured "devices", and the predicted "modes", the chosen one first."""
        return self._json("modes.json")

    @property
    def trace(self) -> list[dict[str, Any]]:
        """Return the spans ("ph": "X") of trace.json; ts and dur in microseconds, pid = rank."""
        return [event for event in self._events() if event["ph"] == "X" and event["cat"] != MESSAGE]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the events of trace.json for messages and collectives, as `traffic.events` writes them."""
        return [event for event in self._events() if event["ph"] == "X" and event["cat"] == MESSAGE]

    @property
    def groups(self) -> list[list[int]] | None:
        """Return the members of each group that has communicated, by its number; None in a record without messages."""
        found = self._json("trace.json").get("otherData", {})
        groups = found.get("groups") if isinstance(found, dict) else found
        if groups is not None and not _fits(groups, list[list[int]]):
            raise UsageError(f"{self.folder / 'trace.json'} is damaged (its groups are no lists of ranks): {AGAIN}")
        return groups

    @property
    def rank_names(self) -> list[str]:
        """Return each rank's name: "rank 1", or with its role "rank 1, server"."""
        return [event["args"]["name"] for event in self._events() if event["name"] == "process_name"]

    def _json(self, name: str) -> dict[str, Any]:
        return read_object(self.folder / name, AGAIN)

    def _events(self) -> list[dict[str, Any]]:
        events = self._json("trace.json").get("traceEvents")
        if not (isinstance(events, list) and all(_is_event(event) for event in events)):
            raise UsageError(f"{self.folder / 'trace.json'} is damaged (it holds no trace): {AGAIN}")
        return events


def _latest() -> Path:
    """Return the folder of the run in `RUNS` that finished last."""
    finished = RUNS.glob("*/summary.json")
    if newest := max(finished, key=lambda file: file.stat().st_mtime_ns, default=None):
        return newest.parent
    raise UsageError(f"there is no finished run in {RUNS} here: farandole run sync_sgd -n 4 makes one")


def _contradiction(summary: Summary) -> str | None:
    """Return what in the summary cannot be so; None: nothing."""
    members = summary.members
    if not members or summary.steps < 0 or summary.wall_s < 0:
        return "it has no members, or negative steps or wall_s"
    if not len(members) == len(set(members)) == summary.ranks:
        return f"its {summary.ranks} ranks have the numbers {members}"
    for name in PER_RANK:
        values = getattr(summary, name)
        if values is not None and len(values) != len(members):
            return f"{name} has {len(values)} entries for {len(members)} ranks"
    if len(summary.places) not in (0, len(members)):  # 0: of a version that did not record them
        return f"places has {len(summary.places)} entries for {len(members)} ranks"
    for name in ("staleness", "lead"):
        counts = getattr(summary, name) or {}
        if not all(value.removeprefix("-").isdecimal() and count >= 0 for value, count in counts.items()):
            return f"{name} is no histogram"
    if not all(_fits(fault.get(name, ()), kind) for fault in summary.faults for name, kind in FAULT.items()):
        return "faults lacks a field, or has one of another type"
    return None


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value from JSON has a field's type."""
    if type(value) is hint and hint in (str, dict):  # a trace has thousands of these: the common case first
        return True
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is UnionType:
        return any(_fits(value, each) for each in arguments)
    if kind is list:
        return isinstance(value, list) and all(_fits(each, arguments[0]) for each in value)
    if kind is dict:
        return isinstance(value, dict) and all(_fits(each, arguments[1]) for each in value.values())
    if hint is float and isinstance(value, float):
        return math.isfinite(value)  # JSON has no other numbers, but Python reads them
    if hint in (int, float):
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_SEED
    return hint is Any or isinstance(value, hint)


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def _is_event(event: Any) -> bool:
    if not isinstance(event, dict):
        return False
    if event.get("ph") != "X":
        about = event.get("args")
        return isinstance(about, dict) and (event.get("name") != "process_name" or isinstance(about.get("name"), str))
    return (
        all(_fits(event.get(name), kind) for name, kind in EVENT.items())
        and (event["cat"] in CATEGORIES or (event["cat"] == MESSAGE and _is_message(event["args"])))
        and abs(event["ts"]) <= LONGEST_US
        and 0 <= event["dur"] <= LONGEST_US
        and isinstance(event["args"].get("depth", 0), int)
    )


def _is_message(about: dict[str, Any]) -> bool:
    names = OPERATIONS.get(str(about.get("operation")), ())
    return bool(names) and all(_fits(about.get(name), int) and about[name] >= -1 for name in ("bytes", *names))


def new_folder(scenario: str, out: Path | None, resumes: bool = False) -> Path:
    """Return the folder for a record: `out`, or runs/SCENARIO-DATE-TIME, made unique by a number.

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
    stem = RUNS / f"{scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = stem, 1
    while folder.exists():
        number += 1
        folder = stem.with_name(f"{stem.name}-{number}")
    return folder
