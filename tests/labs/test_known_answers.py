"""The checks are checked: the stub fails, the reference passes, each wrong answer fails for its own reason."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest

from farandole_tools.lab import labs, mutants
from farandole_tools.lab.grading import Result, grade, grade_together
from farandole_tools.lab.labs import Lab
from farandole_tools.lab.mutants import Mutant
from tests.labs.labs_for_tests import FOLDERS, LIMIT_S, module_at, on

# Each wrong answer is judged on one number of ranks: the smallest that the lab's checks and most mistakes need,
# because the reference's full run covers the others. Some mistakes do no harm on so few ranks.
RANKS = {
    "01_sharding": 4,
    "02_ring_all_reduce": 4,
    "03_halving_doubling": 4,
    "04_overlapped_data_parallel": 2,
    "05_mixed_precision": 2,
    "06_push_pull": 3,
    "07_stale_synchronous": 3,
    "08_one_f_one_b": 2,
    "09_tensor_parallel_linear": 4,
    "10_atomic_checkpoint": 2,
    "11_election": 1,
    "12_survive_a_kill": 1,
    "13_topk_error_feedback": 2,
    "14_gossip_mixing": 4,
    "15_predict_then_measure": 4,
    "16_bring_your_own_loop": 1,
    "17_zero": 4,
    "18_ring_attention": 4,
    "19_expert_dispatch": 4,
}
HARMLESS_ON_FEW = {
    "all_at_once_without_overlap",
    "stays_away_with_an_overflow",
    "serves_in_an_order_of_its_own",
    "everybodys_in_its_own_order",
}
# Up to six seconds for a wrong answer, because it measures again. Where another check finds the mistake, only make soak
# has this one judge it, too.
REAL_STEPS = "real steps"
JUDGE_TIMES = {"15_predict_then_measure": {"measure", REAL_STEPS}}  # these checks of these labs
SEEN_ON_PAPER = {"fit", "all reduce", "slowest", "step"}
SOAK = "FARANDOLE_SOAK" in os.environ
KNOW_HASH = {"06_push_pull", "10_atomic_checkpoint"}  # whose checks compare processes
HASHES = "hash_of_this_process"  # the wrong answer that fails them needs a hash() per process
own_hash = pytest.mark.own_hash
EVERY = 4  # `make test` judges every fourth wrong answer of a lab, make soak each
TOGETHER = 12  # the number of wrong answers that share their launches

# A correct ring that looks different: to the left, and with separate sends and receives.
ANOTHER_RING = """
import numpy as np

def ring_all_reduce_mean(gradient, comm):
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    chunks = np.array_split(gradient, comm.size)[::-1]

    def shift(chunk, arriving):
        if comm.rank % 2:
            comm.receive(arriving, right)
            comm.send(chunk, left)
        else:
            comm.send(chunk, left)
            comm.receive(arriving, right)

    if comm.size == 1:
        return
    for step in range(comm.size - 1):
        mine = chunks[(comm.rank + step + 1) % comm.size]
        arriving = np.zeros(mine.shape, gradient.dtype)
        shift(chunks[(comm.rank + step) % comm.size], arriving)
        mine[:] = arriving + mine
    for step in range(comm.size - 1):
        if step == 0:
            chunks[(comm.rank - 1) % comm.size][:] *= gradient.dtype.type(1 / comm.size)
        shift(chunks[(comm.rank + step - 1) % comm.size], chunks[(comm.rank + step) % comm.size])
"""


Item = TypeVar("Item")


def batched(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def judges_times(lab: Lab) -> set[str]:
    return JUDGE_TIMES.get(lab.name, set())


def is_timed(lab: Lab, mutant: Mutant) -> bool:
    """Return whether the wrong answer must fail a check that judges times, and so has to run alone."""
    return not judges_times(lab).isdisjoint(mutant.fails) and (SOAK or SEEN_ON_PAPER.isdisjoint(mutant.fails))


def ranks_for(lab: Lab, mutant: Mutant) -> int:
    return mutant.ranks or (4 if mutant.name in HARMLESS_ON_FEW else RANKS[lab.name])


def groups() -> list[object]:
    """Return the wrong answers of each lab, in groups; those of times run alone, those of hash() in own processes."""
    found = []
    for folder in FOLDERS:
        lab = labs.load(folder)
        by_kind: dict[str, list[Mutant]] = {"": [], "times-": [], "hash-": []}
        for each in sorted(mutants.mutants(lab), key=lambda each: ranks_for(lab, each)):
            kind = "times-" if is_timed(lab, each) else "hash-" if each.name == HASHES else ""
            by_kind[kind].append(each)
        for kind, chosen in by_kind.items():
            marks = (pytest.mark.alone,) * (kind == "times-") + (own_hash,) * (kind == "hash-")
            for number, group in enumerate(batched(chosen if SOAK else chosen[::EVERY], TOGETHER)):
                found.append(pytest.param(lab, group, id=f"{lab.name}-{kind}{number}", marks=marks))
    return found


def references() -> list[object]:
    """Return the labs whose references are judged in one go."""
    found = []
    for timed in (False, True):
        for folders in batched([folder for folder in FOLDERS if (folder.name in JUDGE_TIMES) == timed], 5):
            names = [folder.name for folder in folders]
            marks = (pytest.mark.alone,) * timed + (own_hash,) * (timed or not KNOW_HASH.isdisjoint(names))
            found.append(pytest.param(folders, id=" ".join(name[:2] for name in names), marks=marks))
    return found


def checks_of(lab: Lab, mutant: Mutant) -> list[str]:
    """Return the names of the checks that are run for a wrong answer."""
    # A mistake that needs another number of ranks is run only with the lab's own checks on that number.
    names = [check.name for check in lab.checks if mutant.ranks is None or mutant.ranks in check.ranks]
    fails = set(mutant.fails)
    assert fails <= set(names), mutant.name
    if not is_timed(lab, mutant):
        names = [name for name in names if name not in judges_times(lab)]
        fails -= judges_times(lab)
    elif not SOAK and fails != {REAL_STEPS}:
        names = [name for name in names if name != REAL_STEPS]
        fails.discard(REAL_STEPS)
    if fails == set(names):  # perhaps a launch for each check: every third one is enough
        names = names[::3]
    return names


def deviations(mutant: Mutant, results: Sequence[Result]) -> list[str]:
    """Return the differences from what the wrong answer declares."""
    found = []
    for result in results:
        told = f"{mutant.name}, {result.name}: {result.message}"
        if result.name in mutant.fails:
            as_told = not result.passed and mutant.fails[result.name] in result.message and result.points == 0
        else:
            as_told = result.passed and result.points == result.max_points
        found += [] if as_told else [told]
    return found


def test_what_is_handed_out_fails_every_check_as_not_implemented() -> None:
    there = [labs.load(folder) for folder in FOLDERS]
    judged = grade_together([(on(lab, 1), lab.folder / lab.file) for lab in there], limit_s=LIMIT_S)
    for lab, results in zip(there, judged, strict=True):
        assert [result.name for result in results] == [check.name for check in lab.checks]
        for result in results:
            assert not result.passed
            assert result.points == 0
            assert result.message.startswith("not implemented yet: "), (lab.name, result)


@pytest.mark.parametrize("folders", references())
def test_the_reference_gets_full_marks_on_every_number_of_ranks(folders: Sequence[Path]) -> None:
    there = [labs.load(folder) for folder in folders]
    judged = grade_together([(lab, lab.folder / "reference.py") for lab in there], limit_s=LIMIT_S)
    for lab, results in zip(there, judged, strict=True):
        assert [(lab.name, result.name, result.message) for result in results if not result.passed] == []
        assert sum(result.points for result in results) == lab.max_points == 10


def test_what_the_wrong_answers_change_is_right(tmp_path: Path) -> None:
    """Otherwise a wrong answer could fail for a mistake that it does not name."""
    judged = []
    for lab in map(labs.load, FOLDERS):
        if mutants.original(lab) == (lab.folder / "reference.py").read_text():
            continue  # the reference is judged above
        names = [check.name for check in lab.checks if check.name not in judges_times(lab)]
        path = tmp_path / f"{lab.name}.py"
        path.write_text(mutants.original(lab))
        judged.append((on(lab, RANKS[lab.name], checks=names), path))
    failed = [
        (lab.name, each)
        for (lab, _), results in zip(judged, grade_together(judged, limit_s=LIMIT_S), strict=True)
        for each in results
    ]
    assert [(name, result.message) for name, result in failed if not result.passed] == []


def test_a_right_answer_need_not_look_like_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ANOTHER_RING)
    shown: list[int] = []

    def progress(numbers: Sequence[int]) -> Iterator[int]:
        for ranks in numbers:
            yield ranks
            shown.append(ranks)

    result = grade(on(labs.find("2"), 3, 4), tmp_path / "mine.py", limit_s=LIMIT_S, progress=progress)
    assert [check.message for check in result.results if not check.passed] == []
    assert shown == [3, 4]


@pytest.mark.parametrize("order", [1, -1], ids=["lowest first", "highest first"])
def test_which_of_two_equal_entries_top_k_sends_is_up_to_the_learner(order: int) -> None:
    lab = labs.find("13")
    right = module_at(lab.folder / "reference.py")

    def largest(vector: np.ndarray, k: int) -> np.ndarray:
        places = np.lexsort((order * np.arange(len(vector)), -np.abs(vector)))[:k]
        return np.sort(places).astype(np.int32)

    right.largest = largest
    comm: Any = SimpleNamespace(case=lambda text: nullcontext())
    for check in lab.checks:
        if check.name in ("largest", "feedback", "momentum"):
            check.run(right, comm)


@pytest.mark.parametrize(("lab", "group"), groups())
def test_each_wrong_answer_fails_for_its_own_reason_and_for_no_other(
    lab: Lab, group: Sequence[Mutant], tmp_path: Path
) -> None:
    files = mutants.write(lab, tmp_path)
    on_ranks = [on(lab, ranks_for(lab, each), checks=checks_of(lab, each)) for each in group]
    judged = grade_together(
        [(each, files[mutant.name]) for each, mutant in zip(on_ranks, group, strict=True)], limit_s=LIMIT_S
    )
    assert [text for mutant, results in zip(group, judged, strict=True) for text in deviations(mutant, results)] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_wrong_answer_says_what_is_wrong_and_what_it_fails(folder: Path, tmp_path: Path) -> None:
    lab = labs.load(folder)
    for mutant in mutants.mutants(lab):
        assert mutant.says.endswith("."), mutant.name
        assert mutant.fails, mutant.name
    right = mutants.original(lab)
    texts = [path.read_text() for path in mutants.write(lab, tmp_path).values()]
    assert len({right, *texts}) == len(texts) + 1, "each is another mistake"


def test_every_check_is_failed_by_some_wrong_answer_that_passes_others() -> None:
    """A check that no mistake fails, or only total failures fail, would be untested."""
    for folder in FOLDERS:
        lab = labs.load(folder)
        names = {check.name for check in lab.checks}
        telling = [set(mutant.fails) for mutant in mutants.mutants(lab)]
        assert names - set().union(*(failed for failed in telling if failed != names)) == set()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_readme_lists_the_checks_and_their_points(folder: Path) -> None:
    table = re.findall(r"^\| ([a-z -]+) \| (\d+) \| .+ \|$", (folder / "README.md").read_text(), re.MULTILINE)
    assert table == [(check.name, str(check.points)) for check in labs.load(folder).checks]
