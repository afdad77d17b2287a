"""Begins all reductions when backward is over, whether it is to overlap or not."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "early": "begins when backward is over",
    "one order": "begins when backward is over",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class Overlapped(right.Overlapped):
    def __init__(self, network, comm, most, overlap=True):
        super().__init__(network, comm, most, overlap=False)


cut = right.cut
