"""The recipes: one module per scenario, each a Config dataclass and a main(config).

A scenario is the only recipe. ``farandole run sync_sgd -n 4``, ``mpirun -n 4 python -m
farandole.scenarios.sync_sgd``, ``launch("sync_sgd", ranks=4)`` in a notebook and ``sbatch
slurm/sync_sgd.sbatch`` all end in the same main(config). The dataclass is its only configuration;
the command line is derived from it.

Modules here import torch and MPI inside main: listing the scenarios and checking their options
must be quick and must not start MPI.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from typing import Any, Protocol, cast

from farandole import methods
from farandole.errors import UsageError
from farandole.methods import METHODS
from farandole.runtime.command_line import ConfigType, parse
from farandole.runtime.options import RunOptions


class Scenario(Protocol):
    """The module of a scenario."""

    __name__: str
    __doc__: str | None
    Config: type[RunOptions]

    @staticmethod
    def main(config: Any) -> None: ...


def names() -> list[str]:
    """Return all scenarios, in alphabetical order: the rows of `METHODS`, and modules here that have no row yet."""
    here = {module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")}
    return sorted(here - methods.aliases().keys() | METHODS.keys())


def load(name: str) -> Scenario:
    """Return the scenario's module, by its name or an alias.

    Raises:
        UsageError: there is no such scenario.
    """
    name = methods.named(name)
    if name not in names():
        raise UsageError(f"there is no scenario {name!r}: choose from {', '.join(names())}")
    module = METHODS[name].module if name in METHODS else ""
    return cast(Scenario, importlib.import_module(module or f"{__name__}.{name}"))


def title(scenario: Scenario) -> str:
    """Return the first line of the scenario's docstring."""
    return (scenario.__doc__ or "").strip().splitlines()[0]


def run_as_program(config_type: type[ConfigType], main: Callable[[ConfigType], None]) -> None:
    """Run a scenario as ``python -m farandole.scenarios.NAME``, alone or as one rank of many."""
    from farandole.runtime import rank, streams

    if rank.scratch() is None:  # under the launcher, standard output is its file
        streams.secure()
    rank.run_rank(lambda: main(parse(config_type, sys.argv[1:])))
    if missing := streams.lost():
        print(f"farandole: {missing}; the run is done", file=sys.stderr)
        sys.exit(1)
