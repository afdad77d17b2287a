"""The device of this rank: agreed with all others at the start, or the free one for a process that comes later.

report    whether it computes, and which cards it sees                (an all-gather of some 200 bytes a rank)
assign    which card each rank gets (`cards`)
mark      the card as taken, for processes of this job that come later (`card_marks`)
bind      this rank to the cores near its card (`near_cores`)
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import dataclass

import torch
from mpi4py import MPI

from farandole.errors import UsageError
from farandole.runtime import card_detection, devices
from farandole.runtime.card_marks import take_free
from farandole.runtime.cards import NO_CARD, Card, Report, assign, requested
from farandole.runtime.communicator import all_gather_text
from farandole.runtime.near_cores import bind
from farandole.runtime.options import RunOptions


@dataclass(frozen=True)
class RankDevice:
    """Where a rank computes.

    Attributes:
        device: in torch's terms.
        card: None: it computes on the CPU.
        cores: that it may use, as "0-15".
        mates: how many ranks of its host share these cores, itself included; None: all.
        scope: of the job's marks; "": nobody computes on a card.
        note: a line for the user, if ranks compute on the CPU though there seem to be cards; else "".
    """

    device: torch.device
    card: Card | None
    cores: str
    mates: int | None
    scope: str
    note: str = ""

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
        UsageError: as `cards.assign`.
    """
    own = _report(options, control.rank, control.size, host)
    told = all_gather_text(control, json.dumps([own.to_dict(), secrets.token_hex(4)]))
    reports = [Report.from_dict(json.loads(text)[0]) for text in told]
    scope = json.loads(told[0])[1]
    assigned = assign(reports, options.share_cards)
    number = assigned.numbers[control.rank]
    if number is None:
        on_cards = any(other is not None for other in assigned.numbers)
        return _on_the_cpu(scope if on_cards else "", assigned.note)
    card = own.cards[number]
    take_free(scope, [card], share=True)
    pairs = zip(reports, assigned.numbers, strict=True)
    near = [each.cards[index].cores for each, index in pairs if index is not None and each.host == host]
    mates = near.count(card.cores) if card.cores else None
    return RankDevice(card_detection.device_of(number), card, bind(card.cores), mates, scope, assigned.note)


def free(options: RunOptions, scope: str) -> RankDevice:
    """Return the device of a process that comes later: a card that no other process of the job has taken on this host.

    Args:
        scope: of the job's marks; "": its ranks compute on the CPU.

    Raises:
        UsageError: all cards are taken though cards were requested, or `--device cuda` was given and there are none.
    """
    if not scope or options.device == "cpu":
        return _on_the_cpu(scope)
    own = _seen(options, host=0)
    number = take_free(scope, own.cards, options.share_cards)
    if number is not None:
        card = own.cards[number]
        return RankDevice(card_detection.device_of(number), card, bind(card.cores), None, scope)
    if own.required and not own.cards:
        raise UsageError(f"--device cuda: {own.unusable or NO_CARD}; use --device cpu")
    if own.cards and (own.required or own.requested):
        raise UsageError(f"all cards of this host ({len(own.cards)}) are taken: --share-cards lets a process share one")
    return _on_the_cpu(scope, own.unusable and f"a process computes on the CPU: {own.unusable}")


def _report(options: RunOptions, rank: int, ranks: int, host: int) -> Report:
    if options.device == "cpu" or not options.computes(rank, ranks):
        return Report(host, computes=False)
    return _seen(options, host)


def _seen(options: RunOptions, host: int) -> Report:
    """Return the report of a process that computes, and may do so on a card."""
    by = requested(os.environ)
    found, unusable = card_detection.usable_cards(options.device, by)
    if found and (unfit := options.unfit_for_cards()):
        found, unusable = [], unfit
    return Report(host, True, options.device == "cuda", found, by, unusable)


def _on_the_cpu(scope: str, note: str = "") -> RankDevice:
    return RankDevice(torch.device("cpu"), None, bind(""), None, scope, note)
