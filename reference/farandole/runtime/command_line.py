"""A scenario's options as command-line words, and back: the command line is derived from the Config dataclass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import cyclopts

from farandole.errors import UsageError
from farandole.runtime.options import RunOptions

LONGEST_WORD = 200

ConfigType = TypeVar("ConfigType", bound=RunOptions)


def parse(config_type: type[ConfigType], arguments: Sequence[str]) -> ConfigType:
    """A Config from command-line words.

    Raises:
        UsageError: an unknown option or a value that does not fit, in one line.
    """
    parsed: list[ConfigType] = []

    def accept(config: RunOptions | None = None) -> None:
        parsed.append(cast(ConfigType, config) if config else config_type())

    accept.__annotations__["config"] = config_type | None
    app = cyclopts.App(default_command=accept, version_flags=(), help_flags=())
    run_app(app, arguments)
    return parsed[0]


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
        flag = "--" + name.replace("_", "-")
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
