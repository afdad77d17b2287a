"""A recommender: the rating that a user gives an item, from a vector for each (matrix factorisation, Koren 2009).

    farandole run parameter_server -n 5 --task examples/recommender.py --sync ssp --lr 2

The ratings are generated, from tastes of four dimensions and noise. Samples come as a dict, and the gradients of the
embeddings are sparse.
"""

import numpy as np
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from farandole import Task

USERS, ITEMS, TASTES, NOISE = 200, 300, 4, 0.1


class Recommender(nn.Module):
    """A vector and a bias for each user and item."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.users, self.items = (nn.Embedding(count, width, sparse=True) for count in (USERS, ITEMS))
        self.user_bias, self.item_bias = (nn.Embedding(count, 1, sparse=True) for count in (USERS, ITEMS))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        bias = self.user_bias(user) + self.item_bias(item)
        return (self.users(user) * self.items(item)).mean(dim=1) + bias[:, 0]


def ratings(count: int, seed: int) -> dict[str, np.ndarray]:
    """Return ratings; the tastes are the same for every seed."""
    tastes = np.random.default_rng(0)
    users, items = (tastes.standard_normal((each, TASTES)) for each in (USERS, ITEMS))
    draw = np.random.default_rng([1, seed])
    user, item = draw.integers(USERS, size=count), draw.integers(ITEMS, size=count)
    rating = (users[user] * items[item]).mean(axis=1) + NOISE * draw.standard_normal(count)
    return {"user": user, "item": item, "rating": rating.astype(np.float32)}


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return mse_loss(model(batch["user"], batch["item"]), batch["rating"])


def task() -> Task:
    return Task(Recommender, ratings(20_000, 0), ratings(2_000, 1), loss=loss, name="ratings")
