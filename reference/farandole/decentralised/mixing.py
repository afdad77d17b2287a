"""The weights with which neighbours mix, and how fast the ranks' vectors then approach their mean.

    both ways (Metropolis)      W_ij = 1 / (1 + max(d_i, d_j)) for neighbours,  W_ii = 1 − Σ_j W_ij
    one way, all of degree d    W_ij = 1 / (1 + d) for the sources j, and for i itself
    push-sum                    rank j sends 1 / (1 + d_j) of its vector to each destination, and keeps as much

d is a rank's number of neighbours, or of outgoing edges. The first two are doubly stochastic: each row sums to 1, so
that equal vectors stay equal, and each column too, so that the mean stays the same. Push-sum's weights are only
column-stochastic, which any graph can have: the sum stays the same, and a rank's part of it differs (`push_sum` divides
that out).

The consensus error is the root mean square distance of the ranks' vectors from their mean:

    E = √( (1/P) Σ_i ‖x_i − x̄‖² )            after a round  E' ≤ (1 − gap) · E

The spectral gap is 1 − ‖W − 11ᵀ/P‖₂; for the symmetric and the circulant matrices here that is 1 minus the second
largest modulus of an eigenvalue. Ring, P large: about 4π²/(3P²); exponential, P a power of two: 2 / (1 + log₂P). Of the
one-peer graph most rounds have a gap of 0, but log₂P of them are an exact average, if P is a power of two.

Sources: Xiao, Boyd & Lall, "A scheme for robust distributed sensor fusion based on average consensus", 2005
(Metropolis weights); Xiao & Boyd, "Fast linear iterations for distributed averaging", 2004 (convergence);
Ying et al. 2021 (exponential graphs); Kempe, Dobra & Gehrke, "Gossip-based computation of aggregate information", 2003
(push-sum).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from farandole.decentralised.steps import Matrix, Mixing, matrix
from farandole.decentralised.topologies import Topology, symmetric
from farandole.errors import UsageError

Rule = Callable[[Topology, int, int], Mixing]  # (graph, rank, number of the round) → that rank's step


def doubly_stochastic(graph: Topology, rank: int, number: int) -> Mixing:
    """Return the step of `rank` in round `number`: it sends its vector as it is, and weighs what it receives.

    Raises:
        UsageError: the graph's edges lead one way, and the ranks' degrees differ: no simple weights keep the mean.
    """
    edges = graph.edges(number)
    to, sources = graph.destinations(rank, number), graph.sources(rank, number)
    degrees = [len(graph.destinations(other, number)) for other in range(graph.ranks)]
    if edges != symmetric(edges):
        in_degrees = {len(graph.sources(other, number)) for other in range(graph.ranks)}
        if {*degrees, *in_degrees} != {degrees[rank]}:
            raise UsageError(
                f"{graph.name} has edges that lead one way, and ranks with more of them than others: mixing would "
                "move the mean; take push-sum, or edges that lead both ways"
            )
    weights = tuple(1 / (1 + max(degrees[rank], degrees[source])) for source in sources)
    return Mixing(to, sources, share=1.0, keep=1 - sum(weights), weights=weights)


def pushing(graph: Topology, rank: int, number: int) -> Mixing:
    """Return the step of `rank` in round `number`: it sends parts of its vector, and adds what it receives."""
    to, sources = graph.destinations(rank, number), graph.sources(rank, number)
    part = 1 / (1 + len(to))
    return Mixing(to, sources, share=part, keep=part, weights=(1.0,) * len(sources))


def mixing_matrix(graph: Topology, number: int = 0, rule: Rule = doubly_stochastic) -> Matrix:
    """Return W of round `number`."""
    return matrix([rule(graph, rank, number) for rank in range(graph.ranks)])


def spectral_gap(weights: Matrix) -> float:
    """Return 1 − ‖W − 11ᵀ/P‖₂ of a doubly stochastic W: 1 is an exact average; with 0 the error may stay the same."""
    ranks = len(weights)
    return max(0.0, float(1 - np.linalg.norm(weights - np.full((ranks, ranks), 1 / ranks), 2)))  # -0 is rounding


def gap_of_all(rounds: Sequence[Matrix]) -> float:
    """Return the spectral gap of several rounds in a row."""
    product = np.eye(len(rounds[0]))
    for weights in rounds:
        product = weights @ product
    return spectral_gap(product)


def consensus_error(vectors: Matrix) -> float:
    """Return √(mean_i ‖x_i − x̄‖²) of the ranks' vectors, one a row."""
    deviations = vectors - vectors.mean(axis=0)
    return float(np.sqrt((deviations**2).sum(axis=1).mean()))
