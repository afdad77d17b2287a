"""Which backup the workers that are left can go back to: plain functions of what each of them keeps.

A backup is whole if for each slot of the group that made it one of the workers left has that worker's part: the worker
itself, or its buddy (`buddies`). Of the whole backups the newest counts.
"""

from __future__ import annotations

from collections.abc import Sequence

# Of each worker, of each backup that it keeps: the step, how many workers there were, whose parts.
Held = Sequence[Sequence[tuple[int, int, list[int]]]]


def choose(held: Held) -> tuple[int, int, dict[int, int]] | None:
    """Which backup to go back to.

    Args:
        held: what the workers left keep.

    Returns:
        The step, how many workers there were, and for each of their slots the worker that has the part.
    """
    whole = {key: holders for key, holders in _holders(held).items() if len(holders) == key[1]}
    if not whole:
        return None
    step, slots = max(whole)
    return step, slots, whole[step, slots]


def gone(held: Held) -> list[int]:
    """The slots whose parts nobody has, of the backup that lacks the fewest; none where there is no backup at all."""
    lacking = [[slot for slot in range(key[1]) if slot not in holders] for key, holders in _holders(held).items()]
    return min(lacking, key=len, default=[])


def _holders(held: Held) -> dict[tuple[int, int], dict[int, int]]:
    """Of each backup, by its step and how many workers there were: which of those left has each slot's part."""
    backups: dict[tuple[int, int], dict[int, int]] = {}
    for worker, generations in enumerate(held):
        for step, slots, parts in generations:
            holders = backups.setdefault((step, slots), {})
            for slot in parts:
                # Its own part is first: it stands first in the list.
                if slot not in holders or slot == parts[0]:
                    holders[slot] = worker
    return backups
