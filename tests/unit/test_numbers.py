"""Numbers in options: every option of every scenario and command accepts exactly its range."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import make_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import cyclopts
import pytest
from cyclopts import Parameter

import farandole.cli
from farandole import scenarios
from farandole.cli import compare, run
from farandole.errors import UsageError
from farandole.runtime import command_line, devices
from farandole.runtime.chaos import Chaos
from farandole.runtime.faults import Fail, Slow
from farandole.runtime.links import LinkChange
from farandole.runtime.numbers import LARGEST_SEED, parse_integer, parse_real
from farandole.runtime.options import RunOptions
from tests.conftest import SOAK

NO_NUMBERS = ["nan", "-nan", "", " 5", "1_000", "５", "0x10", "1,5", "1e400", "9" * 5000]
NO_INTEGERS = [*NO_NUMBERS, "1.3", "1.0", "1e3", "inf", "1" + "0" * 30, "-1"]
MAY_BE_INFINITE = {"concentration", "link_gbps"}  # they mean: without a limit
MAY_BE_NEGATIVE = {"degrees"}

Parse = Callable[[list[str]], Any]


def _numbers_of(hint: Any) -> set[type]:
    """int or float, where an option's type holds them: in a union, a tuple, an annotation."""
    if hint in (int, float):
        return {hint}
    if get_origin(hint) is Annotated:
        if any(isinstance(each, Parameter) and each.parse is False for each in hint.__metadata__):
            return set()
        return _numbers_of(get_args(hint)[0])
    return set().union(*(_numbers_of(each) for each in get_args(hint))) if hint is not type(hint) else set()


def _hints() -> Iterator[tuple[str, Any]]:
    """(name, type) of every option of every scenario and command."""
    for name in scenarios.names():
        yield from get_type_hints(scenarios.load(name).Config, include_extras=True).items()
    app = farandole.cli.app
    app.command(run.app(["run", "sync_sgd"]), name="run")
    app.command(compare.command(["compare", "runs/A"]), name="compare")
    for command in _commands(app):
        for argument in command.assemble_argument_collection():
            if argument.names and argument.names[0].startswith("--") and argument.show:
                yield argument.names[0].removeprefix("--"), argument.field_info.annotation


def _commands(app: cyclopts.App) -> Iterator[cyclopts.App]:
    if app.default_command:
        yield app
    for name in app:
        if not name.startswith("-"):
            yield from _commands(app[name])


def _options() -> list[Any]:
    """(name, int or float, parser, alike) of every option that is a number; those with the same name and type once.

    `alike` is the number of options of the same type that come before.
    """
    found: dict[tuple[str, str], Any] = {}
    of_type: Counter[tuple[str, type]] = Counter()
    for name, hint in _hints():
        for kind in _numbers_of(hint):
            field = name.replace("-", "_")
            if (field, str(hint)) not in found:
                alike = of_type[str(hint), kind]
                of_type[str(hint), kind] += 1
                parameter = pytest.param(field, kind, _parser(field, hint), alike, id=f"{field}-{len(found)}")
                found[field, str(hint)] = parameter
    return list(found.values())


def _parser(name: str, hint: Any) -> Parse:
    """Parse one option as scenarios and commands do."""
    options = make_dataclass(
        "Options", [(name, hint, None)], kw_only=True, namespace={"renamed": {}, "bare_options": {}}
    )
    config = Parameter(name="*")(options)
    return lambda words: getattr(command_line.parse(config, words), name)


OPTIONS = _options()


@pytest.mark.parametrize(("name", "kind", "parse", "alike"), OPTIONS)
def test_what_is_no_number_is_refused_in_one_line(name: str, kind: type, parse: Parse, alike: int) -> None:
    """The first option of a type refuses every text; each further one, parsed in the same way, a quarter of them."""
    bad = list(NO_INTEGERS if kind is int else NO_NUMBERS)
    if kind is float:
        bad += [] if name in MAY_BE_INFINITE else ["inf"]
        bad += [] if name in MAY_BE_NEGATIVE else ["-1", "-inf"]
    option = "--" + name.replace("_", "-")
    for text in bad[alike % 4 :: 4] if alike and not SOAK else bad:
        with pytest.raises(UsageError) as refused:
            parse([f"{option}={text}"])
        assert "\n" not in str(refused.value)
        assert option in str(refused.value), "which option it was"
        assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("name", "parse"), [pytest.param(each.values[0], each.values[2], id=each.id) for each in OPTIONS]
)
def test_zero_is_refused_or_zero(name: str, parse: Parse) -> None:
    for text in ("0", "-0"):
        with suppress(UsageError):
            value = parse([f"--{name.replace('_', '-')}={text}"])
            values = value if isinstance(value, tuple) else [value]
            assert all(each is None or (each == 0 and math.copysign(1, each) == 1) for each in values)


def test_the_walk_finds_the_options() -> None:
    names = {each.values[0] for each in OPTIONS}
    assert {"n_push", "spawn", "paces", "widths", "local_lr", "seed"} <= names, "of scenarios"
    assert {"restarts", "map_gbps", "timeout", "cut", "nodes", "time_limit", "per_node"} <= names, "of commands"


def test_a_seed_is_any_unsigned_integer_of_64_bits() -> None:
    assert command_line.parse(RunOptions, ["--seed", str(LARGEST_SEED)]).seed == LARGEST_SEED
    for wrong in (-1, LARGEST_SEED + 1):
        with pytest.raises(UsageError, match="--seed"):
            command_line.parse(RunOptions, command_line.to_arguments({"seed": wrong}))
    devices.seed_everything(LARGEST_SEED + 3)  # as a method derives it from the largest
    devices.seed_rank(LARGEST_SEED, rank=7, step=10**6)


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("+3", 3), ("-3", -3), ("007", 7), ("-0", 0)])
def test_integers(text: str, value: int) -> None:
    assert parse_integer(text) == value


@pytest.mark.parametrize(("text", "value"), [("0.3", 0.3), ("3e-1", 0.3), (".5", 0.5), ("5.", 5.0), ("-2", -2.0)])
def test_reals(text: str, value: float) -> None:
    assert parse_real(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Fail, "rank=1.3,step=3"),
        (Fail, "rank=1,step=1_0"),
        (Fail, "rank=1,step=" + "9" * 5000),
        (Slow, "rank=1,factor=inf"),
        (Slow, "rank=1,factor=1e400"),
        (Slow, "rank=1,factor=2,from=1.5"),
        (Slow, "rank=1,factor=2,until=５"),
        (Chaos, "mtbf=infs"),
        (Chaos, "mtbf=nan"),
        (Chaos, "mtbf=20s,seed=-1"),
        (LinkChange, "step=1.5,mbps=3"),
        (LinkChange, "step=1,mbps=inf"),
    ],
)
def test_numbers_within_a_fault_are_as_strict(kind: Any, text: str) -> None:
    with pytest.raises(UsageError, match="write it as"):
        kind.parse(text)
