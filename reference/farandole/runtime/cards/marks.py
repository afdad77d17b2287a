"""Marks on cards: which cards of a host are taken by a job, for processes that come later.

A mark is the name of a socket in Linux's abstract namespace, which all processes of a host share. It needs no file, and
the kernel frees it as soon as its process has ended, however it has: so the card of a dead rank is free for the process
that takes its place. Cost: a system call for each card that is taken.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from farandole.runtime.cards.assignment import Card

SHARERS = 64  # at most, of a card

_held: list[socket.socket] = []  # until this process ends


def take_free(scope: str, cards: Sequence[Card], share: bool) -> int | None:
    """Mark the least used of `cards` as taken by this process; return its number, or None if all are taken.

    Args:
        scope: of the job; the cards of other jobs are not looked at.
        share: a card may be taken by several processes.
    """
    for slot in range(SHARERS if share else 1):
        for number, card in enumerate(cards):
            if _mark(f"\0farandole-card-{scope}-{card.name}-{slot}"):
                return number
    return None


def _mark(name: str) -> bool:
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(name)
    except OSError as error:
        holder.close()
        return error.errno != errno.EADDRINUSE  # no abstract namespace: then no card is known to be taken
    _held.append(holder)
    return True
