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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import cyclopts

from farandole import methods
from farandole.errors import UsageError
from farandole.methods import METHODS
from farandole.runtime.options import RunOptions

LONGEST_WORD = 200

ConfigType = TypeVar("ConfigType", bound=RunOptions)


class Scenario(Protocol):
    """What a scenario's module has."""

    __name__: str
    __doc__: str | None
    Config: type[RunOptions]

    @staticmethod
    def main(config: Any) -> None: ...


def names() -> list[str]:
    """Every scenario, in alphabetical order: the rows of `METHODS`, and modules here that have none yet."""
    here = {module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")}
    return sorted(here | METHODS.keys())


def load(name: str) -> Scenario:
    """The scenario's module, by its name or an alias.

    Raises:
        UsageError: there is none of that name.
    """
    name = methods.named(name)
    if name not in names():
        raise UsageError(f"there is no scenario {name!r}: choose from {', '.join(names())}")
    module = METHODS[name].module if name in METHODS else ""
    return cast(Scenario, importlib.import_module(module or f"{__name__}.{name}"))


def title(scenario: Scenario) -> str:
    """The first line of the scenario's docstring."""
    return (scenario.__doc__ or "").strip().splitlines()[0]


def parse(config_type: type[ConfigType], arguments: Sequence[str]) -> ConfigType:
    """A Config from command-line words.

    Raises:
        UsageError: an unknown option or a value that does not fit, in one line.
    """
    parsed: list[ConfigType] = []

    def accept(config: RunOptions | None = None) -> None:
        parsed.append(cast(ConfigType, config) if config else config_type())

    accept.__annotations__["config"] = config_type | None
    app = cyclopts.App(default_command=accept, version_flags=(), help_flags=())
    run_app(app, arguments)
    return parsed[0]


def run_app(app: cyclopts.App, arguments: Sequence[str]) -> None:
    """Run a cyclopts app; what it has to say of bad input becomes a UsageError of one line."""
    try:
        app(list(arguments), exit_on_error=False, print_error=False, result_action="return_none")
    except cyclopts.CycloptsError as error:
        raise UsageError(one_line(error)) from error


def one_line(error: cyclopts.CycloptsError) -> str:
    """Return the error's message as one line, with very long words shortened."""
    words = str(error).split()
    return " ".join(word if len(word) <= LONGEST_WORD else f"{word[:20]}…" for word in words)


def to_arguments(options: Mapping[str, Any]) -> list[str]:
    """Options as command-line words: {"steps": 5, "slow": [a, b], "align": False} → --steps 5 --slow a --slow b …"""
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if value is True:
            words.append(flag)
        elif value is False:
            words.append("--no-" + flag.removeprefix("--"))
        else:
            for item in value if isinstance(value, list | tuple) else [value]:
                words += [flag, str(item)]
    return words


def run_as_program(config_type: type[ConfigType], main: Callable[[ConfigType], None]) -> None:
    """What ``python -m farandole.scenarios.NAME`` does, alone or as one rank of many."""
    from farandole.runtime import rank, streams

    if rank.scratch() is None:  # under the launcher, standard output is its file
        streams.secure()
    rank.run_rank(lambda: main(parse(config_type, sys.argv[1:])))
    if missing := streams.lost():
        print(f"farandole: {missing}; the run is done", file=sys.stderr)
        sys.exit(1)
