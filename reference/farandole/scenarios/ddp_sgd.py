"""Synchronous data-parallel SGD by torch DDP over gloo or NCCL, to compare with sync_sgd.

The same data, shares, model and record as sync_sgd; torch's DistributedDataParallel reduces the
gradients. Its messages are not counted, so the record's byte counts are null.

    farandole run ddp_sgd -n 4
    farandole run ddp_sgd -n 4 --bucket-kb 100
"""

from dataclasses import dataclass
from typing import Literal

from cyclopts import Parameter

from farandole.data_parallel.options import LoopOptions
from farandole.runtime.numbers import AtLeastOne
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(LoopOptions):
    """The library that adds up, and its buckets."""

    backend: Literal["auto", "gloo", "nccl"] = "auto"
    """The library that adds up the gradients: gloo in the hosts' memory, or NCCL on CUDA cards, one for each rank; auto
    takes NCCL if each rank has a card."""

    bucket_kb: AtLeastOne | None = None
    """Let DDP close a bucket that has this many KB or more (its bucket_cap_mb). [default: DDP's, 1 MB, then 25 MB each]
    """

    def needs_host_memory(self) -> str:
        return "DDP's messages are gloo's or NCCL's (--backend)"


def main(config: Config) -> None:
    from farandole.data_parallel.ddp_twin import DdpSGD
    from farandole.data_parallel.training import train
    from farandole.report.table import print_summary

    summary = train(
        "ddp_sgd",
        config,
        lambda world, model, loss: DdpSGD(
            world, model, loss, config.lr, config.wait_timeout, config.backend, config.bucket_kb
        ),
    )
    print_summary(summary, config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
