"""`farandole bench allreduce`: every competitor computes the sum, and the rows show the measurements.

The bench itself checks every sum after each round; here vectors are short and rounds few.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from farandole import LaunchError
from farandole.cli import main
from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.costs import Link, Machine, predicted_s
from farandole.collectives.schedules import SCHEDULES
from farandole.runtime import rank_starter
from farandole.runtime.launcher import run_ranks
from farandole_tools.bench import allreduce, mpi_peers
from farandole_tools.bench.allreduce_names import ADD, COPY, OURS
from farandole_tools.bench.command import bench
from farandole_tools.bench.interleaved_timing import medians
from farandole_tools.bench.mpi_peers import TUNED, Setting

MACHINE = Machine(Link(alpha=20e-6, beta=0.5e-9), gamma=0.1e-9)
SHORT, LONG = 4 << 10, 16 << 20
SETTINGS = [Setting("A", "A 1.0", "one", {}), Setting("A", "A 1.0", "two", {}), Setting("B", "B 2.0", "one", {})]
NO_OTHERS: dict[int, dict[str, float]] = {SHORT: {}, LONG: {}}


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
            assert peer["version"]
            assert peer["tuning"]
        assert row["bus_bytes_per_s"] == pytest.approx(4 / 3 * row["size"] / row["median_s"])
        assert ("model" in row) == (row["name"] in allreduce.MODELLED)
    assert picture.stat().st_size > 10_000


def test_large_vectors_have_a_launch_for_each_system(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[bool, tuple[list[list[str]], list[int]]] = {}

    def medians(_: str, launches: list[list[str]], sizes: dict[int, int], *__: Any) -> dict[int, dict[str, float]]:
        seen[len(seen) > 0] = launches, list(sizes)
        return {size: {name: 1e-9 * size for names in launches for name in names} for size in sizes}

    monkeypatch.setattr(allreduce, "medians", medians)
    usual, large = allreduce.rows(4), allreduce.rows(4, large=True)
    (together, *apart), sizes = seen[False]
    assert [len(names) for names in apart] == [1] * len(apart)
    assert seen[True] == ([*([name] for name in together), *apart], [256 << 20, 1 << 30])
    assert {row["size"] for row in usual} == set(sizes) == set(allreduce.SIZES)
    assert {row["size"] for row in large} == {256 << 20, 1 << 30}
    [said] = allreduce.notes(large)
    assert str(said).startswith("the fastest of ours: 256 MiB: "), "and no model, whose α long vectors cannot show"


def test_a_bench_command_starts_ranks_from_a_process_that_has_not_started_mpi() -> None:
    """MPI would make a session folder, which would stay if the command is interrupted."""
    names = ("allreduce", "checkpoint", "dynamic", "methods", "pipeline", "ps", "recovery", "step")
    imports = "\n".join(f"import farandole_tools.bench.{name}" for name in names)
    show = f"{imports}\nimport sys\nprint('mpi4py.MPI' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", show], capture_output=True, text=True).stdout == "False\n"


def rows_of_a_model(others_mpis: Mapping[int, dict[str, float]] = NO_OTHERS) -> list[dict[str, Any]]:
    """Each schedule takes the model's time; everything else is faster, but slower with a long vector."""
    found = {}
    for size, others in {SHORT: 2e-6, LONG: 2.0}.items():
        found[size] = dict.fromkeys(OURS, others) | {"shared window": others / 2, "mpi": 3e-3}
        found[size] |= {name: predicted_s(SCHEDULES[name][0], 4, size, MACHINE) for name in allreduce.MODELLED}
        found[size] |= {COPY: 1e-3, ADD: MACHINE.gamma * size} | others_mpis[size]
    return allreduce.composed(found, {"Horovod": "not here", "Gloo": "not here"}, 4, SETTINGS)


def test_the_notes_recover_the_cost_model_behind_the_times() -> None:
    rows = rows_of_a_model()
    modelled = [row for row in rows if "model" in row]
    assert [row["model"]["predicted_s"] for row in modelled] == pytest.approx([row["median_s"] for row in modelled])
    fastest, *_, figures, table = allreduce.notes(rows)
    assert fastest == "the fastest of ours: 4 KiB: shared window; 16 MiB: halving-doubling"
    assert figures == "the model: α = 20 µs, β = 0.5 ns a byte, γ = 0.1 ns a byte"
    assert isinstance(table, Table)
    ranks, shortest, *_, longest = (list(column.cells) for column in table.columns)
    assert set(shortest) == {"doubling"}, "the fewest messages"
    best = dict(zip(ranks, longest, strict=True))
    assert best.pop("3") == best.pop("7") == "ring", "halving-doubling folds the extra ranks in"
    assert set(best.values()) == {"halving-doubling"}, "the bytes of the ring in fewer messages"


def test_of_each_mpi_the_fastest_setting_counts() -> None:
    rows = rows_of_a_model({SHORT: {"A: one": 3e-6, "A: two": 1e-6}, LONG: {"A: one": 1.0}})
    assert {row["size"]: row["peers"]["A"]["tuning"] for row in rows} == {SHORT: "two", LONG: "one"}
    for row in rows:
        assert row["peers"]["A"]["ratio"] == {SHORT: 1e-6, LONG: 1.0}[row["size"]] / row["median_s"]
        assert row["peers"]["A"]["version"] == "A 1.0"
        assert row["peers"]["B"]["error"] == "no launch of it succeeded"
    assert allreduce.notes(rows)[1] == "the fastest of A: 4 KiB: two; 16 MiB: one"


def test_an_open_mpi_as_installed_counts_among_its_settings() -> None:
    tuned = Setting(TUNED, "Open MPI 5", "ring", {})
    found = {"mpi": 1.0, str(tuned): 2.0}
    assert allreduce.best(TUNED, [tuned], found, 2.0)["tuning"] == "as installed"
    assert allreduce.best(TUNED, [tuned], found | {"mpi": 3.0}, 2.0)["ratio"] == 1.0


def test_a_setting_is_measured_in_an_environment_of_its_own() -> None:
    """Both reach MPI: the one that it refuses has no median, and the others have theirs."""
    settings = {
        "fits": ("mpi", {"OMPI_MCA_coll_tuned_priority": "99"}),
        "is refused": ("mpi", {"OMPI_MCA_coll": "no_such_component"}),
    }
    found = medians(allreduce.ROUNDS_PROGRAM, [["copy"]], {SHORT: 1}, 2, 1, settings)
    assert found[SHORT].keys() == {"copy", "fits"}


def test_every_setting_of_another_mpi_names_that_mpi_and_no_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_peers, "_installed", lambda package: Path("/", package))
    settings = mpi_peers.settings()
    assert len({str(each) for each in settings}) == len(settings)
    for each in settings:
        own = each.peer == TUNED
        assert (each.environment.get("FARANDOLE_MPIRUN") is None) == own
        assert (each.environment.get(rank_starter.MODULE) is None) == own


@pytest.mark.soak
def test_another_mpi_is_installed_once_and_sums_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for peer, package in (("MPICH", mpi_peers.MPICH), ("Intel MPI", mpi_peers.INTEL_MPI)):
        folder = mpi_peers._installed(package)
        monkeypatch.setattr(mpi_peers.subprocess, "run", None)
        assert mpi_peers._installed(package) == folder
        monkeypatch.undo()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        [first, *_] = (each for each in mpi_peers.settings() if each.peer == peer)
        found = medians(allreduce.ROUNDS_PROGRAM, [], {SHORT: 2}, 2, 1, {peer: ("mpi", first.environment)})
        assert found[SHORT][peer] > 0


def test_the_table_has_the_bus_bandwidth(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(allreduce, "rows", lambda ranks: rows_of_a_model())
    monkeypatch.setenv("COLUMNS", "80")
    bench("allreduce")
    printed = capsys.readouterr().out
    assert "GB/s: the bus bandwidth" in printed
    # 4 KiB in 1 µs, and each of 4 ranks' links carries 1.5 times as much.
    # The memory needs two thirds of an addition's 0.41 µs.
    assert ["shared", "window", "4", "4", "0.001", "6.14", "0.27"] in [
        line.split()[:7] for line in printed.splitlines()
    ]


def test_a_wrong_sum_is_detected(tmp_path: Path) -> None:
    program = tmp_path / "lazy.py"
    program.write_text(
        "from farandole_tools.bench import allreduce_rounds, allreduce_systems\n"
        "allreduce_systems.ALL_REDUCES['mpi'] = lambda comm, vector: None\n"
        "allreduce_rounds.main()\n"
    )
    with pytest.raises(LaunchError, match="mpi: 1024 of 1024 sums are wrong"):
        run_ranks([str(program), "[[4096, 1]]", "copy", "mpi"], 2)
