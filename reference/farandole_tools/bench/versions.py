"""Which version of a peer was measured, and how it was set: a ratio to a system says nothing without them.

A benchmark's ``TUNING`` has, for the beginning of each peer's name, what the benchmark sets. What the user's
environment sets for MPI, Horovod or Gloo is added.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import metadata
from importlib.util import find_spec
from string import digits
from typing import Any

from farandole.runtime import mpirun
from farandole.runtime.surroundings import MPI_SETTINGS

AS_INSTALLED = "as installed"
HOROVOD = "as installed: a cycle of 1 ms, a fusion buffer of 128 MiB, over MPI"
MPI = "MPI"
OURS = "farandole"
# How a peer's name begins, after a number → the package that it is of. All others are methods of ours.
PACKAGES = {
    **dict.fromkeys(("torch", "import torch", "Gloo", "Schedule"), "torch"),
    **dict.fromkeys(("Horovod", "Elastic Horovod"), "horovod"),
    **dict.fromkeys(("a copy", "copy", "copies"), "numpy"),
    "Ray": "ray",
    MPI: MPI,
}
# How the variables begin by which a user sets a package.
VARIABLES = {"horovod": ("HOROVOD_", *MPI_SETTINGS), "torch": ("GLOO_",), MPI: MPI_SETTINGS}


def add_to(rows: Iterable[dict[str, Any]], tuning: Mapping[str, str]) -> None:
    """Give each peer that has none yet its version and its tuning.

    Args:
        tuning: how a peer's name begins → what the benchmark sets.
    """
    known: dict[str, dict[str, str]] = {}
    for row in rows:
        for name, its in row["peers"].items():
            if name not in known:
                known[name] = {"version": version(name), "tuning": setting(name, tuning)}
            row["peers"][name] = its | {key: its.get(key, value) for key, value in known[name].items()}


def package_of(peer: str) -> str:
    return _begins(peer, PACKAGES) or OURS


def version(peer: str) -> str:
    """Return for instance "torch 2.13.0"; for our own methods the version of this package."""
    package = package_of(peer)
    if package == MPI:
        return str(mpirun.detect())
    return f"{package} {metadata.version(package)}" if find_spec(package) else f"{package} is not installed"


def setting(peer: str, tuning: Mapping[str, str]) -> str:
    """Return what the benchmark sets for the peer, and what the user's environment does."""
    prefixes = VARIABLES.get(package_of(peer), ())
    users = [f"{name}={value}" for name, value in sorted(os.environ.items()) if prefixes and name.startswith(prefixes)]
    return "; ".join([_begins(peer, tuning) or AS_INSTALLED, *users])


def _begins(peer: str, table: Mapping[str, str]) -> str | None:
    name = peer.lstrip(f"{digits} ")
    return next((its for begin, its in table.items() if name.startswith(begin)), None)
