"""Which rank computes on which card, and its record, in launches on cards that are the CPU under another name."""

from __future__ import annotations

from pathlib import Path

from farandole import Run
from farandole.runtime.launcher import run_ranks

PROGRAM = str(Path(__file__).parent / "programs" / "cards_of_ranks.py")


def train(cards: str, ranks: int, scenario: str, out: Path, *options: str) -> Run:
    words = [cards, "joined_training.py", scenario, "none", *options, "--out", str(out)]
    run_ranks([PROGRAM, *words], ranks, timeout_s=150)
    return Run(out)


def test_workers_get_the_cards_and_manager_and_server_none(tmp_path: Path) -> None:
    run = train("a,b", 4, "parameter_server", tmp_path / "run", "--steps", "2")
    places = run.summary.places
    assert [place["card"] for place in places] == [None, None, "a", "b"]
    assert all(place["host"] and place["cores"] for place in places)
    assert [place["device"] for place in places] == ["cpu"] * 4
    assert run.summary.device == "cpu"


def test_a_process_that_joins_gets_the_card_of_the_dead_rank(tmp_path: Path) -> None:
    """By its number, 3 of three cards, it would get the first, on which rank 0 computes."""
    fails = ("--fail", "rank=1,step=7", "--spawn", "1", "--steps", "20")
    run = train("a,b,c", 3, "membership", tmp_path / "run", *fails)
    assert run.summary.members == [0, 2, 3]
    assert [place["card"] for place in run.summary.places] == ["a", "c", "b"]
