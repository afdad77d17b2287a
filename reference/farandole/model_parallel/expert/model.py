"""The language model with a mixture of experts in each block: one rank's part of it, and the whole.

Embedding, attention, norms, routers and head are on every rank, with the same values. Each expert is on one rank only.
It is drawn from a seed of its own, (seed, block, expert), so that the model is the same on however many ranks, and no
rank makes an expert that it does not keep.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from mpi4py import MPI
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from farandole.errors import UsageError
from farandole.model_parallel.expert.exchange import ExpertGroup
from farandole.model_parallel.expert.mixture import Mixture
from farandole.model_parallel.expert.options import ExpertOptions
from farandole.models.transformer import Block, Embedding, FeedForward
from farandole.runtime.communicator import Communicator
from farandole.runtime.devices import empty_on_host, on_host


class MixtureBlock(Block):
    """(samples, context, width) → the same shape; the parts of `whole`, but for its feed-forward network."""

    def __init__(self, whole: Block, mixture: Mixture) -> None:
        nn.Module.__init__(self)
        self.attention_norm, self.feed_forward_norm = whole.attention_norm, whole.feed_forward_norm
        self.attention, self.mixture = whole.attention, mixture

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        both: Tensor = x + self.mixture(self.feed_forward_norm(x))
        return both


def with_experts(model: nn.Module, options: ExpertOptions, group: ExpertGroup) -> nn.Sequential:
    """Return this rank's part of `model` with mixtures in place of its feed-forward networks.

    Raises:
        UsageError: the model is no transformer, or a token is to have more experts than there are.
    """
    if not isinstance(model, nn.Sequential) or not isinstance(model[0], Embedding):
        raise UsageError(
            "experts replace the feed-forward networks of a transformer: give --model transformer --data pydoc"
        )
    if options.top_k > options.experts:
        raise UsageError(f"--top-k {options.top_k} of {options.experts} experts: give at most {options.experts}")
    layers: list[nn.Module] = []
    for number, layer in enumerate(model):
        if isinstance(layer, Block):
            width = layer.feed_forward.expand.in_features

            def make_expert(expert: int, block: int = number, width: int = width) -> nn.Module:
                return expert_of(width, options.seed, block, expert)

            mixture = Mixture(width, options.top_k, options.capacity, group, make_expert)
            layers.append(MixtureBlock(layer, mixture.to(layer.feed_forward.expand.weight.dtype)))
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


def expert_of(width: int, seed: int, block: int, expert: int) -> FeedForward:
    """Return a new expert, the same wherever it is made; torch's generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(((seed * 1_009 + block) * 4_099 + expert) % 2**64)
        return FeedForward(width)


def mixtures(model: nn.Module) -> list[Mixture]:
    """Return the model's mixtures, in order of the blocks."""
    return [each for each in model.modules() if isinstance(each, Mixture)]


def parts(model: nn.Module) -> tuple[nn.ParameterList, nn.ParameterList]:
    """Return the parameters that all ranks have, and those of this rank's experts."""
    own = [parameter for mixture in mixtures(model) for parameter in mixture.experts.parameters()]
    among_own = set(map(id, own))
    return nn.ParameterList(each for each in model.parameters() if id(each) not in among_own), nn.ParameterList(own)


def named_among_all(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield each parameter that is here with its name in a model that has all experts."""
    owned = mixtures(model)[0].group.own
    for name, parameter in model.named_parameters():
        before, experts, after = name.partition(".experts.")
        if experts:
            number, _, rest = after.partition(".")
            name = f"{before}{experts}{owned[int(number)]}.{rest}"
        yield name, parameter


def gather(model: nn.Sequential, unsplit: nn.Module, options: ExpertOptions, root: int = 0) -> nn.Sequential | None:
    """Return the whole model, with all experts, on rank `root`; None elsewhere. Collective.

    Args:
        unsplit: a new model of the task, in which the parameters are replaced; used on `root` only.
    """
    group = mixtures(model)[0].group
    if group.rank != root:
        for _, expert in _experts(model):
            group.comm.send(on_host(parameters_to_vector(expert.parameters())).numpy(), root)
        return None
    first = next(model.parameters())
    whole = with_experts(unsplit, options, ExpertGroup(Communicator(MPI.COMM_SELF), options.experts)).to(first)
    for own, its in zip(parts(model)[0], parts(whole)[0], strict=True):
        its.data.copy_(own.data)
    by_place = dict(_experts(model))
    for rank, owned in enumerate(group.placement):
        for (block, number), expert in _experts(whole):
            if number in owned:
                vector = parameters_to_vector(expert.parameters())
                if rank == root:
                    vector = parameters_to_vector(by_place[block, number].parameters())
                else:
                    arriving = empty_on_host(vector.shape, vector.dtype, vector.device)
                    group.comm.receive(arriving.numpy(), rank)
                    vector = arriving.to(vector.device)
                vector_to_parameters(vector, expert.parameters())
    return whole


def _experts(model: nn.Module) -> Iterator[tuple[tuple[int, int], nn.Module]]:
    """Yield the experts that are here, each with its block and its number."""
    for block, mixture in enumerate(mixtures(model)):
        for number, expert in zip(mixture.group.own, mixture.experts, strict=True):
            yield (block, number), expert
