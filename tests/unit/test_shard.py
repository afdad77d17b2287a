"""One server's part, without messages: answers are collected in a list."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from farandole.parameter_server.core.corrections import Correction, DelayCompensated, StalenessAware
from farandole.parameter_server.core.policies import BSP, SSP, Action, Asynchronous, History, Partial, Policy
from farandole.parameter_server.core.torch_rule import TorchRule
from farandole.parameter_server.core.update_rules import SGD, Adagrad, Adam, Blend, Momentum, Twice, UpdateRule
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.shard import Gradient, Shard

RANGES = [KeyRange(4, 6), KeyRange(10, 13)]  # of a table with other keys elsewhere


class Harness:
    """A shard of five parameters, and everything it has answered."""

    def __init__(
        self, policy: Policy, limit: int | None = None, correction: Correction | None = None, width: int = 0
    ) -> None:
        self.answers: list[Header] = []
        self.read: dict[int, list[float]] = {}  # worker → its last answer
        self.values = np.zeros((5, width) if width else 5)
        self.shard = Shard(self.values, RANGES, policy, SGD(1.0), correction, limit, self.reply)
        self.now = 0.0

    def reply(self, answer: Header) -> None:
        self.answers.append(answer)
        if answer.kind == Kind.GRANT:
            self.read[answer.worker] = self.values.tolist()

    def pull(self, worker: int) -> Kind | None:
        """Return the answer, if it comes at once."""
        before = len(self.answers)
        self.shard.pull(Header(Kind.PULL, worker=worker, request_id=100 + worker), self.now)
        own = [answer for answer in self.answers[before:] if answer.request_id == 100 + worker]
        return Kind(own[0].kind) if own else None

    def push(self, worker: int, clock: int, gradient: float, share: float = 0.5, number: int = 1) -> list[Kind]:
        before = len(self.answers)
        pieces = [np.full(len(part), gradient) for part in RANGES]
        header = Header(Kind.PUSH, worker=worker, clock=clock, share=share, request_id=number)
        self.shard.push(header, Gradient(pieces), self.now)
        return [Kind(answer.kind) for answer in self.answers[before:] if answer.kind in (Kind.APPLIED, Kind.DROPPED)]


def test_minibatch_waits_for_everybody_and_answers_all() -> None:
    shard = Harness(BSP([1, 2]))
    assert shard.pull(1) == shard.pull(2) == Kind.GRANT
    assert shard.push(1, 0, 2.0) == []
    assert shard.pull(1) is None, "the other gradient is missing"
    shard.now = 3.0
    assert shard.push(2, 0, 4.0) == [Kind.APPLIED, Kind.APPLIED]
    assert shard.values.tolist() == [-3.0] * 5
    assert shard.read[1] == [-3.0] * 5, "the waiting pull was answered with the new parameters"
    granted = [answer for answer in shard.answers if answer.kind == Kind.GRANT][-1]
    assert (granted.clock, granted.seconds) == (1, 3.0)


def test_a_policy_is_told_when_a_worker_that_waited_was_granted_its_start() -> None:
    """Both servers of a chain execute the same requests with the same timestamps, so their policies agree."""

    class Recording(BSP):
        def started(self, worker: int, now: float) -> list[Action]:
            starts.append((worker, now))
            return super().started(worker, now)

    starts: list[tuple[int, float]] = []
    shard = Harness(Recording([1, 2]))
    shard.pull(1)
    shard.push(1, 0, 1.0)
    shard.now = 2.0
    shard.pull(2)
    shard.pull(1)
    shard.now = 5.0
    shard.push(2, 0, 1.0)
    shard.now = 6.0
    shard.pull(2)
    assert starts == [(1, 0.0), (2, 2.0), (1, 5.0), (2, 6.0)]


def test_a_duplicate_is_applied_once() -> None:
    shard = Harness(Asynchronous([1, 2]))
    shard.pull(1)
    assert shard.push(1, 0, 1.0) == [Kind.APPLIED]
    assert shard.push(1, 0, 1.0) == [Kind.DROPPED]
    assert shard.values.tolist() == [-0.5] * 5


def test_ranges_of_one_gradient_count_together() -> None:
    shard = Harness(Asynchronous([1]))
    shard.pull(1)

    def push(part: int, value: float) -> None:
        header = Header(Kind.PUSH, worker=1, clock=0, part=part, share=1.0, request_id=part)
        shard.shard.push(header, Gradient([np.full(len(RANGES[part]), value)]), 0.0)

    push(1, 2.0)
    push(1, 5.0)
    assert [answer.kind for answer in shard.answers[1:]] == [Kind.DROPPED], "that range was there already"
    assert not shard.values.any(), "half a gradient moves nothing"
    push(0, 1.0)
    assert shard.values.tolist() == [-1.0, -1.0, -2.0, -2.0, -2.0]
    assert {answer.request_id for answer in shard.answers if answer.kind == Kind.APPLIED} == {0, 1}


def test_stale_does_not_show_a_slow_reader_what_is_too_new() -> None:
    shard = Harness(SSP([1, 2], staleness=1))
    shard.pull(1)
    assert shard.push(1, 0, 1.0) == [Kind.APPLIED], "of the first s iterations"
    shard.pull(1)
    assert shard.push(1, 1, 1.0) == [], "worker 2 has not begun iteration 0"
    assert shard.pull(2) == Kind.GRANT
    assert shard.read[2] == [-0.5] * 5
    assert shard.values.tolist() == [-1.0] * 5, "now it has"


def test_stale_without_slack_moves_once_an_iteration() -> None:
    """So momentum's velocity decays once a step, as in mini-batch training."""
    shard = Harness(SSP([1, 2], staleness=0))
    shard.pull(1)
    shard.pull(2)
    assert shard.push(1, 0, 2.0) == []
    assert shard.push(2, 0, 4.0) == [Kind.APPLIED, Kind.APPLIED]
    assert shard.values.tolist() == [-3.0] * 5
    assert shard.shard.updates == 1
    assert [answer.staleness for answer in shard.answers if answer.kind == Kind.APPLIED] == [0, 0]


def test_staleness_counts_the_others_updates() -> None:
    shard = Harness(Asynchronous([1, 2]))
    shard.pull(1)
    shard.pull(2)
    for clock in range(3):
        shard.push(2, clock, 1.0)
        shard.pull(2)
    shard.push(1, 0, 1.0)
    applied = [(answer.worker, answer.staleness) for answer in shard.answers if answer.kind == Kind.APPLIED]
    assert applied == [(2, 0), (2, 0), (2, 0), (1, 3)]


def test_updates_by_a_gradient_that_is_used_again_are_the_others() -> None:
    shard = Harness(History([1, 2], enough=1, patience=0.0))
    for clock in range(4):
        for worker in (1, 2) if clock < 2 else (1,):
            shard.pull(worker)
        for worker in (1, 2) if clock < 1 else (1,):
            shard.push(worker, clock, 1.0)
        shard.shard.tick(shard.now)
    assert shard.shard.updates == 4, "worker 2's first gradient has stood in three times"
    shard.push(2, 1, 1.0)
    shard.pull(1)
    shard.push(1, 4, 1.0)
    applied = [(answer.worker, answer.staleness) for answer in shard.answers if answer.kind == Kind.APPLIED]
    assert applied[:2] == [(1, 0), (2, 0)]
    assert {staleness for worker, staleness in applied if worker == 1} == {0}
    assert [staleness for worker, staleness in applied if worker == 2] == [0, 3], "computed at what step 1 began with"


def test_a_correction_sees_the_staleness() -> None:
    shard = Harness(Asynchronous([1, 2]), correction=StalenessAware())
    shard.pull(1)
    shard.pull(2)
    for clock in range(4):
        shard.push(2, clock, 0.0)
    shard.push(1, 0, 8.0, share=1.0)
    assert shard.values.tolist() == [-2.0] * 5, "8 by staleness 4"


def test_partial_drops_what_comes_late_and_history_keeps_it() -> None:
    partial = Harness(Partial([1, 2, 3], enough=2))
    for worker in (1, 2, 3):
        partial.pull(worker)
    partial.push(1, 0, 3.0, share=1 / 3)
    assert partial.push(2, 0, 3.0, share=1 / 3) == [Kind.APPLIED, Kind.APPLIED]
    assert partial.push(3, 0, 99.0, share=1 / 3) == [Kind.DROPPED]
    assert partial.values.tolist() == [-3.0] * 5, "the mean of the first two"
    assert partial.shard.late_pushes == 1

    history = Harness(History([1, 2, 3], enough=2, patience=1.0))
    for worker in (1, 2, 3):
        history.pull(worker)
    for worker in (1, 2, 3):
        history.push(worker, 0, 3.0, share=1 / 3)
    for worker in (1, 2):
        history.pull(worker)
    history.now = 1.0
    history.push(1, 1, 6.0, share=1 / 3)
    history.push(2, 1, 6.0, share=1 / 3)
    history.shard.tick(1.9)
    assert history.values.tolist() == [-3.0] * 5, "still waiting for worker 3"
    history.shard.tick(2.1)
    assert history.values.tolist() == pytest.approx([-3.0 - 5.0] * 5), "6, 6, and worker 3's 3 once more"


def test_work_ends_at_its_limit() -> None:
    rounds = Harness(BSP([1]), limit=1)
    assert rounds.pull(1) == Kind.GRANT
    rounds.push(1, 0, 1.0)
    assert rounds.pull(1) == Kind.FINISHED
    gradients = Harness(Asynchronous([1, 2]), limit=3)
    assert [gradients.pull(worker) for worker in (1, 1, 2, 1)] == [Kind.GRANT] * 3 + [Kind.FINISHED]


def test_cleaning_removes_clock_pull_and_half_a_gradient_and_lets_the_others_go_on() -> None:
    shard = Harness(BSP([1, 2]))
    shard.pull(1)
    shard.pull(2)
    shard.push(1, 0, 4.0)
    shard.pull(1)
    half = Header(Kind.PUSH, worker=2, clock=0, part=0, share=0.5, request_id=9)
    shard.shard.push(half, Gradient([np.ones(2)]), 0.0)
    assert shard.shard.clean(2, 0.0) == (0, 1, 1)
    assert shard.values.tolist() == [-4.0] * 5, "the mean of those that are there"
    assert shard.read[1] == [-4.0] * 5, "worker 1 waits for nobody now"
    assert shard.push(2, 0, 99.0) == [Kind.DROPPED]
    assert shard.pull(2) == Kind.FINISHED
    assert shard.shard.late_pushes == 1
    assert shard.shard.clean(1, 0.0) == (0, 2, 0)


def test_sparse_gradients_move_the_union_of_their_rows_once() -> None:
    shard = Harness(BSP([1, 2]), width=2)
    shard.pull(1)
    shard.pull(2)
    for worker, rows, value in ((1, [0, 3], 2.0), (2, [3, 4], 4.0)):
        gradient = Gradient([np.full((2, 2), value)], np.array(rows))
        header = Header(Kind.PUSH, worker=worker, clock=0, share=0.5, request_id=1, count=2)
        shard.shard.push(header, gradient, 0.0)
    assert shard.values[:, 0].tolist() == [-1.0, 0.0, 0.0, -3.0, -2.0]
    assert shard.shard.updates == 1


RULES: dict[str, Callable[[np.ndarray], UpdateRule]] = {
    "sgd": lambda values: SGD(0.5),
    "momentum": lambda values: Momentum(values, 0.5),
    "adagrad": lambda values: Adagrad(values, 0.5),
    "adam": lambda values: Adam(values, 0.5),
    "blend": lambda values: Blend(0.2),
    "twice": lambda values: Twice(values, 0.5),
    "torch's": lambda values: TorchRule(lambda parameters: torch.optim.SGD(parameters, 0.5, momentum=0.9)),
}
ROWS = np.array([0, 3])  # no rule of torch's is for single rows


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize(
    ("rule", "rows"), [*((name, None) for name in RULES), *((name, ROWS) for name in RULES if name != "torch's")]
)
def test_values_in_two_arrays_are_moved_like_those_in_one(rule: str, corrected: bool, rows: np.ndarray | None) -> None:
    """Each update leaves what was read before unchanged."""

    def trained(spare: np.ndarray | None) -> list[np.ndarray]:
        values = np.linspace(-1, 1, 5)
        correction = DelayCompensated(0.3) if corrected else None
        shard = Shard(values, RANGES, BSP([1, 2]), RULES[rule](values), correction, None, lambda _: None, spare=spare)
        numbers, seen, lent = np.random.default_rng(0), [], []
        for clock in range(4):
            for worker in (1, 2):
                shard.pull(Header(Kind.PULL, worker=worker), 0.0)
            lent.append(shard.values)
            seen.append(shard.values.copy())
            for worker in (1, 2):
                own = [numbers.normal(size=2 if rows is not None else len(part)) for part in RANGES]
                header = Header(Kind.PUSH, worker=worker, clock=clock, share=0.5)
                shard.push(header, Gradient(own if rows is None else own[:1], rows), 0.0)
            if spare is not None:
                np.testing.assert_array_equal(lent[-1], seen[-1])
        return seen

    usual = trained(None)
    assert np.abs(usual[-1] - usual[0]).max() > 0.1
    np.testing.assert_array_equal(trained(np.full(5, np.nan)), usual)
