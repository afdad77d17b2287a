"""The numbers and bytes of a split layer's messages, forward and backward; and its trace."""

import json
from itertools import pairwise

import torch
from torch import nn

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data.shares import equal_shares
from farandole.model_parallel.axes import Axes
from farandole.model_parallel.grid import Grid
from farandole.model_parallel.tensor.cross_entropy import cross_entropy
from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.model_parallel.tensor.split import split, whole
from farandole.models.transformer import Block, Embedding, Head
from farandole.runtime.communicator import gather_text
from farandole.runtime.options import RunOptions
from farandole.runtime.trace import from_json, to_json
from farandole.runtime.world import World

CONTEXT, WIDTH, HEADS, VOCABULARY = 6, 128, 8, 40
reduced = []  # the bytes of each all-reduce


def counting(comm, vector):
    reduced.append(vector.nbytes)
    ALL_REDUCES["ring"](comm, vector)


def cost(action):
    """Return the result of `action`, and how much this rank has sent in it."""
    bytes_before, messages_before = world.comm.bytes_sent, world.comm.messages_sent
    reduced.clear()
    result = action()
    sent = {"all-reduces": len(reduced), "of bytes": sorted(set(reduced))}
    sent["bytes"] = world.comm.bytes_sent - bytes_before
    return result, {**sent, "messages": world.comm.messages_sent - messages_before}


def there_and_back(layer, inputs):
    output, forward = cost(lambda: layer(inputs))
    _, backward = cost(lambda: output.sum().backward())
    return {"forward": forward, "backward": backward}


with World.start(RunOptions(wait_timeout=30)) as world:
    group = TensorGroup(world.comm, world, counting)
    samples = world.size  # so that the ring's chunks are equal and its formula is exact
    activations = torch.randn(samples, CONTEXT, WIDTH, requires_grad=True)
    block = split(Block(WIDTH, HEADS), group)
    pair = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    alone = nn.Sequential(nn.Linear(WIDTH, 42), nn.ReLU())
    head = split(Head(WIDTH, VOCABULARY), group)
    characters = torch.zeros(samples, CONTEXT, dtype=torch.int64)
    answer = {
        "block": there_and_back(block, activations),
        "embedding": there_and_back(split(Embedding(VOCABULARY, CONTEXT, WIDTH), group), characters),
        "head": there_and_back(head, activations),
        "pair": there_and_back(split(pair, group), activations.detach().flatten(0, 1)),
        "alone": there_and_back(split(alone, group), activations),
        "whole": {"forward": cost(lambda: whole(block, group))[1]},
        "cross-entropy": there_and_back(
            lambda logits: cross_entropy(logits, characters, VOCABULARY, group),
            head(activations).detach().requires_grad_(),
        ),
    }
    with torch.no_grad():
        _, answer["no gradient"] = cost(lambda: block(activations))

    # In the trace communication interrupts its computation, on all ranks of the group.
    before = len(world.trace.spans)
    with world.compute("forward"):
        block(activations)
    spans = world.trace.spans[before:]
    communications = 2 if world.size > 1 else 0
    assert [span.category for span in spans] == ["compute", "communicate"] * communications + ["compute"]
    assert all(span.depth == 0 for span in spans)
    assert all(one.end <= other.start for one, other in pairwise(spans)), "nothing is counted twice"

    # Parallel groups, one of them busier: one group's collective does not involve another.
    if world.size == 4:
        axes = Axes(world.comm, Grid(data=2, tensor=2))
        before = len(world.trace.spans)
        pairs = TensorGroup(axes.axis("tensor"), world)
        for _ in range(1 + axes.place["data"]):
            pairs.sum(torch.ones(3))
        with world.communicate("everybody"):
            pass
        spans = world.trace.spans[before:]
    keys = [[span.key for span in from_json(text)] for text in gather_text(world.control, to_json(spans))]
    if world.size == 4 and world.rank == 0:
        assert keys[0] == keys[1]
        assert keys[2] == keys[3]
        assert set(keys[0]) & set(keys[2]) == {keys[0][-1]}
        assert len(set(keys[2])) == 3
    elif world.rank == 0:
        assert all(each == keys[0] for each in keys)

    answers = [json.loads(text) for text in gather_text(world.control, json.dumps(answer))]
    if world.rank == 0:
        columns = equal_shares(HEADS, world.size)
        print(json.dumps({"ranks": answers, "columns": [16 * share for share in columns]}))
