"""``farandole bench [NAME]``: how fast we are beside a named peer."""

from __future__ import annotations

import importlib
import json
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from farandole.bench import BENCHMARKS
from farandole.errors import UsageError
from farandole.runtime.options import AtLeastOne


def bench(
    name: str | None = None,
    *,
    ranks: Annotated[AtLeastOne, Parameter(alias="-n")] = 4,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Measure against a peer in the same run; a ratio above 1 means that we are faster.

    Args:
        name: which benchmark. [default: all]
        ranks: number of processes.
        json_: print the rows as a JSON list instead.
    """
    if name is not None and name not in BENCHMARKS:
        raise UsageError(f"there is no benchmark {name!r}: choose from {', '.join(BENCHMARKS)}")
    rows: list[dict[str, Any]] = []
    for module in [BENCHMARKS[name]] if name else BENCHMARKS.values():
        rows += importlib.import_module(module).rows(ranks)
    if json_:
        print(json.dumps(rows, indent=2))
        return
    table = Table("", "KiB", "ranks", "ms", "peer", "its ms", "ratio")
    for row in rows:
        for peer, its in row["peers"].items():
            beside = (its["error"], "") if "error" in its else (f"{its['median_s'] * 1e3:.3f}", f"{its['ratio']:.2f}")
            size, ours = f"{row['size'] / 1024:,.0f}", f"{row['median_s'] * 1e3:.3f}"
            table.add_row(row["name"], size, str(row["ranks"]), ours, peer, *beside)
    Console().print(table)
