"""Models spread over ranks, by layers, by matrices and by both, are the model in one piece, update by update."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from farandole.model_parallel.schedules import NAMES
from tests.conftest import SOAK
from tests.parallel.conftest import RANKS_OF_DEAR_TESTS

# Gradients added up in another order: rounding of float64 over 4 updates.
TOLERANCE = {"float64": 1e-12, "float32": 2e-6}
TEXT = {"model": "transformer", "data": "pydoc", "hidden": 64, "depth": 2, "batch": 16}
CNN = {"model": "cnn", "depth": 2}
ADAM = {"optimizer": "adam", "lr": 0.01}
FEW = ADAM | {"lr": 0.05, "steps": 3}
HALVES = ("zero-bubble", "zb-h2", "zb-v", "dualpipe")  # schedules that take backward passes in two halves

# The core of attention, or each block, computed again: in a pipeline, in halves, between tensor ranks.
SMALL_TEXT = TEXT | {"hidden": 32, "depth": 6, "batch": 8, "steps": 1, "lr": 0.5}
IN_STAGES = {"pipeline": 4, "balance": "layers", "micro_batches": 2, "options": SMALL_TEXT}
RECOMPUTED: list[dict[str, Any]] = [
    {**IN_STAGES, "schedule": "gpipe", "recompute": "selective", "unfused": True},
    {**IN_STAGES, "schedule": "zero-bubble", "recompute": "full", "offload": "host"},
    {**IN_STAGES, "schedule": "pipedream", "recompute": "full", "offload": "disk"},
    {"pipeline": 2, "tensor": 2, "micro_batches": 2, "schedule": "1f1b", "recompute": "full", "options": SMALL_TEXT},
    {"tensor": 4, "offload": "host", "options": {"depth": 2, "steps": 1, "lr": 0.5}},
    {"tensor": 4, "sequence": True, "recompute": "selective", "unfused": True, "options": SMALL_TEXT | {"hidden": 64}},
]

Answer = list[list[dict[str, Any]]]  # one list of answers per rank, in the order of the cases
Spread = Callable[[int, list[dict[str, Any]]], Answer]


@pytest.fixture
def spread(under_mpirun: Callable[..., Any]) -> Spread:
    """Train each case on `ranks` ranks and also in one process."""

    def run(ranks: int, cases: list[dict[str, Any]]) -> Answer:
        answer: Answer = under_mpirun("parts_equal_whole.py", ranks, json.dumps(cases), timeout_s=240)
        for case, found in zip(cases, zip(*answer, strict=True), strict=True):
            limit = TOLERANCE[case.get("options", {}).get("precision", "float64")]
            assert max(rank["difference"] for rank in found) <= limit, case
            assert found[0]["moved"] > 0.03, "the model was trained at all"
            assert all(rank["left"] == 0 for rank in found), "nothing is kept after the last backward pass"
        return answer

    return run


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", RANKS_OF_DEAR_TESTS)
def test_every_schedule_equals_the_unsplit_model(spread: Spread, ranks: int) -> None:
    """PipeDream equals one process that gives each stage its version, not plain SGD."""
    groups = 2 * ranks if ranks <= 4 else ranks
    cases: list[dict[str, Any]] = [
        {"schedule": "naive", "micro_batches": 1},
        {"schedule": "naive", "micro_batches": 3},
        {"schedule": "gpipe", "micro_batches": 5, "options": ADAM},
        {"schedule": "1f1b", "micro_batches": 8},
        {"schedule": "1f1b", "micro_batches": 2, "recompute": "stage", "options": {"optimizer": "momentum", "lr": 0.1}},
        {"schedule": "zero-bubble", "micro_batches": 8},
        {"schedule": "zero-bubble", "micro_batches": 2, "recompute": "stage"},
        {"schedule": "zb-h2", "micro_batches": 8, "options": FEW},
        {"schedule": "zb-v", "micro_batches": 2 * ranks + 1, "options": FEW | {"depth": 7}},
        {"schedule": "interleaved", "micro_batches": groups, "options": {"depth": 7}},
        {"schedule": "1f1b", "micro_batches": 5, "options": CNN},
        {"schedule": "pipedream", "options": {"steps": 10}},
        {"schedule": "pipedream", "options": {"steps": 10}, "recompute": "stage"},
        {"schedule": "pipedream", "options": {"steps": 10}, "vertical_sync": True},
        {"schedule": "pipedream", "options": {"steps": 10}, "vertical_sync": True, "recompute": "stage"},
    ]
    single: dict[str, Any] = {"precision": "float32", "steps": 2, "lr": 0.5}
    new = [("zb-h2", ranks, single), ("zb-v", 2 * ranks + 1, single | {"depth": 7})]
    if ranks % 2 == 0:
        cases.insert(0, {"schedule": "dualpipe", "micro_batches": 2 * ranks, "options": FEW})
        new.append(("dualpipe", 2 * ranks, single))
    cases = [{"schedule": name, "micro_batches": parts, "options": each} for name, parts, each in new] + cases
    for case in cases:
        case |= {"pipeline": ranks, "balance": "layers"}
    for stage, found in enumerate(spread(ranks, cases)):
        for rank, vertical in zip(found[-4:], (False, False, True, True), strict=True):
            assert rank["backward_versions"] == rank["forward_versions"]
            right = [max(0, batch - (ranks - 1) + (0 if vertical else stage)) for batch in range(10)]
            assert rank["forward_versions"] == right
            assert rank["most_versions"] == (ranks if vertical else ranks - stage)
            memory = rank["memory"]
            assert memory["measured"]["parameters"] == memory["formula"]["parameters"], "every version is counted"
            assert (rank["delay_matters"] > 1e-4) == (ranks > 1)


GRIDS = {2: [(2, 1, 1), (1, 2, 1), (1, 1, 2)],
         4: [(2, 2, 1), (2, 1, 2), (1, 2, 2), (4, 1, 1)],
         6: [(2, 3, 1), (3, 1, 2), (1, 3, 2)],
         8: [(2, 2, 2)]}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", GRIDS)
def test_every_grid_equals_one_process(spread: Spread, ranks: int) -> None:
    """Any combination of the three modes, with the optimizer's state divided or not, perceptron or transformer."""
    cases: list[dict[str, Any]] = []
    for data, pipeline, tensor in GRIDS[ranks]:
        grid = {"data": data, "pipeline": pipeline, "tensor": tensor, "micro_batches": 2}
        cases.append({**grid, "schedule": "1f1b", "options": ADAM, "shard_optimizer": True})
        cases.append({**grid, "schedule": "gpipe", "options": TEXT | {"steps": 3}, "shard_optimizer": False})
        if pipeline == 2 and ranks == 4:
            cases.append({**grid, "micro_batches": 4, "schedule": "dualpipe", "options": FEW, "shard_optimizer": True})
    spread(ranks, cases)


def test_float32_stays_within_rounding(spread: Spread) -> None:
    spread(4, [{"pipeline": 4, "schedule": name, "micro_batches": 8, "options": {"precision": "float32", "depth": 7}}
               for name in NAMES if name not in ("pipedream", "zb-h2", "zb-v", "dualpipe")])  # fmt: skip


def test_memory_equals_the_formulas(spread: Spread) -> None:
    """Measured by what autograd keeps, against shapes and schedule, at 4 stages and 8 equal micro-batches."""
    options = {"batch": 48, "steps": 1, "depth": 7}
    cases = [{"pipeline": 4, "balance": "layers", "schedule": name, "micro_batches": 8, "recompute": again,
              "options": options | (ADAM | {"lr": 0.04} if name != "pipedream" else {"steps": 4})}
             for number, name in enumerate(NAMES)
             for again in (["none", "stage"] if SOAK or number % 2 == 0 else ["none"])]  # fmt: skip
    convolutional = CNN | {"batch": 48, "steps": 1, "lr": 0.5}
    cases.append({"pipeline": 4, "balance": "layers", "schedule": "1f1b", "micro_batches": 8, "options": convolutional})
    cases.append({"data": 4, "shard_optimizer": True, "options": ADAM | {"steps": 1, "lr": 0.04}})
    cases.append({"tensor": 4, "options": TEXT | {"hidden": 80, "steps": 1, "lr": 0.5}})  # 5 heads: no equal shares
    cases.extend(RECOMPUTED)
    activations: dict[str, int] = {}
    answer = spread(4, cases)
    whole = {case["schedule"]: [found[place] for found in answer]
             for place, case in enumerate(cases) if case.get("recompute") == "none"}  # fmt: skip
    for stage, found in enumerate(answer):
        for case, rank in zip(cases, found, strict=True):
            measured, formula = rank["memory"]["measured"], rank["memory"]["formula"]
            for kind in ("parameters", "gradients", "optimizer_state"):
                assert measured[kind] == formula[kind], (case, stage, kind)
            if case.get("schedule") in HALVES:  # in mid-pass a layer's gradient is kept beside its activations
                more = measured["activations"] - formula["activations"]
                gradient = 48 / 8 * 32 * 8 if "data" not in case["options"] else 8 / 2 * 64 * 4 * 32 * 8
                assert -0.03 * formula["activations"] <= more <= gradient, (case, stage)
                continue
            allowed = 0 if "tensor" in case else 0.03
            assert measured["activations"] == pytest.approx(formula["activations"], rel=allowed), (case, stage)
            if stage == 0 and case.get("recompute") == "none":
                activations[str(case["schedule"])] = measured["activations"]
    held = {name: [rank["memory"]["measured"]["parameters"] for rank in ranks] for name, ranks in whole.items()}
    assert sum(held["dualpipe"]) == 2 * sum(held["1f1b"]), "two copies of the model"
    values = [rank["ranks_values"] for rank in whole["dualpipe"]]
    assert values[:2] == values[:1:-1], "which stay the same, to the bit"
    assert activations["1f1b"] == pytest.approx(activations["gpipe"] / 2, rel=0.03), "4 micro-batches instead of 8"
