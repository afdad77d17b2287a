"""The division of N samples over K ranks.

Document 000 cuts N samples into shares of ⌊N/K⌋ and ⌊N/K⌋ + 1: rank r of K gets
⌊N/K⌋ + [r < N mod K]. Shares are disjoint, complete, and differ by at most one. Where ranks differ
in speed, shares proportional to their capability let all finish at the same time; the gradients
must then be weighted, Σ (n_r / N)·g_r instead of the plain mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from farandole.errors import UsageError


def equal_shares(samples: int, ranks: int) -> list[int]:
    """Return the size of each rank's share.

    Raises:
        UsageError: no ranks, or more ranks than samples, so that some would have nothing to do.
    """
    _check(samples, ranks)
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def proportional_shares(samples: int, capabilities: Sequence[float]) -> list[int]:
    """Shares as close to the ranks' capabilities as whole samples allow, at least one each.

    What is left after rounding down goes to the largest remainders (Hamilton's method), earlier
    ranks first among equals; equal capabilities therefore give `equal_shares`.

    Args:
        capabilities: how fast each rank is, in any unit, for instance samples per second.
    """
    _check(samples, len(capabilities))
    if not all(0 < capability < float("inf") for capability in capabilities):
        raise UsageError(f"capabilities {list(capabilities)}: each must be a finite number above 0")
    total = sum(capabilities)
    spare = samples - len(capabilities)  # one sample each is fixed, so that no rank is idle
    wanted = [samples * capability / total for capability in capabilities]
    floors = [max(1, int(share)) for share in wanted]
    if sum(floors) > samples:  # the minimum of one has taken more than there is
        wanted = [1 + spare * capability / total for capability in capabilities]
        floors = [int(share) for share in wanted]
    by_remainder = sorted(range(len(wanted)), key=lambda rank: floors[rank] - wanted[rank])
    for rank in by_remainder[: samples - sum(floors)]:
        floors[rank] += 1
    return floors


def slices(shares: Sequence[int]) -> list[slice]:
    """Return each rank's rows when the shares lie one after the other."""
    ends = accumulate(shares, initial=0)
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _check(samples: int, ranks: int) -> None:
    if ranks < 1:
        raise UsageError(f"{samples} samples cannot be shared by {ranks} ranks: there must be at least 1")
    if ranks > samples:
        raise UsageError(f"{samples} samples are too few for {ranks} ranks: use at most {samples}")
