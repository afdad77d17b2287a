"""When gradients count: the consistency models that the documents name, one file each.

A policy decides two things and nothing else: which worker may start its next iteration, and which gradients move the
parameters now. Reading order: ``policy`` (the vocabulary), ``bsp``, ``ssp``, ``asynchronous``, ``half``, ``dssp``,
``quorum``, ``partial``, ``history``.

`POLICIES` is the one table of them. ``--sync``, ``farandole compare``, ``bench methods`` and ``simulate``, and the
tests read it. A new policy is a file with its class, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from farandole.parameter_server.core.policies.asynchronous import Asynchronous
from farandole.parameter_server.core.policies.bsp import BSP
from farandole.parameter_server.core.policies.dssp import DSSP
from farandole.parameter_server.core.policies.half import Half
from farandole.parameter_server.core.policies.history import History
from farandole.parameter_server.core.policies.partial import Partial
from farandole.parameter_server.core.policies.policy import Action, Apply, Drop, Policy, Push
from farandole.parameter_server.core.policies.ssp import SSP

__all__ = [
    "ALIASES",
    "BSP",
    "DSSP",
    "POLICIES",
    "SSP",
    "Action",
    "Apply",
    "Asynchronous",
    "Bounds",
    "Drop",
    "Half",
    "History",
    "Partial",
    "Policy",
    "Push",
    "Row",
    "named",
]


@dataclass(frozen=True)
class Bounds:
    """The parameters of all policies; each uses some of them.

    Attributes:
        staleness, least_staleness: iterations that a worker may be ahead of the slowest; of DSSP the two bounds.
        longest_wait: seconds that a worker waits at most, at random, before it pushes.
        enough: how many gradients make a step.
        patience: how much longer to wait for the late, as a multiple of the time the others took.
    """

    staleness: int = 4
    least_staleness: int = 1
    longest_wait: float = 0.02
    enough: int = 1
    patience: float = 0.5
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """One policy.

    Attributes:
        kind: its class.
        make: makes one for these workers.
        options: the bounds that it uses.
        alias: another word for it on the command line.
        applies_each_once: every gradient moves the parameters, and no more than once.
    """

    kind: type[Policy]
    make: Callable[[Iterable[int], Bounds], Policy]
    options: tuple[str, ...] = ()
    alias: str = ""
    applies_each_once: bool = True

    @property
    def in_rounds(self) -> bool:
        """Whether all workers work on the same step."""
        return self.kind.in_rounds


POLICIES: dict[str, Row] = {
    "bsp": Row(BSP, lambda workers, given: BSP(workers), alias="minibatch"),
    "ssp": Row(SSP, lambda workers, given: SSP(workers, given.staleness), ("staleness",), alias="stale"),
    "async": Row(Asynchronous, lambda workers, given: Asynchronous(workers)),
    "half": Row(
        Half,
        lambda workers, given: Half(workers, given.staleness, given.longest_wait, given.seed),
        ("staleness", "longest_wait"),
    ),
    "partial": Row(
        Partial, lambda workers, given: Partial(workers, given.enough), ("enough",), applies_each_once=False
    ),
    "dssp": Row(
        DSSP,
        lambda workers, given: DSSP(workers, given.least_staleness, given.staleness),
        ("staleness", "least_staleness"),
        alias="dynamic",
    ),
    "history": Row(
        History,
        lambda workers, given: History(workers, given.enough, given.patience),
        ("enough", "patience"),
        applies_each_once=False,
    ),
}
ALIASES = {row.alias: name for name, row in POLICIES.items() if row.alias}


def named(word: str) -> str:
    """Return the policy's name, of which `word` may be an alias."""
    return ALIASES.get(word, word)
