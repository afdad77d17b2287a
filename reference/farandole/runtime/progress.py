"""The progress bar: on rank 0, and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm import tqdm

from farandole.runtime.rank import progress_columns


def bar(total: int, rank: int) -> tqdm[Any]:
    """Return a bar that the caller moves with `update`; on other ranks than 0 an invisible one."""
    # The launcher hands rank 0 a file and says how wide the terminal behind it is.
    columns = progress_columns()
    hidden = rank != 0 or not columns
    return tqdm(total=total, unit="step", disable=hidden, file=sys.stderr, ncols=columns, mininterval=0.2)


def progress(steps: Iterable[int], total: int, rank: int) -> Iterator[int]:
    """The same steps; on rank 0 a bar on standard error counts them."""
    with bar(total, rank) as counter:
        for step in steps:
            yield step
            counter.update()
