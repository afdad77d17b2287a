"""Shares that are not alike: each has its own mixture of classes (non-IID, 非独立同分布).

Each class is divided among the owners in proportions drawn from a Dirichlet distribution:

    p_c ~ Dir(a, …, a)        of class c owner k gets the part p_ck

A large concentration a makes all shares alike, a small one leaves each with few classes; a = ∞ deals the shuffled
samples out in turn. Every sample has one owner, and every owner has a sample at least.

Sources: Hsu, Qi & Brown, "Measuring the effects of non-identical data distribution for federated visual
classification", 2019, which draws a mixture of classes for each owner instead; Yurochkin et al., "Bayesian
nonparametric federated learning of neural networks", 2019, which divides each class, as here.
"""

from __future__ import annotations

from math import isinf

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
STREAM = 1  # of the seed's random numbers; others draw from others


def divide(classes: NDArray[np.int64], owners: int, concentration: float, seed: int) -> list[Rows]:
    """Return each owner's samples, by their numbers.

    Args:
        classes: of each sample.
        owners: from 1 to the number of samples.
        concentration: a above, more than 0; infinite: no share differs from another but by chance.
    """
    noise = np.random.default_rng([seed, STREAM])
    order = noise.permutation(len(classes))
    if isinf(concentration):
        return [np.sort(order[owner::owners]) for owner in range(owners)]
    owned: list[list[Rows]] = [[] for _ in range(owners)]
    for each in np.unique(classes):
        rows = order[classes[order] == each]
        ends = np.cumsum(noise.dirichlet(np.full(owners, concentration)))[:-1] * len(rows)
        for owner, part in enumerate(np.split(rows, np.round(ends).astype(int))):
            owned[owner].append(part)
    shares = [np.concatenate(parts) for parts in owned]
    for owner, share in enumerate(shares):
        if not len(share):
            richest = max(range(owners), key=lambda other: len(shares[other]))
            shares[owner], shares[richest] = shares[richest][:1], shares[richest][1:]
    return [np.sort(share) for share in shares]
