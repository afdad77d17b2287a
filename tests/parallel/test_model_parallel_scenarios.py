"""The model-parallel scenarios as a user runs them: they learn, their records are complete, bad input is reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole import Run, launch
from farandole.cli import main
from farandole.errors import UsageError
from farandole.model_parallel.checker import execute
from farandole.model_parallel.schedules import NAMES, choose
from farandole.model_parallel.steps import Computation, Update
from farandole.report.pipeline_picture import measured

PACE_MS = 60  # long against a message on a busy machine


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("scenario", "ranks", "options"),
    [
        ("layer_split", 3, {}),
        ("pipeline", 4, {"schedule": "zero-bubble"}),
        # Its delays depend on the cut: with one by measured times it learns differently from run to run.
        ("pipeline", 4, {"schedule": "pipedream", "balance": "layers"}),
        ("tensor_split", 3, {}),
        ("hybrid", 4, {"pipeline_ranks": 2, "optimizer": "adam", "lr": 0.003, "shard_optimizer": True}),
    ],
)
def test_every_mode_learns_and_leaves_a_complete_record(
    tmp_path: Path, scenario: str, ranks: int, options: dict[str, Any]
) -> None:
    run = launch(scenario, ranks, steps=150, out=tmp_path / "run", **options)
    summary = run.summary
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 0.9
    assert [line["step"] for line in run.metrics] == list(range(150))
    assert sum(line["loss"] for line in run.metrics[-20:]) < 0.2 * sum(line["loss"] for line in run.metrics[:20])
    assert summary.final_loss == run.metrics[-1]["loss"]
    assert summary.memory is not None
    assert all(len(held) == ranks for how in summary.memory.values() for held in how.values())
    assert all(name.count(",") for name in run.rank_names), "every rank's place in the grid"
    plan = json.loads((run.folder / "plan.json").read_text())
    assert plan["bounds"][-1] == len(plan["costs"])


def test_data_parallel_and_hybrid_take_the_same_steps(tmp_path: Path) -> None:
    """4 pipelines of one stage share the data as 4 ranks of sync_sgd do, and add up gradients by the same ring."""
    common: dict[str, Any] = {"steps": 20, "hidden": 32}
    hybrid = launch("hybrid", 4, out=tmp_path / "hybrid", micro_batches=1, **common).summary
    plain = launch("sync_sgd", 4, out=tmp_path / "sync", **common).summary
    assert hybrid.final_loss == pytest.approx(plain.final_loss, rel=1e-5)
    assert len(set(hybrid.params_sha256 or [])) == 1
    assert hybrid.bytes_sent == plain.bytes_sent


def test_messages_of_a_pipeline_are_counted(tmp_path: Path) -> None:
    """Bytes: an activation forward and its gradient back, for every micro-batch and border, of 32 numbers a sample."""
    run = launch("pipeline", 3, steps=5, hidden=32, batch=48, micro_batches=6, balance="layers", out=tmp_path / "run")
    one_way = 5 * 48 * 32 * 4
    assert run.summary.bytes_sent == [one_way, 2 * one_way, one_way]
    assert run.summary.messages_sent == [5 * 6, 2 * 5 * 6, 5 * 6]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "zb-h2"])  # to the executor, another zero-bubble
def test_the_recorded_passes_have_the_bubble_of_the_schedule(tmp_path: Path, name: str) -> None:
    """Replay the passes in the order in which four ranks recorded them, each for one unit of time.

    The order decides the bubble; how long this machine took does not matter. What the schedules' bubbles are is tested
    against the papers' formulas in unit/test_pipeline_schedules.py.
    """
    schedule = choose(name)
    steps, micro_batches = (1, 8) if schedule.flushes else (24, 24)
    run = launch("pipeline", 4, schedule=name, steps=steps, micro_batches=8, balance="layers", pace_ms=5,
                 hidden=16, depth=7, out=tmp_path / "run")  # fmt: skip
    recorded = measured(run, 0, steps)
    passes = [own for own in recorded.intervals if not isinstance(own.step, Update)]
    assert min(own.end - own.start for own in passes) >= 0.99 * 0.005 / schedule.chunks

    def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
        yield from (own.step for own in recorded.intervals if own.stage == stage)

    replayed = execute(replace(schedule, computations=computations), 4, micro_batches)
    assert replayed.bubble_of_total == pytest.approx(execute(schedule, 4, micro_batches).bubble_of_total)


def test_a_wait_ends_where_the_message_is_sent(tmp_path: Path) -> None:
    """Rank 1 waits through all of rank 0's passes, each three times as long as its own, and rank 0 through rank 1's."""
    options: dict[str, Any] = {"schedule": "naive", "micro_batches": 1, "steps": 6, "pace_ms": PACE_MS}
    run = launch("pipeline", 2, out=tmp_path / "run", slow="rank=0,factor=3", **options)
    events = [event for event in run.trace if event["pid"] == 1]
    assert any(event["cat"] == "wait" and "activation" in event["name"] for event in events)
    passes = 6 * 3 * PACE_MS / 1000
    assert run.summary.wait_s == pytest.approx([passes, 3 * passes], rel=0.25)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("scenario", "ranks", "options", "says"),
    [
        ("layer_split", 7, {}, "6 layers cannot be cut into 7 parts: use at most 6"),
        ("pipeline", 4, {"schedule": "interleaved", "chunks": 2}, "6 layers cannot be cut into 8 parts"),
        ("pipeline", 3, {"schedule": "interleaved", "micro_batches": 8}, "8 micro-batches are not whole groups of 3"),
        ("pipeline", 3, {"schedule": "dualpipe"}, "dualpipe takes an even number of stages, as 4, not 3"),
        ("pipeline", 2, {"micro_batches": 65}, "a pipeline's smallest batch has"),
        ("hybrid", 4, {"pipeline_ranks": 3}, "pipeline 3 × tensor 1 does not make 4 ranks"),
        ("hybrid", 4, {"data_ranks": 2, "tensor_ranks": 4}, "data 2 × pipeline 1 × tensor 4 does not make 4 ranks"),
        ("tensor_split", 3, {"model": "transformer", "data": "pydoc", "hidden": 32}, "2 heads of attention"),
        ("tensor_split", 2, {"model": "cnn"}, "cannot divide Conv2d"),
        ("small_network", 11, {}, "use at most 10 ranks"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(
    tmp_path: Path, scenario: str, ranks: int, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError) as told:
        launch(scenario, ranks, out=tmp_path / "run", **options)
    assert says in str(told.value)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists(), "nothing is written before it is known that it fits"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_document_003s_network_learns_what_one_process_learns(under_mpirun: Callable[..., Any], ranks: int) -> None:
    found = under_mpirun("small_network_equals_single.py", ranks)
    assert found["data_parallel"] < 1e-6
    assert found["model_parallel"] < 1e-6
    assert found["moved"] > found["halfway"] > 0.01, "both halves have trained it"


def test_document_003s_scenario_goes_on_where_data_parallel_ended(tmp_path: Path) -> None:
    run = launch("small_network", 2, epochs=2, out=tmp_path / "run")
    losses = [line["loss"] for line in run.metrics]
    assert len(losses) == 2 * 2 * 100
    thirds = [sum(losses[start : start + 100]) for start in (0, 100, 200, 300)]
    assert thirds == sorted(thirds, reverse=True), "each epoch is better than the one before, across the change of mode"
    assert Run.open(tmp_path / "run").summary.test_accuracy is None
    main(["show", str(run.folder)])
    assert (run.folder / "pipeline.png").is_file(), "of the half that is a pipeline"
