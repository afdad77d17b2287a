"""Sends nothing."""

from __future__ import annotations

import numpy as np

FAILS = {
    "sum": "is anything sent",
    "bytes": "is everything sent through comm",
    "training": "away from where it",
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
    return payload[:half].view(np.int32), payload[half:].view(np.float32)


def sum_of_all(places, values, length, comm):
    total = np.zeros(length, np.float32)
    total[places] = values
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
