"""Hashes a server's place in the list, not its number: when one leaves, the others change their names."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "same everywhere": "by its number, and not by its place in the list?",
    "joining": "only the keys of server 0 need a new place",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, Store, serve, Client = right.cut, right.Store, right.serve, right.Client


class HashRing(right.HashRing):
    def __init__(self, servers, virtual_nodes=64):
        self.numbers = list(servers)
        super().__init__(range(len(self.numbers)), virtual_nodes)

    def server_of(self, key):
        return self.numbers[super().server_of(key)]


def moving(ranges, servers, new):
    before, after = HashRing(servers), HashRing([*servers, new])
    return [i for i, part in enumerate(ranges) if before.server_of(part.start) != after.server_of(part.start)]
