"""The project's own, in this lab's form: farandole/compression/top_k.py, and dgc.py and exchange.py beside it."""

from __future__ import annotations

import numpy as np

from farandole.compression.top_k import largest as largest_places
from farandole_tools.lab.communicator import LabCommunicator


def largest(vector: np.ndarray, k: int) -> np.ndarray:
    return np.sort(largest_places(vector, k)).astype(np.int32)


def compress(gradient: np.ndarray, residual: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    residual += gradient
    places = largest(residual, k)
    values = residual[places]
    residual[places] = 0
    return places, values


def pack(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.concatenate([places.astype(np.int32).view(np.uint8), values.astype(np.float32).view(np.uint8)])


def unpack(payload: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    half = len(payload) // 2
    return payload[:half].view(np.int32), payload[half:].view(np.float32)


def sum_of_all(places: np.ndarray, values: np.ndarray, length: int, comm: LabCommunicator) -> np.ndarray:
    payloads = {comm.rank: pack(places, values)}
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for hop in range(comm.size - 1):
        arriving = np.empty_like(payloads[comm.rank])
        comm.exchange(payloads[(comm.rank - hop) % comm.size], right, arriving, left)
        payloads[(left - hop) % comm.size] = arriving
    total = np.zeros(length, np.float32)
    for rank in range(comm.size):  # in the same order everywhere, so that all have the same bits
        own_places, own_values = unpack(payloads[rank])
        total[own_places] += own_values
    return total


def compress_with_momentum(
    gradient: np.ndarray, velocity: np.ndarray, residual: np.ndarray, momentum: float, k: int
) -> tuple[np.ndarray, np.ndarray]:
    velocity *= momentum
    velocity += gradient
    places, values = compress(velocity, residual, k)
    velocity[places] = 0
    return places, values
