"""docs/adding_a_method.md, done literally: its files and lines in a copy of the package, and what it says of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


def block(words: str) -> str:
    """The one block of code with these words."""
    (found,) = (text for text in BLOCKS if words in text)
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with everything that the page adds to it."""
    folder = tmp_path_factory.mktemp("copy")
    package = folder / "farandole"
    shutil.copytree(ROOT / "reference" / "farandole", package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, words in {
        "collectives/chain.py": "CHAIN = Schedule(",
        "data_parallel/clipped.py": "class ClippedSGD",
        "scenarios/clipped_sgd.py": "run_as_program(Config",
    }.items():
        assert f"`{Path(file).name}`" in PAGE
        assert f"`reference/farandole/{Path(file).parent}/`" in PAGE
        (package / file).write_text(block(words))
    schedules = package / "collectives/schedules.py"
    insert(schedules, "COLLECTIVES: dict[str, Collective] = {\n", block("chain.CHAIN"))
    insert(schedules, "from farandole.collectives import ", "chain, ")
    insert(package / "methods.py", "METHODS: dict[str, Method] = {\n", block('"clipped_sgd": Method('))
    topologies = package / "decentralised/topologies.py"
    insert(topologies, "TOPOLOGIES: dict[str, Callable[[int], tuple[Edges, ...]]] = {\n", block('"star": star'))
    before_the_table = "    return (_without_loops((one, other) for one in range(ranks) for other in range(ranks)),)\n"
    insert(topologies, before_the_table, "\n\n" + block("def star("))
    return folder


def insert(file: Path, after: str, text: str) -> None:
    whole = file.read_text()
    assert whole.count(after) == 1, f"{file.name} has no {after!r}: does the page name the right file?"
    file.write_text(whole.replace(after, after + text))


def python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the copy, in the folder beside it."""
    environment = os.environ | {"PYTHONPATH": str(copy), "COLUMNS": "80"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=100)


def test_the_chain_is_checked_counted_and_drawn(copy: Path) -> None:
    checks, test = block("check_all_reduce(CHAIN, 4)"), block("def test_chain")
    calls = "for size in (1, 2, 3, 4, 7):\n    test_chain_is_right_and_sends_one_message_at_a_time(size)\n"
    draws = "from farandole.cli import main\nmain(['draw', 'chain', '-n', '4'])\n"
    done = python(copy, "-c", "\n".join([checks, block("schedule_picture.draw"), "import pytest", test, calls, draws]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == re.findall(r"^print\(.*\)  # ([^:\n]+)", checks, re.M)
    assert (copy / "chain.png").exists()
    assert "6 rounds; seconds for a vector of n bytes: 6 α + 6 nβ + 3 nγ" in done.stdout


def test_a_chain_that_swaps_its_blocks_as_the_page_proposes_is_found_wrong(copy: Path) -> None:
    chain = block("CHAIN = Schedule(")
    first, second = re.search(r"(    if rank > 0:\n.*?\n)(    if rank < size - 1:\n.*?\n)    if", chain, re.S).groups()  # type: ignore[union-attr]
    (copy / "swapped.py").write_text(chain.replace(first + second, second + first))
    check = block("check_all_reduce(CHAIN, 4)").replace("farandole.collectives.chain", "swapped")
    assert (
        "chain on 3 ranks: chunk 0 on rank 2 lacks the contributions of ranks [0]" in python(copy, "-c", check).stderr
    )


def test_the_new_scenario_is_listed_and_refuses_what_cannot_be(copy: Path) -> None:
    assert "clipped_sgd" in python(copy, "-m", "farandole", "list").stdout
    refused = python(copy, "-m", "farandole", "run", "clipped_sgd", "--warm-up", "2", "--max-norm", "0")
    assert refused.returncode == 2
    assert "--max-norm" in refused.stderr


def test_the_row_of_the_new_scenario_and_the_star_are_read(copy: Path) -> None:
    refused = python(copy, "-m", "farandole", "simulate", "clipped_sgd")
    assert "clipped_sgd is no method of the simulator: its network is that of ring" in refused.stderr
    code = "from farandole import methods; print([stop.name for _, stop in methods.stops()])"
    assert "clipped" in python(copy, "-c", code).stdout
    drawn = python(copy, "-m", "farandole", "draw", "mixing", "--topology", "star", "-n", "4", "--out", "star.png")
    assert drawn.returncode == 0, drawn.stderr
    assert (copy / "star.png").exists()


def test_a_bound_that_is_never_reached_changes_nothing(copy: Path) -> None:
    """The page's limit case, by the new collective, on one rank, which needs no launch."""
    small = ["--steps", "2", "--json"]
    runs = [
        python(copy, "-m", "farandole.scenarios.clipped_sgd", *small, "--max-norm", "1e9", "--out", "clipped"),
        python(copy, "-m", "farandole.scenarios.sync_sgd", *small, "--collective", "chain", "--out", "plain"),
    ]
    clipped, plain = (re.findall(r"[0-9a-f]{64}", done.stdout) for done in runs)
    assert len(clipped) == 1, runs[0].stderr
    assert clipped == plain


def test_whatever_the_page_names_is_there() -> None:
    for path in re.findall(r"`((?:tests|collectives|data_parallel|report|scenarios)/[\w/]+\.py)`", PAGE):
        assert (ROOT / path).exists() or (ROOT / "reference" / "farandole" / path).exists(), path
    for table in ("POLICIES` in `parameter_server/core/policies/__init__.py", "COMPRESSORS` in `compression/table.py",
                  "TOPOLOGIES` in `decentralised/topologies.py", "METHODS` of `methods.py",
                  "SCHEDULES` in `model_parallel/schedules/__init__.py"):  # fmt: skip
        name, file = re.split("` (?:in|of) `", table)
        assert f"`{table}`" in PAGE
        assert re.search(rf"^{name}\b.* = ", (ROOT / "reference" / "farandole" / file).read_text(), re.M), table
    program = (ROOT / "tests/parallel/programs/collectives.py").read_text()
    assert "for name in ALL_REDUCES" in program
    assert "\nmessages = {\n" in program
