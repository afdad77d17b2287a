"""Launching a scenario from Python: ``launch``, and ``supervised_launch``, which restarts it from its last checkpoint.

``train`` launches nothing: it trains on the ranks that are there.

``farandole run``, ``farandole supervise`` and notebooks use these functions. Below them `runtime.launcher` starts,
watches and ends the ranks, and `recovery.supervisor` decides about another start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from farandole import former_names, methods, own_task, scenarios
from farandole.errors import FlawedLaunch, LaunchError, UsageError
from farandole.recovery.supervisor import BACKOFF_S, RESTARTS, supervise
from farandole.runtime import crowding, folders, rank, surroundings
from farandole.runtime.command_line import parse, to_arguments
from farandole.runtime.launcher import TIMEOUT_S, check, run_ranks
from farandole.runtime.record import LATEST, Run

if TYPE_CHECKING:  # a launcher needs no torch
    from farandole.tasks import Task


def launch(
    scenario: str,
    ranks: int = 4,
    *,
    timeout_s: float = TIMEOUT_S,
    follow: bool = False,
    progress: bool = False,
    **options: Any,
) -> Run:
    """Run a scenario on `ranks` processes.

    Args:
        scenario: a name that ``farandole list`` shows, or a policy of the parameter server, as "ssp".
        ranks: of a scenario that starts its workers itself, how many of these.
        options: the fields of the scenario's Config; a fault as text or object, or a list of them:
            ``launch("sync_sgd", ranks=4, steps=100, slow="rank=3,factor=3")``. As task the name of a file or function,
            ``task="my_task.py"``, or a function of a module.

    Returns:
        The finished run: ``run.summary``, ``run.metrics``, ``run.folder``. A run that diverged is returned too;
        ``run.summary.diverged`` and a line on standard error report it.

    Raises:
        UsageError: an unknown scenario or option, or a value that does not fit.
        LaunchError: a rank failed, or the time-out passed.
    """
    check(ranks, timeout_s)
    scenario, options = methods.with_policy(*former_names.current(scenario, options))
    surroundings.check_interpreter()
    module, asked = scenarios.load(scenario), ranks
    if module.Config.starts_workers:
        if "workers" in options:
            raise UsageError(f"{scenario} starts as many workers as are asked for by -n: leave out --workers")
        options, ranks = options | {"workers": ranks}, 1
    if options.get("task") is not None:
        options = options | {"task": own_task.name_of(options["task"])}
    config = parse(module.Config, to_arguments(options))
    crowding.check_memory(asked, config.least_bytes())
    with folders.claimed(scenario, config.out, module.Config.resumes) as folder:
        crowding.prepare(asked)
        arguments = to_arguments(options | {"out": folder})
        program = ["-m", scenarios.__name__, module.__name__, *arguments]
        try:
            started = run_ranks(
                program,
                ranks,
                timeout_s=timeout_s,
                follow=follow,
                progress=progress,
                outlives=config.outlives,
                reads_cards=config.card_transport == "direct",
                name=f"-m {module.__name__}",
            )
            output = str(started)
        except FlawedLaunch as flawed:
            run = Run(folder, flawed.output)
            if not (run.is_finished and run.summary.diverged and not run.summary.unwritten):
                raise
            print(f"farandole: {flawed}", file=sys.stderr, flush=True)
            return run
        run = Run(folder, output)
        if not run.is_finished:  # in a fault-tolerant scenario the other ranks may have ended before
            raise LaunchError(f"the rank that writes the record died before it did: {folder} is incomplete", 1, output)
        return run


def train(scenario: str, task: Task | None = None, **options: Any) -> Run | None:
    """Train by a scenario's method on the ranks that run this very program: mpirun -n 4 python my_program.py.

    Args:
        scenario: as of `launch`.
        task: of your own; None: the one that the options name. All ranks give the same.
        options: the fields of the scenario's Config, as of `launch`.

    Returns:
        On rank 0 the finished run; None elsewhere.

    Raises:
        UsageError: as `launch`; or the scenario starts its workers itself.
    """
    scenario, options = methods.with_policy(*former_names.current(scenario, options))
    module = scenarios.load(scenario)
    if module.Config.starts_workers:
        raise UsageError(f"{scenario} starts its workers itself: launch it from a program without mpirun")
    if task is not None:
        options = options | {"task": own_task.give(task, task.name)}
    config = parse(module.Config, to_arguments(options))
    module.main(config)
    return None if rank.early_rank() else Run.open(config.out or LATEST)


def supervised_launch(
    scenario: str,
    ranks: int = 4,
    *,
    restarts: int = RESTARTS,
    backoff_s: float = BACKOFF_S,
    announce: Callable[[str], None] = print,
    timeout_s: float = TIMEOUT_S,
    **options: Any,
) -> Run:
    """`launch`, started again from the last checkpoint when a rank is lost.

    Raises:
        UsageError: as `launch`; or the scenario cannot go on from where it was.
        LaunchError: as `supervise`.
    """
    check_resumes(scenario)
    out = options.pop("out", None)
    with nullcontext(out) if out else folders.reserved(scenario) as folder:
        return supervise(
            lambda: launch(scenario, ranks, timeout_s=timeout_s, out=folder, **options),
            restarts=restarts,
            backoff_s=backoff_s,
            announce=announce,
        )


def check_resumes(scenario: str) -> None:
    """Check that a restart of `scenario` resumes where the previous start ended.

    Raises:
        UsageError: the scenario cannot resume.
    """
    if not scenarios.load(scenario).Config.resumes:
        able = [name for name in scenarios.names() if scenarios.load(name).Config.resumes]
        raise UsageError(f"{scenario} cannot go on from where it was; {', '.join(able)} can")
