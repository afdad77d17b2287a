"""Measure the results in docs/performance.md, and write its tables.

    python tools/performance_page.py measure [NAME …]    run the benchmarks, and keep their rows in docs/measured/
    python tools/performance_page.py write               write the tables of docs/performance.md from these rows

A table stands between ``<!-- measured: NAME -->`` and ``<!-- end -->``. Measure on an otherwise idle machine: all of it
takes an hour. The sentences around the tables are written by hand; read them again after measuring.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, MEASURED = "performance.md", "measured"
PACKAGES = ("torch", "horovod", "ray")
BLOCK = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOT_MEASURED = "–"

Row = Mapping[str, Any]


def measure(names: Sequence[str], docs: Path = DOCS) -> None:
    """Run these benchmarks one after another, and keep each result as soon as it is there."""
    for name in names:
        words, _ = BENCHMARKS[name]
        print(f"farandole {' '.join(words)}", file=sys.stderr, flush=True)
        done = subprocess.run([sys.executable, "-m", "farandole", *words, "--json"], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.returncode)
        kept = {"command": f"farandole {' '.join(words)}", **machine(), "rows": json.loads(done.stdout)}
        folder = docs / MEASURED
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """Return the date and the machine of the measurement."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "versions": {"python": platform.python_version(), **versions},
    }


def written(page: str, docs: Path = DOCS) -> str:
    """Return the page with the tables of the kept results.

    Raises:
        KeyError: the page names a measurement that does not exist.
    """

    def table(block: re.Match[str]) -> str:
        begin, name, end = block.groups()
        kept = json.loads((docs / MEASURED / f"{name}.json").read_text(encoding="utf-8"))
        lines = [*BENCHMARKS[name][1](kept["rows"]), "", caption(kept)]
        return begin + "\n".join(lines) + "\n\n" + end

    return BLOCK.sub(table, page)


def caption(kept: Mapping[str, Any]) -> str:
    return f"`{kept['command']}`, {kept['date']}, {kept['cores']} cores of {kept['processor']}."


def all_reduces(rows: Sequence[Row]) -> Iterator[str]:
    """Yield our times and each peer's; then ours compared with the fastest peer's."""
    ours = ("shared window", "shared-memory", "ring")
    sizes = sorted({row["size"] for row in rows})
    peers = [peer for peer in rows[0]["peers"] if "copy" not in peer]
    yield from header("vector", *ours, *(f"*{peer}*" for peer in peers))
    fastest: dict[int, tuple[float, str]] = {}
    for size in sizes:
        its = {row["name"]: row for row in rows if row["size"] == size}
        theirs = {peer: its["ring"]["peers"][peer] for peer in peers}
        times = [its[name]["median_s"] for name in ours]
        yield line(binary(size), *map(short, times), *(short(each.get("median_s")) for each in theirs.values()))
        measured = {peer: each for peer, each in theirs.items() if "median_s" in each}
        best = min(measured, key=lambda peer: measured[peer]["median_s"])
        tuning = measured[best].get("tuning")
        fastest[size] = measured[best]["median_s"], f"{best} ({tuning})" if tuning else best
    yield ""
    yield from header(
        "vector", "fastest peer", "ms", *(f"its time over {name}'s" for name in ours), "window: of memory"
    )
    for size in sizes:
        its = {row["name"]: row for row in rows if row["size"] == size}
        seconds, name = fastest[size]
        ratios = (f"{seconds / its[each]['median_s']:.2f}" for each in ours)
        yield line(binary(size), name, short(seconds), *ratios, f"{its['shared window']['memory_fraction']:.2f}")


def beside_peers(rows: Sequence[Row]) -> Iterator[str]:
    """Yield one line for each row: our time, and each peer's time over it."""
    peers = list(dict.fromkeys(peer for row in rows for peer in row["peers"]))
    yield from header("", "ms", *peers)
    for row in rows:
        yield line(row["name"], short(row["median_s"]), *(ratio(row, peer) for peer in peers))


def steps(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each model: our times, and in brackets those of DDP and of Horovod over ours."""
    by_model: dict[str, dict[str, Row]] = {}
    for row in rows:
        model, _, name = row["name"].partition(": ")
        by_model.setdefault(model, {})[name] = row
    names = list(next(iter(by_model.values())))
    yield from header("model", *names)
    for model, its in by_model.items():
        cells = (
            f"{short(each['median_s'])} ({', '.join(ratio(each, peer) for peer in ('torch DDP', 'Horovod'))})"
            for each in (its[name] for name in names)
        )
        yield line(model, *cells)


def servers(rows: Sequence[Row]) -> Iterator[str]:
    """Yield our first way, then each peer, then our other ways: the times, and by how much the first is faster."""
    first, *others = rows
    yield from header("system", "ms a round", f"its time over that of *{first['name']}*", "of memory")
    yield line(f"*{first['name']}*", short(first["median_s"]), "", f"{first['memory_fraction']:.2f}")
    for peer, its in first["peers"].items():
        yield line(peer, short(its.get("median_s")), ratio(first, peer), "")
    for row in others:
        beside, of_memory = row["median_s"] / first["median_s"], row["memory_fraction"]
        yield line(f"ours, {row['name']}", short(row["median_s"]), f"{beside:.2f}", f"{of_memory:.2f}")


def pipelines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield our schedules beside torch's of the same order, its others, and a split without micro-batches."""
    own = ("layer split", "computing alone")
    columns = ("ms", "torch, same order", "torch, the others", *own, "that, at best", "reached of it")
    yield from header("schedule, samples of a micro-batch", *columns)
    for row in rows:
        same, *rest = (peer for peer in row["peers"] if peer not in own)
        ratios = sorted(its["ratio"] for peer in rest if "ratio" in (its := row["peers"][peer]))
        others = f"{ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else ""
        best = row["computing_alone_at_best"]
        reached = f"{row['peers']['computing alone']['ratio'] / best:.2f}"
        beside = ratio(row, same), others, *(ratio(row, each) for each in own)
        yield line(row["name"], short(row["median_s"]), *beside, f"{best:.2f}", reached)


def recoveries(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the time from a kill to the next step, beside each peer; then the throughput with protection."""
    protected = [row for row in rows if "none" in row["peers"]]
    killed = [row for row in rows if row not in protected]
    peers = [peer for peer in killed[0]["peers"] if peer != "restart"]
    yield from header("", "ms from the kill to the first step", *(f"over it: {peer}" for peer in peers))
    for row in killed:
        yield line(row["name"], short(row["median_s"]), *(ratio(row, peer) for peer in peers))
    for peer in peers:
        yield line(f"*{peer}*", short(killed[0]["peers"][peer].get("median_s")), *("" for _ in peers))
    yield ""
    yield from header("protection, without a failure", "ms a step", "throughput left")
    for row in protected:
        yield line(row["name"], short(row["median_s"]), ratio(row, "none"))


def chaotic(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how many ranks died, the cost of each death, and the share of the throughput that was kept."""
    yield from header("", "deaths", "seconds", "throughput kept", "seconds lost by a death", "kept at the rate")
    for row in rows:
        lost, kept = f"{row['death_costs_s']:.2f}", f"{row['kept_at_rate']:.1%}"
        yield line(row["name"], str(row["deaths"]), f"{row['seconds']:.0f}", ratio(row, "no deaths"), lost, kept)


def checkpoints(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the times of all systems, and our bandwidth to the disk in the last column."""
    peers = list(rows[0]["peers"])
    yield from header("state", "", "ours", *peers, "ours, MiB/s")
    for row in rows:
        bandwidth = "" if row["name"] == "stall" else f"{row['size'] / row['median_s'] / 2**20:.0f}"
        theirs = (short(row["peers"][peer]["median_s"]) for peer in peers)
        yield line(binary(row["size"]), row["name"], short(row["median_s"]), *theirs, bandwidth)


def ratio(row: Row, peer: str) -> str:
    found = row["peers"].get(peer, {}).get("ratio")
    return NOT_MEASURED if found is None else f"{found:.2f}"


def header(*cells: str) -> Iterator[str]:
    yield line(*cells)
    yield "|" + "---|" * len(cells)


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def short(seconds: float | None) -> str:
    """Return milliseconds in three digits."""
    if seconds is None:
        return NOT_MEASURED
    ms = seconds * 1e3
    return f"{ms:.0f}" if ms >= 100 else f"{ms:#.3g}".rstrip(".")


def binary(size: int) -> str:
    if size >= 1 << 30:
        return f"{size >> 30} GiB"
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


Table = Callable[[Sequence[Row]], Iterator[str]]
BENCHMARKS: dict[str, tuple[list[str], Table]] = {
    "allreduce-2": (["bench", "allreduce", "-n", "2", "--peers", "all"], all_reduces),
    "allreduce-4": (["bench", "allreduce", "-n", "4", "--peers", "all"], all_reduces),
    "allreduce-large": (["bench", "allreduce", "-n", "4", "--peers", "all", "--large"], all_reduces),
    "step": (["bench", "step"], steps),
    "step-large": (["bench", "step", "--large"], steps),
    "ps": (["bench", "ps"], servers),
    "pipeline": (["bench", "pipeline"], pipelines),
    "recovery": (["bench", "recovery"], recoveries),
    "recovery-large": (["bench", "recovery", "--large"], recoveries),
    "chaos": (["bench", "chaos", "-n", "8"], chaotic),
    "checkpoint": (["bench", "checkpoint"], checkpoints),
    "launch": (["bench", "launch"], beside_peers),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="run benchmarks, and keep their rows")
    measuring.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(BENCHMARKS)}; default: all")
    commands.add_parser("write", help=f"write the tables of docs/{PAGE}")
    given = parser.parse_args()
    if given.command == "write":
        page = DOCS / PAGE
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if unknown := [name for name in given.names if name not in BENCHMARKS]:
        parser.error(f"there is no measurement {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}")
    measure(given.names or list(BENCHMARKS))


if __name__ == "__main__":
    main()
