"""Staleness is counted from the parameters that a gradient was computed at, whatever its worker has read since."""

from __future__ import annotations

import numpy as np

from farandole.parameter_server.core.policies import SSP, Asynchronous, Policy
from farandole.parameter_server.core.update_rules import SGD
from farandole.parameter_server.header import LAST, Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.shard import Gradient, Shard


class Server:
    """A shard, and what it has answered."""

    def __init__(self, policy: Policy) -> None:
        self.answers: list[Header] = []
        values = np.zeros(4)
        self.shard = Shard(values, [KeyRange(0, 4)], policy, SGD(0.1), None, None, self.answers.append)

    def pull(self, worker: int, request_id: int) -> None:
        self.shard.pull(Header(Kind.PULL, worker=worker, request_id=request_id), 0.0)

    def push(self, worker: int, request_id: int, clock: int, read: int = LAST) -> None:
        header = Header(Kind.PUSH, worker=worker, request_id=request_id, clock=clock, share=0.5, read=read)
        self.shard.push(header, Gradient([np.ones(4)]), 0.0)

    def staleness(self, worker: int, request_id: int) -> int:
        """Return the staleness of the push with this request_id."""
        [answer] = [a for a in self.answers if (a.kind, a.worker, a.request_id) == (Kind.APPLIED, worker, request_id)]
        return answer.staleness


def test_a_push_names_the_pull_it_was_computed_at() -> None:
    server = Server(Asynchronous([1, 2]))
    server.pull(1, request_id=1)
    server.push(2, request_id=1, clock=0)
    server.push(2, request_id=2, clock=1)
    server.pull(1, request_id=2)
    server.push(2, request_id=3, clock=2)
    server.push(1, request_id=3, clock=0, read=1)
    assert server.staleness(1, request_id=3) == 3
    server.push(1, request_id=4, clock=1)
    assert server.staleness(1, request_id=4) == 1, "named none: the last pull; its own update does not count"


def test_a_gradient_that_the_policy_holds_back_keeps_its_pull() -> None:
    server = Server(SSP([1, 2], 2))
    server.pull(1, request_id=1)
    server.push(1, request_id=2, clock=0)
    assert server.staleness(1, request_id=2) == 0
    server.pull(2, request_id=1)
    server.pull(1, request_id=3)
    server.push(2, request_id=2, clock=0)
    server.pull(1, request_id=4)
    server.push(1, request_id=5, clock=1, read=3)
    assert server.staleness(1, request_id=5) == 1
