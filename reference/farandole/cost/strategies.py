"""What trains in each of the ways that `ways` predicts: the strategies of other rooms, as `sync_cost` compares them."""

from __future__ import annotations

from functools import partial

from torch import nn

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.compression.compressor import Compressor
from farandole.compression.error_feedback import ErrorFeedback
from farandole.compression.half_precision import Float16
from farandole.compression.top_k import TopK
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


def makers(options: SyncCostOptions, ranks: int) -> dict[str, MakeStrategy]:
    """Each way's strategy."""

    def optimizer(model: nn.Module) -> MakeOptimizer:
        return maker_for(model, "sgd", options.lr)

    def synchronous(collective: str, world: World, model: nn.Module, loss: Loss) -> Strategy:
        return SynchronousSGD(world, model, loss, optimizer(model), ALL_REDUCES[collective])

    def overlapped(world: World, model: nn.Module, loss: Loss) -> Strategy:
        return OverlappedSGD(world, model, loss, optimizer(model), ALL_REDUCES["ring"], 1000 * options.bucket_kb)

    def local(world: World, model: nn.Module, loss: Loss) -> Strategy:
        return LocalSGD(world, model, loss, optimizer(model), ALL_REDUCES["ring"], options.period)

    def compressed(way: str, world: World, model: nn.Module, loss: Loss) -> Strategy:
        length = sum(each.numel() for each in trained(model))
        return CompressedSGD(world, model, loss, optimizer(model), compressor(way, length, options))

    def gossip(world: World, model: nn.Module, loss: Loss) -> Strategy:
        return DPSGD(world, model, loss, optimizer(model), topology("ring", ranks))

    ring = partial(synchronous, "ring")
    return {
        "ring": ring,
        "central": partial(synchronous, "central"),
        "overlapped": overlapped,
        "large-batch": ring,
        "local-sgd": local,
        "float16": partial(compressed, "float16"),
        "top-k": partial(compressed, "top-k"),
        "gossip": gossip,
    }


def compressor(way: str, length: int, options: SyncCostOptions) -> Compressor:
    return Float16() if way == "float16" else ErrorFeedback(TopK(options.fraction), length)
