"""Who leads, when the coordinator is gone: elections as state machines, without messages or clocks of their own.

Read `steps` first (what a node is told and what it answers), then `bully` and `ring`, which elect the
highest number that lives, `raft`, which asks for a majority, and `network`, which lets nodes talk, kills
some, cuts them off from each other, and counts.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Collection, Sequence

from farandole.recovery.election.steps import Node

ELECTIONS = {"bully-election": "bully", "ring-election": "ring", "raft-election": "raft"}  # name → module


def choose(name: str, members: Sequence[int], dead: Collection[int] = (), seed: int = 0) -> dict[int, Node]:
    """number → a node for each member, of the election of that name.

    Args:
        dead: a ring is made of the others only; the other elections find out.
        seed: decides how patient each of Raft's members is.
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
    """The first line of what the election's module says of itself."""
    module = importlib.import_module(f"{__name__}.{ELECTIONS[name]}")
    return (module.__doc__ or "").partition("\n")[0]
