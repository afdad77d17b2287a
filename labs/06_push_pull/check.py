"""Checks of lab 6: the assignment of keys to servers, the effect of a push, and the exchange on real ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import counted, expect_returned
from farandole_tools.lab.learner import sharing_lists

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]

KEYS = 2000  # keys looked up on a ring
FAIR = 1.75  # times its share that a server with 64 points may have; by chance it has more once in a million times


def check_ranges(student: Any, comm: Comm) -> None:
    # Without a remainder first; then with one, one range, one key each, and many.
    for keys, ranges in ((12, 4), (10, 4), (39, 4), (7, 1), (5, 5), (1000, 64)):
        call = f"cut({keys}, {ranges})"
        parts = student.cut(keys, ranges)
        expect_returned(parts, call)
        parts = list(parts)
        expect(all(isinstance(part, range) for part in parts), f"{call} should be a list of ranges like range(0, 3)")
        expect(len(parts) == ranges, f"{call} has {len(parts)} ranges")
        ascending = sorted(parts, key=lambda part: part.start)
        expect(parts == ascending, f"{call} begins with {parts[0]}: the ranges are in the order of their keys")
        next_key = 0
        for part in parts:
            expect(part.start <= next_key, f"{call}: key {next_key} is in no range")
            expect(part.start >= next_key, f"{call}: key {part.start} is in two ranges")
            next_key = part.stop
        expect(next_key >= keys, f"{call}: key {next_key} is in no range, nor any after it")
        expect(next_key <= keys, f"{call} ends with key {next_key - 1}: the keys are 0 to {keys - 1}")
        lengths = [len(part) for part in parts]
        spread = max(lengths) - min(lengths)
        expect(spread <= 1, f"{call}: the longest range has {spread} keys more than the shortest; at most 1 is right")


def check_same_everywhere(student: Any, comm: Comm) -> None:
    mine = servers_of(student, [0, 1, 2, 3])
    everybodys = np.array(comm.everybodys(mine))
    differ = np.flatnonzero((everybodys != everybodys[0]).any(axis=0))
    expect(
        not differ.size,
        f"the ranks do not agree on which server holds {counted(differ.size, 'key')} of {KEYS:,}: "
        "Python's hash() of a string differs between processes; hashlib's functions are the same everywhere",
    )
    turned = servers_of(student, [3, 1, 0, 2])
    expect(
        np.array_equal(mine, turned),
        "the servers 0, 1, 2, 3 and the same in another order, 3, 1, 0, 2, divide the keys differently: "
        "is a server's place on the circle given by its number, and not by its place in the list?",
    )


def check_joining(student: Any, comm: Comm) -> None:
    for size in (1, 2, 4, 8):
        before, after = servers_of(student, range(size)), servers_of(student, range(size + 1))
        moved = np.flatnonzero(before != after)
        who = f"server {size} joins {counted(size, 'other')}"
        expect(moved.size, f"{who}, and none of {KEYS:,} keys moves: what does the new server do?")
        astray = moved[after[moved] != size]
        if astray.size:
            key = astray[0]
            expect(
                False,
                f"{who}, and {moved.size:,} of {KEYS:,} keys move; key {key} for instance from server {before[key]} to "
                f"server {after[key]}: only the new server may take keys over. Is it key % servers?",
            )
    for size in (2, 4, 8):
        before, after = servers_of(student, range(size)), servers_of(student, range(1, size))
        astray = np.flatnonzero((before != 0) & (before != after))
        if astray.size:
            key = astray[0]
            expect(
                False,
                f"server 0 leaves {counted(size - 1, 'other')}, and key {key} moves from server {before[key]} to "
                f"server {after[key]}: only the keys of server 0 need a new place",
            )
    expect_closed_circle(student)


def expect_closed_circle(student: Any) -> None:
    """With one point each, every server comes next after one other, also the first after the last."""
    servers = range(4)
    held = servers_of(student, servers, KEYS // 2, virtual_nodes=1)
    before: dict[int, int] = {}  # server → the one whose keys go to it
    for server in servers:
        others = [each for each in servers if each != server]
        heirs = set(servers_of(student, others, KEYS // 2, virtual_nodes=1)[held == server].tolist())
        if len(heirs) != 1:  # it has no keys, or virtual_nodes is not used
            continue
        (heir,) = heirs
        first = before.setdefault(heir, server)
        expect(
            first == server,
            f"{len(servers)} servers with one virtual node each: server {heir} gets the keys of server {first} when "
            f"that leaves, and those of server {server} when that leaves. Each point comes next after one other: does "
            "the circle close, with the first point after the last?",
        )


def check_balance(student: Any, comm: Comm) -> None:
    for size in (4, 16):
        held = np.bincount(servers_of(student, range(size), 4 * KEYS), minlength=size)
        most = int(held.argmax())
        times = held[most] * size / held.sum()
        expect(
            times <= FAIR,
            f"{size} servers with 64 virtual nodes each: server {most} holds {held[most]:,} of {4 * KEYS:,} keys, "
            f"{times:.1f} times its share: does each server stand at 64 places all over the circle?",
        )
    few, many = (servers_of(student, range(16), virtual_nodes=number) for number in (2, 64))
    expect(
        not np.array_equal(few, many),
        f"16 servers hold the same of {KEYS:,} keys with 2 virtual nodes as with 64: is virtual_nodes used?",
    )


def check_moving(student: Any, comm: Comm) -> None:
    ranges = [range(start, start + 50) for start in range(0, KEYS, 50)]
    for servers, new in (([0, 1, 2], 3), ([5, 2], 0)):
        call = f"moving({len(ranges)} ranges, {servers}, {new})"
        before, after = student.HashRing(list(servers)), student.HashRing([*servers, new])
        right = [
            number for number, part in enumerate(ranges) if before.server_of(part.start) != after.server_of(part.start)
        ]
        all_parts, all_servers = list(ranges), list(servers)
        with sharing_lists(student, all_parts, all_servers):
            given = student.moving(all_parts, all_servers, new)
        expect_returned(given, call)
        expect(all_servers == servers, f"{call} changes the list of servers that it is given, to {all_servers}")
        expect(all_parts == ranges, f"{call} changes the list of ranges that it is given")
        given = list(given)
        expect(
            given == right or sorted(given) != right,
            f"{call} is {shortened(given)}: these are the right ranges, and not in ascending order",
        )
        expect(
            given != [ranges[number].start for number in right],
            f"{call} is {shortened(given)}: these are first keys: a range's number is its index in `ranges`",
        )
        expect(
            given == right,
            f"{call} is {shortened(given)}; your own ring has other servers for the first keys of the ranges "
            f"{shortened(right)} with the new server than without it",
        )


def check_store(student: Any, comm: Comm) -> None:
    store = student.Store({2: np.arange(5.0), 4: np.zeros(3)}, 0.5)
    before = store.pull(2)
    expect_returned(before, "Store.pull")
    expect(np.array_equal(before, np.arange(5.0)), f"a pull before any push is {before}, not what the store began with")
    gradient = np.full(5, 4.0)
    applied = store.push(2, 1, 0, gradient)
    after = np.array(store.pull(2))
    right = np.arange(5.0) - 2
    expect(
        not applied or not np.array_equal(after, np.arange(5.0)),
        f"push returns {applied}, and the pull after it has the parameters from before it: a pull returns the current "
        "ones",
    )
    expect(
        not np.array_equal(after, np.arange(5.0)),
        "the first push of all, with clock 0, changes nothing: is it taken for a duplicate?",
    )
    expect(
        not np.allclose(after, np.arange(5.0) + 2),
        "a push moves the parameters up the gradient: they go down, against the gradient",
    )
    expect(
        not np.allclose(after, np.arange(5.0) - 4), "a push moves the parameters by the gradient: the rate is missing"
    )
    expect(
        np.allclose(after, right), f"rate 0.5, gradient 4: parameters 0 to 4 became {after}, which should be {right}"
    )
    expect(
        np.array_equal(before, np.arange(5.0)),
        "what was pulled before a push has changed with it: a pull is a copy, taken at that moment",
    )
    expect(applied is not None, "Store.push returns None: it says whether the gradient has been applied")
    expect(np.array_equal(store.pull(4), np.zeros(3)), "a push for range 2 has changed range 4")
    expect(np.array_equal(gradient, np.full(5, 4.0)), "a push changes the gradient that it is given")


def check_duplicates(student: Any, comm: Comm) -> None:
    store = student.Store({0: np.zeros(2), 1: np.zeros(2)}, 1.0)
    for number, worker, clock, new, what in (
        (0, 1, 0, True, "the first push of all"),
        (0, 1, 0, False, "the same push once more"),
        (0, 2, 0, True, "another worker's push with the same clock"),
        (1, 1, 0, True, "a push with the same clock for another range"),
        (0, 1, 1, True, "the next clock"),
        (0, 1, 0, False, "an old push, after a newer one"),
        (0, 2, 0, False, "a worker's push once more, after another worker's newer one"),
        (0, 2, 4, True, "a clock after some that were left out"),
        (0, 2, 3, False, "one of those left out, after a newer one"),
    ):
        call = f"push(range {number}, worker {worker}, clock {clock}), {what},"
        before = np.array(store.pull(number))
        said = store.push(number, worker, clock, np.ones(2))
        changed = not np.array_equal(before, store.pull(number))
        expect(not changed or new, f"{call} is applied, and must not be")
        expect(changed or not new, f"{call} is not applied, and must be")
        expect(bool(said) == new, f"{call} returns {said}, and was {'' if new else 'not '}applied")


@dataclass(frozen=True)
class Session:
    """Some rounds of pushes and pulls: every worker pushes some ranges, then pulls some or all, and ends its round.

    Attributes:
        holders: for each range the rank of its server; the servers are the first ranks.
        pushed: worker, clock → the numbers of the ranges it pushes.
        repeated: in this round everything is pushed twice, as if the acknowledgement had been lost, and range 1 is
            pulled once more, by itself.
        pulled: the numbers of the ranges that are pulled; all if None.
    """

    ranges: tuple[range, ...]
    holders: tuple[int, ...]
    rounds: int
    pushed: Callable[[int, int], Sequence[int]]
    repeated: int | None = None
    pulled: tuple[int, ...] | None = None

    @property
    def keys(self) -> int:
        return self.ranges[-1].stop

    def workers(self, size: int) -> list[int]:
        return list(range(max(self.holders) + 1, size))

    def gradient(self, worker: int, clock: int) -> Vector:
        """Return integers, so that sums are exact; each key has a different one."""
        return (10 * worker + clock + 1.0) * np.arange(1, self.keys + 1)

    def effect(self, worker: int, clock: int) -> Vector:
        """Return the change of the parameters by this push, at rate 1."""
        change = np.zeros(self.keys)
        for number in self.pushed(worker, clock):
            part = slice(self.ranges[number].start, self.ranges[number].stop)
            change[part] = -self.gradient(worker, clock)[part]
        return change

    def run(self, student: Any, comm: Comm) -> list[tuple[int, int, Vector, Vector]]:
        """A worker's rounds: how many ranges were applied, at the repetition, what was pulled then, and by range 1."""
        ranges, holders, workers = list(self.ranges), list(self.holders), self.workers(comm.size)
        if comm.rank not in workers:
            held = [number for number, holder in enumerate(holders) if holder == comm.rank]
            store = student.Store({number: np.zeros(len(ranges[number])) for number in held}, 1.0)
            student.serve(store, ranges, workers, self.rounds, comm)
            return []
        client = student.Client(ranges, holders, comm)
        seen = []
        for clock in range(self.rounds):
            numbers, gradient = list(self.pushed(comm.rank, clock)), self.gradient(comm.rank, clock)
            applied = client.push(numbers, clock, gradient)
            again = client.push(numbers, clock, gradient) if clock == self.repeated else 0
            parameters = np.full(self.keys, np.nan)
            client.pull(list(range(len(ranges)) if self.pulled is None else self.pulled), parameters)
            one = np.full(self.keys, np.nan)
            if clock == self.repeated:
                client.pull([1], one)
            client.end_round()
            seen.append((applied, again, parameters, one))
        return seen

    def judge(self, seen: list[tuple[int, int, Vector, Vector]], worker: int, size: int) -> None:
        """Check that a worker sees all earlier rounds, the workers served before it in this round, and itself."""
        parameters = np.zeros(self.keys)
        for clock, (applied, again, pulled, one) in enumerate(seen):
            for other in self.workers(size):
                if other <= worker:
                    parameters = parameters + self.effect(other, clock)
            where = f"worker {worker}, clock {clock}"
            numbers = self.pushed(worker, clock)
            judge_pull(where, pulled, parameters, self.effect(worker, clock))
            expect(
                again == 0, f"{where}: the same push once more returned {again}; the server had all of it: 0 is right"
            )
            expect(
                applied == len(numbers),
                f"{where}: push returned {applied} for {counted(len(numbers), 'range')} that the server had not "
                "had yet",
            )
            others = [key for key in np.flatnonzero(~np.isnan(one)) if key not in self.ranges[1]]
            expect(
                not others,
                f"{where}: a pull of range 1, {self.ranges[1]}, changes the parameter of key {(others or [0])[0]}: "
                "a pull writes only the requested ranges into their places",
            )
            for other in self.workers(size):
                if other > worker:
                    parameters = parameters + self.effect(other, clock)


def judge_pull(where: str, pulled: Vector, right: Vector, own: Vector) -> None:
    """Tell the usual mistakes apart by what is missing in what was pulled, or too much."""
    if np.isnan(pulled).any():
        key = int(np.isnan(pulled).argmax())
        expect(False, f"{where}: after the pull there is nothing at key {key}: is each range put into its place?")
    expect(
        not np.allclose(pulled, right - own),
        f"{where}: a pull after the acknowledgement lacks the worker's own push: "
        "does the server apply a push before it acknowledges it?",
    )
    expect(not np.allclose(pulled, right + own), f"{where}: the pull has the worker's own push twice")
    expect(
        not np.allclose(pulled, -right), f"{where}: the pull has everything with the wrong sign: see the check store"
    )
    wrong = np.flatnonzero(~np.isclose(pulled, right))
    if wrong.size:
        key = wrong[0]
        expect(
            False,
            f"{where}: after the pull the parameter of key {key} is {pulled[key]:g}; with all pushes of earlier "
            f"rounds, of the workers served before in this one, and its own, it is {right[key]:g}",
        )


ONE_SERVER = Session(
    ranges=(range(3), range(3, 6), range(6, 8)),
    holders=(0, 0, 0),
    rounds=3,
    pushed=lambda worker, clock: (0, 1, 2),
    repeated=1,
)
# One range in each round: the other server has to be told, too, that there is nothing more.
TWO_SERVERS = Session(
    ranges=(range(3), range(3, 6), range(6, 8), range(8, 10), range(10, 12)),
    holders=(0, 1, 1, 0, 1),
    rounds=4,
    pushed=lambda worker, clock: ((worker + clock) % 5,),
)
PARTS = Session(
    ranges=(range(100), range(100, 200), range(200, 300), range(300, 400)),
    holders=(0, 0, 0, 0),
    rounds=2,
    pushed=lambda worker, clock: (1, 3),
    pulled=(0, 1, 3),
)


PUSH, PULL, DONE = 0, 1, 2


def check_acknowledged(student: Any, comm: Comm) -> None:
    ONE_SERVER.judge(ONE_SERVER.run(student, comm), comm.rank, comm.size)


def judge_requests(student: Any, comm: Comm) -> None:
    """Rank 0 answers rank 1's client as the file says, and compares its requests with that."""
    ranges, numbers = list(ONE_SERVER.ranges), np.zeros(ONE_SERVER.keys)
    if comm.rank == 1:
        client = student.Client(ranges, list(ONE_SERVER.holders), comm)
        client.push([1], 7, numbers)
        client.pull([2], numbers)
        client.end_round()
    if comm.rank:
        return
    requests = [np.zeros(3, np.int64) for _ in range(3)]
    for kind, request in enumerate(requests):
        comm.receive(request, 1)
        if kind == PUSH:
            comm.receive(np.empty(len(ranges[1])), 1)
            comm.send(np.array([1]), 1)
        elif kind == PULL:
            comm.send(np.zeros(len(ranges[2])), 1)
    for what, request, right in (
        ("a push of range 1 with clock 7", requests[PUSH], [PUSH, 1, 7]),
        ("a pull of range 2", requests[PULL][:2], [PULL, 2]),
        ("the end of a round", requests[DONE][:1], [DONE]),
    ):
        expect(
            request.tolist() == right,
            f"the request for {what} begins with {request.tolist()}, and should with {right}: the file says in which "
            "order its three numbers are, all int64",
        )


def check_two_servers(student: Any, comm: Comm) -> None:
    TWO_SERVERS.judge(TWO_SERVERS.run(student, comm), comm.rank, comm.size)


def check_bytes(student: Any, comm: Comm) -> None:
    PARTS.run(student, comm)
    assert PARTS.pulled is not None
    request, width, pulled = 24, len(PARTS.ranges[0]), len(PARTS.pulled)
    pushed = len(PARTS.pushed(0, 0))
    if comm.rank == 0:
        workers = len(PARTS.workers(comm.size))
        right = PARTS.rounds * workers * (8 * pushed + 8 * width * pulled)
        what = (
            f"an acknowledgement of 8 bytes for each push, and {counted(pulled, 'range')} pulled, per worker and round"
        )
    else:
        right = PARTS.rounds * ((pushed + pulled + 1) * request + 8 * width * pushed)
        what = f"{pushed} pushes of {width} values, {counted(pulled, 'pull')} and one DONE per round"
    hint = "are only the requested ranges sent?"
    if comm.bytes_sent < right:
        hint = "is each request served until DONE, and are gradients and parameters float64?"
    expect(
        comm.bytes_sent == right,
        f"rank {comm.rank} sent {comm.bytes_sent:,} bytes where {right:,} are right ({what}): {hint}",
    )
    with comm.case("what a client requests"):
        judge_requests(student, comm)


def servers_of(student: Any, servers: Sequence[int], keys: int = KEYS, **options: int) -> Vector:
    """The server of each key, by the submission's ring."""
    ring = student.HashRing(list(servers), **options)
    held = [ring.server_of(key) for key in range(keys)]
    for key, server in enumerate(held):
        expect(
            server in servers, f"HashRing({list(servers)}).server_of({key}) is {server}, which is no server of the ring"
        )
    return np.array(held, dtype=np.int64)


def shortened(numbers: list[Any]) -> str:
    return str(numbers) if len(numbers) <= 12 else f"[{', '.join(map(str, numbers[:10]))}, … {len(numbers)} in all]"


LAB = Lab(
    title="Push and pull",
    file="push_pull.py",
    patience=5.0,
    checks=(
        Check("ranges", 1, (1,), check_ranges),
        Check("same everywhere", 1, (2,), check_same_everywhere),
        Check("joining", 1, (1,), check_joining),
        Check("balance", 1, (1,), check_balance),
        Check("moving", 1, (1,), check_moving),
        Check("store", 1, (1,), check_store),
        Check("duplicates", 1, (1,), check_duplicates, builds_on=("store",)),
        Check("acknowledged", 1, (2, 3, 4), check_acknowledged, builds_on=("store", "duplicates")),
        Check("two servers", 1, (3, 4), check_two_servers, builds_on=("store", "duplicates", "acknowledged")),
        Check("bytes", 1, (3,), check_bytes, needs=("acknowledged",)),
    ),
)
