"""``farandole compare A B …``: runs side by side, finished ones or new ones."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import Field, asdict, dataclass, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from cyclopts import Parameter

from farandole import methods, scenarios
from farandole.cli.run import changed
from farandole.errors import UsageError
from farandole.launching import launch
from farandole.parameter_server.core.policies import ALIASES, POLICIES
from farandole.report import table
from farandole.runtime import folders, rank_starter
from farandole.runtime.choices import advised
from farandole.runtime.files import json_text
from farandole.runtime.launcher import TIMEOUT_S
from farandole.runtime.numbers import AtLeastOne, Positive
from farandole.runtime.options import RunOptions
from farandole.runtime.record import LATEST, Run

SERVER = "parameter_server"
MODES = tuple(POLICIES)
# Enough work per step that computing, and not the start of a message, sets the pace on a laptop.
RECIPE: dict[str, Any] = {"data": "mnist5k", "batch": 768, "steps": 150}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of a comparison, and of starting the processes of new runs."""

    ranks: Annotated[AtLeastOne, Parameter(alias="-n")] = 5
    """Processes of each new run; of a parameter server's, rank 0 is the manager and rank 1 the server."""

    timeout: Positive = TIMEOUT_S
    """Seconds after which a new run is ended."""


def command(words: Sequence[str]) -> Callable[..., None]:
    """The command, with the options of the scenarios that `words` name."""
    named = [methods.named(word) for word in words if methods.named(word) in scenarios.names()]
    own_task = any(word.partition("=")[0] == "--task" for word in words)
    options = _options(named if named and not set(words) & {*MODES, *ALIASES} else [SERVER, *named], own_task)

    def compare(*names: str, comparing: CompareOptions | None = None, config: RunOptions | None = None) -> None:
        """Put runs side by side: in a table and in a picture.

        Of every update mode or scenario named, a new run is made, all with the same options (each
        takes those it has): farandole compare bsp ssp async half --slow rank=4,factor=4.
        Their records and compare.png go to --out, or to runs/compare-DATE-TIME.

        Args:
            names: folders of finished runs, latest (the run below runs/ that finished last), update
                modes (the values of --sync), or scenarios.
        """
        _compare(names, comparing or CompareOptions(), config or options())

    compare.__annotations__ |= {"config": options | None, "comparing": CompareOptions | None}
    return compare


def _options(names: Sequence[str], own_task: bool) -> type[RunOptions]:
    """All options of these scenarios in one class, with the defaults of `RECIPE` if it fits them and the task."""
    configs = tuple(dict.fromkeys(scenarios.load(name).Config for name in names))
    kinds = {field.name: field.type for config in reversed(configs) for field in fields(config)}
    fits = not own_task and all(
        RECIPE["data"] in get_args(field.type) for kind in configs for field in fields(kind) if field.name == "data"
    )
    recipe = [(name, kinds[name], value) for name, value in RECIPE.items() if fits and name in kinds]
    here = {"__module__": __name__}  # otherwise cyclopts takes it for a class of the library
    combined = make_dataclass("Options", recipe, bases=configs, namespace=here, frozen=True, kw_only=True)
    return Parameter(name="*")(combined)


def _accepted(kind: type[RunOptions]) -> list[str]:
    """Return the options that a scenario takes on its command line; it may have closed some that it inherits."""

    def closed(field: Field[Any]) -> bool:
        said = getattr(field.type, "__metadata__", ())
        return any(isinstance(each, Parameter) and each.parse is False for each in said)

    return [field.name for field in fields(kind) if not closed(field)]


def _compare(names: Sequence[str], comparing: CompareOptions, config: RunOptions) -> None:
    if not names:
        raise UsageError(
            "compare needs the folders of the runs, or what to run: "
            "farandole compare runs/A runs/B, or farandole compare bsp ssp async"
        )
    found = {advised(name, ALIASES | methods.aliases()): _find(name) for name in names}
    new = any(isinstance(what, str) for what in found.values())
    if not new and (comparing, config) != (CompareOptions(), type(config)(json=config.json, out=config.out)):
        raise UsageError("these runs are finished, and options cannot change them: leave out all but --json and --out")
    with folders.claimed("compare", config.out) if new or config.out or not config.json else nullcontext() as folder:
        runs: dict[str, Run] = {}
        for name, what in found.items():
            if isinstance(what, Run):
                runs[what.folder.name if what.folder.name not in runs else name] = what
                continue
            assert folder
            if not config.json:
                print(f"compare: {name} …", flush=True)
            runs[name] = _run(name, what, comparing, config, folder / name)
        _show(runs, config.json, folder)


def _find(name: str) -> Run | str:
    """Return a finished run, or the scenario that a new run is to be made of."""
    if name == LATEST or Path(name).is_dir():
        return Run.open(name)
    if name in MODES or name in ALIASES:
        return SERVER
    if methods.named(name) in scenarios.names():
        return methods.named(name)
    choice = f"an update mode ({', '.join(MODES)}), a scenario ({', '.join(scenarios.names())})"
    raise UsageError(f"there is nothing called {name!r} to compare: give {choice}, or a finished run's folder")


def _run(name: str, scenario: str, comparing: CompareOptions, config: RunOptions, folder: Path) -> Run:
    kind = scenarios.load(scenario).Config
    options: dict[str, Any] = changed(kind(**{option: getattr(config, option) for option in _accepted(kind)}))
    options |= {"out": folder, "json": False} | ({"sync": name} if name in MODES else {})
    showing = sys.stderr.isatty() and not config.json
    rank_starter.prepare()
    return launch(scenario, comparing.ranks, timeout_s=comparing.timeout, progress=showing, **options)


def _show(runs: Mapping[str, Run], as_json: bool, folder: Path | None) -> None:
    from farandole.report import comparison

    summaries = {name: run.summary for name, run in runs.items()}
    picture = comparison.draw(runs, folder / "compare.png") if folder else None
    if as_json:
        print(json_text([{"run": name} | asdict(summary) for name, summary in summaries.items()], indent=2))
        return
    table.show([table.comparison(summaries), table.updating(summaries)])
    if picture:
        print(f"the picture: {picture}")
