"""The table of ``farandole simulate``, with the assumptions above it and what must not be misread below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.table import Column, Table

if TYPE_CHECKING:
    from farandole.cli.simulate_options import SimulateOptions
    from farandole.cost.comparison import Row

MANY = 8  # methods: more come in families
BUSY = 0.95  # of the time: then the links decide, and hardly anything else


def assumed(options: SimulateOptions, methods: Sequence[str]) -> str:
    """Return in one line what is simulated by these methods."""
    from farandole.cost.choice import COMPRESSED, PIPELINED
    from farandole.cost.setting import WORKERS_PER_SERVER
    from farandole.parameter_server.core.policies import POLICIES

    served = any(method in POLICIES for method in methods)
    if options.servers:
        servers = f"{options.servers} server{'s' if options.servers > 1 else ''}"
    else:
        servers = f"a server for every {WORKERS_PER_SERVER} workers"
    directions = "" if not served else ", both directions at once" if options.duplex else ", one direction at a time"
    parts = [
        servers if served else "",
        f"links of {options.link_gbps:g} Gbit/s{directions}, {options.latency_us:g} µs",
        f"network {options.network}" if options.network else "",
        f"{options.nbytes / 1e6:g} MB of parameters" + (f" ({options.model})" if options.model else ""),
        f"{options.compute_ms:g} ms a step ({options.straggler})",
        f"{options.encode_ms:g} ms to encode and decode" if set(methods) & set(COMPRESSED) else "",
        _pipelines(options) if set(methods) & set(PIPELINED) else "",
    ]
    return "assumed: " + "; ".join(part for part in parts if part)


def _pipelines(options: SimulateOptions) -> str:
    """Return how the model is divided."""
    stages, cuts = options.stages or "up to 8", options.micro_batches or "4 for each stage"
    axes = {
        "shard": options.shard_ranks, "expert": options.expert_ranks, "context": options.context_ranks,
        "tensor": options.tensor,
    }  # fmt: skip
    in_grid = " × ".join(f"{ranks} {axis}" for axis, ranks in axes.items() if ranks > 1)
    in_grid = f", {in_grid} ranks in the grid" if in_grid else ""
    mixture = f", {options.experts} experts in each layer, {options.top_k} for a token" if options.experts else ""
    return f"stages: {stages}, micro-batches: {cuts}, {options.boundary / 1e6:g} MB between layers{in_grid}{mixture}"


def table(rows: Sequence[Row]) -> Table:
    """Return a row for each method and number of workers; narrow enough for 80 columns.

    Many methods come in families. Of several with the same number of workers the shortest step is marked, and the
    shortest time to the loss.
    """
    from farandole.cost.choice import FAMILIES

    headings = ("workers", "ms/step", "grads/s", "speed", "waiting", "busy", "stale", "lead", "to loss")
    columns = (Column(heading, justify="right", no_wrap=True) for heading in headings)
    shown = Table(Column("method", no_wrap=True), *columns, box=None, padding=(0, 0, 0, 1), pad_edge=False)
    family_of = {method: family for family, methods in FAMILIES.items() for method in methods}
    in_families = len({row.method for row in rows}) > MANY
    fastest, first = _best(rows, lambda row: row.step_s), _best(rows, lambda row: row.outcome.to_loss_s)
    before = None
    for row in rows:
        outcome, mean = row.outcome, row.to_dict()["staleness_mean"]
        if in_families and (group := (family_of[row.method], row.setting.workers)) != before:
            shown.add_row(f"[bold]{group[0]}[/]")
            before = group
        shown.add_row(
            f"  {row.method}" if in_families else row.method, str(row.setting.workers),
            f"{1e3 * row.step_s:,.0f}{'*' if row in fastest else ' '}", f"{row.gradients_per_s:,.0f}",
            f"{row.efficiency:.0%}", f"{outcome.wait_share:.0%}",
            "" if row.links_busy is None else f"{row.links_busy:.0%}", f"{mean:.1f}" if mean else "–",
            str(max(outcome.lead, default=0) or "–"),
            "never " if outcome.to_loss_s is None else f"{outcome.to_loss_s:,.0f} s{'*' if row in first else ' '}",
        )  # fmt: skip
    marks = "; *: the shortest step, the first at the loss" if fastest or first else ""
    shown.caption = (
        "speed: relative to the same computing without waiting and messages; busy: the servers' links, share of the "
        f"time; stale, lead: mean staleness, largest lead{marks}"
    )
    shown.caption_justify = "left"
    return shown


def _best(rows: Sequence[Row], figure: Callable[[Row], float | None]) -> list[Row]:
    """Return the row with the smallest figure of each number of workers for which there are several rows."""
    best = []
    for workers in dict.fromkeys(row.setting.workers for row in rows):
        beside = [row for row in rows if row.setting.workers == workers]
        known = [row for row in beside if figure(row) is not None]
        if len(beside) > 1 and known:
            best.append(min(known, key=lambda row: figure(row) or 0.0))
    return best


def over_network(rows: Sequence[Row]) -> Table:
    """Return a row for each method that uses the network: its messages, beside those with one switch."""
    headings = ("workers", "ms", "one switch", "slower")
    columns = (Column(heading, justify="right", no_wrap=True) for heading in headings)
    shown = Table(
        Column("method", no_wrap=True), *columns, "bottleneck", box=None, padding=(0, 0, 0, 1), pad_edge=False
    )
    for row in rows:
        if use := row.network:
            shown.add_row(
                row.method, str(row.setting.workers), f"{1e3 * use.seconds:,.2f}", f"{1e3 * use.one_switch_s:,.2f}",
                f"{use.slower:.2f}×", f"{use.bottleneck} ({use.alike})" if use.bottleneck else "none",
            )  # fmt: skip
    shown.caption = (
        "ms: one all-reduce, one round of gossip, the gathering of one of ZeRO's units, all messages of a step of the "
        "pipeline's stage that sends for longest; bottleneck: the link at which "
        "most time is lost, and how many are like it"
    )
    return shown


def without_network(rows: Sequence[Row]) -> str:
    """Return a sentence on the methods to which the network says nothing; "" if there are none."""
    names = ", ".join(dict.fromkeys(row.method for row in rows if row.setting.network and not row.network))
    return names and f"{names}: simulated with one switch, since --network cannot place their messages"


def limited(rows: Sequence[Row]) -> str:
    """Return a sentence on the rows in which the servers' links decide; "" if there are none."""
    found = [row for row in rows if row.links_busy is not None and row.links_busy >= BUSY]
    if not found:
        return ""
    names = ", ".join(f"{row.method} with {row.setting.workers}" for row in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return (
        f"{names}{more}: the servers' links are busy all the time, so they decide and not the method: "
        "give more --servers"
    )
