"""A page as a browser shows it on a wide screen and on a narrow one, and what is wrong with it there."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, sync_playwright

WIDTHS = (1300, 400)
PATIENCE_MS = 120_000  # with a busy machine
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# The requirements of WCAG 2 at levels A and AA. The rest of axe's rules is advice, which Furo does not always follow.
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"], "preload": False}
NOT_SHOWN = """Promise.all([...document.images].map(image => {
    image.loading = "eager"
    return image.decode().then(() => "", () => image.src)
})).then(found => found.filter(source => source))"""
TOO_WIDE = """() => {
    const screen = document.documentElement
    if (screen.scrollWidth <= screen.clientWidth) return []
    const wide = [...document.body.querySelectorAll("*")].filter(each => {
        const place = each.getBoundingClientRect()
        return place.width && place.right > screen.clientWidth + 1
    })
    return wide.slice(0, 3).map(each => each.outerHTML.slice(0, 100))
}"""


class Browser:
    """Headless Chromium without a network."""

    def __init__(self, chromium: Chromium) -> None:
        self.chromium = chromium

    def faults(self, path: Path, *, read_at: Collection[int] = WIDTHS) -> list[str]:
        """Return messages about what is wrong with the page: none if all is right.

        Args:
            read_at: the widths at which axe runs, too. It checks contrast and alternative texts for instance, and takes
                longest.
        """
        return [
            f"{path.name}, {width} wide: {fault}"
            for width in WIDTHS
            for fault in self._at(width, path, width in read_at)
        ]

    def _at(self, width: int, path: Path, read: bool) -> list[str]:
        context = self.chromium.new_context(viewport={"width": width, "height": 900}, offline=True)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        found: list[str] = []
        page.on("console", lambda line: found.append(f"console: {line.text}") if line.type == "error" else None)
        page.on("pageerror", lambda error: found.append(f"error: {error}"))
        page.on("requestfailed", lambda request: found.append(f"not loaded: {request.url}"))
        page.goto(path.as_uri())
        found += [f"not shown: {source}" for source in page.evaluate(NOT_SHOWN)]
        found += [f"wider than the screen: {part}" for part in page.evaluate(TOO_WIDE)]
        if read:
            found += violations(page)
        context.close()
        return found


def violations(page: Page) -> list[str]:
    return [
        f"{rule['help']} ({rule['id']}): {', '.join(node['html'][:100] for node in rule['nodes'][:3])}"
        for rule in Axe().run(page, options=RULES).response["violations"]
    ]


@contextmanager
def started() -> Iterator[Browser]:
    """A browser; the test is skipped where there is none."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync_playwright() as playwright:
        # Root's Chromium runs only without its sandbox; all pages that it opens are ours. Containers have a small
        # /dev/shm.
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(executable_path=program, args=options, timeout=PATIENCE_MS)
        yield Browser(chromium)
        chromium.close()
