"""By which address other hosts reach this one: not always that of its name.

Debian writes its own name into /etc/hosts as 127.0.1.1, which on any other host is that host itself. So this looks
further: for the interface that leads elsewhere, and where none does, as in a network of its own, for any that is up.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import psutil

LOOPBACK = "127.0.0.1"
ELSEWHERE = ("192.0.2.1", 9)  # an address kept for documentation; nothing is sent there


def reachable_address() -> str:
    """Return an IPv4 address by which other hosts reach this one; the loopback's if there is none."""
    found = chain(_of_the_name(), _on_the_way_elsewhere(), _of_the_interfaces())
    return next((address for address in found if not address.startswith("127.")), LOOPBACK)


def _of_the_name() -> Iterator[str]:
    with suppress(OSError):  # the name is unknown
        yield socket.gethostbyname(socket.gethostname())


def _on_the_way_elsewhere() -> Iterator[str]:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # there is no way
        probe.connect(ELSEWHERE)
        yield probe.getsockname()[0]


def _of_the_interfaces() -> Iterator[str]:
    states = psutil.net_if_stats()
    for name, addresses in psutil.net_if_addrs().items():
        if name in states and states[name].isup:
            yield from (its.address for its in addresses if its.family == socket.AF_INET)
