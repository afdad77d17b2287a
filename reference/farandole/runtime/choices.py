"""Options whose values are the names in a table.

    Collective = one_of(ALL_REDUCES)

A table stands in one place, and the command line, its help and its error message follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter

# Shows the user a line of advice. The command line sets it; elsewhere there is no user to advise.
advise: Callable[[str], None] = lambda line: None  # noqa: E731


def one_of(names: Iterable[str], aliases: Mapping[str, str] | None = None) -> Any:
    """Return the type of an option that takes one of these names.

    Args:
        aliases: other words that are accepted, and the names that they stand for; they are not offered.
    """
    choices: Any = Literal[tuple(names)]
    if not aliases:
        return choices

    def convert(_: Any, tokens: Any) -> Any:
        return cyclopts.convert(
            choices, [token.evolve(value=aliases.get(token.value, token.value)) for token in tokens]
        )

    return Annotated[choices, Parameter(converter=convert)]


def advised(word: str, aliases: Mapping[str, str]) -> str:
    """Return the name that `word` stands for; of an alias, tell `advise` so."""
    if name := aliases.get(word):
        advise(f"{word} is called {name} now; the old word is still accepted")
    return aliases.get(word, word)
