"""What a rank sends to the fork server arrives whole, or costs the server nothing."""

from __future__ import annotations

import marshal
import os
import socket
from collections.abc import Iterator

import pytest

from farandole_tools.forked_ranks.fork_client import NUMBER, STREAMS
from farandole_tools.forked_ranks.forks import _request

STATE = marshal.dumps({"folder": "/"})


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A rank's end of a connection, and the server's."""
    rank, server = socket.socketpair()
    server.settimeout(0.05)
    with rank, server:
        yield rank, server


def send(rank: socket.socket, state: bytes) -> int:
    """Send a request whose streams are a pipe; return the other end, which ends when no process has a stream open."""
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    socket.send_fds(rank, [NUMBER.pack(len(STATE))], [writes] * len(STREAMS))
    os.close(writes)
    rank.sendall(state)
    return reads


def test_a_whole_request_has_the_state_and_the_streams(ends: tuple[socket.socket, socket.socket]) -> None:
    rank, server = ends
    reads = send(rank, STATE)
    request = _request(server)
    assert request.state == {"folder": "/"}
    assert len(request.streams) == len(STREAMS)
    for number, stream in enumerate(request.streams):
        os.write(stream, b"%d" % number)
        os.close(stream)
    assert os.read(reads, 10) == b"012"
    os.close(reads)


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("sent", [b"", STATE[:3]])
def test_of_a_rank_that_dies_or_stops_in_the_middle_no_descriptor_stays_open(
    sent: bytes, dies: bool, ends: tuple[socket.socket, socket.socket]
) -> None:
    rank, server = ends
    reads = send(rank, sent)
    if dies:
        rank.shutdown(socket.SHUT_WR)
    with pytest.raises(OSError, match="died" if dies else "timed out"):
        _request(server)
    assert os.read(reads, 1) == b""
    os.close(reads)


@pytest.mark.parametrize("sent", [b"", b"\x10"])
def test_a_rank_that_dies_before_its_first_message(sent: bytes, ends: tuple[socket.socket, socket.socket]) -> None:
    rank, server = ends
    rank.sendall(sent)
    rank.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError, match="died"):
        _request(server)
