"""``farandole new task FILE``: a file to begin with."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import cyclopts

from farandole.errors import UsageError

app = cyclopts.App(name="new", help="Write a file to begin with: farandole new task my_task.py.")


@app.command
def task(file: Annotated[Path, cyclopts.Parameter(name="FILE")] = Path("my_task.py")) -> None:
    """Write a task of your own, commented and ready to run: its model, its data, its loss and its metric.

    Args:
        file: where to; it must not exist yet.
    """
    if file.suffix != ".py":
        raise UsageError(f"{file}: a task is a Python file; give a name that ends in .py")
    text = resources.files("farandole").joinpath("starter_task.py").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text.replace("THIS_FILE", str(file)))
    except FileExistsError:
        raise UsageError(f"{file} exists, and is left as it is: give another name") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written ({error.strerror}): give another place") from error
    print(f"{file}: train it with\n    farandole run sync_sgd -n 2 --task {file}")
