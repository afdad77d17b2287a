"""The strategies of `methods.METHODS`: those of other rooms, as `sync_cost` compares them."""

from __future__ import annotations

from functools import partial
from pkgutil import resolve_name

from torch import nn

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.compression.compressor import Compressor
from farandole.compression.error_feedback import ErrorFeedback
from farandole.compression.half_precision import Float16
from farandole.compression.top_k import TopK
from farandole.cost.methods import METHODS
from farandole.cost.options import SyncCostOptions
from farandole.data_parallel.compressed import CompressedSGD
from farandole.data_parallel.local_sgd import LocalSGD
from farandole.data_parallel.overlapped import OverlappedSGD
from farandole.data_parallel.synchronous import SynchronousSGD
from farandole.data_parallel.training import MakeStrategy, Strategy
from farandole.decentralised.dpsgd import DPSGD
from farandole.decentralised.topologies import topology
from farandole.models.layerwise import maker_for
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import trained
from farandole.runtime.world import World
from farandole.tasks import Loss

RING = ALL_REDUCES["ring"]


def maker(method: str, options: SyncCostOptions) -> MakeStrategy:
    """Return what makes that method's strategy, from a world, a model and a loss."""
    return partial(resolve_name(METHODS[method].strategy), options)


def ring(options: SyncCostOptions, world: World, model: nn.Module, loss: Loss) -> Strategy:
    return SynchronousSGD(world, model, loss, _optimizer(options, model), RING)


def central(options: SyncCostOptions, world: World, model: nn.Module, loss: Loss) -> Strategy:
    return SynchronousSGD(world, model, loss, _optimizer(options, model), ALL_REDUCES["central"])


def overlapped(options: SyncCostOptions, world: World, model: nn.Module, loss: Loss) -> Strategy:
    return OverlappedSGD(world, model, loss, _optimizer(options, model), RING, 1000 * options.bucket_kb)


def local_sgd(options: SyncCostOptions, world: World, model: nn.Module, loss: Loss) -> Strategy:
    return LocalSGD(world, model, loss, _optimizer(options, model), RING, options.period)


def float16(options: SyncCostOptions, world: World, model: nn.Module, loss: Loss) -> Strategy:
    return _compressed("float16", options, world, model, loss)


def top_k(options: SyncCostOptions, world: World, model: nn.Module, loss: Loss) -> Strategy:
    return _compressed("top-k", options, world, model, loss)


def gossip(options: SyncCostOptions, world: World, model: nn.Module, loss: Loss) -> Strategy:
    return DPSGD(world, model, loss, _optimizer(options, model), topology("ring", world.size))


def compressor(method: str, length: int, options: SyncCostOptions) -> Compressor:
    """Return the compressor of a vector of `length` that float16 or top-k uses."""
    return Float16() if method == "float16" else ErrorFeedback(TopK(options.fraction), length)


def _compressed(method: str, options: SyncCostOptions, world: World, model: nn.Module, loss: Loss) -> Strategy:
    length = sum(each.numel() for each in trained(model))
    return CompressedSGD(world, model, loss, _optimizer(options, model), compressor(method, length, options))


def _optimizer(options: SyncCostOptions, model: nn.Module) -> MakeOptimizer:
    return maker_for(model, "sgd", options.lr)
