"""The pages' formulas become MathML, so that they are drawn without a network, and a mistake in one is found."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from _ext.offline_math import to_mathml  # noqa: E402

CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<!\$)\$([^$\n]+(?:\n[^$\n]+)?)\$", re.DOTALL)


def prose(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        text = "\n\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown")
    return CODE.sub("", text)


def test_every_formula_can_be_drawn() -> None:
    files = [*ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("labs/*/*.md")]
    found = [block or inline for file in files for block, inline in FORMULA.findall(prose(file))]
    assert len(found) > 140
    for formula in found:
        ElementTree.fromstring(to_mathml(formula))


@pytest.mark.parametrize("wrong", [r"\begin{matrix} x", r"\unknowncommand x", "x^2^3"])
def test_a_wrong_formula_is_found(wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(wrong)):
        to_mathml(wrong)


def test_a_formula_has_its_parts_and_its_place() -> None:
    element = to_mathml(r"2\frac{P-1}{P}n", "block")
    assert 'display="block"' in element
    tags = [node.tag.rpartition("}")[2] for node in ElementTree.fromstring(element).iter()]
    assert tags.count("mfrac") == 1
