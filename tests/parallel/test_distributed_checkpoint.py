"""Checkpoints that another layout reads: pairs of up to fifteen layouts, plain files, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from farandole import UsageError, launch
from farandole.distributed_checkpoint.reader import MANIFEST, Checkpoint
from farandole.models.classifiers import mlp
from farandole.runtime.buffers import sha256

SMALL = {"steps": 2, "hidden": 16, "depth": 2, "batch": 64, "optimizer": "adam", "lr": 0.01}
PERCEPTRON = {"data": "digits", "hidden": 8, "depth": 4, "batch": 1437}
LETTERS = {"task": "tests/tasks/letters.py", "batch": 24}
TRANSFORMER = (LETTERS | {"layouts": ["tensor", "pipeline × tensor", "ZeRO-3"]}, "each", 7)
EXPERTS = ({"experts": True}, "each", 5)


@pytest.mark.parametrize(
    "models",
    [
        pytest.param([(PERCEPTRON, "each", 11), TRANSFORMER], id="perceptron and transformer"),
        pytest.param([(PERCEPTRON, "all", 11)], id="perceptron, all pairs", marks=pytest.mark.soak),
        pytest.param([(LETTERS, "each", 15)], id="transformer, all layouts", marks=pytest.mark.soak),
        pytest.param([EXPERTS], id="experts", marks=pytest.mark.soak),
    ],
)
def test_what_one_layout_saves_every_other_continues(
    under_mpirun: Callable[..., Any], models: list[tuple[dict[str, Any], str, int]], tmp_path: Path
) -> None:
    arguments = [text for model, pairs, _ in models for text in (json.dumps(model), pairs)]
    answers = under_mpirun("checkpoints_across_layouts.py", 4, str(tmp_path), *arguments)
    for answer, (model, pairs, layouts) in zip(answers, models, strict=True):
        assert answer["layouts"] == layouts
        assert answer["in_files"] == 0, "the files hold the model that has saved them, to the bit"
        assert len(answer["copied"]) == (layouts**2 if pairs == "all" else layouts)
        assert {pair: found for pair, found in answer["copied"].items() if found != 0} == {}
        assert len(answer["continued"]) == layouts, "each batch has all samples, so all layouts take the same step"
        # Adam amplifies gradients that are 0 but for rounding, like those of a key's bias.
        assert max(answer["continued"].values()) < (1e-12 if "data" in model else 1e-10)
        assert answer["moved"] > 1e-3


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    run = launch("sharded", 3, **SMALL, save=folder / "checkpoint", out=folder / "run")
    (folder / "checkpoint.sha256").write_text(run.summary.params_sha256[0])
    return folder / "checkpoint"


def test_the_full_state_dict_of_divided_ranks_is_the_trained_model(saved: Path, tmp_path: Path) -> None:
    Checkpoint(saved).export(tmp_path / "model.safetensors")
    model = mlp((1, 8, 8), 10, 16, 2)
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert sha256(model) == saved.with_suffix(".sha256").read_text()


def test_what_one_rank_saves_plain_safetensors_reads(saved: Path, tmp_path: Path) -> None:
    run = launch("tensor_split", 1, **SMALL, load=saved, save=tmp_path / "one", out=tmp_path / "run")
    tensors = load_file(tmp_path / "one" / "rank-0.safetensors")
    model = mlp((1, 8, 8), 10, 16, 2)
    assert {name for name in tensors if not name.startswith("optimizer.")} == model.state_dict().keys()
    model.load_state_dict({name: tensors[name] for name in model.state_dict()})
    assert [sha256(model)] == run.summary.params_sha256
    before = dict(Checkpoint(saved).tensors())
    assert before.keys() == tensors.keys()
    assert all(not torch.equal(before[name], tensors[name]) for name in tensors), "it has trained on"


def test_what_does_not_fit_is_refused(saved: Path, tmp_path: Path) -> None:
    def refused(line: str, scenario: str = "layer_split", ranks: int = 1, **options: Any) -> None:
        with pytest.raises(UsageError, match=line):
            launch(scenario, ranks, **{**SMALL, "out": tmp_path / "run", **options})
        assert not (tmp_path / "run").exists()

    refused("manifest.json cannot be read .*: give the folder of a whole checkpoint", load=tmp_path)
    refused(r"has 1.weight of shape 16 × 64, the model one of shape 8 × 64: give", load=saved, hidden=8)
    refused("has no optimizer.velocity.1.weight: give a checkpoint of the same", load=saved, optimizer="momentum")
    refused(r"--save \S+ is not empty: give a new folder", save=saved)
    refused("are for a pipeline without --spares", "pipeline", 3, spares=1, load=saved)
    torn = tmp_path / "torn"
    torn.mkdir()
    for file in saved.iterdir():
        (torn / file.name).write_bytes(file.read_bytes())
    (torn / "rank-1.safetensors").write_bytes(b"torn")
    refused(r"rank-1.safetensors is missing or damaged .*: give the folder of a whole", load=torn)
    manifest = json.loads((saved / MANIFEST).read_text())
    manifest["tensors"]["1.weight"]["pieces"].pop()
    (torn / MANIFEST).write_text(json.dumps(manifest))
    refused(r"has \d+ of 1024 elements of 1.weight: give the folder of a whole", load=torn)
