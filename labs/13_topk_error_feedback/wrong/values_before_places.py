"""Unpacks in another order than it has packed."""

from __future__ import annotations

import numpy as np

FAILS = {
    "payload": "does not give back what pack was given",
}


def largest(vector, k):
    return np.sort(np.argsort(-np.abs(vector), kind="stable")[:k]).astype(np.int32)


def compress(gradient, residual, k):
    residual += gradient
    places = largest(residual, k)
    values = residual[places]
    residual[places] = 0
    return places, values


def pack(places, values):
    return np.concatenate([places.astype(np.int32).view(np.uint8), values.astype(np.float32).view(np.uint8)])


def unpack(payload):
    half = len(payload) // 2
    return payload[half:].view(np.int32), payload[:half].view(np.float32)


def sum_of_all(places, values, length, comm):
    payloads = {comm.rank: pack(places, values)}
    for distance in range(1, comm.size):
        to, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
        payloads[source] = np.empty_like(payloads[comm.rank])
        comm.exchange(payloads[comm.rank], to, payloads[source], source)
    total = np.zeros(length, np.float32)
    for rank in range(comm.size):
        half = len(payloads[rank]) // 2
        total[payloads[rank][:half].view(np.int32)] += payloads[rank][half:].view(np.float32)
    return total


def compress_with_momentum(gradient, velocity, residual, momentum, k):
    velocity *= momentum
    velocity += gradient
    residual += velocity
    places = largest(residual, k)
    values = residual[places]
    residual[places] = 0
    velocity[places] = 0
    return places, values
