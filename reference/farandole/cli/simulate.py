"""``farandole simulate METHOD …``: what a training of many workers would take, by the very policies that run here."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from cyclopts import Parameter
from rich.console import Console
from rich.table import Column, Table

from farandole.cli import simulate_map, simulate_record
from farandole.cli.pictures import check, save
from farandole.decentralised.options import TopologyName
from farandole.errors import UsageError
from farandole.methods import METHODS, simulated
from farandole.runtime.choices import advised
from farandole.runtime.files import json_text
from farandole.runtime.numbers import AtLeastOne, NotNegative, NotNegativeReal, Part, Positive, PositiveOrInf, Seed

if TYPE_CHECKING:
    from farandole.cost.stragglers import Straggler

Counts = Annotated[tuple[AtLeastOne, ...], Parameter(consume_multiple=True, negative="")]

MOST_GRADIENTS = 20_000_000
MAP_GBPS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
BYTES = 4  # of a parameter

# What reads finished work and simulates nothing, and the options that each goes with.
READING: dict[str, tuple[str, ...]] = {
    "record": ("json",), "fit": ("json",), "sides": ("alone", "goal", "json"), "collect": ("out", "json"),
}  # fmt: skip
NEEDS = {"alone": "sides", "goal": "sides", "map_gbps": "map", "recover_s": "fail_every"}


def simulate(
    *methods: str,
    workers: Counts = (4,),
    steps: AtLeastOne = 200,
    straggler: str = "constant",
    compute_ms: Positive = 100.0,
    parameters: AtLeastOne = 10_000_000,
    link_gbps: PositiveOrInf = 10.0,
    latency_us: NotNegativeReal = 50.0,
    servers: AtLeastOne = 1,
    duplex: Annotated[bool, Parameter(negative="")] = False,
    staleness: NotNegative = 4,
    least_staleness: NotNegative = 1,
    longest_wait_ms: NotNegativeReal = 20.0,
    enough: Part = 0.9,
    patience: NotNegativeReal = 0.5,
    period: AtLeastOne = 8,
    per_node: AtLeastOne | None = None,
    kappa: Positive = 4.0,
    longest: AtLeastOne = 64,
    equal_steps: Annotated[bool, Parameter(negative="")] = False,
    topology: TopologyName = "ring",
    mixing_every: AtLeastOne = 1,
    mix_after_update: Annotated[bool, Parameter(negative="")] = False,
    lr: Positive = 0.2,
    noise: NotNegativeReal = 0.3,
    target: Part = 0.05,
    seed: Seed = 0,
    fail_every: Positive | None = None,
    recover_s: NotNegativeReal = 60.0,
    map: Annotated[bool, Parameter(negative="")] = False,
    map_gbps: Annotated[tuple[Positive, ...], Parameter(consume_multiple=True, negative="")] = MAP_GBPS,
    collect: Annotated[tuple[Path, ...], Parameter(consume_multiple=True, negative="")] = (),
    record: Path | None = None,
    fit: Annotated[tuple[Path, ...], Parameter(consume_multiple=True, negative="")] = (),
    sides: Path | None = None,
    alone: Path | None = None,
    goal: Positive = 0.5,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Simulate a training: what waits for single others event by event, what waits for all or neighbours at once.

    Several methods and numbers of workers are put side by side, each with the same computing times.

    Args:
        methods: bsp, ssp, async, half, partial, dssp, history; ring, tree, halving-doubling, hierarchical
            (synchronous, by all-reduce), local-sgd, dynamic-rounds; gossip, ad-psgd (without a centre); or all.
        workers: how many, one number or several: --workers 1 10 100 1000 10000.
        steps: gradients of each worker, on average.
        straggler: how computing times scatter: constant, exponential, shifted-exponential:shift=0.5,
            lognormal:sigma=0.5, pareto:shape=2.5, transient:factor=3,share=0.1 or slow:worker=3,factor=3.
        compute_ms: mean computing time of an unhindered worker's step.
        parameters: how many, of 4 bytes each.
        link_gbps: what each worker's and each server's link carries; inf: no limit.
        latency_us: how long a message of no bytes takes.
        servers: parameter servers that share the parameters.
        duplex: reads and pushes pass each other at the servers; otherwise they queue for one link.
        staleness: ssp, half, dssp: iterations that a worker may be ahead.
        least_staleness: dssp: the lower bound, beyond which only the furthest worker continues, if worthwhile.
        longest_wait_ms: half: how long a worker waits at most, at random, before it pushes.
        enough: partial, history: which share of the workers makes a step.
        patience: history: how much longer to wait for the late, as a multiple of the time the others took.
        period: local-sgd: steps apart.
        per_node: hierarchical: workers of a node, where a message costs a tenth. [default: as many, up to 8, as divide
            the workers]
        kappa: dynamic-rounds: a round has this times the root of (all-reduce's time / a step's) steps.
        longest: dynamic-rounds: and never more than so many.
        equal_steps: dynamic-rounds: all workers take the same number of steps, however fast they are.
        topology: gossip, ad-psgd: who is whose neighbour; ad-psgd takes the edges both ways, whatever the round.
        mixing_every: gossip, ad-psgd: steps from one mixing to the next.
        mix_after_update: gossip: mix what the update has led to, instead of what it begins from.
        lr: learning rate on the noisy quadratic that stands for the training.
        noise: standard deviation of the entries of one worker's gradient; at the start they are 0.1 to 1.
        target: which part of the first loss is to be reached.
        seed: what times and noise are drawn from.
        fail_every: seconds between two failures of one worker, on average; it loses its step, and begins it again.
            [default: nobody fails]
        recover_s: seconds from a failure until the worker computes again.
        map: which of the methods comes to the loss first, over bandwidth and scatter (lognormal), as a picture, for one
            number of workers.
        map_gbps: of the map, what links carry; each takes a few seconds with few workers, and minutes with many.
        collect: parts of a map, as --map --json has printed them: put them together.
        record: a finished run of parameter_server: predict it from its own computing times, and compare.
        fit: a finished run: print how its computing times scatter, as --straggler and --compute-ms take it; with
            further runs over the same network, whose messages have other lengths, --latency-us and --link-gbps too.
        sides: a finished run: print what it has measured of communication, computing, convergence and scalability.
        alone: of sides: the same training by one rank, also finished, to tell how many times as fast it is.
        goal: of sides: the training loss that is to be reached.
        out: a picture of the scaling or of the map, a .png, .svg or .pdf. [default of the map: map.png, without --json]
        json: print the figures as JSON.
    """
    given = _given(locals())
    _check_options(methods, given)

    from farandole.collectives.costs import Link
    from farandole.cost import stragglers
    from farandole.cost.comparison import MEANT_FOR, Choice, compared
    from farandole.cost.failures import failing
    from farandole.cost.simulator import Setting
    from farandole.parameter_server.core.policies import ALIASES

    if record:
        simulate_record.against(record, json)
        return
    if fit:
        simulate_record.fitted(fit, json)
        return
    if sides:
        simulate_record.sides(sides, goal, alone, json)
        return
    if collect:
        simulate_map.collect(collect, out or simulate_map.FILE, json)
        return
    known = simulated()
    named = list(dict.fromkeys(advised(method, ALIASES) for method in methods))
    chosen = list(known) if named == ["all"] else named
    _check(chosen, known, workers, steps)
    _check_meant(chosen, given, MEANT_FOR)
    scatter = stragglers.parse(straggler)
    _check_slow_worker(scatter, workers)
    if out:
        check(out)
    setting = Setting(
        workers=workers[0], steps=steps, compute_s=compute_ms / 1e3,
        straggler=failing(scatter, fail_every, recover_s, compute_ms / 1e3),
        nbytes=BYTES * parameters, link=Link(latency_us / 1e6, 8 / (link_gbps * 1e9)), servers=servers, duplex=duplex,
        lr=lr, noise=noise, target=target, seed=seed,
    )  # fmt: skip
    choice = Choice(
        staleness, least_staleness, longest_wait_ms / 1e3, enough, patience, period, per_node, topology, mixing_every,
        mix_after_update, kappa, longest, equal_steps,
    )  # fmt: skip
    if map:
        simulate_map.draw(chosen, setting, choice, map_gbps, out, json)
        return
    rows = [compared(method, replace(setting, workers=each), choice) for each in workers for method in chosen]
    if json:
        print(json_text({"runs": [row.to_dict() for row in rows]}, indent=2))
    else:
        Console().print(_table([row.to_dict() for row in rows]))
    if out:
        from farandole.report import cost_picture

        save(out, lambda: cost_picture.draw(rows, out))
        if not json:
            print(f"the picture: {out}")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not as they would be by default."""
    defaults = {name: each.default for name, each in signature(simulate).parameters.items() if name != "methods"}
    return {name: values[name] for name, default in defaults.items() if values[name] != default}


def _check_options(methods: Sequence[str], given: Mapping[str, Any]) -> None:
    """
    Raises:
        UsageError: something was given that nothing would come of.
    """
    reading = next((each for each in READING if each in given), None)
    if reading:
        if methods:
            raise UsageError(f"--{reading} simulates no method: leave {methods[0]} out")
        if beside := [name for name in given if name not in (reading, *READING[reading])]:
            raise UsageError(f"{_option(beside[0])} says nothing to --{reading}: leave one of them out")
    for name, other in NEEDS.items():
        if name in given and other not in given:
            raise UsageError(f"{_option(name)} is for {_option(other)}: add that, or leave it out")
    if "map" in given:
        if len(given.get("workers", ())) > 1:
            raise UsageError(f"--map is for one number of workers, not for {len(given['workers'])}: draw one for each")
        if "straggler" in given:
            raise UsageError(f"--map is over lognormal scatters, not --straggler {given['straggler']}: leave that out")
        if "link_gbps" in given:
            raise UsageError("--map is over bandwidths: give --map-gbps in place of --link-gbps")


def _check_meant(methods: Collection[str], given: Mapping[str, Any], meant_for: Mapping[str, Sequence[str]]) -> None:
    """
    Raises:
        UsageError: an option says nothing to any of the methods.
    """
    for name, meant in meant_for.items():
        if name in given and not set(methods) & set(meant):
            raise UsageError(f"{_option(name)} is for {' or '.join(meant)}: leave it out, or name one of these")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check(methods: Sequence[str], known: Collection[str], workers: Sequence[int], steps: int) -> None:
    """
    Raises:
        UsageError: a method or a number that cannot be simulated.
    """
    if not methods:
        raise UsageError(f"name a method: {', '.join(known)}, or all")
    if wrong := [method for method in methods if method not in known]:
        if row := METHODS.get(wrong[0]):
            reason = row.why_not_simulated or f"it is simulated as {', '.join(row.simulated)}"
            raise UsageError(f"{wrong[0]} is no method of the simulator: {reason}")
        raise UsageError(f"{wrong[0]!r} is no method: choose from {', '.join(known)}, or all")
    if max(workers) * steps > MOST_GRADIENTS:
        raise UsageError(
            f"{max(workers)} workers × {steps} steps are more than {MOST_GRADIENTS:,} gradients: give fewer"
        )


def _check_slow_worker(straggler: "Straggler", workers: Sequence[int]) -> None:
    """
    Raises:
        UsageError: the slow worker does not exist in one of the simulations.
    """
    slow = getattr(straggler, "worker", 0)
    if slow >= min(workers):
        last = min(workers) - 1
        raise UsageError(
            f"--straggler slow:worker={slow}: with --workers {min(workers)} there is none: give one from 0 to {last}"
        )


def _table(rows: Sequence[dict[str, object]]) -> Table:
    """A row for each method and number of workers; narrow enough for 80 columns."""
    headings = ("workers", "ms/step", "grads/s", "speed", "waiting", "stale", "lead", "to loss")
    columns = (Column(heading, justify="right", no_wrap=True) for heading in headings)
    table = Table(Column("method", no_wrap=True), *columns, box=None, padding=(0, 0, 0, 1), pad_edge=False)
    for row in rows:
        table.add_row(
            str(row["method"]), str(row["workers"]), f"{1e3 * cast(float, row['step_s']):,.0f}",
            f"{row['gradients_per_s']:,.0f}", f"{row['efficiency']:.0%}", f"{row['wait_share']:.0%}",
            f"{row['staleness_mean']:.1f}", str(row["lead_max"]),
            "never" if row["to_loss_s"] is None else f"{row['to_loss_s']:,.0f} s",
        )  # fmt: skip
    table.caption = (
        "speed: relative to the same computing without waiting and messages; stale, lead: mean staleness, largest lead"
    )
    return table
