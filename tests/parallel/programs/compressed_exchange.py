"""Each rank's result of every compressor's exchange, against decoding all ranks' payloads in one process."""

import json

import numpy as np
from mpi4py import MPI
from tests.expected_bytes import bytes_leaving

from farandole.compression.choices import build
from farandole.compression.compressor import Compressor
from farandole.compression.exchange import decoded_sum, gather, transfer
from farandole.compression.options import CompressionOptions
from farandole.compression.powersgd import PowerSGD
from farandole.runtime.communicator import Communicator

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
NAMES = ["none", "float16", "bfloat16", "qsgd", "terngrad", "sign", "top-k", "random-k", "dgc"]
LENGTHS = [0, 1, size - 1, 7, 1003]


def gradient(of: int, length: int, step: int) -> np.ndarray:
    return np.random.default_rng([of, length, step]).standard_normal(length).astype(np.float32)


def made(name: str, of: int, length: int) -> Compressor:
    compressor = build(CompressionOptions(compressor=name, fraction=0.05, bucket=64), [(length,)], 5, of, size)
    assert not isinstance(compressor, PowerSGD)
    return compressor


checked = 0
for name in NAMES:
    for length in LENGTHS:
        own = made(name, rank, length)
        everybody = [made(name, of, length) for of in range(size)]
        for step in range(3):
            comm = Communicator(world)
            expected_bytes = bytes_leaving(own, length, rank, size)
            payload = own.encode(gradient(rank, length, step))
            carried = transfer(own, comm, payload)
            result = decoded_sum(own, carried, length, size)
            assert comm.bytes_sent == expected_bytes, (name, length)
            assert comm.messages_sent == (size - 1) * (1 if own.sums_as is None else 2)
            assert len(set(world.allgather(result.tobytes()))) == 1, f"{name}: not the same bits on all ranks"
            decoded = np.zeros(length, np.float32)
            for of, each in enumerate(everybody):
                decoded += each.decode(each.encode(gradient(of, length, step)), length)
            if own.sums_as is None:
                assert result.tobytes() == decoded.tobytes(), (name, length)
            else:
                rounding = 2**-9 if name == "float16" else 1e-6
                np.testing.assert_allclose(result, decoded, rtol=rounding, atol=size * 8 * rounding, err_msg=name)
            checked += 1

# Gathering alone: in rank order, for any length.
for length in (0, 1, 5):
    gathered = gather(Communicator(world), np.full(length, rank, np.uint8))
    assert gathered.tolist() == [of for of in range(size) for _ in range(length)]

if rank == 0:
    print(json.dumps({"checked": checked}))
