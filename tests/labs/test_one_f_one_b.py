"""Lab 8: a correct answer may be written differently, and an invalid schedule gets a plain message."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole_tools.lab import labs
from farandole_tools.lab.grading import grade
from tests.labs.labs_for_tests import LIMIT_S, on

LAB = labs.find("8")
HEAD = "from farandole.model_parallel.steps import *\n\ndef computations(stage, stages, micro_batches):\n"

# Without three phases: forward as long as there is room, otherwise backward. And a list, no generator.
BY_ROOM = """
    plan, forward, backward = [], 0, 0
    while backward < micro_batches:
        if forward < micro_batches and forward - backward < stages - stage:
            plan.append(Forward(forward))
            forward += 1
        else:
            plan.append(Backward(backward))
            backward += 1
    return [*plan, Update()]
"""


def test_a_right_answer_need_not_look_like_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HEAD + BY_ROOM)
    result = grade(on(LAB, 3), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert [check.message for check in result.results if not check.passed] == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    pass", "1 stage, 1 micro-batch: computations(0, 1, 1) returns None: is there a yield?"),
        ("    yield 'F0'", "computations(0, 1, 1) yields F0, where Forward(k), Backward(k) or Update() is needed"),
        ("    yield BackwardInput(0)", "yields BackwardInput(micro_batch=0, chunk=0), where Forward(k)"),
        ("    yield Forward(0, chunk=1)", "yields Forward(micro_batch=0, chunk=1), where Forward(k)"),
        ("    yield Forward", "where Forward(k), Backward(k) or Update() is needed"),
        ("    while True:\n        yield Forward(0)", "computations(0, 1, 1) does not end"),
        ("    while stage >= 0:\n        pass\n    yield", "still running after 2 s, at line 4: `while stage >= 0:`"),
        ("    yield Forward(0)\n    yield Forward(0)", "stage 0 takes micro-batch 0 forward 2 times"),
        (
            "    yield Forward(0)\n    yield Backward(0)\n    yield Forward(-1)",
            "stage 0 yields Forward(-1), and the last",
        ),
    ],
)
def test_what_is_no_schedule(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(f"{HEAD}{body}\n")
    limit_s = 2 if "still running" in message else LIMIT_S
    result = grade(on(LAB, 1, checks=("complete",)), tmp_path / "mine.py", limit_s=limit_s, ours=True)
    assert message in result.results[0].message


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("Update(), Update()", "stage 0 updates its parameters 2 times: once is right"),
        ("Update(), Forward(0)", "stage 0 goes on with Forward(0) after the update"),
    ],
)
def test_the_update_is_the_end_and_there_is_one(tmp_path: Path, end: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(HEAD + BY_ROOM.replace("Update()", end))
    result = grade(on(LAB, 1, checks=("one update",)), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True).results[0]
    assert message in result.message
