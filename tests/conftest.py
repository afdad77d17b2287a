"""Rules for every test: no process is left, CI skips nothing, and a test that judges times runs alone."""

from __future__ import annotations

import fcntl
import gc
import os
import socket
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

from farandole.runtime import processes, rank
from farandole_tools.forked_ranks import fork_client, fork_server

SESSION = "FARANDOLE_TEST_SESSION"
WITHOUT_RANKS = (Path("tests/unit"), Path("tests/pages"))  # folders whose tests start none
EXCUSED = {"gpu", "kernel", "numerics"}  # marks of tests that not every machine can run
REQUIRE_ALL = os.environ.get("FARANDOLE_REQUIRE") == "all"

# The same examples every time, so that only a change of the code can fail; make soak looks for more and new ones.
SOAK = "FARANDOLE_SOAK" in os.environ
settings.register_profile("farandole", derandomize=not SOAK, max_examples=400 if SOAK else 40, deadline=None)
settings.load_profile("farandole")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among 9,000 tests and what they import, neither now nor later: it takes 10 s per process."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only make soak runs."""
    if not SOAK:
        left_out = {id(item) for item in items if "soak" in item.keywords} | {id(item) for item in thinned_out(items)}
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
        items[:] = [item for item in items if id(item) not in left_out]


def thinned_out(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases to leave out of each test marked one_in(k): all but the first and every k-th after it."""
    seen: Counter[str] = Counter()
    for item in items:
        if mark := item.get_closest_marker("one_in"):
            test = item.nodeid.partition("[")[0]
            if seen[test] % mark.args[0]:
                yield item
            seen[test] += 1


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let several tests run at a time under pytest-xdist, but a test marked alone by itself."""
    folder = item.config.rootpath / ".pytest_cache"
    folder.mkdir(exist_ok=True)
    with (folder / "gate").open("w") as gate, (folder / "room").open("w") as room:
        fcntl.flock(gate, fcntl.LOCK_EX)  # no test begins while another waits to run alone
        fcntl.flock(room, fcntl.LOCK_EX if "alone" in item.keywords else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """FARANDOLE_REQUIRE=all: a skipped test has failed, except where it needs a GPU, a kernel or another's rounding."""
    report: Any = yield
    excused = hasattr(report, "wasxfail") or not EXCUSED.isdisjoint(item.keywords)
    if REQUIRE_ALL and report.skipped and not excused:
        report.outcome = "failed"
        report.longrepr = f"skipped, but FARANDOLE_REQUIRE=all: {report.longrepr}"
    return report


@pytest.hookimpl(tryfirst=True)  # pytest-xdist starts its workers in the same hook, and they inherit the environment
def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the fork server that all workers share. Its start takes six seconds of processor time."""
    folders = ({Path(argument), *Path(argument).parents} for argument in session.config.args)
    if any(found.isdisjoint(WITHOUT_RANKS) for found in folders):
        # Torch's optimizers and DDP, with which the methods are compared, load torch's compiler: two seconds on each
        # rank. Some test programs import pytest.
        with pytest.MonkeyPatch.context() as environment:
            # The fork server looks up all functions of the libraries. Else each fork looks up those it calls: 3 ms.
            environment.setenv("LD_BIND_NOW", "1")
            fork_server.start("torch._dynamo", "pytest")
    else:  # nor may a command that they try start one
        os.environ.setdefault(fork_client.ADDRESS, "0")


@pytest.fixture(autouse=True, scope="session")
def session() -> Iterator[str]:
    """Mark every process of this test session, and check at its end that none is left. The fork server is unmarked."""
    number = uuid.uuid4().hex
    os.environ[SESSION] = number
    yield number
    left = processes.find(SESSION, number)
    described = [" ".join(process.cmdline()) for process in left]
    processes.end(left)
    assert not left, f"left running after the last test: {described}"
    assert fork_server_answers(), "the fork server has ended: since then each rank has imported torch by itself"


def fork_server_answers() -> bool:
    """Return whether the fork server that was started, if one was, takes requests."""
    path = os.environ.get(fork_client.ADDRESS, "0").rpartition(":")[2]
    if not path.startswith("/"):
        return True
    with socket.socket(socket.AF_UNIX) as connection:
        return not connection.connect_ex(path)


@pytest.fixture(autouse=True)
def no_rank_left(session: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """Check after a test that no process of a launch is left."""
    yield
    if not set(WITHOUT_RANKS).isdisjoint(Path(request.node.nodeid.partition("::")[0]).parents):
        return
    left = []
    for process in processes.find(SESSION, session):
        with suppress(psutil.NoSuchProcess):  # it has ended in the meantime
            if rank.LAUNCH in process.environ():
                left.append(" ".join(process.cmdline()))
                processes.end([process])
    assert not left, f"left running after the test: {left}"


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `farandole WORDS` in `cwd`, and in this process: a new one needs half a second for its imports."""

    from farandole import cli  # not in a session without commands

    def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        code: Any = 0
        with monkeypatch.context() as here:
            if cwd:
                here.chdir(cwd)
            try:
                cli.main([*words])
            except SystemExit as end:
                code = end.code
        written = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, written.out, written.err)

    return run
