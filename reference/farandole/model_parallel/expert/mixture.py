"""A mixture of experts as a layer: route, dispatch, let the experts compute, combine.

    1  the router chooses k experts for each token of this rank                        `routing`
    2  all ranks learn how many tokens have chosen whom, and plan alike                `plan`
    3  each token's vector is copied to the ranks of the experts that accept it        `exchange`: dispatch
    4  every expert computes with all rows that have come to this rank
    5  the answers return, and are added up with the router's weights                  `exchange`: combine

The weights are applied where the token is, so that only vectors travel, and the gradients of router and weights need
no message.

Which rows an expert has, and in which order, is determined: by source rank, then choice, then token. Backward all ranks
run the same collectives in the same order, a rank without any row or expert, too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from farandole.model_parallel.expert import routing
from farandole.model_parallel.expert.auxiliary_loss import with_auxiliary_loss
from farandole.model_parallel.expert.exchange import ExpertGroup, all_to_all
from farandole.model_parallel.expert.plan import Plan, capacity_of


class Mixture(nn.Module):
    """(…, width) → the same shape, by k experts for each vector. Collective, backward as well.

    Args:
        width: of a token's vector.
        k: experts for each token.
        factor: of the capacity, while training; 0: no limit. An evaluated model drops nothing.
        group: has the experts.
        make_expert: an expert's number → the expert, a module (rows, width) → (rows, width). Only this rank's are made.

    Attributes:
        experts: this rank's, in order of their numbers.
        plan: of the last batch; None before.
        balance_loss: this rank's part, for the last batch.
        balance: its weight in the loss that is minimised; 0: the training adds it to that loss.
    """

    def __init__(
        self, width: int, k: int, factor: float, group: ExpertGroup, make_expert: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.k, self.factor, self.group = k, factor, group
        self.router = nn.Linear(width, group.experts, bias=False)
        self.experts = nn.ModuleList(make_expert(number) for number in group.own)
        self.plan: Plan | None = None
        self.balance = 0.0
        self.balance_loss = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        tokens, group = x.flatten(0, -2), self.group
        odds = self.router(tokens).softmax(1)
        choices, weights = routing.choose(odds, self.k)
        chosen = group.all_gather(routing.count(choices, group.experts))
        factor = self.factor if self.training else 0.0
        capacity = capacity_of(factor, int(chosen[:, 0].sum()), self.k, group.experts)
        whole = Plan.of(group.placement, chosen, capacity)
        balance_loss = routing.balance_loss(odds, torch.from_numpy(whole.shares).to(odds), whole.tokens)
        self.plan = plan = whole.among(group.among)
        kept = torch.from_numpy(plan.kept[group.rank]).to(x.device)
        places = routing.accepted(choices, kept)  # of the choices, whose rows are sent
        answers = self._answers(tokens.repeat(self.k, 1)[places], plan)
        by_choice = answers.new_zeros(choices.numel(), x.shape[-1]).index_put((places,), answers)
        mixed: Tensor = (weights.unsqueeze(2) * by_choice.unflatten(0, choices.shape)).sum(0)
        if self.balance:
            mixed = with_auxiliary_loss(mixed, balance_loss, self.balance)
            balance_loss = balance_loss.detach()
        self.balance_loss = balance_loss
        return mixed.view(x.shape)

    def _answers(self, rows: Tensor, plan: Plan) -> Tensor:
        """Return the experts' answers to this rank's rows, in the order of these."""
        group = self.group
        leaving, arriving = plan.rows[group.rank].tolist(), plan.rows[:, group.rank].tolist()
        received = all_to_all(rows, group, leaving, arriving, "dispatch")
        order = torch.from_numpy(plan.grouped(group.rank)).to(rows.device)
        computed = received[order]
        if self.experts:
            parts = computed.split(plan.arriving(group.rank).sum(0).tolist())
            computed = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        return all_to_all(computed[order.argsort()], group, arriving, leaving, "combine")
