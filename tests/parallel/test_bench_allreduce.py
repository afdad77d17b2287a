"""`farandole bench allreduce`: everyone sums up, and the rows say what was measured.

That every sum is right is checked inside, after each round; here vectors are short and rounds few.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from farandole import LaunchError
from farandole.bench import allreduce
from farandole.bench.allreduce_systems import OURS
from farandole.cli import main
from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.runtime.launcher import run_ranks


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

    said = "\n".join(map(str, allreduce.notes(rows)))
    assert "4 KiB: " in said
    assert "α = " in said


def test_a_wrong_sum_is_found(tmp_path: Path) -> None:
    program = tmp_path / "lazy.py"
    program.write_text(
        "from farandole.bench import allreduce_rounds, allreduce_systems\n"
        "allreduce_systems.ALL_REDUCES['mpi'] = lambda comm, vector: None\n"
        "allreduce_rounds.main()\n"
    )
    with pytest.raises(LaunchError, match="mpi: 1024 of 1024 sums are wrong"):
        run_ranks([str(program), "[[4096, 1]]", "copy", "mpi"], 2)
