"""Which rank succeeds a dead one, and requests that arrive twice."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.parameter_server.chain_replication import ChainReplication, NoSuccessor
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.sessions import Sessions


def test_each_part_is_with_its_server_and_the_next() -> None:
    replication = ChainReplication(Placement.usual(7, servers=3), replicas=2)
    assert [replication.chain(partition) for partition in replication.partitions] == [(1, 2), (2, 3), (3, 1)]
    assert (replication.manager, replication.cleaner) == (0, 0)


def test_the_dead_are_succeeded() -> None:
    replication = ChainReplication(Placement.usual(7, servers=3), replicas=2)
    replication.lost |= {0, 2}
    assert [(replication.head(server), replication.tail(server)) for server in (1, 2, 3)] == [(1, 1), (3, 3), (3, 1)]
    assert (replication.manager, replication.cleaner) == (1, 1)
    assert replication.managers == (1, 3)


def test_two_neighbours_are_too_many() -> None:
    replication = ChainReplication(Placement.usual(7, servers=3), replicas=2)
    replication.lost |= {1, 2}
    with pytest.raises(NoSuccessor, match=r"of server 1: 1, 2"):
        replication.head(1)
    assert replication.head(2) == 3
    assert replication.tail(3) == 3


def test_alone_everybody_is_needed() -> None:
    replication = ChainReplication(Placement.usual(4))
    replication.lost |= {0, 1}
    with pytest.raises(NoSuccessor, match="server 1 has died"):
        replication.head(1)
    with pytest.raises(NoSuccessor, match="the manager has died"):
        _ = replication.manager


def test_more_replicas_than_servers_are_refused() -> None:
    with pytest.raises(UsageError, match="give as many with --servers"):
        ChainReplication(Placement.usual(4), replicas=2)


def request(number: int, acked_through: int = 0, kind: Kind = Kind.PUSH) -> Header:
    return Header(kind, worker=3, request_id=number, acked_through=acked_through)


def open_numbers(sessions: Sessions) -> list[int]:
    return [answer.request_id for answer, _ in sessions.answers()]


def test_a_request_is_new_once() -> None:
    sessions = Sessions()
    assert sessions.open(request(1))
    assert not sessions.open(request(1))
    assert sessions.answers() == [], "it is being carried out"
    applied = Header(Kind.APPLIED, worker=3, request_id=1)
    sessions.note(applied)
    assert sessions.answers() == [(applied, None)]
    assert not sessions.open(request(1))
    assert sessions.answers() == [(applied, None)]


def test_what_has_come_is_forgotten() -> None:
    sessions = Sessions()
    for number in (1, 2, 3):
        sessions.open(request(number))
        sessions.note(Header(Kind.APPLIED, worker=3, request_id=number))
    assert sessions.open(request(4, acked_through=2))
    assert open_numbers(sessions) == [3]
    assert not sessions.open(request(2)), "an old one that comes late is not new"
    sessions.forget(3)
    assert sessions.answers() == []
    sessions.note(Header(Kind.FINISHED, worker=3, request_id=4))  # to a client that has left
    assert sessions.answers() == []


def test_of_each_client_only_the_parameters_that_it_was_given_last_are_kept() -> None:
    sessions, values = Sessions(), np.zeros(2)
    for number in (1, 3):
        assert sessions.open(request(number, kind=Kind.PULL))
        sessions.note(Header(Kind.GRANT, worker=3, request_id=number), values)
        assert open_numbers(sessions) == [number]
        assert sessions.open(request(number + 1))
        assert open_numbers(sessions) == [number]
    assert sessions.answers()[0][1] is values
    assert not sessions.open(request(1, kind=Kind.PULL)), "it has come, all the same"
