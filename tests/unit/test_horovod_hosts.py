"""Where Elastic Horovod finds hosts, and its command to start a worker there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from farandole.errors import UsageError

pytest.importorskip("horovod", reason="no Horovod: make setup builds it")
from farandole.recovery import horovod_hosts
from farandole.recovery.horovod_hosts import HostsFile, SlurmNodes, ThisHost, discover
from farandole.recovery.options import ElasticHorovodOptions

SCONTROL = """#!/bin/sh
case "$*" in
    "show hostnames n[1-3]") printf 'n1\\nn2\\nn3\\n' ;;
    "--oneliner show node n[1-3]") for n in 1 2 3; do echo "NodeName=n$n Arch=x86_64 NodeAddr=127.0.0.1"; done ;;
    *) exit 1 ;;
esac
"""


def test_on_this_machine_each_worker_has_a_host_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    hosts = discover(ElasticHorovodOptions(workers=3))
    assert isinstance(hosts, ThisHost)
    assert list(hosts.slots().values()) == [1, 1, 1], "a host with a failed worker is used no more, with all on it"
    assert [hosts.neighbours(host) for host in hosts.slots()] == [3, 3, 3], "they share its cores"
    monkeypatch.delenv(horovod_hosts.INTERFACE, raising=False)
    assert hosts.interface().startswith("lo")


def test_a_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("node1:2\n\n  node2\n")
    hosts = discover(ElasticHorovodOptions(hosts_file=file))
    assert hosts.slots() == {"node1": 2, "node2": 1}
    file.write_text("node2:4\n")
    assert hosts.slots() == {"node2": 4}
    assert hosts.neighbours("node2") == 4


@pytest.mark.parametrize("text", ["node1:0", "node1:two", "node1 2", "node1:2:3", "$(reboot):1"])
def test_a_line_that_does_not_fit_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"node1:1\n{text}\n")
    with pytest.raises(UsageError, match="write it as node1 or node1:2"):
        HostsFile(file)


def test_a_file_without_hosts_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hosts cannot be read"):
        HostsFile(tmp_path / "hosts")
    (tmp_path / "hosts").write_text("\n")
    with pytest.raises(UsageError, match="names no host"):
        HostsFile(tmp_path / "hosts")


def test_on_other_hosts_ssh_brings_folder_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last word is the command for the other host's shell: here, a shell of this host runs it."""
    file, program, given = tmp_path / "hosts", ["sh", "-c", 'echo "$PWD" "$WITH"'], {"WITH": "two words; $HOME"}
    file.write_text("localhost\nelsewhere\n")
    hosts = HostsFile(file)
    monkeypatch.chdir(tmp_path)
    assert hosts.command("localhost", program, given) == program
    monkeypatch.setattr(hosts, "address", lambda host: "192.0.2.1")  # unassigned, by RFC 5737
    *ssh, there = hosts.command("elsewhere", program, given)
    assert (ssh[0], ssh[-1]) == ("ssh", "elsewhere")
    said = subprocess.run(["sh", "-c", there], cwd="/", capture_output=True, text=True, timeout=30, check=True)
    assert said.stdout == f"{tmp_path} two words; $HOME\n"


def test_slurms_nodes_take_as_many_as_the_job_has_tasks_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "2(x2),1")
    hosts = discover(ElasticHorovodOptions())
    assert isinstance(hosts, SlurmNodes)
    assert hosts.slots() == {"n1": 2, "n2": 2, "n3": 1}
    assert hosts.address("n3") == "127.0.0.1"
    command = hosts.command("n2", ["program"], {})
    assert (command[0], command[-1]) == ("srun", "program")
    assert "--nodelist=n2" in command
    assert not any(word.startswith("--cpus-per-task") for word in command)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    assert "--cpus-per-task=8" in hosts.command("n2", ["program"], {}), "a step does not inherit it: one core"
