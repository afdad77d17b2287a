"""Gives all away to those that hear it."""

from __future__ import annotations

import numpy as np

FAILS = {
    "push-sum": "that it keeps of its own",
}


def metropolis(neighbours):
    weights = np.zeros((len(neighbours), len(neighbours)))
    for one, others in enumerate(neighbours):
        for other in others:
            weights[one, other] = 1 / (1 + max(len(others), len(neighbours[other])))
    return weights + np.diag(1 - weights.sum(axis=1))


def spectral_gap(weights):
    moduli = sorted(abs(np.linalg.eigvalsh(weights)))
    return 1 - moduli[-2] if len(moduli) > 1 else 1.0


def one_peer(rank, ranks, number):
    distances = [2**k for k in range(ranks) if 2**k < ranks] or [0]
    distance = distances[number % len(distances)]
    return (rank + distance) % ranks, (rank - distance) % ranks


def mix(vector, neighbours, comm):
    weights = metropolis(neighbours)[comm.rank]
    old, arriving = vector.copy(), np.empty_like(vector)
    vector *= weights[comm.rank]
    for other in sorted(neighbours[comm.rank]):
        comm.exchange(old, other, arriving, other)
        vector += weights[other] * arriving


def dpsgd_step(vector, gradient, rate, neighbours, comm):
    move = rate * gradient(vector)
    mix(vector, neighbours, comm)
    vector -= move


def push_sum_round(values, weights, hearers):
    new_values, new_weights = np.zeros_like(values), np.zeros_like(weights)
    for rank, others in enumerate(hearers):
        for to in others:
            new_values[to] += values[rank] / len(others)
            new_weights[to] += weights[rank] / len(others)
    return new_values, new_weights
