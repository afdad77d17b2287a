"""``--task``: a task of your own, out of a file or a module.

    my_task.py                 its function task()
    my_task.py:small           its function small()
    package.module:small       the same, of a module that can be imported

The function takes nothing and returns a `Task`. Every rank calls it once.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType

from farandole.errors import UsageError

FUNCTION = "task"
STARTER = "farandole new task my_task.py writes one to begin with"


def divided(named: str) -> tuple[str, str]:
    """Return the file or module of a name, and the function in it.

    Raises:
        UsageError: it names neither, or a file that does not exist.
    """
    place, colon, function = named.rpartition(":")
    place, function = (place, function) if colon else (function, FUNCTION)
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise UsageError(f"--task {named}: there is no file {place}; {STARTER}")
    elif not colon or not all(part.isidentifier() for part in place.split(".")):
        raise UsageError(f"--task {named}: give a file as my_task.py, or a function as package.module:function")
    if not function.isidentifier():
        raise UsageError(f"--task {named}: {function!r} cannot be the name of a function")
    return place, function


def absolute(named: str) -> str:
    """Return the name with its file's full path, which all ranks understand wherever they run."""
    place, function = divided(named)
    return f"{Path(place).resolve()}:{function}" if place.endswith(".py") else named


def name_of(task: object) -> str:
    """Return the name by which the ranks of a launch find a task.

    Args:
        task: a name as of --task, or a function of a file or a module.

    Raises:
        UsageError: an object, which other processes do not have; a function that is defined in a notebook.
    """
    if isinstance(task, str | Path):
        return absolute(str(task))
    source = getattr(sys.modules.get(getattr(task, "__module__", "")), "__file__", None)
    name = getattr(task, "__qualname__", "")
    if not (callable(task) and source and name.isidentifier()):
        raise UsageError(
            f"task= is {type(task).__name__}, which the ranks, other processes, do not have: "
            'write its function to a file (in a notebook by %%writefile my_task.py) and give task="my_task.py"'
        )
    return absolute(f"{source}:{name}")


GIVEN: dict[str, object] = {}  # tasks that a program has made itself, by the name under which it gave them


def give(task: object, name: str) -> str:
    """Make a task known to `load` in this process; return the name for --task."""
    known = f"given: {name}"
    GIVEN[known] = task
    return known


def load(named: str) -> object:
    """Return the task of that name: one that this process was given, or what a function returns, called once.

    Raises:
        UsageError: there is no such file, module or function, or it fails.
    """
    return GIVEN[named] if named in GIVEN else _called(named)


@cache
def _called(named: str) -> object:
    place, function = divided(named)
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else _by_name(place)
        make = getattr(module, function, None)
        if not callable(make):
            raise UsageError(f"--task {named}: {place} has no function {function}(), which returns a Task; {STARTER}")
        return make()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"--task {named}: {_where(error, place)}{type(error).__name__}: {error}") from error


def _from_file(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(file.resolve().parent))  # the file may import its neighbours
    sys.modules.setdefault(file.stem, module)  # a worker process of a DataLoader asks for it
    spec.loader.exec_module(module)
    return module


def _by_name(name: str) -> ModuleType:
    sys.path.append(str(Path.cwd()))
    return importlib.import_module(name)


def _where(error: Exception, place: str) -> str:
    """Return the line of the user's file at which it went wrong, as far as it is known."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == Path(place)]
    return f"line {lines[-1]}: " if lines else ""
