"""``farandole checkpoint FOLDER``: what a checkpoint across layouts holds, and its whole tensors as one file."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative="")]


def checkpoint(folder: Path, *, export: Path | None = None, optimizer_state: Flag = False, json: Flag = False) -> None:
    """Show what --save has written: the tensors of the unsplit model, and which ranks hold which parts of them.

    Args:
        folder: that --save has written, under any division of the model.
        export: a new file FILE.safetensors for the parameters and buffers as whole tensors, a full state dict.
        optimizer_state: export the optimizer state, too.
        json: print the description as JSON.
    """
    from rich.console import Console

    from farandole.distributed_checkpoint.reader import Checkpoint
    from farandole.errors import UsageError
    from farandole.report import checkpoint_table
    from farandole.runtime.files import json_text

    if optimizer_state and export is None:
        raise UsageError("--optimizer-state is written with --export FILE.safetensors: add that, or leave it out")
    found = Checkpoint(folder)
    found.check()
    if export:
        found.export(export, optimizer_state)
    if json:
        print(json_text(checkpoint_table.description(found), indent=2))
        return
    Console().print(checkpoint_table.table(found))
    if export:
        names = found.names(optimizer_state)
        print(f"export: {export}: {len(names)} tensors, {sum(map(found.nbytes, names)):,} bytes")
