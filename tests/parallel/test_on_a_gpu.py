"""Ranks that share cards (`--share-cards`) exchange data through pinned memory, which MPI can read.

Each scenario, with what differs in its way to the card and back, against the same run on the processor: the same bytes,
and losses that differ by rounding. On the card for tests (tests/card), whose kernels are the processor's, there is no
other rounding: the same parameters, bit by bit. Only fused attention picks another kernel there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from farandole import Run, launch
from farandole.errors import UsageError
from farandole.methods import METHODS
from farandole.runtime.launcher import run_ranks

CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
)
BY_LAYERS = {"balance": "layers"}  # the other way to cut a model into stages measures times
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
    ("layer_split", 2, BY_LAYERS),
    ("pipeline", 2, BY_LAYERS | {"schedule": "zero-bubble"}),
    ("pipeline", 2, BY_LAYERS | {"schedule": "pipedream"}),
    ("pipeline", 2, BY_LAYERS | {"schedule": "zb-v", "depth": 7}),
    ("pipeline", 2, BY_LAYERS | {"schedule": "dualpipe", "depth": 7}),
    ("pipeline", 2, TEXT | BY_LAYERS | {"recompute": "selective", "unfused_attention": True}),
    ("pipeline", 2, TEXT | BY_LAYERS | {"offload_activations": "disk"}),
    ("tensor_split", 2, {}),
    ("hybrid", 4, BY_LAYERS | {"pipeline_ranks": 2, "optimizer": "adam", "lr": 0.003, "shard_optimizer": True}),
    ("context_parallel", 2, LANGUAGE),
    ("expert_parallel", 2, LANGUAGE),
    ("grid", 4, SIX_AXES | {"shard_ranks": 2, "tensor_ranks": 2}),
    ("grid", 4, SIX_AXES | {"pipeline_ranks": 2, "context_ranks": 2, "recompute": "full"}),
    ("grid", 4, SIX_AXES | {"expert_ranks": 2, "data_ranks": 2, "experts": 4}),
    ("parameter_server", 4, {"sync": "bsp"}),
    ("parameter_server", 5, {"sync": "bsp", "servers": 2, "compressor": "qsgd"}),
    ("restart", 2, {"dropout": 0.0, "checkpoint_every": 5}),
    ("small_network", 2, {"epochs": 1}),
    ("sync_sgd", 2, {"model": "cnn", "hidden": 16}),
    ("sync_sgd", 2, {"precision": "float16"}),
    ("search", 2, {"trials": 4}),
    ("sync_cost", 2, {"steps": 16}),
    ("online", 4, {"steps": None}),
]
WITH_FOUR_RANKS = [(scenario, 4, options) for scenario, ranks, options in CASES if ranks == 2]
TWO_HEADS: list[tuple[str, int, dict[str, Any]]] = [  # which cannot be divided over four ranks
    ("tensor_split", 2, TEXT | {"sequence_parallel": True}),
    ("context_parallel", 2, LANGUAGE | {"attention": "ulysses"}),
]
CASES += TWO_HEADS
FOUR_HEADS = {"hidden": 64, "lr": 0.01}  # with the usual lr rounding grows in 20 steps
WITH_FOUR_RANKS += [(scenario, 4, options | FOUR_HEADS) for scenario, _, options in TWO_HEADS]
# A rank dies, and what the others compute afterwards does not depend on when they noticed. make test runs the first.
WITH_A_DEATH: list[tuple[str, int, dict[str, Any]]] = [
    ("parameter_server", 5, {"sync": "bsp", "servers": 2, "replicas": 2, "hidden": 32, "fail": "rank=1,step=9"}),
    ("membership", 3, {"dropout": 0.0, "fail": "rank=2,step=7"}),
    ("elastic_diloco", 3, {"dropout": 0.0, "period": 5, "fail": "rank=2,step=7"}),
    ("backup", 4, KILLED | {"spares": 1}),
    ("backup", 3, KILLED | {"optimizer": "adam", "lr": 0.003, "shard_optimizer": True}),
]
# Their results depend on when messages arrive, or on the ranks' speed.
BY_TIME: list[tuple[str, int, dict[str, Any]]] = [
    ("parameter_server", 5, {"sync": "async", "servers": 2, "replicas": 1, "fail": "rank=3,step=9"}),
    ("parameter_server", 4, {"sync": "ssp"}),
    ("ad_psgd", 3, {}),
    ("dynamic_sync", 2, {}),
    ("downpour", 3, {}),
    ("adaptive", 2, {}),
]
# Gloo sends the memory of cards that it knows, so not of the card for tests.
DDP: list[tuple[str, int, dict[str, Any]]] = [("ddp_sgd", 2, {}), ("ddp_sgd", 2, TEXT | {"accumulate": 2})]
SERVED = ("parameter_server", "online")  # workers ask the server again until it answers
# A Horovod must be built for cards; FSDP needs NCCL, and so a card for each rank; sparse rows are computed by numpy.
WITHOUT_A_CASE = {"horovod_sgd", "elastic_horovod", "fsdp_sgd", "hybrid_parameters"}


def on_cards(mark: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Run a test on cards of CUDA where there are any, and on the card for tests with this mark."""
    return pytest.mark.parametrize("device", [pytest.param("card", marks=mark), CUDA], indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """The kind of card that --device auto takes."""
    if request.param == "card":
        request.getfixturevalue("card_for_tests")
    return str(request.param)


def on(device: str, scenario: str, ranks: int, options: dict[str, Any], folder: Path) -> Run:
    named = {"steps": 20} | options if "epochs" not in options else options
    given = {name: value for name, value in named.items() if value is not None}
    shares = {} if device == "cpu" else {"share_cards": True}
    run = launch(scenario, ranks, **given, **shares, device=device, out=folder / device, timeout_s=150)
    assert (run.summary.device == "cpu") == (device == "cpu")
    return run


def compare(device: str, scenario: str, ranks: int, options: dict[str, Any], folder: Path) -> None:
    if device == "card":  # it draws the processor's random numbers, and a recovery has to continue with them
        options = {name: value for name, value in options.items() if name != "dropout"}
    on_card, on_processor = (on(each, scenario, ranks, options, folder) for each in ("auto", "cpu"))
    assert on_card.summary.device.startswith(device)
    assert "cudnn.deterministic, no TF32" in on_card.summary.versions["arithmetic"]
    assert "arithmetic" not in on_processor.summary.versions
    counts = [len(set(run.summary.params_sha256 or [])) for run in (on_card, on_processor)]
    assert counts[0] == counts[1], "as many different parameters as on the processor"
    if "fail" not in options and scenario not in SERVED:
        assert on_card.summary.bytes_sent == on_processor.summary.bytes_sent
    losses = [[line["loss"] for line in run.metrics] for run in (on_card, on_processor)]
    attention_is_fused = "hidden" in options and options.get("model") != "cnn" and not options.get("unfused_attention")
    if device == "card" and not attention_is_fused:
        assert losses[0] == losses[1]
        assert on_card.summary.params_sha256 == on_processor.summary.params_sha256
    else:
        assert losses[0] == pytest.approx(losses[1], rel=1e-5 if device == "card" else 1e-2)


@on_cards(pytest.mark.soak)  # test_card_for_tests.py has a case of each kind, in one launch
@pytest.mark.parametrize(("scenario", "ranks", "options"), CASES)
def test_a_card_learns_what_the_processor_learns(
    device: str, scenario: str, ranks: int, options: dict[str, Any], tmp_path: Path
) -> None:
    compare(device, scenario, ranks, options, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("device", ["card"], indirect=True)
@pytest.mark.parametrize(("scenario", "ranks", "options"), WITH_FOUR_RANKS)
def test_so_do_four_ranks(device: str, scenario: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    compare(device, scenario, ranks, options, tmp_path)


@on_cards(pytest.mark.one_in(len(WITH_A_DEATH)))
@pytest.mark.parametrize(("scenario", "ranks", "options"), WITH_A_DEATH)
def test_a_death_changes_no_more_on_a_card(
    device: str, scenario: str, ranks: int, options: dict[str, Any], tmp_path: Path
) -> None:
    compare(device, scenario, ranks, options, tmp_path)


@pytest.mark.parametrize("device", [CUDA], indirect=True)
@pytest.mark.parametrize(("scenario", "ranks", "options"), DDP)
def test_ddp_learns_on_a_card_what_it_learns_on_the_processor(
    device: str, scenario: str, ranks: int, options: dict[str, Any], tmp_path: Path
) -> None:
    compare(device, scenario, ranks, options, tmp_path)


@on_cards(pytest.mark.soak)
@pytest.mark.parametrize(("scenario", "ranks", "options"), BY_TIME)
def test_it_learns_on_a_card(device: str, scenario: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    run = on("auto", scenario, ranks, options | {"steps": 60}, tmp_path)
    assert run.summary.device.startswith(device)
    assert run.summary.final_loss is not None
    assert run.summary.final_loss < run.metrics[0]["loss"]


def test_every_scenario_has_a_case() -> None:
    assert {scenario for scenario, _, _ in CASES + WITH_A_DEATH + BY_TIME + DDP} | WITHOUT_A_CASE == set(METHODS)


@pytest.mark.parametrize("device", [CUDA], indirect=True)
@pytest.mark.parametrize("options", [{}, {"collective": "mpi"}, {"overlap": True, "bucket_kb": 64}])
def test_direct_trains_as_staged(device: str, options: dict[str, Any], tmp_path: Path) -> None:
    """`test_card_for_tests.py` covers the card for tests."""
    named: dict[str, Any] = options | {"steps": 20, "device": device, "share_cards": True}
    try:
        direct = launch("sync_sgd", 2, **named, card_transport="direct", out=tmp_path / "direct")
    except UsageError as refused:
        pytest.skip(str(refused))
    staged = launch("sync_sgd", 2, **named, card_transport="staged", out=tmp_path / "staged")
    assert [place["transport"] for place in direct.summary.places] == ["direct"] * 2
    assert direct.summary.params_sha256 == staged.summary.params_sha256


@pytest.mark.parametrize("device", [CUDA], indirect=True)
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_mixed_precision(device: str, precision: str, tmp_path: Path) -> None:
    half = launch(
        "sync_sgd",
        2,
        steps=200,
        precision=precision,
        export=True,
        device=device,
        share_cards=True,
        out=tmp_path / "half",
    )
    full = launch("sync_sgd", 2, steps=200, device=device, share_cards=True, out=tmp_path / "full")
    assert half.summary.test_accuracy == pytest.approx(full.summary.test_accuracy, abs=0.03)
    assert (tmp_path / "half" / "model.pt2").exists()


@on_cards(pytest.mark.one_in(4))
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("backup", {"backup_every": 3, "fail": "rank=1,step=7"}),
        ("local_sgd", {"period": 5}),
        ("dpsgd", {"topology": "ring"}),
        ("parameter_server", {"place": "servers=0,workers=1-2", "sync": "bsp"}),
    ],
)
def test_a_loop_of_ones_own_equals_one_process(
    device: str, method: str, options: dict[str, Any], tmp_path: Path
) -> None:
    program = str(Path(__file__).parent / "programs" / "own_loop_methods.py")
    words = [method, json.dumps({"device": "auto", "share_cards": True} | options), str(tmp_path / "run")]
    run_ranks([program, *words], 3, timeout_s=120)
    run = Run.open(tmp_path / "run")
    ends = [json.loads(file.read_text()) for file in (tmp_path / "run").glob("rank-*.json")]
    assert len(ends) == 3 - (method == "backup")
    assert run.summary.device.startswith(device)
    assert max(end["apart"] for end in ends) < 1e-9
    assert min(end["moved"] for end in ends) > 1e-2


@on_cards(pytest.mark.soak)
def test_a_search_whose_trials_move(device: str, tmp_path: Path) -> None:
    run = launch("search", 2, trials=5, steps=40, device="auto", share_cards=True, out=tmp_path / "run")
    assert run.summary.device.startswith(device)
    assert len(set(run.summary.params_sha256)) == 1
    assert sum(run.summary.messages_sent) > 0
