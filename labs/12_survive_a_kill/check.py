"""Checks of lab 12: after a death, at any call, the remaining ranks end with the result of a run without it.

Most of them run on simulated ranks. Run as a program, this is one rank of a launch with real kills:

    check.py SUBMISSION FOLDER DROPOUT KILL [KILL …]        each KILL is rank:name of a call:calls before it
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from farandole.errors import LaunchError
from farandole.runtime import mpirun, rank
from farandole.runtime.launcher import run_ranks
from farandole_tools.lab import Check, Lab, expect, learner
from farandole_tools.lab.expectations import counted
from farandole_tools.lab.rank_status import named
from farandole_tools.lab.simulated_ranks import WHOLE, Call, Death, SimulatedRanks, Stuck
from farandole_tools.lab.small_training import Worker
from farandole_tools.lab.ulfm_communicator import OverMpi, PeerLost, UlfmCommunicator

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

Kill = tuple[int, str, int]  # rank, name of a call, how many of that name it makes before
Case = tuple[str, int, tuple[Death, ...], bool]  # in words, how many workers, which die, whether all notice it

STEPS = 4
LAST = STEPS - 1
LATER = 12  # how many calls after a death another may die
REAL_S = 60.0
DEATHS = ("recover", "no death", "a death", "half a step", "last step")  # checks of what the later ones use


def right_states() -> list[np.ndarray]:
    """Parameters and momentum before each step and after the last, as one worker alone gets them."""
    worker, states = Worker(0), []
    for _ in range(STEPS):
        states.append(state_of(worker))
        worker.compute(worker.batch())
        worker.update()
    return [*states, state_of(worker)]


def right_random(number: int) -> list[Any]:
    """The state of a worker's random numbers before each step and after the last."""
    worker, states = Worker(number, dropout=True), []
    for _ in range(STEPS):
        states.append(worker.random.getstate())
        worker.compute([])
    return [*states, worker.random.getstate()]


def state_of(worker: Worker) -> np.ndarray:
    return np.concatenate([worker.parameters, worker.momentum])


STATES = right_states()
RANDOM = [right_random(number) for number in range(5)]


class Watched(Worker):
    """A worker that is checked at every computation and every update."""

    def __init__(self, number: int, dropout: bool) -> None:
        super().__init__(number, dropout)
        self.part: tuple[int, list[int]] = -1, []  # the step, and what it has worked on
        self.stale = False
        self.updates: list[int] = []

    def compute(self, samples: Sequence[int]) -> None:
        samples, who = list(samples), f"rank {self.number}"
        expect(self.step < STEPS, f"{who} takes step {self.step}: there are only steps 0 to {LAST}")
        if not self.dropout:
            expect_state(self, self.step, f"{who} takes step {self.step}")
        elif self.random.getstate() != RANDOM[self.number][self.step]:
            states = RANDOM[self.number]
            found = [step for step, state in enumerate(states) if state == self.random.getstate()]
            which = f"those of step {found[0]}" if found else "none of any step"
            expect(False, f"{who} takes step {self.step} with other random numbers than before: {which}")
        self.stale = bool(self.gradient.any())
        self.part = self.step, samples
        super().compute(samples)

    def update(self) -> None:
        who = f"rank {self.number}"
        again = "the rank with the most steps decides, and no step is done twice"
        expect(self.step not in self.updates, f"{who} has done step {self.step} and does it again: {again}")
        self.updates.append(self.step)
        step = self.step
        super().update()
        if not self.dropout:
            expect_state(self, step + 1, f"after the update of step {step} {who} is")

    def samples_of(self, step: int) -> list[int]:
        """Return the samples that it has processed, if they were for this step."""
        return self.part[1] if self.part[0] == step else []


def expect_state(worker: Worker, step: int, who: str) -> None:
    """Check that the worker has the parameters and the momentum with which `step` begins."""
    state = state_of(worker)
    for name, part in (("parameters", slice(2)), ("momentum", slice(2, 4))):
        if not np.array_equal(state[part], STATES[step][part]):
            found = [number for number, right in enumerate(STATES) if np.array_equal(state[part], right[part])]
            which = f"the {name} of step {found[0]}" if found else f"{name} of no step, {state[part]}"
            expect(False, f"{who} with {which}, not of step {step}")


class Trial:
    """A training on simulated ranks, judged while it goes on and at its end."""

    def __init__(
        self, student: Any, comm: LabCommunicator, size: int, deaths: Iterable[Death], all_notice: bool, dropout: bool
    ) -> None:
        self.student, self.comm, self.size, self.dropout = student, comm, size, dropout
        self.workers = [Watched(number, dropout) for number in range(size)]
        self.ranks = SimulatedRanks(
            size, deaths, all_notice, lambda number: self.workers[number].step, self._met, self._stalled
        )

    def run(self) -> list[Call]:
        """Train; return the calls that were made."""
        go(self.student, self.ranks, lambda number, comm: self.student.train(comm, self.workers[number], STEPS))
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


def go(student: Any, ranks: SimulatedRanks, program: Any) -> None:
    """Run `program` on all ranks, and report in words why it ended."""
    try:
        ranks.run(lambda comm: program(comm.rank, comm))
    except Stuck as error:
        expect(False, str(error))
    except PeerLost as error:
        expect(False, f"the death is not survived: {learner.explain(error, Path(student.__file__))}")


def try_all(student: Any, comm: LabCommunicator, cases: Iterable[Case], dropout: bool = False) -> None:
    """The cases, divided among the ranks of this launch."""
    for text, size, deaths, all_notice in list(cases)[comm.rank :: comm.size]:
        with comm.case(text):
            Trial(student, comm, size, deaths, all_notice, dropout).run()


def undisturbed(student: Any, comm: LabCommunicator, size: int, dropout: bool = False) -> list[Call]:
    """The calls of a training without a death."""
    with comm.case(f"{counted(size, 'worker')}, no death"):
        return Trial(student, comm, size, (), False, dropout).run()


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
    given: dict[int, Any] = {}

    def program(number: int, comm: UlfmCommunicator) -> None:
        done = True
        try:
            for _ in range(2):
                comm.all_reduce(np.ones(1))
        except PeerLost:
            done = False
        new = student.recover(comm, done)
        right = new is None or isinstance(new, UlfmCommunicator)
        expect(right, f"recover returns {new!r:.60}, where a communicator or None is needed")
        given[number] = done, new

    go(student, ranks, program)
    ended = [number for number, (_, new) in given.items() if new is None]
    expect(len(ended) in (0, len(given)), f"recover returns None to {named(ended)}, a communicator to the others")
    not_done = [number for number, (done, _) in given.items() if not done]
    if ended:
        expect(not not_done, f"recover returns None, as if all were done, but {named(not_done)} had been interrupted")
        return ranks.calls
    expect(deaths or not given, "recover returns a communicator, though no rank has died and all are done")
    sizes = {number: new.size for number, (_, new) in given.items()}
    right = range(len(given), len(given) + len(deaths))  # a rank that dies within the shrink may be in it
    expect(len({*sizes.values()} - {*right}) == 0, f"{len(given)} live, and recover returns communicators of {sizes}")
    return ranks.calls


def check_no_death(student: Any, comm: LabCommunicator) -> None:
    for size in (1, 2, 3, 4, 5):
        calls = Counter(call.name for call in undisturbed(student, comm, size))
        with comm.case(f"{counted(size, 'worker')}, no death"):
            sent, needed = calls["all_reduce"], size * STEPS
            expect(
                sent == needed, f"{sent} all_reduce in {STEPS} steps, where one per step and rank, {needed}, will do"
            )
            expect(not calls["broadcast"], "a state is broadcast although no rank is behind")
            expect(not calls["revoke"], "a communicator is revoked although no rank has died")


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
        arguments = [student.__file__, str(Path(folder).resolve()), str(int(dropout))]
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


def real_rank(submission: str, folder: str, dropout: str, *texts: str) -> None:
    """One process of the real training."""
    from mpi4py import MPI

    kills = [(int(number), name, int(count)) for number, name, count in (text.split(":") for text in texts)]
    made: Counter[str] = Counter()
    worker = Watched(MPI.COMM_WORLD.rank, dropout == "1")

    def before(name: str) -> None:
        if (worker.number, name, made[name]) in kills:
            os.kill(os.getpid(), signal.SIGKILL)
        made[name] += 1

    learner.load(Path(submission)).train(OverMpi(MPI.Intracomm(MPI.COMM_WORLD.Dup()), before), worker, STEPS)
    rank.departed(number for number, _, _ in kills)
    report = {"step": worker.step, "state": state_of(worker).tolist(), "random": worker.random.random()}
    (Path(folder) / f"{worker.number}.json").write_text(json.dumps(report))


LAB = Lab(
    title="Survive a kill",
    file="survive_a_kill.py",
    apart=False,
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
