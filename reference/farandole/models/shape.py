"""The sizes of a decoder-only transformer, and what follows from them: parameters and operations.

With l layers of width h, V words and sequences of s:

    a block              12h² + 13h        four matrices of attention, two of the feed-forward network, biases, norms
    embedding            (V + s)h          words and positions
    head                 2h, and Vh where it has a matrix of its own (GPT's is the embedding's, transposed: tied)
    all                  12lh²·(1 + 13/(12h) + (V + s)/(12lh)) and the last norm's 2h

T tensor ranks divide the matrices, the biases of those that are cut by columns, and the vocabulary; of a block each of
them keeps (12h² + 7h)/T + 6h. Source: Narayanan et al., "Efficient large-scale language model training on GPU clusters
using Megatron-LM", 2021, equation 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from farandole.models.operations import attention, block, linear


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer as `models.transformer` builds it.

    Attributes:
        layers: number of blocks.
        hidden: width.
        heads: of attention; they divide the width.
        sequence: positions of a sample.
        vocabulary: words, or characters.
        tied: the head's matrix is the embedding's.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    tied: bool = True

    def block_parameters(self, tensor: int = 1) -> float:
        """Return the parameters of a block on one of `tensor` ranks."""
        return (12 * self.hidden**2 + 7 * self.hidden) / tensor + 6 * self.hidden

    def embedding_parameters(self, tensor: int = 1) -> float:
        """Return those of the embeddings of words and positions."""
        return self.vocabulary * self.hidden / tensor + self.sequence * self.hidden

    def head_parameters(self, tensor: int = 1, *, apart: bool = False) -> float:
        """Return those of the last norm, and of the head's matrix where it has one.

        Args:
            apart: the head is on another rank than the embedding, so it needs a copy of a tied matrix.
        """
        own = apart or not self.tied
        return 2 * self.hidden + (self.vocabulary * self.hidden / tensor if own else 0)

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return round(self.layers * self.block_parameters() + self.embedding_parameters() + self.head_parameters())

    @property
    def tensors(self) -> list[tuple[int, ...]]:
        """Return the shapes of all parameters, in order: words, positions, the blocks, the last norm, the head."""
        h = self.hidden
        block: list[tuple[int, ...]] = [
            (h,), (h,), *[(h, h), (h,)] * 4, (h,), (h,), (4 * h, h), (4 * h,), (h, 4 * h), (h,)
        ]  # fmt: skip
        head = [] if self.tied else [(self.vocabulary, h)]
        return [(self.vocabulary, h), (self.sequence, h), *block * self.layers, (h,), (h,), *head]

    def boundary(self, sequences: int) -> int:
        """Return how many numbers pass from one block to the next for `sequences` sequences."""
        return sequences * self.sequence * self.hidden

    @property
    def attention_operations(self) -> int:
        """Return the operations of attention itself in one sequence's forward pass, in all layers."""
        return self.sequence * self.layers * attention(self.sequence, self.hidden)

    @property
    def block_operations(self) -> int:
        """Return the operations of all blocks in one sequence's forward pass."""
        return self.sequence * self.layers * block(self.sequence, self.hidden)

    @property
    def operations(self) -> int:
        """Return the operations of one sequence's forward pass: the blocks and the logits."""
        return self.block_operations + self.sequence * linear(self.hidden, self.vocabulary)
