"""The findings of `sync_cost`, as tables in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Column, Table

if TYPE_CHECKING:  # scipy is not needed for tables
    from farandole.cost.findings import Findings

MS = 1e3


def costs(findings: Findings, goal: float) -> Table:
    """A row per method: T_comp and T_comm, their sum predicted and measured, and what it takes to come to a loss."""
    headings = ("T_comp", "T_comm", "C", "real", "error", "KB", "steps", "s")
    columns = (Column(heading, justify="right", no_wrap=True) for heading in headings)
    table = Table(Column("method", no_wrap=True), *columns, title=_title(findings), title_justify="left")
    for row in findings.rows:
        steps, seconds = ("never", "") if row.to_loss_s is None else (str(row.steps_to_loss), f"{row.to_loss_s:.2f}")
        table.add_row(
            row.method, f"{MS * row.compute_s:.1f}", f"{MS * row.comm_s:.1f}", f"{MS * row.predicted_s:.1f}",
            f"{MS * row.measured_s:.1f}", f"{row.error:+.0%}", f"{row.bytes_sent / 1e3:.1f}", steps, seconds,
        )  # fmt: skip
    table.caption = f"ms and KB a batch; C = T_comp + T_comm, predicted; steps and seconds to a loss of {goal:g}"
    return table


def scaling(findings: Findings) -> Table:
    """Return a row per method: which part of the speed waiting and messages leave, by the number of workers."""
    table = Table(Column("speed left, predicted", no_wrap=True))
    for workers in findings.rows[0].efficiency:
        table.add_column(str(workers), justify="right")
    for row in findings.rows:
        table.add_row(row.method, *(f"{share:.0%}" for share in row.efficiency.values()))
    return table


def _title(findings: Findings) -> str:
    if not findings.alpha_s and findings.noise is None:
        return "one rank: no network"
    mbps = f"{8 / findings.beta_s / 1e6:,.0f} Mbit/s" if findings.beta_s else "too fast to be measured"
    network = f"α = {1e6 * findings.alpha_s:.0f} µs, 1/β = {mbps}"
    noise = findings.noise
    return f"{network}, critical batch {noise.critical_batch:,.0f} at the start" if noise else network
