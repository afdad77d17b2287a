"""Elections of a coordinator: state machines without a network and without a clock.

Read `steps` first (the events and actions of a node), then `bully` and `ring`, which elect the
highest living number, `raft`, which needs a majority, and `network`, which simulates messages, deaths and
partitions, and counts the messages.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Collection, Sequence

from farandole.recovery.election.steps import Node

ELECTIONS = {"bully-election": "bully", "ring-election": "ring", "raft-election": "raft"}  # name → module


def choose(name: str, members: Sequence[int], dead: Collection[int] = (), seed: int = 0) -> dict[int, Node]:
    """Return a node for each member, by number, of the election of that name.

    Args:
        dead: a ring is formed of the others only; the other elections detect them.
        seed: of the time-outs of Raft's members.
    """
    from farandole.recovery.election.bully import Bully
    from farandole.recovery.election.raft import Raft
    from farandole.recovery.election.ring import Ring

    living = [member for member in members if member not in dead]
    match name:
        case "bully-election":
            return {member: Bully(member, members) for member in members}
        case "ring-election":
            return {member: Ring(member, living if member in living else members) for member in members}
    return {member: Raft(member, members, random.Random(f"{seed} {member}")) for member in members}


def about(name: str) -> str:
    """Return the first line of the docstring of the election's module."""
    module = importlib.import_module(f"{__name__}.{ELECTIONS[name]}")
    return (module.__doc__ or "").partition("\n")[0]
