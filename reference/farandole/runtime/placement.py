"""The hosts on which a launch puts its ranks: this one, or those in $FARANDOLE_HOSTS.

The variable names a folder that `farandole hosts up` has made. In it hosts.json lists the hosts, and the program
`agent` runs a command on one of them, as ssh would: with it mpirun starts its daemons. Only root may do that.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import UsageError

HOSTS = "FARANDOLE_HOSTS"
COMMAND = Path(sys.executable).parent / "farandole"  # sudo does not look into a virtual environment by itself


@dataclass(frozen=True)
class Placement:
    """Hosts to start ranks on.

    Attributes:
        names: of the hosts.
        subnet: the network between them, as 10.77.0.0/24.
        agent: the program that runs a command on one of them.
    """

    names: list[str]
    subnet: str
    agent: Path

    def flags(self, ranks: int) -> list[str]:
        """The hosts as an argument of Open MPI's mpirun; the first ones get one rank more if ranks are left over."""
        each, more = divmod(ranks, len(self.names))
        counts = {name: each + (number < more) for number, name in enumerate(self.names)}
        slots = ",".join(f"{name}:{count}" for name, count in counts.items() if count)
        return ["--host", slots, "--map-by", "slot:oversubscribe"]

    def environment(self) -> dict[str, str]:
        """Return the variables of mpirun's environment."""
        return {
            "PRTE_MCA_plm_ssh_agent": str(self.agent),
            "PRTE_MCA_prte_if_include": self.subnet,
            # Each host takes all cores for its own, and its ranks would keep them while they wait.
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }


def share_cores() -> bool:
    """Return whether the hosts of this launch are all on one machine, so that each sees the cores of all."""
    return HOSTS in os.environ


def chosen() -> Placement | None:
    """Return the placement that the environment names; None: this host.

    Raises:
        UsageError: the named folder has no hosts, or the user is not root.
    """
    place = os.environ.get(HOSTS)
    if not place:
        return None
    folder = Path(place)
    try:
        about = json.loads((folder / "hosts.json").read_text(encoding="utf-8"))
        placement = Placement(about["names"], about["subnet"], folder / "agent")
    except PermissionError as error:
        raise _for_root(place) from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(
            f"{HOSTS} is {place}, where no hosts are: start them with farandole hosts up, or unset it"
        ) from error
    if os.geteuid():
        raise _for_root(place)
    return placement


def _for_root(place: str) -> UsageError:
    return UsageError(
        f"{HOSTS} is {place}, and only root may put ranks on hosts: sudo {HOSTS}={place} {COMMAND} run …, or unset it"
    )
