"""Takes the key modulo the number of servers: balanced, but nearly every key moves when one joins."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "joining": "Is it key % servers?",
    "balance": "is virtual_nodes used?",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, Store, serve, Client = right.cut, right.Store, right.serve, right.Client


class HashRing:
    def __init__(self, servers, virtual_nodes=64):
        self.servers = sorted(servers)

    def server_of(self, key):
        return self.servers[key % len(self.servers)]


def moving(ranges, servers, new):
    before, after = HashRing(servers), HashRing([*servers, new])
    return [i for i, part in enumerate(ranges) if before.server_of(part.start) != after.server_of(part.start)]
