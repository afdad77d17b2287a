"""A correct answer is correct in a sandbox, too: each lab as a learner would submit it, apart from the checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole_tools.lab import labs, mutants
from farandole_tools.lab.grading import Result, grade, grade_together, only_where_right
from tests.labs import self_contained
from tests.labs.labs_for_tests import FOLDERS, LIMIT_S, on
from tests.labs.test_known_answers import RANKS, judges_times

# First the labs whose objects cross the connection in the most ways: make test runs the first and every fifth.
FIRST = ("04_overlapped_data_parallel", "17_zero", "09_tensor_parallel_linear", "16_bring_your_own_loop")
OTHERS = iter(folder for folder in FOLDERS if folder.name not in FIRST)
CASES = [
    next(folder for folder in FOLDERS if folder.name == FIRST[place // 5])
    if place % 5 == 0 and place // 5 < len(FIRST)
    else next(OTHERS)
    for place in range(len(FOLDERS))
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_a_right_answer_has_full_marks_in_its_sandbox(folder: Path, tmp_path: Path) -> None:
    lab = labs.load(folder)
    names = [check.name for check in lab.checks if check.name not in judges_times(lab)]
    lab = on(lab, RANKS[lab.name], checks=names)
    result = grade(lab, self_contained.write(lab, tmp_path), helpers=True, limit_s=LIMIT_S)
    assert [(check.name, check.message) for check in result.results if not check.passed] == []


def test_a_warning_in_the_sandbox_is_noted(tmp_path: Path) -> None:
    lab = on(labs.find("18"), 1, checks=["join"])
    mutant = next(each for each in mutants.mutants(lab) if each.name == "warns_of_nothing")
    text = mutant.applied_to(mutants.original(lab))
    result = grade(lab, self_contained.write(lab, tmp_path, text), helpers=True, limit_s=LIMIT_S)
    assert mutant.fails["join"] in result.results[0].message


def test_what_a_submission_does_to_its_lists_is_seen(tmp_path: Path) -> None:
    lab = on(labs.find("6"), 1, checks=["moving"])
    for mutant in mutants.mutants(lab):
        if mutant.name in ("adds_to_the_servers", "removes_the_ranges_that_move"):
            folder = tmp_path / mutant.name
            folder.mkdir()
            path = self_contained.write(lab, folder, mutant.applied_to(mutants.original(lab)))
            result = grade(lab, path, helpers=True, limit_s=LIMIT_S)
            assert mutant.fails["moving"] in result.results[0].message


def test_a_wrong_result_has_no_marks_for_its_cost(tmp_path: Path) -> None:
    lab = on(labs.find("2"), 2)
    text = self_contained.mutants.original(lab).replace("gradient /= size", "")
    raw = grade_together([(lab, self_contained.write(lab, tmp_path, text))], limit_s=LIMIT_S)[0]
    assert {result.name for result in raw if result.passed} >= {"bytes", "messages"}
    counted = {result.name: result for result in only_where_right(lab, raw)}
    assert counted["bytes"].points == 0
    assert counted["bytes"].message == "not judged yet: first pass 'mean'"


def test_a_failure_that_may_follow_from_another_names_that_one() -> None:
    lab = labs.find("9")
    failed = {"row forward": "lacks the bias", "training": "layer 2 is wrong", "uneven sizes": "not implemented yet: f"}
    raw = [Result(each.name, each.name not in failed, 0, 1, failed.get(each.name, "")) for each in lab.checks]
    counted = {result.name: result.message for result in only_where_right(lab, raw) if not result.passed}
    assert counted["row forward"] == "lacks the bias"
    assert counted["training"] == "not judged yet: first pass 'row forward'"
    assert counted["uneven sizes"] == "not implemented yet: f"


def test_a_chain_of_failures_names_the_first() -> None:
    lab = labs.find("8")
    failed = ("complete", "order", "bubble")
    raw = [Result(each.name, each.name not in failed, 0, 1, "wrong" * (each.name in failed)) for each in lab.checks]
    messages = {result.message for result in only_where_right(lab, raw) if not result.passed}
    assert messages == {"wrong", "not judged yet: first pass 'complete'"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_check_needs_others_of_its_lab(folder: Path) -> None:
    checks = {check.name: check for check in labs.load(folder).checks}
    names = list(checks)
    for check in checks.values():
        earlier = set(names[: names.index(check.name)])
        assert {*check.needs, *check.builds_on} <= earlier, "a check needs earlier ones"
        for name in check.needs:
            assert not checks[name].needs, "what is needed is a result"
            assert set(check.ranks) & set(checks[name].ranks) or 1 in checks[name].ranks
