"""The backup to which the surviving workers go back: functions of the copies that each of them has.

A backup is complete if a survivor has the part of each slot of the group that made it: the worker of that slot, or its
buddy (`buddies`). The newest complete backup counts.
"""

from __future__ import annotations

from collections.abc import Sequence

# For each worker, and each backup that it keeps: the step, the number of workers then, the slots of its parts.
Held = Sequence[Sequence[tuple[int, int, list[int]]]]


def choose(held: Held) -> tuple[int, int, dict[int, int]] | None:
    """Return the backup to go back to; None: no backup is whole.

    Args:
        held: what the workers left keep.

    Returns:
        The step, the number of workers then, and for each of their slots the worker that has the part.
    """
    whole = {key: holders for key, holders in _holders(held).items() if len(holders) == key[1]}
    if not whole:
        return None
    step, slots = max(whole)
    return step, slots, whole[step, slots]


def gone(held: Held) -> list[int]:
    """Return the missing slots of the backup that lacks the fewest; none where there is no backup at all."""
    lacking = [[slot for slot in range(key[1]) if slot not in holders] for key, holders in _holders(held).items()]
    return min(lacking, key=len, default=[])


def _holders(held: Held) -> dict[tuple[int, int], dict[int, int]]:
    """Return, for each backup by its step and number of workers, the worker left that has each slot's part."""
    backups: dict[tuple[int, int], dict[int, int]] = {}
    for worker, generations in enumerate(held):
        for step, slots, parts in generations:
            holders = backups.setdefault((step, slots), {})
            for slot in parts:
                # A worker's own part stands first in its list, and is preferred.
                if slot not in holders or slot == parts[0]:
                    holders[slot] = worker
    return backups
