"""Each worker's state in the memory of another: its buddy, the next worker in the ring.

    worker     0     1     2     3
    keeps      0     1     2     3     its own state, and one of P parts of the state that all share
    and        3     0     1     2     the same of its ward; it receives the first, and has the second itself

A dead worker's state is with its buddy, so the workers left can go back to the step of the copy together. Two
generations are kept, since a death may come while copies are being exchanged: then some workers have the new one
already, and all have the old one. State is lost only if a worker and its buddy die together, before the others have
exchanged new copies.

The exchange overlaps with the next step: `begin`, and `complete` before any parameter changes.

Cost of a backup, with P workers: each copies 2/P of the state that all share, and sends its own state to one worker.
Source: Zheng, Shi & Kalé, "FTC-Charm++: an in-memory checkpoint-based fault tolerant runtime", 2004.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from farandole.recovery.buddy_exchange import (
    begin_exchange,
    broadcast_into,
    broadcast_pack,
    exchange_packs,
    receive_pack,
    send_pack,
)
from farandole.recovery.checkpoint import Checkpoint, piece
from farandole.recovery.state import TrainingState, copied
from farandole.recovery.surviving_copies import choose, gone
from farandole.runtime.communicator import Communicator, Pending, all_gather_text, broadcast_text

GENERATIONS = 2
IN_MEMORY = -1  # the slot of a checkpoint that is on no disk


@dataclass(frozen=True)
class Generation:
    """The copies that one worker keeps of one backup.

    Attributes:
        step: to be taken next.
        slots: number of workers then; `slot` is this one's.
        own: slot → what was that worker's alone: this worker's own and its ward's.
        pieces: slot → that worker's part of what all share: this worker's own and its ward's.
        description: numbers, texts, types and shapes that belong to it, the same on all workers.
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
        gone: after a recovery that found no whole backup: the slots whose parts no worker has.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.gone: list[int] = []
        self._generations: list[Generation] = []
        self._saved_in: Communicator | None = None  # the group of the last backup
        self._under_way: Pending | None = None  # the exchange of the last generation
        self._given_up: list[Pending] = []  # kept, since MPI may still write to their buffers

    @property
    def newest(self) -> int | None:
        """Return the step of the newest backup of which this worker has a part; None: it has none."""
        return max((each.step for each in self._generations), default=None)

    def due(self, comm: Communicator, step: int) -> bool:
        """Return whether it is time for a backup: every `every` steps, and at once where the workers have changed."""
        return comm is not self._saved_in or step % self.every == 0

    def save(self, comm: Communicator, state: TrainingState) -> None:
        """Copy `state`, send what is this worker's own to the buddy, and receive the ward's. Collective.

        Cost: a message for each tensor of its own; at a group's first backup two, with names and shapes.
        """
        self.begin(comm, state)
        self.complete()

    def begin(self, comm: Communicator, state: TrainingState) -> None:
        """Begin to `save`: until `complete` returns the previous backup is the last one that is whole."""
        self.complete()
        ward = (comm.rank - 1) % comm.size
        memory = self._generations.pop(0) if len(self._generations) == GENERATIONS else None
        if memory and ((memory.slot, memory.slots) != (comm.rank, comm.size) or ward not in memory.own):
            memory = None  # its copies have other sizes, or one never arrived
        pieces = {
            slot: copied(piece(state.shared, slot, comm.size), memory.pieces[slot] if memory else {})
            for slot in {comm.rank, ward}
        }
        own = {comm.rank: copied(state.own, memory.own[comm.rank] if memory else {}, "cpu")}
        if comm.size > 1:
            if comm is not self._saved_in:
                own[ward] = exchange_packs(comm, own[comm.rank])
            else:
                wards = (memory or self._generations[-1]).own[ward]
                own[ward] = wards if memory else {name: torch.empty_like(tensor) for name, tensor in wards.items()}
                self._under_way = begin_exchange(comm, own[comm.rank], own[ward])
        kinds = {name: (str(each.dtype)[len("torch.") :], list(each.shape)) for name, each in state.shared.items()}
        description = {"values": dict(state.values), "kinds": kinds}
        self._generations.append(Generation(state.step, comm.size, comm.rank, own, pieces, description))
        self._saved_in = comm

    def complete(self) -> None:
        """Return when the ward's part of the backup that was begun has arrived, and the own part is sent."""
        if self._under_way:
            assert self._saved_in is not None
            self._saved_in.complete(self._under_way)
            self._under_way = None

    def recover(self, comm: Communicator, memory: Mapping[str, Tensor]) -> Checkpoint | None:
        """Return the newest backup of which the workers left have all parts; None: there is none. Collective.

        Args:
            memory: name → a tensor for what all share, which is overwritten if its shape and type fit. New memory is
                slow at first, and a worker has none to spare for a whole state.

        Cost: broadcasts of a whole state, in parts. Those of what all share arrive in their place, without a copy.
        """
        found = self._agree(comm)
        if found is None:
            return None
        step, slots, holders = found
        own = self._kept(step, slots)
        description = self._description(comm, own, holders[min(holders)])
        shared = {name: _place(memory.get(name), *kind) for name, kind in description["kinds"].items()}
        parts: dict[int, dict[str, Tensor]] = {}
        for slot, holder in sorted(holders.items()):
            holds = own if own and holder == comm.rank else None
            broadcast_into(comm, piece(shared, slot, slots), holds.pieces[slot] if holds else None, holder)
            parts[slot] = broadcast_pack(comm, holds.own[slot] if holds else None, holder)
        return Checkpoint(IN_MEMORY, step, slots, shared, parts, description["values"])

    def recover_own(self, comm: Communicator) -> TrainingState | None:
        """Return this slot's part of that backup, where nothing is shared and every slot has a worker. Collective.

        Cost: two messages to each worker that has taken a slot anew; the others have their parts.
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
                send_pack(comm, own.own[slot], slot)
            elif comm.rank == slot != holder:
                part = receive_pack(comm, holder)
        return TrainingState(step, {}, part, values)

    def forget_after(self, step: int) -> None:
        """Forget the backups after `step`, to which the training has gone back by other means."""
        self._generations = [each for each in self._generations if each.step <= step]

    def _agree(self, comm: Communicator) -> tuple[int, int, dict[int, int]] | None:
        """Return what `choose` chooses from the backups that all workers have; forget newer ones."""
        self._break_off()
        texts = all_gather_text(comm.mpi, json.dumps([_summary(generation) for generation in self._generations]))
        held = [[tuple(each) for each in json.loads(text)] for text in texts]
        found = choose(held)
        self.gone = [] if found else gone(held)
        if found:
            self.forget_after(found[0])  # a newer one, which some never received, must not displace what all have
        return found

    def _kept(self, step: int, slots: int) -> Generation | None:
        return next((each for each in self._generations if (each.step, each.slots) == (step, slots)), None)

    @staticmethod
    def _description(comm: Communicator, own: Generation | None, source: int) -> dict[str, Any]:
        """Return the description that `source` has, on all workers."""
        text = json.dumps(own.description) if own and source == comm.rank else ""
        found: dict[str, Any] = json.loads(broadcast_text(comm.mpi, text, source))
        return found

    def _break_off(self) -> None:
        """Give up the exchange under way: the ward's part has arrived by now, or does not count."""
        if self._under_way:
            newest = self._generations[-1]
            if not self._under_way.has_arrived():
                del newest.own[(newest.slot - 1) % newest.slots]
            self._given_up.append(self._under_way)
            self._under_way = None


def _place(memory: Tensor | None, kind: str, shape: Sequence[int]) -> Tensor:
    """Return `memory`, or a new tensor if there is none, or one of another type or shape."""
    wanted = (getattr(torch, kind), torch.Size(shape))
    if memory is not None and memory.is_contiguous() and (memory.dtype, memory.shape) == wanted:
        return memory
    return torch.empty(shape, dtype=wanted[0])


def _summary(generation: Generation) -> tuple[int, int, list[int]]:
    return generation.step, generation.slots, list(generation.own)
