"""Which version of a peer was measured: a ratio to a system says nothing without it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from farandole.runtime import mpirun

# How a peer's name begins → the package that it is of.
PACKAGES = {
    **dict.fromkeys(("torch", "import torch", "Gloo", "Schedule"), "torch"),
    **dict.fromkeys(("Horovod", "Elastic Horovod"), "horovod"),
    "Ray": "ray",
}
MPI = "MPI"


def add_to(rows: Iterable[dict[str, Any]]) -> None:
    """Give each peer that is another system, and has no version yet, the one that is installed."""
    known: dict[str, str] = {}
    for row in rows:
        for name, its in row["peers"].items():
            if "version" not in its and (found := known.setdefault(name, of(name))):
                its["version"] = found


def of(peer: str) -> str:
    """Return for instance "torch 2.13.0"; "" for our own methods, and what the memory gives."""
    if peer.startswith(MPI):
        return str(mpirun.detect())
    package = next((package for begin, package in PACKAGES.items() if peer.startswith(begin)), None)
    return f"{package} {metadata.version(package)}" if package and find_spec(package) else ""
