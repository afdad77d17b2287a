"""The tour: every strategy runs under every condition, and the page shows all of them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from farandole import Run
from farandole.cli.tour import LEAST_STEPS
from farandole.methods import stops
from farandole.report.tour import CONDITIONS
from farandole.runtime.faults import Fail

STEPS = 40  # of 300: what the page shows is not judged here


class References(HTMLParser):
    """Collects what a page refers to, and how many tables' rows it has."""

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


@pytest.mark.timeout(600)
def test_the_tour_runs_every_strategy_and_shows_it(tmp_path: Path) -> None:
    if importlib.util.find_spec("horovod") is None:
        pytest.skip("no Horovod: make setup builds it")
    command = [sys.executable, "-m", "farandole", "tour", "--steps", str(STEPS), "--out", str(tmp_path / "tour")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr
    for _, stop in stops():
        assert done.stdout.count(f"tour: {stop.name},") == len(CONDITIONS), f"{stop.name} ran too seldom"

    page = (tmp_path / "tour" / "index.html").read_text()
    references = References()
    references.feed(page)
    assert references.rows == len(CONDITIONS) * (1 + len(stops()))
    assert not [target for target in references.targets if re.match(r"https?:|/", target)], "opens offline, anywhere"
    assert all((tmp_path / "tour" / target).is_file() for target in references.targets)

    runs = [Run.open(file.parent) for file in (tmp_path / "tour").glob("*/summary.json")]
    assert len(runs) == len(CONDITIONS) * len(stops())
    for run in runs:
        workers = 3 if run.summary.scenario == "parameter_server" else 1  # there every gradient is an update
        assert run.summary.steps == STEPS * workers
        assert run.summary.test_accuracy is not None
        stale = run.summary.staleness and set(run.summary.staleness) != {"0"}  # how stale depends on the machine
        assert run.summary.test_accuracy > (0.2 if stale else 0.6), f"{run.folder.name}: chance is 0.1"
        assert bool(run.summary.faults) == (run.summary.scenario == "membership")
        parts = {"pipeline": 4, "hybrid": 2}.get(run.summary.scenario, 1)  # elsewhere every rank has the whole model
        models = len(set(run.summary.params_sha256 or []))  # parts without parameters, of which two may be, look alike
        assert min(parts, 2) <= models <= parts

    again = subprocess.run([*command[:-1], str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert again.returncode == 2
    assert "holds something other than a tour" in again.stderr
