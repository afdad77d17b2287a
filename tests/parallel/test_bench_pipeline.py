"""`farandole bench pipeline`: all competitors do the same training step; one that cannot run gives the reason."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.errors import LaunchError
from farandole.runtime.launcher import run_ranks
from farandole_tools.bench import pipeline, versions
from farandole_tools.bench.command import bench
from farandole_tools.bench.pipeline_task import COMPUTING, LAYER_SPLIT, SCHEDULES, Measured, Task, compare

TINY = Task(hidden=16, depth=4, batch=8, micro_batches=4)
TORCH = list(SCHEDULES.values())
EVERYONE = [*SCHEDULES, LAYER_SPLIT, COMPUTING, *TORCH]


@pytest.mark.parametrize("ranks", [1, 2])
def test_all_systems_do_the_same_step_in_every_round(ranks: int) -> None:
    """Losses of torch's schedules, of ours and of the layer split, from the same start over three updates."""
    found = pipeline.measure(EVERYONE, ranks, TINY, rounds=3, timeout_s=600)
    assert list(found) == EVERYONE
    alone = found.pop(COMPUTING)
    assert len(alone.seconds) == 3
    assert (alone.losses == found["1f1b"].losses) == (ranks == 1), "without messages the last stage reads zeros"
    compare(found)
    for name, measured in found.items():
        assert len(measured.seconds) == 3
        assert min(measured.seconds) > 0
        chunks = 2 if "nterleaved" in name and "Zero" not in name else 1
        assert len(measured.bounds) == ranks * chunks + 1
        assert measured.losses[0] > measured.losses[1] > measured.losses[2] > 0


def test_a_system_with_another_loss_is_not_timed(tmp_path: Path) -> None:
    program = tmp_path / "lazy.py"
    program.write_text(
        "from farandole_tools.bench import pipeline_rounds\n"
        "make = pipeline_rounds.make\n"
        "def made(world, task, name):\n"
        "    system = make(world, task, name)\n"
        "    step, more = system.step, name == 'gpipe'\n"
        "    system.step = lambda: step() + more\n"
        "    return system\n"
        "pipeline_rounds.make, pipeline_rounds.slowest_s = made, None\n"
        "pipeline_rounds.main()\n"
    )
    with pytest.raises(LaunchError, match="the first round: the loss of gpipe is"):
        run_ranks([str(program), "2", *TINY.to_arguments(), "1f1b", "gpipe"], 2)


def test_a_failing_system_reports_its_reason_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = pipeline.why_not("ScheduleOfNobody", 1, TINY)
    assert unknown
    assert "KeyError: 'ScheduleOfNobody'" in unknown
    assert "\n" not in unknown
    monkeypatch.setattr(pipeline, "TRIAL_TIMEOUT_S", 0.001)  # in which no program starts, however fast the machine
    assert "was ended after 0.001 s, its time-out" in str(pipeline.why_not("Schedule1F1B", 2, TINY))


# --- the rows, without a launch ----------------------------------------------------------------------------

SECONDS = {"1f1b": 0.5, "gpipe": 1.0, LAYER_SPLIT: 2.0, COMPUTING: 0.4, "Schedule1F1B": 0.75, "ScheduleGPipe": 3.0}


def measured(seconds: float, rounds: int) -> Measured:
    warm_up = min(rounds, pipeline.WARM_UP)
    times = [100.0] * warm_up + [seconds] * (rounds - warm_up)
    return Measured([0, 1], times, [1 / (1 + number) for number in range(rounds)])


@pytest.fixture
def invented(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], Task]]:
    """Replace launches by times, with a torch whose interleaved schedule hangs; the list has the launched ones."""
    asked: list[tuple[list[str], Task]] = []

    def measure(names: Iterable[str], ranks: int, task: Task, rounds: int, timeout_s: float = 0) -> dict[str, Measured]:
        asked.append((list(names), task))
        if "ScheduleInterleaved1F1B" in asked[-1][0]:
            raise LaunchError("rank 2 waited\nwith a traceback")
        return {name: measured(SECONDS.get(name, 4.0), rounds) for name in asked[-1][0]}

    monkeypatch.setattr(pipeline, "measure", measure)
    return asked


def test_ratios_are_of_the_same_schedule_and_the_warm_up_does_not_count(invented: list[tuple[list[str], Task]]) -> None:
    rows = pipeline.rows(4)
    assert [row["name"] for row in rows] == [f"{name}, {size} samples" for size in (8, 2) for name in SCHEDULES]
    first, second, third, fourth = (row["peers"] for row in rows[:4])
    assert rows[0]["median_s"] == 0.5
    assert rows[0]["ranks"] == 4
    assert rows[0]["samples_per_s"] == 8 * 8 / 0.5, "8 micro-batches of 8 samples"
    assert [row["peers"][COMPUTING]["ratio"] for row in rows[:3]] == [0.8, 0.4, 0.1]
    assert all(0.7 < row["computing_alone_at_best"] <= 1 for row in rows)
    assert first["Schedule1F1B"] == {"median_s": 0.75, "ratio": 1.5}
    assert set(first) == {*TORCH, LAYER_SPLIT, COMPUTING}
    assert second == {
        "ScheduleGPipe": {"median_s": 3.0, "ratio": 3.0},
        LAYER_SPLIT: {"median_s": 2.0, "ratio": 2.0},
        COMPUTING: {"median_s": 0.4, "ratio": 0.4},
    }
    assert third["ScheduleInterleaved1F1B"] == {"error": "rank 2 waited"}
    assert fourth["ScheduleInterleavedZeroBubble"]["ratio"] == 1.0


def test_each_peer_is_tried_alone_and_the_rest_run_together(invented: list[tuple[list[str], Task]]) -> None:
    pipeline.rows(4)
    assert [names for names, _ in invented[:4]] == [[name] for name in TORCH]
    running = [name for name in EVERYONE if name != "ScheduleInterleaved1F1B"]
    assert [names for names, _ in invented[4:]] == [running, running]
    assert [task.batch for _, task in invented[4:]] == [64, 16]


def test_table_and_json_name_the_peers_that_could_not_run(
    invented: list[tuple[list[str], Task]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    bench("pipeline")
    assert "rank 2 waited" in capsys.readouterr().out
    bench("pipeline", json_=True)
    expected = pipeline.rows(4)
    versions.add_to(expected, pipeline.TUNING)
    assert json.loads(capsys.readouterr().out) == expected


def test_a_peer_that_computes_something_else_is_refused() -> None:
    right = measured(1.0, 3)
    compare({"first": right, "second": right})
    with pytest.raises(LaunchError, match=r"round 2: the loss of second is 0\.5, that of first 0\.333"):
        compare({"first": right, "second": replace(right, losses=[1.0, 0.5, 0.5])})
    with pytest.raises(LaunchError, match=r"second is cut at \[0, 2\], others at \[0, 1\]"):
        compare({"first": right, "second": replace(right, bounds=[0, 2])})
    with pytest.raises(LaunchError, match="does not learn"):
        compare({"first": replace(right, losses=[1.0, 1.0, 1.0])})
