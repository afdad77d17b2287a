"""Additions to Sphinx and Furo for readers without a mouse or a screen.

Code, tables and formulas that are wider than the screen can be scrolled by keys, and a screen reader is told the level
of the headings in the list of pages (WCAG 2.1, criteria 2.1.1 and 4.1.2).
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

ADDED = {
    "<pre": '<pre tabindex="0"',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<div class="formula"': '<div tabindex="0" class="formula"',
    'role="heading">': 'role="heading" aria-level="2">',
}
PARTS = ("body", "furo_navigation_tree")
AFTER_FURO = 900  # which makes its list of pages in a handler of the same event


def add(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    for part in PARTS:
        for lacking, complete in ADDED.items():
            context[part] = context.get(part, "").replace(lacking, complete)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", add, priority=AFTER_FURO)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
