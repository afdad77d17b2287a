"""Optimizer state that lies in a file (offload): as large as the disk allows, and as slow as the disk.

ZeRO-Offload keeps what only the update needs in the host's memory, and updates there; ZeRO-Infinity keeps it on a disk.
A file mapped into memory does the latter: the operating system reads and writes the pages that an update touches. The
file has no name, so that nothing is left of it, however the rank ends.

Cost: an update reads and writes the state once, 2·K·Ψ/N bytes for K numbers per parameter, at the disk's speed.
Sources: Ren et al., "ZeRO-Offload: democratizing billion-scale model training", 2021; Rajbhandari et al.,
"ZeRO-Infinity: breaking the GPU memory wall for extreme scale deep learning", 2021.
"""

from __future__ import annotations

import tempfile

import numpy as np
import torch

from farandole.models.optimizers import SGD


def onto_disk(optimizer: SGD) -> None:
    """Move what `optimizer` remembers, vectors on the host, to files in the folder for temporary files (TMPDIR)."""
    for name, before in optimizer.state.items():
        if before.dim() and before.numel():
            values = before.numpy()
            with tempfile.TemporaryFile() as file:
                mapped = np.memmap(file, values.dtype, "w+", shape=values.shape)
            if values.any():  # otherwise the file is full of holes, which are zeros
                mapped[:] = values
            optimizer.state[name] = torch.from_numpy(mapped)
