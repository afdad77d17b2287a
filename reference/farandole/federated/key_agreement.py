"""Diffie–Hellman key agreement: two parties derive a shared secret from public messages.

    a secret, gᵃ mod p public        (gᵇ)ᵃ = (gᵃ)ᵇ mod p: each computes it from its secret and the other's public number

`stream` expands such a secret to any number of bytes (SHAKE-256). Without the secret they cannot be distinguished from
random ones.

The group is number 14 of RFC 3526 (2048 bits). This code shows the principle. Real use also needs signatures, which
prove that a public number belongs to the other party, and code whose running time does not depend on the secret; a
library such as `cryptography` has both. Source: Diffie & Hellman, "New directions in cryptography", 1976.
"""

from __future__ import annotations

import hashlib
import secrets

# 2^2048 − 2^1984 − 1 + 2^64·(⌊2^1918·π⌋ + 124476), a prime; (P − 1)/2 is one as well.
P = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)
G = 2
PUBLIC_BYTES = 256
SECRET_BYTES = 32


def secret() -> int:
    """Return a new secret number."""
    return secrets.randbits(8 * SECRET_BYTES)


def public(own_secret: int) -> int:
    """Return the public number of a secret."""
    return pow(G, own_secret, P)


def agreed(own_secret: int, others_public: int, purpose: str) -> bytes:
    """Return the shared secret of two parties, 32 bytes, a different one for each purpose.

    Raises:
        ValueError: no honest party has such a public number.
    """
    if not 1 < others_public < P - 1:
        raise ValueError("this public number gives any secret away")
    common = pow(others_public, own_secret, P).to_bytes(PUBLIC_BYTES)
    return hashlib.sha256(common + purpose.encode()).digest()


def stream(seed: bytes, length: int) -> bytes:
    """Return this many bytes, determined by the seed and indistinguishable from random ones without it."""
    return hashlib.shake_256(seed).digest(length)
