"""The methods of synchronising that `sync_cost` compares, one row each: how each is predicted, and how it trains.

A row names functions and imports none, so the command line reads the table without torch. A new method is a function
in `predictions`, one in `strategies`, and a row here.
"""

from __future__ import annotations

from dataclasses import dataclass

PREDICTIONS, STRATEGIES = "farandole.cost.predictions", "farandole.cost.strategies"


@dataclass(frozen=True)
class Method:
    """One method, as "module:function".

    Attributes:
        prediction: (calibration, computing times) → cost of a batch.
        strategy: (options, world, model, loss) → what trains.
    """

    prediction: str
    strategy: str


METHODS: dict[str, Method] = {
    "ring": Method(f"{PREDICTIONS}:ring", f"{STRATEGIES}:ring"),
    "central": Method(f"{PREDICTIONS}:central", f"{STRATEGIES}:central"),
    "overlapped": Method(f"{PREDICTIONS}:overlapped", f"{STRATEGIES}:overlapped"),
    "large-batch": Method(f"{PREDICTIONS}:large_batch", f"{STRATEGIES}:ring"),
    "local-sgd": Method(f"{PREDICTIONS}:local_sgd", f"{STRATEGIES}:local_sgd"),
    "float16": Method(f"{PREDICTIONS}:float16", f"{STRATEGIES}:float16"),
    "top-k": Method(f"{PREDICTIONS}:top_k", f"{STRATEGIES}:top_k"),
    "gossip": Method(f"{PREDICTIONS}:gossip", f"{STRATEGIES}:gossip"),
}
