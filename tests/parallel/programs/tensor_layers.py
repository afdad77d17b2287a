"""Every split layer against the whole one: outputs, gradients of the input and of each parameter."""

import json
from copy import deepcopy

import torch
from torch import nn

from farandole.data.shares import slices
from farandole.model_parallel.tensor.division import divisions
from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.model_parallel.tensor.linear import ColumnLinear, RowLinear
from farandole.model_parallel.tensor.split import split, whole
from farandole.model_parallel.tensor.transformer import ParallelAttention, ParallelFeedForward
from farandole.models.transformer import Attention, Block, Embedding, FeedForward, Head
from farandole.runtime.communicator import gather_text
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

torch.set_default_dtype(torch.float64)
SAMPLES, CONTEXT, WIDTH, HEADS, VOCABULARY = 3, 5, 128, 8, 23


def same_everywhere(tensors: list[torch.Tensor]) -> bool:
    """Return whether it is the same on all ranks, to the bit."""
    texts = gather_text(world.control, json.dumps([tensor.numpy().tobytes().hex() for tensor in tensors]))
    return len(set(texts)) <= 1


def compare(dense: nn.Module, parallel: nn.Module, inputs: torch.Tensor, divided_input=None, divided_output=None):
    """Return the largest differences; a divided input or output is this rank's slice of the last dimension."""
    everything = slice(None)
    into, out = divided_input or everything, divided_output or everything
    own_inputs = inputs[..., into].clone() if divided_input else inputs.clone()
    if inputs.is_floating_point():
        inputs.requires_grad_()
        own_inputs.requires_grad_()
    expected, found = dense(inputs), parallel(own_inputs)
    # Any scalar of the output will do as a loss; each rank's part is multiplied by its part of the weights.
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    (found * weights[..., out]).sum().backward()

    differences = {"output": (expected[..., out] - found).abs().max()}
    if inputs.is_floating_point():
        differences["gradient of the input"] = (inputs.grad[..., into] - own_inputs.grad).abs().max()
    parameters, divided, replicated = dict(parallel.named_parameters()), divisions(parallel), []
    assert list(parameters) == [name for name, _ in dense.named_parameters()]
    for name, parameter in dense.named_parameters():
        gradient = parameters[name].grad
        # A constant added to all keys adds a constant to all scores of a position, which softmax removes.
        assert parameter.grad.abs().max() > 1e-6 or name.endswith("key.bias"), name
        if name in divided:
            gradient = group.gather(gradient, divided[name].shares, divided[name].dimension)
        else:
            replicated.append(gradient)
        differences[f"gradient of {name}"] = (parameter.grad - gradient).abs().max()
    assert same_everywhere(replicated), "the gradients of replicated parameters"
    return {name: float(difference) for name, difference in differences.items()}


with World.start(RunOptions(wait_timeout=30)) as world:
    group = TensorGroup(world.comm, world)

    def own(count: int) -> slice:
        return slices(group.shares(count, "of them"))[group.rank]

    torch.manual_seed(5)
    activations = torch.randn(SAMPLES, CONTEXT, WIDTH)
    characters = torch.randint(VOCABULARY, (SAMPLES, CONTEXT))
    linear, narrow = nn.Linear(WIDTH, 10), nn.Linear(WIDTH, 10, bias=False)
    attention, feed_forward, block = Attention(WIDTH, HEADS), FeedForward(WIDTH), Block(WIDTH, HEADS)
    embedding, head = Embedding(VOCABULARY, CONTEXT, WIDTH), Head(WIDTH, VOCABULARY)
    pair = nn.Sequential(nn.Flatten(), nn.Linear(CONTEXT * WIDTH, 17), nn.ReLU(), nn.Linear(17, 9), nn.ReLU())
    alone = nn.Sequential(nn.Linear(WIDTH, 17), nn.ReLU())
    for norm in (block.attention_norm, block.feed_forward_norm, head.norm):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)

    generator = torch.get_rng_state()
    split_block = split(block, group)
    whole_block = whole(split_block, group)
    assert torch.equal(torch.get_rng_state(), generator), "splitting and joining take no random numbers"
    assert type(whole_block) is Block
    for name, parameter in block.named_parameters():
        assert torch.equal(dict(whole_block.named_parameters())[name], parameter), name
    held, everything = (sum(p.numel() for p in each.parameters()) for each in (split_block, block))
    assert held < everything or group.size == 1

    out = own(10)
    answer = {
        "columns": compare(linear, ColumnLinear(linear, group), activations.clone(), divided_output=out),
        "columns, gathered": compare(deepcopy(linear), ColumnLinear(linear, group, gathered=True), activations.clone()),
        "columns, no bias": compare(narrow, ColumnLinear(narrow, group), activations.clone(), divided_output=out),
        "rows": compare(deepcopy(linear), RowLinear(linear, group), activations.clone(), divided_input=own(WIDTH)),
        "rows, no bias": compare(
            deepcopy(narrow), RowLinear(narrow, group), activations.clone(), divided_input=own(WIDTH)
        ),
        "attention": compare(attention, ParallelAttention(attention, group), activations.clone()),
        "feed forward": compare(feed_forward, ParallelFeedForward(feed_forward, group), activations.clone()),
        "block": compare(block, split_block, activations.clone()),
        "copied block": compare(deepcopy(block), deepcopy(split(block, group)), activations.clone()),
        "embedding": compare(embedding, split(embedding, group), characters),
        "head": compare(head, split(head, group), activations.clone(), divided_output=own(VOCABULARY)),
        "pair": compare(pair, split(pair, group), activations.clone()),
        "alone": compare(alone, split(alone, group), activations.clone()),
    }
    everybodys = [json.loads(text) for text in gather_text(world.control, json.dumps(answer))]
    if world.rank == 0:
        for layer, differences in answer.items():
            for what in differences:
                differences[what] = max(one[layer][what] for one in everybodys)
        print(json.dumps(answer))
