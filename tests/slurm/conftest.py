"""A Slurm of our own for the tests of this folder: one sandbox for the session, and a checkout to submit from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farandole_tools.slurm import sandbox
from farandole_tools.slurm.sandbox import Sandbox, SandboxError
from tests.slurm.jobs import like_a_checkout


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all jobs in one process of pytest, because they share the four nodes of one sandbox."""
    for item in items:
        if {"cluster", "folder"} & set(getattr(item, "fixturenames", ())) and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.one_by_one)


def need_slurm() -> None:
    if missing := sandbox.missing_programs():
        pytest.skip(f"no Slurm here (no {', '.join(missing)}); install it: {sandbox.INSTALL}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox of four nodes that all tests share; each leaves it idle."""
    need_slurm()
    folder = tmp_path_factory.mktemp("slurm")
    yield sandbox.up(folder)
    sandbox.down(folder)


@pytest.fixture(scope="session")
def pmix(cluster: Sandbox) -> None:
    """`srun --mpi=pmix` works: Debian's Slurm finds libpmix.so only where libpmix-dev is installed."""
    try:
        cluster.run("srun", "--mpi=pmix", "--ntasks=1", "true", timeout=20)
    except SandboxError as error:
        pytest.skip(f"srun has no PMIx: {error}; install it: {sandbox.INSTALL}")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder in which a test may start a second sandbox, which is ended in any case."""
    need_slurm()
    path = tmp_path_factory.mktemp("own")
    yield path
    sandbox.down(path)


@pytest.fixture(autouse=True)
def soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the ranks of a test's jobs from a process that has imported torch (`starts.sitecustomize`).

    Not in `make soak`, nor in tests marked `cold`, whose ranks start as on a cluster.
    """
    if "FARANDOLE_SOAK" in os.environ or "cold" in request.keywords or "cluster" not in request.fixturenames:
        return
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "starts"))
    show = [sys.executable, "-P", "-c", "import os, sys; print(os.pathsep.join(sys.path))"]
    as_forks = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = subprocess.run(show, env=as_forks, capture_output=True, text=True, check=True).stdout.strip()
    monkeypatch.setenv("FARANDOLE_PATH_OF_FORKS", path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return like_a_checkout(tmp_path)
