"""The header of every message between the roles, and which of its fields each kind of message uses.

All headers have the same 25 numbers, so that a receiver knows the size before it knows the kind. For some kinds a
payload follows (`message_queue`). `USES` lists the fields that a kind sets beside `kind` and `source`; the others have
their defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

ALL_RANGES = -1
DENSE = -1
ENCODED = -2
ROW_NUMBER = np.int32  # how a row of a server's part is named in messages
LAST = -1
NO_TASK = -1
NO_PARTITION = -1


class Kind(IntEnum):
    """The purpose of a message."""

    # From a client to a server, or to an aggregator in its place.
    PULL = 1  # requests to start the next iteration, and its parameters
    PUSH = 2  # the gradient of an iteration, or one range of it
    READ = 3  # requests the current parameters, whatever the policy
    END = 4  # permit no further iteration (`early_stopping`)

    # A server's answers.
    GRANT = 11  # start iteration `clock`; the parameters follow
    FINISHED = 12  # there is no work left
    VALUES = 13  # the current parameters follow
    APPLIED = 14  # the push has moved the parameters
    DROPPED = 15  # the push has not: it was too late, a duplicate, or from a worker that has been removed
    MOVED = 17  # send this pull to other servers: their numbers follow

    # A server to the next one in the chain, beside the requests that it forwards.
    TICK = 16  # time has passed

    # Between clients, the manager, the cleaning node and the servers.
    REPORT = 21  # a worker to the manager: loss and samples of an iteration
    LEAVE = 22  # a client to the manager: it has finished
    GONE = 23  # the manager to the cleaning node: a client has left or died
    CLEAN = 24  # the cleaning node to the servers: remove that client's state
    CLEANED = 25  # a server to the cleaning node: what has been removed
    TIDY = 26  # the cleaning node to the manager: all servers have removed it
    STOP = 27  # the manager to every rank: the work is over
    PROGRESS = 28  # a reader to the manager: requests the workers' progress. The answer is of the same kind
    ALIVE = 29  # a client to the manager: a heartbeat while it waits
    TASK = 30  # a worker to the coordinator: requests the next task. The answer is of the same kind (`tasks`)

    # Between the manager and the servers, when their number changes (`server_manager`).
    READY = 41  # a server to the manager: all workers wait at the border
    RING = 42  # the manager to every server: which servers have keys from now on; their numbers follow
    MOVE = 43  # a server to another: keys that the receiver has from now on follow, with the rule's state for them
    COMPLETE = 44  # a server to the manager: it has all its keys; the numbers of keys and bytes that it has sent follow


@dataclass(slots=True)
class Header:
    """The fixed part of a message.

    Attributes:
        source: the sender's rank, known on arrival.
        group: the application.
        worker: the client that the message is about, a rank.
        partition: the part of the parameters, named after its first server, whichever server has it now.
        request_id: the client's number of a request; the answer has the same.
        acked_through: the client has received the answers to all its requests up to this number.
        clock: the number of the iteration; with VALUES, READ's answer, the number of updates of the part, its version.
        part: which of the server's ranges a push is about; −1: all.
        count: how many rows follow, of a sparse push or pull; −1: dense; −2: a dense push, encoded.
        read: the request_id of the pull whose parameters a pushed gradient was computed at; −1: the last pull.
        task: the task of a pushed gradient, the completed task, or the next one; −1: none.
        samples: the samples of a report; in the answer to PROGRESS, of all reports so far.
        right, baseline: in a report, how many of its samples were classified right before they were learned
            from: by the model being trained, and by one that no longer learns (`online`).
        lead, staleness: for the record (`runtime.record`).
        share: n_r / N of a push.
        seconds: how long the policy has held a pull back.
        timestamp: of a forwarded request, its arrival at the head of the chain by the head's clock; 0: not forwarded.
        loss: in a report.
        pulls, clocks, pushes: how many of each have been removed with a client.
        workers: in the answer to PROGRESS, how many are left.
    """

    kind: int
    source: int = -1
    group: int = 0
    worker: int = -1
    partition: int = NO_PARTITION
    request_id: int = 0
    acked_through: int = 0
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
    timestamp: float = 0.0
    loss: float = 0.0
    pulls: int = 0
    clocks: int = 0
    pushes: int = 0
    workers: int = 0


FIELDS = tuple(field.name for field in fields(Header))
REALS = frozenset({"share", "seconds", "timestamp", "loss"})

CLIENT = ("worker", "group")
REQUEST_TO_A_SERVER = (*CLIENT, "partition", "request_id", "acked_through", "timestamp")
REQUEST_TO_THE_MANAGER = (*CLIENT, "request_id", "acked_through")
ANSWER = ("worker", "partition", "request_id")
USES: dict[Kind, tuple[str, ...]] = {
    Kind.PULL: (*REQUEST_TO_A_SERVER, "count"),
    Kind.PUSH: (*REQUEST_TO_A_SERVER, "count", "clock", "share", "part", "read", "task"),
    Kind.READ: (*REQUEST_TO_A_SERVER, "count"),
    Kind.END: REQUEST_TO_A_SERVER,
    Kind.GRANT: (*ANSWER, "count", "clock", "lead", "seconds"),
    Kind.FINISHED: ANSWER,
    Kind.VALUES: (*ANSWER, "count", "clock"),
    Kind.APPLIED: (*ANSWER, "staleness"),
    Kind.DROPPED: (*ANSWER, "staleness"),
    Kind.MOVED: (*ANSWER, "count"),
    Kind.TICK: ("group", "partition", "timestamp"),
    Kind.REPORT: (*CLIENT, "clock", "loss", "samples", "right", "baseline"),
    Kind.LEAVE: REQUEST_TO_THE_MANAGER,
    Kind.GONE: CLIENT,
    Kind.CLEAN: (*CLIENT, "partition", "timestamp"),
    Kind.CLEANED: ("worker", "partition", "pulls", "clocks", "pushes"),
    Kind.TIDY: ("worker",),
    Kind.STOP: CLIENT,
    Kind.PROGRESS: (*REQUEST_TO_THE_MANAGER, "samples", "workers"),
    Kind.ALIVE: CLIENT,
    Kind.TASK: (*REQUEST_TO_THE_MANAGER, "task"),
    Kind.READY: (),
    Kind.RING: ("count",),
    Kind.MOVE: ("count", "clock"),
    Kind.COMPLETE: (),
}
