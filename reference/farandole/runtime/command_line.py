"""A scenario's options as command-line words, and back: the command line is derived from the Config dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import cyclopts
from cyclopts import Parameter

from farandole.errors import UsageError
from farandole.runtime.choices import advised
from farandole.runtime.options import RunOptions

LONGEST_WORD = 200

ConfigType = TypeVar("ConfigType", bound=RunOptions)


def parse(config_type: type[ConfigType], arguments: Sequence[str]) -> ConfigType:
    """Return a Config from command-line words.

    Raises:
        UsageError: an unknown option or a value that does not fit, in one line.
    """
    words = with_present_names(config_type, arguments)
    if (plain := _plain_values(config_type, words)) is not None:
        return config_type(**plain)
    names = [each.name for each in fields(config_type)]
    of_flag = {_flag(prefix + name): name for name in names for prefix in ("", "no_")}
    given = {of_flag.get(word.partition("=")[0], "") for word in words if word.startswith("-")}
    # cyclopts takes 0.5 ms for each option that it is told of, on each rank. All are needed for a message only.
    if given <= set(names):
        with suppress(UsageError):
            return config_type(**_values(config_type, given, words))
    return config_type(**_values(config_type, names, words))


def _plain_values(config_type: type[RunOptions], words: Sequence[str]) -> dict[str, Any] | None:
    """Return the values of words in the form of `to_arguments`; None where only cyclopts can tell what they mean.

    cyclopts reads these words, too, but it takes the launcher 2 ms, and each rank 4.
    """
    known = {_flag(each.name): each for each in fields(config_type)}
    given: dict[str, list[str]] = {}
    rest = iter(words)
    try:
        for word in rest:
            flag, equals, value = word.partition("=")
            is_flag = bool in (known[flag].type, *get_args(known[flag].type))  # bool, bool | None, Annotated[bool, …]
            if not equals and not is_flag:
                value = next(rest)
            if is_flag if equals else value.startswith("-"):
                return None
            given.setdefault(flag, []).append(value)
        return {known[flag].name: _plain_value(known[flag].type, values) for flag, values in given.items()}
    except (KeyError, StopIteration, ValueError, UsageError, cyclopts.CycloptsError):
        return None


def _plain_value(kind: Any, words: Sequence[str]) -> Any:
    """Return the value of an option of this type.

    Raises:
        ValueError, UsageError, CycloptsError: it does not fit, or needs cyclopts.
    """
    if get_origin(kind) in (Union, UnionType):
        [kind] = set(get_args(kind)) - {NoneType}
    parameter: Any = Parameter()
    if get_origin(kind) is Annotated:
        kind, parameter = get_args(kind)
    [word, *more] = words
    if (more and get_origin(kind) is not tuple) or parameter.parse is False or parameter.name:
        raise ValueError(words)
    if parameter.converter:
        value = parameter.converter(kind, [cyclopts.Token(value=each) for each in words])
        for validate in parameter.validator:
            validate(kind, value)
        return value
    if kind is bool and not word:
        return True
    if word and (kind in (str, Path) or (get_origin(kind) is Literal and word in get_args(kind))):
        return Path(word) if kind is Path else word
    raise ValueError(words)


def _values(config_type: type[RunOptions], names: Iterable[str], words: Sequence[str]) -> dict[str, Any]:
    """Return the values of the fields that the words give; only the fields `names` are known.

    Raises:
        UsageError: another one is given, or a value does not fit.
    """
    read: dict[str, Any] = {}

    def accept(**values: Any) -> None:
        read.update(values)

    types = get_type_hints(config_type, include_extras=True)
    accept.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=types[name]) for name in names
    ])  # fmt: skip
    run_app(cyclopts.App(default_command=accept, version_flags=(), help_flags=()), words)
    return read


def with_present_names(config_type: type[RunOptions], arguments: Sequence[str]) -> list[str]:
    """Return the words with each option by its present name, which `choices.advise` reports, and with a value.

    --no-NAME of an option that is off by default says nothing, also where there is no such word: `to_arguments` has it.
    """
    off = {"--no-" + _flag(each.name).removeprefix("--") for each in fields(config_type) if each.default is False}
    flags = {_flag(former): _flag(present) for former, present in config_type.renamed.items()}
    bare = {_flag(name): value for name, value in config_type.bare_options.items()}
    words = []
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue="-"):
        flag, equals, value = argument.partition("=")
        if argument in bare and following.startswith("-"):
            equals, value = "=", bare[argument]
        positive = "--" + argument.removeprefix("--no-")
        if positive not in bare and (argument not in off or positive in arguments):
            words.append(advised(flag, flags) + equals + value)
    return words


def run_app(app: cyclopts.App, arguments: Sequence[str]) -> None:
    """Run a cyclopts app; what it has to say of bad input becomes a UsageError of one line."""
    try:
        app(list(arguments), exit_on_error=False, print_error=False, result_action="return_none")
    except cyclopts.CycloptsError as error:
        raise UsageError(one_line(error)) from error


def one_line(error: cyclopts.CycloptsError) -> str:
    """Return the error's message as one line, with very long words shortened."""
    words = str(error).split()
    return " ".join(word if len(word) <= LONGEST_WORD else f"{word[:20]}…" for word in words)


def to_arguments(options: Mapping[str, Any]) -> list[str]:
    """Options as command-line words: {"steps": 5, "slow": [a, b], "align": False} → --steps 5 --slow a --slow b …"""
    words: list[str] = []
    for name, value in options.items():
        flag = _flag(name)
        if value is None:
            continue
        if value is True:
            words.append(flag)
        elif value is False:
            words.append("--no-" + flag.removeprefix("--"))
        else:
            for item in value if isinstance(value, list | tuple) else [value]:
                word = str(item)  # one that begins with a hyphen would be read as an option
                words += [f"{flag}={word}"] if word.startswith("-") else [flag, word]
    return words


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")
