"""The files of a sandbox: one folder with configuration, key, logs, spools and scratch.

slurm.conf gres.conf task_prolog.sh    filled in from slurm/sandbox/ of the checkout
munge/        the key and munged's socket
state/        the controller's: the queue, job numbers
spool/n1 …    each node's: the scripts and sockets of its running jobs
tmp/n1 …      each node's scratch, TMPDIR of its jobs
gpu/          nvidia0 … nvidia3, links to /dev/null
log/          one log for each daemon; run/ their process ids, which nothing here relies on
"""

from __future__ import annotations

import os
import pwd
import random
import secrets
import socket
import time
from pathlib import Path
from string import Template

from farandole.errors import UsageError
from farandole_tools import material

TEMPLATES = material.folder("slurm") / "sandbox"
GPUS_PER_NODE = 4  # as slurm.conf and gres.conf say
MAX_NODES = 64
# A Unix socket's path has at most 107 characters, and the longest that Slurm makes below the folder,
# /spool/n64/stepd.slurm.pmix.<job>.<step>, has about 45.
MAX_FOLDER_LENGTH = 60
# Below the ephemeral range (32768 and up on Linux), so that no outgoing connection takes one of them
# between our look and the daemon's start.
PORTS = range(20000, 32000)
SENTINEL = ".farandole-slurm"  # a folder that holds this file is ours to delete


def default_folder() -> Path:
    """$XDG_STATE_HOME/farandole/slurm, or the same below ~/.local/state."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "farandole" / "slurm"


def resolve(folder: Path) -> Path:
    """Return the folder as an absolute path, refused if Slurm's sockets below it would have too long a name."""
    folder = folder.expanduser().resolve()
    if len(str(folder)) > MAX_FOLDER_LENGTH:
        raise UsageError(
            f"the folder's path has {len(str(folder))} characters; Slurm's sockets allow"
            f" {MAX_FOLDER_LENGTH}, so give a shorter --dir: {folder}"
        )
    if any(character.isspace() or character in "%,[]#" for character in str(folder)):
        raise UsageError(f"slurm.conf cannot hold a path with blanks or any of %,[]# in it: {folder}")
    return folder


def is_sandbox(folder: Path) -> bool:
    return (folder / SENTINEL).exists()


def node_names(folder: Path) -> list[str]:
    """Return the nodes that the sandbox was made with, in order: n1, n2, …"""
    return sorted((path.name for path in folder.glob("spool/n*")), key=lambda name: int(name[1:]))


def current_user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def create(folder: Path, nodes: int) -> None:
    """Writes the folder of a new sandbox with `nodes` nodes.

    Raises:
        UsageError: the folder holds something else, or the templates are not there.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds files that are not a sandbox's; name a new or an empty folder")
    if not TEMPLATES.is_dir():
        raise UsageError(f"no {TEMPLATES}: run farandole from a checkout (pip install --editable .)")

    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # no other user reaches the key or the sockets
    (folder / SENTINEL).touch()
    for name in ("munge", "state", "gpu", "log", "run"):
        (folder / name).mkdir()
    for number in range(1, nodes + 1):
        (folder / "spool" / f"n{number}").mkdir(parents=True)
        (folder / "tmp" / f"n{number}").mkdir(parents=True)
    for gpu in range(GPUS_PER_NODE):
        (folder / "gpu" / f"nvidia{gpu}").symlink_to(os.devnull)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))

    port = free_ports(1 + nodes)
    values = {
        "folder": folder,
        "host": socket.gethostname().partition(".")[0],
        "loopback": "" if loopback_only() else "# ",
        "user": current_user(),
        "nodes": nodes,
        "first_job": 1 + int(time.time()) // 6 % 1_000_000,
        "controller_port": port,
        "first_node_port": port + 1,
        "last_node_port": port + nodes,
    }
    for name in ("slurm.conf", "gres.conf", "task_prolog.sh"):
        text = Template((TEMPLATES / name).read_text(encoding="utf-8")).substitute(values)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "task_prolog.sh").chmod(0o700)


def loopback_only() -> bool:
    """Return whether Slurm can be told to listen on 127.0.0.1 alone: if this machine's name stands for it.

    Slurm's option binds to the address of the host's own name. Where that is 127.0.1.1 (Debian's
    default), srun would listen there while the nodes answer to 127.0.0.1, from which they were called.
    """
    return _lookup(socket.gethostname()) == "127.0.0.1"


def has_network() -> bool:
    """Return whether an interface besides loopback has an IPv4 address; Slurm resolves no name without one."""
    return _lookup(None) is not None


def _lookup(host: str | None) -> str | None:
    """Return the IPv4 address of a host, found as Slurm finds it; None if there is none."""
    flags = socket.AI_ADDRCONFIG | socket.AI_PASSIVE
    try:
        return str(socket.getaddrinfo(host, 0, socket.AF_INET, socket.SOCK_STREAM, flags=flags)[0][4][0])
    except OSError:
        return None


def free_ports(count: int) -> int:
    """Return the first of `count` ports in a row on which nothing listens on this machine."""
    chance = random.SystemRandom()  # so that a seeded program does not try the same ports every time
    for _ in range(100):
        first = chance.randrange(PORTS.start, PORTS.stop - count)
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise OSError(f"no {count} free ports in a row found in {PORTS.start}–{PORTS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def log_tail(folder: Path, name: str, lines: int = 10) -> str:
    """Return the last lines of what a daemon ("munged", "slurmctld", "n1", …) printed and logged."""
    text = ""
    for suffix in ("err", "log"):
        path = folder / "log" / f"{name}.{suffix}"
        text += path.read_text("utf-8", errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-lines:])
