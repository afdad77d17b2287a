"""Formulas as MathML, which browsers draw themselves: no script, no network, and no copy of MathJax in the pages.

A formula that cannot be converted is a warning, and so fails the build.
"""

from __future__ import annotations

import html

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

UNKNOWN = "<mi>\\"  # what the converter makes of a command that it does not know

logger = logging.getLogger(__name__)


def to_mathml(latex: str, display: str = "inline") -> str:
    """Return a formula as an element of MathML.

    Args:
        latex: the formula, without dollars.
        display: "inline" or "block".

    Raises:
        ValueError: it is no formula that the converter knows.
    """
    try:
        element = convert(latex, display=display)
    except Exception as error:  # the converter's exceptions have no base of their own
        raise ValueError(f"{latex}: {type(error).__name__} {error}") from error
    if UNKNOWN in element:
        raise ValueError(f"{latex}: an unknown command")
    return element


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    translator.body.append(drawn(node, "inline"))
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, which scrolls where the window is too narrow."""
    translator.body.append(f'<div class="formula">{drawn(node, "block")}</div>\n')
    raise nodes.SkipNode


def drawn(node: nodes.Element, display: str) -> str:
    """Return the formula as MathML; if it cannot be converted, warn and return its LaTeX."""
    try:
        return to_mathml(node.astext(), display)
    except ValueError as error:
        logger.warning("a formula cannot be drawn: %s", error, location=node)
        return html.escape(node.astext())


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
