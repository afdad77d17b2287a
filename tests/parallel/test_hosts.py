"""Hosts on this machine: ranks run on them, messages between them take time, and nothing is left."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, UsageError, launch
from farandole.runtime.placement import COMMAND, HOSTS, Placement, chosen
from farandole_tools.hosts import network

pytestmark = pytest.mark.one_by_one  # all hosts of this machine are on one bridge

MBPS = 100.0
RECIPE: dict[str, Any] = {"steps": 5, "hidden": 16}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two hosts that the tests share."""
    if reason := network.why_not():
        pytest.skip(f"no hosts can be made: {reason}")
    folder = tmp_path_factory.mktemp("hosts")
    network.up(folder, 2, MBPS)
    yield folder
    network.down(folder)


@pytest.fixture
def on_them(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS, str(two))


@pytest.mark.usefixtures("on_them")
def test_ranks_are_on_two_hosts_and_what_goes_between_them_takes_its_time(under_mpirun: Callable[..., Any]) -> None:
    found = under_mpirun("where.py", 3)
    assert found["hosts"] == ["h1", "h1", "h2"]
    assert found["local_sizes"] == [2, 2, 1]
    assert len(set(found["threads"])) == 1, "h2 has the machine's cores no more for itself than h1 has"
    ideal = found["bytes"] * 8 / (MBPS * 1e6)
    assert found["across_s"] > 0.9 * ideal
    assert found["within_s"] < 0.5 * ideal


@pytest.mark.usefixtures("on_them")
@pytest.mark.parametrize("collective", ["ring", "hierarchical"])
def test_a_training_across_hosts_ends_with_the_parameters_of_one_on_one_host(collective: str, tmp_path: Path) -> None:
    across = launch("sync_sgd", 4, **RECIPE, collective=collective, out=tmp_path / "across").summary
    with pytest.MonkeyPatch.context() as here:
        here.delenv(HOSTS)
        alone = launch("sync_sgd", 4, **RECIPE, collective="ring", out=tmp_path / "alone").summary
    assert across.final_loss == pytest.approx(alone.final_loss, rel=1e-5)
    if collective == "ring":
        assert across.params_sha256 == alone.params_sha256
    assert across.bytes_sent
    assert alone.bytes_sent
    if collective == "hierarchical":  # each of two ranks sends a half across, and back
        assert sum(across.bytes_sent) < sum(alone.bytes_sent) / 2


@pytest.mark.usefixtures("on_them")
def test_a_rank_killed_on_another_host_is_named_and_ends_the_launch(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="rank 1 at step 2 was killed by SIGKILL"):
        launch("sync_sgd", 2, **RECIPE, fail="rank=1,step=2,how=kill", out=tmp_path / "run")


@pytest.mark.usefixtures("on_them")
def test_memory_is_not_shared_between_hosts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 ranks on several nodes share no memory"):
        launch("sync_sgd", 2, **RECIPE, collective="shared-memory", out=tmp_path / "run")


@pytest.mark.alone
@pytest.mark.usefixtures("on_them")
def test_compression_is_faster_over_a_real_link(tmp_path: Path) -> None:
    """A gradient of 1.2 MB takes 96 ms at this speed; its signs, 38 kB, take 3 ms."""
    recipe: dict[str, Any] = {"steps": 10, "hidden": 512}
    none, sign = (
        launch("compressed_sgd", 2, **recipe, compressor=name, out=tmp_path / name).summary for name in ("none", "sign")
    )
    assert sum(sign.comm_s) < sum(none.comm_s) / 3


def test_root_by_sudo_is_advised_to_run_through_sudo(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "somebody")
    command = [sys.executable, "-m", "farandole", "hosts", "up", "2", "--mbps", str(MBPS), "--dir", str(two)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"    sudo {HOSTS}={two.resolve()} {COMMAND} run sync_sgd" in said


def test_a_second_up_changes_nothing_or_is_refused(two: Path) -> None:
    before = network.status(two)
    assert before.up
    assert network.up(two, 2, MBPS) == before
    with pytest.raises(UsageError, match="2 hosts are up already: farandole hosts down"):
        network.up(two, 3, MBPS)


def test_down_removes_everything(two: Path) -> None:
    """The last test of this file: it removes the hosts."""
    holders = network.status(two).hosts.values()
    assert network.down(two)
    assert not any(Path(f"/proc/{holder}").exists() for holder in holders)
    assert not list(Path("/sys/class/net").glob(f"{network.BRIDGE}*"))
    assert not list(two.iterdir())
    assert not network.down(two)


def test_absent_hosts_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS, str(tmp_path))
    with pytest.raises(UsageError, match="where no hosts are: start them with farandole hosts up, or unset it"):
        chosen()
    monkeypatch.setenv(HOSTS, "")
    assert chosen() is None


def test_hosts_need_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts.json").write_text('{"names": ["h1"], "subnet": "10.77.0.0/24"}')
    monkeypatch.setenv(HOSTS, str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    right = f"only root may put ranks on hosts: sudo {HOSTS}={tmp_path} {COMMAND} run …, or unset it"
    with pytest.raises(UsageError, match=re.escape(right)):
        chosen()
    with pytest.raises(UsageError, match=re.escape(f"only root may make network namespaces: sudo {COMMAND} hosts up")):
        network.up(tmp_path, 1)


def test_the_first_hosts_get_one_rank_more() -> None:
    placement = Placement(["h1", "h2", "h3"], "10.77.0.0/24", Path("agent"))
    assert placement.flags(7)[1] == "h1:3,h2:2,h3:2"
    assert placement.flags(2)[1] == "h1:1,h2:1"
