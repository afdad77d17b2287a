"""The thread that decides whether training continues: by which loss, when, and the server's reaction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.parameter_server.core.policies import Asynchronous
from farandole.parameter_server.core.update_rules import SGD
from farandole.parameter_server.early_stopping import StoppingRule, Watch, check
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.server_change import ServerChange
from farandole.parameter_server.shard import Gradient, Shard


def test_it_ends_when_the_loss_is_good_enough() -> None:
    rule = StoppingRule(below=0.5, stalled=None)
    assert [rule.reason_to_end(loss) for loss in (2.0, 0.9, 0.9, 0.9, 0.5)] == [None] * 5
    assert rule.reason_to_end(0.4) == "validation loss 0.400 is below 0.5"


def test_it_ends_when_the_loss_does_not_fall_any_more() -> None:
    """A fall of less than a hundredth is no progress; progress restarts the count."""
    rule = StoppingRule(below=None, stalled=2)
    losses = (2.0, 1.99, 1.5, 1.6, 1.4, 1.4)
    assert [rule.reason_to_end(loss) for loss in losses] == [None] * 6
    assert rule.reason_to_end(1.39) == "validation loss has not fallen below 1.400 in 2 checks"


def test_a_loss_that_is_no_number_is_no_progress() -> None:
    rule = StoppingRule(below=1.0, stalled=2)
    assert rule.reason_to_end(float("nan")) is None
    assert rule.reason_to_end(float("nan")) is not None


class Client:
    """Its answers come at once; the parameters are how often they have been read."""

    def __init__(self, workers_left: list[int]) -> None:
        self.workers_left, self.reads, self.ends = workers_left, 0, 0

    def wait(self, answer: Any, call: str) -> Any:
        return answer

    def progress(self) -> Any:
        return type("Progress", (), {"workers": self.workers_left.pop(0)})

    def read(self, into: np.ndarray[Any, Any]) -> dict[int, int]:
        self.reads += 1
        into[:] = self.reads
        return {2: 10 * self.reads, 1: 11 * self.reads}

    def end_training(self) -> None:
        self.ends += 1


@pytest.mark.parametrize(("left", "checks", "ended"), [([3] * 9, 4, True), ([3, 3, 0], 2, False), ([0], 0, False)])
def test_the_thread_judges_the_latest_parameters_until_it_ends_or_all_have(
    left: list[int], checks: int, ended: bool
) -> None:
    client: Any = Client(left)
    clock = iter(range(100))
    watch = Watch(np.zeros(3), lambda table: 1 / table[0], StoppingRule(0.3, None), 1e-4, lambda: float(next(clock)))
    watch.work(client)
    assert client.reads == checks
    assert client.ends == ended
    assert bool(watch.ended) == ended
    assert [each["loss"] for each in watch.checks] == [1 / number for number in range(1, checks + 1)]
    assert [each["updates"] for each in watch.checks] == [11 * number for number in range(1, checks + 1)]


def test_a_server_that_is_told_of_the_end_completes_what_is_begun() -> None:
    answers: list[Header] = []
    shard = Shard(np.zeros(2), [KeyRange(0, 2)], Asynchronous([1, 2]), SGD(1.0), None, 100, answers.append)
    for worker in (1, 2):
        shard.pull(Header(Kind.PULL, worker=worker, request_id=1), 0.0)
    shard.end(Header(Kind.END, worker=0, request_id=7), 0.0)
    assert (answers[-1].kind, answers[-1].worker, answers[-1].request_id) == (Kind.FINISHED, 0, 7)
    shard.push(Header(Kind.PUSH, worker=1, clock=0, share=1.0, request_id=2), Gradient([np.ones(2)]), 0.0)
    assert answers[-1].kind == Kind.APPLIED
    shard.pull(Header(Kind.PULL, worker=1, request_id=3), 0.0)
    assert (answers[-1].kind, answers[-1].request_id) == (Kind.FINISHED, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sync": "bsp"}, "--sync bsp"),
        ({"sync": "partial"}, "--sync partial"),
        ({"sync": "history"}, "--sync history"),
        ({"replicas": 2}, "--replicas"),
        ({"applications": 2}, "--applications"),
        ({"server_change": (ServerChange(1, 2),)}, "--server-change"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"--stop-below does not go with {message}"):
        check(PolicyOptions(stop_below=0.5, **options))
    with pytest.raises(UsageError, match=f"--stop-stalled does not go with {message}"):
        check(PolicyOptions(stop_stalled=5, **options))
    check(PolicyOptions(**options))
