"""Checks of lab 18: attention of one block, two blocks joined, the ring's result, and its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import THROUGH_COMM, expect_returned
from farandole_tools.lab.learner import noting_peak, noting_warnings
from farandole_tools.lab.rank_status import named

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]

ALL = (1, 2, 3, 4, 7)
OWN, WIDTH = 6, 5  # positions of a rank, and width of the head
AHEADS = (100, 0, 2, -3)  # of the queries, in positions: all keys seen, some of them, …
MANY_KEYS, FEWER_QUERIES = 8, 5
MOST_SCORES = 5.5  # memory, in blocks of OWN positions' scores with OWN positions
MOST_BLOCKS = 5.5  # … and in blocks of keys and values


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> list[Vector]:
    """Queries, keys and values, the same on whichever rank this is called."""
    query, key, value = np.random.default_rng([*shape, seed]).normal(size=(3, *shape))
    return [scale * query, key, value]


def attention(query: Vector, key: Vector, value: Vector, ahead: int, strictly: bool = False) -> tuple[Vector, Vector]:
    """The answers and L, row by row, as the definition says."""
    answers, sums = np.zeros_like(query), np.full(len(query), -np.inf)
    for row in range(len(query)):
        seen = max(0, min(len(key), row + ahead + (0 if strictly else 1)))
        if seen:
            scores = key[:seen] @ query[row] / np.sqrt(query.shape[1])
            largest = scores.max()
            weights = np.exp(scores - largest)
            answers[row], sums[row] = weights @ value[:seen] / weights.sum(), np.log(weights.sum()) + largest
    return answers, sums


def alike(given: Any, right: Vector) -> bool:
    return np.shape(given) == right.shape and np.allclose(given, right, rtol=1e-9, atol=1e-11)


def pair(found: Any, call: str) -> tuple[Vector, Vector]:
    expect_returned(found, call)
    expect(isinstance(found, tuple) and len(found) == 2, f"{call} returns {type(found).__name__}, not answers and L")
    return found


def equal(what: str, given: Any, right: Vector, hint: str = "") -> None:
    expect(np.shape(given) == right.shape, f"{what} has the shape {np.shape(given)} where {right.shape} is right")
    with np.errstate(invalid="ignore"):
        unlike = ~np.isclose(given, right, rtol=1e-9, atol=1e-11)
    if unlike.any():
        place = tuple(int(index) for index in np.argwhere(unlike)[0])
        where = ", ".join(map(str, place))
        expect(False, f"{what} is {given[place]:.6g} at {where}, and {right[place]:.6g} is right{hint}")


def check_block(student: Any, comm: Comm) -> None:
    for ahead in AHEADS:
        query, key, value = numbers(MANY_KEYS, WIDTH)
        query = query[:FEWER_QUERIES]
        given = [query, key, value]
        with comm.case(f"ahead = {ahead}"):
            kept = [each.copy() for each in given]
            answer, log_sum = pair(student.attend(*given, ahead), "attend")
            expect(all(map(np.array_equal, given, kept)), "attend changes its query, key or value: work on copies")
            right, right_sum = attention(query, key, value, ahead)
            unscaled = attention(query * np.sqrt(WIDTH), key, value, ahead)[0]
            expect(not alike(answer, unscaled), "the scores are not divided by √width")
            everything = attention(query, key, value, 1000)[0]
            expect(
                alike(answer, right) or not alike(answer, everything),
                "every query sees every key: query i sees the keys j <= i + ahead",
            )
            before = attention(query, key, value, ahead, strictly=True)[0]
            expect(
                alike(answer, right) or not alike(answer, before),
                "a query does not see its own key: j <= i + ahead, and not j < i + ahead",
            )
            expect(not np.isnan(answer).any(), "an answer is nan: which query sees no key of this block?")
            equal("the answer", answer, right)
            equal("L", log_sum, right_sum, ": the logarithm of the sum of exp(score)")


def check_large_scores(student: Any, comm: Comm) -> None:
    drawn, keys, value = numbers(MANY_KEYS, WIDTH, scale=1e4)
    for name, query, key in (("10,000", drawn, keys), ("−10,000", -np.abs(drawn), np.abs(keys))):
        with comm.case(f"scores of {name}"):
            answer, log_sum = pair(student.attend(query, key, value, MANY_KEYS), "attend")
            right, right_sum = attention(query, key, value, MANY_KEYS)
            expect(
                bool(np.isfinite(answer).all() and np.isfinite(log_sum).all()),
                "there are infinities or nan: exp(10,000) is no float, and exp(−10,000) is 0; subtract each row's "
                "largest score, whatever its sign",
            )
            equal("the answer", answer, right)
            equal("L", log_sum, right_sum)


def check_join(student: Any, comm: Comm) -> None:
    query, key, value = numbers(MANY_KEYS, WIDTH, seed=1)
    cases = {"two halves": (0, 4, 100), "the second half first": (4, 0, 100), "a causal mask": (0, 4, 0)}
    for name, (first, second, ahead) in cases.items():
        with comm.case(name):
            parts = [
                attention(query, key[start : start + 4], value[start : start + 4], ahead - start)
                for start in (first, second)
            ]
            answer, log_sum = pair(student.join(*parts[0], *parts[1]), "join")
            right, right_sum = attention(query, key, value, ahead)
            expect(
                not alike(answer, (parts[0][0] + parts[1][0]) / 2),
                "the answer is the mean of the two: each counts by its share of the sum, exp(L of the block − L)",
            )
            expect(
                not alike(answer, parts[0][0] + parts[1][0]),
                "the answer is the sum of the two: each counts by its share of the sum, exp(L of the block − L)",
            )
            equal("the answer", answer, right)
            equal("L", log_sum, right_sum)
    with comm.case("no key seen in either block"):
        nothing = np.zeros((2, WIDTH)), np.full(2, -np.inf)
        warned: list[str] = []
        with noting_warnings(student, warned):
            answer, log_sum = pair(student.join(*nothing, *nothing), "join")
        expect(not np.isnan(answer).any(), "an answer is nan: −inf − (−inf) is none; it should stay 0")
        equal("the answer", answer, nothing[0])
        equal("L", log_sum, nothing[1])
        expect(not warned, f"join warns ({''.join(warned[:1])}): −inf − (−inf) is computed, though it is not used")
    with comm.case("sums of exp(2,000)"):
        same = np.ones((2, WIDTH)), np.full(2, 2000.0)
        with noting_warnings(student, []):
            answer, log_sum = pair(student.join(*same, *same), "join")
        expect(bool(np.isfinite(answer).all()), "there are infinities or nan: use L only in differences")
        equal("the answer", answer, same[0])
        equal("L", log_sum, same[1] + np.log(2))


def ring(student: Any, comm: Comm, own: int = OWN, width: int = WIDTH) -> tuple[Vector, list[Vector]]:
    """Return the submission's result for this rank's positions, and the whole sequence."""
    whole = numbers(comm.size * own, width)
    here = slice(comm.rank * own, (comm.rank + 1) * own)
    parts = [each[here].copy() for each in whole]
    found = student.ring_attention(*parts, comm)
    expect_returned(found, "ring_attention")
    for name, part, before in zip(("query", "key", "value"), parts, whole, strict=True):
        expect(np.array_equal(part, before[here]), f"ring_attention changes {name}: work on a copy")
    return found, whole


def check_attention(student: Any, comm: Comm) -> None:
    found, (query, key, value) = ring(student, comm)
    here = slice(comm.rank * OWN, (comm.rank + 1) * OWN)
    right = attention(query, key, value, 0)[0][here]
    if alike(found, right):
        return
    what = f"the answer on rank {comm.rank}"
    alone = attention(query[here], key[here], value[here], 0)[0]
    expect(not alike(found, alone), f"{what} has seen this rank's keys alone: those of the ranks before it count too")
    everything = attention(query, key, value, 10_000)[0][here]
    expect(not alike(found, everything), f"{what} has seen keys after the query: which positions has the block now?")
    blocks = [slice(rank * OWN, (rank + 1) * OWN) for rank in range(comm.size)]
    mirrored = [blocks[rank] for rank in range(comm.size) if (2 * comm.rank - rank) % comm.size < comm.rank]
    keys, values = (np.concatenate([each[block] for block in (*mirrored, here)]) for each in (key, value))
    expect(
        not alike(found, attention(query[here], keys, values, OWN * len(mirrored))[0]),
        f"{what} has seen the keys of other ranks than those before it: whose block is here after each exchange?",
    )
    hint = ": are the blocks of all ranks attended to, each with its own positions?"
    if comm.rank == 0:  # with one rank alone the two checks above say what is wrong
        hint = (
            "; its queries see its own keys alone, since all others come later: which `ahead` have their blocks, "
            "and which L has the answer so far?"
        )
    equal(what, found, right, hint)


def check_bytes(student: Any, comm: Comm) -> None:
    ring(student, comm)
    block = 2 * OWN * WIDTH * 8
    right, sent = (comm.size - 1) * block, comm.bytes_sent
    hint = "P − 1 blocks of keys and values"
    if sent == 0:
        hint = THROUGH_COMM
    elif sent == right + block:
        hint += "; after the last one the ring has no need of another message"
    expect(sent == right, f"rank {comm.rank} sent {sent:,} bytes where a ring sends {right:,}: {hint}")


def check_neighbours(student: Any, comm: Comm) -> None:
    ring(student, comm)
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    strangers = sorted(comm.partners - {left, right})
    known = named(sorted({left, right}))
    expect(not strangers, f"rank {comm.rank} communicated with {named(strangers)}: in a ring it knows only {known}")
    expect(comm.partners, f"rank {comm.rank} sent to no rank: {THROUGH_COMM}")


def check_memory(student: Any, comm: Comm) -> None:
    ring(student, comm)  # what a first call imports is not meant
    own, width = 192, 8
    scores = peak(student, comm, own, width) / (own * own * 8)
    expect(
        scores <= MOST_SCORES,
        f"rank {comm.rank} takes memory for {scores:.1f} blocks of scores at a time: compute the scores of one block, "
        "join its answer, and release them before the next block",
    )
    own, width = 16, 512
    blocks = peak(student, comm, own, width) / (2 * own * width * 8)
    expect(
        blocks <= MOST_BLOCKS,
        f"rank {comm.rank} takes memory for {blocks:.1f} blocks of keys and values: it needs the one that is here and "
        "the one that arrives",
    )


def peak(student: Any, comm: Comm, own: int, width: int) -> int:
    """Bytes that are taken at most, beside the arguments."""
    parts = [each[:own] for each in numbers(own, width)]
    found: list[int] = []
    with noting_peak(student, found):
        student.ring_attention(*parts, comm)
    return found[0]


LAB = Lab(
    title="Ring attention",
    file="ring_attention.py",
    checks=(
        Check("block", 2, (1,), check_block),
        Check("large scores", 1, (1,), check_large_scores, builds_on=("block",)),
        Check("join", 2, (1,), check_join),
        Check("attention", 2, ALL, check_attention, builds_on=("block", "join")),
        Check("bytes", 1, ALL, check_bytes, needs=("attention",)),
        Check("neighbours", 1, (4, 7), check_neighbours, needs=("attention",)),
        Check("memory", 1, (4, 7), check_memory, needs=("attention",)),
    ),
)
