"""The command line as a user meets it: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from PIL import Image, ImageSequence

from farandole.report import trace_viewer

Command = Callable[..., subprocess.CompletedProcess[str]]


def farandole(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "farandole", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)


def test_json_prints_the_summary_and_nothing_else(command: Command, tmp_path: Path) -> None:
    done = farandole("run", "sync_sgd", "-n", "4", "--steps", "20", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    summary = json.loads(done.stdout)
    assert (summary["scenario"], summary["ranks"], summary["steps"]) == ("sync_sgd", 4, 20)
    [folder] = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "summary.json").read_text()) == summary

    shown = command("show", str(folder), cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "sync_sgd" in shown.stdout or "accuracy" in shown.stdout
    for name in ("timeline.png", "curves.png"):
        with Image.open(folder / name) as picture:
            colours = picture.convert("RGB").getcolors(maxcolors=10**6)
            assert picture.width > 800
            assert colours is not None
            assert len(colours) > 50, "something is drawn"

    expect_trace_in_perfetto(folder)

    compared = command("compare", str(folder), "--json", cwd=tmp_path)
    assert json.loads(compared.stdout)[0]["test_accuracy"] == summary["test_accuracy"]
    again = command("run", "sync_sgd", "--out", str(folder), cwd=tmp_path)
    assert again.returncode == 2
    assert "is not empty" in again.stderr


def expect_trace_in_perfetto(folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in trace_viewer.SCREENS}
    command = [sys.executable, "-m", "farandole", "show", str(folder), "--trace"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as viewer:
        assert viewer.stdout
        address = next(found[0] for line in viewer.stdout if (found := re.findall(r"http://\S+", line)))
        try:
            assert "Perfetto" in urlopen(address, timeout=60).read().decode()
            assert urlopen(f"{address}/localtrace", timeout=60).read() == (folder / "trace.json").read_bytes()
            listens = [each for each in psutil.Process(viewer.pid).net_connections() if each.status == "LISTEN"]
            assert {each.laddr.ip for each in listens} == {"127.0.0.1"}, "other machines could read the trace"
        finally:
            viewer.terminate()


def test_a_run_ends_with_its_folder_and_the_next_command(command: Command, tmp_path: Path) -> None:
    """The folder's name must survive the shell that the command is pasted into."""
    done = command("run", "sync_sgd", "-n", "2", "--steps", "2", "--out", "my runs/first", cwd=tmp_path)
    assert done.stdout.splitlines()[-2:] == [
        "record:   'my runs/first'",
        "next:     farandole show 'my runs/first'",
    ]
    assert (tmp_path / "my runs" / "first" / "summary.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "sync_sdg"], "there is no scenario 'sync_sdg': choose from ad_psgd, adaptive, agnostic_sgd, backup,"),
        (["run", "sync_sgd", "--stepz", "3"], "--stepz"),
        (["run", "sync_sgd", "--steps", "many"], "whole number"),
        (["run", "sync_sgd", "-n", "0"], "-n"),
        (["run", "sync_sgd", "-n", "2", "--slow", "rank=7,factor=2"], "there is no rank 7"),
        (["run", "sync_sgd", "-n", "3", "--capabilities", "1", "2"], "give one for each of 3 ranks"),
        (["run", "sync_sgd", "-n", "2", "--out", "/dev/null/run"], "--out /dev/null/run cannot be written"),
        (["frobnicate"], "frobnicate"),
        (["show", "nowhere"], "not a run's folder"),
        (["show", "latest"], "there is no finished run in runs here: farandole run sync_sgd -n 4 makes one"),
        (["compare", "latest"], "there is no finished run in runs here"),
        (["bench", "everything"], "choose from allreduce"),
        (["bench", "ps", "--picture", "ps.png"], "--picture is for allreduce"),
        (["bench", "step", "--peers", "all"], "--peers is for allreduce: farandole bench allreduce --peers all"),
        (["bench", "methods", "-n", "3"], "methods is for 4 ranks, among which it has places for servers"),
        (["bench", "allreduce", "--picture", "a.doc"], "a file whose name ends in .png, .svg or .pdf"),
        (["bench", "allreduce", "--picture", "no/a.png"], "--picture no/a.png cannot be written"),
        (["compare"], "compare needs the folders"),
        (["draw", "waltz"], 'Unknown command "waltz". Available commands: naive, gpipe, 1f1b,'),
        (["draw", "gpipe", "--stages", "0"], "--stages"),
        (["draw", "gpipe", "--micro-batches", "2000"], "a picture of 16,000 passes: give fewer"),
        (["draw", "gpipe", "--chunks", "2"], "--chunks"),
        (["draw", "interleaved", "--micro-batches", "6"], "interleaving takes a multiple, as 8"),
        (["draw", "bully-election", "--dead", "7"], "--dead 7: members are 0 to 4"),
        (["draw", "raft-election", "--dead", "0"], "no living member starts the election: give --start"),
        (["draw", "bully-election", "-n", "30"], "messages: take fewer members"),
        (["draw", "gpipe", "--out", "gpipe.doc"], "a file whose name ends in .png, .svg or .pdf"),
        (["draw", "ring", "-n", "30"], "a picture of 30 ranks: give 1 to 8, more cannot be told apart"),
        (["draw", "hierarchical", "-n", "5"], "-n 5 --per-node 2: give a multiple of 2 ranks"),
        (["draw", "mixing", "-n", "17"], "a picture of 17 ranks: give 1 to 16"),
        (["draw", "mixing", "--graph", "nowhere"], "--graph nowhere cannot be read (No such file or directory)"),
        (["run", "ad_psgd", "-n", "1", "--lr-schedule", "plateau"], "ad_psgd has no common steps: choose another"),
        (["run", "compressed_sgd", "-n", "1", "--clip", "1"], "--clip is for --compressor dgc, not for top-k"),
        (["draw", "ring", "--out", "ring.mp4"], "a file whose name ends in .png, .svg, .pdf or .gif"),
        (["draw", "gpipe", "--out", "nowhere/gpipe.png"], "--out nowhere/gpipe.png cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words: list[str], says: str, command: Command, tmp_path: Path) -> None:
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_bad_input_ends_the_command_with_exit_code_2() -> None:
    done = farandole("run", "sync_sdg")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1


def test_draw_prints_an_election_and_writes_its_picture(command: Command, tmp_path: Path) -> None:
    drawn = command("draw", "bully-election", "--dead", "4", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    for number in range(4):
        assert f"member {number} follows leader 3\n" in drawn.stdout
    assert drawn.stdout.endswith("the picture: bully-election-5.png\n")
    with Image.open(tmp_path / "bully-election-5.png") as picture:
        assert picture.width > 600


def test_draw_writes_a_picture_and_prints_its_figures(command: Command, tmp_path: Path) -> None:
    drawn = command("draw", "1f1b", "--stages", "4", "--micro-batches", "8", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in drawn.stdout.splitlines() if "│" in line]
    assert cells == [
        ["/total", "27.3%"],
        ["/ideal", "37.5%"],
        *([str(stage), str(4 - stage), str(8 if stage in (0, 3) else 16)] for stage in range(4)),
    ]
    assert drawn.stdout.endswith("the picture: 1f1b-4x8.png\n")
    with Image.open(tmp_path / "1f1b-4x8.png") as picture:
        assert picture.width > 900

    drawn = command("draw", "zb-h2", "--out", "mine.svg", cwd=tmp_path)
    assert "│ /period │    0.0% │" in drawn.stdout
    again = command("draw", "interleaved", "-n", "2", "--chunks", "3", "--out", "mine.svg", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1f1b-4x8.png", "mine.svg"]


def test_draw_prints_a_collectives_costs_and_writes_its_picture(command: Command, tmp_path: Path) -> None:
    drawn = command("draw", "tree", "-n", "4", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in drawn.stdout.splitlines() if "│" in line]
    assert cells == [["0", "2", "2 n", "2 n"], ["1", "1", "n", "0"], ["2", "2", "2 n", "n"], ["3", "1", "n", "0"]]
    end = "4 rounds; seconds for a vector of n bytes: 4 α + 4 nβ + 2 nγ\nthe picture: tree-4.png\n"
    assert drawn.stdout.endswith(end)
    with Image.open(tmp_path / "tree-4.png") as picture:
        assert picture.width > 600

    moving = command("draw", "hierarchical", "-n", "6", "--per-node", "3", "--out", "mine.gif", cwd=tmp_path)
    assert moving.returncode == 0, moving.stderr
    with Image.open(tmp_path / "mine.gif") as picture:
        seen = {frame.convert("RGB").tobytes() for frame in ImageSequence.Iterator(picture)}
    assert len(seen) == 1 + 2 * 2 + 2, "the start, and each step"


def test_help_and_list_name_what_there_is(command: Command, tmp_path: Path) -> None:
    assert "sync_sgd" in command("list", cwd=tmp_path).stdout
    assert "--collective" in command("run", "sync_sgd", "--help", cwd=tmp_path).stdout
    assert {"doctor", "tour", "show", "draw"} <= set(farandole("--help").stdout.split())


@pytest.mark.parametrize(
    ("columns", "words", "names"),
    [
        ("0", ["run", "sync_sgd", "--help"], {"--collective"}),
        ("abc", ["run", "sync_sgd", "--help"], {"--collective"}),
        ("1", ["run", "sync_sgd", "--help"], {"--collective"}),
        ("1", ["list"], {"sync_sgd", "hybrid_parameters"}),
    ],
)
def test_a_width_that_no_table_fits_into_loses_nothing(
    columns: str, words: list[str], names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a process that was started as the command changes its width."""
    monkeypatch.setenv("COLUMNS", columns)
    shown = farandole(*words)
    assert shown.returncode == 0
    assert names <= set(shown.stdout.split())


GONE = "farandole: the working folder no longer exists: change into another\n"


def test_a_working_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    started = f'rmdir "$PWD"; exec {sys.executable} -P -m farandole compare bsp'
    (tmp_path / "gone").mkdir()
    done = subprocess.run(["bash", "-c", started], cwd=tmp_path / "gone", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", GONE)


@pytest.mark.parametrize("words", [("lab", "check", "1"), ("compare", "bsp"), ("tour",), ("doctor",)])
def test_every_command_names_a_working_folder_that_is_gone(
    words: tuple[str, ...], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = command(*words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", GONE)


def test_doctor_finds_what_the_tests_need() -> None:
    found = {finding["name"]: finding for finding in json.loads(farandole("doctor", "--json").stdout)}
    assert found["MPI"]["works"]
    assert {"Python", "torch", "cores", "GPU", "MPI threads", "MPI fault tolerance", "Horovod", "Jupyter"} <= set(found)
    for finding in found.values():
        assert finding["works"] or finding["mend"], f"{finding['name']} is missing and nothing is said to mend it"


def test_the_progress_bar_is_for_terminals_only(tmp_path: Path) -> None:
    piped = farandole("run", "sync_sgd", "-n", "2", "--steps", "2", cwd=tmp_path)
    assert "step/s" not in piped.stderr
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "farandole", "run", "sync_sgd", "-n", "2", "--steps", "30"]
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal, cwd=tmp_path)
    os.close(terminal)
    drawn = b""
    try:
        while piece := os.read(main, 1000):
            drawn += piece
    except OSError:
        pass  # a terminal's error when its other end is closed
    os.close(main)
    assert job.wait(60) == 0
    assert b"30/30" in drawn
