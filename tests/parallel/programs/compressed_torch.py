"""PowerSGD and half precision against torch's own hooks of DistributedDataParallel, bucket by bucket."""

import json
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from farandole.collectives.executor import run
from farandole.collectives.ring import RING
from farandole.compression.exchange import decoded_sum, transfer
from farandole.compression.half_precision import BFloat16, Float16
from farandole.compression.powersgd import PowerSGD, orthogonalised
from farandole.runtime.communicator import Communicator

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
comm = Communicator(world)
torch.set_num_threads(1)
BEFORE, STEPS, RANK = 2, 8, 2  # torch's hook sends the first two steps uncompressed


def wrapped_model() -> DistributedDataParallel:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 2))
    return DistributedDataParallel(model)


def train(model: DistributedDataParallel) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 * step + rank)
        inputs = torch.randn(10, 20, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), inputs[:, :2]).backward()
        optimizer.step()


class Compared:
    """Torch's hook, which also records its input, the tensors in it, and its output."""

    def __init__(self, hook, state) -> None:
        self.hook, self.state, self.rounds = hook, state, []

    def reduce(self, state, bucket):
        before = bucket.buffer().detach().numpy().copy()
        shapes = [tuple(each.shape) for each in bucket.gradients()]

        def note(future):
            result = future.value()
            result = result[0] if isinstance(result, list) else result
            self.rounds.append((before, shapes, result.detach().numpy().copy()))
            return result

        return self.hook(self.state, bucket).then(note)


with tempfile.TemporaryDirectory() as folder:
    store = world.bcast(folder)
    dist.init_process_group("gloo", init_method=f"file://{store}/store", rank=rank, world_size=size)

    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=RANK, start_powerSGD_iter=BEFORE, min_compression_rate=1
    )
    powersgd, model = Compared(powerSGD_hook.powerSGD_hook, state), wrapped_model()
    model.register_comm_hook(None, powersgd.reduce)
    train(model)

    half = {}
    for compressor, hook in (
        (Float16(), default_hooks.fp16_compress_hook),
        (BFloat16(), default_hooks.bf16_compress_hook),
    ):
        half[compressor], model = Compared(hook, None), wrapped_model()
        model.register_comm_hook(None, half[compressor].reduce)
        train(model)
    dist.destroy_process_group()
    world.Barrier()

_, shapes, _ = powersgd.rounds[BEFORE]
ours = PowerSGD(shapes, RANK, size, np.random.default_rng(0))
assert len(ours.matrices) == 2, "and the last layer's is too small"
torch.manual_seed(np.random.RandomState(0).randint(1_000_000_000))
ours.right = [orthogonalised(torch.randn(1, columns, RANK)[0].numpy()) for _, _, columns in ours.matrices]
furthest, lost = 0.0, 0.0
for before, its, theirs in powersgd.rounds[BEFORE:]:
    assert its == shapes
    left = ours.project(before / np.float32(size))
    run(RING, comm, left)
    right = ours.project_back(left)
    run(RING, comm, right)
    result = ours.decode(right)
    mean = before.copy()
    world.Allreduce(MPI.IN_PLACE, mean)
    scale = np.abs(theirs).max()
    furthest = max(furthest, float(np.abs(result - theirs).max() / scale))
    lost = max(lost, float(np.abs(result - mean / size).max() / scale))

apart = dict.fromkeys(half, 0.0)
for compressor, compared in half.items():
    assert len(compared.rounds) == STEPS
    for before, _, theirs in compared.rounds:
        carried = transfer(compressor, comm, compressor.encode(before / np.float32(size)))
        result = decoded_sum(compressor, carried, len(before), size)
        # Torch adds bfloat16 numbers as such, so its sums are rounded; ours are float32's.
        result = compressor.decode(compressor.encode(result), len(result))
        apart[compressor] = max(apart[compressor], float(np.abs(result - theirs).max() / np.abs(theirs).max()))

if rank == 0:
    found = {"powersgd": furthest, "lost": lost, "rounds": len(powersgd.rounds) - BEFORE}
    print(json.dumps(found | {type(compressor).__name__: value for compressor, value in apart.items()}))
