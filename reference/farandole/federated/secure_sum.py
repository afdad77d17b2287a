"""Secure aggregation (安全聚合): the server learns the sum of the clients' vectors, and nothing about a single one.

Any two clients u < v share a secret mask. u adds it, v subtracts it, and in the sum the masks cancel:

    y_u = x_u + m_u + Σ_{v>u} m_uv − Σ_{v<u} m_vu        Σ y_u − Σ m_u = Σ x_u,   exactly

All numbers are integers modulo 2⁶⁴. A uniformly random mask makes y_u uniformly random, so y_u alone reveals nothing.

If a client is lost during the round, the masks of its pairs remain in the sum. Each client therefore first shares two
secrets among all clients (`secret_sharing`): the key from which the pairs' masks follow, and the seed of its own mask
m_u. At the end any t clients reveal to the server the key of each lost client and the seed of each remaining one, and
never both of one client. If a vector arrives after its client's key was revealed, the client's own mask still hides it.

    1  keys       each sends two public numbers, and the server distributes all of them      2 · 256 bytes
    2  shares     each sends every other one a share of both, encrypted for that client      (m − 1) · 132 bytes
    3  vectors    each sends y_u                                                             8 bytes a number
    4  unmasking  each remaining client sends its shares of all clients                      m · 66 bytes

The protocol protects honest clients from a curious server and up to t − 1 clients that help it. It does not protect
from a server that lies about which clients remain. Source: Bonawitz et al., "Practical secure aggregation for
privacy-preserving machine learning", 2017.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.federated import key_agreement, secret_sharing
from farandole.federated.key_agreement import agreed, stream
from farandole.federated.secret_sharing import SHARE_BYTES

Whole = NDArray[np.uint64]

FRACTION = 32  # binary digits behind the point
SEALED_BYTES = 2 * SHARE_BYTES


@dataclass(frozen=True)
class Keys:
    """A client's public numbers: for its masks, and for the messages encrypted for it."""

    masks: int
    seals: int


class SecureClient:
    """One client in one round.

    Args:
        threshold: number of clients that must remain for the sum to be known.
    """

    def __init__(self, number: int, threshold: int) -> None:
        self.number, self.threshold = number, threshold
        self._mask_secret, self._seal_secret = key_agreement.secret(), key_agreement.secret()
        self._seed = secrets.token_bytes(key_agreement.SECRET_BYTES)
        self.keys = Keys(key_agreement.public(self._mask_secret), key_agreement.public(self._seal_secret))
        self._directory: Mapping[int, Keys] = {}
        self._held: dict[int, tuple[int, int]] = {}  # of each client: the share of its key, and of its seed

    def sealed_shares(self, directory: Mapping[int, Keys]) -> dict[int, bytes]:
        """Return the shares for each other client, encrypted for it.

        Args:
            directory: the keys of all clients, this one included.
        """
        self._directory = directory
        of_key = secret_sharing.share(self._mask_secret, directory, self.threshold)
        of_seed = secret_sharing.share(int.from_bytes(self._seed), directory, self.threshold)
        self._held[self.number] = of_key[self.number], of_seed[self.number]
        return {other: self._seal(other, self.number, of_key[other].to_bytes(SHARE_BYTES)
                                  + of_seed[other].to_bytes(SHARE_BYTES))
                for other in directory if other != self.number}  # fmt: skip

    def hold(self, sender: int, sealed: bytes) -> None:
        """Decrypt the shares that another client has sent, and keep them."""
        both = self._seal(sender, sender, sealed)
        self._held[sender] = int.from_bytes(both[:SHARE_BYTES]), int.from_bytes(both[SHARE_BYTES:])

    def masked(self, vector: Whole) -> Whole:
        """Return `vector` with this client's masks."""
        total = vector + mask(self._seed, len(vector))
        for other, keys in self._directory.items():
            if other != self.number:
                total += signed_mask(self.number, other, agreed(self._mask_secret, keys.masks, "mask"), len(vector))
        return total

    def reveal(self, left: Collection[int]) -> dict[int, int]:
        """Return one share per client: of the seed of a remaining client, of the key of a lost one.

        Raises:
            ValueError: too few clients remain for a sum.
        """
        if len(left) < self.threshold:
            raise ValueError(f"only {len(left)} are left, and {self.threshold} have to be: nothing is revealed")
        return {number: seed if number in left else key for number, (key, seed) in self._held.items()}

    def _seal(self, other: int, sender: int, data: bytes) -> bytes:
        """Encrypt or decrypt: both clients know the key, and each direction has a separate one."""
        key = agreed(self._seal_secret, self._directory[other].seals, f"sealed by {sender}")
        return bytes(a ^ b for a, b in zip(data, stream(key, len(data)), strict=True))


def unmasked(
    masked: Mapping[int, Whole], directory: Mapping[int, Keys], revealed: Mapping[int, Mapping[int, int]]
) -> Whole:
    """Return the sum of the remaining clients' vectors: the server's part.

    Args:
        masked: the vectors that have arrived, by client.
        directory: the keys of all clients that began the round.
        revealed: for each remaining client, its shares of all clients.
    """
    total: Whole = sum(masked.values(), np.zeros_like(next(iter(masked.values()))))
    for client in directory:
        secret = secret_sharing.recover({holder: shares[client] for holder, shares in revealed.items()})
        if client in masked:
            total -= mask(secret.to_bytes(key_agreement.SECRET_BYTES), len(total))
            continue
        for other in masked:  # who have this one's masks in their vectors
            total -= signed_mask(other, client, agreed(secret, directory[other].masks, "mask"), len(total))
    return total


def mask(seed: bytes, length: int) -> Whole:
    """Return this many integers from 0 to 2⁶⁴ − 1, determined by the seed."""
    return np.frombuffer(stream(seed, 8 * length), dtype=np.uint64)


def signed_mask(client: int, other: int, seed: bytes, length: int) -> Whole:
    """Return what `client` adds for its pair with `other`: the opposite of what the other one adds."""
    drawn = mask(seed, length)
    return drawn if client < other else -drawn


def to_whole(vector: NDArray[np.float64], parts: int = 1) -> Whole:
    """Convert to fixed-point numbers: rounded to 2⁻³², and up to ±2³¹ in the sum.

    Args:
        parts: number of vectors that may be added up.

    Raises:
        OverflowError: a number is not finite, or such a sum might exceed 2³¹ and wrap around.
    """
    largest, limit = np.abs(vector).max(initial=0), 2.0 ** (63 - FRACTION) / parts
    if not largest < limit:  # which a NaN is not, either
        raise OverflowError(f"{largest:g} is not below {limit:g}")
    return np.round(vector * 2.0**FRACTION).astype(np.int64).view(np.uint64)


def from_whole(vector: Whole) -> NDArray[np.float64]:
    """Convert back from fixed-point numbers."""
    return vector.view(np.int64) / 2.0**FRACTION
