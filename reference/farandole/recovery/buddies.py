"""Each worker's state in the memory of another: its buddy, the next one in the ring.

    worker     0     1     2     3
    keeps      0     1     2     3     what is its own alone, and one of as many parts of what all share
    and        3     0     1     2     of its ward, the same: the first it is sent, the second it has anyhow

Whoever dies has left a copy with its buddy, so those who are left can go back to the step of the copy
together. Two generations are kept, for a death may come while the copies are being exchanged: then some
have the new one already, and all have the old one. Only if a worker and its buddy die together, before
the others have shared their copies anew, is something lost.

The exchange may go on while the next step is computed: `begin`, and `complete` before any parameter changes.

Cost of a backup, with P workers: each copies 2/P of what all share, and sends what is its own alone to one other.
Source: Zheng, Shi & Kalé, "FTC-Charm++: an in-memory checkpoint-based fault tolerant runtime", 2004.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from farandole.recovery.checkpoint import Checkpoint, joined, piece
from farandole.recovery.state import TrainingState, copied
from farandole.recovery.surviving_copies import choose, gone
from farandole.runtime.communicator import (
    Buffer,
    Communicator,
    Pending,
    all_gather_text,
    broadcast_bytes,
    broadcast_text,
)

GENERATIONS = 2
IN_MEMORY = -1  # the slot of a checkpoint that is on no disk
TAG = 1  # of a backup's first tensor, and so on: the step that goes on meanwhile sends with 0


@dataclass(frozen=True)
class Generation:
    """What one worker keeps of one backup.

    Attributes:
        step: to be taken next.
        slots: how many workers there were; `slot` is its own.
        own: slot → what was that worker's alone: its own and its ward's.
        pieces: slot → that worker's part of what all share, likewise.
        description: what else goes with it, the same on all workers.
    """

    step: int
    slots: int
    slot: int
    own: dict[int, dict[str, Tensor]]
    pieces: dict[int, dict[str, Tensor]]
    description: dict[str, Any]


class Buddies:
    """One worker's copies.

    Args:
        every: steps between two backups.

    Attributes:
        gone: after a recovery that found no whole backup: the slots whose parts nobody has.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.gone: list[int] = []
        self._generations: list[Generation] = []
        self._saved_in: Communicator | None = None  # the group of the last backup
        self._under_way: Pending | None = None  # the exchange of the last generation
        self._given_up: list[Pending] = []  # MPI may write to their buffers as long as there are any

    @property
    def newest(self) -> int | None:
        """The step of the newest backup of which this worker has a part; None: it has none."""
        return max((each.step for each in self._generations), default=None)

    def due(self, comm: Communicator, step: int) -> bool:
        """Whether it is time for a backup: every so many steps, and at once where the workers have changed."""
        return comm is not self._saved_in or step % self.every == 0

    def save(self, comm: Communicator, state: TrainingState) -> None:
        """Copy `state`, and exchange with the neighbours what is each one's own. Collective.

        Cost: a message for each tensor of its own; at the first time in a group two, with names and shapes.
        """
        self.begin(comm, state)
        self.complete()

    def begin(self, comm: Communicator, state: TrainingState) -> None:
        """`save`, but for the waiting: until `complete` the backup before is the last one that is whole."""
        self.complete()
        ward = (comm.rank - 1) % comm.size
        memory = self._generations.pop(0) if len(self._generations) == GENERATIONS else None
        if memory and ((memory.slot, memory.slots) != (comm.rank, comm.size) or ward not in memory.own):
            memory = None  # its copies have other sizes, or one never came
        pieces = {
            slot: copied(piece(state.shared, slot, comm.size), memory.pieces[slot] if memory else {})
            for slot in {comm.rank, ward}
        }
        own = {comm.rank: copied(state.own, memory.own[comm.rank] if memory else {}, "cpu")}
        if comm.size > 1:
            if comm is not self._saved_in:
                own[ward] = _introduced(comm, own[comm.rank])
            else:
                wards = (memory or self._generations[-1]).own[ward]
                own[ward] = wards if memory else {name: torch.empty_like(tensor) for name, tensor in wards.items()}
                self._under_way = _begin_exchange(comm, own[comm.rank], own[ward])
        shapes = {name: list(tensor.shape) for name, tensor in state.shared.items()}
        description = {"values": dict(state.values), "shapes": shapes}
        self._generations.append(Generation(state.step, comm.size, comm.rank, own, pieces, description))
        self._saved_in = comm

    def complete(self) -> None:
        """Return when the ward's part of what was begun has arrived, and the own part has left."""
        if self._under_way:
            assert self._saved_in is not None
            self._saved_in.complete(self._under_way)
            self._under_way = None

    def recover(self, comm: Communicator) -> Checkpoint | None:
        """The newest backup that the workers left have all parts of, on all of them; None: there is none. Collective.

        Cost: broadcasts of a whole state, two from each worker's part of it.
        """
        found = self._agree(comm)
        if found is None:
            return None
        step, slots, holders = found
        own = self._kept(step, slots)
        description = self._description(comm, own, holders[min(holders)])
        pieces: list[dict[str, Tensor]] = []
        parts: dict[int, dict[str, Tensor]] = {}
        for slot, holder in sorted(holders.items()):
            holds = own if own and holder == comm.rank else None
            pieces.append(_broadcast(comm, holds.pieces[slot] if holds else None, holder))
            parts[slot] = _broadcast(comm, holds.own[slot] if holds else None, holder)
        shared = joined(pieces, description["shapes"])
        return Checkpoint(IN_MEMORY, step, slots, shared, parts, description["values"])

    def recover_own(self, comm: Communicator) -> TrainingState | None:
        """Likewise, where nothing is shared and every slot is taken: each worker gets its slot's part. Collective.

        Cost: two messages, to each worker that has come newly; the others have theirs.
        """
        with comm.waiting("which backups the others have", -1):
            found = self._agree(comm)
            if found is None:
                return None
            step, slots, holders = found
            own = self._kept(step, slots)
            values = self._description(comm, own, holders[min(holders)])["values"]
        part = own.own[comm.rank] if own else {}
        for slot, holder in sorted(holders.items()):
            if comm.rank == holder != slot:
                assert own is not None
                pack = _packed(own.own[slot])
                comm.send(np.array([pack.size]), slot)
                comm.send(pack, slot)
            elif comm.rank == slot != holder:
                length = np.empty(1, dtype=np.int64)
                comm.receive(length, holder)
                pack = np.empty(int(length[0]), dtype=np.uint8)
                comm.receive(pack, holder)
                part = tensors_from_bytes(pack.tobytes())
        return TrainingState(step, {}, part, values)

    def forget_after(self, step: int) -> None:
        """The training has gone back to `step` by other means."""
        self._generations = [each for each in self._generations if each.step <= step]

    def _agree(self, comm: Communicator) -> tuple[int, int, dict[int, int]] | None:
        """What `choose` chooses, from what all have; what is newer is forgotten."""
        self._break_off()
        texts = all_gather_text(comm.mpi, json.dumps([_summary(generation) for generation in self._generations]))
        held = [[tuple(each) for each in json.loads(text)] for text in texts]
        found = choose(held)
        self.gone = [] if found else gone(held)
        if found:
            # What is newer some never got. It must not push out the older one, which all have.
            self.forget_after(found[0])
        return found

    def _kept(self, step: int, slots: int) -> Generation | None:
        return next((each for each in self._generations if (each.step, each.slots) == (step, slots)), None)

    @staticmethod
    def _description(comm: Communicator, own: Generation | None, source: int) -> dict[str, Any]:
        """`source`'s, on all workers."""
        text = json.dumps(own.description) if own and source == comm.rank else ""
        found: dict[str, Any] = json.loads(broadcast_text(comm.mpi, text, source))
        return found

    def _break_off(self) -> None:
        """What is under way either has arrived by now, or does not count."""
        if self._under_way:
            broken = self._generations[-1]
            if not self._under_way.has_arrived():
                del broken.own[(broken.slot - 1) % broken.slots]
            self._given_up.append(self._under_way)
            self._under_way = None


def _summary(generation: Generation) -> tuple[int, int, list[int]]:
    return generation.step, generation.slots, list(generation.own)


def _begin_exchange(comm: Communicator, own: Mapping[str, Tensor], wards: Mapping[str, Tensor]) -> Pending:
    """Give the own tensors to the buddy, and get the ward's, which need not be as many."""
    buddy, ward = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    own_buffers, wards_buffers = ([tensors[name].numpy() for name in sorted(tensors)] for tensors in (own, wards))
    return comm.begin_exchange(own_buffers, buddy, wards_buffers, ward, TAG)


def _introduced(comm: Communicator, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Likewise at the first time, when it is not known yet what the ward's are."""
    buddy, ward = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    pack, length = _packed(own), np.empty(1, dtype=np.int64)
    comm.exchange(np.array([pack.size]), buddy, length, ward)
    wards = np.empty(int(length[0]), dtype=np.uint8)
    comm.exchange(pack, buddy, wards, ward)
    return tensors_from_bytes(wards.tobytes())


def _packed(tensors: Mapping[str, Tensor]) -> Buffer:
    return np.frombuffer(tensors_to_bytes({name: t.cpu().contiguous() for name, t in tensors.items()}), np.uint8)


def _broadcast(comm: Communicator, tensors: Mapping[str, Tensor] | None, source: int) -> dict[str, Tensor]:
    """`source`'s tensors, on all workers."""
    pack = _packed(tensors) if tensors is not None else None
    return tensors_from_bytes(broadcast_bytes(comm.mpi, pack, source))
