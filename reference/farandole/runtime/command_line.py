"""A scenario's options as command-line words, and back: the command line is derived from the Config dataclass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from inspect import Parameter, Signature
from itertools import zip_longest
from typing import Any, TypeVar, get_type_hints

import cyclopts

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
    names = [each.name for each in fields(config_type)]
    of_flag = {_flag(prefix + name): name for name in names for prefix in ("", "no_")}
    given = {of_flag.get(word.partition("=")[0], "") for word in words if word.startswith("-")}
    # cyclopts takes 0.5 ms for each option that it is told of, on each rank. All are needed for a message only.
    if given <= set(names):
        with suppress(UsageError):
            return config_type(**_values(config_type, given, words))
    return config_type(**_values(config_type, names, words))


def _values(config_type: type[RunOptions], names: Iterable[str], words: Sequence[str]) -> dict[str, Any]:
    """Return the values of the fields that the words give; only the fields `names` are known.

    Raises:
        UsageError: another one is given, or a value does not fit.
    """
    read: dict[str, Any] = {}

    def accept(**values: Any) -> None:
        read.update(values)

    types = get_type_hints(config_type, include_extras=True)
    accept.__signature__ = Signature([  # type: ignore[attr-defined]
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=types[name]) for name in names
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
