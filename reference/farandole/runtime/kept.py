"""Variables that the ranks of an ``%%mpi`` cell leave to the notebook: ``%%mpi -n 4 --keep loss``.

Each rank writes what it has at its end, and the notebook reads the values of all ranks, a list in rank order. Both
belong to one user on one host, so pickle may carry them.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.runtime.rank import early_rank


def program(folder: Path, names: Sequence[str]) -> str:
    """Return the lines that follow a cell's code, and write this rank's variables."""
    return f"\nfrom farandole.runtime import kept\nkept.write({str(folder)!r}, {[*names]!r}, globals())\n"


def write(folder: str, names: Sequence[str], variables: Mapping[str, Any]) -> None:
    """Write this rank's values.

    Raises:
        UsageError: a variable is missing, or its value cannot be written.
    """
    values = {}
    for name in names:
        if name not in variables:
            raise UsageError(f"%%mpi --keep {name}: rank {early_rank()} has no variable {name} at its end")
        try:
            values[name] = pickle.dumps(variables[name])
        except Exception as error:  # whatever the value's own class raises
            raise UsageError(f"%%mpi --keep {name}: its value cannot be kept: {error}") from None
    (Path(folder) / str(early_rank())).write_bytes(pickle.dumps(values))


def read(folder: Path, names: Sequence[str], ranks: int, departed: Collection[int] = ()) -> dict[str, list[Any]]:
    """Return name → the values of all ranks, in rank order; None for `departed` ranks, which have died.

    Raises:
        UsageError: a rank ended before the end of the cell, or a value is of a class that only the cell has.
    """
    found: dict[str, list[Any]] = {name: [] for name in names}
    for rank in range(ranks):
        if rank in departed and not (folder / str(rank)).exists():
            for name in names:
                found[name].append(None)
            continue
        try:
            values = pickle.loads((folder / str(rank)).read_bytes())
        except FileNotFoundError:
            raise UsageError(f"%%mpi --keep: rank {rank} ended before the end of the cell") from None
        for name in names:
            try:
                found[name].append(pickle.loads(values[name]))
            except Exception as error:  # as above
                raise UsageError(f"%%mpi --keep {name}: its value cannot be read here: {error}") from None
    return found
