"""The simulated grid beside the scenario grid: what every rank sends in a step, to the message and the byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

# Every token is sent to all experts, so that their load is even, as it is in the simulator.
MIXED = {"experts": 4, "top_k": 4}
CASES: dict[int, list[dict[str, Any]]] = {
    2: [{"shard_ranks": 2}, {"expert_ranks": 2, **MIXED}, {"context_ranks": 2}],
    4: [{"shard_ranks": 4},
        {"expert_ranks": 4, **MIXED},
        {"context_ranks": 4},
        {"shard_ranks": 2, "pipeline_ranks": 2},
        {"shard_ranks": 2, "context_ranks": 2, **MIXED},
        {"expert_ranks": 2, "tensor_ranks": 2, **MIXED},
        {"context_ranks": 2, "tensor_ranks": 2},
        {"data_ranks": 2, "context_ranks": 2, "schedule": "gpipe"},
        {"data_ranks": 2, "expert_ranks": 2, **MIXED}],
    8: [{"shard_ranks": 2, "expert_ranks": 2, "context_ranks": 2, **MIXED},
        {"shard_ranks": 2, "pipeline_ranks": 2, "tensor_ranks": 2, **MIXED}],
}  # fmt: skip


@pytest.mark.parametrize("ranks", CASES)
def test_a_simulated_worker_sends_what_a_rank_has_sent(under_mpirun: Callable[..., Any], ranks: int) -> None:
    """The program asserts the messages and bytes of each rank, for each axis."""
    for case, found in zip(
        CASES[ranks], under_mpirun("grid_messages.py", ranks, json.dumps(CASES[ranks])), strict=True
    ):
        long = {name.removesuffix("_ranks") for name, length in case.items() if name.endswith("_ranks") and length > 1}
        sent = {what for rank in found for what, (messages, _) in rank.items() if messages}
        assert sent - {"counts", "gradients"} == long - {"data"}, case
        assert ("counts" in sent) == bool(case.get("experts"))
