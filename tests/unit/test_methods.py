"""The registry: a row is all that a method needs to appear everywhere, and no other file repeats a table."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from cyclopts import Parameter

from farandole import cli, methods, scenarios
from farandole.collectives.schedules import COLLECTIVES
from farandole.compression.table import COMPRESSORS
from farandole.cost.setting import Outcome, Setting
from farandole.decentralised.topologies import TOPOLOGIES
from farandole.methods import METHODS, Measured, Method, Stop
from farandole.model_parallel.schedules import SCHEDULES
from farandole.models.options import TrainingOptions
from farandole.parameter_server.core.policies import ALIASES, POLICIES
from farandole_tools.bench import methods as bench
from tests.unit.test_concept_map import the_map

ROOT = Path(__file__).parents[2]
NAME = "noise_sgd"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(TrainingOptions):
    """Options of noise_sgd."""

    loudness: int = 1
    """How loud."""


def main(config: Config) -> None:
    raise AssertionError("no test starts it")


def simulated(method: str, setting: Setting, choice: object) -> tuple[Setting, Outcome]:
    return setting, Outcome(wall_s=3.0, gradients=setting.steps, computed=setting.steps, compute_s=1.0)


def row(**about: object) -> Method:
    given = {"room": "data_parallel", "concept": "Data parallel", "module": __name__, "aliases": ("noisy",)}
    return Method(**{**given, **about})  # type: ignore[arg-type]


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Method:
    """A method of this test, which is added to the table and to nothing else."""
    method = row(
        simulated={"noise": f"{__name__}:simulated"},
        measured=(Measured("noise, loud", {"loudness": 3}),),
        tour=(Stop("noise", "random steps"),),
    )
    monkeypatch.setitem(METHODS, NAME, method)
    return method


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with suppress(SystemExit):
        cli.main([*words])
    out, err = capsys.readouterr()
    return out + err


def test_a_row_is_listed_runs_and_is_compared(added: Method, capsys: pytest.CaptureFixture[str]) -> None:
    assert NAME in said(capsys, "list")
    for word in (NAME, "noisy"):
        assert scenarios.load(word).Config is Config
        assert "--loudness" in said(capsys, "run", word, "--help")
    assert "--loudness" in said(capsys, "compare", NAME, "--help")
    assert "noise_sgd" in said(capsys, "compare", "nothing")


def test_a_row_is_measured_toured_and_simulated(added: Method, capsys: pytest.CaptureFixture[str]) -> None:
    assert (NAME, Stop("noise", "random steps")) in methods.stops()
    assert ("noise, loud", NAME, {"loudness": 3}) in [(m.name, m.scenario, m.options) for m in bench.measured()]
    assert "noise" in said(capsys, "simulate", "noise", "--steps", "7")


def test_a_row_without_a_simulation_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(METHODS, NAME, row(why_not_simulated="noise has no cost"))
    assert f"{NAME} is no method of the simulator: noise has no cost" in said(capsys, "simulate", NAME)


def flaws(name: str, method: Method) -> list[str]:
    """Return the claims of a row that do not hold."""
    concepts = {each.removesuffix(" ") for each in english()}
    found = [] if method.concept in concepts else [f"{name}: no row {method.concept!r} on the concept map"]
    if bool(method.simulated) == bool(method.why_not_simulated):
        found.append(f"{name}: simulated, or the reason why not")
    options = scenarios.load(name).Config.__dataclass_fields__
    for each in (*method.measured, *method.tour):
        found += [f"{name}: {each.name} gives {key}, no option" for key in each.options if key not in options]
    if not (ROOT / "reference" / "farandole" / method.room).is_dir():
        found.append(f"{name}: no room {method.room}")
    return found


def english() -> Iterator[str]:
    text = (ROOT / "docs" / "concept_map.md").read_text(encoding="utf-8")
    yield from (line[2:].partition(" – ")[0] for line in text.splitlines() if line.startswith("| "))


@pytest.mark.parametrize("name", METHODS)
def test_each_row_keeps_what_it_promises(name: str) -> None:
    assert flaws(name, METHODS[name]) == []
    assert any(f"run `{name}`" in each.run for each in the_map()), "on the concept map"


def test_a_row_that_promises_too_much_is_found(added: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    assert flaws(NAME, added) == []
    bad = row(concept="Nonsense", room="attic", measured=(Measured("x", {"volume": 1}),))
    monkeypatch.setitem(METHODS, NAME, bad)
    assert len(flaws(NAME, bad)) == 4


def test_every_scenario_of_the_package_has_a_row() -> None:
    assert scenarios.names() == sorted(METHODS)


TABLES = {
    "methods": METHODS,
    "collectives": COLLECTIVES,
    "compressors": COMPRESSORS,
    "topologies": TOPOLOGIES,
    "pipeline schedules": SCHEDULES,
    "policies": [*POLICIES, *ALIASES],
}


def listed(tree: ast.AST) -> Iterator[set[str]]:
    """The strings of each list, tuple, set, dictionary's keys and Literal in some code."""
    for node in ast.walk(tree):
        parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", None)
        if parts:
            yield {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def enumerations(code: str) -> list[str]:
    """The tables of which some code lists more than half again, and four names or more."""
    found = []
    for strings in listed(ast.parse(code)):
        for table, names in TABLES.items():
            again = strings & set(names)
            if len(again) >= 4 and len(again) > len(strings) / 2 and len(again) > len(names) / 2:
                found.append(table)
    return found


PEERS = {"farandole_tools/bench/pipeline_task.py"}  # torch's class of each schedule that torch also has
HOMES = {
    "farandole/methods.py",
    "farandole/collectives/schedules.py",
    "farandole/compression/table.py",
    "farandole/decentralised/topologies.py",
    "farandole/model_parallel/schedules/__init__.py",
    "farandole/parameter_server/core/policies/__init__.py",
}


def test_no_other_file_lists_what_a_table_lists() -> None:
    files = {str(path.relative_to(ROOT / "reference")): path for path in (ROOT / "reference").rglob("*.py")}
    assert files.keys() > HOMES
    again = {
        name: found
        for name, path in files.items()
        if name not in HOMES | PEERS and (found := enumerations(path.read_text("utf-8")))
    }
    assert again == {}
    for home in HOMES:
        assert enumerations(files[home].read_text("utf-8")), f"{home} has its table"


def test_a_second_enumeration_is_found() -> None:
    assert enumerations('Topology = Literal["ring", "torus", "exponential", "complete"]') == ["topologies"]
    assert enumerations('POLICIES = ("bsp", "ssp", "async", "half", "partial", "dssp", "history")') == ["policies"]
    assert enumerations('chosen = ("ring", "torus")') == []


def test_listing_imports_neither_torch_nor_mpi() -> None:
    code = (
        "import sys; from farandole import scenarios, methods; from farandole.cli.scenario_list import list_scenarios; "
        "list_scenarios(); print(sorted({'torch', 'mpi4py', 'numpy'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.endswith("[]\n")
