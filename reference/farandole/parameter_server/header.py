"""What the roles say to each other: one header of fixed form, for some kinds with a payload after it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

ALL_RANGES = -1
DENSE = -1
ENCODED = -2
ROW_NUMBER = np.int32  # how a row of a server's part is named in messages
LAST = -1
NO_TASK = -1
NOBODY = -1


class Kind(IntEnum):
    """What a header says."""

    # From a client to a server, or to an aggregator in its place.
    PULL = 1  # may I start my next iteration, and with which parameters?
    PUSH = 2  # the gradient of an iteration, or one range of it
    READ = 3  # the parameters as they are now, whatever the policy
    END = 4  # permit no further iteration (`early_stopping`)

    # A server's answers.
    GRANT = 11  # start iteration `clock`; the parameters follow
    FINISHED = 12  # there is no work left
    VALUES = 13  # the parameters as they are now follow
    APPLIED = 14  # the push has moved the parameters
    DROPPED = 15  # it has not: too late, there already, or from a worker that was cleaned away
    MOVED = 17  # send this pull to other servers: their numbers follow

    # A server to the next one in the chain, beside the requests that it hands on.
    TICK = 16  # time has passed

    # Between clients, the manager, the cleaning node and the servers.
    REPORT = 21  # a worker to the manager: how an iteration went
    LEAVE = 22  # a client to the manager: it has finished
    GONE = 23  # the manager to the cleaning node: a client is no more
    CLEAN = 24  # the cleaning node to the servers: remove what it left behind
    CLEANED = 25  # a server to the cleaning node: what that was
    TIDY = 26  # the cleaning node to the manager: it is done
    STOP = 27  # the manager to everybody: the work is over
    PROGRESS = 28  # a reader to the manager: how far are the workers? The answer is of the same kind
    ALIVE = 29  # a client to the manager: it is still there, and waits for others
    TASK = 30  # a worker to the coordinator: requests the next task. The answer is of the same kind (`tasks`)

    # Between the manager and the servers, when their number changes (`server_manager`).
    READY = 41  # a server to the manager: all workers wait at the border
    RING = 42  # the manager to every server: which servers have keys from now on; their numbers follow
    MOVE = 43  # a server to another: keys that the receiver has from now on follow, with the rule's state for them
    SETTLED = 44  # a server to the manager: it has all its keys; the numbers of keys and bytes that it has sent follow


@dataclass(slots=True)
class Header:
    """The fixed part of a message.

    Attributes:
        source: the rank it came from, known on arrival.
        group: the application it is about.
        worker: the client it is about, a rank.
        home: the server whose part it is about, though another may have taken its place (`succession`).
        number: the sender's own number of a request; the answer to it has the same.
        settled: the answers to requests up to this number have come.
        clock: the number of the iteration; with VALUES how often the server has moved them, their version.
        part: which of the server's ranges a push or read is about; −1: all.
        count: how many rows follow, of a sparse push or pull; −1: dense; −2: a dense push, encoded.
        read: the number of the pull that gave the parameters a pushed gradient was computed at; −1: the last.
        task: the task of a pushed gradient, the task that is done, or the next one; −1: none.
        samples: how many samples a report is about; in the answer to PROGRESS, all reports so far.
        right, baseline: in a report, how many of its samples were classified right before they were learned
            from: by the model being trained, and by one that no longer learns (`online`).
        lead, staleness: for the record (`runtime.record`).
        share: n_r / N of a push.
        seconds: how long the policy has held a pull back.
        moment: in what a server hands on, when it came to the first of the chain, by that one's clock; 0: elsewhere.
        loss: in a report.
        pulls, clocks, pushes: what was cleaned away.
        workers: in the answer to PROGRESS, how many are left.
    """

    kind: int
    source: int = -1
    group: int = 0
    worker: int = -1
    home: int = NOBODY
    number: int = 0
    settled: int = 0
    clock: int = 0
    part: int = ALL_RANGES
    count: int = DENSE
    read: int = LAST
    task: int = NO_TASK
    samples: int = 0
    right: int = 0
    baseline: int = 0
    lead: int = 0
    staleness: int = 0
    share: float = 0.0
    seconds: float = 0.0
    moment: float = 0.0
    loss: float = 0.0
    pulls: int = 0
    clocks: int = 0
    pushes: int = 0
    workers: int = 0


FIELDS = tuple(field.name for field in fields(Header))
REALS = {"share", "seconds", "moment", "loss"}


def pack(header: Header) -> NDArray[np.float64]:
    """A header as numbers; a float64 holds every integer below 2⁵³ exactly."""
    return np.array([getattr(header, name) for name in FIELDS], dtype=np.float64)


def unpack(numbers: NDArray[np.float64], source: int) -> Header:
    values = {name: value if name in REALS else int(value) for name, value in zip(FIELDS, numbers, strict=True)}
    return Header(**values | {"source": source})
