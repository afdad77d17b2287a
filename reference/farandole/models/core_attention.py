"""The core of attention: everything between its linear layers, causal softmax(Q Kᵀ / √d) V for each head.

    fused      block by block; backward computes the scores again            keeps one number per head and position
    unfused    all scores of a sequence at once                              keeps the softmax: a·s per position

for a heads and sequences of s positions. Fused attention is selective recomputation within one kernel. Sources:
Vaswani et al., "Attention is all you need", 2017; Dao et al., "FlashAttention", 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class CoreAttention(nn.Module):
    """Three tensors (samples, heads, positions, head width) → one of the same shape; it has no parameters.

    Attributes:
        fused: whether torch's kernel computes it.
    """

    def __init__(self, fused: bool = True) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.fused:
            return scaled_dot_product_attention(query, key, value, is_causal=True)
        positions, width = query.shape[-2:]
        future = query.new_full((positions, positions), -torch.inf).triu(1)
        scores = query @ key.transpose(-2, -1) / width**0.5 + future
        found: Tensor = scores.softmax(-1) @ value
        return found
