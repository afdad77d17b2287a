"""Draws the ranks' times without putting any back."""

from __future__ import annotations

import math
import time

import numpy as np

FAILS = {
    "slowest": "may well take equally long",
    "step": "synchronous, 4 ranks",
}


def fit(nbytes, seconds):
    nbytes, seconds = np.asarray(nbytes, float), np.asarray(seconds, float)
    weights = 1 / seconds
    best = None
    for kept in ([0, 1], [0], [1]):
        columns = np.stack([weights, weights * nbytes], axis=1)
        line = np.zeros(2)
        line[kept] = np.linalg.lstsq(columns[:, kept], seconds * weights)[0]
        error = ((columns @ line - seconds * weights) ** 2).sum()
        if (line >= 0).all() and (best is None or error < best[0]):
            best = error, line
    alpha, beta = best[1]
    return float(alpha), float(beta)


def all_reduce_seconds(method, ranks, nbytes, alpha, beta):
    rounds = ranks.bit_length() - 1
    if method == "ring":
        return 2 * (ranks - 1) * (alpha + nbytes / ranks * beta)
    if method == "tree":
        return 2 * (ranks - 1).bit_length() * (alpha + nbytes * beta)
    beyond = ranks - 2**rounds
    return (rounds + (2 if beyond else 0)) * (alpha + nbytes * beta)


def slowest(samples, ranks):
    samples, left = sorted(samples), len(samples)
    ranks = min(ranks, left)
    ways = [math.comb(k, ranks) for k in range(left + 1)]
    return sum(each * (ways[k + 1] - ways[k]) for k, each in enumerate(samples)) / ways[-1]


def step_seconds(way, samples, ranks, nbytes, alpha, beta, every=1):
    ring = all_reduce_seconds("ring", ranks, nbytes, alpha, beta)
    if way == "server":
        return slowest(samples, ranks) + 2 * ranks * (alpha + nbytes * beta)
    if way == "overlapped":
        return slowest([max(each, ring) for each in samples], ranks)
    if way == "local":
        rounds = [sum(samples[k : k + every]) for k in range(0, len(samples) - every + 1, every)]
        return (slowest(rounds, ranks) + ring) / every
    return slowest(samples, ranks) + ring


def measure(comm):
    if comm.rank > 1:
        return 0.0, 0.0
    sizes = [8, 40_000, 80_000, 200_000]
    there_and_back(np.zeros(1), comm)
    times = [min(there_and_back(np.zeros(n // 8), comm) / 2 for _ in range(5)) for n in sizes]
    return fit(sizes, times)


def there_and_back(array, comm):
    start = time.perf_counter()
    if comm.rank == 0:
        comm.send(array, 1)
        comm.receive(array, 1)
    else:
        comm.receive(array, 0)
        comm.send(array, 0)
    return time.perf_counter() - start
