"""A user's own task beyond `run`: a search, the fit of a simulation, the bench, functions in place of names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farandole import Run, UsageError, launch, own_task
from farandole.methods import with_policy
from farandole_tools.bench import methods as bench
from tests.parallel.test_cli import Command
from tests.tasks import waves

FILE = Path(waves.__file__)


def test_a_search_tries_learning_rates_only(command: Command, tmp_path: Path) -> None:
    words = ["run", "search", "-n", "2", "--task", f"{FILE}:searched", "--trials", "4", "--steps", "8", "--batch", "30"]
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "learning rate" in done.stdout
    assert "width" not in done.stdout
    refused = command(*words, "--widths", "8", "16", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--task brings its own model, whose width is not ours to choose: leave out --widths" in refused.stderr


def test_a_simulation_is_fitted_to_its_record(command: Command, tmp_path: Path) -> None:
    launch("sync_sgd", 2, task=str(FILE), steps=30, batch=30, out=tmp_path / "run")
    done = command("simulate", "--fit", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "60 computations" in done.stdout
    words = next(line for line in done.stdout.splitlines() if line.startswith("--straggler")).split()
    assert command("simulate", "ssp", *words, "--steps", "5", cwd=tmp_path).returncode == 0


def test_the_bench_trains_it_and_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("ring", "local SGD, 8 steps", "pipeline, 1F1B")
    chosen = [method for method in bench.measured() if method.name in names]
    monkeypatch.setattr(bench, "measured", lambda: chosen)
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "conditions", lambda ranks: {"fast": {}})
    recipe = bench.Recipe({"task": str(FILE), "steps": 8, "batch": 60, "lr": 0.2}, None)
    rows = bench.rows(4, recipe)
    assert {"fast: ring", "fast: local SGD, 8 steps"} <= {row["name"] for row in rows}
    notes = bench.notes(rows)
    assert any(note.startswith("pipeline, 1F1B is left out: a task of your own: in a pipeline") for note in notes), (
        notes
    )


def test_a_policy_names_the_server_that_has_it(command: Command, tmp_path: Path) -> None:
    run = launch("ssp", 3, task=str(FILE), steps=4, batch=30, staleness=2, out=tmp_path / "run")
    assert (run.summary.scenario, run.config["sync"]) == ("parameter_server", "ssp")
    words = ["run", "ssp", "-n", "3", "--task", str(FILE), "--steps", "4", "--batch", "30", "--out", "again"]
    assert command(*words, cwd=tmp_path).returncode == 0
    assert Run.open(tmp_path / "again").config["sync"] == "ssp"
    assert with_policy("sync_sgd", {"lr": 1}) == ("sync_sgd", {"lr": 1})
    with pytest.raises(UsageError, match="ssp stands for parameter_server --sync ssp: leave out --sync bsp"):
        launch("ssp", 3, sync="bsp")


def test_a_function_stands_for_its_name(tmp_path: Path) -> None:
    run = launch("sync_sgd", 1, task=waves.task, steps=2, batch=30, out=tmp_path / "run")
    assert run.config["task"] == f"{FILE}:task"


def in_a_function() -> Any:
    return lambda: None


@pytest.mark.parametrize("task", [waves.task(), waves, in_a_function()])
def test_an_object_that_the_ranks_do_not_have_is_refused_in_one_line(task: Any) -> None:
    with pytest.raises(UsageError, match=r'^task= is \w+, which the ranks.*give task="my_task.py"$'):
        launch("sync_sgd", 2, task=task)


def test_a_name_stays_one() -> None:
    assert own_task.name_of("tests.tasks.waves:pairs") == "tests.tasks.waves:pairs"
