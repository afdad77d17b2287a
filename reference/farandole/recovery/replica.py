"""A copy of the model that can be put back to any moment of its training.

One step is that of synchronous SGD (`data_parallel.synchronous`), with an optimizer that remembers
and a dropout that draws random numbers: both belong to the state, or the training would not go on
as it was.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from farandole.data_parallel.training import mean_cross_entropy
from farandole.model_parallel.zero import ReplicatedOptimizer
from farandole.models import choices
from farandole.models.optimizers import maker
from farandole.recovery.options import ResumableOptions
from farandole.recovery.state import TrainingState
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World

REMEMBERED = "optimizer/"  # names of what the optimizer remembers begin so


class Replica:
    """This rank's copy, trained in step with those of all other ranks.

    Attributes:
        model: what is evaluated.
    """

    def __init__(self, world: World, options: ResumableOptions) -> None:
        self.world, self.options = world, options
        self.model = choices.build(options).to(world.device)
        self.dropout = nn.Dropout(options.dropout)
        self.flat = FlatBuffers(self.model)
        self.optimizer = ReplicatedOptimizer(world, world.comm, self.flat, maker(options.optimizer, options.lr))
        seed_random(options.seed, world.rank, 0)

    def step(self, inputs: Tensor, targets: Tensor, share: float) -> float:
        """Take one step on this rank's part of the batch; returns its mean loss.

        Args:
            share: this part's share of the whole batch.
        """
        with self.world.compute("forward and backward"):
            seen = self.dropout(inputs) if inputs.is_floating_point() else inputs  # characters cannot be scaled
            loss = mean_cross_entropy(self.model(seen), targets)
            loss.backward()
            self.flat.gradients.mul_(share)
        self.optimizer.step()
        return loss.item()

    def state(self, step: int) -> TrainingState:
        """All that decides how the training goes on with `step`; the tensors are the originals."""
        remembered = self.optimizer.optimizer.state
        shared = {"parameters": self.flat.values} | {f"{REMEMBERED}{name}": t for name, t in remembered.items()}
        own = {"random": torch.get_rng_state()}
        if self.world.device.type == "cuda":
            own["random on the card"] = torch.cuda.get_rng_state(self.world.device)
        return TrainingState(step, shared, own, {"lr": self.options.lr})

    def restore(self, state: TrainingState) -> None:
        """Be as `state` says. A rank that it holds no random numbers for gets new ones, drawn from the step."""
        self.flat.values.copy_(state.shared["parameters"])
        for name, tensor in self.optimizer.optimizer.state.items():
            tensor.copy_(state.shared[f"{REMEMBERED}{name}"])
        if not state.own:
            seed_random(self.options.seed, self.world.rank, state.step)
            return
        torch.set_rng_state(state.own["random"])
        if "random on the card" in state.own and self.world.device.type == "cuda":
            torch.cuda.set_rng_state(state.own["random on the card"], self.world.device)


def seed_random(seed: int, rank: int, step: int) -> None:
    """Random numbers of its own for each rank, and for each step from which it begins anew."""
    torch.manual_seed((seed * 1_000_003 + step) * 1_009 + rank)
