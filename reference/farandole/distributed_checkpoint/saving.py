"""The options --load and --save, at the beginning and at the end of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mpi4py import MPI

from farandole.distributed_checkpoint import storage
from farandole.distributed_checkpoint.optimizer_state import counters, set_counters
from farandole.distributed_checkpoint.options import CheckpointOptions
from farandole.distributed_checkpoint.pieces import Piece
from farandole.distributed_checkpoint.reader import Checkpoint
from farandole.models.optimizers import SGD
from farandole.runtime.options import RunOptions

Pieces = Callable[[], Iterable[Piece]]


def begin(options: RunOptions, pieces: Pieces, optimizers: Sequence[SGD], control: MPI.Intracomm) -> None:
    """Make the folder that the training is to be saved in, and load what it is to begin with. Collective.

    Args:
        pieces: what this rank holds, of parameters and optimizer state.
        optimizers: of this rank, which take the same number of steps.

    Raises:
        UsageError: --save names a folder that holds something; --load none of a whole checkpoint of the same model.
    """
    if not isinstance(options, CheckpointOptions):
        return
    if options.save:
        storage.make(options.save, control)
    if options.load:
        checkpoint = Checkpoint(options.load)
        checkpoint.load(list(pieces()))
        for optimizer in optimizers:
            set_counters(optimizer, checkpoint.values["optimizer"])


def end(options: RunOptions, pieces: Pieces, optimizer: SGD, control: MPI.Intracomm) -> None:
    """Write what each rank holds into the folder that `begin` has made. Collective.

    Args:
        optimizer: one of this rank's.
    """
    if isinstance(options, CheckpointOptions) and options.save:
        storage.write(options.save, pieces(), {"optimizer": counters(optimizer)}, control)
