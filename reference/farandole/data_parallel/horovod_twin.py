"""The same step by Horovod: its DistributedOptimizer all-reduces while backward still runs.

Horovod (Sergeev & Del Balso 2018) hooks into every parameter, fuses small gradients and reduces
them in a background thread over MPI. It averages over ranks, so each loss is scaled by
share · K first; with equal parts the factor is 1.

Cost per step: one all-reduce of the gradient over MPI, most of it beside backward, and short messages by which the
background threads agree on the tensors that are ready on all ranks.
"""

from __future__ import annotations

from torch import nn
from torch.optim import SGD

from farandole.data.batch import Batch
from farandole.data_parallel.backward_clock import BackwardClock
from farandole.data_parallel.training import Strategy
from farandole.errors import UsageError
from farandole.runtime.buffers import KINDS
from farandole.runtime.world import World
from farandole.tasks import Loss


class HorovodSGD(Strategy):
    """A model trained by Horovod in step with its copies on all other ranks.

    Args:
        accumulate: backward passes of a step, after which Horovod reduces.
    """

    bytes_are_counted = False

    def __init__(self, world: World, model: nn.Module, loss: Loss, lr: float, accumulate: int = 1) -> None:
        # MPI is initialised by now: Horovod finding it so leaves its finalisation to mpi4py.
        try:
            import horovod.torch as hvd
        except ImportError as error:
            raise UsageError("Horovod is not installed: make setup builds it (a C++ compiler is needed)") from error
        if world.device.type != "cpu" and (why := unfit_for_cards()):
            raise UsageError(f"{why}; use --device cpu")
        hvd.init()
        self.world = world
        self.model = model
        self.loss = loss
        self.accumulate = accumulate
        make_fit(model)
        self.clock = BackwardClock(world, model)
        self.optimizer = hvd.DistributedOptimizer(
            SGD(model.parameters(), lr=lr),
            named_parameters=model.named_parameters(),
            backward_passes_per_step=accumulate,  # reduces after this many, and does not divide by them
        )

    def step(self, batch: Batch, share: float) -> float:
        self.optimizer.zero_grad()
        self.clock.start(self.accumulate)
        mean_loss = self.backward(batch, share * self.world.size)
        self.clock.backward_has_ended()
        with self.world.comm.waiting_for_library("Horovod's all-reduce", sign="Horovod"):
            self.optimizer.synchronize()  # what is left of the all-reduces begun during backward
        self.clock.communicated()

        with self.world.compute("update"), self.optimizer.skip_synchronize():
            self.optimizer.step()
        return mean_loss.item()


def unfit_for_cards() -> str:
    """Return why Horovod must not compute on a card here; "": it may, or is not installed.

    Built without CUDA it adds a gradient up from a copy that it does not wait for: wrong sums, without an error.
    """
    try:
        import horovod.torch as hvd
    except ImportError:
        return ""
    if hvd.cuda_built():
        return ""
    return (
        "this Horovod is built without CUDA, and would add up gradients that a card is still computing: build it where "
        "CUDA_HOME and NCCL are, by python tools/horovod_wheel.py"
    )


def make_fit(model: nn.Module) -> None:
    """Make the trained parameters contiguous, as Horovod needs them.

    Raises:
        UsageError: a parameter of a type that Horovod cannot add.
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            if parameter.dtype not in KINDS:
                kind = str(parameter.dtype).removeprefix("torch.")
                raise UsageError(
                    f"parameter {name} is {kind}, and Horovod adds float32, float64 and float16: convert the model"
                )
            parameter.data = parameter.data.contiguous()
