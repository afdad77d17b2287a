"""The synchronous decentralised methods, against a loop that keeps all ranks' models in one process."""

import json

import numpy as np
import torch
from oracle import found_by_one
from torch import nn
from torch.nn.functional import cross_entropy

from farandole.decentralised.central_directions import CentralDirections
from farandole.decentralised.dpsgd import DPSGD
from farandole.decentralised.graph_file import parse
from farandole.decentralised.mixing import mixing_matrix, pushing
from farandole.decentralised.push_sum import PushSum
from farandole.decentralised.topologies import TOPOLOGIES, Topology, topology
from farandole.models.optimizers import maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

STEPS, LR, OWN_WEIGHT = 7, 0.1, 0.7
MAKE = maker("sgd", LR)


def vector(model: nn.Module) -> np.ndarray:
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).numpy().copy()


def model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    noise = np.random.default_rng([rank, step])
    return torch.from_numpy(noise.standard_normal((5, 6))), torch.from_numpy(noise.integers(0, 3, 5))


def gradient(at: np.ndarray, rank: int, step: int) -> np.ndarray:
    its = model()
    nn.utils.vector_to_parameters(torch.from_numpy(at.copy()), its.parameters())
    inputs, targets = batch(rank, step)
    cross_entropy(its(inputs), targets).backward()
    return torch.cat([each.grad.reshape(-1) for each in its.parameters()]).numpy()


def one_way(ranks: int) -> Topology:
    """A circle, and one more edge: some ranks have more receivers than others."""
    circle = {(rank, (rank + 1) % ranks) for rank in range(ranks)} if ranks > 1 else set()
    return Topology("one way", ranks, (frozenset(circle | ({(0, 2)} if ranks > 2 else set())),))


def star(ranks: int) -> Topology:
    return parse("\n".join(f"0 {other}" for other in range(1, ranks)), ranks, "star")


def gradients(x: np.ndarray, step: int, shares: list[float]) -> np.ndarray:
    """Return each rank's gradient, scaled by its part of the batch."""
    return np.array([len(x) * shares[rank] * gradient(x[rank], rank, step) for rank in range(len(x))])


def dpsgd(x: np.ndarray, shares: list[float], graph: Topology, every: int = 1, after: bool = False):
    """Yield all ranks' parameters after each step."""
    for step in range(1, STEPS + 1):
        weights = mixing_matrix(graph, step // every - 1) if step % every == 0 else np.eye(len(x))
        move = LR * gradients(x, step, shares)
        x = weights @ (x - move) if after else weights @ x - move
        yield x


def push_sum(x: np.ndarray, shares: list[float], graph: Topology, every: int = 1):
    w = np.ones((len(x), 1))
    for step in range(1, STEPS + 1):
        weights = mixing_matrix(graph, step // every - 1, pushing) if step % every == 0 else np.eye(len(x))
        x = weights @ (x - LR * gradients(x / w, step, shares))
        w = weights @ w
        yield x / w


def central_directions(x: np.ndarray, shares: list[float]):
    for step in range(1, STEPS + 1):
        own = np.array([gradient(x[rank], rank, step) for rank in range(len(x))])
        common = sum(share * each for share, each in zip(shares, own, strict=True))
        cosines = own @ common / np.linalg.norm(own, axis=1) / np.linalg.norm(common)
        weight = OWN_WEIGHT * np.clip(cosines, 0, None)[:, None]
        x = x - LR * (weight * own + (1 - weight) * common)
        yield x


with World.start(RunOptions(wait_timeout=30)) as world:
    ranks = world.size
    shares = [(rank + 1) / sum(range(1, ranks + 1)) for rank in range(ranks)]
    graphs = [topology(name, ranks) for name in TOPOLOGIES]
    cases = [(f"d-psgd, {graph.name}", DPSGD, dpsgd, (graph,)) for graph in (*graphs, star(ranks))]
    cases += [(f"d-psgd after, {graph.name}", DPSGD, dpsgd, (graph, 1, True)) for graph in graphs]
    cases += [("d-psgd every 2", DPSGD, dpsgd, (graphs[3], 2))]
    cases += [(f"push-sum, {graph.name}", PushSum, push_sum, (graph,)) for graph in (graphs[3], one_way(ranks))]
    cases += [("push-sum every 3", PushSum, push_sum, (graphs[3], 3))]
    found = {}
    for name, kind, by_hand, arguments in cases:
        start = np.tile(vector(model()), (ranks, 1))
        expected = found_by_one(
            world,
            lambda by_hand=by_hand, arguments=arguments, start=start: [
                x.reshape(-1) for x in by_hand(start, shares, *arguments)
            ],
        ).reshape(STEPS, ranks, -1)
        method = kind(world, model(), classification, MAKE, *arguments)
        method.accumulate = 1 if "every" in name else 2  # the oracle computes each part at once
        before = world.comm.bytes_sent, world.comm.messages_sent
        for step in range(1, STEPS + 1):
            method.step(batch(world.rank, step), shares[world.rank])
            np.testing.assert_allclose(vector(method.model), expected[step - 1][world.rank], atol=1e-12, err_msg=name)
        if kind is PushSum:
            sums = np.array(world.control.allgather(method.pushed)).sum(axis=0)
            assert abs(sums[-1] - ranks) < 1e-12, "Σw = P"
        sent = world.comm.bytes_sent - before[0], world.comm.messages_sent - before[1]
        apart = method.observe()(world.control.Allreduce)["consensus_error"]
        deviations = expected[-1] - expected[-1].mean(axis=0)
        np.testing.assert_allclose(apart, np.sqrt((deviations**2).sum(axis=1).mean()), atol=1e-12)
        method.finish()
        assert len(set(world.control.allgather(vector(method.model).tobytes()))) == 1, "in the end all have the mean"
        if kind is DPSGD:
            np.testing.assert_allclose(vector(method.model), expected[-1].mean(axis=0), atol=1e-12)
        graph, every = arguments[0], arguments[1] if len(arguments) > 1 else 1
        rounds = range(STEPS // every)
        degree = sum(len(graph.destinations(world.rank, number)) for number in rounds)
        length = len(vector(model())) + (kind is PushSum)
        assert sent == (degree * length * 8, degree), f"{name}: {sent}"
        found[name] = {"apart": apart, "messages": world.control.allgather(degree)}

    expected = found_by_one(
        world, lambda: [x.reshape(-1) for x in central_directions(np.tile(vector(model()), (ranks, 1)), shares)]
    ).reshape(STEPS, ranks, -1)
    central = CentralDirections(world, model(), classification, MAKE, OWN_WEIGHT)
    central.accumulate = 2
    for step in range(1, STEPS + 1):
        central.step(batch(world.rank, step), shares[world.rank])
        np.testing.assert_allclose(vector(central.model), expected[step - 1][world.rank], atol=1e-12)
    found["central-directions"] = {"apart": central.observe()(world.control.Allreduce)["consensus_error"]}
    central.finish()
if world.rank == 0:
    print(json.dumps(found))
