"""A record's folder belongs to one run: several that start at once have separate ones, and none removes another's."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.runtime import folders
from farandole.runtime.folders import claim, claimed, held, reserved

HOLDS = """
import pathlib, sys
from farandole.runtime import folders
folders.claim("sync_sgd", pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda _: "20261125-070000")  # all in the same second


def test_runs_of_the_same_second_get_a_folder_each() -> None:
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda _: claim("sync_sgd", None), range(8)))
    assert len({each.folder for each in claims}) == 8
    assert all(each.folder.is_dir() for each in claims)
    assert Path("runs/sync_sgd-20261125-070000-8") in {each.folder for each in claims}
    for each in claims:
        each.release()
    assert not list(Path("runs").glob("*")), "nothing was written, and nothing is left"


def test_of_two_that_want_one_folder_one_is_refused_and_leaves_it_alone() -> None:
    with claimed("sync_sgd", Path("X")) as mine:
        for _ in range(2):
            with pytest.raises(UsageError, match="another run is writing to X") as refused:
                claim("sync_sgd", Path("X"))
            assert "\n" not in str(refused.value)
        (mine / "config.json").touch()
    with pytest.raises(UsageError, match="X is not empty"):
        claim("sync_sgd", Path("X"))
    assert (Path("X") / "config.json").exists()


def test_a_run_that_goes_on_is_one_too() -> None:
    Path("X").mkdir()
    (Path("X") / "config.json").touch()
    with claimed("restart", Path("X"), resumes=True), pytest.raises(UsageError, match="another run is writing to X"):
        claim("restart", Path("X"), resumes=True)
    claim("restart", Path("X"), resumes=True).release()


def test_whoever_dies_has_let_go() -> None:
    command = [sys.executable, "-c", HOLDS, "X"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="another run is writing to X"):
            claim("sync_sgd", Path("X"))
        other.kill()
    claim("sync_sgd", Path("X")).release()


def test_a_folder_that_was_there_before_stays() -> None:
    Path("a").mkdir()
    with claimed("sync_sgd", Path("a")):
        pass
    with claimed("sync_sgd", Path("a/b/c")):
        pass
    assert Path("a").is_dir()
    assert not Path("a/b").exists()


def test_what_was_written_stays() -> None:
    with claimed("sync_sgd", None) as folder:
        (folder / "config.json").touch()
    assert (folder / "config.json").exists()


def test_a_folder_is_reserved_for_several_starts() -> None:
    with reserved("restart") as first, reserved("restart") as second:
        assert first != second
        with claimed("restart", first, resumes=True):
            (first / "config.json").touch()
        claim("restart", first, resumes=True).release()
    assert first.is_dir()
    assert not second.exists()


def test_a_folder_removed_by_another_run_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, losses = folders._lock, [1, 1]

    def loses_the_race(folder: Path) -> int | None:
        if losses:
            losses.pop()
            folder.rmdir()
        return lock(folder)

    monkeypatch.setattr(folders, "_lock", loses_the_race)
    with claimed("sync_sgd", Path("X")) as mine:
        assert mine.is_dir()


def test_what_cannot_be_a_folder_is_refused_in_one_line() -> None:
    Path("file").touch()
    for out in (Path("file"), Path("file/below")):
        with pytest.raises(UsageError, match=f"^--out {out} ") as refused:
            claim("sync_sgd", out)
        assert "\n" not in str(refused.value)


def test_two_tours_do_not_share_a_folder() -> None:
    Path("tour").mkdir()
    with held(Path("tour")), pytest.raises(UsageError, match="another run is writing to tour"), held(Path("tour")):
        pass
