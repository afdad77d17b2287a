"""The router's decisions: which experts a token chooses, with which weights, and how evenly all tokens choose.

For a token x and E experts, p = softmax(W x) has a number for each expert. The token chooses the k largest, and

    k = 1      y = p_i·expert_i(x)                                             Switch transformer
    k > 1      y = Σ_j p_j / (p_1 + … + p_k)·expert_j(x)                       GShard, for k = 2

With k = 1 the weight stays p_i: divided by itself it would be 1, and the router would have no gradient. Among equal
numbers the expert with the lower number is chosen, so that routing is deterministic.

Nothing in the task's loss keeps the router from sending all tokens to one expert. The balancing loss does:

    L = E·Σ_e f_e·P_e        f_e: the share of all choices that are e;  P_e: the mean of p_e over all tokens

It is E times a mean of the loads f_e with the weights P_e: 1 for an even load, and up to E where one expert has
everything. f is a count and has no gradient; P has, and lowers p_e where f_e is large.

f and P are of the *whole* batch. A product of means is not the mean of the ranks' products, so a mean of losses that
the ranks compute each by itself would be another function. But given f of the whole batch, L is linear in P: each rank
computes E·Σ_e f_e·(sum of its tokens' p_e)/(number of all tokens), and these add up to L. Their gradients add up as all
gradients do, and f comes with the counts that the ranks exchange anyway (`plan`).

Sources: Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer", 2017;
Lepikhin et al., "GShard", 2020; Fedus, Zoph & Shazeer, "Switch transformers", 2021, section 2.2, whose k is 1.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot


def choose(odds: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return each token's k experts, the most probable first, and the weights of their answers.

    Args:
        odds: the router's probabilities, (tokens, experts).

    Returns:
        Numbers of experts, and weights: both (k, tokens).
    """
    order = odds.detach().argsort(dim=1, descending=True, stable=True)  # stable: the lower number first among equals
    choices = order[:, :k].T.contiguous()
    weights = odds.gather(1, choices.T).T
    return choices, weights / weights.sum(0) if k > 1 else weights


def count(choices: Tensor, experts: int) -> Tensor:
    """Return how many tokens have which expert as their j-th choice: (k, experts)."""
    return torch.stack([each.bincount(minlength=experts) for each in choices])


def accepted(choices: Tensor, kept: Tensor) -> Tensor:
    """Return the choices that their experts accept: of each expert the first `kept`, in order of the tokens.

    Args:
        choices: (k, tokens).
        kept: (k, experts), at most as many as have chosen.

    Returns:
        Places in `choices.flatten()`, ordered by expert, then choice, then token.
    """
    chosen = one_hot(choices, kept.shape[1])  # (k, tokens, experts)
    before = (chosen.cumsum(1) - chosen).gather(2, choices.unsqueeze(2)).squeeze(2)  # earlier tokens' same choices
    places = (before < kept.gather(1, choices)).flatten().nonzero().squeeze(1)
    return places[choices.flatten()[places].argsort(stable=True)]


def balance_loss(odds: Tensor, shares: Tensor, tokens: int) -> Tensor:
    """Return this rank's part of the balancing loss; those of all ranks add up to it.

    Args:
        odds: of this rank's tokens, (tokens of this rank, experts).
        shares: f, the share of each expert in all ranks' choices, (experts,).
        tokens: of all ranks.
    """
    return len(shares) * (shares * odds.sum(0)).sum() / tokens
