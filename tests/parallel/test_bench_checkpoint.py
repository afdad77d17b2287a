"""``farandole bench checkpoint``: what is written is read back, and each time is in the right row."""

from __future__ import annotations

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
    stall, written = checkpoint.rows(2, {1 << 20: 2})
    assert (stall["name"], written["name"]) == ("stall", "until on the disk")
    assert stall["size"] == written["size"] == 1 << 20
    assert set(stall["peers"]) == {"torch DCP async", "torch DCP", "torch.save by rank 0"}
    assert 0 < stall["median_s"] <= written["median_s"]
    for peer, its in written["peers"].items():
        assert 0 < stall["peers"][peer]["median_s"] <= its["median_s"]
