"""The page of the public names (test_concept_map holds it to `__all__`) is found, and each name has a docstring."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import farandole

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["own_work.md", "reference.md"])
def test_the_page_is_found_from(page: str) -> None:
    assert "{doc}`api`" in (DOCS / page).read_text()


@pytest.mark.parametrize("name", farandole.__all__)
def test_each_says_what_it_takes_and_raises(name: str) -> None:
    thing = getattr(farandole, name)
    text = inspect.getdoc(thing) or ""
    assert text.splitlines()[0].endswith((".", ":"))
    if inspect.isfunction(thing):
        assert {"Args:", "Raises:"} <= set(text.splitlines())
        for parameter in inspect.signature(thing).parameters.values():
            assert parameter.annotation is not parameter.empty
