"""``farandole bench checkpoint``: what is written is read back, and each time is in the right row."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole import LaunchError
from farandole.runtime.launcher import run_ranks
from farandole_tools.bench import BENCHMARKS, checkpoint
from farandole_tools.bench.checkpoint import OURS


def test_a_row_compares_our_median_with_each_peers() -> None:
    assert BENCHMARKS["checkpoint"] == checkpoint.__name__
    row = checkpoint.row("stall", 64, 4, {OURS: 0.5, "torch DCP": 1.5})
    assert {name: row[name] for name in ("name", "size", "ranks", "median_s")} == {
        "name": "stall", "size": 64, "ranks": 4, "median_s": 0.5
    }  # fmt: skip
    assert row["peers"]["torch DCP"]["ratio"] == 3


def test_all_systems_save_and_are_read_back() -> None:
    """The program compares what each way has written with the state."""
    stall, written = checkpoint.rows(2, {1 << 20: 1})
    assert (stall["name"], written["name"]) == ("stall", "until on the disk")
    assert stall["size"] == written["size"] == 1 << 20
    assert set(stall["peers"]) == {"torch DCP async", "torch DCP", "torch.save by rank 0"}
    assert 0 < stall["median_s"] <= written["median_s"]
    for peer, its in written["peers"].items():
        assert 0 < stall["peers"][peer]["median_s"] <= its["median_s"]


def test_what_reads_back_something_else_is_not_timed(tmp_path: Path) -> None:
    program = tmp_path / "forgetful.py"
    program.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from farandole_tools.bench import checkpoint_rounds\n"
        "def read(self, state):\n"
        "    return {name: 0 * each for name, each in state.items()}\n"
        "checkpoint_rounds.ByRank0.read, checkpoint_rounds.timed = read, None\n"
        "checkpoint_rounds.main(Path(sys.argv[1]), [(1 << 20, 1)])\n"
    )
    with pytest.raises(LaunchError, match="rank 0 has other values"):
        run_ranks([str(program), str(tmp_path)], 2)
