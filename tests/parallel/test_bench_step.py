"""`farandole bench step`: all competitors train the same model, as the bench checks; rows show the measurements."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from farandole import LaunchError
from farandole.runtime.launcher import run_ranks
from farandole_tools.bench import interleaved_timing, step
from farandole_tools.bench.step_task import GPT2, LANGUAGE, LARGE_GPT2, OURS, RESNET, parameters


def test_rows_have_every_system_and_its_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "ROUNDS", {"0.1 M": 2, LANGUAGE: 1})
    monkeypatch.setattr(step, "SWEEPS", 1)
    monkeypatch.setattr(interleaved_timing, "WARM_UP", 1)
    rows = step.rows(2)
    assert [row["name"] for row in rows] == [f"{case}: {name}" for case in ("0.1 M", LANGUAGE) for name in OURS]
    for row in rows:
        assert row["ranks"] == 2
        assert row["size"] == 4 * parameters(row["name"].partition(":")[0])
        assert row["peers"].keys() == {"torch DDP", "Horovod", "our ring"}
        for peer in (its for its in row["peers"].values() if "error" not in its):
            assert peer["ratio"] == pytest.approx(peer["median_s"] / row["median_s"])


@pytest.mark.parametrize("right", [0, 2], ids=["at once", "later"])
def test_a_system_that_trains_something_else_is_detected(right: int, tmp_path: Path) -> None:
    """One that does so at once is not even timed: the program's timing would report another error."""
    program = tmp_path / "lazy.py"
    program.write_text(
        "from farandole_tools.bench import step_rounds\n"
        f"right = {right}\n"
        "ring, timing = step_rounds.ALL_REDUCES['ring'], step_rounds.slowest_s\n"
        "calls = []\n"
        "def lazy(comm, vector):\n"
        "    calls.append(1)\n"
        "    if len(calls) <= right:\n"
        "        ring(comm, vector)\n"
        "def timed(mpi, work):\n"
        "    assert right\n"
        "    return timing(mpi, work)\n"
        "step_rounds.ALL_REDUCES['ring'], step_rounds.slowest_s = lazy, timed\n"
        "step_rounds.main()\n"
    )
    with pytest.raises(LaunchError, match="ring trains something else"):
        run_ranks([str(program), '[["0.1 M", 2]]', "window", "ring"], 2)


@pytest.mark.parametrize(
    ("case", "count"),
    [("10 M", 10e6), ("0.1 M", 0.11e6), (LANGUAGE, 0.83e6), (GPT2, 10e6), (RESNET, 11.2e6), (LARGE_GPT2, 124e6)],
)
def test_models_have_the_documented_sizes(case: str, count: float) -> None:
    with torch.device("meta"):  # shapes without numbers
        assert parameters(case) == pytest.approx(count, rel=0.03)
