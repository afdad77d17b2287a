"""Simulations one after the other, with a progress bar on standard error if that is a terminal and they take long."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from farandole.cost.choice import Choice
    from farandole.cost.comparison import Row
    from farandole.cost.setting import Setting

LONG_S = 2.0  # there is no bar before


def simulated(runs: Sequence[tuple[str, Setting]], choice: Choice) -> Iterator[Row]:
    """Yield the row of each method and setting, in order."""
    from farandole.cost.comparison import compared

    total = sum(setting.workers * setting.steps for _, setting in runs)
    done = 0
    with tqdm(
        total=total, unit=" gradients", unit_scale=True, disable=None, delay=LONG_S, leave=False, file=sys.stderr
    ) as bar:
        for method, setting in runs:
            bar.set_description(f"{method}, {setting.workers} workers", refresh=False)
            row = compared(method, replace(setting, progress=bar.update), choice)
            done += setting.workers * setting.steps
            bar.update(done - bar.n)  # some methods count nothing meanwhile, some begin more than they apply
            yield row
