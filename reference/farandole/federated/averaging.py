"""Federated averaging: clients train the model locally, and the server averages their updates.

    server      w to the clients of the round
    client k    w_k ← w, then E epochs of SGD on its own n_k samples
    server      w ← w + η_s · Σ_k n_k (w_k − w) / Σ_k n_k

The server needs the sums of n_k (w_k − w) and of n_k, and no single client's term of them (`secure_sum`). With η_s = 1
the result is the weighted mean of the clients' parameters. If all clients take one step on all their samples, it is a
step of gradient descent on all samples. With more local steps each client moves towards the optimum of its own data,
the further the more the data differ: saving rounds costs accuracy (client drift).

Cost of a round: the model to each of m clients, and a vector of the model's size from each. Source: McMahan et al.,
"Communication-efficient learning of deep networks from decentralized data", 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn

from farandole.data.batch import Batch
from farandole.data.samples import Reader
from farandole.models.optimizers import SGD
from farandole.runtime.buffers import FlatBuffers, buffers_as_bytes, set_buffers
from farandole.runtime.communicator import Buffer
from farandole.tasks import Loss


@dataclass(frozen=True)
class Client:
    """A client: its number, and its own samples on the device."""

    number: int
    reader: Reader
    samples: int

    def __len__(self) -> int:
        return self.samples

    @cached_property
    def everything(self) -> Batch:
        """All its samples, as one batch."""
        return self.reader[np.arange(self.samples)]


class LocalTraining:
    """A client's training in a round. One model serves all clients of a host, one after the other.

    Args:
        epochs: how often each sample is used.
        batch: samples per step; the last one of an epoch may have fewer.
        seed: with the client and the round it decides on the order of the samples.
    """

    def __init__(self, model: nn.Module, loss: Loss, lr: float, epochs: int, batch: int, seed: int) -> None:
        self.model, self.loss = model, loss
        self.epochs, self.batch, self.seed = epochs, batch, seed
        self.flat = FlatBuffers(model)
        self.optimizer = SGD(self.flat.values, self.flat.gradients, lr)

    def contribution(self, client: Client, values: Buffer, number: int) -> tuple[Buffer, float]:
        """Train locally, from the server's parameters.

        Args:
            values: the server's parameters, a vector.
            number: of the round.

        Returns:
            n_k (w_k − w) followed by n_k, one vector of float64; the loss of `values` on this client's samples.
        """
        self.flat.values_np[:] = values
        self.flat.values_from_host()
        statistics = buffers_as_bytes(self.model)
        with torch.no_grad():
            loss = self.loss(self.model, client.everything).item()
        set_buffers(self.model, statistics)  # BatchNorm's have seen what is only measured
        order = np.random.default_rng([self.seed, client.number, number])
        for _ in range(self.epochs):
            rows = order.permutation(len(client))
            for start in range(0, len(client), self.batch):
                self.flat.zero_gradients()
                self.loss(self.model, client.reader[rows[start : start + self.batch]]).backward()
                self.optimizer.step()
        self.flat.values_to_host()
        moved = len(client) * (self.flat.values_np.astype(np.float64) - values)
        return np.append(moved, len(client)), loss


def averaged(values: Buffer, total: Buffer, server_lr: float) -> Buffer:
    """Return the server's next parameters.

    Args:
        total: the sum of all contributions.
    """
    if not total[-1]:
        return values  # all were lost
    moved: Buffer = (values + server_lr * total[:-1] / total[-1]).astype(values.dtype)
    return moved
