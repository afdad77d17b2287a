"""The tables of docs/performance.md are made from measurements, and say which system is faster."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("performance_page", ROOT / "tools" / "performance_page.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_what_is_measured(tool: ModuleType) -> None:
    page = (tool.DOCS / tool.PAGE).read_text(encoding="utf-8")
    assert tool.written(page) == page, "python tools/performance_page.py write"
    shown = {name for _, name, _ in tool.BLOCK.findall(page)}
    assert shown == {file.stem for file in (tool.DOCS / tool.MEASURED).glob("*.json")}
    assert shown <= set(tool.BENCHMARKS)


def row(name: str, size: int, median_s: float, peers: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "size": size, "ranks": 2, "median_s": median_s, "memory_fraction": 0.5, "peers": peers}


def test_an_all_reduce_is_compared_with_the_fastest_peer(tool: ModuleType) -> None:
    slow, fast = {"median_s": 4e-3}, {"median_s": 2e-3, "tuning": "Rabenseifner"}
    peers = {"Open MPI": slow, "MPICH": fast, "Gloo": {"error": "none"}, "a copy by each": {"median_s": 1e-6}}
    rows = [row(name, 4096, 1e-3, peers) for name in ("ring", "shared-memory", "shared window")]
    lines = list(tool.all_reduces(rows))
    assert lines[2] == "| 4 KiB | 1.00 | 1.00 | 1.00 | 4.00 | 2.00 | – |"
    assert lines[-1] == "| 4 KiB | MPICH (Rabenseifner) | 2.00 | 2.00 | 2.00 | 2.00 | 0.50 |"


def test_a_table_stands_in_its_place(tool: ModuleType, tmp_path: Path) -> None:
    peers = {"torchrun": {"median_s": 0.2, "ratio": 2.0}}
    kept = {"command": "farandole bench launch", "date": "2026-01-01", "cores": 2, "processor": "x"}
    (tmp_path / "measured").mkdir()
    rows = [row("one step", 4, 0.1, peers), row("two steps", 4, None, {})]  # type: ignore[arg-type]
    (tmp_path / "measured" / "launch.json").write_text(json.dumps(kept | {"rows": rows}))
    page = tool.written("before\n<!-- measured: launch -->\nold\n<!-- end -->\nafter\n", tmp_path)
    assert page.splitlines() == [
        "before",
        "<!-- measured: launch -->",
        "|  | ms | torchrun |",
        "|---|---|---|",
        "| one step | 100 | 2.00 |",
        "| two steps | – | – |",
        "",
        "`farandole bench launch`, 2026-01-01, 2 cores of x.",
        "",
        "<!-- end -->",
        "after",
    ]
    assert tool.written(page, tmp_path) == page


def beside(median_s: float, ratio: float) -> dict[str, float]:
    return {"median_s": median_s, "ratio": ratio}


def test_steps_have_a_line_for_each_model(tool: ModuleType) -> None:
    peers = {"torch DDP": beside(3e-3, 3.0), "Horovod": {"error": "none"}, "our ring": beside(1e-3, 1.0)}
    rows = [row(f"{model}: {name}", 4, 1e-3, peers) for model in ("small", "large") for name in ("ring", "window")]
    assert list(tool.steps(rows))[2:] == [
        "| small | 1.00 (3.00, –) | 1.00 (3.00, –) |", "| large | 1.00 (3.00, –) | 1.00 (3.00, –) |",
    ]  # fmt: skip


def test_a_servers_other_ways_stand_below_its_peers(tool: ModuleType) -> None:
    rows = [row("push and pull", 4, 0.01, {"Ray": beside(0.02, 2.0), "1 copy": beside(0.001, 0.1)}),
            row("by messages", 4, 0.03, {"push and pull": beside(0.01, 1 / 3)})]  # fmt: skip
    assert list(tool.servers(rows))[2:] == [
        "| *push and pull* | 10.0 |  | 0.50 |", "| Ray | 20.0 | 2.00 |  |", "| 1 copy | 1.00 | 0.10 |  |",
        "| ours, by messages | 30.0 | 3.00 | 0.50 |",
    ]  # fmt: skip


def test_a_schedule_stands_beside_torchs_of_the_same_order(tool: ModuleType) -> None:
    peers = {"Schedule1F1B": beside(0.2, 2.0), "ScheduleGPipe": beside(0.3, 3.0), "ScheduleX": {"error": "hangs"}}
    own = {"layer split": beside(0.4, 4.0), "computing alone": beside(0.09, 0.9)}
    rows = [row("1f1b, 8 samples", 4, 0.1, peers | own),
            row("gpipe, 8 samples", 4, 0.1, {"ScheduleGPipe": beside(0.2, 2.0)} | own)]  # fmt: skip
    rows = [each | {"computing_alone_at_best": 0.96} for each in rows]
    assert list(tool.pipelines(rows))[2:] == [
        "| 1f1b, 8 samples | 100 | 2.00 | 3.00 to 3.00 | 4.00 | 0.90 | 0.96 | 0.94 |",
        "| gpipe, 8 samples | 100 | 2.00 |  | 4.00 | 0.90 | 0.96 | 0.94 |",
    ]  # fmt: skip


def test_what_protection_costs_is_apart_from_recovery(tool: ModuleType) -> None:
    peers = {"restart": beside(4.0, 40.0), "torchrun elastic": beside(5.0, 50.0)}
    rows = [row("spare", 4, 0.1, peers), row("a backup every step", 4, 0.01, {"none": beside(0.009, 0.9)})]
    found = list(tool.recoveries(rows))
    assert "| spare | 100 | 50.00 |" in found
    assert "| *torchrun elastic* | 5000 |  |" in found
    assert found[-1] == "| a backup every step | 10.0 | 0.90 |"


def test_a_checkpoints_bandwidth_is_that_to_the_disk(tool: ModuleType) -> None:
    rows = [row(name, 64 << 20, seconds, {"torch DCP": beside(0.25, 1.0)})
            for name, seconds in (("stall", 0.125), ("until on the disk", 0.5))]  # fmt: skip
    assert list(tool.checkpoints(rows))[2:] == [
        "| 64 MiB | stall | 125 | 250 |  |", "| 64 MiB | until on the disk | 500 | 250 | 128 |",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.1234, "123"), (0.01, "10.0"), (2e-5, "0.0200"), (1.234, "1234"), (None, "–")]
)
def test_milliseconds_have_three_digits(tool: ModuleType, seconds: float | None, shown: str) -> None:
    assert tool.short(seconds) == shown
