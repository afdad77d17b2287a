"""docs/adding_a_method.md, followed literally: its files and lines in a copy of the package, and its statements."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "reference" / "farandole"
PAGE = (ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
# The page's table of examples: the name → the new files, and the file of the table that gets a row.
EXAMPLES = {
    name: (
        [room + file for file, room in re.findall(r"`(\w+\.py)` in `([\w/]+/)`", new)],
        re.findall(r"`([\w/]+\.py)`", row),
    )
    for name, _, new, row in re.findall(r"^\| ([^|]+) \| ([^|]+) \|([^|]*)\| (`[A-Z]+` in [^|]+) \|$", PAGE, re.M)
}


def block(words: str) -> str:
    """Return the one block of code with these words."""
    (found,) = (text for text in BLOCKS if words in text)
    return found


def first(words: str) -> str:
    """Return the one block of code that begins with these words."""
    (found,) = (text for text in BLOCKS if text.startswith(words))
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a copy of the package with everything that the page adds to it."""
    folder = tmp_path_factory.mktemp("copy")
    package = folder / "farandole"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, words in {
        "collectives/chain.py": "CHAIN = Schedule(",
        "parameter_server/core/policies/round_robin.py": "class RoundRobin",
        "compression/natural.py": "class Natural",
        "scenarios/clipped_sgd.py": "run_as_program(Config",
    }.items():
        assert f"`{Path(file).name}`" in PAGE
        assert f"`reference/farandole/{Path(file).parent}/`" in PAGE
        (package / file).write_text(block(words))
    schedules = package / "collectives/schedules.py"
    insert(schedules, "COLLECTIVES: dict[str, Collective] = {\n", block("chain.CHAIN"))
    insert(schedules, "from farandole.collectives import ", "chain, ")
    policies = package / "parameter_server/core/policies/__init__.py"
    insert(policies, "POLICIES: dict[str, Row] = {\n", block("Row(RoundRobin"))
    before_the_import = (
        "from farandole.parameter_server.core.policies.policy import Action, Apply, Drop, Policy, Push\n"
    )
    insert(policies, before_the_import, first("from farandole.parameter_server.core.policies.round_robin"))
    insert(package / "compression/table.py", "COMPRESSORS: dict[str, Row] = {\n", block('"natural": Row('))
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


# A process that imports what most commands need, and runs each of them in a fork. The fork ends without taking its
# modules down: that would copy the memory that the two share.
FORKS = """
import atexit, gc, json, os, runpy, sys, traceback
import hypothesis, pytest, torch
import farandole.cli

gc.freeze()
for line in sys.stdin:
    words, *files = json.loads(line)
    if not os.fork():
        for number, file in enumerate(files, 1):
            os.dup2(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
        sys.argv, status = words[1:], 0
        try:
            if words[0] == "-m":
                runpy.run_module(words[1], run_name="__main__", alter_sys=True)
            else:
                exec(words[1], {"__name__": "__main__"})
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
            status = 1
        atexit._run_exitfuncs()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def python(copy: Path) -> Iterator[Python]:
    """Run Python on the copy, in the folder beside it; the repository's tests can be imported."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)]), "COLUMNS": "80"}
    files = [copy / name for name in ("stdout.txt", "stderr.txt")]
    command = [sys.executable, "-u", "-c", FORKS]  # all writers, in order
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=copy, env=environment, stdin=pipe, stdout=pipe, text=True, bufsize=1) as server:
        requests, statuses = server.stdin, server.stdout
        assert requests
        assert statuses

        def run(option: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            """Run `-c code` or `-m code`."""
            words = [option, code, *arguments]
            requests.write(json.dumps([words, *map(str, files)]) + "\n")
            return subprocess.CompletedProcess(words, int(statuses.readline()), *(file.read_text() for file in files))

        yield run


def test_an_example_changes_two_files_at_most(copy: Path) -> None:
    """The files in the page's table are those that have changed in the copy."""
    assert len(EXAMPLES) == 5
    changed = {
        str(file.relative_to(copy / "farandole"))
        for file in (copy / "farandole").rglob("*.py")
        if not (original := PACKAGE / file.relative_to(copy / "farandole")).exists()
        or original.read_bytes() != file.read_bytes()
    }
    assert changed == {file for new, row in EXAMPLES.values() for file in (*new, *row)}
    for name, (new, row) in EXAMPLES.items():
        assert len(row) == 1, name
        assert len(new) <= 1, name
        assert not any((PACKAGE / file).exists() for file in new), name


def test_the_chain_is_checked_counted_and_drawn(copy: Path, python: Python) -> None:
    checks, test = block("check_all_reduce(CHAIN, 4)"), block("def test_chain")
    calls = "for size in (1, 2, 3, 4, 7):\n    test_chain_is_right_and_sends_one_message_at_a_time(size)\n"
    draws = "from farandole.cli import main\nmain(['draw', 'chain', '-n', '4'])\n"
    done = python("-c", "\n".join([checks, block("schedule_picture.draw"), "import pytest", test, calls, draws]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == re.findall(r"^print\(.*\)  # ([^:\n]+)", checks, re.M)
    assert (copy / "chain.png").exists()
    assert "6 rounds; seconds for a vector of n bytes: 6 α + 6 nβ + 3 nγ" in done.stdout


def test_a_chain_that_swaps_its_blocks_as_the_page_proposes_is_found_wrong(copy: Path, python: Python) -> None:
    chain = block("CHAIN = Schedule(")
    first, second = re.search(r"(    if rank > 0:\n.*?\n)(    if rank < size - 1:\n.*?\n)    if", chain, re.S).groups()  # type: ignore[union-attr]
    (copy / "swapped.py").write_text(chain.replace(first + second, second + first))
    check = block("check_all_reduce(CHAIN, 4)").replace("farandole.collectives.chain", "swapped")
    assert "chain on 3 ranks: chunk 0 on rank 2 lacks the contributions of ranks [0]" in python("-c", check).stderr


def test_the_policy_applies_in_turn_and_has_the_properties_of_all_policies(python: Python) -> None:
    tries = first("from farandole.parameter_server.core.policies.policy import Push")
    properties = ["test_a_run_ends_and_every_gradient_counts_once", "test_one_worker_alone_never_waits"]
    code = [
        tries,
        "from tests.unit.test_policies import *",
        f"POLICIES.update({{{block('st.just(RoundRobin)')}}})",
        *(f"{name}(name='round-robin')" for name in properties),
        block("def test_round_robin"),
        "test_round_robin_keeps_the_order_and_no_gradient_is_staler_than_a_round()",
    ]
    done = python("-c", "\n".join(code))
    assert done.returncode == 0, done.stderr
    (said,) = re.findall(r"^    print\(.*\)  # (.+)", tries, re.M)
    assert done.stdout.splitlines() == said.split(", then ")


def test_the_policy_is_offered_and_simulated(python: Python) -> None:
    refused = python("-m", "farandole", "run", "parameter_server", "--sync", "robin")
    assert refused.returncode == 2
    assert "round-robin" in refused.stderr
    slow = ["--workers", "4", "--steps", "30", "--straggler", "slow:worker=3,factor=5"]
    done = python("-m", "farandole", "simulate", "async", "round-robin", *slow, "--json")
    asynchronous, in_turn = re.findall(r'"staleness_max": (\d+)', done.stdout)
    assert int(asynchronous) > 3 >= int(in_turn), done.stderr


def test_the_compressor_keeps_its_contract(python: Python) -> None:
    tries = first("import numpy as np\n\nfrom farandole.compression.natural")
    code = [
        tries,
        "from tests.unit.test_compressors import *",
        f"MAKERS.update({{{block('lambda: Natural(generator())')}}})",
        f"BYTES.update({{{block('1000 + 125')}}})",
        "for length in (0, 1, 7, 63, 64, 65, 1000): test_the_bytes_are_known_beforehand('natural', length)",
        "test_zeros_stay_zeros('natural')",
        "for bad in BAD: test_what_is_not_finite_is_never_hidden('natural', bad)",
        "for bad in BAD: test_no_memory_keeps_what_is_not_finite('natural', bad)",
        "test_unbiased('natural')",
        "test_with_feedback_what_is_sent_and_what_is_kept_is_all('natural')",
        block("def test_natural_compression"),
        "test_natural_compression_gives_powers_of_two_and_keeps_its_bound()",
    ]
    done = python("-c", "\n".join(code))
    assert done.returncode == 0, done.stderr
    nbytes, decoded = re.findall(r"^print\(.*\)  # (.+)", tries, re.M)
    printed = done.stdout.splitlines()
    assert printed[0] == nbytes.partition(":")[0]
    assert sorted(printed[1]) == sorted(decoded), "a set, in any order"


TRAININGS = {
    "natural": "compressed_sgd --compressor natural --steps 3",
    "clipped": "clipped_sgd --steps 2 --max-norm 1e9",
    "plain": "sync_sgd --steps 2 --collective chain",
}


@pytest.fixture(scope="module")
def printed(python: Python) -> dict[str, str]:
    """Return the output of the trainings: on one rank, which needs no launch."""
    found = {}
    for name, words in TRAININGS.items():
        scenario, *options = words.split()
        done = python("-m", f"farandole.scenarios.{scenario}", *options, "--json", "--out", name)
        assert done.returncode == 0, done.stderr
        found[name] = done.stdout
    return found


def test_a_training_uses_the_compressor(python: Python, printed: dict[str, str]) -> None:
    assert '"compression": {' in printed["natural"]
    for scenario in ("choco_sgd", "parameter_server"):
        assert "natural" in python("-m", "farandole", "run", scenario, "--compressor", "nature").stderr


def test_the_new_scenario_is_listed_and_refuses_what_cannot_be(python: Python) -> None:
    assert "clipped_sgd" in python("-m", "farandole", "list").stdout
    refused = python("-m", "farandole", "run", "clipped_sgd", "--warm-up", "2", "--max-norm", "0")
    assert refused.returncode == 2
    assert "--max-norm" in refused.stderr


def test_the_row_of_the_new_scenario_and_the_star_are_read(copy: Path, python: Python) -> None:
    refused = python("-m", "farandole", "simulate", "clipped_sgd")
    assert "clipped_sgd is no method of the simulator: its network is that of ring" in refused.stderr
    code = "from farandole import methods; print([stop.name for _, stop in methods.stops()])"
    assert "clipped" in python("-c", code).stdout
    drawn = python("-m", "farandole", "draw", "mixing", "--topology", "star", "-n", "4", "--out", "star.png")
    assert drawn.returncode == 0, drawn.stderr
    assert (copy / "star.png").exists()


def test_a_bound_that_is_never_reached_changes_nothing(printed: dict[str, str]) -> None:
    """The page's limit case, by the new collective."""
    clipped, plain = (re.findall(r"[0-9a-f]{64}", printed[name]) for name in ("clipped", "plain"))
    assert len(clipped) == 1
    assert clipped == plain


def test_whatever_the_page_names_is_there() -> None:
    new = {file for files, _ in EXAMPLES.values() for file in files}
    for path in set(re.findall(r"`(?:reference/farandole/)?([\w/]+/[\w/]*\.py)`", PAGE)) - new:
        assert (ROOT / path).exists() or (PACKAGE / path).exists(), path
    tables = re.findall(r"`([A-Z]+)` (?:in|of) `([\w/]+\.py)`", PAGE)
    assert len({name for name, _ in tables}) == 5
    for name, file in tables:
        assert re.search(rf"^{name}\b.* = ", (PACKAGE / file).read_text(), re.M), name
    assert re.search(r"^SCHEDULES\b.* = ", (PACKAGE / "model_parallel/schedules/__init__.py").read_text(), re.M)
    program = (ROOT / "tests/parallel/programs/collectives.py").read_text()
    assert "for name in ALL_REDUCES" in program
    assert "\nmessages = {\n" in program
