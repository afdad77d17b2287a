"""Mixtures of experts divided over the ranks, beside one process with all: answers, gradients, bytes, memory."""

import json
from itertools import product

import numpy as np
import torch
from torch import nn

from farandole import tasks
from farandole.compression.exchange import bytes_of_ring
from farandole.data.sampler import EpochSampler
from farandole.model_parallel.expert import minimal
from farandole.model_parallel.expert.exchange import ExpertGroup
from farandole.model_parallel.expert.mixture import Mixture
from farandole.model_parallel.expert.model import expert_of, mixtures, parts, with_experts
from farandole.model_parallel.expert.options import ExpertOptions
from farandole.model_parallel.expert.traffic import layer_bytes
from farandole.model_parallel.expert.training import ExpertTraining
from farandole.model_parallel.parts import DTYPES
from farandole.models.optimizers import maker
from farandole.runtime.buffers import FlatBuffers, sha256
from farandole.runtime.communicator import Communicator, all_gather_text
from farandole.runtime.devices import seed_everything
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

WIDTH, STEPS = 6, 3
LAYERS = [(0.0, "drawn"), (1.0, "drawn"), (1e-9, "drawn"), *product((0.0, 1.0), ("ties", "to one"))]


class AllTogether(nn.Module):
    """A mixture as its definition says, on one process: every expert computes with all tokens, and a mask chooses."""

    def __init__(self, router, experts, k, factor):
        super().__init__()
        self.router, self.experts, self.k, self.factor = router, nn.ModuleList(experts), k, factor

    def forward(self, x):
        tokens = x.flatten(0, -2)
        count, experts = len(tokens), len(self.experts)
        odds = torch.softmax(tokens @ self.router.weight.T, 1)
        numbers = odds.tolist()
        chosen = [sorted(range(experts), key=lambda e, row=row: (-row[e], e))[: self.k] for row in numbers]
        most = -(-self.factor * self.k * count // experts) if self.factor else count
        self.kept, accepted = [], [0] * experts  # (choice, token, expert)
        for choice, token in product(range(self.k), range(count)):
            expert = chosen[token][choice]
            if accepted[expert] < most:
                accepted[expert] += 1
                self.kept.append((choice, token, expert))
        chosen = torch.tensor(chosen)
        weights = odds.gather(1, chosen)
        if self.k > 1:
            weights = weights / weights.sum(1, keepdim=True)
        answers = torch.stack([expert(tokens) for expert in self.experts])
        y = torch.zeros_like(tokens)
        for choice in range(self.k):
            mask = torch.zeros(count, 1, dtype=odds.dtype)
            mask[[token for each, token, _ in self.kept if each == choice]] = 1
            y = y + mask * weights[:, choice : choice + 1] * answers[chosen[:, choice], torch.arange(count)]
        share = chosen.flatten().bincount(minlength=experts).to(odds) / chosen.numel()
        self.balance_loss = experts * (share * odds.mean(0)).sum()
        self.dropped = 1 - len(self.kept) / chosen.numel()
        return y.view(x.shape)

    def crossing(self, owner, of_token):
        """Return the numbers of tokens sent to other ranks' experts, and received for this rank's."""
        here = world.rank
        leave = sum(of_token[token] == here != owner[expert] for _, token, expert in self.kept)
        return leave, sum(of_token[token] != here == owner[expert] for _, token, expert in self.kept)


class Looks(nn.Module):
    """An expert that returns its rows, and keeps a copy."""

    def forward(self, rows):
        self.rows = rows.detach().clone()
        return rows.clone()


def owners(experts):
    """Near-equal blocks, the larger ones first."""
    sizes = [experts // world.size + (rank < experts % world.size) for rank in range(world.size)]
    return [rank for rank, size in enumerate(sizes) for _ in range(size)]


def largest(pairs):
    return max((a - b).abs().max().item() if a.numel() else 0.0 for a, b in pairs)


def tokens_of_ranks():
    """Return unequal numbers of tokens for the ranks, and the rank of each."""
    counts = [4 + 3 * (rank % 3) for rank in range(world.size)]
    return [rank for rank, count in enumerate(counts) for _ in range(count)]


def layer_of(k, factor, experts, routes):
    """Return one layer's largest difference from the whole one: outputs, gradients, losses; assert the bytes."""
    of_token, owner = tokens_of_ranks(), owners(experts)
    own = [token for token, rank in enumerate(of_token) if rank == world.rank]
    torch.manual_seed(7)
    x, gradient = torch.randn(2, len(of_token), WIDTH, dtype=torch.float64)

    def make_expert(number):
        return expert_of(WIDTH, 1, 0, number).double()

    comm = Communicator(world.control)
    mixture = Mixture(WIDTH, k, factor, ExpertGroup(comm, experts), make_expert).double()
    if routes == "ties":  # equal probabilities: all tokens to the experts with the lowest numbers
        nn.init.zeros_(mixture.router.weight)
    elif routes == "to one":  # the first token's direction: all tokens have the last expert as their first choice
        x[:, 0] = x[:, 0].abs() + 1
        mixture.router.weight.data[:, 0] = torch.arange(experts) * 100.0
    router = nn.Linear(WIDTH, experts, bias=False).double()
    router.load_state_dict(mixture.router.state_dict())
    whole = AllTogether(router, map(make_expert, range(experts)), k, factor)

    parts_of_x = [x[own].clone().requires_grad_(), x.clone().requires_grad_()]
    y, expected = mixture(parts_of_x[0]), whole(parts_of_x[1])
    leave, come = whole.crossing(owner, of_token)
    row, counted = WIDTH * 8, (world.size - 1) * k * experts * 8
    sent = layer_bytes(mixture.plan, world.rank, row)
    assert comm.bytes_sent == (leave + come) * row + counted == sent["forward"] + sent["counts"], "forward"
    balance = np.array([mixture.balance_loss.item()])
    world.control.Allreduce(balance.copy(), balance)
    ((y * gradient[own]).sum() + 0.3 * mixture.balance_loss).backward()
    ((expected * gradient).sum() + 0.3 * whole.balance_loss).backward()
    assert comm.bytes_sent == 2 * (leave + come) * row + counted == sum(sent.values()), "backward"
    assert abs(mixture.plan.dropped / len(of_token) / k - whole.dropped) < 1e-15

    router_gradient = mixture.router.weight.grad.numpy().copy()
    world.control.Allreduce(router_gradient.copy(), router_gradient)
    pairs = [(y, expected[own]), (parts_of_x[0].grad, parts_of_x[1].grad[own])]
    pairs += [
        (torch.from_numpy(router_gradient), router.weight.grad),
        (torch.from_numpy(balance)[0], whole.balance_loss),
    ]
    mine = [number for number, rank in enumerate(owner) if rank == world.rank]
    assert mine == list(mixture.group.own)
    for number, expert in zip(mine, mixture.experts, strict=True):
        both = zip(expert.parameters(), whole.experts[number].parameters(), strict=True)
        pairs += [(a.grad, b.grad) for a, b in both]
    used = {expert for _, _, expert in whole.kept}
    if routes == "ties":
        assert used == set(range(k)), "the lower number first"
    elif routes == "to one":
        assert {expert for choice, _, expert in whole.kept if choice == 0} == {experts - 1}
    assert routes == "drawn" or experts == k or len(used) < experts, "an expert without a token"
    return largest(pairs)


def order_of_dispatch(k, factor, experts):
    """Each expert has the rows of its tokens, bit by bit, in order of ranks, choices and tokens; and all come back."""
    of_token = tokens_of_ranks()
    own = [token for token, rank in enumerate(of_token) if rank == world.rank]
    torch.manual_seed(8)
    x = torch.randn(len(of_token), WIDTH)
    mixture = Mixture(WIDTH, k, factor, ExpertGroup(Communicator(world.control), experts), lambda _: Looks())
    whole = AllTogether(mixture.router, [Looks() for _ in range(experts)], k, factor)
    y = mixture(x[own].requires_grad_())
    whole(x)
    for number, expert in zip(mixture.group.own, mixture.experts, strict=True):
        came = sorted((of_token[token], choice, token) for choice, token, its in whole.kept if its == number)
        assert torch.equal(expert.rows, x[[token for _, _, token in came]]), (number, "in this order")
    if k == 1:
        odds = mixture.router(x[own]).softmax(1).max(1).values
        kept = torch.tensor([[token in {each for _, each, _ in whole.kept}] for token in own])
        assert torch.equal(y, odds[:, None] * x[own] * kept), "what is dropped gets 0"


def as_in_the_minimal_file(experts, factor):
    """Compare the layer's outputs and gradients with those of `minimal`, which computes them in numpy."""
    noise = np.random.default_rng(3)
    count, hidden = 5 * world.size + 2, 9
    x, gradient = noise.standard_normal((2, count, WIDTH))
    router = noise.standard_normal((WIDTH, experts))
    first, second = noise.standard_normal((experts, WIDTH, hidden)), noise.standard_normal((experts, hidden, WIDTH))
    rows, own = (np.array_split(np.arange(each), world.size)[world.rank] for each in (count, experts))
    capacity = int(np.ceil(factor * count / experts))
    arguments = (world.control, x[rows], router, first[own], second[own], own)
    y, way = minimal.forward(*arguments, capacity)
    x_gradient, router_gradient, *its_gradients = minimal.backward(*arguments, way, gradient[rows], count)

    def make_expert(number):
        layers = nn.Linear(WIDTH, hidden, bias=False), nn.Linear(hidden, WIDTH, bias=False)
        for layer, matrix in zip(layers, (first, second), strict=True):
            layer.weight.data = torch.from_numpy(matrix[number].T.copy())
        return nn.Sequential(layers[0], nn.ReLU(), layers[1])

    mixture = Mixture(WIDTH, 1, factor, ExpertGroup(Communicator(world.control), experts), make_expert).double()
    mixture.router.weight.data = torch.from_numpy(router.T.copy())
    mine = torch.from_numpy(x[rows]).requires_grad_()
    found = mixture(mine)
    ((found * torch.from_numpy(gradient[rows])).sum() + minimal.BALANCE * mixture.balance_loss).backward()
    summed = mixture.router.weight.grad.numpy().copy()
    world.control.Allreduce(summed.copy(), summed)
    pairs = [(found.detach(), y), (mine.grad, x_gradient), (summed.T, router_gradient)]
    for number, expert in enumerate(mixture.experts):
        pairs += [(expert[2 * place].weight.grad.T, its_gradients[place][number]) for place in (0, 1)]
    return largest([(torch.as_tensor(a), torch.as_tensor(b)) for a, b in pairs])


def training_of(**options):
    """Return the largest differences of parameters and losses from one process's training in any step."""
    options = ExpertOptions(**({"precision": "float64"} | options), batch=8, hidden=16, wait_timeout=30)
    kind = DTYPES[options.precision]
    seed_everything(0)
    training = ExpertTraining(world, options)
    seed_everything(0)
    single = tasks.of(options).model().to(kind)
    single = with_experts(single, options, ExpertGroup(Communicator(alone), options.experts))
    for block in single:
        if mixtures(block):
            layer = block.mixture
            block.mixture = AllTogether(layer.router, layer.experts, options.top_k, options.capacity)
    layers = [block.mixture for block in single if hasattr(block, "mixture")]
    flat = FlatBuffers(single)
    start = flat.values.clone()
    optimizer = maker(options.optimizer, options.lr)(flat.values, flat.gradients)
    shard, owner = training.shard, owners(options.experts)
    sampler = EpochSampler(shard.shares[0], shard.epoch, options.seed, 0)
    experts = {id(each) for layer in layers for each in layer.experts.parameters()}
    shared = [each for each in single.parameters() if id(each) not in experts]
    mine = [
        parameter
        for layer in layers
        for number, expert in enumerate(layer.experts)
        if owner[number] == world.rank
        for parameter in expert.parameters()
    ]
    difference = loss_difference = dropped = 0.0
    for step in range(STEPS):
        before = world.comm.bytes_sent
        losses = np.array([training.step(), 0.0])
        losses[1] = training.balance_loss
        sent = world.comm.bytes_sent - before
        world.control.Allreduce(losses.copy(), losses)

        inputs, targets = shard.batch(next(sampler))
        expected = training.criterion(single(inputs), targets)
        balance = sum(layer.balance_loss for layer in layers)
        (expected + options.balance * balance).backward()
        optimizer.step()
        flat.zero_gradients()
        pairs = [*zip(parts(training.model)[0], shared, strict=True), *zip(parts(training.model)[1], mine, strict=True)]
        difference = max(difference, largest(pairs))
        loss_difference = max(loss_difference, abs(losses[0] - expected.item()), abs(losses[1] - balance.item()))

        shares = [len(inputs) // world.size + (rank < len(inputs) % world.size) for rank in range(world.size)]
        of_token = [rank for rank, share in enumerate(shares) for _ in range(share * inputs.shape[1])]
        row = options.hidden * kind.itemsize
        formula = bytes_of_ring(sum(each.numel() for each in shared), kind.itemsize, world.rank, world.size)
        for layer in layers:
            formula += (world.size - 1) * options.top_k * options.experts * 8
            formula += 2 * sum(layer.crossing(owner, of_token)) * row
        assert sent == formula, (step, "bytes of a step")
        routed = training.routed()
        dropped = sum(layer.dropped for layer in layers) / len(layers)
        assert abs(routed["dropped"] - dropped) < 1e-12
        loads = [routed[f"load_0_{expert}"] for expert in range(options.experts)]
        assert abs(sum(loads) - 1) < 1e-12

    memory = training.memory()
    for what, held in memory["measured"].items():
        assert held == memory["formula"][what] or abs(held / memory["formula"][what] - 1) < 1e-3, (what, memory)
    copies = all_gather_text(world.control, sha256(parts(training.model)[0]))
    assert len(set(copies)) == 1, "what all ranks have is the same bits on all"
    whole = training.whole()
    if whole is None:
        assert world.rank > 0
    else:
        own = {id(each) for each in parts(whole)[1]}
        pairs = zip((each for each in whole.parameters() if id(each) not in own), shared, strict=True)
        difference = max(difference, largest(pairs))
        gathered = [each for mixture in mixtures(whole) for each in mixture.experts.parameters()]
        expected = [each for layer in layers for each in layer.experts.parameters()]
        difference = max(difference, largest(zip(gathered, expected, strict=True)))
        whole.eval()(inputs)
        assert not any(mixture.plan.dropped for mixture in mixtures(whole)), "an evaluated model drops nothing"
    return {
        "parameters": difference,
        "loss": loss_difference,
        "moved": (flat.values - start).abs().max().item(),
        "dropped": dropped,
    }


with World.start(RunOptions(wait_timeout=30)) as world:
    alone = world.control.Split(world.rank)
    answer = {"layer": {}}
    for k, (factor, routes) in product((1, 2), LAYERS):
        answer["layer"][f"top-{k} {factor:g} {routes}"] = layer_of(k, factor, 5, routes)
    answer["layer"]["one expert"] = layer_of(1, 0.0, 1, "drawn")
    answer["layer"]["all of three"] = layer_of(3, 1.0, 3, "drawn")
    for k, factor in product((1, 2), (0.0, 1.0)):
        order_of_dispatch(k, factor, 5)
    answer["minimal"] = max(as_in_the_minimal_file(experts, factor) for experts, factor in ((5, 1.0), (3, 100.0)))
    answer["training"] = {
        "top-1, capacity": training_of(experts=5, top_k=1, capacity=1.0, depth=2, balance=0.1),
        "top-2, capacity": training_of(experts=5, capacity=1.0, depth=1, optimizer="adam", lr=0.003),
        "top-1, dropless": training_of(
            experts=3, top_k=1, capacity=0.0, depth=1, context=20, optimizer="momentum", lr=0.1
        ),
        # In float32 a token may choose another expert after rounding; here it has no choice.
        "float32, dropless": training_of(experts=2, capacity=0.0, depth=1, precision="float32"),
        "top-2, dropless": training_of(experts=5, capacity=0.0, depth=1),
    }
    if world.rank == 0:
        print(json.dumps(answer))
