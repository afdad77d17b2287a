"""Each worker's state in the memory of another: its buddy, the next one in the ring.

    worker     0     1     2     3
    keeps      own   own   own   own        a copy of itself as it was at that step
    and        3's   0's   1's   2's        of its ward, what is that one's alone

Whoever dies has left a copy with its buddy, and the others have their own: so all can go back to the
step of the copy. Two generations are kept, for a death may come while the copies are being exchanged:
then some have the new one already, and all have the old one. Only if a worker and its buddy die
together, before the others have shared their copies anew, is something lost.

Cost of a backup: each worker copies its own state, and sends what is its own alone to one other.
Source: Zheng, Shi & Kalé, "FTC-Charm++: an in-memory checkpoint-based fault tolerant runtime", 2004.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from farandole.recovery.checkpoint import Checkpoint
from farandole.recovery.state import TrainingState
from farandole.runtime.communicator import Buffer, Communicator, all_gather_text, broadcast_bytes, broadcast_text

GENERATIONS = 2
IN_MEMORY = -1  # the slot of a checkpoint that is on no disk

# Of each worker, of each backup that it keeps: the step, how many workers there were, whose parts.
Held = Sequence[Sequence[tuple[int, int, list[int]]]]


@dataclass(frozen=True)
class Generation:
    """What one worker keeps of one backup.

    Attributes:
        state: its own, copied.
        places: how many workers there were; `place` is its own.
        packs: place → what was that worker's alone, as safetensors: its own and its ward's.
    """

    state: TrainingState
    places: int
    place: int
    packs: dict[int, Buffer]


class Buddies:
    """One worker's copies.

    Args:
        every: steps between two backups.

    Attributes:
        gone: after a recovery that found no whole backup: the places whose parts nobody has.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.gone: list[int] = []
        self._generations: list[Generation] = []
        self._saved_in: Communicator | None = None  # the group of the last backup
        self._length = 0  # of the ward's pack in that group, in bytes

    def due(self, comm: Communicator, step: int) -> bool:
        """Whether it is time for a backup: every so many steps, and at once where the workers have changed."""
        return comm is not self._saved_in or step % self.every == 0

    def save(self, comm: Communicator, state: TrainingState) -> None:
        """Copy `state`, and exchange with the neighbours what is each one's own. Collective.

        Cost: a message, and at the first time in a group two.
        """
        pack = _packed(state.own)
        packs = {comm.rank: pack}
        if comm.size > 1:
            packs[(comm.rank - 1) % comm.size] = self._swap(comm, pack)
        self._generations.append(Generation(_copy(state), comm.size, comm.rank, packs))
        del self._generations[:-GENERATIONS]
        self._saved_in = comm

    def recover(self, comm: Communicator) -> Checkpoint | None:
        """The newest backup that the workers left have all parts of, on all of them; None: there is none. Collective.

        Cost: one broadcast of a whole state.
        """
        found = self._agree(comm)
        if found is None:
            return None
        step, places, holders = found
        own = self._kept(step, places)
        source = holders[min(holders)]
        values = self._values(comm, own, source)
        kept = _packed(own.state.shared) if own and source == comm.rank else None
        shared = tensors_from_bytes(broadcast_bytes(comm.mpi, kept, source))
        parts: dict[int, dict[str, Tensor]] = {}
        for place, holder in sorted(holders.items()):
            pack = own.packs[place] if own and holder == comm.rank else None
            parts[place] = tensors_from_bytes(broadcast_bytes(comm.mpi, pack, holder))
        return Checkpoint(IN_MEMORY, step, places, shared, parts, values)

    def recover_own(self, comm: Communicator) -> TrainingState | None:
        """Likewise, where nothing is shared and every place is taken: each worker gets its place's part. Collective.

        Cost: two messages, to each worker that has come newly; the others have theirs.
        """
        with comm.waiting("which backups the others have", -1):
            found = self._agree(comm)
            if found is None:
                return None
            step, places, holders = found
            own = self._kept(step, places)
            values = self._values(comm, own, holders[min(holders)])
        pack = own.packs[comm.rank] if own else np.empty(0, dtype=np.uint8)
        for place, holder in sorted(holders.items()):
            if comm.rank == holder != place:
                assert own is not None
                comm.send(np.array([own.packs[place].size]), place)
                comm.send(own.packs[place], place)
            elif comm.rank == place != holder:
                length = np.empty(1, dtype=np.int64)
                comm.receive(length, holder)
                pack = np.empty(int(length[0]), dtype=np.uint8)
                comm.receive(pack, holder)
        return TrainingState(step, {}, tensors_from_bytes(pack.tobytes()), values)

    def forget_after(self, step: int) -> None:
        """The training has gone back to `step` by other means."""
        self._generations = [each for each in self._generations if each.state.step <= step]

    def _agree(self, comm: Communicator) -> tuple[int, int, dict[int, int]] | None:
        """What `choose` chooses, from what all have; what is newer is forgotten."""
        texts = all_gather_text(comm.mpi, json.dumps([_summary(generation) for generation in self._generations]))
        held = [[tuple(each) for each in json.loads(text)] for text in texts]
        found = choose(held)
        self.gone = [] if found else gone(held)
        if found:
            # What is newer some never got. It must not push out the older one, which all have.
            self.forget_after(found[0])
        return found

    def _kept(self, step: int, places: int) -> Generation | None:
        return next((each for each in self._generations if (each.state.step, each.places) == (step, places)), None)

    @staticmethod
    def _values(comm: Communicator, own: Generation | None, source: int) -> dict[str, Any]:
        """`source`'s values, on all workers."""
        values = own.state.values if own and source == comm.rank else {}
        found: dict[str, Any] = json.loads(broadcast_text(comm.mpi, json.dumps(values), source))
        return found

    def _swap(self, comm: Communicator, pack: Buffer) -> Buffer:
        """Give the own pack to the buddy, and get the ward's."""
        buddy, ward = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        if comm is not self._saved_in:
            length = np.empty(1, dtype=np.int64)
            comm.exchange(np.array([pack.size]), buddy, length, ward)
            self._length = int(length[0])
        wards = np.empty(self._length, dtype=np.uint8)
        comm.exchange(pack, buddy, wards, ward)
        return wards


def choose(held: Held) -> tuple[int, int, dict[int, int]] | None:
    """Which backup to go back to.

    Args:
        held: what the workers left keep.

    Returns:
        The step, how many workers there were, and for each of their places the worker that has the part.
    """
    whole = {key: holders for key, holders in _holders(held).items() if len(holders) == key[1]}
    if not whole:
        return None
    step, places = max(whole)
    return step, places, whole[step, places]


def gone(held: Held) -> list[int]:
    """The places whose parts nobody has, of the backup that lacks the fewest; none where there is no backup at all."""
    lacking = [[place for place in range(key[1]) if place not in holders] for key, holders in _holders(held).items()]
    return min(lacking, key=len, default=[])


def _holders(held: Held) -> dict[tuple[int, int], dict[int, int]]:
    """Of each backup, by its step and how many workers there were: which of those left has each place's part."""
    backups: dict[tuple[int, int], dict[int, int]] = {}
    for worker, generations in enumerate(held):
        for step, places, parts in generations:
            holders = backups.setdefault((step, places), {})
            for place in parts:
                # Its own part is first: it stands first in the list.
                if place not in holders or place == parts[0]:
                    holders[place] = worker
    return backups


def _summary(generation: Generation) -> tuple[int, int, list[int]]:
    return generation.state.step, generation.places, list(generation.packs)


def _copy(state: TrainingState) -> TrainingState:
    return TrainingState(
        state.step, {name: t.detach().clone() for name, t in state.shared.items()}, {}, dict(state.values)
    )


def _packed(tensors: dict[str, Tensor]) -> Buffer:
    return np.frombuffer(tensors_to_bytes({name: t.cpu().contiguous() for name, t in tensors.items()}), np.uint8)
