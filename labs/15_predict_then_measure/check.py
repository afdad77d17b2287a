"""Checks of lab 15: the fit, the cost of an all-reduce and of a step by formula, and predictions of measured times."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole.collectives.costs import coefficients
from farandole.collectives.executor import run
from farandole.collectives.ring import RING
from farandole.collectives.schedules import SCHEDULES
from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.expectations import expect_returned
from farandole_tools.lab.slow_link import SlowLink

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]

ON_PAPER = 0.02  # relative error: room for a submission that computes an expectation by drawing
TOO_SHORT, TOO_LONG = 0.22, 0.15  # of a step; a machine that has other things to do can only make it longer
OF_ALPHA, OF_BETA = 0.35, 0.25
FLOATS = 20_000  # of the gradient on ranks
COMPUTE_S = (0.004, 0.005, 0.1, 0.006, 0.005, 0.004, 0.006, 0.1, 0.005, 0.005, 0.004, 0.006)
EVERY = 4
TRIES = 3  # a busy machine may spoil one
RETRY_S = 6.0  # and none is begun later than that
SETUP_S = 0.1


def number(answer: Any, call: str) -> float:
    """Return `answer` as a float if it is a number that can be a time."""
    expect_returned(answer, call)
    try:
        value = float(answer)
    except (TypeError, ValueError):
        expect(False, f"{call} returns {str(answer)[:60]}: a number of seconds is needed")
    expect(math.isfinite(value) and value >= 0, f"{call} returns {value:g}: a time is finite and not below 0")
    return value


def pair(answer: Any, call: str) -> tuple[float, float]:
    expect_returned(answer, call)
    try:
        alpha, beta = (float(each) for each in answer)
    except (TypeError, ValueError):
        expect(False, f"{call} returns {str(answer)[:60]}: two numbers, alpha and beta, are needed")
    expect(math.isfinite(alpha) and math.isfinite(beta), f"{call} returns {alpha:g} and {beta:g}")
    return alpha, beta


def near(value: float, right: float, bound: float = ON_PAPER) -> bool:
    return abs(value - right) <= bound * right + 1e-15


def off(value: float, right: float) -> str:
    """Return the relative error in words."""
    if right == 0:
        return f"{value:.3g}, right is 0"
    percent = round(100 * (value / right - 1))
    return f"{abs(percent)} % too {'long' if percent > 0 else 'short'}"


# ── fit ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def fitted(nbytes: Vector, seconds: Vector, relative: bool = True) -> tuple[float, float]:
    """Return the line by least squares with α and β not below 0; the corners of the allowed region are tried, too."""
    weights = 1 / seconds if relative else np.ones(len(seconds))
    columns, aim = np.stack([weights, nbytes * weights], axis=1), seconds * weights
    candidates = []
    for kept in ([0, 1], [0], [1]):
        solution = np.zeros(2)
        solution[kept] = np.linalg.lstsq(columns[:, kept], aim)[0]
        if (solution >= 0).all():
            candidates.append((float(((columns @ solution - aim) ** 2).sum()), *map(float, solution)))
    _, alpha, beta = min(candidates)
    return alpha, beta


def check_fit(student: Any, comm: Comm) -> None:
    nbytes = np.array([8.0, 1e3, 1e4, 1e5, 1e6])
    exact = 5e-5 + nbytes * 1e-9
    noise = np.array([1.0, 1.12, 0.93, 1.05, 0.9])
    with comm.case("times exactly on a line"):
        judge_fit(student, nbytes, exact)
    with comm.case("the same times, each some per cent off"):
        judge_fit(student, nbytes, exact * noise)
    with comm.case("the longest message measured twice as long as it is"):
        judge_fit(student, nbytes, exact * np.array([1, 1, 1, 1, 2]))
    with comm.case("short messages that took hardly any time"):
        judge_fit(student, nbytes[2:], np.array([6e-6, 1.1e-4, 1.0e-3]))
    with comm.case("long messages no slower than short ones"):
        judge_fit(student, nbytes[:4], np.array([2e-5, 1.9e-5, 2.1e-5, 1.7e-5]))


def judge_fit(student: Any, nbytes: Vector, seconds: Vector) -> None:
    alpha, beta = pair(student.fit(nbytes.tolist(), seconds.tolist()), "fit")
    right = fitted(nbytes, seconds)
    answer = f"fit returns α = {alpha:.3g} and β = {beta:.3g}"
    scale = float(seconds.min()), float(seconds.max() / nbytes.max())

    def is_near(other: tuple[float, float]) -> bool:
        return all(abs(a - b) <= 1e-3 * s for a, b, s in zip((alpha, beta), other, scale, strict=True))

    if is_near(right):
        return
    expect(alpha >= 0 and beta >= 0, f"{answer}: neither can be below 0")
    expect(
        not (right[1] and near(beta, 1 / right[1])),
        f"{answer}: β is in seconds per byte, not bytes per second: 1 over it",
    )
    expect(not is_near((right[1], right[0])), f"{answer}: the two are the other way round")
    absolute = fitted(nbytes, seconds, relative=False)
    expect(
        not is_near(absolute),
        f"{answer}, which minimises the absolute errors, so that only long messages count: minimise the relative ones, "
        "each error divided by its time",
    )
    expect(
        right[0] and right[1],
        f"{answer}, right is α = {right[0]:.3g}, β = {right[1]:.3g}: if the best line would have one of them below 0, "
        "that one is 0, and the other is to be fitted again without it",
    )
    expect(False, f"{answer}, right is α = {right[0]:.3g}, β = {right[1]:.3g}")


# ── all-reduce ───────────────────────────────────────────────────────────────────────────────────────────────────────


def check_all_reduce(student: Any, comm: Comm) -> None:
    for method in ("ring", "tree", "doubling"):
        for ranks in (2, 4, 8, 64, 1, 3, 5, 7, 12):
            with comm.case(f"{method}, {ranks} rank{'s' if ranks > 1 else ''}"):
                judge_all_reduce(student, method, ranks)


def judge_all_reduce(student: Any, method: str, ranks: int) -> None:
    nbytes = 840 * 64  # every number of ranks divides it
    alphas, betas, _ = coefficients(SCHEDULES[method][0], ranks)

    def seconds(alpha: float, beta: float) -> float:
        return number(student.all_reduce_seconds(method, ranks, nbytes, alpha, beta), "all_reduce_seconds")

    own_alphas, own_betas = seconds(1.0, 0.0), seconds(0.0, 1.0) / nbytes
    answer = f"you count {own_alphas:.4g} α + {own_betas:.4g} nβ, and it is {alphas:.4g} α + {betas:.4g} nβ"
    if near(own_alphas, alphas) and near(own_betas, betas):
        both = seconds(2e-3, 1e-7)
        right = 2e-3 * alphas + 1e-7 * nbytes * betas
        expect(near(both, right), f"α = 2 ms and β = 0.1 µs together: your prediction is {off(both, right)}")
        return
    hint = "think of which rank sends what to which, round by round"
    power = 2 ** (ranks.bit_length() - 1)
    if ranks == 1:
        hint = "one rank sends nothing"
    elif own_alphas == 0:
        hint = "every message takes α, however short it is"
    elif method == "ring" and near(own_betas, own_alphas):
        hint = "is that the whole vector in every message? It is a P-th of it"
    elif method == "ring" and near(own_alphas, 2 * ranks):
        hint = "a chunk is complete after P − 1 hops, and everywhere after P − 1 more"
    elif method == "tree" and ranks != power and own_alphas < alphas:
        hint = "lg P rounded up: a tree of 5 ranks is as high as one of 8"
    elif near(own_alphas, alphas / 2) and near(own_betas, betas / 2):
        hint = "is that half of it? The sum has still to come back to every rank"
    elif method == "doubling" and ranks != power and own_alphas <= ranks.bit_length():
        hint = f"there are {ranks - power} ranks beyond {power}: their vectors come first, and the sum goes back last"
    expect(False, f"{answer}: {hint}")


# ── the slowest, and a step ──────────────────────────────────────────────────────────────────────────────────────────


def expected_slowest(samples: Sequence[float] | Vector, ranks: int) -> float:
    """The expected maximum of that many draws, each of them any of the samples."""
    below = (np.arange(len(samples) + 1) / len(samples)) ** ranks
    return float(np.sort(samples) @ np.diff(below))


def check_slowest(student: Any, comm: Comm) -> None:
    for samples in ((3.0,), (1.0, 1.0, 1.0, 5.0), (4.0, 1.0, 9.0, 2.0, 2.5), COMPUTE_S):
        for ranks in (1, 2, 3, 16):
            right = expected_slowest(samples, ranks)
            shown = ", ".join(f"{each:g}" for each in samples)
            with comm.case(f"samples {shown}; {ranks} rank{'s' if ranks > 1 else ''}"):
                value = number(student.slowest(list(samples), ranks), "slowest")
                expect(
                    near(value, right),
                    f"slowest returns {value:.4g}, right is {right:.4g}: {hint_slowest(samples, ranks, value)}",
                )


def hint_slowest(samples: Sequence[float], ranks: int, value: float) -> str:
    if near(value, float(np.mean(samples))):
        return "that is the mean; the step lasts until the last one is done"
    if near(value, max(samples)):
        return "that is the largest of all samples; not every step has one so slow"
    if near(value, ranks * float(np.mean(samples))):
        return "the ranks compute at the same time, not one after the other"
    if ranks <= len(samples) and near(value, without_replacement(samples, ranks)):
        return "two ranks may well take equally long: each draws from all the samples"
    below = sum(each * (k / len(samples)) ** ranks for k, each in enumerate(sorted(samples), start=1))
    if near(value, below):
        return "(k/n)^P is the probability of the k-th smallest sample or less; that of less has to be subtracted"
    return "with which probability are all ranks at most at the k-th smallest sample? (k/n)^P"


def without_replacement(samples: Sequence[float], ranks: int) -> float:
    ways = [math.comb(k, ranks) for k in range(len(samples) + 1)]
    return (
        sum((more - fewer) * each for (fewer, more), each in zip(pairwise(ways), sorted(samples), strict=True))
        / ways[-1]
    )


def ring_s(ranks: int, nbytes: float, alpha: float, beta: float) -> float:
    alphas, betas, _ = coefficients(RING, ranks)
    return alphas * alpha + betas * nbytes * beta


def right_step(
    way: str, samples: Sequence[float], ranks: int, nbytes: int, alpha: float, beta: float, every: int
) -> float:
    ring = ring_s(ranks, nbytes, alpha, beta)
    if way == "server":
        return expected_slowest(samples, ranks) + 2 * ranks * (alpha + nbytes * beta)
    if way == "overlapped":
        return expected_slowest(np.maximum(samples, ring), ranks)
    together = in_rounds(samples, every if way == "local" else 1)
    return (expected_slowest(together, ranks) + ring) / (every if way == "local" else 1)


def in_rounds(samples: Sequence[float], every: int) -> Vector:
    rounds = len(samples) // every
    return np.reshape(samples[: rounds * every], (rounds, every)).sum(axis=1)


# Links: (α, β). One of no cost, one where only messages count, one where only bytes do, one where both do.
LINKS = ((0.0, 0.0), (4e-3, 0.0), (0.0, 5e-8), (3e-3, 1e-7))
WAYS = (
    ("synchronous", 1),
    ("local", 1),
    ("local", 3),
    ("local", 5),
    ("overlapped", 1),
    ("server", 1),
    ("synchronous", 3),
)
SPELL_S = (0.004, 0.1, 0.1, 0.006, 0.005, 0.004, 0.006, 0.005, 0.005, 0.005, 0.004, 0.006)  # slow twice in a row


def check_step(student: Any, comm: Comm) -> None:
    samples, nbytes = SPELL_S, 210_000
    for way, every in WAYS:
        for ranks in (1, 4, 7):
            for alpha, beta in LINKS:
                name = f"{way}{f', every {every} steps' if every > 1 or way == 'local' else ''}"
                name = f"{name}, {ranks} rank{'s' if ranks > 1 else ''}"
                with comm.case(f"{name}, α = {alpha:g}, β = {beta:g}"):
                    answer = student.step_seconds(way, list(samples), ranks, nbytes, alpha, beta, every=every)
                    value = number(answer, "step_seconds")
                    right = right_step(way, samples, ranks, nbytes, alpha, beta, every)
                    hint = hint_step(way, every, ranks, nbytes, alpha, beta, value)
                    expect(near(value, right), f"your prediction is {off(value, right)}: {hint}")


def hint_step(way: str, every: int, ranks: int, nbytes: float, alpha: float, beta: float, value: float) -> str:
    """Identify the usual mistake behind a wrong prediction, by computing each mistake's value."""
    if every > 1 and way != "local":
        return "`every` is used only by local; the other methods communicate in every step"
    compute, ring = expected_slowest(SPELL_S, ranks), ring_s(ranks, nbytes, alpha, beta)
    message = alpha + nbytes * beta
    mean = float(np.mean(SPELL_S)) if ranks > 1 else math.nan  # one rank's own is no mistake
    mistakes = [
        (mean + ring, "that has the mean computing time; a step waits for the slowest rank"),
        (max(SPELL_S) + ring, "that is with the largest of all samples; not every step has one so slow"),
    ]
    if way == "local":
        together = expected_slowest(in_rounds(SPELL_S, every), ranks)
        mistakes += [
            (together + ring, f"that is a round of {every} steps; the time of one step is needed"),
            (compute + ring / every, "that waits for the slowest rank in every step; local waits once per round"),
            (compute + ring, "H steps share one all-reduce"),
            (together / every + ring, "H steps share one all-reduce, whose time is divided by H, too"),
        ]
    elif way == "overlapped":
        mistakes += [
            (compute + ring, "that adds computation and communication; here they run at the same time"),
            (max(compute, ring), "the larger of the two means; it is the mean of the larger one, step by step"),
        ]
    elif way == "server":
        mistakes += [
            (compute + 2 * message, "that is one worker's push and pull; all of them go over the server's one link"),
            (compute + ranks * message, "what is pushed has also to be pulled"),
            (compute + (ranks + 1) * message, "the server answers each worker with a separate message"),
            (compute + 2 * (ranks - 1) * message, "`ranks` workers push and pull; the server comes in addition"),
            (mean + 2 * ranks * message, "that has the mean computing time; the server waits for the slowest worker"),
        ]
    for mistaken, hint in mistakes:
        if near(value, mistaken, 1e-6):
            return hint
    return "first the rank that all others wait for, then what goes over the busiest link, one message after the other"


# ── on ranks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def slow(comm: Comm) -> tuple[float, float]:
    """Give the communicator links that cannot be known in advance, the same on all ranks; return α and β."""
    drawn = np.random.default_rng().uniform(size=2)
    first, second = comm.everybodys(drawn)[0]
    alpha, beta = 0.007 + 0.002 * float(first), 1 / (12e6 + 8e6 * float(second))
    comm.link = SlowLink(alpha, beta, SETUP_S)
    return alpha, beta


def measured(student: Any, comm: Comm) -> tuple[float, float]:
    """Return the submission's α and β, on all ranks those of rank 0."""
    own = student.measure(comm)
    alpha, beta = pair(own, "measure") if comm.rank == 0 else (0.0, 0.0)
    alpha, beta = map(float, comm.everybodys(np.array([alpha, beta]), "the end of measure")[0])
    return alpha, beta


def check_measure(student: Any, comm: Comm) -> None:
    for left in reversed(range(TRIES)):
        alpha, beta = slow(comm)
        own_alpha, own_beta = measured(student, comm)
        if near(own_alpha, alpha, OF_ALPHA) and near(own_beta, beta, OF_BETA):
            return
        if not left:
            judge_measured(own_alpha, own_beta, alpha, beta)


def judge_measured(own_alpha: float, own_beta: float, alpha: float, beta: float) -> None:
    answer = f"measured: {told(own_alpha, own_beta)}; the links have {told(alpha, beta)}"
    alphas, betas = own_alpha / alpha, own_beta / beta
    expect(not (1.6 < alphas < 2.6 and 1.6 < betas < 2.6), f"{answer}, about half: a round trip is two messages")
    expect(not near(own_beta * beta, 1, OF_BETA), f"{answer}: β is seconds per byte, not bytes per second")
    expect(not near(betas, 8, OF_BETA), f"{answer}: is a message's length in bytes, 8 for each float64?")
    expect(alphas > 0.1, f"{answer}: α cannot be told from one length alone, nor from long messages alone")
    expect(alphas <= 1 + OF_ALPHA and betas < 3, f"{answer}: is the first message left out, which takes longer?")
    expect(False, f"{answer}: α is {off(own_alpha, alpha)}, β {off(own_beta, beta)}")


def told(alpha: float, beta: float) -> str:
    return f"α = {1e3 * alpha:.2f} ms, β = {1e9 * beta:.1f} ns"


def check_real_steps(student: Any, comm: Comm) -> None:
    """Predict first, from what `measure` says; then the steps are taken, over the same links."""
    began = time.monotonic()
    alpha, beta = slow(comm)
    own = measured(student, comm)
    plan = typical_plan(comm.size)
    for way, every in (("synchronous", 1), ("local", EVERY), ("server", 1)):
        rows = some_steps(plan[1:]) if way == "server" else plan
        with comm.case(f"{way}, every {every} steps" if way == "local" else way):
            answer = student.step_seconds(way, list(COMPUTE_S), len(rows), 8 * FLOATS, *own, every=every)
            predicted = number(answer, "step_seconds")
            took = steps_s(way, every, rows, comm)
            while predicted < (1 - TOO_SHORT) * took and of_rank_0(time.monotonic() - began, comm) < RETRY_S:
                took = min(took, steps_s(way, every, rows, comm))
            expect(
                (1 - TOO_SHORT) * took <= predicted <= (1 + TOO_LONG) * took,
                f"a step took {1e3 * took:.0f} ms; your prediction of {1e3 * predicted:.0f} ms is "
                f"{off(predicted, took)}. You measured {told(*own)}; the links have {told(alpha, beta)}",
            )


def of_rank_0(value: float, comm: Comm) -> float:
    return float(comm.everybodys(np.array([value]))[0][0])


def typical_plan(ranks: int) -> Vector:
    """For each rank the samples in a different order: of many plans the one that is nearest to what is expected.

    So few steps as can be taken here would often be unlike many steps, and a right prediction wrong by chance.
    """
    random = np.random.default_rng(ranks)
    rounds = in_rounds(COMPUTE_S, EVERY)
    blocks = np.reshape(COMPUTE_S, (-1, EVERY))

    def unlike(order: Vector) -> float:
        plan = blocks[order].reshape(ranks, -1)
        steps = plan.max(axis=0).mean() / expected_slowest(COMPUTE_S, ranks)
        together = rounds[order].max(axis=0).mean() / expected_slowest(rounds, ranks)
        workers = plan[1:].max(axis=0).mean() / expected_slowest(COMPUTE_S, max(ranks - 1, 1))
        return float(abs(steps - 1) + abs(together - 1) + abs(workers - 1))

    orders = random.integers(len(blocks), size=(2000, ranks, len(blocks)))
    return blocks[min(orders, key=unlike)].reshape(ranks, -1)


def some_steps(plan: Vector) -> Vector:
    """Four steps of it whose slowest are nearest to what is expected: many workers at one server take long."""
    right = expected_slowest(COMPUTE_S, len(plan))
    chosen = combinations(range(plan.shape[1]), 4)
    return plan[:, list(min(chosen, key=lambda steps: abs(plan[:, steps].max(axis=0).mean() - right)))]


def steps_s(way: str, every: int, plan: Vector, comm: Comm) -> float:
    """Seconds of a step on rank 0: sleep as `plan` says, row by row of the ranks that compute, and communicate."""
    vector = np.zeros(FLOATS)
    row = comm.rank - (comm.size - len(plan))
    comm.barrier()
    start = time.perf_counter()
    for step in range(0, plan.shape[1], every):
        if row >= 0:
            time.sleep(plan[row, step : step + every].sum())
        if way == "server":
            comm.barrier()
            push_and_pull(vector, comm)
        else:
            run(RING, comm, vector)
    comm.barrier()
    took = (time.perf_counter() - start) / plan.shape[1]
    return of_rank_0(took, comm)


def push_and_pull(vector: Vector, comm: Comm) -> None:
    if comm.rank:
        comm.send(vector, 0)
        comm.receive(vector, 0)
        return
    for worker in range(1, comm.size):
        comm.receive(vector, worker)
    for worker in range(1, comm.size):
        comm.send(vector, worker)


LAB = Lab(
    title="Predict, then measure",
    file="predict.py",
    checks=(
        Check("fit", 2, (1,), check_fit),
        Check("all reduce", 2, (1,), check_all_reduce),
        Check("slowest", 1, (1,), check_slowest),
        Check("step", 2, (1,), check_step, builds_on=("all reduce", "slowest")),
        Check("measure", 1, (2, 4), check_measure, builds_on=("fit",)),
        Check("real steps", 2, (2, 4), check_real_steps, builds_on=("step", "measure")),
    ),
)
