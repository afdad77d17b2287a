"""More or fewer servers from a step on: valid options, held-back requests, and the keys a server takes over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.parameter_server.core.policies import BSP, SSP, Asynchronous, Policy
from farandole.parameter_server.core.update_rules import SGD, Adam, Momentum, memory
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.resharding import catch_up
from farandole.parameter_server.server_change import ServerChange, check, most_servers
from farandole.parameter_server.shard import Gradient, Shard


@pytest.mark.parametrize(
    "text", ["", "step=20", "servers=3", "step=0,servers=3", "step=20,servers=0", "step=2.5,servers=3", "step=1,at=2"]
)
def test_an_unclear_change_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"write it as --server-change step=20,servers=3"):
        ServerChange.parse(text)


def test_a_change_is_written_as_it_is_read() -> None:
    assert ServerChange.parse(str(ServerChange(20, 3))) == ServerChange(20, 3)
    assert most_servers(2, [ServerChange(1, 4), ServerChange(2, 1)]) == 4
    assert most_servers(2, []) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"server_change": ["step=9,servers=2", "step=9,servers=1"]}, "ascending order"),
        ({"server_change": ["step=10,servers=2"]}, "the last of --steps 10 is 9"),
        ({"server_change": ["step=5,servers=1"]}, "changes nothing: there are 1"),
        ({"sync": "partial"}, "--sync partial"),
        ({"sync": "history"}, "--sync history"),
        ({"replicas": 2}, "--replicas"),
        ({"transport": "window"}, "--transport window"),
        ({"tree": 2}, "--tree"),
        ({"compressor": "sign"}, "--compressor"),
        ({"applications": 2}, "--applications"),
        ({"place": "servers=1,workers=2"}, "--place"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    changes = tuple(map(ServerChange.parse, options.pop("server_change", ["step=5,servers=2"])))
    with pytest.raises(UsageError, match=message):
        check(PolicyOptions(steps=10, server_change=changes, **options))
    check(PolicyOptions(steps=10, **options))


def shard_of(policy: Policy, answers: list[Header]) -> Shard:
    return Shard(np.zeros(4), [KeyRange(0, 4)], policy, SGD(1.0), None, None, answers.append)


def iteration(shard: Shard, worker: int, clock: int) -> None:
    shard.push(Header(Kind.PUSH, worker=worker, clock=clock, share=0.5), Gradient([np.ones(4)]), 0.0)
    shard.pull(Header(Kind.PULL, worker=worker, request_id=clock + 1), 0.0)


def test_nobody_passes_the_border_and_then_nothing_is_on_its_way() -> None:
    """Worker 1 is two iterations ahead; it waits at the change for worker 2, although no policy requires it."""
    answers: list[Header] = []
    shard = shard_of(Asynchronous([1, 2]), answers)
    shard.ledger.hold_from = 2
    for worker in (1, 2):
        shard.pull(Header(Kind.PULL, worker=worker, request_id=0), 0.0)
    iteration(shard, 1, 0)
    iteration(shard, 1, 1)
    assert not shard.ledger.all_wait
    iteration(shard, 2, 0)
    assert not shard.ledger.all_wait
    iteration(shard, 2, 1)
    assert shard.ledger.all_wait
    assert max(answer.clock for answer in answers if answer.kind == Kind.GRANT) == 1
    assert [question.request_id for question in shard.ledger.give_up_pulls()] == [2, 2]
    assert not shard.ledger.all_wait


def test_a_push_from_before_the_change_does_not_count_again() -> None:
    answers: list[Header] = []
    shard = shard_of(Asynchronous([1]), answers)
    shard.pull(Header(Kind.PULL, worker=1), 0.0)
    shard.push(Header(Kind.PUSH, worker=1, clock=0, share=1.0), Gradient([np.ones(4)]), 0.0)
    shard.replace(np.zeros(2), [KeyRange(0, 1), KeyRange(7, 8)], SGD(1.0), None, updates=1)
    shard.push(Header(Kind.PUSH, worker=1, clock=0, share=1.0), Gradient([np.ones(1)] * 2), 0.0)
    assert answers[-1].kind == Kind.DROPPED
    assert not shard.values.any()
    shard.push(Header(Kind.PUSH, worker=1, clock=1, share=1.0), Gradient([np.ones(1)] * 2), 0.0)
    assert answers[-1].kind == Kind.APPLIED
    assert shard.updates == 2


@pytest.mark.parametrize("make", [BSP, Asynchronous, lambda workers: SSP(workers, 2)])
def test_the_policy_of_a_server_that_comes_in_stands_where_the_others_do(make: Any) -> None:
    policy = make([3, 4, 5])
    policy.leave(4)
    catch_up(policy, 7)
    assert policy.clocks == {3: 7, 5: 7}
    assert all(policy.may_start(worker) for worker in (3, 5))
    assert policy.next_clock(3) == 7
    catch_up(policy, 9)
    assert policy.clocks == {3: 9, 5: 9}, "the second time only of those since the first"


def test_a_rule_says_what_it_remembers_of_each_key() -> None:
    like = np.zeros((3, 2))
    assert list(memory(SGD(0.1))) == []
    assert list(memory(Momentum(like, 0.1))) == ["velocity"]
    assert [array.shape for array in memory(Adam(like, 0.1)).values()] == [(3, 2), (3, 2)]
