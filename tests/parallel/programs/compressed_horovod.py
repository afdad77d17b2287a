"""Our float16 against Horovod's Compression.fp16, on the same vectors."""

import json

import horovod.torch as hvd
import numpy as np
import torch
from mpi4py import MPI

from farandole.compression.exchange import decoded_sum, transfer
from farandole.compression.half_precision import Float16
from farandole.runtime.communicator import Communicator

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
comm = Communicator(world)
hvd.init()  # MPI is initialised by now, and Horovod leaves its end to mpi4py

ROUNDS, LENGTH = 5, 1003
apart, lost = 0.0, 0.0
for number in range(ROUNDS):
    vector = np.random.default_rng([rank, number]).standard_normal(LENGTH).astype(np.float32)
    theirs = hvd.allreduce(torch.from_numpy(vector), compression=hvd.Compression.fp16, op=hvd.Average).numpy()
    compressor = Float16()
    carried = transfer(compressor, comm, compressor.encode(vector / np.float32(size)))
    result = decoded_sum(compressor, carried, LENGTH, size)
    mean = np.empty_like(vector)
    world.Allreduce(vector / np.float32(size), mean)
    scale = np.abs(theirs).max()
    apart = max(apart, float(np.abs(result - theirs).max() / scale))
    lost = max(lost, float(np.abs(theirs - mean).max() / scale))

if rank == 0:
    print(json.dumps({"apart": apart, "lost": lost}))
