"""The device of this rank: agreed with all others at the start, or the free one for a process that comes later.

report    whether it computes, and which cards it sees                (an all-gather of some 200 bytes a rank)
assign    which card each rank gets (`assignment`)
mark      the card as taken, for processes of this job that come later (`marks`)
bind      this rank to the cores near its card (`near_cores`)
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import dataclass, replace

import torch
from mpi4py import MPI

from farandole.errors import UsageError
from farandole.runtime import devices
from farandole.runtime.cards import detection
from farandole.runtime.cards.assignment import Card, Report, assign, requested
from farandole.runtime.cards.marks import take_free
from farandole.runtime.cards.near_cores import allowed_cores, best_cores, bind
from farandole.runtime.communicator import all_gather_text
from farandole.runtime.options import RunOptions

CPU = torch.device("cpu")


@dataclass(frozen=True)
class RankDevice:
    """Where a rank computes.

    Attributes:
        device: in torch's terms.
        card: None: it computes on the CPU.
        cores: that it may use, as "0-15"; "": all.
        mates: how many ranks of its host may use the same cores, itself included.
        scope: of the job's marks; "": no rank computes on a card.
        note: a line for the user, if ranks compute on the CPU though there seem to be cards; else "".
    """

    device: torch.device
    card: Card | None
    cores: str
    mates: int
    scope: str
    note: str = ""

    @property
    def on_cards(self) -> bool:
        """Whether any rank of the job computes on a card."""
        return bool(self.scope)

    def described(self) -> dict[str, str | None]:
        """Return it as the record has it."""
        device = devices.describe(self.device)
        card = self.card.name if self.card else None
        return {"device": device, "card": card, "host": socket.gethostname(), "cores": self.cores}


def agree(control: MPI.Intracomm, options: RunOptions, host: int) -> RankDevice:
    """Agree with all ranks which card each gets, and take this rank's. Collective.

    Args:
        host: the lowest rank of this host.

    Raises:
        UsageError: as `assignment.assign`.
    """
    own = _report(options, control.rank, control.size, host)
    told = all_gather_text(control, json.dumps([own.to_dict(), secrets.token_hex(4)]))
    reports = [Report.from_dict(json.loads(text)[0]) for text in told]
    scope = json.loads(told[0])[1]
    assigned = assign(reports, options.share_cards)
    cores = [_cores(*each) for each in zip(reports, assigned.numbers, strict=True)]
    mates = [cores[rank] for rank, each in enumerate(reports) if each.host == host].count(cores[control.rank])
    number = assigned.numbers[control.rank]
    if number is None:
        on_cards = any(other is not None for other in assigned.numbers)
        return RankDevice(CPU, None, own.allowed, mates, scope if on_cards else "", assigned.note)
    card = own.cards[number]
    take_free(scope, [card], share=True)
    bind(cores[control.rank])
    return RankDevice(detection.device_of(number), card, cores[control.rank], mates, scope, assigned.note)


def free(options: RunOptions, scope: str, mates: int, at_once: int = 1) -> RankDevice:
    """Return the device of a process that comes later: a card that no other process of the job has taken on this host.

    Args:
        scope: of the job's marks; "": its ranks compute on the CPU.
        mates: how many processes of the job share the cores of this host.
        at_once: how many such processes start together on this host. If it has fewer cards, `assignment.assign`
            decides for each of them as it does for ranks.

    Raises:
        UsageError: as `assignment.assign`; or all cards are taken, though cards were requested.
    """
    on_the_cpu = RankDevice(CPU, None, allowed_cores(), mates, scope)
    if not scope or options.device == "cpu":
        return on_the_cpu
    own = _seen(options, host=0)
    assigned = assign([own] * at_once, options.share_cards)
    if assigned.numbers[0] is None:
        return replace(on_the_cpu, note=assigned.note)
    number = take_free(scope, own.cards, options.share_cards)
    if number is not None:
        cores = _cores(own, number)
        bind(cores)
        return RankDevice(detection.device_of(number), own.cards[number], cores, mates, scope)
    taken = f"all cards of this host ({len(own.cards)}) are taken"
    if own.required or own.requested:
        raise UsageError(f"{taken}: --share-cards lets a process share one")
    note = f"{taken}, so a process computes on the CPU; --share-cards lets it share one"
    return replace(on_the_cpu, note=note)


def _cores(report: Report, number: int | None) -> str:
    """Return the cores on which a process stays that computes on this card; None: on the CPU."""
    return report.allowed if number is None else best_cores(report.allowed, report.cards[number].cores)


def _report(options: RunOptions, rank: int, ranks: int, host: int) -> Report:
    if options.device == "cpu" or not options.computes(rank, ranks):
        return Report(host, computes=False, allowed=allowed_cores())
    return _seen(options, host)


def _seen(options: RunOptions, host: int) -> Report:
    """Return the report of a process that computes, and may do so on a card."""
    by = requested(os.environ)
    found, unusable = detection.usable_cards(options.device, by)
    if found and (unfit := options.unfit_for_cards()):
        found, unusable = [], unfit
    return Report(host, True, options.device == "cuda", found, by, unusable, allowed_cores())
