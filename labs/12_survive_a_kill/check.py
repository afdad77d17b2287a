"""Checks of lab 12: after a death, at any call, the remaining ranks end with the result of a run without it.

Most of them run on simulated ranks. Run as a program, this is one rank of a launch with real kills:

    check.py ORIGIN FOLDER DROPOUT KILL [KILL …]        each KILL is rank:name of a call:calls before it

ORIGIN is the submission, as `host.Origin` has it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from farandole.errors import LaunchError
from farandole.runtime import mpirun, rank
from farandole.runtime.launcher import run_ranks
from farandole_tools.lab import Check, Lab, expect, labs, learner
from farandole_tools.lab.contained.host import Guest, Origin, origin_of
from farandole_tools.lab.expectations import counted
from farandole_tools.lab.over_mpi import OverMpi, answered
from farandole_tools.lab.rank_status import named
from farandole_tools.lab.rank_threads import Made
from farandole_tools.lab.simulated_ranks import WHOLE, Call, Death, Programs, SimulatedRanks, Stuck
from farandole_tools.lab.ulfm_communicator import UlfmCommunicator
from farandole_tools.lab.watched_training import (
    LAST,
    RANDOM,
    STATES,
    STEPS,
    Recoveries,
    Trainings,
    Watched,
    expect_state,
    state_of,
)

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

Kill = tuple[int, str, int]  # rank, name of a call, how many of that name it makes before
Case = tuple[str, int, tuple[Death, ...], bool]  # in words, how many workers, which die, whether all notice it

LATER = 12  # how many calls after a death another may die
REAL_S = 60.0
HARNESS = "farandole_tools.lab.recorded_training"
DEATHS = ("recover", "no death", "a death", "half a step", "last step")  # checks of what the later ones use


class Trial:
    """A training on simulated ranks, judged while it goes on and at its end."""

    def __init__(
        self, student: Any, comm: LabCommunicator, size: int, deaths: Iterable[Death], all_notice: bool, dropout: bool
    ) -> None:
        self.student, self.comm, self.size, self.dropout = student, comm, size, dropout
        self.workers = [Watched(number, dropout) for number in range(size)]
        self.ranks = SimulatedRanks(size, deaths, all_notice, lambda number: self.workers[number].step, self._met)

    def run(self) -> list[Call]:
        """Train; return the calls that were made."""
        go(self.ranks, Trainings(self.student, self.size, dict(enumerate(self.workers)), self._stalled))
        living = [worker for worker in self.workers if worker.number not in self.ranks.dead]
        for worker in living:
            who = f"rank {worker.number} has returned"
            expect(worker.step == STEPS, f"{who} after {worker.step} of {STEPS} steps")
            if not self.dropout:
                expect_state(worker, STEPS, who)
            expect(np.array_equal(state_of(worker), state_of(living[0])), f"{who} with another state than the others")
        return self.ranks.calls

    def _met(self, name: str, given: dict[int, Any]) -> None:
        """Check the arguments that all these ranks gave to a call: if gradients, that they belong together."""
        workers = [self.workers[number] for number in sorted(given)]
        if name != "all_reduce" or not all(np.array_equal(given[each.number], each.gradient) for each in workers):
            return
        steps = [worker.step for worker in workers]
        who = ", ".join(f"rank {worker.number} at step {worker.step}" for worker in workers)
        expect(len(set(steps)) == 1, f"gradients of different steps are added up: {who}")
        step, batch = steps[0], workers[0].batch()
        used = Counter(sample for worker in workers for sample in worker.samples_of(step))
        missing, twice = [each for each in batch if not used[each]], [each for each in batch if used[each] > 1]
        there = f"on step {step} {named(sorted(given))} {'works' if len(given) == 1 else 'work'}, and"
        expect(not missing, f"{there} no rank on its samples {missing}")
        expect(not twice, f"{there} more than one on its samples {twice}")
        expect(set(used) <= set(batch), f"{there} on samples that are not in its batch")
        for worker in workers:
            text = f"rank {worker.number} takes step {step} again with what the first attempt has left in its gradient"
            expect(not worker.stale, text)

    def _stalled(self, where: str) -> None:
        """Set the text that the deadlock detector reports if this rank never returns."""
        self.comm.current_case = f"{self.comm.current_case.partition(' (')[0]} ({where})"


def go(ranks: SimulatedRanks, programs: Programs) -> None:
    """Run `programs` on all ranks, and report in words why they do not end."""
    try:
        ranks.drive(programs)
    except Stuck as error:
        expect(False, str(error))


def try_all(student: Any, comm: LabCommunicator, cases: Iterable[Case], dropout: bool = False) -> None:
    """The cases, divided among the ranks of this launch."""
    for text, size, deaths, all_notice in list(cases)[comm.rank :: comm.size]:
        with comm.case(text):
            Trial(student, comm, size, deaths, all_notice, dropout).run()


def undisturbed(student: Any, comm: LabCommunicator, size: int, dropout: bool = False) -> list[Call]:
    """Return the calls of a training without a death; without calls there would be none at which a rank could die."""
    with comm.case(f"{counted(size, 'worker')}, no death"):
        calls = Trial(student, comm, size, (), False, dropout).run()
        expect(sums(calls) >= size * STEPS, wrong_number_of_sums(calls, size))
        return calls


def sums(calls: Iterable[Call]) -> int:
    return sum(call.name == "all_reduce" for call in calls)


def wrong_number_of_sums(calls: Iterable[Call], size: int) -> str:
    needed = size * STEPS
    return f"{sums(calls)} all_reduce in {STEPS} steps, where one per step and rank, {needed}, will do"


def within(call: Call, living: Iterable[int]) -> Iterator[Death]:
    """The ways in which a rank may die within its call: which of the others get the result."""
    others = frozenset(living) - {call.rank}
    if call.name in WHOLE:
        yield Death(call.rank, call.number, frozenset())
    elif call.name != "revoke":
        for served in dict.fromkeys([*(frozenset({each}) for each in others), *(others - {each} for each in others)]):
            if served and served != others:
                yield Death(call.rank, call.number, served)


def told(call: Call, death: Death) -> str:
    how = "before" if death.served is None else "within"
    text = f"rank {call.rank} dies {how} its call {call.number + 1}, {call.name} at step {call.step}"
    if not death.served:
        return text
    return f"{text}, and only {named(sorted(death.served))} {'gets' if len(death.served) == 1 else 'get'} its result"


def before_calls(calls: Iterable[Call], size: int) -> Iterator[Case]:
    for call in calls:
        death = Death(call.rank, call.number)
        for all_notice in (False, True):
            yield f"{size} workers, {told(call, death)}{', and all notice' * all_notice}", size, (death,), all_notice


def within_calls(calls: Iterable[Call], size: int) -> Iterator[Case]:
    for call in calls:
        for death in within(call, range(size)):
            yield f"{size} workers, {told(call, death)}", size, (death,), False


def check_divide(student: Any, comm: LabCommunicator) -> None:
    for size in range(1, 8):
        for count in range(20):
            samples = list(range(100, 100 + count))
            parts = [list(student.divide(list(samples), rank, size)) for rank in range(size)]
            where = f"{counted(count, 'sample')}, {counted(size, 'rank')}: the parts are {parts}"
            expect(sorted(each for part in parts for each in part) == samples, f"{where}: not each sample exactly once")
            lengths = list(map(len, parts))
            expect(max(lengths) - min(lengths) <= 1, f"{where}: the lengths differ by more than one")


def check_recover(student: Any, comm: LabCommunicator) -> None:
    for size in (2, 3, 4):
        with comm.case(f"{size} ranks, no death, and all are done"):
            calls = expect_recovered(student, size, (), False)
        work = [call for call in calls if call.name == "all_reduce"]
        for case, _, (first,), all_notice in (*before_calls(calls, size), *within_calls(work, size)):
            text = case.replace(" at step 0", "").replace("workers", "ranks")
            with comm.case(text):
                then = expect_recovered(student, size, (first,), all_notice)
            others = [call for call in then if call.name in WHOLE and call.rank != first.rank]
            for call in others if size == 3 else ():
                for second in (Death(call.rank, call.number), Death(call.rank, call.number, frozenset())):
                    with comm.case(f"{text}; then {told(call, second).removesuffix(' at step 0')}"):
                        expect_recovered(student, size, (first, second), all_notice)


def expect_recovered(student: Any, size: int, deaths: Sequence[Death], all_notice: bool) -> list[Call]:
    """Two all-reduces, and then `recover`."""
    ranks = SimulatedRanks(size, deaths, all_notice)
    recoveries = Recoveries(student, size)
    go(ranks, recoveries)
    returned = ranks.returned
    sizes = {number: ranks.size_of(number, new) for number, new in returned.items() if new is not None}
    expect(None not in sizes.values(), "recover returns a communicator that there is not")
    ended = [number for number in returned if number not in sizes]
    expect(not ended or not sizes, f"recover returns None to {named(ended)}, a communicator to the others")
    not_done = [number for number in returned if not recoveries.done[number]]
    if ended:
        expect(not not_done, f"recover returns None, as if all were done, but {named(not_done)} had been interrupted")
        return ranks.calls
    expect(deaths or not returned, "recover returns a communicator, though no rank has died and all are done")
    right = range(len(returned), len(returned) + len(deaths))  # a rank that dies within the shrink may be in it
    expect({*sizes.values()} <= {*right}, f"{len(returned)} live, and recover returns communicators of {sizes}")
    return ranks.calls


def check_no_death(student: Any, comm: LabCommunicator) -> None:
    for size in (1, 2, 3, 4, 5):
        calls = undisturbed(student, comm, size)
        names = {call.name for call in calls}
        with comm.case(f"{counted(size, 'worker')}, no death"):
            expect(sums(calls) == size * STEPS, wrong_number_of_sums(calls, size))
            expect("broadcast" not in names, "a state is broadcast although no rank is behind")
            expect("revoke" not in names, "a communicator is revoked although no rank has died")


def check_a_death(student: Any, comm: LabCommunicator) -> None:
    for size in (2, 3, 4):
        calls = undisturbed(student, comm, size)
        try_all(student, comm, before_calls((call for call in calls if call.step < LAST), size))


def check_half_a_step(student: Any, comm: LabCommunicator) -> None:
    for size in (3, 4):
        calls = undisturbed(student, comm, size)
        try_all(student, comm, within_calls((call for call in calls if call.step < LAST), size))


def check_last_step(student: Any, comm: LabCommunicator) -> None:
    for size in (2, 3, 4):
        calls = [call for call in undisturbed(student, comm, size) if call.step >= LAST]
        try_all(student, comm, [*before_calls(calls, size), *within_calls(calls, size)])


def check_random_numbers(student: Any, comm: LabCommunicator) -> None:
    calls = undisturbed(student, comm, 3, dropout=True)
    try_all(student, comm, [*before_calls(calls, 3), *within_calls(calls, 3)], dropout=True)


def check_second_death(student: Any, comm: LabCommunicator) -> None:
    size = 4
    calls = undisturbed(student, comm, size)
    _, first, *_ = (call for call in calls if call.rank == 1 and call.name == "all_reduce")
    for served in (None, frozenset({2}), frozenset({0, 3})):
        death = Death(first.rank, first.number, served)
        text = f"{size} workers, {told(first, death)}"
        with comm.case(text):
            then = Trial(student, comm, size, (death,), False, False).run()
        start = max(index for index, call in enumerate(then) if call.rank == first.rank)
        cases: list[Case] = []
        for call in [call for call in then[start:] if call.rank != first.rank][: LATER * size]:
            for second in (Death(call.rank, call.number), *within(call, {*range(size)} - {first.rank})):
                cases.append((f"{text}; then {told(call, second)}", size, (death, second), False))
        try_all(student, comm, cases)


def check_kills(student: Any, comm: LabCommunicator, size: int, kills: Sequence[Kill], dropout: bool) -> None:
    """Real processes and real kills, if on paper all goes well wherever exactly these kills strike."""
    if comm.rank:
        return
    deaths: tuple[Death, ...] = ()
    for number, name, count in kills:
        for random in (dropout,) if deaths else (False, True):
            with comm.case(f"first on paper, {size} workers"):
                calls = Trial(student, comm, size, deaths, False, random).run()
            for death in on_the_way(calls, number, size, deaths):
                call = next(each for each in calls if (each.rank, each.number) == (death.rank, death.call))
                with comm.case(f"first on paper, {size} workers, {told(call, death)}"):
                    Trial(student, comm, size, (*deaths, death), False, random).run()
        named_so = [call for call in calls if (call.rank, call.name) == (number, name)]
        expect(count < len(named_so), f"rank {number} makes no {nth(count)} {name}, before which it would be killed")
        deaths = (*deaths, Death(number, named_so[count].number))
    if not mpirun.detect().fault_tolerant:
        print("this MPI ends a job when a rank is killed: only tried on paper")
        return
    who = " and ".join(f"rank {number} before its {nth(count)} {name}" for number, name, count in kills)
    with comm.case(f"{size} processes, SIGKILL to {who}"), tempfile.TemporaryDirectory(dir=".") as folder:
        arguments = [json.dumps(origin_of(student)), str(Path(folder).resolve()), str(int(dropout))]
        program = [__file__, *arguments, *(f"{number}:{name}:{count}" for number, name, count in kills)]
        try:
            run_ranks(program, size, timeout_s=REAL_S)
        except LaunchError as error:
            expect(False, error.message.strip().splitlines()[0])
        expect_alike(Path(folder), sorted(set(range(size)) - {number for number, _, _ in kills}), dropout)


def on_the_way(calls: Sequence[Call], number: int, size: int, before: Sequence[Death]) -> Iterator[Death]:
    """All ways in which that rank may die, at any of its calls since the death before."""
    gone = {death.rank for death in before}
    start = max((index for index, call in enumerate(calls) if call.rank in gone), default=0)
    for call in calls[start:]:
        if call.rank == number:
            yield from (Death(number, call.number), *within(call, {*range(size)} - gone))


def expect_alike(folder: Path, living: Sequence[int], dropout: bool) -> None:
    """Check the reports that the processes have left of their training."""
    reports = {int(path.stem): json.loads(path.read_text()) for path in folder.glob("*.json")}
    expect(sorted(reports) == living, f"{named(sorted(reports))} came to the end, where {named(living)} should")
    for number, report in reports.items():
        expect(report["step"] == STEPS, f"rank {number} has returned after {report['step']} of {STEPS} steps")
        same = report["state"] == (reports[living[0]]["state"] if dropout else STATES[STEPS].tolist())
        expect(same, f"rank {number} has other parameters in the end than it should")
        right = not dropout or report["random"] == next_random(RANDOM[number][STEPS])
        expect(right, f"rank {number} has drawn other random numbers than it would have without a death")


def next_random(state: Any) -> float:
    """The number that is drawn next."""
    random = Random()
    random.setstate(state)
    return random.random()


def nth(count: int) -> str:
    return ("first", "second", "third", "fourth")[count]


def real_rank(origin: str, folder: str, dropout: str, *texts: str) -> None:
    """One process of the real training."""
    from mpi4py import MPI

    kills = [(int(number), name, int(count)) for number, name, count in (text.split(":") for text in texts)]
    made: Counter[str] = Counter()
    worker = Watched(MPI.COMM_WORLD.rank, dropout == "1")

    def before(name: str) -> None:
        if (worker.number, name, made[name]) in kills:
            os.kill(os.getpid(), signal.SIGKILL)
        made[name] += 1

    communicators: list[UlfmCommunicator] = [OverMpi(MPI.Intracomm(MPI.COMM_WORLD.Dup()), before)]
    with loaded(Origin(*json.loads(origin)), Path(folder) / f"guest-{worker.number}") as student:
        training = Trainings(student, communicators[0].size, {worker.number: worker})
        (step,) = training.resume({worker.number: None})
        while isinstance(step, Made):
            (step,) = training.resume({worker.number: answered(step, communicators)})
    rank.departed(number for number, _, _ in kills)
    report = {"step": worker.step, "state": state_of(worker).tolist(), "random": worker.random.random()}
    (Path(folder) / f"{worker.number}.json").write_text(json.dumps(report))


@contextmanager
def loaded(origin: Origin, folder: Path) -> Iterator[Any]:
    """Import a submission; in a sandbox in `folder`, if it is kept apart."""
    path = Path(origin.submission)
    if not origin.mode:
        yield learner.load(path, HARNESS)
        return
    lab, gone = labs.load(Path(origin.lab)), "the submission has ended its process"
    guest = Guest(origin.mode, folder, lab, path, origin.helpers, lambda: sys.exit(gone))
    yield guest.load()
    guest.end()


LAB = Lab(
    title="Survive a kill",
    file="survive_a_kill.py",
    harness=HARNESS,
    patience=3.0,
    checks=(
        Check("divide", 1, (1,), check_divide),
        Check("recover", 1, (1,), check_recover),
        Check("no death", 1, (1,), check_no_death, needs=("divide",), builds_on=("divide",)),
        Check("a death", 1, (1,), check_a_death, builds_on=("divide", "recover", "no death")),
        Check("half a step", 1, (1,), check_half_a_step, builds_on=("recover", "no death", "a death")),
        Check("last step", 1, (1,), check_last_step, builds_on=("recover", "no death", "a death")),
        Check("random numbers", 1, (1,), check_random_numbers, builds_on=DEATHS),
        Check("second death", 1, (1,), check_second_death, builds_on=DEATHS),
        Check(
            "one kill",
            1,
            (1,),
            partial(check_kills, size=4, kills=((2, "all_reduce", 2),), dropout=False),
            builds_on=(*DEATHS, "random numbers"),
        ),
        Check(
            "two kills",
            1,
            (1,),
            partial(check_kills, size=5, kills=((1, "all_reduce", 1), (3, "shrink", 0)), dropout=True),
            builds_on=(*DEATHS, "random numbers", "second death", "one kill"),
        ),
    ),
)

if __name__ == "__main__":
    real_rank(*sys.argv[1:])
