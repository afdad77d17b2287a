"""Helpers that the tests of the labs share."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from farandole_tools.lab import labs
from farandole_tools.lab.grading import Grade, Result
from farandole_tools.lab.labs import Lab

FOLDERS = labs.folders()
LIMIT_S = 120.0  # of a check that ends without a kill: the usual limit is for an idle machine


def on(lab: Lab, *ranks: int, checks: Collection[str] | None = None) -> Lab:
    """Return the lab with all its checks (or some) on these numbers of ranks only: fewer launches."""
    chosen = [check for check in lab.checks if checks is None or check.name in checks]
    return replace(lab, checks=tuple(replace(check, ranks=ranks) for check in chosen))


def module_at(path: Path) -> ModuleType:
    """Return our own file as a module; never use this for a submission that is to be judged."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_name(grade: Grade) -> dict[str, Result]:
    return {result.name: result for result in grade.results}
