"""Make the objects of a parameter server from the names on the command line, and refuse incompatible options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pkgutil import resolve_name
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.compression.choices import plain
from farandole.compression.compressor import Compressor
from farandole.compression.options import check_meaning
from farandole.compression.random_k import SeededRandomK
from farandole.compression.table import FEEDBACK, PUSHED
from farandole.data import datasets
from farandole.errors import UsageError
from farandole.models import choices as model_choices
from farandole.parameter_server import server_change
from farandole.parameter_server.core.corrections import Correction
from farandole.parameter_server.core.policies import POLICIES, Bounds, Policy
from farandole.parameter_server.core.update_rules import UpdateRule
from farandole.parameter_server.core.updates import UPDATES
from farandole.parameter_server.options import PolicyOptions, SyncOptions
from farandole.parameter_server.sparse_options import TextOptions

Array = NDArray[Any]

ONLY_WITH_TEXT = ("buckets", "shards")
NOT_WITH_TEXT = {
    "model": "text is told apart by logistic regression",
    "hidden": "logistic regression has no hidden layers",
    "depth": "logistic regression has no hidden layers",
    "loading": "every worker has the text with its Python already",
    "capabilities": "documents are dealt out whole, about equally many passages to each worker",
    "accumulate": "a gradient is computed without activations",
    "tree": "aggregators sum whole gradients, and here only touched rows travel",
    "topk": "only touched rows travel anyway",
    "compressor": "only touched rows travel anyway",
    "transport": "the window is for whole tables, and here only touched rows travel",
}


def make_policy(options: SyncOptions, clients: Sequence[int]) -> Policy:
    """Return the policy that `--sync` names, for these clients.

    Raises:
        UsageError: more gradients are wanted per step than there are workers, or bounds in the wrong order.
    """
    enough = options.enough or max(1, len(clients) - 1)
    if enough > len(clients):
        raise UsageError(f"--enough {enough}: a step has at most {len(clients)} gradients, one per worker")
    low, high = options.least_staleness, options.staleness
    if options.sync == "dssp" and low > high:
        raise UsageError(f"--least-staleness {low} is more than --staleness {high}: give a number up to that")
    bounds = Bounds(high, low, options.longest_wait, enough, options.patience, options.seed)
    return POLICIES[options.sync].make(clients, bounds)


def make_rule(options: PolicyOptions, values: Array) -> UpdateRule:
    """Return the rule that `--update` names, for a table like `values`."""
    row = UPDATES[options.update]
    given = (values if name == "values" else getattr(options, name) for name in row.rule_takes)
    rule: UpdateRule = resolve_name(row.rule)(*given)
    return rule


def make_correction(options: PolicyOptions) -> Correction | None:
    """Return the correction that `--update` applies to stale gradients, if any."""
    row = UPDATES[options.update]
    if not row.correction:
        return None
    correction: Correction = resolve_name(row.correction)(*(getattr(options, name) for name in row.correction_takes))
    return correction


def check(options: PolicyOptions) -> None:
    """Refuse what does not go together.

    Raises:
        UsageError: saying what does not, and why.
    """
    is_text = options.data not in datasets.NAMES  # passages as sparse features, which have a model of their own
    if is_text and options.task:
        raise UsageError("--data text has a model of its own, and trains no --task: leave out one of them")
    if not is_text:
        model_choices.check(options)
    if UPDATES[options.update].pushes_parameters and (options.topk or options.tree):
        other = "--topk" if options.topk else "--tree"
        raise UsageError(f"--update {options.update} pushes parameters, not gradients: leave out {other}")
    if options.period > 1 and options.update != "elastic":
        raise UsageError("--period is for --update elastic, whose workers train apart in between: leave it out")
    if options.update == "twice" and (options.sync != "bsp" or options.server_change):
        other = "--server-change" if options.server_change else f"--sync {options.sync}"
        raise UsageError(f"--update twice has two synchronous rounds a step: give --sync bsp, without {other}")
    if options.period > 1 and options.server_change:
        raise UsageError("--server-change counts iterations; with --period most have no push: leave out one of them")
    if options.update == "elastic" and not POLICIES[options.sync].applies_each_once:
        raise UsageError(f"--update elastic needs every push applied once: --sync {options.sync} does not do that")
    if options.update == "delay-compensated" and options.sync == "history":
        raise UsageError(
            "--update delay-compensated needs what a gradient was computed at, and --sync history uses some for which "
            "that is long gone: choose another of the two"
        )
    if options.topk and options.tree:
        raise UsageError("--topk sends single entries and --tree sums whole gradients: leave out one of them")
    if options.transport == "window" and (options.tree or options.sync == "history"):
        other = "--tree" if options.tree else "--sync history"
        raise UsageError(f"{other} keeps gradients for later, in memory of its own: use --transport messages")
    _check_compressor(options)
    server_change.check(options)
    if options.sync == "half" and options.longest_wait >= options.hang_after:
        raise UsageError(
            f"--longest-wait {options.longest_wait:g}: a worker that pauses so long is declared dead by --hang-after "
            f"{options.hang_after:g}; give less"
        )
    if options.topk and options.sync == "history":
        raise UsageError("--sync history uses a gradient again: with --topk its entries would count twice")


def _check_compressor(options: PolicyOptions) -> None:
    """
    Raises:
        UsageError: an option says nothing to it, what would be encoded is not what travels, or would count twice.
    """
    name = options.compressor
    check_meaning(options, name, PUSHED)
    if name == "none":
        return
    for given, what in (
        (options.topk, "--topk, which encodes pushes in its own way"),
        (options.tree, "--tree, whose aggregators add up gradients as they are"),
        (UPDATES[options.update].pushes_parameters, f"--update {options.update}, which pushes parameters"),
        (options.transport == "window", "--transport window, where nothing travels"),
        (
            name in FEEDBACK and options.sync == "history",
            "--sync history: with its feedback, what is sent counts twice",
        ),
    ):
        if given:
            raise UsageError(f"--compressor {name} does not go with {what}: leave out one of them")


def make_compressor(options: PolicyOptions, rank: int = 0) -> Compressor | None:
    """Return the compressor of `rank`'s pushes, which also decodes those of any rank; None: they are not compressed."""
    if options.compressor == "none":
        return None
    own = np.random.default_rng([options.seed, 1 + rank])
    if options.compressor == "random-k":  # a push is decoded by itself, and has error feedback
        return SeededRandomK(own, options.fraction, unbiased=False)
    return plain(options.compressor, options, own, own, unbiased=True)


def check_workload(options: TextOptions) -> None:
    """Refuse what does not go together with the data.

    Raises:
        UsageError: saying what does not, and why.
    """
    given = {field.name for field in fields(options) if getattr(options, field.name) != field.default}
    if options.data != "text":
        if needless := [name for name in ONLY_WITH_TEXT if name in given]:
            raise UsageError(f"--{needless[0]} is for --data text: leave it out, or add that")
        return
    if needless := [name for name in NOT_WITH_TEXT if name in given]:
        raise UsageError(f"--data text: {NOT_WITH_TEXT[needless[0]]}; leave out --{needless[0]}")
    if UPDATES[options.update].pushes_parameters:
        raise UsageError(f"--update {options.update} needs whole models, and with --data text only touched rows travel")
