"""AD-PSGD: pairs average whenever one is ready. Whatever the order, nothing is lost: Σx moves only by gradients."""

import json
import sys
import time

import numpy as np
import torch
from torch import nn

from farandole.decentralised.ad_psgd import ADPSGD
from farandole.decentralised.iteration_server import IterationServer
from farandole.decentralised.iterations import NONE_LEFT
from farandole.decentralised.topologies import topology
from farandole.models.optimizers import SGD, maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

GRAPH, COUNT, LR = sys.argv[1], int(sys.argv[2]), 0.05


class Remembering(SGD):
    """Plain SGD that adds up its updates."""

    moved = 0.0

    def step(self) -> None:
        self.moved = self.moved + self.lr * self.gradients.numpy()
        super().step()


def model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


with World.start(RunOptions(wait_timeout=30)) as world:
    noise = np.random.default_rng(world.rank)
    pairs = ADPSGD(world, model(), classification, maker("sgd", LR), topology(GRAPH, world.size), seed=5)
    pairs.optimizer = Remembering(pairs.flat.values, pairs.flat.gradients, LR)
    start = pairs.x.copy()
    work = IterationServer(world, COUNT)
    own = 0
    while work.next(False) != NONE_LEFT:
        inputs, targets = noise.standard_normal((4, 6)), noise.integers(0, 3, 4)
        pairs.step((torch.from_numpy(inputs), torch.from_numpy(targets)), 1 / world.size)
        if world.rank == world.size - 1:
            time.sleep(0.01)  # a slow rank
        own += 1
    world.control.Barrier()  # no rank asks any more
    sent = [world.comm.bytes_sent, world.comm.messages_sent]
    apart = pairs.observe()(world.control.Allreduce)["consensus_error"]
    pairs.finish()
    work.close()
    moved = np.sum(world.control.allgather(np.broadcast_to(pairs.optimizer.moved, start.shape)), axis=0)
    np.testing.assert_allclose(pairs.x, start - moved / world.size, atol=1e-12, err_msg="a gradient counts once")
    assert len(set(world.control.allgather(pairs.x.tobytes()))) == 1, "in the end all have the mean"
    everybodys = world.control.allgather((own, pairs.averages, *sent))
    if world.rank == 0:
        done = work.iterations
        answer = {"ranks": everybodys, "length": len(start), "apart": apart}
        answer |= {"staleness": dict(done.staleness), "lead": dict(done.lead)}
        print(json.dumps(answer))
