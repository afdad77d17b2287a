"""Every question in a notebook is compared later, is committed without an answer, and can be answered."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.nbval_runs import NOTEBOOKS, ROOT

each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
ANSWERED = ROOT / "notebooks" / "01_sharded_data.ipynb"  # its first two cells import and load the data
KEPT = {"sent": [284_328, 0, 0, 0], "refused": [False, False, True, False]}  # what its %%mpi cells leave
OPEN = "no prediction was entered."


@cache
def cells_of(notebook: Path) -> list[nbformat.NotebookNode]:
    return list(nbformat.read(notebook, as_version=4).cells)


def python_cells(notebook: Path) -> Iterator[tuple[int, ast.Module, str]]:
    """Yield number, syntax tree and outputs of the cells that run in the notebook's own process."""
    for number, cell in enumerate(cells_of(notebook)):
        if cell.cell_type == "code" and not cell.source.startswith("%%"):
            source = re.sub(r"(?m)^%.*$", "", cell.source)
            yield number, ast.parse(source), "".join(output.get("text", "") for output in cell.outputs)


def asked(tree: ast.Module) -> dict[str, ast.Call]:
    """Return a mapping from variables to calls of `predict`."""
    return {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if isinstance(node.value, ast.Call) and getattr(node.value.func, "id", None) == "predict"
    }


def compared(tree: ast.Module) -> list[str]:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call.value.id
        for call in calls
        if isinstance(call, ast.Attribute) and call.attr == "compare" and isinstance(call.value, ast.Name)
    ]


@each_notebook
def test_each_prediction_is_asked_without_an_answer_and_compared_once_later(notebook: Path) -> None:
    pending: list[str] = []
    questions = 0
    for _, tree, output in python_cells(notebook):
        for name in compared(tree):
            assert name in pending, f"{name} is compared, but was not asked before, or is compared twice"
            pending.remove(name)
        for name, call in asked(tree).items():
            assert name.startswith("my_")
            assert isinstance(call.args[0], ast.Constant)
            assert ast.literal_eval(call.args[1]) is ..., f"{name} has an answer"
            assert name not in pending, f"{name} is asked twice before it is compared"
            pending.append(name)
            questions += 1
        assert output.count(OPEN) == len(compared(tree)), "a comparison is missing in the output, or has an answer"
        assert len(re.findall(r"\bpredict\(", ast.unparse(tree))) == len(asked(tree)), "a call without a my_ variable"
    assert not pending, f"never compared: {pending}"
    assert questions


@each_notebook
def test_each_prediction_stands_right_below_a_question(notebook: Path) -> None:
    cells = cells_of(notebook)
    for number, tree, _ in python_cells(notebook):
        if asked(tree):
            assert "**Predict" in cells[number - 1].source


RIGHT = {
    "my_shares": "[3, 3, 2, 2]",
    "my_images": "[360, 359, 359, 359]",
    "my_scatter": "284_328",
    "my_broadcast": "1_138_104",
    "my_refusing": "[2]",
    "my_steps": "3",
    "my_sizes": "[2, 1, 1]",
    "my_equal_ms": "359",
    "my_fair_ms": "144",
}
WRONG = {
    "my_shares": ("[2, 2, 3, 3]", "you predicted [2, 2, 3, 3], it is [3, 3, 2, 2]: 0 of 4 entries are right."),
    "my_scatter": ("568_656", "you predicted 568,656, it is 284,328: too high by a factor of 2."),
    "my_steps": ("'three'", "'three' is neither a number nor a list of numbers."),
    "my_equal_ms": ("360", "you predicted 360, it is 359: close."),
}


def answered(answers: dict[str, str], capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Run the cells that ask and compare, with these answers; return what each variable's comparison prints."""
    scope: dict[str, object] = {**KEPT}
    lines: dict[str, str] = {}
    for place, (_, tree, _) in enumerate(python_cells(ANSWERED)):
        for name, call in asked(tree).items():
            call.args[1] = ast.parse(answers.get(name, "..."), mode="eval").body
        names = compared(tree)
        if place < 2 or asked(tree) or names:
            exec(compile(tree, str(ANSWERED), "exec"), scope)
            printed = capsys.readouterr().out.splitlines()
            if names:
                ends = [line.split(": ", 1)[1] for line in printed[-len(names) :]]
                lines |= dict(zip(names, ends, strict=True))
    return lines


def test_a_learner_who_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    lines = answered(RIGHT, capsys)
    assert lines.keys() == RIGHT.keys()
    for name, line in lines.items():
        assert re.fullmatch(r"you predicted .+(, and so it is|: close)\.", line), f"{name}: {line}"


def test_a_learner_who_is_wrong_or_has_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    lines = answered({name: answer for name, (answer, _) in WRONG.items()}, capsys)
    assert lines == {name: WRONG[name][1] if name in WRONG else OPEN for name in RIGHT}
