"""Checks of lab 14: the weights, the speed of convergence to the mean, and the messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import expect_returned, expect_sent

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]
Graph = list[set[int]]

LENGTH = 50
RANKS = (2, 3, 4, 7)
ROUNDS = 300
RATE = 0.05


# ── graphs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def undirected(ranks: int, edges: set[tuple[int, int]]) -> Graph:
    both = edges | {(other, one) for one, other in edges}
    return [{other for one, other in both if one == rank and other != rank} for rank in range(ranks)]


def ring(ranks: int) -> Graph:
    return undirected(ranks, {(rank, (rank + 1) % ranks) for rank in range(ranks)})


def path(ranks: int) -> Graph:
    return undirected(ranks, {(rank, rank + 1) for rank in range(ranks - 1)})


def star(ranks: int) -> Graph:
    return undirected(ranks, {(0, rank) for rank in range(1, ranks)})


def complete(ranks: int) -> Graph:
    return undirected(ranks, {(one, other) for one in range(ranks) for other in range(one)})


def star_with_a_tail(ranks: int) -> Graph:
    """A star whose last leaf hangs on another leaf: neighbours have different degrees."""
    return undirected(ranks, {(0, rank) for rank in range(1, ranks - 1)} | {(max(0, ranks - 2), ranks - 1)})


GRAPHS = {
    "a ring": ring,
    "a path": path,
    "a star": star,
    "a star with a tail": star_with_a_tail,
    "all with all": complete,
}


def right_weights(neighbours: Graph) -> Vector:
    ranks = len(neighbours)
    weights = np.zeros((ranks, ranks))
    for one, others in enumerate(neighbours):
        for other in others:
            weights[one, other] = 1 / (1 + max(len(others), len(neighbours[other])))
    weights[np.diag_indices(ranks)] = 1 - weights.sum(axis=1)
    return weights


# ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def matrix(answer: Any, ranks: int) -> Vector:
    expect_returned(answer, "metropolis")
    weights = np.asarray(answer, dtype=np.float64)
    expect(weights.shape == (ranks, ranks), f"metropolis returns shape {weights.shape}; it is ({ranks}, {ranks})")
    return weights


def check_weights(student: Any, comm: Comm) -> None:
    for name, graph in GRAPHS.items():
        for ranks in (4, 6, 2, 1):
            with comm.case(f"{name} of {ranks}"):
                neighbours = graph(ranks)
                judge_weights(matrix(student.metropolis(neighbours), ranks), neighbours)


def judge_weights(weights: Vector, neighbours: Graph) -> None:
    right, ranks = right_weights(neighbours), len(neighbours)
    if np.allclose(weights, right, rtol=0, atol=1e-9):
        return
    rows, columns = weights.sum(axis=1), weights.sum(axis=0)
    if not np.allclose(rows, 1):
        row = int(np.argmax(np.abs(rows - 1)))
        expect(
            False,
            f"row {row} sums to {rows[row]:.3g}, not to 1: equal vectors would not stay as they are; what a rank does "
            "not take from its neighbours it keeps for itself",
        )
    if not np.allclose(columns, 1):
        column = int(np.argmax(np.abs(columns - 1)))
        expect(
            False,
            f"the rows sum to 1, but column {column} to {columns[column]:.3g}: rank {column} counts for more or less "
            "than the others, and the mean of all moves. Both ends of an edge need the same weight",
        )
    strangers = [
        (one, other)
        for one in range(ranks)
        for other in range(ranks)
        if weights[one, other] and one != other and other not in neighbours[one]
    ]
    expect(not strangers, "rank {} mixes with rank {}, which is no neighbour".format(*(strangers or [(0, 0)])[0]))
    one, other = map(int, np.unravel_index(np.argmax(np.abs(weights - right)), weights.shape))
    expect(
        False,
        f"W[{one}, {other}] is {weights[one, other]:.3g} and should be {right[one, other]:.3g}: rows and columns sum "
        "to 1, but the weight of an edge uses the larger degree of its two ranks, not the largest of the graph",
    )


def check_gap(student: Any, comm: Comm) -> None:
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    cases = {
        "a ring of 4": right_weights(ring(4)),
        "a ring of 8": right_weights(ring(8)),
        "all with all": right_weights(complete(5)),
        "none with any other": np.eye(3),
        "a star of 6": right_weights(star(6)),
        "two ranks that swap": swap,
        "one rank alone": np.ones((1, 1)),
    }
    for name, weights in cases.items():
        with comm.case(name):
            answer = student.spectral_gap(weights.copy())
            expect_returned(answer, "spectral_gap")
            judge_gap(float(np.real(answer)), np.sort(np.linalg.eigvalsh(weights))[::-1])


def judge_gap(gap: float, eigenvalues: Vector) -> None:
    others = eigenvalues[1:]
    right = 1 - float(np.abs(others).max(initial=0.0))
    if abs(gap - right) <= 1e-9:
        return
    hint = f"the eigenvalues are {', '.join(f'{each:.3g}' for each in eigenvalues)}"
    if len(others):
        expect(
            abs(gap - (1 - others[0])) > 1e-9,
            f"the gap is {right:.3g}, not {gap:.3g}: {hint}; an eigenvalue "
            "near −1 does not decay either, so their moduli count",
        )
        expect(abs(gap - (1 - right)) > 1e-9, f"{gap:.3g} is the eigenvalue; the gap is 1 minus that, {right:.3g}")
    expect(False, f"the gap is {right:.3g}, not {gap:.3g}: {hint}")


def check_one_peer(student: Any, comm: Comm) -> None:
    for ranks in (4, 8, 2, 16, 1, 3, 5, 7):
        with comm.case(f"{ranks} rank{'s' if ranks > 1 else ''}"):
            judge_one_peer(student, ranks)


def judge_one_peer(student: Any, ranks: int) -> None:
    rounds = max(1, (ranks - 1).bit_length())
    shares = np.eye(ranks)  # row i: how much of each rank's vector is in rank i's
    for number in range(2 * rounds):
        pairs = [student.one_peer(rank, ranks, number) for rank in range(ranks)]
        for rank, (to, source) in enumerate(pairs):
            expect(
                0 <= to < ranks and 0 <= source < ranks,
                f"in round {number} rank {rank} is to send to {to} and "
                f"to receive from {source}: the ranks are 0 to {ranks - 1}",
            )
            expect(
                pairs[to][1] == rank,
                f"in round {number} rank {rank} sends to rank {to}, which receives from rank "
                f"{pairs[to][1]}: from which rank does one receive, if all send to the right?",
            )
        distances = {(to - rank) % ranks for rank, (to, _) in enumerate(pairs)}
        expect(
            len(distances) == 1,
            f"in round {number} some send {' and some '.join(map(str, sorted(distances)))} ranks to the right: in a "
            "round all send to the right by the same distance",
        )
        shares = (shares + shares[[source for _, source in pairs]]) / 2
        if number + 1 == rounds and ranks & (ranks - 1) == 0:
            expect(
                np.allclose(shares, 1 / ranks),
                f"after lg P = {rounds} rounds all should have the exact mean, "
                f"{1 / ranks:.3g} of each vector; they have from {shares.min():.3g} to {shares.max():.3g}: are "
                "the distances 1, 2, 4, …?",
            )
    pairs = [student.one_peer(0, ranks, number)[0] for number in range(2 * rounds)]
    expect(
        pairs[:rounds] == pairs[rounds:],
        f"after {rounds} rounds the distances begin again, with 1; rank 0 sends to {pairs}",
    )
    for number, to in enumerate(pairs):
        right = 2 ** (number % rounds) % ranks
        expect(
            to in (right, -right % ranks),
            f"in round {number} rank 0 sends to rank {to}, where the distance is {right}: 1, 2, 4, …, from round 0 on",
        )


# ── on ranks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def vectors(ranks: int) -> Vector:
    """Return the vectors of all ranks, one per row; the same on all ranks."""
    return np.random.default_rng(ranks).normal(size=(ranks, LENGTH))


def check_mix(student: Any, comm: Comm) -> None:
    everybodys = vectors(comm.size)
    for name, graph in GRAPHS.items():
        with comm.case(name):
            neighbours = graph(comm.size)
            right = right_weights(neighbours) @ everybodys
            vector = everybodys[comm.rank].copy()
            returned = student.mix(vector, neighbours, comm)
            expect(returned is None, "mix returns something: the result belongs into the vector itself")
            gathered = np.array(comm.everybodys(vector))
            judge_mixed(gathered, right, everybodys, neighbours, comm.rank)


def judge_mixed(gathered: Vector, right: Vector, before: Vector, neighbours: Graph, rank: int) -> None:
    if np.allclose(gathered, right, rtol=0, atol=1e-9):
        return
    wrong = int(np.argmax(np.abs(gathered - right).max(axis=1)))
    weights = right_weights(neighbours)
    expect(not np.array_equal(gathered[wrong], before[wrong]), f"rank {wrong}'s vector is as it was")
    without_own = right[wrong] - weights[wrong, wrong] * before[wrong]
    expect(
        not np.allclose(gathered[wrong], without_own),
        f"rank {wrong} has what its neighbours send, and its own vector is missing: W[i, i] is a weight, too",
    )
    moved = np.abs(gathered.mean(axis=0) - before.mean(axis=0)).max()
    own, *_ = np.linalg.lstsq(before.T, gathered[wrong], rcond=None)
    strange = [
        other
        for other in range(len(before))
        if abs(own[other]) > 1e-6 and other != wrong and other not in neighbours[wrong]
    ]
    expect(
        not strange,
        f"rank {wrong} has something of rank {(strange or [0])[0]}'s vector, which is no neighbour of it: does "
        "every rank send its vector as it was before the round, or what it has already mixed?",
    )
    for other, factor in scaled(gathered, before, weights):
        expect(
            False,
            f"all neighbours of rank {other} have {factor:.3g} times what they should have of its vector: has it sent "
            f"{factor:.3g} times its vector? Send it as it was before the round",
        )
    shares = ", ".join(f"{share:.3g} of rank {other}'s" for other, share in enumerate(own) if abs(share) > 1e-6)
    expect(
        False,
        f"rank {wrong} has {shares}; right is "
        f"{', '.join(f'{share:.3g}' for share in weights[wrong])}"
        + ("; and the mean of all has moved" if moved > 1e-9 else ""),
    )


def scaled(gathered: Vector, before: Vector, weights: Vector) -> Iterator[tuple[int, float]]:
    """Yield the ranks that count with the same wrong factor for all their neighbours, if that is all that is wrong."""
    found, *_ = np.linalg.lstsq(before.T, gathered.T, rcond=None)
    edges = (weights > 0) & ~np.eye(len(weights), dtype=bool)
    factors = np.array([np.mean(found[rank][edges[rank]] / weights[rank][edges[rank]]) for rank in range(len(weights))])
    if np.allclose(found, weights * np.where(edges, factors[:, None], 1), atol=1e-6):
        yield from ((rank, float(factor)) for rank, factor in enumerate(factors) if not np.isclose(factor, 1))


def check_messages(student: Any, comm: Comm) -> None:
    for name, graph in (("a star", star), ("a path", path), ("all with all", complete)):
        with comm.case(name):
            neighbours = graph(comm.size)
            messages, nbytes = comm.messages_sent, comm.bytes_sent
            comm.partners.clear()
            student.mix(vectors(comm.size)[comm.rank].copy(), neighbours, comm)
            own, sent = neighbours[comm.rank], comm.messages_sent - messages
            strangers = comm.partners - own
            expect(not strangers, f"rank {comm.rank} talks to rank {min(strangers, default=0)}, which is no neighbour")
            expect_sent(comm, sent or not own)
            expect(
                sent == len(own),
                f"rank {comm.rank} sent {sent} messages to {len(own)} neighbour(s): one to each is enough",
            )
            taken, right = comm.bytes_sent - nbytes, 8 * LENGTH * len(own)
            expect(taken == right, f"rank {comm.rank} sent {taken:,} bytes where {len(own)} vectors have {right:,}")


def check_step(student: Any, comm: Comm) -> None:
    """½‖x − t_i‖² on each rank: no rank's minimum, but that of the sum is the mean of all targets."""
    targets, start = vectors(comm.size), vectors(comm.size + 1)[: comm.size]
    neighbours = star_with_a_tail(comm.size)
    weights = right_weights(neighbours)
    vector = start[comm.rank].copy()
    with comm.case("one step"):
        student.dpsgd_step(vector, lambda x: x - targets[comm.rank], RATE, neighbours, comm)
        gathered = np.array(comm.everybodys(vector))
        judge_step(gathered, weights, start, targets)
    with comm.case(f"{ROUNDS} steps"):
        for _ in range(ROUNDS):
            student.dpsgd_step(vector, lambda x: x - targets[comm.rank], RATE, neighbours, comm)
        mean = np.mean(comm.everybodys(vector), axis=0)
        expect(
            np.allclose(mean, targets.mean(axis=0), rtol=0, atol=1e-4),
            "the mean of all does not come to the minimum of the sum of all losses: is the gradient counted once?",
        )


def judge_step(gathered: Vector, weights: Vector, start: Vector, targets: Vector) -> None:
    def at(points: Vector) -> Vector:
        return points - targets

    mixed = weights @ start
    if np.allclose(gathered, mixed - RATE * at(start), rtol=0, atol=1e-9):
        return
    for mistaken, hint in (
        (mixed - RATE * at(mixed), "the gradient is that at the mixed vector; it is to be computed at the one before"),
        (
            weights @ (start - RATE * at(start)),
            "that is the step first, and then the mixing of what all have after it; mix the vectors as they were "
            "before the step",
        ),
        (mixed + RATE * at(start), "that goes uphill"),
        (mixed, "that is the mixing alone"),
        (start - RATE * at(start), "that is the own step alone, without the neighbours"),
    ):
        expect(not np.allclose(gathered, mistaken, rtol=0, atol=1e-9), f"x_i is not Σ W x_j − rate·g_i: {hint}")
    expect(False, "x_i is not Σ W x_j − rate·g_i(x_i): is mix right, and the gradient taken before it?")


# ── push-sum ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_push_sum(student: Any, comm: Comm) -> None:
    # All send to the right, and rank 0 to rank 2 besides: some ranks have more senders than others.
    hearers = [{1, 2}, {2}, {3}, {4}, {0}]
    values, weights = vectors(5)[:, :3], np.ones(5)
    before = values.copy()
    total, mean = values.sum(axis=0), values.mean(axis=0)
    for number in range(200):
        answer = student.push_sum_round(values, weights, hearers)
        expect_returned(answer, "push_sum_round")
        if number == 0:
            expect(np.array_equal(values, before), "push_sum_round changes the values that it is given")
            expect(np.array_equal(weights, np.ones(5)), "push_sum_round changes the weights that it is given")
        values, weights = (np.asarray(each, dtype=np.float64) for each in answer)
        expect(
            np.allclose(values.sum(axis=0), total) or not np.allclose(weights @ values, total),
            "the values come back divided by their weights: return the values, and the caller divides",
        )
        expect(
            np.allclose(values.sum(axis=0), total),
            f"after round {number} the sum of all values has changed: do each rank's parts sum to what it had before?",
        )
        expect(
            np.isclose(weights.sum(), 5),
            f"after round {number} the weights sum to {weights.sum():.3g}, not to 5: "
            "they are cut and sent as the values are",
        )
        if number == 0:
            expect(
                not np.allclose(weights, 1),
                "after a round all weights are 1 still: they travel with the values, "
                "and a rank that fewer send to has less",
            )
            expect(
                np.isclose(weights[1], 1 / 3 + 1 / 2),
                f"rank 1 has a weight of {weights[1]:.3g} after a round: "
                "a third of rank 0's, and the half that it keeps for itself",
            )
    expect(
        np.allclose(values / weights[:, None], mean, atol=1e-6),
        "values / weights do not come to the mean in 200 rounds",
    )


LAB = Lab(
    title="Gossip and mixing",
    file="gossip_mixing.py",
    patience=5.0,
    checks=(
        Check("weights", 2, (1,), check_weights),
        Check("gap", 1, (1,), check_gap),
        Check("one peer", 1, (1,), check_one_peer),
        Check("mix", 2, RANKS, check_mix, builds_on=("weights",)),
        Check("messages", 1, RANKS, check_messages, needs=("mix",)),
        Check("step", 2, RANKS, check_step, builds_on=("weights", "mix")),
        Check("push-sum", 1, (1,), check_push_sum),
    ),
)
