"""A client's request to several servers: the message to each of them, the place of its answer, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.header import ALL_RANGES, DENSE, Header
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.message_queue import PAYLOAD
from farandole.runtime.communicator import Communicator

Array = NDArray[Any]
Payload = tuple[Any, int | None]  # a buffer as MPI takes it; its bytes, where the buffer does not say


@dataclass(frozen=True)
class Progress:
    """The workers' progress: the samples they have reported, and the number of workers that are left."""

    samples: int
    workers: int


@dataclass
class Request:
    """A request to several servers, or to the manager, until the last of them has answered.

    Attributes:
        waiting_for: partition without an answer → the rank that the request was sent to; None: not sent yet.
        into: where pulled parameters go.
        rows: only these rows of the table; `into` and `gradient` have one row for each.
        encoded: partition → its encoded part of the gradient.
        in_window: the gradient is in shared memory, so no payload follows the header (`window`).
    """

    header: Header
    waiting_for: dict[int, int | None]
    into: Array | None = None
    gradient: Array | None = None
    rows: NDArray[np.int64] | None = None
    encoded: Mapping[int, Array] = field(default_factory=dict)
    in_window: bool = False
    future: Future[Any] = field(default_factory=Future)
    answers: list[Header] = field(default_factory=list)

    def message(self, partition: int, layouts: Mapping[int, Layout]) -> tuple[Header, list[Payload]]:
        """Return the header and the payloads for one partition; dense gradients are sent in place, without a copy."""
        header, rows, gradient = replace(self.header, partition=partition), self.rows, self.gradient
        if partition in self.encoded:
            return header, [(self.encoded[partition], None)]
        if rows is not None:
            layout = layouts[partition]
            here = layout.rows_here(rows)
            header.count = int(here.sum())
            values: list[Payload] = [] if gradient is None else [(np.ascontiguousarray(gradient[here]), None)]
            return header, [(layout.to_local(rows[here]), None), *values]
        if gradient is None or self.in_window:
            return header, []
        if header.part != ALL_RANGES:
            return header, [(gradient, None)]
        return header, [(layouts[partition].of(gradient), layouts[partition].nbytes)]

    def receive(self, comm: Communicator, answer: Header, layout: Layout, dtype: np.dtype[Any]) -> None:
        """Receive the parameters that follow `answer`, into `into` if there is one; dense ones in place."""
        if answer.count == DENSE and self.into is not None:
            comm.take(layout.of(self.into), answer.source, PAYLOAD)
            return
        rows = layout.keys if answer.count == DENSE else answer.count
        values: Array = np.empty((rows, *layout.local_shape[1:]), dtype)
        comm.take(values, answer.source, PAYLOAD)
        if self.into is not None:
            assert self.rows is not None
            self.into[layout.rows_here(self.rows)] = values
