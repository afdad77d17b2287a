"""A network: hosts, switches, links with capacities, and for two hosts the links between them.

A host is where a worker runs. A link carries both directions at once, so it is two wires, one for each direction. A
topology is a class that says how many hosts it has and which wires a message passes; it lists nothing else.

    single switch   every host on one switch                                    `tree_shaped`
    two-level       racks, and a switch above them with fewer wires             `tree_shaped`
    fat tree        pods of switches, as many wires up as down                  `fat_tree`
    dragonfly       groups of routers, one wire between any two groups          `dragonfly`
    torus           a grid whose rows and columns are closed, no switch         `torus`

Capacities are in multiples of a host's own link. Messages that pass a wire at the same time share it (`fair_sharing`).
A message to the nearest host takes α before its first byte arrives; every further link adds a hop's latency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Wire = tuple[str, float]  # the name of one direction of a link, and its capacity


class Network:
    """Hosts 0 to `hosts` − 1 and the wires between them.

    Attributes:
        nearest: the number of wires between two hosts that are as near as can be.
    """

    nearest = 2

    @property
    def hosts(self) -> int:
        raise NotImplementedError

    def route(self, source: int, target: int) -> list[Wire]:
        """Return the wires from one host to another one, in order."""
        raise NotImplementedError


@dataclass(frozen=True)
class Placed:
    """A network, and the host of each worker.

    Attributes:
        seed: of a random placement; None: worker i is on host i.
    """

    network: Network
    seed: int | None = None

    def places(self, workers: int, per_node: int = 1) -> list[int]:
        """Return each worker's host; the workers of a node, numbered one after the other, are never parted."""
        if self.seed is None:
            return list(range(workers))
        nodes = np.random.default_rng([self.seed, 3]).permutation(self.network.hosts // per_node)
        return [int(node) * per_node + each for node in nodes[: -(-workers // per_node)] for each in range(per_node)]
