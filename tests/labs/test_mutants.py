"""Mutants are applied as declared or not at all, and mutants that share a launch do not affect each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from farandole_tools.lab import labs, mutants, submissions
from farandole_tools.lab.grading import grade, grade_together
from farandole_tools.lab.mutants import Mutant
from tests.labs.labs_for_tests import FOLDERS, on

TEXT = """
def f(x):
    for i in range(3):
        x += i

        x *= 2
    return x
"""


def applied(changes: dict[str, str]) -> str:
    return Mutant("m", "Says.", {"check": "?"}, changes).applied_to(TEXT)


def test_a_part_of_a_line_is_changed() -> None:
    assert applied({"range(3)": "range(4)"}) == TEXT.replace("3", "4")


def test_a_block_is_indented_as_what_it_replaces() -> None:
    old = """
      x += i

      x *= 2
    """
    new = """
    if i:
        x += i
    """
    assert applied({old: new}) == TEXT.replace(
        "        x += i\n\n        x *= 2\n", "        if i:\n            x += i\n"
    )
    assert applied({"x += i": new}) == TEXT.replace("        x += i\n", "        if i:\n            x += i\n")


def test_lines_that_are_removed_leave_no_empty_line() -> None:
    assert applied({"x += i": ""}) == TEXT.replace("        x += i\n", "")
    assert applied({"for i in range(3):\n    x += i\n\n    x *= 2": ""}) == "\ndef f(x):\n    return x\n"


def test_changes_are_made_in_order() -> None:
    assert applied({"x += i": "y += i", "y += i": "y -= i"}) == TEXT.replace("x += i", "y -= i")


@pytest.mark.parametrize(("old", "times"), [("y", 0), ("x", 4), ("x += i\nx *= 2", 0)])
def test_an_old_text_must_occur_once(old: str, times: int) -> None:
    with pytest.raises(ValueError, match=f"mutant m: the old text must occur once, and occurs {times} times: {old[0]}"):
        applied({old: ""})


def test_an_error_names_the_lab_and_the_mutant(tmp_path: Path) -> None:
    folder = tmp_path / "01_sharding"
    folder.mkdir()
    (folder / "reference.py").write_text(TEXT)
    header = "from farandole_tools.lab.mutants import Mutant\n"
    (folder / "wrong.py").write_text(header + "MUTANTS = [Mutant('m', 'Says.', {'a': 'b'}, {'y': ''})]\n")
    lab = replace(labs.find("1"), folder=folder)
    with pytest.raises(ValueError, match="lab 01_sharding: mutant m: the old text must occur once"):
        mutants.write(lab, tmp_path)
    (folder / "wrong.py").write_text(header + "MUTANTS = 2 * [Mutant('m', 'Says.', {'a': 'b'}, {'x += i': ''})]\n")
    with pytest.raises(ValueError, match="lab 01_sharding: several mutants have the name m"):
        mutants.write(lab, tmp_path)


def test_a_learner_is_given_none_of_them(tmp_path: Path) -> None:
    for folder in FOLDERS:
        lab = labs.load(folder)
        started = submissions.start(lab, tmp_path)
        assert sorted(path.name for path in started.folder.iterdir()) == sorted(["README.md", "lab.ipynb", lab.file])


RIGHT = (labs.find("2").folder / "reference.py").read_text() + "\nimport os, threading, time\n"
HEAD = "def ring_all_reduce_mean(gradient, comm):\n"
AROUND = "(comm.rank + 1) % comm.size"
SAYS_WHERE = HEAD + "    raise ValueError(f'in process {os.getpid()}')\n"
DISTURBING = {
    "ends": "    os._exit(0)\n",
    "waits for ever": f"    comm.receive(gradient, {AROUND})\n",
    "loops": "    while comm.rank == 0: time.sleep(0.01)\n",
    "error of MPI": f"    comm.exchange(gradient, {AROUND}, gradient[:0], {AROUND})\n",
    "thread": "    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n",
    "child": "    if os.fork() == 0: time.sleep(1000)\n",
}


def process_of(path: Path, message: str) -> str:
    assert "in process " in message, f"{path.name}: {message}"
    return message.partition("in process ")[2].split(",")[0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("body", DISTURBING.values(), ids=DISTURBING)
def test_after_one_that_disturbs_the_next_has_processes_of_its_own(tmp_path: Path, body: str) -> None:
    texts = {
        "first": RIGHT + SAYS_WHERE,
        "second": RIGHT + SAYS_WHERE,
        "disturbing": RIGHT + HEAD + body,
        "third": RIGHT + SAYS_WHERE,
        "right": RIGHT,
    }
    files = {name: tmp_path / f"{name}.py" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text)
    lab = on(labs.find("2"), 2, checks=("mean",))
    judged = grade_together([(lab, path) for path in files.values()], limit_s=5)
    messages = {name: results[0].message for name, results in zip(files, judged, strict=True)}
    first, second, third = (process_of(files[name], messages[name]) for name in ("first", "second", "third"))
    assert first == second != third
    assert messages["disturbing"] == grade(lab, files["disturbing"], limit_s=5, ours=True).results[0].message
    assert judged[-1][0].passed, messages["right"]
