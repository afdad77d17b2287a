"""The tables of docs/performance.md are made of what is measured, and say which system is faster."""

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
    peers = {"Ray": {"median_s": 0.2, "ratio": 2.0}}
    kept = {"command": "farandole bench ps", "date": "2026-01-01", "cores": 2, "processor": "x"}
    (tmp_path / "measured").mkdir()
    rows = [row("push and pull", 4, 0.1, peers), row("by messages", 4, None, {})]  # type: ignore[arg-type]
    (tmp_path / "measured" / "ps.json").write_text(json.dumps(kept | {"rows": rows}))
    page = tool.written("before\n<!-- measured: ps -->\nold\n<!-- end -->\nafter\n", tmp_path)
    assert page.splitlines() == [
        "before",
        "<!-- measured: ps -->",
        "|  | ms | Ray |",
        "|---|---|---|",
        "| push and pull | 100 | 2.00 |",
        "| by messages | – | – |",
        "",
        "`farandole bench ps`, 2026-01-01, 2 cores of x.",
        "",
        "<!-- end -->",
        "after",
    ]
    assert tool.written(page, tmp_path) == page


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.1234, "123"), (0.01, "10.0"), (2e-5, "0.0200"), (1.234, "1234"), (None, "–")]
)
def test_milliseconds_have_three_digits(tool: ModuleType, seconds: float | None, shown: str) -> None:
    assert tool.short(seconds) == shown
