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

import numpy as np
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from farandole.recovery.checkpoint import Checkpoint
from farandole.recovery.state import TrainingState
from farandole.runtime.communicator import Buffer, Communicator, broadcast_text

GENERATIONS = 2
IN_MEMORY = -1  # the slot of a checkpoint that is on no disk


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
    """One worker's copies."""

    def __init__(self) -> None:
        self._generations: list[Generation] = []
        self._lengths: tuple[Communicator, int] | None = None  # of the ward's pack, in bytes, in that group

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

    def recover(self, comm: Communicator) -> Checkpoint | None:
        """The newest backup that the workers left have all parts of, on all of them; None: there is none. Collective.

        Cost: one broadcast of a whole state.
        """
        held = _all_texts(comm, json.dumps([_summary(generation) for generation in self._generations]))
        found = choose([[tuple(each) for each in json.loads(text)] for text in held])
        if found is None:
            return None
        step, places, holders = found
        # What is newer some never got. It must not push out the older one, which all have.
        self.forget_after(step)
        own = next((each for each in self._generations if (each.state.step, each.places) == (step, places)), None)
        source = holders[min(holders)]
        kept = own.state if own and source == comm.rank else None
        values = json.loads(broadcast_text(comm.mpi, json.dumps(kept.values if kept else {}), source))
        shared = tensors_from_bytes(_broadcast(comm, _packed(kept.shared) if kept else None, source))
        parts: dict[int, dict[str, Tensor]] = {}
        for place, holder in sorted(holders.items()):
            pack = own.packs[place] if own and holder == comm.rank else None
            parts[place] = tensors_from_bytes(_broadcast(comm, pack, holder))
        return Checkpoint(IN_MEMORY, step, places, shared, parts, values)

    def forget_after(self, step: int) -> None:
        """The training has gone back to `step` by other means."""
        self._generations = [each for each in self._generations if each.state.step <= step]

    def _swap(self, comm: Communicator, pack: Buffer) -> Buffer:
        """Give the own pack to the buddy, and get the ward's."""
        buddy, ward = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        if self._lengths is None or self._lengths[0] is not comm:
            length = np.empty(1, dtype=np.int64)
            comm.exchange(np.array([pack.size]), buddy, length, ward)
            self._lengths = comm, int(length[0])
        wards = np.empty(self._lengths[1], dtype=np.uint8)
        comm.exchange(pack, buddy, wards, ward)
        return wards


def choose(held: Sequence[Sequence[tuple[int, int, list[int]]]]) -> tuple[int, int, dict[int, int]] | None:
    """Which backup to go back to.

    Args:
        held: of each worker left, of each backup it keeps: the step, how many workers there were, whose parts.

    Returns:
        The step, how many workers there were, and for each of their places the worker that has the part.
    """
    backups: dict[tuple[int, int], dict[int, int]] = {}
    for worker, generations in enumerate(held):
        for step, places, parts in generations:
            holders = backups.setdefault((step, places), {})
            for place in parts:
                # Its own part is first: it stands first in the list.
                if place not in holders or place == parts[0]:
                    holders[place] = worker
    whole = {key: holders for key, holders in backups.items() if len(holders) == key[1]}
    if not whole:
        return None
    step, places = max(whole)
    return step, places, whole[step, places]


def _summary(generation: Generation) -> tuple[int, int, list[int]]:
    return generation.state.step, generation.places, list(generation.packs)


def _copy(state: TrainingState) -> TrainingState:
    return TrainingState(
        state.step, {name: t.detach().clone() for name, t in state.shared.items()}, {}, dict(state.values)
    )


def _packed(tensors: dict[str, Tensor]) -> Buffer:
    return np.frombuffer(tensors_to_bytes({name: t.cpu().contiguous() for name, t in tensors.items()}), np.uint8)


def _broadcast(comm: Communicator, data: Buffer | None, source: int) -> bytes:
    """`source`'s bytes, on all ranks."""
    length = np.array([0 if data is None else data.size])
    comm.mpi.Bcast(length, source)
    buffer = np.empty(int(length[0]), dtype=np.uint8) if data is None else data.copy()
    comm.mpi.Bcast(buffer, source)
    return buffer.tobytes()


def _all_texts(comm: Communicator, text: str) -> list[str]:
    """Every rank's text, on every rank."""
    own = np.frombuffer(text.encode(), dtype=np.uint8)
    lengths = np.empty(comm.size, dtype=np.int64)
    comm.mpi.Allgather(np.array([own.size]), lengths)
    everything = np.empty(int(lengths.sum()), dtype=np.uint8)
    comm.mpi.Allgatherv(own, [everything, lengths])
    return [part.tobytes().decode() for part in np.split(everything, np.cumsum(lengths)[:-1])]
