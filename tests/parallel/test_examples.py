"""The tasks under examples/: models from other projects, trained by methods that know nothing of them."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from farandole import launch
from farandole.runtime import rank_starter
from farandole_tools.forked_ranks import fork_client, fork_server
from tests.conftest import SESSION

EXAMPLES = Path(__file__).parents[2] / "examples"
FROM_TRANSFORMERS = ("gpt2", "bert", "resnet")
KILLED: dict[str, Any] = {"fail": "rank=1,step=7", "backup_every": 5, "optimizer": "sgd"}
METHODS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "sync": ("sync_sgd", 3, {}),
    "ssp": ("parameter_server", 4, {"sync": "ssp"}),
    "local": ("local_sgd", 2, {"period": 4}),
    "compressed": ("compressed_sgd", 2, {"compressor": "top-k"}),
    "killed": ("backup", 3, KILLED),
}
RECIPES: dict[str, dict[str, Any]] = {
    "tabular": {"batch": 64, "lr": 0.05, "steps": 40},
    "recommender": {"batch": 512, "lr": 2.0, "steps": 40},
    "gpt2": {"batch": 12, "lr": 0.2, "steps": 12},
    "bert": {"batch": 12, "lr": 0.2, "steps": 12},
    "resnet": {"batch": 24, "lr": 0.05, "steps": 16},
}
# Importing transformers takes four seconds: make soak trains these models by the other methods too.
QUICK = {("gpt2", "killed"), ("resnet", "sync")}


IMPORTED = [f"transformers.models.{name}.modeling_{name}" for name in FROM_TRANSFORMERS]


@pytest.fixture(scope="module")
def server_with_transformers() -> dict[str, str]:
    """Return the environment variables by which ranks are forked from a process that has imported the models."""
    with pytest.MonkeyPatch.context() as environment:
        for name in (fork_client.ADDRESS, rank_starter.MODULE, SESSION):  # it stays until the last test has ended
            environment.delenv(name, raising=False)
        fork_server.start(*IMPORTED)
        return {name: os.environ[name] for name in (fork_client.ADDRESS, rank_starter.MODULE) if name in os.environ}


@pytest.fixture
def with_transformers(server_with_transformers: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server_with_transformers.items():
        monkeypatch.setenv(name, value)


def cases() -> list[Any]:
    return [
        pytest.param(
            example,
            method,
            marks=pytest.mark.soak if example in FROM_TRANSFORMERS and (example, method) not in QUICK else (),
        )
        for example in RECIPES
        for method in METHODS
    ]


def train(example: str, method: str, ranks: int, options: dict[str, Any], folder: Path) -> Any:
    if example in FROM_TRANSFORMERS and find_spec("transformers") is None:
        pytest.skip("no transformers here: pip install -e '.[examples]'")
    task = EXAMPLES / f"{example}.py"
    return launch(method, ranks, task=task, out=folder / "run", timeout_s=240, **RECIPES[example] | options)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("example", "method"), cases())
def test_it_learns(example: str, method: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if example in FROM_TRANSFORMERS and find_spec("transformers"):
        request.getfixturevalue("with_transformers")
    name, ranks, options = METHODS[method]
    run = train(example, name, ranks, options, tmp_path)
    assert run.summary.final_loss is not None
    assert run.summary.final_loss < 0.95 * run.metrics[0]["loss"]
    assert [fault["rank"] for fault in run.summary.faults] == ([1] if method == "killed" else [])
    assert run.summary.test_metrics
    assert all(value is not None for value in run.summary.test_metrics.values())


def test_a_table_goes_through_a_pipeline(tmp_path: Path) -> None:
    run = train("tabular", "pipeline", 3, {"micro_batches": 4}, tmp_path)
    assert run.summary.final_loss is not None
    assert run.summary.final_loss < 0.95 * run.metrics[0]["loss"]


def test_there_is_a_recipe_for_each() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(RECIPES)
