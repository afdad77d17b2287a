"""The ``%%mpi`` cell magic: a notebook's cell as a program of several ranks.

    %load_ext farandole

    %%mpi -n 4 --timeout 60
    from mpi4py import MPI
    print(MPI.COMM_WORLD.rank)

The cell runs in fresh processes, under `launcher.run_ranks` like everything else: it sees nothing of
the notebook's variables, and leaves only those behind that ``--keep`` names (`kept`). What the ranks
print appears in rank order; if one of them fails, the notebook's cell fails, with that rank's
traceback and nothing of the machinery. Line numbers are those of the notebook's cell, ``%%mpi`` being
line 1.
"""

from __future__ import annotations

import argparse
import ast
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from IPython.core.magic import Magics, cell_magic, magics_class

from farandole.errors import LaunchError, LaunchInterrupted, UsageError
from farandole.runtime import guard, kept, signals
from farandole.runtime.launcher import run_ranks

RANKS = 4
TIMEOUT_S = 60.0
LIGHT = {"farandole_tools", "mpi4py", "numpy", *sys.stdlib_module_names}  # packages that do not import torch
FORM = "write it as %%mpi -n 4, or %%mpi -n 4 --timeout 60 --keep loss,steps"


@dataclass(frozen=True)
class Line:
    """The arguments of ``%%mpi``: the number of ranks, a time-out in seconds, and the variables that are kept."""

    ranks: int = RANKS
    timeout_s: float = TIMEOUT_S
    keep: tuple[str, ...] = ()


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%mpi: {message}; {FORM}")


def parse(line: str) -> Line:
    """Return what stands behind ``%%mpi``.

    Raises:
        UsageError: unknown arguments, or values that do not fit.
    """
    parser = _Arguments(prog="%%mpi", add_help=False, allow_abbrev=False)
    parser.add_argument("-n", dest="ranks", type=int, default=RANKS)
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    parser.add_argument("--keep", default="")
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        parser.error(str(error))
    given = parser.parse_args(words)
    if given.ranks < 1:
        parser.error(f"{given.ranks} ranks: there must be at least 1")
    if not 0 < given.timeout < float("inf"):
        parser.error(f"a time-out of {given.timeout:g} s: it must be above 0")
    keep = tuple(given.keep.split(",")) if given.keep else ()
    for name in keep:
        if not name.isidentifier():
            parser.error(f"--keep {name}: this is not the name of a variable")
    return Line(given.ranks, given.timeout, keep)


@magics_class
class MpiMagics(Magics):
    """Brings ``%%mpi``."""

    @cell_magic
    def mpi(self, line: str, cell: str) -> None:
        """Run the cell's Python code on several ranks and print what they print, in rank order.

        %%mpi [-n RANKS] [--timeout SECONDS] [--keep NAME[,NAME]]

        RANKS is 4 and SECONDS 60 if not given. If a rank fails, all are ended, and the rank's
        traceback is shown. Each NAME becomes a variable of the notebook: a list of the values
        that the ranks' variable of this name has at the end, in rank order. It is None for a rank
        that has died, if the others have continued without it.
        """
        given = parse(line)
        values = run_cell(cell, given.ranks, given.timeout_s, given.keep)
        if values and self.shell:
            self.shell.user_ns.update(values)


def run_cell(cell: str, ranks: int, timeout_s: float, keep: Sequence[str] = ()) -> dict[str, list[Any]]:
    """Run `cell` on `ranks` processes and print their output, even if it fails or is interrupted.

    Returns:
        name → the values of all ranks, for each name in `keep`.

    Raises:
        LaunchError: it is not Python, a rank failed, or the time-out passed.
        LaunchInterrupted: the notebook's cell was interrupted.
        UsageError: a variable cannot be kept.
    """
    program = f"# %%mpi\n{cell}"  # one line more, so that line numbers are those of the notebook's cell
    imported = _imported(program)
    with signals.held(), guard.temporary_folder("farandole-cell-") as folder:
        file = folder / "cell.py"
        file.write_text(program + (kept.program(folder, keep) if keep else ""), encoding="utf-8")

        def named(text: str) -> str:
            """`text` with the temporary file called what the reader knows it as."""
            return text.replace(str(file), "cell")

        try:
            # Without torch a cell begins sooner, and hash() of text differs from rank to rank as in any processes.
            output = run_ranks([str(file)], ranks, timeout_s=timeout_s, with_torch=not imported <= LIGHT)
        except LaunchError as error:
            print(named(error.output), end="", flush=True)
            raise LaunchError(named(error.message), error.returncode, named(error.output)) from None
        except LaunchInterrupted as interrupt:
            print(named(interrupt.output), end="", flush=True)
            raise LaunchInterrupted(named(interrupt.output)) from None
        print(named("".join(output.stdout)), end="", flush=True)
        print(named("".join(output.stderr)), end="", file=sys.stderr, flush=True)
        return kept.read(folder, keep, ranks, output.departed) if keep else {}


def _imported(program: str) -> set[str]:
    """Return the packages that a program imports."""
    try:
        tree = ast.parse(program, "cell")
        compile(tree, "cell", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise LaunchError("".join(traceback.format_exception_only(error))) from None
    names = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(aliases):
                names += [alias.name for alias in aliases]
            case ast.ImportFrom(module, _, 0):
                names.append(module or "")
    return {name.partition(".")[0] for name in names}
