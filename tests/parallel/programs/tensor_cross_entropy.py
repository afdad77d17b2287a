"""The loss of divided logits against torch's: value and gradient, huge logits and no rows; and refusals."""

import json

import pytest
import torch
from torch.nn import functional

from farandole.data.shares import slices
from farandole.errors import UsageError
from farandole.model_parallel.tensor.cross_entropy import cross_entropy
from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.model_parallel.tensor.split import split, split_model
from farandole.models.classifiers import mlp
from farandole.models.transformer import Attention, Block, Embedding, Head, transformer
from farandole.runtime.communicator import gather_text
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

CLASSES = 23

with World.start(RunOptions(wait_timeout=30)) as world:
    group = TensorGroup(world.comm)
    own = slices(group.shares(CLASSES, "classes"))[group.rank]
    answer = {}
    for kind in (torch.float64, torch.float32):
        for scale in (0.0, 1.0, 1e4):
            for rows in ((40,), (5, 8)):
                torch.manual_seed(7)
                logits = (scale * torch.randn(*rows, CLASSES, dtype=kind)).requires_grad_()
                targets = torch.randint(CLASSES, rows)
                expected = functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
                (3 * expected).backward()
                part = logits.detach()[..., own].clone().requires_grad_()
                found = cross_entropy(part, targets, CLASSES, group)
                (3 * found).backward()
                assert found.isfinite()
                relative = ((found - expected).abs() / expected.abs().clamp(min=1)).item()
                gradients = (part.grad - logits.grad[..., own]).abs().max().item()
                same = len(set(gather_text(world.control, repr(found.item())))) <= 1
                assert same, "the loss is the same bits on every rank"
                answer[f"{kind} {scale:g} {rows}"] = max(relative, gradients)

    # Where the right answer is sure and far away: no loss; where it is impossible, the distance.
    certain = torch.zeros(2, CLASSES)
    certain[:, -1] = 1e4
    sure = cross_entropy(certain[:, own], torch.tensor([CLASSES - 1] * 2), CLASSES, group)
    wrong = cross_entropy(certain[:, own], torch.tensor([0, 0]), CLASSES, group)
    assert (sure.item(), wrong.item()) == (0.0, 1e4)

    nothing = torch.zeros(0, own.stop - own.start, requires_grad=True)
    loss = cross_entropy(nothing, torch.zeros(0, dtype=torch.int64), CLASSES, group)
    loss.backward()
    assert loss.item() == 0
    assert nothing.grad.shape == nothing.shape

    with pytest.raises(IndexError, match="there are 23 classes"):
        cross_entropy(certain[:, own], torch.tensor([0, 23]), CLASSES, group)
    if world.size > 1:
        with pytest.raises(ValueError, match=f"logits of 23 classes: rank {world.rank} has"):
            cross_entropy(certain, torch.tensor([0, 0]), CLASSES, group)

    fewer = world.size - 1
    if fewer:
        with pytest.raises(
            UsageError, match=f"{fewer} heads of attention .* over {world.size} ranks: use at most {fewer}"
        ):
            split(Block(16 * fewer, fewer), group)
        with pytest.raises(UsageError, match=f"{fewer} symbols of an embedding .* use at most {fewer}"):
            split(Embedding(fewer, 4, 16), group)
        for refused in (Head(16, fewer), mlp((1, 2, 2), 10, hidden=fewer)):
            with pytest.raises(UsageError, match=f"{fewer} outputs of a linear layer .* use at most {fewer}"):
                split_model(torch.nn.Sequential(refused) if isinstance(refused, Head) else refused, group)
    with pytest.raises(UsageError, match="cannot divide Attention: give one of the model's units"):
        split(Attention(16, 1), group)
    assert list(split_model(transformer((4,), CLASSES, hidden=16 * world.size), group)), "as many heads as ranks"
    if world.rank == 0:
        print(json.dumps(answer))
