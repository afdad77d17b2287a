"""`farandole bench allreduce`: everyone sums up, and the rows say what was measured.

That every sum is right is checked inside, after each round; here vectors are short and rounds few.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from farandole import LaunchError
from farandole.cli import main
from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.costs import Link, Machine, predicted_s
from farandole.collectives.schedules import SCHEDULES
from farandole.runtime.launcher import run_ranks
from farandole_tools.bench import allreduce
from farandole_tools.bench.allreduce_names import ADD, COPY, OURS
from farandole_tools.bench.command import bench

MACHINE = Machine(Link(alpha=20e-6, beta=0.5e-9), gamma=0.1e-9)
SHORT, LONG = 4 << 10, 16 << 20


def test_rows_table_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(allreduce, "SIZES", {4 << 10: 2, 256 << 10: 2})
    monkeypatch.setattr(allreduce, "SWEEPS", 1)
    picture = tmp_path / "bench.png"
    main(["bench", "allreduce", "-n", "3", "--json", "--picture", str(picture)])
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == OURS * 2
    assert set(OURS) > ALL_REDUCES.keys() - {"mpi"}
    for row in rows:
        assert row["ranks"] == 3
        assert row["peers"].keys() == {"MPI_Allreduce", "Horovod", "Gloo", "a copy by each"}
        for peer in (its for its in row["peers"].values() if "error" not in its):
            assert peer["ratio"] == pytest.approx(peer["median_s"] / row["median_s"])
        assert row["bus_bytes_per_s"] == pytest.approx(4 / 3 * row["size"] / row["median_s"])
        assert ("model" in row) == (row["name"] in allreduce.MODELLED)
    assert picture.stat().st_size > 10_000


def test_a_bench_command_starts_ranks_from_a_process_that_has_not_started_mpi() -> None:
    """MPI would make a session folder, which stays if the command is interrupted."""
    names = ("allreduce", "dynamic", "methods", "pipeline", "ps", "recovery", "step")
    imports = "\n".join(f"import farandole_tools.bench.{name}" for name in names)
    show = f"{imports}\nimport sys\nprint('mpi4py.MPI' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", show], capture_output=True, text=True).stdout == "False\n"


def rows_of_a_model() -> list[dict[str, Any]]:
    """As if each schedule took what the model says, and whatever is none were faster, but slower with a long vector."""
    found = {}
    for size, others in {SHORT: 2e-6, LONG: 2.0}.items():
        found[size] = dict.fromkeys(OURS, others) | {"shared window": others / 2, "mpi": 3e-3}
        found[size] |= {name: predicted_s(SCHEDULES[name][0], 4, size, MACHINE) for name in allreduce.MODELLED}
        found[size] |= {COPY: 1e-3, ADD: MACHINE.gamma * size}
    return allreduce.composed(found, {"Horovod": "not here", "Gloo": "not here"}, 4)


def test_the_notes_recover_the_cost_model_behind_the_times() -> None:
    rows = rows_of_a_model()
    modelled = [row for row in rows if "model" in row]
    assert [row["model"]["predicted_s"] for row in modelled] == pytest.approx([row["median_s"] for row in modelled])
    fastest, figures, table = allreduce.notes(rows)
    assert fastest == "the fastest of ours: 4 KiB: shared window; 16 MiB: halving-doubling"
    assert figures == "the model: α = 20 µs, β = 0.5 ns a byte, γ = 0.1 ns a byte"
    assert isinstance(table, Table)
    ranks, shortest, *_, longest = (list(column.cells) for column in table.columns)
    assert set(shortest) == {"doubling"}, "the fewest messages"
    best = dict(zip(ranks, longest, strict=True))
    assert best.pop("3") == best.pop("7") == "ring", "halving-doubling folds the extra ranks in"
    assert set(best.values()) == {"halving-doubling"}, "the bytes of the ring in fewer messages"


def test_the_table_has_the_bus_bandwidth(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(allreduce, "rows", lambda ranks: rows_of_a_model())
    monkeypatch.setenv("COLUMNS", "80")
    bench("allreduce")
    printed = capsys.readouterr().out
    assert "GB/s: the bus bandwidth" in printed
    # 4 KiB in 1 µs, and each of 4 ranks' links carries 1.5 times as much.
    assert ["shared", "window", "4", "4", "0.001", "6.14"] in [line.split()[:6] for line in printed.splitlines()]


def test_a_wrong_sum_is_detected(tmp_path: Path) -> None:
    program = tmp_path / "lazy.py"
    program.write_text(
        "from farandole_tools.bench import allreduce_rounds, allreduce_systems\n"
        "allreduce_systems.ALL_REDUCES['mpi'] = lambda comm, vector: None\n"
        "allreduce_rounds.main()\n"
    )
    with pytest.raises(LaunchError, match="mpi: 1024 of 1024 sums are wrong"):
        run_ranks([str(program), "[[4096, 1]]", "copy", "mpi"], 2)
