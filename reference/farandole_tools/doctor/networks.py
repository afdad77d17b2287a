"""The networks of MPI's messages between hosts, and whether MPI can read a card's memory."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from farandole.runtime import surroundings
from farandole.runtime.mpirun import Mpi
from farandole_tools.doctor.finding import Finding

DEVICES = Path("/sys/class/infiniband")  # InfiniBand, RoCE, Omni-Path and EFA alike
VERBS = "libibverbs.so.1"
CLUSTERS = "load the cluster's MPI module, and build the environment with it (slurm/README.md)"
TIMEOUT_S = 30


def findings(mpi: Mpi, is_cuda_aware: bool) -> list[Finding]:
    """Return what is found of the network and of cards' memory."""
    devices = sorted(each.name for each in DEVICES.iterdir()) if DEVICES.is_dir() else []
    staged = "no: what a card sends is copied to pinned memory of the host first, which always works"
    aware = "yes: --card-transport direct sends from a card's memory" if is_cuda_aware else staged
    between = between_hosts(devices, components(mpi) if devices else [], has_verbs() if devices else True)
    return [Finding("MPI is CUDA-aware", True, aware), between]


def between_hosts(devices: Sequence[str], components: Sequence[str] | None, verbs: bool) -> Finding:
    """Return by what messages between hosts travel.

    Args:
        devices: the fast network's on this host.
        components: Open MPI's, as "pml:ucx"; None: not known, as of another MPI.
        verbs: whether the library by which programs reach these devices is here.
    """
    name = "MPI's network"
    if not devices:
        return Finding(name, True, "TCP: this host has no InfiniBand or similar")
    named = ", ".join(devices)
    if components is None:
        return Finding(name, True, f"{named}: this MPI chooses by itself")
    by = "UCX" if "pml:ucx" in components else "libfabric" if "mtl:ofi" in components else ""
    if not by:
        return Finding(
            name, False, f"TCP, though there is {named}: this Open MPI has neither UCX nor libfabric", CLUSTERS
        )
    if not verbs:
        return Finding(name, False, f"TCP, though there is {named}: {VERBS} is missing", f"install it, or {CLUSTERS}")
    slower = "mpirun --with-ft ulfm, for trainings that outlive ranks, may use TCP"
    return Finding(name, True, f"{named} by {by}; {slower}")


def components(mpi: Mpi) -> list[str] | None:
    """Return the components that move messages in this Open MPI, as "pml:ucx"; None: not known."""
    info = mpi.mpirun.with_name("ompi_info")
    if mpi.family != "Open MPI" or not info.exists():
        return None
    command: list[str | Path] = [info, "--parsable"]
    environment = surroundings.mended(os.environ)
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return sorted(set(re.findall(r"^mca:((?:pml|mtl):\w+):version", shown.stdout, re.MULTILINE)))


def has_verbs() -> bool:
    """Return whether the library of InfiniBand's verbs can be loaded, which an MPI from a wheel does not bring."""
    try:
        ctypes.CDLL(VERBS)
    except OSError:
        return False
    return True
