"""Shamir's secret sharing: of n shares any t determine the secret, and t − 1 reveal nothing.

    f(x) = secret + a₁x + … + a₍t₋₁₎x^(t−1)  mod p,  the a at random        share of x: f(x)

A polynomial of degree t − 1 is determined by t of its points, and with it f(0). For t − 1 points and any value at 0
there is exactly one such polynomial, so t − 1 points say nothing about f(0).

Source: Shamir, "How to share a secret", 1979.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

P = 2**521 - 1  # a prime, larger than all secrets of 32 bytes
SHARE_BYTES = 66


def share(secret: int, holders: Iterable[int], threshold: int) -> dict[int, int]:
    """Return each holder's share.

    Args:
        holders: numbers from 0 on, each different.
        threshold: t above, at least 1.
    """
    coefficients = [secret, *(secrets.randbelow(P) for _ in range(threshold - 1))]
    return {holder: _value(coefficients, holder + 1) for holder in holders}


def recover(shares: Mapping[int, int]) -> int:
    """Return the secret, from the shares of at least t holders; from fewer, another number."""
    points = [(holder + 1, value) for holder, value in shares.items()]
    secret = 0
    for x, value in points:  # Lagrange's polynomials, at 0
        above = below = 1
        for other, _ in points:
            if other != x:
                above = above * other % P
                below = below * (other - x) % P
        secret += value * above * pow(below, -1, P)
    return secret % P


def _value(coefficients: list[int], x: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % P
    return value
