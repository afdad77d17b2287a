"""The hook by which ranks may start sooner than in a new Python, which imports torch for seconds.

A package that can start ranks sooner registers a function as an entry point of the group `farandole.rank_starter`.
`prepare` calls this function with the names of modules that the launches need. It may set the environment variable
`MODULE` to the name of a module. Each rank of the launches that follow first calls that module's `run()`. It either has
the rank's work done and ends the process, or returns, and then the rank does its work itself. The module is a script,
too, which does the same in a Python without site-packages: that starts sooner.

`farandole_tools.forked_ranks` is such a package. This one imports nothing of it, and works without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec

GROUP = "farandole.rank_starter"
MODULE = "FARANDOLE_STARTER"  # FARANDOLE_RANK_… is what a launch inside a launch must not inherit


def prepare(*modules: str) -> None:
    """Have the ranks of this process's launches start sooner, if an installed package can do it.

    Args:
        modules: what several launches will import and takes long; the starter may import it once for all.

    Cost: the first time, one search through the installed packages' metadata (20 ms).
    """
    for start in _starters():
        start(*modules)


@cache
def _starters() -> list[Callable[..., None]]:
    """Return the functions that installed packages register."""
    from importlib.metadata import entry_points  # a rank has no use for it

    return [starter.load() for starter in entry_points(group=GROUP)]


def command(program: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command of a rank that runs `program`: with the script that `environment` names, if it names one."""
    if (name := environment.get(MODULE)) and (module := find_spec(name)) and module.origin:
        return [sys.executable, "-I", "-S", module.origin, *program]
    return [sys.executable, "-P", "-m", "farandole.runtime", *program]


def run() -> None:
    """In a rank: run the module that `MODULE` names; return if there is none or it leaves the work to this process."""
    if name := os.environ.get(MODULE):
        import_module(name).run()
