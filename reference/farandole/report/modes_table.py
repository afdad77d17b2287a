"""Terminal tables of each mode's predicted memory and time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Column, Table

if TYPE_CHECKING:  # torch is not needed for tables
    from farandole.cost.advice import Row
    from farandole.cost.modes import Device, Mode

HEADINGS = ("cut", "MB", "compute", "comm", "idle", "step")
CAPTION = "data × pipeline × tensor; cut: micro-batches; MB of the fullest device; ms of a step"


def modes(found: Sequence[Mode], devices: Sequence[Device]) -> Table:
    """Return a table with a row per mode, the chosen one first; a mode that does not fit is marked in its memory."""
    table = _table("mode")
    slowest = min(devices, key=lambda device: device.flops)
    gbps = f"{8e-9 / slowest.link.beta:.3g} Gbit/s" if slowest.link.beta else "a link too fast to be measured"
    table.title = (
        f"{len(devices)} × {slowest.flops / 1e9:.3g} GFLOP/s, {slowest.memory / 1e6:,.0f} MB, "
        f"α = {1e6 * slowest.link.alpha:.0f} µs, {gbps}"
    )
    for mode in found:
        table.add_row(*_figures(mode))
    return table


def advice(rows: Sequence[Row]) -> Table:
    """Return a table with a row per kind and number of devices, each with its best mode."""
    table = _table("device", "number", "mode")
    for row in rows:
        if row.mode:
            table.add_row(escape(row.kind), str(row.count), *_figures(row.mode))
        else:
            table.add_row(escape(row.kind), str(row.count), "does not fit")
    return table


def _table(*names: str) -> Table:
    columns = (Column(heading, justify="right", no_wrap=True) for heading in HEADINGS)
    return Table(*(Column(name, no_wrap=True) for name in names), *columns, title_justify="left", caption=CAPTION)


def _figures(mode: Mode) -> tuple[str, ...]:
    memory = f"{mode.memory / 1e6:,.3g}" + ("" if mode.fits else ", too much")
    seconds = (mode.compute_s, mode.communicate_s, mode.idle_s, mode.step_s)
    return f"{mode.name} {mode.grid}", str(mode.micro_batches), memory, *(f"{1e3 * each:.3g}" for each in seconds)
