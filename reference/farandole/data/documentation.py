"""Real English prose that every Python carries: the reference of its language, `pydoc_data.topics`.

A topic's text comes again where the topic is a chapter of a larger one: a fifth of everything. Such
topics are left out, or what a model is tested on would often be something it has learned by heart.
What is left depends on Python's version; with 3.11 it is 57 topics of together 373,000 characters.
"""

from __future__ import annotations

from farandole.errors import UsageError


def topics() -> list[str]:
    """The texts of all topics that are no chapters of larger ones, the largest first.

    Raises:
        UsageError: a Python that was installed without them.
    """
    try:
        from pydoc_data.topics import topics as texts
    except ImportError as error:
        raise UsageError("this Python comes without pydoc_data: install its whole standard library") from error
    chosen: list[str] = []
    known_lines: set[str] = set()
    for text in sorted(texts.values(), key=lambda text: (-len(text), text)):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if sum(line in known_lines for line in lines) < len(lines) / 2:
            chosen.append(text)
            known_lines.update(lines)
    return chosen
