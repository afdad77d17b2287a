"""The tour: every strategy runs under every condition, and the page shows all of them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from farandole import Run, scenarios
from farandole.cli.tour import LEAST_STEPS
from farandole.methods import stops
from farandole.report.tour import CONDITIONS, RECIPE
from farandole.runtime.command_line import parse, to_arguments
from farandole.runtime.faults import Fail
from tests.pages import browser

STEPS = 40  # of 300: the page's figures are not judged here
NAMES = [stop.name for _, stop in stops()]
# Strategies that start, agree, end or are drawn differently.
VARIED = [
    *("ring all-reduce", "Horovod", "server, async"),
    *("pipeline, 1F1B", "a rank killed", "two pipelines"),
]
# Arguments: names of strategies, "--", and those of farandole.
TOUR_OF = """
import sys
from farandole import methods
from farandole.__main__ import main
end = sys.argv.index("--")
chosen = [stop for stop in methods.stops() if stop[1].name in sys.argv[1:end]]
methods.stops = lambda: chosen
del sys.argv[1:end + 1]
main()
"""


class References(HTMLParser):
    """Collects a page's links, and its number of table rows."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.rows = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value for name, value in attrs if name in ("src", "href") and value]
        self.rows += tag == "tr"


def test_the_shortest_tour_has_every_failure() -> None:
    failures = [Fail.parse(stop.options["fail"]) for _, stop in stops() if "fail" in stop.options]
    assert failures
    assert all(fail.step < LEAST_STEPS for fail in failures)


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
def test_every_strategy_accepts_the_tours_options(condition: dict[str, str], tmp_path: Path) -> None:
    for scenario, stop in stops():
        options = {**RECIPE, **stop.options, **condition, "steps": STEPS, "out": tmp_path}
        parse(scenarios.load(scenario).Config, to_arguments(options))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("names", [VARIED, pytest.param(NAMES, marks=pytest.mark.soak)], ids=["varied", "all"])
def test_the_tour_runs_every_strategy_and_shows_it(names: list[str], tmp_path: Path) -> None:
    if importlib.util.find_spec("horovod") is None:
        pytest.skip("no Horovod: make setup builds it")
    command = [sys.executable, "-c", TOUR_OF, *names, "--", "tour", "--steps", str(STEPS), "--out"]
    done = subprocess.run([*command, str(tmp_path / "tour")], capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr
    for name in names:
        assert done.stdout.count(f"tour: {name},") == len(CONDITIONS), f"{name} ran too seldom"

    page = (tmp_path / "tour" / "index.html").read_text()
    references = References()
    references.feed(page)
    assert references.rows == len(CONDITIONS) * (1 + len(names))
    assert not [target for target in references.targets if re.match(r"https?:|/", target)], "opens offline, anywhere"
    files = [unquote(target) for target in references.targets if not target.startswith("#")]
    assert all((tmp_path / "tour" / file).is_file() for file in files)

    with browser.started() as opened:
        assert opened.faults(tmp_path / "tour" / "index.html") == []

    runs = [Run.open(file.parent) for file in (tmp_path / "tour").glob("*/summary.json")]
    assert len(runs) == len(CONDITIONS) * len(names)
    for run in runs:
        workers = 3 if run.summary.scenario == "parameter_server" else 1  # there every gradient is an update
        assert run.summary.steps == STEPS * workers
        assert run.summary.test_accuracy is not None
        stale = run.summary.staleness and set(run.summary.staleness) != {"0"}  # the staleness depends on the machine
        assert run.summary.test_accuracy > (0.2 if stale else 0.6), f"{run.folder.name}: chance is 0.1"
        assert bool(run.summary.faults) == (run.summary.scenario == "membership")
        parts = {"pipeline": 4, "hybrid": 2}.get(run.summary.scenario, 1)  # elsewhere every rank has the whole model
        models = len(set(run.summary.params_sha256 or []))  # parts without parameters, of which two may be, look alike
        assert min(parts, 2) <= models <= parts

    again = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert again.returncode == 2
    assert "holds something other than a tour" in again.stderr
