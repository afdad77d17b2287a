"""The options of trainings whose checkpoints another layout can read."""

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from farandole.runtime.options import RunOptions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(RunOptions):
    """Where a training begins, and what it leaves."""

    load: Path | None = None
    """Folder that --save has written, under this or another division of the model, by any number of ranks: begin with
    its parameters and optimizer state."""

    save: Path | None = None
    """Folder for the trained parameters and the optimizer state, new or empty: each rank writes what it holds."""
