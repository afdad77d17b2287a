"""Attention to a divided sequence, and trainings on it, beside the unsplit ones: results, gradients, bytes, memory."""

import json
from itertools import product

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from farandole import tasks
from farandole.compression.exchange import bytes_of_ring
from farandole.data.sampler import EpochSampler
from farandole.model_parallel.context import minimal
from farandole.model_parallel.context.exchange import ContextGroup
from farandole.model_parallel.context.options import ContextOptions
from farandole.model_parallel.context.placement import PLACEMENTS
from farandole.model_parallel.context.split import ATTENTIONS
from farandole.model_parallel.context.traffic import attention_bytes
from farandole.model_parallel.context.training import ContextTraining
from farandole.models.optimizers import maker
from farandole.runtime.buffers import FlatBuffers, sha256
from farandole.runtime.communicator import Communicator, gather_text
from farandole.runtime.devices import seed_everything
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

KINDS = {"float64": torch.float64, "float32": torch.float32}
SAMPLES, WIDTH, STEPS = 2, 5, 3


def attention_of(name, placement, kind, scale, context):
    """Return the largest difference from torch's attention, of outputs and gradients; assert the bytes."""
    heads = world.size
    torch.manual_seed(5)
    numbers = torch.randn(4, SAMPLES, heads, context, WIDTH, dtype=kind)
    numbers[:2] *= scale
    whole = [each.requires_grad_() for each in numbers[:3].clone()]
    expected = scaled_dot_product_attention(*whole, is_causal=True)
    expected.backward(numbers[3])

    comm = Communicator(world.control)
    group = ContextGroup(comm, PLACEMENTS[placement](context, world.size))
    own = group.positions()
    parts = [each[:, :, own].clone().requires_grad_() for each in numbers[:3]]
    found = ATTENTIONS[name](*parts, group)
    row = SAMPLES * heads * WIDTH * found.itemsize
    sent = attention_bytes(name, group.placement, world.rank, row)
    assert comm.bytes_sent == sent["forward"], (name, placement, "forward")
    found.backward(numbers[3][:, :, own])
    assert comm.bytes_sent == sum(sent.values()), (name, placement, "backward")
    P, n = world.size, context * row
    if context % (2 * P) == 0:
        assert sent == (
            {"forward": 4 * (P - 1) * n // P**2, "backward": 4 * (P - 1) * n // P**2}
            if name == "ulysses"
            else {"forward": 2 * (P - 1) * n // P, "backward": 2 * (P - 1) * n // P + 2 * n * (P > 1)}
        )
    pairs = [(found, expected[:, :, own]), *((a.grad, b.grad[:, :, own]) for a, b in zip(parts, whole, strict=True))]
    return max((a - b).abs().max().item() for a, b in pairs)


def as_in_the_minimal_file(context):
    """Compare the ring's output and gradients with those of `minimal`, which computes in numpy."""
    numbers = np.random.default_rng(3).standard_normal((4, context, WIDTH))
    own = minimal.positions_of(world.rank, world.size, context)
    query, block, gradient = numbers[0, own], numbers[1:3, own], numbers[3, own]
    answer, log_total = minimal.forward(world.control, query, block, context)
    its_gradients = minimal.backward(world.control, query, block, answer, log_total, gradient, context)

    group = ContextGroup(Communicator(world.control), [
        [range(part[0], part[-1] + 1) for part in np.array_split(own, np.flatnonzero(np.diff(own) > 1) + 1)]
        for own in (minimal.positions_of(rank, world.size, context) for rank in range(world.size))
    ])  # fmt: skip
    parts = [torch.from_numpy(part)[None, None].clone().requires_grad_() for part in (query, *block)]
    found = ATTENTIONS["ring"](*parts, group)
    found.backward(torch.from_numpy(gradient)[None, None])
    pairs = [(found.detach(), answer), (parts[0].grad, its_gradients[0])]
    pairs += [(part.grad, its) for part, its in zip(parts[1:], its_gradients[1], strict=True)]
    return max(np.abs(a[0, 0].numpy() - b).max() for a, b in pairs)


def training_of(**options):
    """Return the largest difference of parameters and losses from the unsplit model's training in any step."""
    options = ContextOptions(batch=5, wait_timeout=30, **options)
    seed_everything(0)
    training = ContextTraining(world, options)
    seed_everything(0)
    single = tasks.of(options).model().to(KINDS[options.precision])
    flat = FlatBuffers(single)
    assert torch.equal(flat.values, training.flat.values)
    start = flat.values.clone()
    optimizer = maker(options.optimizer, options.lr)(flat.values, flat.gradients)
    shard = training.shard
    sampler = EpochSampler(shard.shares[0], shard.epoch, options.seed, 0)
    difference = loss_difference = 0.0
    for step in range(STEPS):
        before = world.comm.bytes_sent
        loss = np.array([training.step()])
        sent = world.comm.bytes_sent - before
        world.control.Allreduce(loss.copy(), loss)

        inputs, targets = shard.batch(next(sampler))
        expected = training.criterion(single(inputs), targets)
        expected.backward()
        optimizer.step()
        flat.zero_gradients()
        difference = max(difference, (flat.values - training.flat.values).abs().max().item())
        loss_difference = max(loss_difference, abs(loss[0] - expected.item()))

        row = len(inputs) * options.hidden * flat.values.itemsize
        layers = options.depth * sum(
            attention_bytes(options.attention, training.group.placement, world.rank, row).values()
        )
        gradients = bytes_of_ring(len(flat.values), flat.values.itemsize, world.rank, world.size)
        assert sent == layers + gradients, (step, "bytes of a step")
    memory = training.memory()
    for what, held in memory["measured"].items():
        assert held == memory["formula"][what] or abs(held / memory["formula"][what] - 1) < 1e-3, (what, memory)
    copies = gather_text(world.control, sha256(training.whole))
    assert len(set(copies)) <= 1, "the parameters are the same bits on all ranks"
    return {
        "parameters": difference,
        "loss": loss_difference,
        "moved": (flat.values - start).abs().max().item(),
        "activations": memory["measured"]["activations"],
    }


with World.start(RunOptions(wait_timeout=30)) as world:
    answer = {"attention": {}}
    lengths = (2 * world.size, 4 * world.size + 3)
    for name, placement in (("ring", "zigzag"), ("ring", "contiguous"), ("ulysses", "contiguous")):
        for (label, scale), context in product((("float64", 1.0), ("float64", 30.0), ("float32", 1.0)), lengths):
            case = f"{name} {placement} {label} {scale:g} {context}"
            answer["attention"][case] = attention_of(name, placement, KINDS[label], scale, context)
    answer["minimal"] = max(as_in_the_minimal_file(context) for context in lengths)
    adam = {"optimizer": "adam", "lr": 0.003}
    answer["training"] = {
        "ring float64": training_of(precision="float64", hidden=16),
        "contiguous float64": training_of(
            precision="float64", hidden=16, depth=1, placement="contiguous", context=33, **adam
        ),
        "ring float32": training_of(hidden=16, depth=1),
        "ulysses float64": training_of(precision="float64", hidden=16 * world.size, depth=1, attention="ulysses"),
        "ulysses float32": training_of(hidden=16 * world.size, depth=1, attention="ulysses"),
    }
    if world.rank == 0:
        print(json.dumps(answer))
