"""``farandole simulate METHOD …``: what a training of many workers would take, by the very policies that run here."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Console

from farandole.cli import simulate_map, simulate_progress, simulate_record, simulate_table, simulate_validate
from farandole.cli.pictures import check, save
from farandole.cli.simulate_layers import FROM_MODEL
from farandole.cli.simulate_options import SimulateOptions
from farandole.errors import UsageError
from farandole.methods import METHODS, simulated
from farandole.runtime.choices import advised
from farandole.runtime.files import json_text

MOST_GRADIENTS = 20_000_000

# What reads finished work and simulates nothing, and the options that each goes with.
READING: dict[str, tuple[str, ...]] = {
    "record": ("json",), "fit": ("json",), "sides": ("alone", "goal", "json"), "collect": ("out", "json"),
}  # fmt: skip
VALIDATING = ("validate", "folder", "seed", "out", "json")  # the options of --validate
NEEDS = {
    "folder": "validate", "alone": "sides", "goal": "sides", "map_gbps": "map", "recover_s": "fail_every",
    "micro_batch": "model", "top_k": "experts",
}  # fmt: skip


def simulate(*methods: str, options: SimulateOptions | None = None) -> None:
    """Simulate a training: what waits for single others event by event, what waits for all or neighbours at once.

    Several methods and numbers of workers are put side by side, each with the same computing times.

    Args:
        methods: bsp, ssp, async, half, partial, dssp, history; ring, tree, halving-doubling, hierarchical
            (synchronous, by all-reduce), float16, bfloat16, qsgd, terngrad, sign, majority-vote, top-k, random-k, dgc,
            powersgd (compressed gradients), naive, gpipe, 1f1b, interleaved, zero-bubble, zb-h2, zb-v (pipelines), grid
            (data × shard × pipeline × expert × context × tensor), zero-1, zero-2, zero-3 (sharded), local-sgd, diloco,
            streaming-diloco, dynamic-rounds; gossip, ad-psgd (without a coordinator); or all.
    """
    options = options or SimulateOptions()
    _check_options(methods, options.given())
    if options.validate:
        simulate_validate.validate(_named(methods), options.folder, options.seed, options.out, options.json)
    elif options.record:
        simulate_record.against(options.record, options.json)
    elif options.fit:
        simulate_record.fitted(options.fit, options.json)
    elif options.sides:
        simulate_record.sides(options.sides, options.goal, options.alone, options.json)
    elif options.collect:
        simulate_map.collect(options.collect, options.out or simulate_map.FILE, options.json)
    else:
        _simulate(_chosen(methods, options), options)


def _simulate(methods: Sequence[str], options: SimulateOptions) -> None:
    """Simulate each method with each number of workers, or draw the map, and print the results."""
    choice = options.choice()
    settings = [options.setting(each) for each in options.workers]
    if options.out:
        check(options.out)
    if options.map:
        _check_map(methods, options.network)
        simulate_map.draw(methods, settings[0], choice, options.map_gbps, options.out, options.json)
        return
    rows = list(simulate_progress.simulated([(method, each) for each in settings for method in methods], choice))
    if options.json:
        print(json_text({"runs": [row.to_dict() for row in rows]}, indent=2))
    else:
        print(simulate_table.assumed(options, methods))
        Console().print(simulate_table.table(rows))
        if any(row.network for row in rows):
            Console().print(simulate_table.over_network(rows))
        if line := simulate_table.without_network(rows):
            print(line)
        if note := simulate_table.limited(rows):
            print(note)
    if out := options.out:
        from farandole.report import cost_picture

        save(out, lambda: cost_picture.draw(rows, out))
        if not options.json:
            print(f"the picture: {out}")


def _named(methods: Sequence[str]) -> list[str]:
    """Return the methods of --validate by their present names; none: all."""
    from farandole.parameter_server.core.policies import ALIASES

    named = list(dict.fromkeys(advised(method, ALIASES) for method in methods))
    return [] if named == ["all"] else named


def _chosen(methods: Sequence[str], options: SimulateOptions) -> list[str]:
    """Return the methods' names, each once.

    Raises:
        UsageError: one cannot be simulated, or an option is for none of them.
    """
    from farandole.cost.choice import MEANT_FOR
    from farandole.parameter_server.core.policies import ALIASES

    known = simulated()
    named = list(dict.fromkeys(advised(method, ALIASES) for method in methods))
    chosen = list(known) if named == ["all"] else named
    _check(chosen, known, options.workers, options.steps)
    _check_meant(chosen, options.given(), MEANT_FOR)
    return chosen


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
    if "validate" in given and (beside := [name for name in given if name not in VALIDATING]):
        raise UsageError(f"{_option(beside[0])} says nothing to --validate, whose runs are given: leave it out")
    if "model" in given and (beside := [name for name in FROM_MODEL if name in given]):
        raise UsageError(f"{_option(beside[0])} is given by --model {given['model']}: leave one of them out")
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
    if "chunks" in given and "interleaved" not in (*methods, given.get("schedule")):
        raise UsageError("--chunks of a grid is for --schedule interleaved: leave it out, or add that")


def _check_map(methods: Sequence[str], network: str | None) -> None:
    """
    Raises:
        UsageError: some methods would be compared over the network, and some with one switch.
    """
    from farandole.cost.choice import MEANT_FOR

    if network and (others := [method for method in methods if method not in MEANT_FOR["network"]]):
        raise UsageError(f"--map over --network {network}: {others[0]} is simulated with one switch: leave it out")


def _option(name: str) -> str:
    return "--no-duplex" if name == "duplex" else "--" + name.replace("_", "-")


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
