"""Imports go one way: a room imports only rooms before it in `ORDER`, and the tools import the methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[2] / "reference"
TOOLS = "farandole_tools"
# A room, or a module beside the rooms, may import everything above its own line.
ORDER = [
    "errors",
    "runtime",
    "own_task",
    "data",
    "models",
    "tasks",
    "collectives",
    "compression",
    "distributed_checkpoint",
    "data_parallel",
    "decentralised",
    "federated",
    "model_parallel",
    "sharded",
    "grid",
    "recovery",
    "parameter_server",
    "methods",
    "own_loop",
    "former_names",
    "cost",
    "report",
    "scenarios",
    "launching",
    "claims",
    "cli",
    "__main__",
    "farandole",  # the package itself, which exports what programs use
    "starter_task",  # a program, of which `farandole new task` writes a copy
]
CORE = "farandole.parameter_server.core"  # decides without messages, so it imports nothing of its room but itself
ROOMS_OF_METHODS = set(ORDER[ORDER.index("collectives") : ORDER.index("own_loop") + 1]) - {"methods"}
AT_MOST = 250  # lines of a file that explains a method: what is read in one sitting
IN_THE_PACKAGE = {"farandole.__version__"}  # what every room may import from the package itself


def modules(package: str) -> dict[str, Path]:
    """Dotted name → file, of every module."""
    found = {}
    for path in sorted((REFERENCE / package).rglob("*.py")):
        parts = path.relative_to(REFERENCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = {package: modules(package) for package in ("farandole", TOOLS)}


def imports(source: str) -> Iterator[tuple[int, str]]:
    """The line and the dotted name of each import of ours, in functions and for type checkers, too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names = [f"{node.module}.{each.name}" for each in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.partition(".")[0] in MODULES)


def room(name: str) -> str:
    """The room of a dotted name; "farandole" for what the package itself holds."""
    package, *parts = name.split(".")
    if parts and (f"{package}.{parts[0]}" in MODULES["farandole"] or package == TOOLS):
        return TOOLS if package == TOOLS else parts[0]
    return package


def upward(module: str, source: str) -> list[str]:
    """Each import in `source`, that of `module`, which does not stand above the module's room in `ORDER`."""
    own = ORDER.index(room(module))
    faults = []
    for line, name in imports(source):
        theirs = room(name)
        if name in IN_THE_PACKAGE or theirs == room(module):
            continue
        if theirs == TOOLS or ORDER.index(theirs) > own:
            faults.append(f"{module}, line {line}: imports {name}")
    return faults


def outside_the_core(source: str) -> list[str]:
    """What `source`, a module of the core, imports that belongs to a room that sends messages."""
    names = [name for _, name in imports(source) if not name.startswith(CORE)]
    return [name for name in names if not name.startswith("farandole.compression")]


def test_each_room_has_its_place_in_the_order() -> None:
    assert {room(name) for name in MODULES["farandole"]} == set(ORDER)


def test_no_room_imports_upwards() -> None:
    found = [fault for name, path in MODULES["farandole"].items() for fault in upward(name, path.read_text("utf-8"))]
    assert not found, "\n".join(found)


def test_a_file_that_explains_a_method_is_read_in_one_sitting() -> None:
    lengths = {
        path: len(path.read_text("utf-8").splitlines())
        for name, path in MODULES["farandole"].items()
        if room(name) in ROOMS_OF_METHODS
    }
    assert not [f"{path}: {lines} lines" for path, lines in lengths.items() if lines > AT_MOST]


def test_the_core_of_the_parameter_server_imports_nothing_that_sends_messages() -> None:
    found = []
    for name, path in MODULES["farandole"].items():
        if name.startswith(CORE):
            source = path.read_text("utf-8")
            found += [f"{name}: {each}" for each in outside_the_core(source)] + [name] * ("mpi4py" in source)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"from {CORE}.policies import BSP", 0),
        ("from farandole.compression.top_k import largest", 0),
        ("from farandole.parameter_server.keys import KeyRange", 1),
        ("from farandole.runtime.world import World", 1),
    ],
)
def test_an_import_from_outside_the_core_would_be_found(source: str, found: int) -> None:
    assert len(outside_the_core(source)) == found


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("from farandole.runtime import rank", 0),
        ("from farandole import __version__, errors", 0),
        ("import math\nfrom collections import abc", 0),
        ("from farandole.scenarios import load", 1),
        ("from farandole import launch", 1),
        ("from farandole import launching", 1),
        ("import farandole.cli", 1),
        ("def late():\n    from farandole.cost.machine import measured", 1),
        ("from farandole_tools.bench import timing", 1),
        ("import farandole_tools", 1),
    ],
)
def test_an_import_that_goes_upwards_would_be_found(source: str, faults: int) -> None:
    assert len(upward("farandole.recovery.view", source)) == faults
