"""Export of the trained model (保存完整的模型文件): a file that runs without the code that made it.

    write(model, two_samples, folder)         folder/model.pt2: the graph of operations, and the parameters
    predict = read(folder)
    predict(samples)                          what the model itself would answer, to the bit

What TensorFlow's SavedModel is in document 001: `torch.export` follows the model's operations once, with samples whose
number it leaves open, and keeps them beside the parameters. A checkpoint (`recovery.checkpoint`) is something else: it
has the optimizer's state too, so that the training can go on, and needs the program that wrote it.

Cost: some seconds, most of them for loading torch's compiler; the file is as large as the parameters. Source: torch's
documentation, "torch.export".
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from farandole.errors import UsageError
from farandole.runtime import files

FILE = "model.pt2"


def write(model: nn.Module, samples: NDArray[Any] | Tensor, folder: Path) -> Path:
    """Write `model` as `folder`/model.pt2; afterwards it takes any number of samples at once, on a CPU.

    Args:
        samples: two or more, of the shape and type that it reads.

    Raises:
        OSError: it could not be written.
    """
    own = copy.deepcopy(model).cpu().eval()
    for parameter in own.parameters():
        parameter.data = parameter.data.clone()  # each in memory of its own, no longer parts of one long vector
    program = torch.export.export(
        own, (torch.as_tensor(samples).cpu(),), dynamic_shapes=({0: torch.export.Dim("samples")},)
    )
    file = folder / FILE
    torch.export.save(program, content := io.BytesIO())
    files.write(file, content.getvalue())
    return file


def read(folder: Path) -> Callable[[Tensor], Tensor]:
    """Return the model that `write` has left in `folder`: samples → logits.

    Raises:
        UsageError: there is none.
    """
    file = folder / FILE
    if not file.is_file():
        raise UsageError(f"{folder} has no {FILE}: run the scenario with --export")
    predict: Callable[[Tensor], Tensor] = torch.export.load(file).module()
    return predict
