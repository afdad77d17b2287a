"""Checks of lab 19: routing, capacity, the all-to-all with its bytes, and the whole layer on all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import THROUGH_COMM, expect_returned

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Array = NDArray[Any]

ALL = (1, 2, 3, 4, 7)
EACH = 2  # experts of a rank
WIDTH = 6
WIDE = 64  # where bytes are counted: a row is long beside the counts
PLENTY = 10_000  # a capacity that no expert reaches


def softmax(scores: Array) -> Array:
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Array = odds / odds.sum(axis=1, keepdims=True)
    return result


def accepted(choice: Array, before: Array, capacity: int, backwards: bool = False) -> Array:
    """Which tokens are accepted, one after the other, as the definition says."""
    taken, found = before.copy(), np.zeros(len(choice), bool)
    for token in reversed(range(len(choice))) if backwards else range(len(choice)):
        found[token] = taken[choice[token]] < capacity
        taken[choice[token]] += found[token]
    return found


def alike(given: Any, right: Array) -> bool:
    return np.shape(given) == right.shape and np.allclose(given, right, rtol=1e-9, atol=1e-11)


def equal(what: str, given: Any, right: Array, hint: str = "") -> None:
    expect(np.shape(given) == right.shape, f"{what} has the shape {np.shape(given)} where {right.shape} is right")
    if not alike(given, right):
        place = tuple(int(index) for index in np.argwhere(~np.isclose(given, right, rtol=1e-9, atol=1e-11))[0])
        where = ", ".join(map(str, place))
        expect(False, f"{what} is {given[place]:.6g} at {where}, and {right[place]:.6g} is right{hint}")


def check_route(student: Any, comm: Comm) -> None:
    drawn = np.random.default_rng(1).normal(size=(9, 5))
    ties = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    for name, scores in (("drawn scores", drawn), ("equal scores", ties), ("scores of 10,000", 1e4 * drawn)):
        with comm.case(name):
            kept = scores.copy()
            with np.errstate(all="ignore"):
                found = student.route(scores)
            expect_returned(found, "route")
            expect(isinstance(found, tuple) and len(found) == 2, "route returns no pair of choices and weights")
            expect(np.array_equal(scores, kept), "route changes the scores that it was given: work on a copy")
            choice, weight = map(np.asarray, found)
            expect(choice.dtype.kind in "iu", f"the choices are {choice.dtype}: they are numbers of experts, integers")
            right = scores.argmax(axis=1)
            hint = ": among equal scores the lower number" if name.startswith("equal") else ""
            expect(bool(np.isfinite(weight).all()), "a weight is inf or nan: exp(10,000) is no float; subtract each "
                   "row's largest score first")  # fmt: skip
            equal("the choice", choice, right, hint)
            right_weight = softmax(scores)[np.arange(len(scores)), right]
            expect(
                alike(weight, right_weight) or not np.allclose(weight, 1),
                "every weight is 1: it is the probability of the chosen expert among all experts, else the router "
                "has no gradient",
            )
            equal("the weight", weight, right_weight, ": the softmax of the scores, at the chosen expert")


def check_accept(student: Any, comm: Comm) -> None:
    choice = np.array([0, 2, 0, 0, 1, 2, 0, 2])
    for capacity, before in ((2, [0, 0, 0]), (3, [1, 0, 2]), (3, [5, 3, 0]), (9, [0, 0, 0])):
        with comm.case(f"capacity {capacity}, before {before}"):
            given = np.array(before)
            found = student.accept(choice.copy(), given.copy(), capacity)
            expect_returned(found, "accept")
            right = accepted(choice, given, capacity)
            if alike(found, right):
                kind = np.asarray(found).dtype
                text = f"accept returns {kind}, not booleans: as indices, 0 and 1 would be the first two tokens"
                expect(kind == np.bool_, text)
                continue
            expect(not alike(found, accepted(choice, given, capacity - 1)), "an expert accepts one token too few")
            expect(not alike(found, accepted(choice, given, capacity + 1)), "an expert accepts one token too many")
            expect(
                not alike(found, accepted(choice, 0 * given, capacity)),
                "the tokens of lower ranks come first: `before` of the capacity are used already",
            )
            expect(not alike(found, accepted(choice, given, capacity, backwards=True)),
                   "the last tokens are accepted, and not the first")  # fmt: skip
            equal("accept", np.asarray(found).astype(int), right.astype(int))


def unequal(comm: Comm, width: int) -> tuple[list[Array], list[int], list[Array]]:
    """Blocks of different lengths for all ranks, the lengths of those that come, and those themselves."""

    def block(source: int, to: int) -> Array:
        rows = (3 * source + 5 * to + 1) % 4
        return np.arange(rows * width, dtype=float).reshape(rows, width) + 1000 * source + 100 * to

    leaving = [block(comm.rank, to) for to in range(comm.size)]
    coming = [block(source, comm.rank) for source in range(comm.size)]
    return leaving, [len(each) for each in coming], coming


def check_all_to_all(student: Any, comm: Comm) -> None:
    judge_blocks(student, comm, *unequal(comm, WIDTH))
    with comm.case("whole numbers, one for each row"):
        blocks, lengths, right = unequal(comm, 1)
        judge_blocks(student, comm, [whole(block) for block in blocks], lengths, [whole(block) for block in right])


def whole(block: Array) -> Array:
    return block.reshape(-1).astype(np.int64)


def judge_blocks(student: Any, comm: Comm, blocks: list[Array], lengths: list[int], right: list[Array]) -> None:
    kept = [block.copy() for block in blocks]
    found = student.all_to_all(blocks, lengths, comm)
    expect_returned(found, "all_to_all")
    expect(all(map(np.array_equal, blocks, kept)), "all_to_all changes the blocks that it was given")
    expect(len(found) == comm.size, f"all_to_all returns {len(found)} blocks where there are {comm.size} ranks")
    for source, (block, its) in enumerate(zip(found, right, strict=True)):
        expect(
            alike(block, its) or not (np.size(block) and any(alike(block, other) for other in right)),
            f"block {source} on rank {comm.rank} comes from another rank: block s is that of rank s",
        )
        equal(f"block {source} on rank {comm.rank}", block, its)


def check_bytes(student: Any, comm: Comm) -> None:
    blocks, lengths, _ = unequal(comm, WIDTH)
    with comm.case("all_to_all"):
        student.all_to_all(blocks, lengths, comm)
        right, sent = sum(block.nbytes for to, block in enumerate(blocks) if to != comm.rank), comm.bytes_sent
        longest = 8 * WIDTH * 3 * (comm.size - 1)
        hint = "the blocks for other ranks, as long as they are"
        if sent == 0:
            hint = THROUGH_COMM
        elif sent == right + blocks[comm.rank].nbytes:
            hint = "a rank's block for itself need not be sent"
        elif sent == longest:
            hint = "blocks need not be padded: `lengths` says how much comes"
        expect(sent == right, f"rank {comm.rank} sent {sent:,} bytes where {right:,} are right: {hint}")
    with comm.case("mixture"):
        before = comm.bytes_sent
        layer = Layer(comm, WIDE)
        layer.run(student, PLENTY)
        sent, row = comm.bytes_sent - before, 8 * WIDE
        owner = layer.choice // EACH
        away = np.array([rank != comm.rank for rank in layer.of_token])
        moved = int((~away & (owner != comm.rank)).sum() + (away & (owner == comm.rank)).sum())
        most = moved * row + (comm.size - 1) * (EACH * comm.size + 1) * 16  # and the counts
        expect(
            sent <= most,
            f"rank {comm.rank} sent {sent:,} bytes, and its {moved} rows that leave or return have {moved * row:,}: "
            "a token goes to the rank of its expert, and to no other",
        )


class Layer:
    """Tokens, router and experts of all ranks, and what a mixture of them is on one process."""

    def __init__(self, comm: Comm, width: int = WIDTH) -> None:
        noise = np.random.default_rng([comm.size, width])
        self.comm = comm
        self.of_token = np.repeat(np.arange(comm.size), [5 + 3 * (rank % 3) for rank in range(comm.size)])
        self.x = noise.normal(size=(len(self.of_token), width))
        self.router = noise.normal(size=(width, EACH * comm.size))
        self.matrices = noise.normal(size=(EACH * comm.size, width, width))
        odds = softmax(self.x @ self.router)
        self.choice = odds.argmax(axis=1)
        self.weight = odds.max(axis=1)
        self.computed: dict[int, list[Array]] = {}  # rows of each expert of this rank, by call

    @property
    def own(self) -> Array:
        return np.flatnonzero(self.of_token == self.comm.rank)

    def run(self, student: Any, capacity: int) -> Array:
        """Return the submission's result for this rank's tokens."""

        def expert(number: int) -> Any:
            def compute(rows: Array) -> Array:
                self.computed.setdefault(number, []).append(np.array(rows))
                answers: Array = np.tanh(rows @ self.matrices[number])
                return answers

            return compute

        own, mine = self.own, range(self.comm.rank * EACH, (self.comm.rank + 1) * EACH)
        given = self.x[own]
        found = student.mixture(given, self.router.copy(), [expert(number) for number in mine], capacity, self.comm)
        expect_returned(found, "mixture")
        expect(np.array_equal(given, self.x[own]), "mixture changes x: work on a copy")
        answers: Array = np.asarray(found)
        return answers

    def right(self, kept: Array, weight: Array | None = None) -> Array:
        """This rank's answers if these tokens are accepted."""
        answers = np.stack([np.tanh(x @ self.matrices[e]) for x, e in zip(self.x, self.choice, strict=True)])
        weights: Array = kept * (self.weight if weight is None else weight)
        found: Array = weights[:, None] * answers
        return found[self.own]

    def kept(self, capacity: int) -> Array:
        return accepted(self.choice, np.zeros(EACH * self.comm.size, int), capacity)


def check_mixture(student: Any, comm: Comm) -> None:
    layer = Layer(comm)
    found, everything = layer.run(student, PLENTY), layer.kept(PLENTY)
    right, what = layer.right(everything), f"the answer on rank {comm.rank}"
    if alike(found, right):
        return
    unweighted = layer.right(everything, np.ones(len(layer.x)))
    expect(not alike(found, unweighted), f"{what} is that of the expert alone: multiply it by the token's weight")
    same = np.shape(found) == right.shape and alike(np.sort(found, axis=0), np.sort(right, axis=0))
    expect(not same, f"{what} is right, but for the order: which token does each row that returns belong to?")
    if found.shape == right.shape:
        factors = (found * right).sum(axis=1, keepdims=True) / (right**2).sum(axis=1, keepdims=True)
        text = "is that of the right experts, but with other weights: has each row that returns its token's?"
        expect(not alike(found, factors * right), f"{what} {text}")
    equal(what, found, right, ": does each token go to the expert that it has chosen, and the answer back to it?")


def check_capacity(student: Any, comm: Comm) -> None:
    for capacity in (1, 3):
        with comm.case(f"capacity {capacity}"):
            layer = Layer(comm)
            found, kept = layer.run(student, capacity), layer.kept(capacity)
            right, what = layer.right(kept), f"the answer on rank {comm.rank}"
            if alike(found, right):
                continue
            dropped = np.flatnonzero(~kept[layer.own])
            expect(
                not (len(dropped) and alike(found[dropped], layer.x[layer.own][dropped])),
                f"{what} is x where a token is dropped: it is 0, since the residual connection adds x anyway",
            )
            nothing = np.zeros(EACH * comm.size, int)
            apart = np.concatenate(
                [accepted(layer.choice[layer.of_token == rank], nothing, capacity) for rank in range(comm.size)]
            )
            expect(not alike(found, layer.right(apart)), f"{what} is that of {capacity} tokens of *each rank*: an "
                   f"expert accepts {capacity} over all ranks together")  # fmt: skip
            expect(not alike(found, layer.right(layer.kept(PLENTY))), f"{what} is that without a capacity")
            equal(what, found, right, ": which tokens are accepted, and is it 0 for the others?")


def check_experts(student: Any, comm: Comm) -> None:
    for capacity in (2, PLENTY):
        with comm.case(f"capacity {capacity}"):
            layer = Layer(comm)
            layer.run(student, capacity)
            kept = layer.kept(capacity)
            for expert in range(comm.rank * EACH, (comm.rank + 1) * EACH):
                calls = layer.computed.get(expert, [])
                rows = np.concatenate(calls) if calls else np.empty((0, WIDTH))
                right = layer.x[kept & (layer.choice == expert)]
                many = f"expert {expert} computed with {len(rows)} rows, and accepts {len(right)}"
                expect(len(rows) == len(right), f"{many}: it computes with those that it accepts, and no other")
                order = [np.lexsort(each.T) for each in (rows, right)]
                expect(
                    alike(rows[order[0]], right[order[1]]),
                    f"expert {expert} computed with rows that are not those of its tokens: on which rank is it, and "
                    "which number has it there?",
                )
                expect(calls, f"expert {expert} was not called: each is called once, with 0 rows if it accepts none")
                expect(len(calls) == 1, f"expert {expert} was called {len(calls)} times: once with all its rows")


LAB = Lab(
    title="Expert dispatch",
    file="expert_dispatch.py",
    checks=(
        Check("route", 2, (1,), check_route),
        Check("accept", 1, (1,), check_accept),
        Check("all to all", 2, ALL, check_all_to_all),
        Check("bytes", 1, ALL, check_bytes, needs=("all to all",), builds_on=("route", "all to all")),
        Check("mixture", 2, ALL, check_mixture, builds_on=("route", "all to all")),
        Check("capacity", 1, ALL, check_capacity, builds_on=("accept", "mixture")),
        Check("experts", 1, ALL, check_experts, needs=("mixture",), builds_on=("accept", "mixture", "capacity")),
    ),
)
