"""A run's name as a label in a picture: a folder may have any name, but matplotlib interprets some characters."""

from __future__ import annotations


def label(name: str) -> str:
    """Return the name as matplotlib shows it completely: $ starts no formula, and a leading "_" hides nothing."""
    text = name.encode(errors="surrogateescape").decode(errors="replace").replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
