"""Ranks share one card (`--share-cards`): what they exchange goes through pinned memory, as MPI cannot read the card's.

Each scenario, with what differs in its way to the card and back, against the same run on the processor: the same bytes,
and losses that differ by rounding.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from farandole import Run, launch
from farandole.methods import METHODS
from farandole.runtime.launcher import run_ranks

NO_CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
LANGUAGE: dict[str, Any] = {"hidden": 32, "depth": 2, "batch": 16}
TEXT = {"data": "pydoc", "model": "transformer"} | LANGUAGE
SIX_AXES: dict[str, Any] = LANGUAGE | {"steps": 8}
KILLED: dict[str, Any] = {"backup_every": 3, "fail": "rank=1,step=7", "dropout": 0.0}

# Scenario, ranks, options. In float32, whose sums a card adds up in another order.
CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("sync_sgd", 2, {"collective": "ring"}),
    ("sync_sgd", 4, {"collective": "shared-memory"}),
    ("sync_sgd", 2, {"collective": "window"}),
    ("sync_sgd", 4, {"collective": "double-binary-tree"}),
    ("sync_sgd", 2, {"overlap": True, "bucket_kb": 16}),
    ("sync_sgd", 2, {"optimizer": "adam", "lr": 0.003, "weight_decay": 0.1}),
    ("sync_sgd", 2, TEXT),
    ("sync_sgd", 2, TEXT | {"accumulate": 3}),
    ("sync_sgd", 2, TEXT | {"accumulate": 3, "overlap": True, "bucket_kb": 16}),
    ("sync_sgd", 2, TEXT | {"optimizer": "muon", "lr": 0.01}),
    ("ddp_sgd", 2, {}),
    ("ddp_sgd", 2, TEXT | {"accumulate": 2}),
    ("local_sgd", 2, {"alpha": 0.5}),
    ("local_sgd", 2, {"once": True} | TEXT),
    ("diloco", 2, {"period": 5}),
    ("diloco", 2, {"period": 5, "fragments": 2}),
    ("diloco", 2, {"period": 5, "fragments": 2, "delay": 2}),
    ("agnostic_sgd", 3, {}),
    ("central_directions", 3, {}),
    ("compressed_sgd", 2, {"compressor": "float16"}),
    ("compressed_sgd", 2, {"compressor": "powersgd"}),
    ("dpsgd", 4, {}),
    ("push_sum", 3, {}),
    ("choco_sgd", 3, {}),
    ("federated", 2, {}),
    ("sharded", 2, {"stage": 1}),
    ("sharded", 2, {"stage": 2, "optimizer": "momentum", "lr": 0.05}),
    ("sharded", 2, {"stage": 3}),
    ("sharded", 2, TEXT | {"stage": 3}),
    ("sharded", 4, TEXT | {"stage": 3, "prefetch": True, "shard_over": 2}),
    ("sharded", 2, TEXT | {"stage": 3, "offload": "host", "max_norm": 1.0}),
    ("sharded", 2, TEXT | {"stage": 2, "offload": "disk"}),
    ("sharded", 2, TEXT | {"stage": 3, "optimizer": "muon", "lr": 0.01}),
    ("sharded", 2, TEXT | {"stage": 3, "recompute": "full", "accumulate": 2}),
    ("sharded", 2, TEXT | {"stage": 3, "unfused_attention": True, "recompute": "selective"}),
    ("sharded", 2, TEXT | {"stage": 3, "offload_activations": "host"}),
    ("layer_split", 2, {}),
    ("pipeline", 2, {"schedule": "zero-bubble"}),
    ("pipeline", 2, {"schedule": "pipedream"}),
    ("pipeline", 2, {"schedule": "zb-v", "depth": 7}),
    ("pipeline", 2, {"schedule": "dualpipe", "depth": 7}),
    ("pipeline", 2, TEXT | {"recompute": "selective", "unfused_attention": True}),
    ("pipeline", 2, TEXT | {"offload_activations": "disk"}),
    ("tensor_split", 2, TEXT | {"sequence_parallel": True}),
    ("tensor_split", 2, {}),
    ("hybrid", 4, {"pipeline_ranks": 2, "optimizer": "adam", "lr": 0.003, "shard_optimizer": True}),
    ("context_parallel", 2, LANGUAGE),
    ("context_parallel", 2, LANGUAGE | {"attention": "ulysses"}),
    ("expert_parallel", 2, LANGUAGE),
    ("grid", 4, SIX_AXES | {"shard_ranks": 2, "tensor_ranks": 2}),
    ("grid", 4, SIX_AXES | {"pipeline_ranks": 2, "context_ranks": 2, "recompute": "full"}),
    ("grid", 4, SIX_AXES | {"expert_ranks": 2, "data_ranks": 2, "experts": 4}),
    ("parameter_server", 4, {"sync": "bsp"}),
    ("parameter_server", 5, {"sync": "bsp", "servers": 2, "compressor": "qsgd"}),
    ("restart", 2, {"dropout": 0.0, "checkpoint_every": 5}),
    ("membership", 3, {"dropout": 0.0, "fail": "rank=2,step=7"}),
    ("backup", 4, KILLED | {"spares": 1}),
    ("backup", 3, KILLED | {"optimizer": "adam", "lr": 0.003, "shard_optimizer": True}),
    ("small_network", 2, {"epochs": 1}),
]
# What they compute depends on when messages arrive, or on how fast ranks are.
BY_TIME: list[tuple[str, int, dict[str, Any]]] = [
    ("ad_psgd", 3, {}),
    ("dynamic_sync", 2, {}),
    ("parameter_server", 4, {"sync": "ssp"}),
    ("parameter_server", 5, {"sync": "async", "servers": 2, "replicas": 1, "fail": "rank=3,step=9"}),
    ("downpour", 3, {}),
]
# Without a case: `horovod_sgd` and `elastic_horovod` need a Horovod that is built for cards.
TRAIN_OTHERWISE = {"search", "sync_cost", "adaptive", "online", "hybrid_parameters", "horovod_sgd", "elastic_horovod"}
ON: dict[str, dict[str, Any]] = {"cuda": {"device": "cuda", "share_cards": True}, "cpu": {"device": "cpu"}}


def on(device: str, scenario: str, ranks: int, options: dict[str, Any], folder: Path) -> Run:
    steps = {} if "epochs" in options else {"steps": 20}
    return launch(scenario, ranks, **steps | options, **ON[device], out=folder / device, timeout_s=150)


@pytest.mark.gpu
@NO_CARD
@pytest.mark.parametrize(("scenario", "ranks", "options"), CASES)
def test_the_card_learns_what_the_processor_learns(
    scenario: str, ranks: int, options: dict[str, Any], tmp_path: Path
) -> None:
    on_card, on_processor = (on(device, scenario, ranks, options, tmp_path) for device in ("cuda", "cpu"))
    assert on_card.summary.device.startswith("cuda")
    counts = [len(set(run.summary.params_sha256 or [])) for run in (on_card, on_processor)]
    assert counts[0] == counts[1], "as many different parameters as on the processor"
    if "fail" not in options and scenario != "parameter_server":
        assert on_card.summary.bytes_sent == on_processor.summary.bytes_sent
    losses = [[line["loss"] for line in run.metrics] for run in (on_card, on_processor)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


@pytest.mark.gpu
@NO_CARD
@pytest.mark.parametrize(("scenario", "ranks", "options"), BY_TIME)
def test_it_learns_on_a_card(scenario: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    run = on("cuda", scenario, ranks, options | {"steps": 60}, tmp_path)
    assert run.summary.device.startswith("cuda")
    assert run.summary.final_loss is not None
    assert run.summary.final_loss < run.metrics[0]["loss"]


def test_every_scenario_has_a_case() -> None:
    assert {scenario for scenario, _, _ in CASES + BY_TIME} | TRAIN_OTHERWISE == set(METHODS)


@pytest.mark.gpu
@NO_CARD
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_mixed_precision(precision: str, tmp_path: Path) -> None:
    half = launch("sync_sgd", 2, steps=200, precision=precision, export=True, **ON["cuda"], out=tmp_path / "half")
    full = launch("sync_sgd", 2, steps=200, **ON["cuda"], out=tmp_path / "full")
    assert half.summary.test_accuracy == pytest.approx(full.summary.test_accuracy, abs=0.03)
    assert (tmp_path / "half" / "model.pt2").exists()


@pytest.mark.gpu
@NO_CARD
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("local_sgd", {"period": 5}),
        ("dpsgd", {"topology": "ring"}),
        ("parameter_server", {"place": "servers=0,workers=1-2", "sync": "bsp"}),
        ("backup", {"backup_every": 3, "fail": "rank=1,step=7"}),
    ],
)
def test_a_loop_of_ones_own_equals_one_process(method: str, options: dict[str, Any], tmp_path: Path) -> None:
    program = str(Path(__file__).parent / "programs" / "own_loop_methods.py")
    words = [method, json.dumps(ON["cuda"] | options), str(tmp_path / "run")]
    run_ranks([program, *words], 3, timeout_s=120)
    run = Run.open(tmp_path / "run")
    ends = [json.loads(file.read_text()) for file in (tmp_path / "run").glob("rank-*.json")]
    assert len(ends) == 3 - (method == "backup")
    assert run.summary.device.startswith("cuda")
    assert max(end["apart"] for end in ends) < 1e-9
    assert min(end["moved"] for end in ends) > 1e-2


@pytest.mark.gpu
@NO_CARD
def test_a_search_whose_trials_move(tmp_path: Path) -> None:
    run = launch("search", 2, trials=5, steps=40, **ON["cuda"], out=tmp_path / "run")
    assert len(set(run.summary.params_sha256)) == 1
    assert sum(run.summary.messages_sent) > 0
