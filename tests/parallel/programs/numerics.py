"""A digest of how this machine rounds: with the same digest this repository's trainings end with the same bits.

What torch and numpy compute depends on their version and on the processor's vector instructions. This computes a little
of everything that the models do, with torch and numpy alone, so that no change of this repository can change it.
"""

import hashlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def numerics() -> str:
    """Return the digest, of 16 hexadecimal digits; with the number of threads that torch and numpy have now."""
    digest = hashlib.sha256()

    def add(*values: torch.Tensor) -> None:
        for value in values:
            digest.update(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())

    generator = torch.Generator().manual_seed(0)
    for samples in (1, 3, 16, 64):
        for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            for width_in, width_out in ((64, 128), (128, 128), (128, 10), (64, 43)):
                inputs = torch.randn(samples, width_in, generator=generator).to(kind)
                weight = torch.randn(width_out, width_in, generator=generator).to(kind).requires_grad_()
                loss = F.cross_entropy(F.linear(inputs, weight).relu(), torch.arange(samples) % width_out)
                loss.backward()
                add(loss, weight.grad)
        image = torch.randn(samples, 1, 8, 8, generator=generator)
        kernel = torch.randn(16, 1, 3, 3, generator=generator, requires_grad=True)
        F.max_pool2d(F.conv2d(image, kernel, padding=1).tanh(), 2).square().mean().backward()
        add(kernel.grad)
        words = torch.randn(samples, 4, 8, 16, generator=generator, requires_grad=True)
        attended = F.scaled_dot_product_attention(words, words, words, is_causal=True)
        nn.LayerNorm(16)(F.gelu(attended)).exp().sum().sqrt().backward()
        add(words.grad)
    state = np.random.default_rng(0)
    for size in (3, 64, 300):
        matrix = state.standard_normal((size, size), dtype=np.float32)
        for result in (matrix @ matrix, np.linalg.norm(matrix), np.exp(matrix).sum(), np.linalg.qr(matrix)[0]):
            digest.update(np.asarray(result).tobytes())
    return digest.hexdigest()[:16]
