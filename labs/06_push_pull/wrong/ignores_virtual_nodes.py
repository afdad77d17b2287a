"""Puts each server on the circle 64 times, however many virtual nodes are asked for."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "balance": "is virtual_nodes used?",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, moving, Store, serve, Client = right.cut, right.moving, right.Store, right.serve, right.Client


class HashRing(right.HashRing):
    def __init__(self, servers, virtual_nodes=64):
        super().__init__(servers, virtual_nodes=64)
