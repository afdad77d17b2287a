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
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.compression.compressor import Compressor
from farandole.parameter_server.header import ALL_RANGES, DENSE, ENCODED, ROW_NUMBER, Header, Kind
from farandole.parameter_server.mailbox import ANSWER, REQUEST, Mailbox
from farandole.parameter_server.sessions import Sessions
from farandole.parameter_server.shard import Gradient, Shard
from farandole.parameter_server.succession import Succession
from farandole.parameter_server.window import Window
from farandole.runtime.world import World

Array = NDArray[Any]
# Makes a part's shard, given what the shard calls to answer, and before it moves its values.
MakeShard = Callable[[Callable[[Header], None], Callable[[], None]], Shard]


@dataclass
class Part:
    """One application's parameters on one of the first servers, and what this server knows of them.

    Attributes:
        home, group: the server whose part it is, and the application.
        rows: worker → the rows that it has asked for, if not for all, until they are granted.
        cleaned: client → what was found when it was cleaned away.
        moved: how often the shard had moved its values when we last looked.
    """

    home: int
    group: int
    shard: Shard
    sessions: Sessions = field(default_factory=Sessions)
    rows: dict[int, Array] = field(default_factory=dict)
    cleaned: dict[int, Header] = field(default_factory=dict)
    moved: int = 0


class Server:
    """One rank's parts: one per application, and as many more for each other server whose part it keeps.

    Args:
        make: (server whose part it is, application) → what makes the part's shard.
        windows: the applications' shared memory, if parameters and gradients go through that.
        decoder: of what workers push encoded.
    """

    kinds = frozenset({Kind.PULL, Kind.PUSH, Kind.READ, Kind.END, Kind.CLEAN, Kind.TICK})

    def __init__(
        self,
        world: World,
        mailbox: Mailbox,
        succession: Succession,
        make: Mapping[tuple[int, int], MakeShard],
        windows: Sequence[Window] = (),
        decoder: Compressor | None = None,
    ) -> None:
        self.world = world
        self.mailbox = mailbox
        self.succession = succession
        self.windows = windows
        self.decoder = decoder
        self._ahead = 0.0  # of our clock is that of the server whose requests we have been handed
        self.parts = {
            name: Part(*name, make_shard(partial(self._reply, name), self._settle)) for name, make_shard in make.items()
        }
        self._tails, self._cleaner = self._tails_now(), self._cleaner_now()

    def handle(self, header: Header) -> None:
        """Carry out a request, from a client or handed on by the server before."""
        part = self.parts[header.home, header.group]
        payload = self._take(header, part.shard)
        if header.kind == Kind.READ:
            self._read(header, part.shard)
            return
        now = self._now(header.moment)
        self._hand_on(replace(header, moment=now), payload)
        start = time.perf_counter()
        self._carry_out(header, part, payload, now)
        self._note_updates(part, start)

    def tick(self) -> None:
        for part in self.parts.values():
            if self.succession.head(part.home) == self.world.rank:
                now, start = self._now(), time.perf_counter()
                if part.shard.tick(now):
                    self._hand_on(Header(Kind.TICK, home=part.home, group=part.group, moment=now), [])
                self._note_updates(part, start)

    def miss(self) -> None:
        """Some have died. Where the last in a chain was among them, this one answers now: again, for it may not have.

        A new cleaning node may have asked before we knew that the one before is dead, and was told in our answer.

        Raises:
            NobodyToSucceed: nobody has some part of the parameters any more.
        """
        before, self._tails = self._tails, self._tails_now()
        cleaner, self._cleaner = self._cleaner, self._cleaner_now()
        for part in self.parts.values():
            answers = self._tails[part.home] == self.world.rank
            took_over = answers and before[part.home] != self.world.rank
            for answer, values in part.sessions.answers() if took_over else ():
                self._send(answer.worker, answer, values)
            for found in part.cleaned.values() if took_over or (answers and cleaner != self._cleaner) else ():
                self.mailbox.send(self.succession.cleaner, REQUEST, found)

    def stop(self) -> None:
        pass

    @property
    def late_pushes(self) -> int:
        """Pushes that came too late to count."""
        heads = [part for part in self.parts.values() if self.succession.head(part.home) == self.world.rank]
        return sum(part.shard.late_pushes for part in heads)

    def _tails_now(self) -> dict[int, int]:
        return {home: self.succession.tail(home) for home in self.succession.homes}

    def _cleaner_now(self) -> int | None:
        """None: nobody would take its place."""
        return self.succession.cleaner if self.succession.replicated else None

    def _carry_out(self, header: Header, part: Part, payload: Sequence[Array], now: float) -> None:
        if header.kind == Kind.TICK:
            part.shard.tick(now)
        elif header.kind == Kind.CLEAN:
            self._clean(header, part, now)
        elif header.kind == Kind.END:
            part.shard.end(header, now)
        elif self.succession.replicated and not part.sessions.open(header):
            return  # it has come before: whoever was the last in the chain then has answered it, or will
        elif header.kind == Kind.PULL:
            if payload:
                part.rows[header.worker] = payload[0]
            part.shard.pull(header, now)
        else:
            part.shard.push(header, self._gradient(header, part.shard, payload), now)

    def _note_updates(self, part: Part, start: float) -> None:
        """Trace what has moved the values since `start`, on a slow rank for longer; each update is a step of ours."""
        if part.shard.updates == part.moved:
            return
        self.world.finish_computation(start)
        self.world.trace.add("update", "compute", start, time.perf_counter())
        steps = range(part.moved + 1, part.shard.updates + 1)
        part.moved = part.shard.updates
        for step in steps if part.home == self.world.rank else ():
            self.world.begin_step(step)

    def _read(self, header: Header, shard: Shard) -> None:
        answer = Header(Kind.VALUES, home=header.home, number=header.number, clock=shard.updates, count=header.count)
        if header.count == DENSE:
            self._send(header.source, answer, shard.values, changing=True)
        else:  # no rows: only the version was asked for
            self._send(header.source, answer)

    def _clean(self, header: Header, part: Part, now: float) -> None:
        client = header.worker
        pulls, clocks, pushes = part.shard.clean(client, now)
        part.sessions.forget(client)
        part.rows.pop(client, None)
        found = Header(Kind.CLEANED, worker=client, home=header.home, pulls=pulls, clocks=clocks, pushes=pushes)
        found = part.cleaned.setdefault(client, found)
        if self.succession.tail(part.home) == self.world.rank:
            self.mailbox.send(self.succession.cleaner, REQUEST, found)

    def _now(self, moment: float = 0.0) -> float:
        """When a request came to the first server of the chain: `moment`, or now if this is the first.

        Clocks of several hosts differ; ours follows the furthest, since a policy's time does not run backwards.
        """
        own = time.monotonic() + self._ahead
        self._ahead += max(0.0, moment - own)
        return moment or own

    def _hand_on(self, header: Header, payload: Sequence[Array]) -> None:
        chain = self.succession.chain(header.home)
        if chain[0] == self.world.rank and len(chain) > 1:
            self.mailbox.hand_on(chain[1], REQUEST, header, payload)

    def _reply(self, name: tuple[int, int], answer: Header) -> None:
        """A shard's answer: send it, or keep it as it is now for the case that the one who sends it dies before."""
        part = self.parts[name]
        answer.home = part.home
        values = self._granted(part, answer) if answer.kind == Kind.GRANT else None
        if self.succession.tail(part.home) == self.world.rank:
            self._send(answer.worker, answer, values, changing=values is part.shard.values)
        else:
            part.sessions.note(answer, None if values is None else values.copy())

    def _granted(self, part: Part, grant: Header) -> Array | None:
        """The parameters that belong to a GRANT; None: the worker reads them in the window."""
        if grant.count != DENSE:
            rows: Array = part.shard.values[part.rows.pop(grant.worker)]
            return rows
        if self.windows:
            self.windows[part.group].granted(grant.worker)
            return None
        return part.shard.values

    def _settle(self) -> None:
        """Wait until no parameters are on their way, or being read."""
        self.mailbox.settle()
        for window in self.windows:
            window.settle()

    def _send(self, to: int, answer: Header, values: Array | None = None, *, changing: bool = False) -> None:
        """Send an answer, and the values that belong to it; `changing` ones have to have left before they are moved."""
        if values is None:
            self.mailbox.send(to, ANSWER, answer)
        elif not changing:
            self.mailbox.hand_on(to, ANSWER, answer, [values])
        else:
            self.mailbox.send(to, ANSWER, answer)
            self.mailbox.send_payload(to, values)

    def _take(self, header: Header, shard: Shard) -> list[Array]:
        """What follows a header: row numbers, a gradient, both, or nothing."""
        if header.kind not in (Kind.PULL, Kind.PUSH):
            return []
        payload: list[Array] = []
        values = shard.values
        if header.count == ENCODED:
            assert self.decoder is not None
            payload.append(np.empty(self.decoder.nbytes(len(values)), np.uint8))
        elif header.count != DENSE:
            payload.append(np.empty(header.count, dtype=ROW_NUMBER))
        if header.kind == Kind.PUSH and header.count != ENCODED:
            if header.count != DENSE:
                payload.append(np.empty((header.count, *values.shape[1:]), values.dtype))
            elif header.part != ALL_RANGES:
                payload.append(np.empty_like(values[shard.slices[header.part]]))
            elif not self.windows:
                payload.append(np.empty_like(values))
        span = self.world.trace.span("receive a gradient", "communicate")
        with span if header.kind == Kind.PUSH else nullcontext():
            self.mailbox.take(payload, header.source)
        return payload

    def _gradient(self, header: Header, shard: Shard, payload: Sequence[Array]) -> Gradient:
        if header.count == ENCODED:
            decoded = self._decoded(payload[0], len(shard.values))
            return Gradient([decoded[part] for part in shard.slices])
        if header.count != DENSE:
            rows, sparse = payload
            return Gradient([sparse], rows)
        if header.part != ALL_RANGES:
            return Gradient(list(payload))
        if not payload:
            return Gradient(self.windows[header.group].pieces(header.worker, self.world.rank))
        return Gradient([payload[0][part] for part in shard.slices])

    def _decoded(self, payload: Array, length: int) -> Array:
        """In the trace a part of the update, or of nothing if there is none."""
        assert self.decoder is not None
        start = time.perf_counter()
        gradient = self.decoder.decode(payload, length)
        self.world.trace.add("decode", "compute", start, time.perf_counter(), depth=1)
        return gradient
