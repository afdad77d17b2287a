"""The tour's page: a separate colour for each method, each in one group, and working links to its lessons."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from dataclasses import asdict, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from matplotlib.colors import to_hex

from farandole import methods
from farandole.methods import Stop
from farandole.report import curves, tour
from farandole.report.colours import MANY
from farandole.runtime.record import Run
from farandole_tools import material
from tests.unit.test_timeline import recorded, steps_of

FEW = ("ring all-reduce", "top-k, 1 %")


class Page(HTMLParser):
    """A page's links, the texts of its pictures, and its list of sentences."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.alternatives: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value for name, value in attrs if name in ("src", "href") and value]
        self.ids |= {value for name, value in attrs if name == "id" and value}
        self.alternatives += [dict(attrs).get("alt") or ""] if tag == "img" else []


def run(folder: Path, speed: float) -> Run:
    folder.mkdir(parents=True)
    made = recorded(folder, [*steps_of(0), *steps_of(1)], [0, 1], [])
    summary = replace(made.summary, samples_per_s=speed, test_accuracy=0.9)
    (folder / "summary.json").write_text(json.dumps(asdict(summary)))
    lines = ({"step": step, "wall_s": 0.01 * step, "loss": 2.0 * math.exp(-step / 10)} for step in range(20))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return made


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a tour")
    runs = {
        condition: {name: run(folder / f"{number}-{name}", 100.0 * place + 100) for place, name in enumerate(FEW)}
        for number, condition in enumerate(tour.CONDITIONS)
    }
    return tour.write_page(folder, tour.RECIPE | {"steps": 20}, runs, {"Horovod": "it is <not> here"}, material.folder)


def test_each_method_has_one_colour_that_no_other_has(written: Path) -> None:
    assert len({*MANY}) == len(MANY) >= len(methods.stops())
    swatches = re.findall(r'style="background:(#\w+)"></span>([^<]+)<', written.read_text(encoding="utf-8"))
    assert Counter(name for _, name in swatches) == dict.fromkeys(FEW, 3)  # two tables, and its own section
    by_name = {name: colour for colour, name in swatches}
    assert {*swatches} == {(colour, name) for name, colour in by_name.items()}
    assert len({*by_name.values()}) == len(FEW)
    whole = dict(zip((stop.name for _, stop in methods.stops()), MANY, strict=False))
    assert by_name.items() <= whole.items(), "whichever methods are left out"


def test_its_pictures_and_links_are_there_and_need_no_network(written: Path) -> None:
    page = Page(written.read_text(encoding="utf-8"))
    assert not [target for target in page.targets if re.match(r"https?:|/", target)]
    for target in page.targets:
        alive = target[1:] in page.ids if target.startswith("#") else (written.parent / unquote(target)).is_file()
        assert alive, target
    assert all(page.alternatives)
    assert (
        len({*page.alternatives}) == len(page.alternatives) == 2 * 2 + 2 * len(FEW)
    )  # curves of two groups, and timelines
    assert any(target.endswith(("/02_ring_all_reduce.ipynb", "/02_ring_all_reduce.html")) for target in page.targets)
    text = written.read_text(encoding="utf-8")
    assert "farandole lab start 13<" in text
    viewers = [shlex.split(unescape(command)) for command in re.findall(r"<code>(farandole show [^<]+)</code>", text)]
    assert len(viewers) == 2 * len(FEW)
    assert all(Path(folder, "trace.json").is_file() and option == "--trace" for _, _, option, folder in viewers)
    assert "it is &lt;not&gt; here" in text
    assert (
        "With equal ranks “top-k, 1 %” was the fastest, at 200 samples/s: 2.0 times as fast as “ring all-reduce”"
        in text
    )


def test_the_legend_names_the_coloured_and_lies_below_the_curves(tmp_path: Path) -> None:
    made = curves.Curve.of(run(tmp_path / "a", 1.0))
    names = {f"method number {number}": MANY[number] for number in range(6)}
    figure = curves.beside({**dict.fromkeys(names, made), "another": made}, names)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*names]
    bottom = min(axes.get_tightbbox().y0 for axes in figure.axes)  # type: ignore[union-attr]
    assert legend.get_window_extent().y1 <= bottom
    for axes in figure.axes:
        assert [to_hex(line.get_color()).upper() for line in axes.lines[1:]] == [
            each.upper() for each in names.values()
        ]
        assert not axes.get_legend()


@pytest.mark.parametrize("stop", [stop for _, stop in methods.stops()], ids=lambda stop: stop.name)
def test_every_stop_has_a_group_and_a_notebook_that_exists(stop: Stop) -> None:
    assert stop.group
    assert (material.folder("notebooks") / f"{stop.notebook}.ipynb").is_file()
    assert not stop.lab or (material.folder("labs") / stop.lab / "README.md").is_file()


def test_groups_have_every_stop_once_in_order() -> None:
    names = [stop.name for _, stop in methods.stops()]
    found = tour.groups({"even": dict.fromkeys(names)})  # type: ignore[dict-item]
    assert sorted(stop.name for stops in found.values() for stop in stops) == sorted(names)
    assert all(1 <= len(stops) <= 6 for stops in found.values()), "few enough to be told apart"
