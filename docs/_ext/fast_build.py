"""Leaves out work of Sphinx that changes no page, a third of a build.

Names of Python objects are found in an index: signatures name thousands of types without their modules, and Sphinx
compares each of them with 8,000 names. The menu beside each page is made from the titles of pages: Sphinx copies all
their headings, and then removes them. The stem of a word is found once, not once per page. Sphinx would also look for
where each function begins and ends, which no page shows, and write messages for debugging that nothing prints.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import cache, cached_property
from typing import Any

from docutils.nodes import bullet_list
from sphinx.addnodes import toctree
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.domains.python import ObjectEntry, PythonDomain
from sphinx.pycode.parser import Parser
from sphinx.search.en import SearchEnglish


class IndexedPythonDomain(PythonDomain):
    """The Python domain, which searches only the objects whose last name is the one that is searched for."""

    _index: dict[str, dict[str, ObjectEntry]] | None = (
        None  # made when the first page is written: all objects are known
    )

    def find_obj(
        self, env: Any, modname: str, classname: str, name: str, type: str | None, searchmode: int = 0
    ) -> list[tuple[str, ObjectEntry]]:
        everything = self.data["objects"]
        if self._index is None:
            self._index = defaultdict(dict)
            for full, entry in everything.items():
                self._index[full.rpartition(".")[2]][full] = entry
        self.data["objects"] = self._index.get(name.removesuffix("()").rpartition(".")[2], {})
        try:
            return super().find_obj(env, modname, classname, name, type, searchmode)
        finally:
            self.data["objects"] = everything


class TitledHTMLBuilder(StandaloneHTMLBuilder):
    """The HTML builder, which makes menus of titles from tables of contents without other headings."""

    def _get_local_toctree(self, docname: str, collapse: bool = True, **kwargs: Any) -> str:
        contents = self.env.tocs
        if kwargs.get("titles_only"):
            self.env.tocs = self._titles
        try:
            return super()._get_local_toctree(docname, collapse, **kwargs)
        finally:
            self.env.tocs = contents

    @cached_property
    def _titles(self) -> dict[str, bullet_list]:
        return {page: only_titles(contents) for page, contents in self.env.tocs.items()}


def only_titles(contents: bullet_list) -> bullet_list:
    """Return a page's table of contents with its title and the pages below it, as Sphinx does after copying."""
    titles = contents.deepcopy()
    for title in titles.children:
        if len(title) > 1:
            if below := list(title.findall(toctree)):
                title[1][:] = below
            else:
                title.pop(1)
    return titles


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_domain(IndexedPythonDomain, override=True)
    app.add_builder(TitledHTMLBuilder, override=True)
    SearchEnglish.stem = cache(SearchEnglish.stem)
    Parser.parse_definition = lambda self: None
    logging.getLogger("sphinx").setLevel(logging.INFO)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
