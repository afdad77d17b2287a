"""By which address other hosts reach this one."""

from __future__ import annotations

import socket

import psutil
import pytest

from farandole.runtime import addresses
from farandole.runtime.addresses import LOOPBACK, reachable_address


@pytest.mark.parametrize(
    ("name", "way", "interfaces", "chosen"),
    [
        (["10.0.0.7"], ["192.168.1.7"], [LOOPBACK, "192.168.1.7", "10.0.0.7"], "10.0.0.7"),
        (["127.0.1.1"], ["192.168.1.7"], [LOOPBACK, "172.17.0.1", "192.168.1.7"], "192.168.1.7"),
        (["127.0.0.1"], [], [LOOPBACK, "10.77.0.1"], "10.77.0.1"),
        ([], [], [LOOPBACK, "10.77.0.1"], "10.77.0.1"),
        (["127.0.1.1"], [], [LOOPBACK], LOOPBACK),
    ],
    ids=["its name's", "Debian's", "no way elsewhere", "no name", "no network"],
)
def test_others_reach_it(
    monkeypatch: pytest.MonkeyPatch, name: list[str], way: list[str], interfaces: list[str], chosen: str
) -> None:
    sources = {"_of_the_name": name, "_on_the_way_elsewhere": way, "_of_the_interfaces": interfaces}
    for source, found in sources.items():
        monkeypatch.setattr(addresses, source, lambda found=found: found)
    assert reachable_address() == chosen


def test_here_too_a_name_that_stands_for_the_loopback_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "127.0.1.1")
    own = {its.address for each in psutil.net_if_addrs().values() for its in each}
    address = reachable_address()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listens:
        listens.bind((address, 0))
    assert address in own
    assert address == LOOPBACK or not address.startswith("127.")
