"""Checks of lab 8: the schedule is right, its memory is bounded, and its stages are idle as briefly as possible."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole.model_parallel.checker import UNIT, Execution, ScheduleError, execute
from farandole.model_parallel.schedules.one_f_one_b import ONE_F_ONE_B
from farandole.model_parallel.step_costs import most_held
from farandole.model_parallel.steps import (
    Backward,
    Computation,
    Forward,
    Message,
    ReceiveActivation,
    ReceiveGradient,
    SendGradient,
    Update,
    with_messages,
)
from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import expect_returned

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

Vector = NDArray[Any]

STAGES = range(1, 9)
MICRO_BATCHES = range(1, 17)
ENOUGH = 1000  # computations; no stage has more than 33
WAITS = re.compile(r"stage (\d+) in Receive(Activation|Gradient)\(micro_batch=(\d+), virtual_stage=\d+, peer=(\d+)\)")


class Plan:
    """The submission's schedule of every stage, for one number of stages and of micro-batches.

    Attributes:
        steps: each stage's computations, in order.
    """

    def __init__(self, student: Any, stages: int, micro_batches: int) -> None:
        self.stages, self.micro_batches = stages, micro_batches
        self.steps = [self._ask(student, stage) for stage in range(stages)]

    def judge_complete(self) -> None:
        for stage, steps in enumerate(self.steps):
            times = Counter(steps)
            for kind, way in ((Forward, "forward"), (Backward, "backward")):
                for micro_batch in range(self.micro_batches):
                    done = times.pop(kind(micro_batch), 0)
                    expect(done, f"stage {stage} never takes micro-batch {micro_batch} {way}")
                    expect(done == 1, f"stage {stage} takes micro-batch {micro_batch} {way} {done} times")
            unknown = [step for step in times if not isinstance(step, Update)]
            last = self.micro_batches - 1
            before = steps[: first_backward(steps)]
            hint = ": is the warm-up longer than there are micro-batches?" if set(unknown[:1]) & set(before) else ""
            expect(
                not unknown,
                f"stage {stage} yields {''.join(map(told, unknown[:1]))}, and the last micro-batch is {last}{hint}",
            )

    def judge_order(self) -> Execution:
        """Return the execution of the schedule by all stages."""
        self.judge_complete()
        for stage, steps in enumerate(self.steps):
            for micro_batch in range(self.micro_batches):
                expect(
                    steps.index(Forward(micro_batch)) < steps.index(Backward(micro_batch)),
                    f"stage {stage} takes micro-batch {micro_batch} backward before it has taken it forward",
                )
        schedule = replace(ONE_F_ONE_B, computations=lambda stage, *_: iter(self.steps[stage]))
        try:
            return execute(schedule, self.stages, self.micro_batches)
        except ScheduleError as error:
            raise_who_waits(error)
            raise

    def judge_memory(self) -> None:
        for stage, steps in enumerate(self.steps):
            for place, step in enumerate(steps):
                held = most_held(steps[: place + 1], {0: 1})
                later = [told(other) for other in steps[place:] if isinstance(other, Backward)]
                expect(
                    held <= self.stages - stage,
                    f"with {told(step)} stage {stage} holds {held} micro-batches, where stages − stage = "
                    f"{self.stages - stage} will do: should {''.join(later[:1]) or 'a backward pass'} not come first?",
                )

    def judge_bubble(self) -> None:
        execution = self.judge_order()
        right = (self.stages - 1) / (self.micro_batches + self.stages - 1)
        expect(
            np.isclose(execution.bubble_of_total, right, rtol=1e-9),
            f"the stages are idle for {execution.bubble_of_total:.1%} of the total time, and (p − 1)/(m + p − 1) "
            f"is {right:.1%}; {self._where_time_is_lost(execution)} (a forward pass takes 1, a backward pass 2)",
        )

    def judge_update(self) -> None:
        for stage, steps in enumerate(self.steps):
            updates = [place for place, step in enumerate(steps) if isinstance(step, Update)]
            expect(updates, f"stage {stage} never updates its parameters")
            late = [told(step) for step in steps[updates[0] :] if isinstance(step, Backward)]
            expect(
                not late,
                f"stage {stage} updates its parameters before {''.join(late[:1])}: the gradients of all micro-batches "
                "belong to one update",
            )
            expect(len(updates) == 1, f"stage {stage} updates its parameters {len(updates)} times: once is right")
            expect(steps[-1] == Update(), f"stage {stage} goes on with {told(steps[-1])} after the update")

    def _ask(self, student: Any, stage: int) -> list[Computation]:
        call = f"computations({stage}, {self.stages}, {self.micro_batches})"
        answer = student.computations(stage, self.stages, self.micro_batches)
        expect_returned(answer, call, by="yield")
        steps = list(islice(answer, ENOUGH))
        expect(len(steps) < ENOUGH, f"{call} does not end: more than {ENOUGH - 1} computations")
        for step in steps:
            match step:
                case Forward(chunk=0) | Backward(chunk=0) | Update(batch=0):
                    continue
            expect(False, f"{call} yields {str(step)[:60]}, where Forward(k), Backward(k) or Update() is needed")
        return steps

    def _warms_up_too_little(self, stage: int) -> bool:
        """Return whether the stage goes backward before it holds one micro-batch for itself and each stage behind."""
        return first_backward(self.steps[stage]) < min(self.stages - stage, self.micro_batches)

    def _where_time_is_lost(self, execution: Execution) -> str:
        """Name the first delay: the last stage need not wait once it has begun; earlier ones end a backward later."""
        last = self.stages - 1
        passes = [
            [own for own in execution.intervals if own.stage == stage and not isinstance(own.step, Update)]
            for stage in range(self.stages)
        ]
        for before, after in pairwise(passes[last]):
            if after.start > before.end:
                text = f"the last stage waits from {before.end:g} to {after.start:g} for {told(after.step)}"
                short = [stage for stage in range(last) if self._warms_up_too_little(stage)]
                if not short:
                    return f"{text}: is every stage's warm-up as long as it should be?"
                return f"{text}. It waits for stage {last - 1}'s outputs: does stage {short[-1]} warm up long enough?"
        for stage in reversed(range(last)):
            end, best = passes[stage][-1].end, passes[stage + 1][-1].end + UNIT.backward
            if end > best:
                return (
                    f"stage {stage} ends with {told(passes[stage][-1].step)} at {end:g}, and could at {best:g}: "
                    "do the micro-batches go backward in the order in which they went forward?"
                )
        return f"the last stage begins at {passes[last][0].start:g}, and could at {last}"


def first_backward(steps: list[Computation]) -> int:
    """Return how many computations come before the first backward pass."""
    return next((place for place, step in enumerate(steps) if isinstance(step, Backward)), len(steps))


def raise_who_waits(error: ScheduleError) -> None:
    waits = [
        f"stage {stage} waits for {'the outputs' if kind == 'Activation' else 'the gradient'} of "
        f"micro-batch {micro_batch} from stage {peer}"
        for stage, kind, micro_batch, peer in WAITS.findall(str(error))
    ]
    expect(not waits, f"deadlock: {'; '.join(waits)}")


def told(step: Computation) -> str:
    return "Update()" if isinstance(step, Update) else f"{type(step).__name__}({step.micro_batch})"


def sizes(stages: int, micro_batches: int) -> str:
    return f"{stages} stage{'s' * (stages > 1)}, {micro_batches} micro-batch{'es' * (micro_batches > 1)}"


def in_all_cases(*judges: Callable[[Plan], object], short: bool = False) -> Callable[[Any, LabCommunicator], None]:
    """The check that `judges` find nothing wrong, if `short` with fewer micro-batches than stages, else with more."""

    def check(student: Any, comm: LabCommunicator) -> None:
        for stages in STAGES:
            for micro_batches in MICRO_BATCHES:
                if (micro_batches < stages) == short:
                    with comm.case(sizes(stages, micro_batches)):
                        plan = Plan(student, stages, micro_batches)
                        for judge in judges:
                            judge(plan)

    return check


# On real ranks a stage is a matrix, inputs → tanh(inputs · weights); the loss is half the last outputs' mean square.
SAMPLES, WIDTH = 48, 3
RATE = 0.5


def check_real_ranks(student: Any, comm: LabCommunicator) -> None:
    for micro_batches in (comm.size, 2 * comm.size + 1):
        with comm.case(sizes(comm.size, micro_batches)):
            plan = Plan(student, comm.size, micro_batches)
            plan.judge_order()  # else the ranks would wait for each other
            before, right = weights(comm.size)[comm.rank], trained_alone(comm.size)[comm.rank]
            after = train(plan, comm)
            expect(
                not np.array_equal(before, after),
                f"stage {comm.rank} has the weights that it began with: see the check one update",
            )
            expect(
                np.allclose(after, right, rtol=1e-12, atol=1e-12),
                f"stage {comm.rank} has other weights after the update than one process that learns from the whole "
                "batch: is every gradient there when it updates, and does it update once?",
            )


def weights(stages: int) -> list[Vector]:
    return [np.random.default_rng(stage).normal(size=(WIDTH, WIDTH)) for stage in range(stages)]


def samples() -> Vector:
    return np.random.default_rng(8).normal(size=(SAMPLES, WIDTH))


def trained_alone(stages: int) -> list[Vector]:
    """All weights after one step with the uncut batch in one process."""
    layers = weights(stages)
    kept = [samples()]
    for layer in layers:
        kept.append(np.tanh(kept[-1] @ layer))
    gradient = kept[-1] / SAMPLES
    for stage in reversed(range(stages)):
        inner = gradient * (1 - kept[stage + 1] ** 2)
        gradient = inner @ layers[stage].T
        layers[stage] = layers[stage] - RATE * kept[stage].T @ inner
    return layers


def train(plan: Plan, comm: LabCommunicator) -> Vector:
    """Carry out this rank's part of the schedule; its weights afterwards."""
    parts = np.array_split(samples(), plan.micro_batches)
    layer = weights(comm.size)[comm.rank]
    slope = np.zeros_like(layer)
    kept: dict[int, tuple[Vector, Vector]] = {}
    posted = []
    arrived = made = np.empty(0)
    for step in with_messages(plan.steps[comm.rank], comm.rank, comm.size):
        match step:
            case ReceiveActivation() | ReceiveGradient():
                arrived = np.empty_like(parts[step.micro_batch])
                comm.take(arrived, step.peer, tag(step))
            case Forward(micro_batch):
                inputs = arrived if comm.rank else parts[micro_batch]
                made = np.tanh(inputs @ layer)
                kept[micro_batch] = inputs, made
            case Backward(micro_batch):
                inputs, outputs = kept.pop(micro_batch)
                gradient = arrived if comm.rank < comm.size - 1 else outputs / SAMPLES
                inner = gradient * (1 - outputs**2)
                slope += inputs.T @ inner
                made = inner @ layer.T
            case Message():
                posted.append((comm.post(made, step.peer, tag(step)), made))
            case Update():
                layer = layer - RATE * slope
    for request, _ in posted:
        request.Wait()
    return layer


def tag(step: Message) -> int:
    return 2 * step.micro_batch + isinstance(step, SendGradient | ReceiveGradient)


LAB = Lab(
    title="1F1B",
    file="one_f_one_b.py",
    checks=(
        Check("complete", 2, (1,), in_all_cases(Plan.judge_complete)),
        Check("order", 2, (1,), in_all_cases(Plan.judge_order), builds_on=("complete",)),
        Check("memory", 2, (1,), in_all_cases(Plan.judge_memory), needs=("complete",)),
        Check(
            "bubble",
            1,
            (1,),
            in_all_cases(Plan.judge_bubble),
            needs=("complete",),
            builds_on=("complete", "order"),
        ),
        Check("one update", 1, (1,), in_all_cases(Plan.judge_update), needs=("complete",)),
        Check(
            "few micro batches",
            1,
            (1,),
            in_all_cases(Plan.judge_complete, Plan.judge_memory, Plan.judge_bubble, Plan.judge_update, short=True),
            builds_on=("complete", "order", "memory", "bubble", "one update"),
        ),
        Check("real ranks", 1, (2, 4), check_real_ranks, builds_on=("complete", "order", "one update")),
    ),
)
