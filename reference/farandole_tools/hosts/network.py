"""Hosts that are network namespaces of this machine, and a network between them whose speed the kernel limits.

    h1 ── eth0 ─┐
    h2 ── eth0 ─┼─ bridge `farandole`          each line a pair of virtual interfaces, both ends limited to --mbps
    h3 ── eth0 ─┘

A host has a network, a name and an /etc/hosts of its own; processors, memory, files and processes are this machine's.
MPI takes the hosts for different ones: within one its messages go through memory, between two through TCP and
through the limited interfaces. One process holds each host's namespaces; everything goes when these processes end.

Linux, as root, with iproute2 and util-linux.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from farandole.errors import UsageError
from farandole.runtime import processes
from farandole.runtime.placement import COMMAND

BRIDGE = "farandole"
SUBNET = "10.77.0.0/24"
MAX_HOSTS = 64
HOLDER = "FARANDOLE_HOSTS_OF"  # in the environment of the processes that hold the hosts: which folder's
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
APPEAR_S = 10.0
LONGEST_QUEUE = "400ms"  # in a limited interface; what comes then is lost, and TCP sends it again
SHORTEST_BURST = 3200  # bytes that pass at once: two packets

AGENT = """#!/bin/sh
# As ssh would: agent HOST COMMAND…
host=$1
shift
exec nsenter --target "$(cat "$(dirname "$0")/$host.pid")" --net --uts --mount /bin/sh -c "$*"
"""


class HostsError(Exception):
    """The hosts could not be made or removed; the text says which command failed, and what it said."""


@dataclass(frozen=True)
class Status:
    """The state of the hosts.

    Attributes:
        folder: where their description lies.
        hosts: name → the process that holds it; None: it is gone.
        mbps: each one's link; None: as fast as it is.
    """

    folder: Path
    hosts: dict[str, int | None]
    mbps: float | None

    @property
    def up(self) -> bool:
        return bool(self.hosts) and None not in self.hosts.values()


def default_folder() -> Path:
    """$XDG_STATE_HOME/farandole/hosts, or the same below ~/.local/state."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "farandole" / "hosts"


def why_not() -> str | None:
    """Why no hosts can be made here; None: they can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid():
        return f"only root may make network namespaces: sudo {COMMAND} hosts up"
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        return f"no {missing[0]} here: apt-get install {PROGRAMS[missing[0]]}"
    if subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, check=False).returncode:
        return "this system permits no namespaces"
    return None


def status(folder: Path) -> Status:
    try:
        about = json.loads((folder / "hosts.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Status(folder, {}, None)
    alive = {process.pid for process in processes.find(HOLDER, str(folder))}
    numbers = {name: int((folder / f"{name}.pid").read_text(encoding="utf-8")) for name in about["names"]}
    return Status(folder, {name: pid if pid in alive else None for name, pid in numbers.items()}, about["mbps"])


def up(folder: Path, count: int, mbps: float | None = None, subnet: str = SUBNET) -> Status:
    """Make `count` hosts h1, h2, …

    Args:
        mbps: million bits a second that each can send, and receive; None: no limit.
        subnet: the addresses of the network between them; the last one is this machine's.

    Raises:
        UsageError: other hosts are up, or it cannot be done here.
        HostsError: a command failed; nothing is left of what had been done.
    """
    if reason := why_not():
        raise UsageError(f"no hosts can be made: {reason}")
    folder = folder.expanduser().resolve()
    before = status(folder)
    if before.up and (len(before.hosts), before.mbps) == (count, mbps):
        return before
    if before.up:
        raise UsageError(f"{len(before.hosts)} hosts are up already: farandole hosts down, and then up again")
    if (Path("/sys/class/net") / BRIDGE).exists() and not before.hosts:
        raise UsageError(f"there is a network {BRIDGE} of another folder: farandole hosts down --dir …, or ip link del")
    down(folder)
    names = [f"h{number}" for number in range(1, count + 1)]
    network = IPv4Network(subnet)
    addresses = [str(address) for address in network.hosts()]
    if len(addresses) < count + 1:
        raise UsageError(f"--subnet {subnet} has too few addresses for {count} hosts and this machine")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agent").write_text(AGENT, encoding="utf-8")
    (folder / "agent").chmod(0o700)
    known = [f"{address} {name}" for name, address in zip(names, addresses, strict=False)]
    here = f"{addresses[-1]} {socket.gethostname()}"
    (folder / "etc_hosts").write_text("\n".join(["127.0.0.1 localhost", here, *known]) + "\n", encoding="utf-8")
    try:
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "addr", "add", f"{addresses[-1]}/{network.prefixlen}", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        for name, address in zip(names, addresses, strict=False):
            holder = _hold(folder, name)
            (folder / f"{name}.pid").write_text(str(holder), encoding="utf-8")
            _connect(holder, name, f"{address}/{network.prefixlen}", mbps)
    except BaseException:  # Ctrl-C too
        down(folder)
        raise
    about = {"names": names, "subnet": subnet, "mbps": mbps}
    (folder / "hosts.json").write_text(json.dumps(about, indent=2), encoding="utf-8")
    return status(folder)


def down(folder: Path) -> bool:
    """End the hosts with all that runs on them; whether there were any."""
    folder = folder.expanduser().resolve()
    holders = processes.find(HOLDER, str(folder))
    found = bool(holders) or (folder / "hosts.json").exists()
    processes.end(holders)
    if found:
        for link in Path("/sys/class/net").glob(f"{BRIDGE}*"):
            _remove(link)
    for pattern in ("*.pid", "hosts.json", "etc_hosts", "agent"):
        for file in folder.glob(pattern):
            file.unlink()
    return found


def _hold(folder: Path, name: str) -> int:
    """Start the process in whose namespaces the host `name` lives; its number."""
    text = 'hostname "$1" && mount --bind "$2" /etc/hosts && exec sleep infinity'
    process = subprocess.Popen(
        ["unshare", "--net", "--uts", "--mount", "sh", "-c", text, "sh", name, str(folder / "etc_hosts")],
        env=os.environ | {HOLDER: str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + APPEAR_S
    while time.monotonic() < deadline and process.poll() is None:
        if Path(f"/proc/{process.pid}/comm").read_text(encoding="utf-8").strip() == "sleep":
            return process.pid
        time.sleep(0.01)
    process.kill()
    said = process.communicate()[1].decode(errors="replace").strip()
    raise HostsError(f"the host {name} did not appear: {said or f'not within {APPEAR_S:g} s'}")


def _connect(holder: int, name: str, address: str, mbps: float | None) -> None:
    """A link from the bridge into the host's network."""
    outer = f"{BRIDGE}-{name}"
    within = ["nsenter", "--target", str(holder), "--net"]
    _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", str(holder))
    _run("ip", "link", "set", outer, "master", BRIDGE, "up")
    _run(*within, "ip", "link", "set", "lo", "up")
    _run(*within, "ip", "addr", "add", address, "dev", "eth0")
    _run(*within, "ip", "link", "set", "eth0", "up")
    if mbps:
        burst = str(max(SHORTEST_BURST, round(mbps * 1e6 / 8 * 5e-3)))  # what passes in 5 ms
        limit = ["root", "tbf", "rate", f"{mbps * 1e6:.0f}bit", "burst", burst, "latency", LONGEST_QUEUE]
        _run("tc", "qdisc", "add", "dev", outer, *limit)
        _run(*within, "tc", "qdisc", "add", "dev", "eth0", *limit)


def _remove(link: Path) -> None:
    """Remove an interface; the kernel removes those of hosts that are gone too, when it comes to it."""
    try:
        _run("ip", "link", "del", link.name)
    except HostsError:
        if link.exists():
            raise


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostsError(f"{' '.join(command)} failed: {done.stderr.strip()}")
