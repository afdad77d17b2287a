"""Sharded data parallel by torch FSDP2 over gloo or NCCL, to compare with sharded.

The same data, shares, model and record as sharded; torch's fully_shard divides optimizer state, gradients and
parameters. Its messages are not counted, so the record's byte counts are null.

    farandole run fsdp_sgd -n 4
    farandole run fsdp_sgd -n 4 --stage 2 --optimizer momentum --lr 0.05
    farandole run fsdp_sgd -n 4 --precision bfloat16
"""

from dataclasses import dataclass
from typing import Literal

from cyclopts import Parameter

from farandole.data_parallel.options import LoopOptions
from farandole.runtime.numbers import Positive
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(LoopOptions):
    """The division by FSDP2, and which library sends."""

    optimizer: Literal["sgd", "momentum", "adam"] = "adam"
    """Torch's: plain, with momentum 0.9, or Adam; they remember no, one or two numbers for each parameter."""

    lr: Positive = 0.003
    """Learning rate; with sgd try 0.3."""

    stage: Literal[2, 3] = 3
    """3: a unit's parameters are freed after its forward pass, and gathered again for its backward pass. 2: they stay
    until then (reshard_after_forward=False)."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Number format of forward, backward and of gathered parameters; each rank keeps its parts in float32."""

    backend: Literal["auto", "gloo", "nccl"] = "auto"
    """The library that sends: gloo, with --device cpu, or NCCL on CUDA cards, one for each rank; auto takes NCCL if
    each rank has a card."""

    def needs_host_memory(self) -> str:
        return "FSDP's messages are gloo's or NCCL's (--backend)"


def main(config: Config) -> None:
    from torch import nn

    from farandole.data_parallel.training import train
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.sharded.fsdp_twin import FsdpSGD
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> FsdpSGD:
        half = config.precision == "bfloat16"
        given = config.optimizer, config.lr, config.wait_timeout, config.backend, config.stage, half
        return FsdpSGD(world, model, loss, *given)

    print_summary(train("fsdp_sgd", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
