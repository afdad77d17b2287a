"""Layers and trainings whose tensor ranks also divide the positions, compared with unsplit ones; and their bytes."""

import json

import torch
from torch.nn.functional import cross_entropy as torchs

from farandole.data.shares import slices
from farandole.model_parallel.tensor.cross_entropy import cross_entropy
from farandole.model_parallel.tensor.division import divisions
from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.model_parallel.tensor.sequence import add_up_replicated, shares_of
from farandole.model_parallel.tensor.split import split, split_model, whole
from farandole.models.transformer import Block, transformer
from farandole.runtime.communicator import gather_text
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

KINDS = {"float64": torch.float64, "float32": torch.float32}
SAMPLES, CLASSES, STEPS, LR, WIDTH = 3, 23, 4, 0.2, 112


def vector(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def trained(kind, context):
    """Return the largest differences of any step."""
    torch.manual_seed(3)
    single = transformer((context,), CLASSES, hidden=WIDTH, depth=2).to(kind)
    model = split_model(single, group, context)
    start, found = vector(single), {"parameters": 0.0, "loss": 0.0}
    optimizers = [torch.optim.SGD(each.parameters(), lr=LR) for each in (single, model)]
    for _ in range(STEPS):
        inputs, targets = torch.randint(CLASSES, (2, SAMPLES, context))
        for optimizer in optimizers:
            optimizer.zero_grad()
        expected = torchs(single(inputs).flatten(0, -2), targets.flatten())
        expected.backward()
        loss = cross_entropy(model(inputs), targets, CLASSES, group)
        loss.backward()
        add_up_replicated([model], group)
        for optimizer in optimizers:
            optimizer.step()
        found["parameters"] = max(
            found["parameters"], (vector(whole(model, group)) - vector(single)).abs().max().item()
        )
        found["loss"] = max(found["loss"], (loss - expected).abs().item())
    divided = divisions(model)
    replicated = [p.detach().numpy().tobytes().hex() for n, p in model.named_parameters() if n not in divided]
    assert len(set(gather_text(world.control, json.dumps([*replicated, loss.item()])))) <= 1, "the same bits everywhere"
    return found | {"moved": (vector(single) - start).abs().max().item()}


def block_of(context):
    """Compare a block's output and gradients at this rank's positions; assert the bytes."""
    torch.manual_seed(5)
    dense = Block(WIDTH, 7).double()
    for norm in (dense.attention_norm, dense.feed_forward_norm):
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    parallel = split(dense, group, context)
    own = slices(shares_of(context, group))[group.rank]
    x, back = torch.randn(2, SAMPLES, context, WIDTH, dtype=torch.float64)
    mine = x[:, own].clone().requires_grad_()
    x.requires_grad_()
    expected = dense(x)
    expected.backward(back)
    before = world.comm.bytes_sent
    found = parallel(mine)
    middle = world.comm.bytes_sent
    found.backward(back[:, own])
    sent = {"forward": middle - before, "backward": world.comm.bytes_sent - middle}
    add_up_replicated([parallel], group)
    if context % world.size == 0:
        one_way = (world.size - 1) * x.nbytes // world.size  # of an all-gather, and of a reduce-scatter
        assert sent == {"forward": 4 * one_way, "backward": 6 * one_way}, sent
    differences = [found - expected[:, own], mine.grad - x.grad[:, own]]
    parameters, divided = dict(parallel.named_parameters()), divisions(parallel)
    for name, parameter in dense.named_parameters():
        gradient = parameters[name].grad
        if name in divided:
            gradient = group.gather(gradient, divided[name].shares, divided[name].dimension)
        differences.append(gradient - parameter.grad)
    return max(each.abs().max().item() for each in differences)


with World.start(RunOptions(wait_timeout=30)) as world:
    group = TensorGroup(world.comm, world)
    answer = {label: trained(kind, 9) for label, kind in KINDS.items()}
    answer["block"] = max(block_of(2 * world.size), block_of(2 * world.size + 1))
    if world.rank == 0:
        print(json.dumps(answer))
