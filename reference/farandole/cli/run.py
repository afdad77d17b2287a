"""``farandole run SCENARIO -n R …``: one subcommand per scenario, with the scenario's own options."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated

import cyclopts
from cyclopts import Group, Parameter

from farandole import methods, scenarios
from farandole.cli.panels import in_panels
from farandole.errors import LaunchError
from farandole.launching import launch
from farandole.runtime import command_line, crowding, streams
from farandole.runtime.choices import advised
from farandole.runtime.launcher import TIMEOUT_S
from farandole.runtime.numbers import AtLeastOne, Positive
from farandole.runtime.options import RunOptions

HELP = {"-h", "--help"}


@Parameter(name="*", group=Group("The launch", sort_key=-1))
@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Options that start the processes."""

    ranks: Annotated[AtLeastOne, Parameter(alias="-n")] = 4
    """Number of processes."""

    timeout: Positive = TIMEOUT_S
    """Seconds after which the whole job is ended."""


def app(words: Sequence[str]) -> cyclopts.App:
    """Return the ``run`` command; of the scenarios, only the one that `words` name is loaded if it can be told."""
    runner = cyclopts.App(help="Run a scenario on several processes and write its record.")
    if words[:1] != ["run"]:
        return runner
    named = words[1] if len(words) > 1 else ""
    if named and not named.startswith("-"):
        scenarios.load(named)  # an unknown scenario has its own message
    chosen = advised(named, methods.aliases())
    for name in [chosen] if chosen in scenarios.names() else scenarios.names():
        scenario = scenarios.load(name)
        config_type = in_panels(scenario.Config) if name == chosen and HELP & set(words) else scenario.Config
        runner.command(_command(name, config_type), name=named if name == chosen else name, help=scenario.__doc__)
    return runner


def prepare(words: Sequence[str]) -> None:
    """Prepare the launch of ``run SCENARIO …`` before its options are read, since importing torch takes longest."""
    if words[:1] != ["run"] or len(words) < 2 or HELP & set(words):
        return
    apart = [part for word in words for part in word.split("=", 1)]  # --ranks=4, too
    following = dict(pairwise(apart))
    given = following.get("-n") or following.get("--ranks") or str(LaunchOptions.ranks)
    scenario, _ = methods.with_policy(methods.named(words[1]), {})
    if given.isdecimal() and scenario in scenarios.names():
        crowding.prepare(int(given))


def with_policy(words: Sequence[str]) -> list[str]:
    """Return ``run POLICY …`` as ``run parameter_server … --sync POLICY``; other commands unchanged."""
    if words[:1] != ["run"] or len(words) < 2:
        return list(words)
    scenario, options = methods.with_policy(words[1], {})
    return ["run", scenario, *words[2:], *command_line.to_arguments(options)]


def with_present_names(words: Sequence[str]) -> list[str]:
    """Return the words of ``run SCENARIO …`` with its options by their present names; other commands' unchanged."""
    named = methods.named(words[1]) if len(words) > 1 else ""
    if words[:1] != ["run"] or named not in scenarios.names():
        return list(words)
    return command_line.with_present_names(scenarios.load(named).Config, words)


def _command(name: str, config_type: type[RunOptions]) -> Callable[..., None]:
    def run(*, launching: LaunchOptions | None = None, config: RunOptions | None = None) -> None:
        config = config or config_type()
        launching = launching or LaunchOptions()
        done = launch(
            name,
            launching.ranks,
            timeout_s=launching.timeout,
            follow=True,
            progress=sys.stderr.isatty() and not config.json,
            **changed(config),
        )
        if missing := streams.lost():
            raise LaunchError(f"{missing}; the run is done, and its record is in {done.folder}")
        if not config.json:
            folder = shlex.quote(str(done.folder))
            print(f"record:   {folder}\nnext:     farandole show {folder}")
        if done.summary.diverged:  # already reported in a line
            raise SystemExit(1)

    run.__annotations__ |= {"config": config_type | None, "launching": LaunchOptions | None}
    return run


def changed(config: RunOptions) -> dict[str, object]:
    """Return the options that differ from their defaults."""
    default = type(config)()
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return {name: value for name, value in values.items() if value != getattr(default, name)}
