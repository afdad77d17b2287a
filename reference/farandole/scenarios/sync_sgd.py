"""Synchronous data-parallel SGD over our own all-reduce.

Documents 000 to 004: the data is cut into one share per rank, every rank computes the gradient
of its part of the batch, an all-reduce forms the mean, and all copies of the model move alike.

    farandole run sync_sgd -n 4
    farandole run sync_sgd -n 4 --collective central
    farandole run sync_sgd -n 4 --collective window
    farandole run sync_sgd -n 4 --overlap --bucket-kb 256
    farandole run sync_sgd -n 4 --precision float16
    farandole run sync_sgd -n 2 --data pydoc --model transformer --precision bfloat16 --float32-layers norms
    farandole run sync_sgd -n 4 --batch 512 --lr-batch 64 --warm-up 20 --lr-schedule cosine
    farandole run sync_sgd -n 4 --optimizer adam --lr 0.003 --weight-decay 0.1 --export --tensorboard boards
    farandole run sync_sgd -n 4 --slow rank=3,factor=3
    farandole run sync_sgd -n 4 --fail rank=2,step=5,how=corrupt --audit
    farandole run sync_sgd -n 2 --data pydoc --model transformer --hidden 64 --batch 32
    mpirun -n 4 python -m farandole.scenarios.sync_sgd --data mnist5k --model cnn --lr 0.1
"""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from farandole.data_parallel.options import CollectiveOrWindow, OptimizerOptions, PrecisionOptions, check_precision
from farandole.errors import UsageError
from farandole.runtime.numbers import AtLeastOne, UnitInterval
from farandole.scenarios import run_as_program

BUCKET_KB = 1024
IN_HOST_MEMORY = ("window", "shared-memory", "hierarchical")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(OptimizerOptions, PrecisionOptions):
    """Options of sync_sgd."""

    collective: CollectiveOrWindow = "ring"
    """The all-reduce for the gradients: one of ours, or MPI's; auto: the fastest of ours for each length, by what is
    measured once on a machine; window: gradients lie in memory of the host that all ranks of a node address, and
    nothing is copied, except from a card and back: see --card-transport."""

    bucket_kb: AtLeastOne | None = None
    """Reduce the gradient in buckets of this many KB. [default: with --overlap 1024, else all at once]"""

    overlap: Annotated[bool, Parameter(negative="")] = False
    """Reduce each bucket as soon as it is complete, while backward continues."""

    random_factors: UnitInterval = 0.0
    """Multiply each rank's gradient by a random factor of 1 ± this before it is reduced: this only adds noise."""

    audit: Annotated[bool, Parameter(negative="")] = False
    """Check in every step that the gradients are rightly summed and equal on all ranks; end the job where not."""

    def needs_host_memory(self) -> str:
        if self.audit:
            return "--audit reads the gradients in the host's memory"
        if self.collective in IN_HOST_MEMORY:
            return f"--collective {self.collective} adds up in memory of the host: choose ring, or mpi"
        return ""

    def note_on_cards(self) -> str:
        if self.collective not in IN_HOST_MEMORY:
            return ""
        return (
            f"--collective {self.collective} is for the host's memory: each gradient is copied there, and its sum "
            "back to the card. Without these copies: ring, or mpi, with --card-transport direct; ddp_sgd --backend nccl"
        )


def main(config: Config) -> None:
    from functools import partial

    from torch import nn

    from farandole.collectives.all_reduce import all_reduce_of
    from farandole.collectives.shared_memory import SharedVectors
    from farandole.data_parallel.audit import audited
    from farandole.data_parallel.mixed_precision import MixedPrecisionSGD
    from farandole.data_parallel.overlapped import OverlappedSGD
    from farandole.data_parallel.random_factors import with_random_factors
    from farandole.data_parallel.synchronous import SynchronousSGD
    from farandole.data_parallel.training import Strategy, optimizer_factory, train
    from farandole.report.table import print_summary
    from farandole.runtime.buffers import trained
    from farandole.runtime.communicator import Buffer, Communicator
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    if config.precision != "float32" and (config.overlap or config.bucket_kb):
        raise UsageError(f"--precision {config.precision} goes without --overlap and --bucket-kb")

    check_precision(config)

    def strategy(world: World, model: nn.Module, loss: Loss) -> Strategy:
        make = optimizer_factory(config, model)
        gradients = None
        if config.collective != "window":
            all_reduce = all_reduce_of(config.collective, world.comm)
        else:
            vectors = SharedVectors(world.comm, sum(each.numel() for each in trained(model)))
            gradients = vectors.own

            def all_reduce(comm: Communicator, part: Buffer) -> None:
                with comm.collective("all-reduce", part.nbytes):
                    vectors.all_reduce(part)

        if config.audit:
            all_reduce = audited(all_reduce)
        if config.random_factors:
            all_reduce = with_random_factors(all_reduce, config.random_factors, config.seed)
        ours = config.collective != "mpi"  # what MPI sends inside its own is not ours to count
        if config.precision != "float32":
            mixed = partial(MixedPrecisionSGD, precision=config.precision, float32_layers=config.float32_layers)
            return mixed(world, model, loss, make, all_reduce, bytes_are_counted=ours, gradients=gradients)
        bucket_kb = config.bucket_kb or (BUCKET_KB if config.overlap else None)
        kind = (
            partial(OverlappedSGD, bucket_bytes=1000 * bucket_kb, overlap=config.overlap)
            if bucket_kb
            else SynchronousSGD
        )
        return kind(world, model, loss, make, all_reduce, bytes_are_counted=ours, gradients=gradients)

    print_summary(train("sync_sgd", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
