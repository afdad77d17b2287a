"""An embedding whose table is divided by vocabulary: each rank has the vectors of some symbols.

A rank looks up the symbols it has and answers zero for the others; the sum over the ranks is then
the vector of every symbol. Backward needs no message: each rank's rows get the gradients of the
places where it had the symbol. Cost: 2(P−1)/P·n forward per rank for n bytes of vectors.
Source: Shoeybi et al., "Megatron-LM", 2019.
"""

from __future__ import annotations

from torch import Tensor, nn

from farandole.data.shares import slices
from farandole.model_parallel.tensor.division import Divided, Division
from farandole.model_parallel.tensor.exchange import TensorGroup, sum_of_parts


class VocabularyEmbedding(nn.Embedding, Divided):
    """(…) numbers of symbols → (…, width), whole on every rank.

    Args:
        whole: the table to divide, the same on all ranks; it is copied from and not kept.

    Raises:
        UsageError: more ranks than symbols.
    """

    def __init__(self, whole: nn.Embedding, group: TensorGroup) -> None:
        shares = tuple(group.shares(whole.num_embeddings, "symbols of an embedding"))
        division = Division(0, shares)
        super().__init__(shares[group.rank], whole.embedding_dim, _weight=division.part(whole.weight, group.rank))
        self.group, self.shares = group, shares
        self.first = slices(shares)[group.rank].start
        self.divided = {"weight": division}

    def forward(self, symbols: Tensor) -> Tensor:
        return sum_of_parts(self.part(symbols), self.group)

    def part(self, symbols: Tensor) -> Tensor:
        """Return this rank's summand: the vectors of the symbols that it has, and 0 elsewhere."""
        rows = symbols - self.first
        elsewhere = (rows < 0) | (rows >= self.num_embeddings)
        return super().forward(rows.masked_fill(elsewhere, 0)).masked_fill(elsewhere.unsqueeze(-1), 0)
