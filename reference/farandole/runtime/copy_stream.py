"""Copies between a card and the host beside what the card computes.

    computation     layer 3 │ layer 2 │ layer 1
    copy                    │ bucket 0│ bucket 1        to pinned memory of the host
    messages                          │ bucket 0 │ …

On the stream on which a card computes, a copy would wait for all kernels given before it, and kernels for the copy. On
a stream of its own it waits only for what it is told to: events say when its source is complete, and when it is done.
Source: NVIDIA, "CUDA C++ programming guide", asynchronous concurrent execution.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


class CopyStream:
    """A stream of a card for copies in one direction, which are done in order.

    Args:
        device: the card.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.Stream(device)

    def follow(self) -> None:
        """Let the next copies wait for what the calling thread has given to the card so far."""
        self._stream.wait_event(torch.accelerator.current_stream(self.device).record_event())

    def begin(self, target: Tensor, source: Tensor) -> torch.Event:
        """Begin to copy; one of the two lies on the card, and the other in pinned memory.

        Returns:
            What happens when the copy is done: until then the source must not change, nor the target be used.
        """
        with self._stream:
            target.copy_(source, non_blocking=True)
            return self._stream.record_event()


class GradientCopies:
    """The ways of a flat gradient, part by part, from a card to what MPI is given and back, beside what it computes.

    Staged, each direction has a stream of its own. Where MPI reads the card's memory nothing is copied. Then the sums
    have a stream of their own, since on the default one they would wait for the rest of backward.

    Args:
        on_card: the gradient, where it is computed.
        on_host: pinned memory for it; None: it is computed on a CPU, or MPI reads the card's memory.
    """

    def __init__(self, on_card: Tensor, on_host: Tensor | None) -> None:
        self.on_card, self.on_host = on_card, on_host
        self._adding: torch.Stream | None = None
        if on_host is not None:
            self._leaving, self._arriving = CopyStream(on_card.device), CopyStream(on_card.device)
        elif on_card.device.type != "cpu":
            self._adding = torch.Stream(on_card.device)

    def begin_to_host(self, place: slice) -> torch.Event | None:
        """Begin to copy a part that the calling thread has given to the card to compute.

        Returns:
            What happens when MPI can read it; None: it can now.
        """
        if self._adding:
            return torch.accelerator.current_stream(self.on_card.device).record_event()
        if self.on_host is None:
            return None
        self._leaving.follow()
        return self._leaving.begin(self.on_host[place], self.on_card[place])

    def adding(self) -> AbstractContextManager[object]:
        """Return the context in which a part is reduced after the event of `begin_to_host`."""
        return self._adding or nullcontext()

    def begin_from_host(self, place: slice) -> torch.Event | None:
        """Begin to copy a part back, which the card must not use until the event that is returned."""
        if self._adding:
            return self._adding.record_event()
        return None if self.on_host is None else self._arriving.begin(self.on_card[place], self.on_host[place])
