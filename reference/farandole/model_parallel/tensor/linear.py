"""A linear layer in blocks: its matrix by columns or by rows.

With y = x·A + b, and A cut over P ranks (torch keeps Aᵀ, so that A's columns are rows of `weight`):

    columns  A = [A₁ … A_P]    y_r = x·A_r + b_r      every rank has all of x and a part of y
    rows     A = [A₁ ; … ; A_P]  y = Σ x_r·A_r + b    every rank has a part of x and all of y

A column layer, then anything that looks at each number by itself, then a row layer: the parts in
the middle never meet, and the pair costs one all-reduce forward (the sum) and one backward (the
gradient of x). The other way around, or two column layers, would need a gather in between.

Each rank has 1/P of the weights, of their gradients and of the multiplications. Cost per pair and
per rank: 2·2(P−1)/P·n for n bytes of activations (x backward, y forward).
Source: Shoeybi et al., "Megatron-LM", 2019 (document 004's blocks of the matrix).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import linear

from farandole.model_parallel.tensor.division import Divided, Division
from farandole.model_parallel.tensor.exchange import TensorGroup, copy_to_parts, gather_parts, sum_of_parts


class ColumnLinear(nn.Linear, Divided):
    """Every rank computes a share of the outputs; (…, in) → (…, share), or (…, out) if gathered.

    Args:
        whole: the layer to divide, the same on all ranks; it is copied from and not kept.
        shares: how many outputs each rank gets. [default: equal shares]
        gathered: the outputs come out whole on every rank.
        entered: the input has been through `copy_to_parts` already, together with that of other layers.

    Raises:
        UsageError: more ranks than outputs.
    """

    def __init__(
        self,
        whole: nn.Linear,
        group: TensorGroup,
        shares: Sequence[int] | None = None,
        *,
        gathered: bool = False,
        entered: bool = False,
    ) -> None:
        shares = tuple(shares or group.shares(whole.out_features, "outputs of a linear layer"))
        has_bias = whole.bias is not None
        super().__init__(whole.in_features, shares[group.rank], has_bias, device="meta")  # no memory, no random number
        self.group, self.shares, self.gathered, self.entered = group, shares, gathered, entered
        division = Division(0, shares)
        self.divided = {"weight": division, "bias": division} if has_bias else {"weight": division}
        for name in self.divided:
            setattr(self, name, division.part(getattr(whole, name), group.rank))

    def forward(self, x: Tensor) -> Tensor:
        part = super().forward(x if self.entered else copy_to_parts(x, self.group))
        return gather_parts(part, self.shares, self.group) if self.gathered else part


class RowLinear(nn.Linear, Divided):
    """Every rank computes with a share of the inputs; (…, share) → (…, out), whole on every rank.

    The bias is replicated, and added once, to the sum.

    Args:
        whole: the layer to divide, the same on all ranks; it is copied from and not kept.
        shares: how many inputs each rank has. [default: equal shares]

    Raises:
        UsageError: more ranks than inputs.
    """

    def __init__(self, whole: nn.Linear, group: TensorGroup, shares: Sequence[int] | None = None) -> None:
        shares = tuple(shares or group.shares(whole.in_features, "inputs of a linear layer"))
        super().__init__(shares[group.rank], whole.out_features, whole.bias is not None, device="meta")
        self.group, self.shares = group, shares
        self.divided = {"weight": Division(1, shares)}
        self.weight = self.divided["weight"].part(whole.weight, group.rank)
        if whole.bias is not None:
            self.bias = nn.Parameter(whole.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        summed = sum_of_parts(linear(x, self.weight), self.group)
        return summed if self.bias is None else summed + self.bias
