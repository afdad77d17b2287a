"""The six axes under mpirun: any factorisation trains the unsplit model, at the bytes and memory of the formulas."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import launch
from farandole.errors import UsageError

TOLERANCE, IN_A_RING, IN_FLOAT32 = 1e-12, 1e-10, 2e-6
ADAM: dict[str, Any] = {"optimizer": "adam", "lr": 0.003}
SOME: dict[str, Any] = {"experts": 4, "balance": 0.3}
# On 8 ranks: three axes of 2 in each case, and every pair of axes in one of them.
GRIDS: dict[int, list[dict[str, Any]]] = {
    1: [{"experts": 3, "capacity": 1.0, "balance": 0.3}],
    6: [{"context_ranks": 3, "expert_ranks": 2, "experts": 3, "top_k": 1},
        {"data_ranks": 3, "shard_ranks": 2, "batch": 24, "recompute": "stage"},
        {"pipeline_ranks": 2, "shard_ranks": 3, "batch": 12, "precision": "float32"}],
    8: [{"data_ranks": 2, "shard_ranks": 2, "pipeline_ranks": 2, **ADAM, "recompute": "full",
         "offload_activations": "disk"},
        {"shard_ranks": 2, "expert_ranks": 2, **SOME, "capacity": 1.0, "optimizer": "momentum", "batch": 19,
         "recompute": "selective", "unfused_attention": True},
        {"context_ranks": 2, "tensor_ranks": 2, **ADAM, "recompute": "full",
         "loaded_by": {"shard_ranks": 2, "pipeline_ranks": 2, "tensor_ranks": 2, **ADAM}},
        {"shard_ranks": 2, "context_ranks": 2, "tensor_ranks": 2, "experts": 3, "balance": 0.3, "batch": 9,
         "context": 33},
        {"pipeline_ranks": 2, "expert_ranks": 2, "context_ranks": 2, **SOME, "batch": 9,
         "schedule": "interleaved", "chunks": 2, "depth": 2},
        {"pipeline_ranks": 2, "expert_ranks": 2, "tensor_ranks": 2, "experts": 5, "top_k": 1, "capacity": 1.0,
         "schedule": "gpipe", "batch": 9}],
}  # fmt: skip


@pytest.mark.parametrize("ranks", GRIDS)
def test_every_grid_equals_the_unsplit_model(under_mpirun: Callable[..., Any], ranks: int) -> None:
    """The program asserts each axis' bytes, memory, and that ranks with the same parameters have the same bits."""
    for case, found in zip(
        GRIDS[ranks], under_mpirun("grid_equals_whole.py", ranks, json.dumps(GRIDS[ranks])), strict=True
    ):
        limit = IN_A_RING if "context_ranks" in case else IN_FLOAT32 if "precision" in case else TOLERANCE
        assert found["parameters"] <= limit, found["grid"]
        assert found["loss"] <= limit, found["grid"]
        assert found["moved"] > 0.005, found["grid"]
        assert (found["dropped"] > 0) == bool(case.get("capacity")), found["grid"]
        if "loaded_by" in case:
            assert found["resumed"] <= limit
        long = {name.removesuffix("_ranks") for name, length in case.items() if name.endswith("_ranks") and length > 1}
        long |= {"data"} if "data" in found["grid"] else set()
        sent = {what for rank in found["ranks"] for what, nbytes in rank["sent"].items() if nbytes}
        assert sent - {"counts", "gradients"} == long - {"data"}, (found["grid"], "only what is divided talks")
        assert ("gradients" in sent) == bool(long & {"data", "expert", "context"})
        for rank in found["ranks"]:
            measured, formula = rank["measured"]["activations"], rank["formula"]["activations"]
            if formula is not None:
                assert measured == pytest.approx(formula, rel=0.03), found["grid"]


def test_the_scenario_learns_and_leaves_a_complete_record(tmp_path: Path) -> None:
    axes: dict[str, Any] = {"shard_ranks": 2, "pipeline_ranks": 2, "experts": 2}
    run = launch("grid", 4, steps=16, batch=16, hidden=32, depth=1, out=tmp_path / "run", **axes)
    losses = [line["loss"] for line in run.metrics]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert run.summary.final_loss == losses[-1]
    assert run.rank_names[2] == "rank 2, shard 1, pipeline 0"
    assert run.summary.test_accuracy is not None
    memory = run.summary.memory
    assert memory is not None
    assert memory["measured"]["parameters"] == memory["formula"]["parameters"]
    spans = {event["name"] for event in run.trace}
    assert {"all-gather", "reduce-scatter", "forward 1", "backward 1", "update"} <= spans


@pytest.mark.parametrize(
    ("ranks", "options", "says"),
    [
        # How many are enough depends on the number of passages, which each Python's own text decides.
        (2, {"batch": 2}, "--batch 2 for 2 × 2 micro-batches leaves some without a sample: give at least "),
        (2, {"tensor_ranks": 2, "hidden": 16}, "1 heads of attention cannot be divided over 2 ranks: use at most 1"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, ranks: int, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as told:
        launch("grid", ranks, out=tmp_path / "run", **options)
    assert says in str(told.value)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()
