"""Acknowledges at once and applies at the end of the worker's turn: its pull comes before its push."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {
    "acknowledged": "does the server apply a push before it acknowledges it?",
    "two servers": "lacks the worker's own push",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, HashRing, moving, Store, Client = right.cut, right.HashRing, right.moving, right.Store, right.Client


def serve(store, ranges, workers, rounds, comm):
    request = np.empty(3, dtype=np.int64)
    for worker in list(workers) * rounds:
        put_off = []
        while True:
            comm.receive(request, worker)
            kind, number, clock = request.tolist()
            if kind == right.DONE:
                break
            if kind == right.PUSH:
                gradient = np.empty(len(ranges[number]))
                comm.receive(gradient, worker)
                comm.send(np.array([1]), worker)
                put_off.append((number, worker, clock, gradient))
            else:
                comm.send(store.pull(number), worker)
        for push in put_off:
            store.push(*push)
