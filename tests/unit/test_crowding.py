"""Many ranks on few cores: the messages of a launch while they start."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from farandole.errors import UsageError
from farandole.runtime import crowding, rank_starter
from farandole.runtime.crowding import CLEAR_LINE, StartReport, check_memory, prepare

WARNING = (
    "farandole: 9 ranks on 2 cores: they take long to start and share the cores, so their times say little; "
    "up to 4 a core is sensible\n"
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowding.processes, "available_cores", lambda: 2)
    monkeypatch.setattr(crowding, "SAYS_AFTER_S", 0.0)
    monkeypatch.setattr(crowding, "REFRESH_S", 0.0)


def have(what: str, ranks: Sequence[int], scratch: Path) -> None:
    for rank in ranks:
        (scratch / f"{rank}.{what}").touch()


def test_a_file_gets_one_line(tmp_path: Path) -> None:
    stream = io.StringIO()
    report = StartReport(tmp_path, 9, stream=stream)
    for started in range(3):
        have("out", range(started), tmp_path)
        report.look()
    report.finish()
    assert stream.getvalue() == WARNING + "farandole: starting 9 ranks on 2 cores: 0 have started\n"


def test_a_terminal_gets_a_live_line_that_is_gone_when_they_work(tmp_path: Path) -> None:
    stream = Terminal()
    report = StartReport(tmp_path, 9, stream=stream)
    have("out", range(3), tmp_path)
    report.look()
    have("out", range(9), tmp_path)
    report.look()
    report.look()
    have("position", range(9), tmp_path)
    report.look()
    assert report.is_over
    report.look()
    start = f"{CLEAR_LINE}farandole: starting 9 ranks on 2 cores: "
    said = [f"{start}3 have started", f"{start}all have started, and connect to each other", CLEAR_LINE]
    assert stream.getvalue() == WARNING + "".join(said)


def test_it_is_silent_once_rank_0_speaks(tmp_path: Path) -> None:
    stream = io.StringIO()
    report = StartReport(tmp_path, 9, stream=stream)
    (tmp_path / "0.out").write_text("hello")
    report.look()
    assert (report.is_over, stream.getvalue()) == (True, WARNING)


@pytest.mark.parametrize(("ranks", "is_here"), [(8, True), (64, False)])
def test_of_what_is_usual_nothing_is_said(ranks: int, is_here: bool, tmp_path: Path) -> None:
    stream = io.StringIO()
    report = StartReport(tmp_path, ranks, is_here, stream)
    report.look()
    assert (report.is_over, stream.getvalue()) == (True, "")


@pytest.mark.parametrize(
    ("ranks", "environment", "starts"),
    [(1, {}, 0), (2, {}, 1), (3, {}, 1), (3, {"SLURM_JOB_ID": "7"}, 0), (3, {"FARANDOLE_HOSTS": "hosts"}, 0)],
)
def test_torch_is_imported_once_for_several_ranks_on_this_host(
    ranks: int, environment: dict[str, str], starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    monkeypatch.setattr(rank_starter, "prepare", lambda: started.append(1))
    for name in ("SLURM_JOB_ID", "FARANDOLE_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    prepare(ranks)
    assert len(started) == starts


@pytest.mark.parametrize(
    ("ranks", "model_bytes", "says"),
    [
        (100, 0, ""),
        (101, 0, "101 ranks: they take 1.0 GB of memory or more, and 1.0 GB are free: give at most 100"),
        (50, 500_000_000, ""),
        (51, 500_000_000, "51 ranks: they take 1.0 GB of memory or more, and 1.0 GB are free: give at most 50"),
        (1, 3_000_000_000, "the model and its gradient take 3.0 GB, and 1.0 GB of memory are free: give a smaller"),
    ],
)
def test_what_cannot_fit_into_memory_is_refused_before_it_starts(
    ranks: int, model_bytes: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowding.psutil, "virtual_memory", lambda: SimpleNamespace(available=10**9))
    for name in ("SLURM_JOB_ID", crowding.placement.HOSTS):
        monkeypatch.delenv(name, raising=False)
    if not says:
        check_memory(ranks, model_bytes)
        return
    with pytest.raises(UsageError) as refused:
        check_memory(ranks, model_bytes)
    assert str(refused.value).startswith(says)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    check_memory(ranks, model_bytes)  # other hosts' memory is not known here
