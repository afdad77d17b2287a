"""Records as tables in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from farandole.errors import FlawedRun
from farandole.runtime.rank import under_mpirun
from farandole.runtime.record import Summary

if TYPE_CHECKING:  # torch is not needed for tables
    from farandole.data_parallel.search import Trial

NOT_COUNTED = "–"


def megabytes_per_rank(summary: Summary) -> str:
    """Return the most that any rank has sent, in MB (10⁶ bytes); "–" where a library sends on its own."""
    return NOT_COUNTED if summary.bytes_sent is None else f"{max(summary.bytes_sent) / 1e6:.1f}"


def binary(size: float) -> str:
    """Return a number of bytes in powers of 1024."""
    return f"{size / (1 << 20):g} MiB" if size >= 1 << 20 else f"{size / (1 << 10):g} KiB"


def percent(share: float | None) -> str:
    return NOT_COUNTED if share is None else f"{share:.1%}"


ACCURACY = "accuracy"


def metric(name: str, summary: Summary) -> str:
    """Return what a run came to on the test set, by one of its task's metrics."""
    value = summary.test_accuracy if name == ACCURACY else (summary.test_metrics or {}).get(name)
    if value is None:
        return NOT_COUNTED
    return percent(value) if name == ACCURACY else f"{value:.4g}"


# A comparison's columns: the heading, and what stands under it. Between those of progress and of speed stand the task's
# metrics, on the test set. "MB/rank" is the most that any rank has sent, "waiting" the share of all ranks' time.
PROGRESS: dict[str, Callable[[Summary], str]] = {
    "ranks": lambda s: str(s.ranks),
    "steps": lambda s: str(s.steps),
}
SPEED: dict[str, Callable[[Summary], str]] = {
    "samples/s": lambda s: f"{s.samples_per_s:,.0f}",
    "MB/rank": megabytes_per_rank,
    "waiting": lambda s: percent(s.wait_share),
}


def columns(summaries: Sequence[Summary]) -> dict[str, Callable[[Summary], str]]:
    """Return the columns of a comparison: heading → what stands under it. Metrics are those of any run."""
    found = [list(summary.test_metrics or {ACCURACY: None}) for summary in summaries]
    first, *others = dict.fromkeys(name for names in found for name in names) or [ACCURACY]
    judged: dict[str, Callable[[Summary], str]] = {
        first: lambda summary: metric(first, summary) + (" diverged" if summary.diverged else "")
    }
    return PROGRESS | judged | {name: partial(metric, name) for name in others} | SPEED


def comparison(summaries: Mapping[str, Summary], title: str = "") -> Table:
    """Return a row per run: what was learned, how fast, what was sent, how long ranks waited."""
    return _by_run(summaries, columns(list(summaries.values())), title)


# How parameters were updated: "updates" as the first server counts them, "lead" in iterations ahead
# of the slowest worker, "waited" by all workers together.
UPDATING: dict[str, Callable[[Summary], str]] = {
    "updates": lambda s: str(s.steps),
    "seconds": lambda s: f"{s.wall_s:.2f}",
    "staleness": lambda s: _spread(s.staleness),
    "lead": lambda s: _spread(s.lead),
    "waited": lambda s: f"{sum(s.wait_s):.2f} s",
}


def updating(summaries: Mapping[str, Summary]) -> Table:
    """Return a row per run: how many updates in which time, how stale, how far ahead, how long waited."""
    return _by_run(summaries, UPDATING)


def per_rank(summary: Summary) -> Table:
    """Return a row per rank: where its time went, and what it sent."""
    table = Table()
    for heading in ("rank", "compute s", "communicate s", "wait s", "MB sent", "messages"):
        table.add_column(heading, justify="right")
    for place, rank in enumerate(summary.members):
        sent = NOT_COUNTED if summary.bytes_sent is None else f"{summary.bytes_sent[place] / 1e6:.2f}"
        messages = NOT_COUNTED if summary.messages_sent is None else str(summary.messages_sent[place])
        seconds = (summary.compute_s[place], summary.comm_s[place], summary.wait_s[place])
        table.add_row(str(rank), *(f"{value:.3f}" for value in seconds), sent, messages)
    return table


def compression(summary: Summary) -> Table:
    """Return a row per rank: what encoding, transfer and decoding took, and how many times fewer bytes were sent."""
    table = Table()
    for heading in ("rank", "encode s", "transfer s", "decode s", "bytes, 1 to"):
        table.add_column(heading, justify="right")
    figures = summary.compression or {}
    for place, rank in enumerate(summary.members if figures else []):
        seconds = (figures[name][place] for name in ("encode_s", "transfer_s", "decode_s"))
        sent = summary.bytes_sent[place] if summary.bytes_sent else 0
        before = figures["ring_bytes"][place]
        ratio = f"{before / sent:.1f}" if sent and before else NOT_COUNTED
        table.add_row(str(rank), *(f"{value:.3f}" for value in seconds), ratio)
    return table


def faults(summary: Summary) -> Table:
    """A row per failure: what it was, when it was noticed, when the first step after it was done, what it cost."""
    table = Table()
    for heading in ("failed", "step", "how", "noticed after", "first step after", "steps lost"):
        table.add_column(heading, justify="right")
    for fault in summary.faults:
        failed = f"rank {fault['rank']}" if fault["rank"] >= 0 else "a rank"
        times = [NOT_COUNTED if fault[key] is None else f"{fault[key]:.3f} s" for key in ("detected_s", "resumed_s")]
        step = str(fault["step"]) if fault["step"] >= 0 else NOT_COUNTED  # a spare takes no steps
        table.add_row(failed, step, fault["kind"], *times, str(fault["steps_lost"]))
    return table


def delivery(summary: Summary) -> Table:
    """Return a table with a row per rank: its messages that faults struck, and what it sent again or discarded."""
    table = Table()
    for heading in ("rank", "messages struck", "sent again", "bytes sent again", "copies discarded", "corrupted"):
        table.add_column(heading, justify="right")
    figures = summary.delivery or {}
    for place, rank in enumerate(summary.members if figures else []):
        struck = sum(fault.get("messages", 0) for fault in summary.faults if fault["rank"] == rank)
        counts = (figures[name][place] for name in ("repeated", "repeated_bytes", "discarded", "corrupted"))
        table.add_row(str(rank), str(struck), *map(str, counts))
    return table


def joined(summary: Summary) -> Table:
    """Return a table with a row per process that joined later: its first step, and the time until it was done."""
    table = Table()
    for heading in ("joined", "at step", "first step after"):
        table.add_column(heading, justify="right")
    for process in summary.joined:
        table.add_row(f"rank {process['rank']}", str(process["step"]), f"{process['joined_s']:.3f} s")
    return table


def server_changes(summary: Summary) -> Table:
    """Return a table with a row per change of a parameter server's servers: new servers, data moved, waiting time."""
    table = Table()
    for heading in ("from step", "servers", "keys moved", "MB moved", "workers waited"):
        table.add_column(heading, justify="right")
    for change in summary.server_changes:
        servers = ", ".join(f"rank {rank}" for rank in change["servers"])
        moved = (f"{change['keys']:,}", f"{change['bytes'] / 1e6:.2f}")
        table.add_row(str(change["step"]), servers, *moved, f"{change['seconds']:.3f} s")
    return table


def tasks(summary: Summary) -> Table:
    """Return a table with a row per worker: tasks that it completed first; below, tasks assigned twice, by reason."""
    table = Table()
    for heading in ("worker", "tasks done"):
        table.add_column(heading, justify="right")
    figures = summary.tasks or {"done_by": {}, "resubmitted": 0, "backups": 0}
    for worker, done in figures["done_by"].items():
        table.add_row(f"rank {worker}", str(done))
    table.add_section()
    table.add_row("resubmitted after a death", str(figures["resubmitted"]))
    table.add_row("backup at a second worker", str(figures["backups"]))
    return table


def stopping(summary: Summary) -> Table:
    """Return a table with one row: why the training ended, the number of checks, and the last loss."""
    figures = summary.stopping or {"ended": None, "checks": []}
    table = Table()
    for heading in ("ended because", "judged", "last loss"):
        table.add_column(heading, justify="right")
    last = f"{figures['checks'][-1]['loss']:.3f}" if figures["checks"] else NOT_COUNTED
    table.add_row(figures["ended"] or "all steps were taken", f"{len(figures['checks'])} times", last)
    return table


def show(tables: Sequence[Table]) -> None:
    # mpirun gives ranks a terminal of its own, behind which there may be a file.
    console = Console(force_terminal=False if under_mpirun() else None)
    for table in tables:
        console.print(table)


def trials(tried: Sequence[Trial], with_width: bool = True) -> Table:
    """Return a row per trial of a search: what it tried, how long it went on, how good it was then.

    Args:
        with_width: False for a task of the user's own, whose width is not tried.
    """
    table = Table()
    for heading in ("trial", "learning rate", *["width"] * with_width, "steps", "validation loss"):
        table.add_column(heading, justify="right")
    for trial in tried:
        width = [str(trial.hidden)] * with_width
        table.add_row(str(trial.number), f"{trial.lr:.4g}", *width, str(trial.steps), f"{trial.loss:.3f}")
    return table


def print_summary(summary: Summary | None, as_json: bool, *more: Table) -> None:
    """Print a scenario's summary at its end, on the rank that has it.

    Args:
        more: tables of its own, to follow the others.

    Raises:
        FlawedRun: the training diverged, or a part of its record could not be written; raised after printing.
    """
    if summary is None:
        return
    if as_json:
        print(summary.to_json())
    else:
        failed = [faults(summary)] if summary.faults else []
        delivered = [delivery(summary)] if summary.delivery else []
        came = [joined(summary)] if summary.joined else []
        changed = [server_changes(summary)] if summary.server_changes else []
        changed += [tasks(summary)] if summary.tasks else []
        changed += [stopping(summary)] if summary.stopping else []
        encoded = [compression(summary)] if summary.compression else []
        parts = [*failed, *delivered, *came, *changed, *encoded, *more]
        show([comparison({summary.scenario: summary}), per_rank(summary), *parts])
    if summary.flaws:
        sys.stdout.flush()
        raise FlawedRun("; ".join(summary.flaws))


def _by_run(
    summaries: Mapping[str, Summary], columns: Mapping[str, Callable[[Summary], str]], title: str = ""
) -> Table:
    table = Table(title=title or None, title_justify="left")
    table.add_column("run")
    for heading in columns:
        table.add_column(heading, justify="right")
    for name, summary in summaries.items():
        as_it_is = Text(name)  # [red] in a folder's name must not be interpreted as a colour
        table.add_row(as_it_is, *(show(summary) for show in columns.values()))
    return table


def _spread(histogram: Mapping[str, int] | None) -> str:
    """Mean and maximum, as "1.5, max 4"."""
    if not histogram or not sum(histogram.values()):
        return NOT_COUNTED
    mean = sum(int(value) * count for value, count in histogram.items()) / sum(histogram.values())
    return f"{mean:.1f}, max {max(map(int, histogram))}"
