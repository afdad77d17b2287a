"""Two ranks share one card: their gradients and parameters go through pinned memory, as MPI cannot read the card's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from farandole import Run, launch
from farandole.runtime.launcher import run_ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
TEXT = {"data": "pydoc", "model": "transformer", "hidden": 32, "depth": 1, "batch": 16}


@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("sync_sgd", {"collective": "ring"}),
        ("sync_sgd", {"collective": "shared-memory"}),
        ("sync_sgd", {"collective": "window"}),
        ("sync_sgd", {"overlap": True, "bucket_kb": 16}),
        ("sync_sgd", {"optimizer": "adam", "lr": 0.003, "weight_decay": 0.1}),
        ("sync_sgd", TEXT),
        ("local_sgd", {"alpha": 0.5}),
        ("local_sgd", {"once": True} | TEXT),
        ("diloco", {"period": 5, "fragments": 2}),
        ("context_parallel", {"hidden": 32, "depth": 1, "batch": 16}),
        ("context_parallel", {"hidden": 32, "depth": 1, "batch": 16, "attention": "ulysses"}),
        ("compressed_sgd", {"compressor": "float16"}),
        ("compressed_sgd", {"compressor": "powersgd"}),
        ("ddp_sgd", {}),
        ("diloco", {"period": 5}),
        ("sharded", {"stage": 1}),
        ("sharded", {"stage": 2, "optimizer": "momentum", "lr": 0.05}),
        ("sharded", {"stage": 3}),
        ("sharded", TEXT | {"stage": 3}),
    ],
)
def test_the_card_learns_what_the_processor_learns(scenario: str, options: dict[str, Any], tmp_path: Path) -> None:
    on_card, on_processor = (
        launch(scenario, 2, steps=20, **options, device=device, out=tmp_path / device) for device in ("cuda", "cpu")
    )
    assert on_card.summary.device.startswith("cuda")
    assert len(set(on_card.summary.params_sha256)) == 1
    assert on_card.summary.bytes_sent == on_processor.summary.bytes_sent
    losses = [[line["loss"] for line in run.metrics] for run in (on_card, on_processor)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_mixed_precision(precision: str, tmp_path: Path) -> None:
    half = launch("sync_sgd", 2, steps=200, precision=precision, export=True, device="cuda", out=tmp_path / "half")
    full = launch("sync_sgd", 2, steps=200, device="cuda", out=tmp_path / "full")
    assert half.summary.test_accuracy == pytest.approx(full.summary.test_accuracy, abs=0.03)
    assert (tmp_path / "half" / "model.pt2").exists()


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
    words = [method, json.dumps({"device": "cuda"} | options), str(tmp_path / "run")]
    run_ranks([program, *words], 3, timeout_s=120)
    run = Run.open(tmp_path / "run")
    ends = [json.loads(file.read_text()) for file in (tmp_path / "run").glob("rank-*.json")]
    assert len(ends) == 3 - (method == "backup")
    assert run.summary.device.startswith("cuda")
    assert max(end["apart"] for end in ends) < 1e-9
    assert min(end["moved"] for end in ends) > 1e-2


def test_a_search_whose_trials_move(tmp_path: Path) -> None:
    run = launch("search", 2, trials=5, steps=40, device="cuda", out=tmp_path / "run")
    assert len(set(run.summary.params_sha256)) == 1
    assert sum(run.summary.messages_sent) > 0
