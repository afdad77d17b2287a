"""A server: its part of each application's parameters, and perhaps a copy of another's, over MPI.

Workers ask and push; the shard and its policy decide; this module moves the bytes. Parameters are
sent straight from where they live. So before they are moved, what is still being sent must have
left: a worker never reads a half-made update.

Where each part is with two servers (`succession`), both carry out every request, the second one when
the first has handed it on. A shard has no clock of its own, so the moment travels along; then both
decide alike, and the last in the chain answers.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.header import ALL_RANGES, DENSE, ROW_NUMBER, Header, Kind
from farandole.parameter_server.mailbox import ANSWER, PAYLOAD, REQUEST, Mailbox
from farandole.parameter_server.sessions import Sessions
from farandole.parameter_server.shard import Gradient, Shard
from farandole.parameter_server.succession import Succession
from farandole.parameter_server.window import Window
from farandole.runtime.world import World

Array = NDArray[Any]
# Makes a part's shard, given what the shard calls to answer, and before it moves its values.
MakeShard = Callable[[Callable[[Header], None], Callable[[], None]], Shard]
Part = tuple[int, int]  # the server whose part it is, and the application


class Server:
    """One rank's shards: one per application, and as many more for each other server whose part it keeps.

    Args:
        make: the part → what makes its shard.
        windows: the applications' shared memory, if parameters and gradients go through that.
    """

    kinds = frozenset({Kind.PULL, Kind.PUSH, Kind.READ, Kind.CLEAN, Kind.TICK})

    def __init__(
        self,
        world: World,
        mailbox: Mailbox,
        succession: Succession,
        make: Mapping[Part, MakeShard],
        windows: Sequence[Window] = (),
    ) -> None:
        self.world = world
        self.mailbox = mailbox
        self.succession = succession
        self.windows = windows
        self._rows: dict[tuple[Part, int], Array] = {}  # part and worker → the rows it asked for
        self._sessions: defaultdict[Part, Sessions] = defaultdict(Sessions)
        self._cleaned: dict[tuple[Part, int], Header] = {}  # part and client → what was found
        self._ahead = 0.0  # of our clock is that of the server whose requests we have been handed
        self.shards = {part: make_shard(partial(self._reply, part), self._settle) for part, make_shard in make.items()}
        self._tails = self._tails_now()

    def handle(self, header: Header) -> None:
        """Carry out a request, from a client or handed on by the server before."""
        part = header.home, header.group
        shard = self.shards[part]
        with self.world.trace.span("receive a gradient", "communicate") if header.kind == Kind.PUSH else nullcontext():
            payload = self._take(header, shard)
        if header.kind == Kind.READ:
            self._read(header, shard)
            return
        now = self._moment(header)
        self._hand_on(replace(header, seconds=now), payload)
        if header.kind == Kind.TICK:
            shard.tick(now)
        elif header.kind == Kind.CLEAN:
            self._clean(header, shard, now)
        elif self.succession.replicated and not self._sessions[part].open(header):
            if known := self._sessions[part].answer(header):
                self._send_answer(part, known)
        elif header.kind == Kind.PULL:
            if payload:
                self._rows[part, header.worker] = payload[0]
            shard.pull(header, now)
        else:
            self._push(header, shard, self._gradient(header, shard, payload), now)

    def tick(self) -> None:
        for (home, group), shard in self.shards.items():
            now = self._now()
            if self.succession.head(home) == self.world.rank and shard.tick(now):
                self._hand_on(Header(Kind.TICK, home=home, group=group, seconds=now), [])

    def miss(self, dead: frozenset[int]) -> None:
        """Some have died. Where the last in a chain was among them, this one answers now: again, for it may not have.

        Raises:
            NobodyToSucceed: nobody has some part of the parameters any more.
        """
        before, self._tails = self._tails, self._tails_now()
        for part in self.shards:
            if self._tails[part[0]] != before[part[0]] and self._tails[part[0]] == self.world.rank:
                for answer in list(self._sessions[part].answers()):
                    self._send_answer(part, answer)
                for (cleaned, _), found in self._cleaned.items():
                    if cleaned == part:
                        self.mailbox.send(self.succession.cleaner, REQUEST, found)

    def stop(self) -> None:
        pass

    @property
    def late_pushes(self) -> int:
        """Pushes that came too late to count."""
        own = self.world.rank
        return sum(shard.late_pushes for (home, _), shard in self.shards.items() if self.succession.head(home) == own)

    def _tails_now(self) -> dict[int, int]:
        return {home: self.succession.tail(home) for home in self.succession.homes}

    def _push(self, header: Header, shard: Shard, gradient: Gradient, now: float) -> None:
        before = shard.updates
        start = time.perf_counter()
        shard.push(header, gradient, now)
        if shard.updates > before:
            self.world.finish_computation(start)
            self.world.trace.add("update", "compute", start, time.perf_counter())
            if header.home == self.world.rank:
                for update in range(before, shard.updates):
                    self.world.begin_step(update + 1)

    def _read(self, header: Header, shard: Shard) -> None:
        values = Header(Kind.VALUES, home=header.home, number=header.number, clock=shard.updates, count=header.count)
        if header.count == DENSE:
            self._send(header.source, values, shard.values)
        else:  # no rows: only the version was asked for
            self.mailbox.send(header.source, ANSWER, values)

    def _clean(self, header: Header, shard: Shard, now: float) -> None:
        part, client = (header.home, header.group), header.worker
        pulls, clocks, pushes = shard.clean(client, now)
        self._sessions[part].forget(client)
        found = Header(Kind.CLEANED, worker=client, home=header.home, pulls=pulls, clocks=clocks, pushes=pushes)
        found = self._cleaned.setdefault((part, client), found)
        if self.succession.tail(header.home) == self.world.rank:
            self.mailbox.send(self.succession.cleaner, REQUEST, found)

    def _now(self) -> float:
        return time.monotonic() + self._ahead

    def _moment(self, header: Header) -> float:
        """When the request came to the first server of the chain. Clocks of several hosts differ, and never go back."""
        if not header.seconds:
            return self._now()
        self._ahead = max(self._ahead, header.seconds - time.monotonic())
        return header.seconds

    def _hand_on(self, header: Header, payload: Sequence[Array]) -> None:
        chain = self.succession.chain(header.home)
        if chain[0] == self.world.rank and len(chain) > 1:
            self.mailbox.hand_on(chain[1], REQUEST, header, payload)

    def _reply(self, part: Part, answer: Header) -> None:
        """A shard's answer: keep it, and if this server is the one that answers, send it."""
        answer.home = part[0]
        if self.succession.replicated:
            self._sessions[part].note(answer)
        if self.succession.tail(part[0]) == self.world.rank:
            self._send_answer(part, answer)

    def _send_answer(self, part: Part, answer: Header) -> None:
        """Send an answer; a GRANT with the values, or the rows of them that were asked for."""
        if answer.kind != Kind.GRANT:
            self.mailbox.send(answer.worker, ANSWER, answer)
            return
        values = self.shards[part].values
        if answer.count != DENSE:
            self._send(answer.worker, answer, values[self._rows[part, answer.worker]])
        elif self.windows:
            self.windows[part[1]].granted(answer.worker)
            self.mailbox.send(answer.worker, ANSWER, answer)
        else:
            self._send(answer.worker, answer, values)

    def _settle(self) -> None:
        """Wait until no parameters are on their way, or being read."""
        self.mailbox.settle()
        for window in self.windows:
            window.settle()

    def _send(self, to: int, header: Header, values: Array) -> None:
        self.mailbox.send(to, ANSWER, header)
        self.mailbox.send_payload(to, values)

    def _take(self, header: Header, shard: Shard) -> list[Array]:
        """What follows a header: row numbers, a gradient, both, or nothing."""
        if header.kind not in (Kind.PULL, Kind.PUSH):
            return []
        comm, payload, values = self.mailbox.comm, [], shard.values
        if header.count != DENSE:
            payload.append(np.empty(header.count, dtype=ROW_NUMBER))
        if header.kind == Kind.PUSH:
            if header.count != DENSE:
                payload.append(np.empty((header.count, *values.shape[1:]), values.dtype))
            elif header.part != ALL_RANGES:
                payload.append(np.empty_like(values[shard.slices[header.part]]))
            elif not self.windows:
                payload.append(np.empty_like(values))
        for buffer in payload:
            comm.take(buffer, header.source, PAYLOAD)
        return payload

    def _gradient(self, header: Header, shard: Shard, payload: Sequence[Array]) -> Gradient:
        if header.count != DENSE:
            rows, sparse = payload
            return Gradient([sparse], rows)
        if header.part != ALL_RANGES:
            return Gradient(list(payload))
        if not payload:
            return Gradient(self.windows[header.group].pieces(header.worker, self.world.rank))
        return Gradient([payload[0][part] for part in shard.slices])
