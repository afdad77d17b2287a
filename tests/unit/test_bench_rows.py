"""The rows of every benchmark have one schema. The measurements are invented: nothing is launched."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from farandole.cli import main
from farandole.errors import UsageError
from farandole.runtime import mpirun
from farandole.runtime.launcher import Output
from farandole.runtime.surroundings import MPI_SETTINGS
from farandole_tools.bench import (
    BENCHMARKS,
    allreduce,
    chaos,
    checkpoint,
    dynamic,
    launch,
    methods,
    mpi_peers,
    pipeline,
    ps,
    recovery,
    recovery_rounds,
    recovery_torchrun,
    step,
    versions,
)
from farandole_tools.bench.chaos import Outcome
from farandole_tools.bench.command import bench
from farandole_tools.bench.pipeline_task import Measured, Task
from farandole_tools.forked_ranks import fork_server

Row = dict[str, Any]
LOSSES = SimpleNamespace(
    metrics=[{"loss": 2.0, "wall_s": 1.0}, {"loss": 0.01, "wall_s": 2.0}, {"loss": 0.01, "wall_s": 3.0}],
    summary=SimpleNamespace(wall_s=9.0, test_accuracy=0.9, bytes_sent=[100]),
)


def invented_medians(
    _: str, launches: list[list[str]], cases: Mapping[Any, int], __: int, ___: int, settings: Iterable[str] = ()
) -> dict[Any, dict[str, float]]:
    names = [*(name for names in launches for name in names), *settings]
    return {case: dict.fromkeys(names, 1e-3) for case in cases}


def invented_pipelines(names: Iterable[str], _: int, __: Task, rounds: int, *___: Any) -> dict[str, Measured]:
    return {name: Measured([0], [1.0] * rounds, [1 / (1 + number) for number in range(rounds)]) for name in names}


def program_s_output(words: list[str], ranks: int, **_: Any) -> Output:
    """What rank 0 of the programs of `recovery` and `checkpoint` prints."""
    if recovery.ROUNDS_PROGRAM in words:
        kinds = ("none", "a backup every step")
        return Output([json.dumps(recovery_rounds.rows({name: [1.0, 2.0] for name in kinds}, 8, ranks))], [])
    names = (checkpoint.OURS, "torch DCP async", "torch DCP", "torch.save by rank 0")
    seconds = {kind: [1.0, 2.0] for kind in checkpoint.TIMES}
    return Output([json.dumps([dict.fromkeys(names, seconds)] * len(checkpoint.ROUNDS))], [])


@pytest.fixture
def invented(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("GLOO_", "HOROVOD_", *MPI_SETTINGS))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(fork_server, "start", lambda: None)
    monkeypatch.setattr(allreduce, "medians", invented_medians)
    monkeypatch.setattr(mpi_peers, "_installed", lambda package: Path("/", package))
    monkeypatch.setattr(step, "medians", invented_medians)
    monkeypatch.setattr(ps, "why_no_ray", lambda *_: None)
    for name in ("mpi_rounds", "ray_rounds", "farandole_rounds"):
        monkeypatch.setattr(ps, name, lambda *_, **__: [1.0] * (ps.WARM_UP + ps.ROUNDS))
    monkeypatch.setattr(pipeline, "measure", invented_pipelines)
    monkeypatch.setattr(dynamic, "launch", lambda *_, **__: LOSSES)
    monkeypatch.setattr(methods, "launch", lambda *_, **__: LOSSES)
    for name in ("with_spares", "without_spares", "with_joining_processes", "by_restart", "torchrun"):
        monkeypatch.setattr(recovery, name, lambda *_, **__: [1.0])
    monkeypatch.setattr(recovery, "run_ranks", program_s_output)
    monkeypatch.setattr(checkpoint, "run_ranks", program_s_output)
    monkeypatch.setattr(chaos, "measured", lambda *_: Outcome(calm=1000, struck=900, seconds=60, deaths=3))
    monkeypatch.setattr(launch, "timed", lambda *_: 1.0)


@pytest.fixture
def rows(invented: None, capsys: pytest.CaptureFixture[str]) -> list[Row]:
    main(["bench", "--json"])
    found: list[Row] = json.loads(capsys.readouterr().out)
    return found


def peers_of(rows: Iterable[Row]) -> dict[str, Row]:
    return {name: its for row in rows for name, its in row["peers"].items()}


def test_all_rows_have_one_schema(rows: list[Row]) -> None:
    for row in rows:
        assert row.keys() >= {"name", "size", "ranks", "median_s", "peers"}
        assert isinstance(row["name"], str)
        assert isinstance(row["size"], int)
        assert isinstance(row["ranks"], int)
        assert row["median_s"] is None or row["median_s"] > 0
        for name, its in row["peers"].items():
            measured = {"error"} if "error" in its else {"median_s", "ratio"}
            assert its.keys() == measured | {"version", "tuning"}, name
            if "error" not in its:
                assert its["ratio"] == pytest.approx(its["median_s"] / row["median_s"])
            assert min(len(its["version"]), len(its["tuning"])) > 0


def test_each_benchmark_says_how_its_peers_are_set(rows: list[Row]) -> None:
    found = peers_of(rows)
    expected = {
        "MPI_Allreduce", "Horovod", "Gloo", "a copy by each", "torch DDP", "our ring", "Ray", "torch RPC",
        "MPI Send and Recv", "1 copy", "4 copies at once", "push and pull", "Schedule1F1B", "layer split",
        "computing alone", "period 8", "ring", "restart", "Elastic Horovod, time-out 5 s", "torchrun elastic", "none",
        "no deaths", "torch DCP async", "torch DCP", "torch.save by rank 0", "each rank imports torch", "torchrun",
        "import torch",
    }  # fmt: skip
    assert expected <= found.keys()
    unset = {name for name, its in found.items() if its["tuning"] == versions.AS_INSTALLED}
    assert unset == {"MPI_Allreduce", "MPI Send and Recv"}, "of all others the benchmark says more"
    assert found["Elastic Horovod, time-out 5 s"]["tuning"].startswith("HOROVOD_GLOO_TIMEOUT_SECONDS=5")
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in found["torchrun elastic"]["tuning"]
    assert f"a snapshot every {recovery_torchrun.SNAPSHOT_EVERY} steps" in found["torchrun elastic"]["tuning"]


def test_other_systems_have_the_installed_version_and_ours_that_of_this_package(rows: list[Row]) -> None:
    of_torch = ("torch DDP", "Gloo", "Schedule1F1B", "torch RPC", "torch DCP", "torchrun elastic", "import torch")
    of_numpy = ("a copy by each", "1 copy", "4 copies at once")
    ours = ("our ring", "layer split", "none", "restart", "each rank imports torch", "period 8")
    expected = {
        **{name: f"torch {version('torch')}" for name in of_torch},
        **{name: f"numpy {version('numpy')}" for name in of_numpy},
        **{name: f"farandole {version('farandole')}" for name in ours},
        **dict.fromkeys(("MPI_Allreduce", "MPI Send and Recv"), str(mpirun.detect())),
    }
    found = peers_of(rows)
    assert {name: found[name]["version"] for name in expected} == expected


def test_what_the_user_s_environment_sets_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "5")
    rows: list[Row] = [{"peers": {"Horovod": {"error": "none"}, "MPICH": {"version": "5", "tuning": "ring"}}}]
    versions.add_to(rows, {"Horovod": "as installed"})
    [found] = rows
    assert "as installed; HOROVOD_CYCLE_TIME=5" in found["peers"]["Horovod"]["tuning"]
    assert found["peers"]["MPICH"] == {"version": "5", "tuning": "ring"}


def test_a_package_that_is_not_there_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "find_spec", lambda _: None)
    assert versions.version("Horovod") == "horovod is not installed"


@pytest.mark.parametrize("name", [(), ("allreduce",)], ids=["all", "allreduce"])
def test_all_peers_are_measured_by_the_benchmarks_that_have_them(
    name: tuple[str, ...], invented: None, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["bench", *name, "--peers", "all", "--json"])
    rows: list[Row] = json.loads(capsys.readouterr().out)
    found = peers_of(rows)
    assert {"Open MPI, tuned", "MPICH", "Intel MPI"} <= found.keys()
    assert found["MPICH"]["version"] == mpi_peers.MPICH.replace("==", " ")
    assert ("torchrun" in found) == (not name), "without a name all others run as usual"


@pytest.mark.parametrize("name", sorted(BENCHMARKS.keys() - {"allreduce"}))
def test_a_benchmark_without_further_peers_says_which_has_them(name: str, invented: None) -> None:
    with pytest.raises(UsageError, match="--peers is for allreduce: farandole bench allreduce --peers all"):
        bench(name, peers="all")
