"""Where Elastic Horovod may start workers: its host discovery, by three methods.

Horovod queries the hosts, and the number of workers (slots) of each, every second. A new host may receive workers; a
host that is removed loses them. A host on which a worker has failed is put on a blacklist, with all its workers, for
ever or for a time (--cooldown).

So with all workers on one host the first failure ends them all. On this machine each worker therefore has its own
host name (worker-0, worker-1, …).

    a file       read again each time, so that hosts can come and go
    Slurm        the nodes of the job, with as many workers on each as the job has tasks there
    this host    as many names as workers
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from shlex import join, quote

import psutil
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery

from farandole.errors import UsageError
from farandole.recovery.options import ElasticHorovodOptions
from farandole.runtime.processes import available_cores

LOOPBACK = "127.0.0.1"
INTERFACE = "HOROVOD_GLOO_IFACE"  # Horovod's own variable: the network interface between workers
TIMEOUT_S = 30.0


class Hosts:
    """The hosts, and how a program is started on them.

    Attributes:
        discovery: the object that Horovod queries.
    """

    discovery: HostDiscovery

    def slots(self) -> dict[str, int]:
        """Return how many workers each host takes now."""
        found: dict[str, int] = self.discovery.find_available_hosts_and_slots()
        return found

    def neighbours(self, host: str) -> int:
        """Return how many workers share the machine behind `host`."""
        return self.slots().get(host, 1)

    def address(self, host: str) -> str:
        """Return the IPv4 address of `host`.

        Raises:
            UsageError: it has none.
        """
        try:
            return socket.gethostbyname(host)
        except OSError as error:
            raise UsageError(
                f"host {host} has no address ({error.strerror}): give names that this host knows"
            ) from error

    def command(self, host: str, program: list[str], environment: Mapping[str, str]) -> list[str]:
        """Return the command that, run here with `environment`, runs `program` on `host` with `environment`."""
        return program

    def interface(self) -> str:
        """Return the network interface by which this machine reaches the other hosts; without any, the loopback's.

        Its name must be the same on all hosts; otherwise set HOROVOD_GLOO_IFACE.
        """
        if named := os.environ.get(INTERFACE):
            return named
        elsewhere = [address for address in map(self.address, self.slots()) if not is_local(address)]
        own = LOOPBACK
        if elsewhere:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere[0], 9))  # sends nothing, but chooses the route
                own = probe.getsockname()[0]
        return next(name for name, addresses in psutil.net_if_addrs().items() if own in {a.address for a in addresses})


class ThisHost(Hosts):
    """One host name per worker, all of which are this machine."""

    def __init__(self, workers: int) -> None:
        self.discovery = FixedHosts({f"worker-{number}": 1 for number in range(workers)})

    def neighbours(self, host: str) -> int:
        return len(self.slots())

    def address(self, host: str) -> str:
        return LOOPBACK


class SlurmNodes(Hosts):
    """The nodes of the Slurm job; each worker is its own job step."""

    def __init__(self) -> None:
        nodes = _output("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
        tasks = tasks_per_node(os.environ.get("SLURM_TASKS_PER_NODE", "1"))
        self.discovery = FixedHosts(dict(zip(nodes, tasks, strict=False)))
        told = _output("scontrol", "--oneliner", "show", "node", os.environ["SLURM_JOB_NODELIST"])
        self._addresses = dict(re.findall(r"^NodeName=(\S+).* NodeAddr=(\S+)", told, re.MULTILINE))

    def address(self, host: str) -> str:
        return super().address(self._addresses.get(host, host))

    def command(self, host: str, program: list[str], environment: Mapping[str, str]) -> list[str]:
        # --overlap: the other workers' steps have the job's nodes already.
        step = ["srun", "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", f"--nodelist={host}"]
        if cores := os.environ.get("SLURM_CPUS_PER_TASK"):  # a step no longer inherits it (Slurm 22.05 and later)
            step.append(f"--cpus-per-task={cores}")
        return [*step, *program]


class HostsFile(Hosts):
    """The hosts in a file; workers on other machines are started over ssh.

    Raises:
        UsageError: it cannot be read, or a line does not fit.
    """

    def __init__(self, file: Path) -> None:
        self.discovery = _ReadAgain(file)
        if not self.slots():
            raise UsageError(f"--hosts-file {file} names no host: give lines like node1:2")

    def command(self, host: str, program: list[str], environment: Mapping[str, str]) -> list[str]:
        if is_local(self.address(host)):
            return program
        settings = [f"{name}={value}" for name, value in environment.items()]
        there = f"cd {quote(os.getcwd())} && exec {join(['env', *settings, *program])}"
        return ["ssh", "-o", "BatchMode=yes", host, there]


class _ReadAgain(HostDiscovery):  # type: ignore[misc]
    def __init__(self, file: Path) -> None:
        self.file = file

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        try:
            lines = [line.strip() for line in self.file.read_text(encoding="utf-8").splitlines()]
        except OSError as error:
            raise UsageError(f"--hosts-file {self.file} cannot be read ({error.strerror})") from error
        found = {}
        for line in filter(None, lines):
            if not (match := re.fullmatch(r"([\w.-]+)(?::([1-9][0-9]{0,8}))?", line)):
                raise UsageError(f"--hosts-file {self.file}: {line!r} does not fit: write it as node1 or node1:2")
            found[match[1]] = int(match[2] or 1)
        return found


def discover(options: ElasticHorovodOptions) -> Hosts:
    """Return the hosts that the options and the environment name: a file, Slurm's nodes, or this host.

    Raises:
        UsageError: the file does not fit.
    """
    if options.hosts_file:
        return HostsFile(options.hosts_file)
    if "SLURM_JOB_NODELIST" in os.environ:
        return SlurmNodes()
    return ThisHost(options.workers or available_cores())


def tasks_per_node(text: str) -> list[int]:
    """Return SLURM_TASKS_PER_NODE node by node: "2(x3),1" is 2, 2, 2, 1."""
    return [int(count) for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text) for _ in range(int(times or 1))]


def is_local(address: str) -> bool:
    """Return whether `address` is one of this machine's."""
    return any(address == its.address for addresses in psutil.net_if_addrs().values() for its in addresses)


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise UsageError(f"{' '.join(command)} failed ({done.stderr.strip()}): give --hosts-file")
    return done.stdout
