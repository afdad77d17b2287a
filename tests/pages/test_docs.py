"""The documentation is built without a warning, and every page of it works in a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.pages import browser
from tests.pages.browser import Browser

ROOT = Path(__file__).parents[2]
HTML = ROOT / "docs" / "_build" / "html"
# One of each kind: make test opens these, make soak every page.
KINDS = (
    *("index.html", "decentralised.html", "commands.html", "search.html", "reference/farandole_tools.hosts.html"),
    *("methods/sync_sgd.html", "labs/11_election.html", "notebooks/02_ring_all_reduce.html"),
)
SOAK = "FARANDOLE_SOAK" in os.environ


class Links(HTMLParser):
    """The links of a page, and its link targets."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def pages() -> list[Path]:
    """Build all pages, from scratch because Sphinx would keep pages of deleted files, and return them."""
    shutil.rmtree(HTML, ignore_errors=True)
    # Defaults are shown by their values: finding how the source writes them takes 10 s.
    options = ["-W", "--keep-going", "-q", "-D", "autodoc_preserve_defaults=0"]
    command = [sys.executable, "-m", "sphinx", *options, "-b", "html", "docs", str(HTML)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    found = sorted(path for path in HTML.rglob("*.html") if "_static" not in path.parts)
    assert {*KINDS} <= {path.relative_to(HTML).as_posix() for path in found}
    return found


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser.started() as started:
        yield started


@pytest.mark.timeout(3600)  # building included, beside other tests
def test_every_link_within_the_pages_leads_somewhere(pages: list[Path]) -> None:
    read = {path: Links(path) for path in pages}
    dead = []
    for path, links in read.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = read[place].anchors if place in read else None
            if not place.exists() or (
                parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors
            ):
                dead.append(f"{path.relative_to(HTML)}: {target}")
    assert dead == []


@pytest.mark.timeout(3600)
def test_pages_are_complete_fit_the_screen_and_can_be_read_by_all(pages: list[Path], opened: Browser) -> None:
    faults = [fault for page in pages if SOAK or page == HTML / KINDS[0] for fault in opened.faults(page)]
    if not SOAK:  # what a narrow screen shows instead of the menus is the same on each page
        faults += [fault for kind in KINDS[1:] for fault in opened.faults(HTML / kind, read_at=browser.WIDTHS[:1])]
    assert faults == []


def test_a_page_with_faults_is_found_out(tmp_path: Path, opened: Browser) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<!doctype html><html><head><title>Faults</title></head><body><img src="none.png">'
        '<p style="color: #ccc; background: #fff">pale</p><p style="width: 600px">wide</p>'
        "<script>throw new Error('broken')</script></body></html>"
    )
    found = "\n".join(opened.faults(page))
    for fault in (
        "none.png",
        "400 wide: wider than the screen: <p",
        "broken",
        "color-contrast",
        "image-alt",
        "html-has-lang",
    ):
        assert fault in found, fault
    assert "1300 wide: wider" not in found
