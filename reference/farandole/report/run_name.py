"""A run's name as a label in a picture: a folder may have any name, and matplotlib reads some signs as commands."""

from __future__ import annotations


def label(name: str) -> str:
    """The name as matplotlib shows it whole: without formulas between two $, and not left out for a leading "_"."""
    text = name.encode(errors="surrogateescape").decode(errors="replace").replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
