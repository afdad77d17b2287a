"""A checkpoint of several ranks, combined without MPI: whole tensors, one file of them, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from farandole import Checkpoint, UsageError, cli
from farandole.distributed_checkpoint.pieces import Part, whole_box
from farandole.report.checkpoint_table import description, divided_by

OPTIMIZER = "optimizer"
WHOLES = {
    "layer.weight": torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    "layer.bias": torch.arange(4.0),
    "optimizer.weight": torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16),  # a module of this name
    "calls": torch.tensor(7),
    "optimizer.mean square.layer.weight": torch.full((4, 6), 2.0, dtype=torch.float64),
}
LEFT, RIGHT = ((0, 4), (0, 3)), ((0, 4), (3, 6))
# Two tensor ranks; the first one's part is divided over two data ranks.
CUTS: dict[str, list[tuple[int, Any, tuple[int, int]]]] = {
    "layer.weight": [(0, LEFT, (0, 5)), (1, LEFT, (5, 12)), (2, RIGHT, (0, 12))],
    "optimizer.mean square.layer.weight": [(0, ((0, 1), (0, 6)), (0, 6)), (2, ((1, 4), (0, 6)), (0, 18))],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint as three ranks write it."""
    files: list[dict[str, Tensor]] = [{}, {}, {}]
    tensors: dict[str, Any] = {}
    for name, whole in WHOLES.items():
        kind = str(whole.dtype).removeprefix("torch.")
        tensors[name] = {"shape": list(whole.shape), "dtype": kind, "pieces": []}
        for rank, box, run in CUTS.get(name, [(0, whole_box(whole.shape), (0, whole.numel()))]):
            part = Part(name, tuple(whole.shape), box, run)
            key = name if part.is_whole else f"{name} {box} {run}"
            files[rank][key] = whole.clone() if part.is_whole else part.of(whole)
            its = {"file": f"rank-{rank}.safetensors", "key": key, "box": box, "run": run}
            tensors[name]["pieces"].append(its)
    made = tmp_path / "trained"
    made.mkdir()
    for rank, held in enumerate(files):
        (made / f"rank-{rank}.safetensors").write_bytes(save(held))
    manifest = {"format": 1, "values": {OPTIMIZER: {"steps": 3}}, "tensors": tensors}
    (made / "manifest.json").write_text(json.dumps(manifest))
    return made


class Model(nn.Module):
    """The unsplit model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.layer.weight = nn.Parameter(torch.zeros(4, 6, dtype=torch.float64))
        self.optimizer = nn.Linear(2, 1, bias=False, dtype=torch.bfloat16)
        self.register_buffer("calls", torch.tensor(0))


def same(found: dict[str, Tensor], names: set[str]) -> bool:
    assert found.keys() == names
    return all(found[name].dtype == WHOLES[name].dtype and torch.equal(found[name], WHOLES[name]) for name in names)


def test_the_whole_model_comes_back_and_plain_safetensors_reads_it(folder: Path, tmp_path: Path) -> None:
    checkpoint, model = Checkpoint(folder), Model()
    assert same(checkpoint.state_dict(), set(model.state_dict()))
    assert same(dict(checkpoint.tensors()), set(WHOLES))
    checkpoint.export(tmp_path / "model.safetensors")
    exported = load_file(tmp_path / "model.safetensors")
    model.load_state_dict(exported)
    assert same(dict(model.state_dict()), set(model.state_dict()))
    checkpoint.export(tmp_path / "all.safetensors", optimizer_state=True)
    assert same(load_file(tmp_path / "all.safetensors"), set(WHOLES))
    assert len(list(tmp_path.iterdir())) == 3, "and nothing else is left"


def test_the_command_shows_and_exports(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    file = tmp_path / "model.safetensors"
    cli.main(["checkpoint", str(folder), "--export", str(file)])
    said = capsys.readouterr().out
    assert len(load_file(file)) == 4
    for text in ("layer.weight", "4 × 6", "float64", "192", "3: columns, elements", "0 to 2", "optimizer: mean square"):
        assert text in said
    assert f"export: {file}: 4 tensors, 220 bytes" in said.replace("\n", "")
    cli.main(["checkpoint", str(folder), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps(description(Checkpoint(folder))))
    its = found["tensors"]["layer.weight"]
    assert (its["shape"], its["dtype"], its["bytes"], len(its["pieces"])) == ([4, 6], "float64", 192, 3)
    assert sum(each["optimizer_state"] for each in found["tensors"].values()) == 1


@pytest.mark.parametrize(
    ("boxes", "runs", "words"),
    [
        ([((0, 4), (0, 6))], [(0, 24)], ""),
        ([((0, 1), (0, 6)), ((1, 4), (0, 6))], [(0, 6), (0, 18)], "2: rows"),
        ([((0, 4), (0, 6))] * 2, [(0, 11), (11, 24)], "2: elements"),
    ],
)
def test_how_a_tensor_is_divided_is_said(boxes: list[Any], runs: list[Any], words: str) -> None:
    assert divided_by([Part("w", (4, 6), box, run) for box, run in zip(boxes, runs, strict=True)]) == words


def changed(change: Callable[[Any], object]) -> Callable[[Path], object]:
    """Change the manifest."""

    def act(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        change(manifest["tensors"]["layer.weight"])
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return act


def lacking(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def holding(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


TOO_SHORT = save({f"layer.weight {LEFT} (5, 12)": torch.zeros(6, dtype=torch.float64)})
DAMAGES = [
    (lacking("manifest.json"), "manifest.json cannot be read"),
    (holding("manifest.json", b"{"), "manifest.json is damaged"),
    (lacking("rank-1.safetensors"), "rank-1.safetensors is missing or damaged"),
    (holding("rank-1.safetensors", b"torn"), "rank-1.safetensors is missing or damaged"),
    (holding("rank-2.safetensors", save({})), "rank-2.safetensors is missing or damaged"),
    (holding("rank-1.safetensors", TOO_SHORT), "is damaged (6 elements of layer.weight in place of 7)"),
    (changed(lambda its: its["pieces"].pop()), "has 12 of 24 elements of layer.weight"),
    (changed(lambda its: its.update(dtype="float65")), "manifest.json is damaged"),
    (changed(lambda its: its.update(dtype="nn")), "manifest.json is damaged"),
    (changed(lambda its: its["pieces"][2].update(box=[[0, 4], [4, 7]])), "manifest.json is damaged"),
    (changed(lambda its: its["pieces"][0].update(box=[[0, 4]])), "manifest.json is damaged"),
    (changed(lambda its: its["pieces"][1].update(run=[6, 13])), "manifest.json is damaged"),
]


@pytest.mark.parametrize(("harm", "line"), DAMAGES)
def test_what_is_no_whole_checkpoint_is_refused_in_one_line(
    harm: Callable[[Path], object], line: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harm(folder)
    with pytest.raises(SystemExit) as left:
        cli.main(["checkpoint", str(folder), "--export", str(tmp_path / "model.safetensors")])
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert line in said
    assert said.endswith(": give the folder of a whole checkpoint\n")
    assert said.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["trained"], "no file is begun"


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("model.pt", "is written as safetensors: give a name that ends in .safetensors"),
        ("trained/rank-0.safetensors", "is there already: give a new name"),
        ("nowhere/model.safetensors", "cannot be written (No such file or directory): give another file"),
    ],
)
def test_a_file_that_cannot_be_is_refused(file: str, line: str, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        Checkpoint(folder).export(tmp_path / file)
    assert str(told.value) == f"{tmp_path / file} {line}"
