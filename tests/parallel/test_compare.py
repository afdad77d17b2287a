"""``farandole compare``: update modes, scenarios and finished runs on one axis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from farandole.report.comparison import bins
from farandole.runtime.record import Run
from tests.parallel.test_cli import Command, farandole

SMALL = ["--data", "digits", "--hidden", "16", "--batch", "64", "--steps", "15", "-n", "4"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder and the output of two modes with a slow worker."""
    folder = tmp_path_factory.mktemp("compare") / "new"
    done = farandole("compare", "bsp", "ssp", *SMALL, "--staleness", "2", "--slow", "rank=3,factor=4",
                     "--out", str(folder))  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_modes_are_run_with_the_same_options_and_recorded(compared: tuple[Path, str]) -> None:
    folder, output = compared
    runs = {name: Run.open(folder / name) for name in ("bsp", "ssp")}
    for name, run in runs.items():
        assert output.index(f"compare: {name} …") < output.index("staleness")
        assert run.config["sync"] == name
        # 64 is the scenario's own default, and not the comparison's: the given option counts.
        assert (run.config["batch"], run.config["slow"], run.summary.ranks) == (64, ["rank=3,factor=4"], 4)
    assert (runs["bsp"].summary.steps, runs["ssp"].summary.steps) == (15, 2 * 15)
    assert set(runs["bsp"].summary.lead or {}) == {"0"}
    assert max(map(int, runs["ssp"].summary.lead or {})) <= 2
    with Image.open(folder / "compare.png") as picture:
        colours = picture.convert("RGB").getcolors(maxcolors=10**6)
    assert {(0, 0x72, 0xB2), (0xE6, 0x9F, 0)} <= {colour for _, colour in colours or []}, "both runs are drawn"


def test_a_finished_run_beside_a_new_one_of_a_scenario(
    compared: tuple[Path, str], command: Command, tmp_path: Path
) -> None:
    """Each scenario gets the options that it has: --collective and --staleness belong to different scenarios."""
    words = [str(compared[0] / "bsp"), "sync_sgd", "async", *SMALL, "--collective", "central", "--staleness", "1"]
    done = command("compare", *words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    summaries = json.loads(done.stdout)
    assert [summary["run"] for summary in summaries] == ["bsp", "sync_sgd", "async"]
    assert [summary["scenario"] for summary in summaries] == ["parameter_server", "sync_sgd", "parameter_server"]
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("compare-")
    assert {path.name for path in folder.iterdir()} == {"sync_sgd", "async", "compare.png"}
    assert Run.open(folder / "sync_sgd").config["collective"] == "central"
    assert Run.open(folder / "async").config["staleness"] == 1


def test_finished_runs_alone_are_drawn_too(compared: tuple[Path, str], command: Command, tmp_path: Path) -> None:
    folders = [str(compared[0] / name) for name in ("ssp", "bsp")]
    done = command("compare", *folders, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("ssp ") < done.stdout.index("bsp ")
    [folder] = (tmp_path / "runs").iterdir()
    assert [path.name for path in folder.iterdir()] == ["compare.png"]

    drawn = command("compare", *folders, "--out", "pictures", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["compare.png"]


def test_finished_runs_as_json_leave_nothing(compared: tuple[Path, str], command: Command, tmp_path: Path) -> None:
    done = command("compare", str(compared[0] / "ssp"), "--json", cwd=tmp_path)
    assert [summary["run"] for summary in json.loads(done.stdout)] == ["ssp"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["stall"], "bsp, ssp, async, half, partial, dssp, history"),
        (["stall"], "or a finished run's folder"),
        (["ssp", "."], ". is not a run's folder"),
        (["ssp", "--stepz", "3"], "--stepz"),
        (["ssp", "--steps", "0"], ">= 1"),
        (["sync_sgd", "--staleness", "3"], "--staleness"),
        (["ssp", "-n", "0"], "-n"),
        (["ssp", "-n", "2"], "2 rank(s) are too few"),
        (["ssp", "-n", "3", "--slow", "rank=3,factor=4"], "there is no rank 3"),
        (["ssp", "--out", "/dev/null/runs"], "--out /dev/null/runs"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words: list[str], says: str, command: Command, tmp_path: Path) -> None:
    done = command("compare", *words, cwd=tmp_path)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert not list(tmp_path.rglob("summary.json")), "no run was made"


def test_bad_input_ends_the_command_with_exit_code_2(tmp_path: Path) -> None:
    done = farandole("compare", "stall", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert done.stderr.count("\n") == 1


def test_options_cannot_change_what_is_finished(compared: tuple[Path, str], command: Command, tmp_path: Path) -> None:
    done = command("compare", str(compared[0] / "ssp"), "--steps", "5", cwd=tmp_path)
    assert done.returncode == 2
    assert "these runs are finished" in done.stderr


def test_bins_of_a_histogram() -> None:
    assert bins(0) == [0]
    assert bins(4) == [0, 1, 2, 3, 4]
    assert bins(40) == [*range(9), 9, 17, 33]
