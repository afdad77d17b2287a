"""Calls between the process that judges and the process in which a submission runs.

Both sides call each other's objects: what is sent by value, and what stays where it is, decides `values`. Arrays keep
their identity (`arrays`), so a function that fills its argument, or a layer whose weights are moved from outside, works
as in one process. A view is sent as a view. Only the arguments with which a submission calls the judge are temporary:
they are copied there, and what the call has changed is copied back.

This file, what it imports of the project, and `guest` run inside the sandbox too, so they import numpy and the standard
library alone.
"""

from __future__ import annotations

import builtins
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from socket import socket
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from farandole_tools.lab.contained.arrays import Temporary, fill
from farandole_tools.lab.contained.channel import Channel, Ended, Malformed
from farandole_tools.lab.contained.remote import Offer, Remote
from farandole_tools.lab.contained.values import NAMED, Values

__all__ = ["Ended", "Malformed", "Offer", "Peer", "Remote", "builtin_error"]

KEPT_ERRORS = 20
PLAIN = {type(None), bool, int, float, str}
MOST_ASKED = 100  # names of attributes that are kept


class Peer:
    """One side of a connection. It calls and is called in one thread: calls are nested, never concurrent.

    Args:
        offer: what the other side may do with an object; None: the object must not leave this side.
        values: classes whose objects are sent by value, by "module:name": dataclasses and named tuples.
        explain: turns an exception of this side into the last part of an answer: (kind, text).
        lives_by_call: arrays that are sent with a call are temporary.
        raised: makes the exception that is raised here from the other side's kind, text and name of its class, and
            from this side's own exception if it is that one which comes back.
    """

    def __init__(
        self,
        connection: socket,
        *,
        offer: Callable[[Any], Offer | None],
        values: Mapping[str, type],
        explain: Callable[[BaseException], tuple[str, str]],
        raised: Callable[[str, str, str, BaseException | None], BaseException],
        lives_by_call: bool = False,
    ) -> None:
        self.offer, self.explain, self.raised, self.lives_by_call = offer, explain, raised, lives_by_call
        self.dropped: list[list[int]] = []
        self.requests = 0  # made so far
        self.values = Values(self, offer, values)
        self._channel = Channel(connection)
        self._asked: set[str] = set()  # names of plain attributes that the other side has looked at
        self._errors: dict[int, BaseException] = {}  # of this side, that the other side has been sent
        self._last_error = 0
        self._lock = threading.RLock()

    def close(self) -> None:
        """End the connection, from this side."""
        self._channel.connection.close()

    # ---- calls

    def request(self, *body: Any) -> Any:
        """Make the other side do something; return its answer, after serving what it calls meanwhile.

        Raises:
            Ended, Malformed: there is no answer.
            BaseException: what `raised` makes of the other side's exception.
        """
        with self._lock:
            self.requests += 1
            temporary = Temporary() if self.lives_by_call and body[0] in ("call", "method") else None
            self._send("?", list(body), temporary)
            while True:
                kind, answer, received = self._receive()
                if kind == "?":
                    self._serve(answer, received)
                    continue
                if kind == "=":
                    value, changed, plain = answer
                    _copy_back(changed, temporary)
                    if plain and (owner := self.values.remote(body[1])) is not None:
                        object.__setattr__(owner, "_plain", (self.requests, plain))
                    return value
                if kind == "!":
                    (number, *told), changed = answer
                    _copy_back(changed, temporary)
                    text = [str(each) for each in told]
                    error = self.raised(text[0], text[1], text[2], self._errors.get(number))
                    if number < 0:
                        error.remote_number = -number  # type: ignore[attr-defined]
                    raise error
                raise Malformed(f"a message of the kind {kind!r:.20}")

    def serve(self) -> None:
        """Answer the other side's calls until it has ended."""
        while True:
            kind, body, received = self._receive()
            if kind != "?":
                raise Malformed(f"a message of the kind {kind!r:.20}")
            self._serve(body, received)

    def _serve(self, body: Any, received: Temporary) -> None:
        try:
            if not isinstance(body, list) or not body:
                raise Malformed("a call is a list")
            action, *rest = body
            work = getattr(self, f"do_{action}", None) if isinstance(action, str) else None
            if work is None:
                raise Malformed(f"there is no call {action!r:.20}")
            answer = work(*rest)
            plain = self._plain_of(rest) if action in ("method", "get") else None
            self._send("=", [answer, received.changed(), plain])
        except (Ended, Malformed):
            raise
        except BaseException as error:
            self._send("!", [self._failure(error), received.changed()])

    def _failure(self, error: BaseException) -> list[Any]:
        """Return what is sent of an exception. The number is negative for this side's, positive for the other's."""
        number = getattr(error, "remote_number", 0)
        if not number:
            self._last_error += 1
            number = -self._last_error
            self._errors[-number] = error
            while len(self._errors) > KEPT_ERRORS:
                del self._errors[min(self._errors)]
        return [number, *self.explain(error), type(error).__name__]

    def _plain_of(self, rest: list[Any]) -> dict[str, Any] | None:
        """Plain attributes of the object whose method was called, which are often looked at next."""
        owner = self.values.object(rest[0])
        offer = self.offer(owner)
        if offer is None or not offer.everything or isinstance(owner, ModuleType):
            return None
        found = dict(getattr(owner, "__dict__", None) or {})
        for name in self._asked - found.keys():  # properties
            with suppress(Exception):
                found[name] = getattr(owner, name)
        return {name: value for name, value in found.items() if type(value) in PLAIN and type(name) is str}

    # ---- what the other side can request

    def do_call(self, number: int, args: Any, kwargs: Any) -> Any:
        return self.values.object(number, "c")(*args, **kwargs)

    def do_method(self, number: int, name: str, args: Any, kwargs: Any) -> Any:
        owner = self.values.object(number)
        self._allow(owner, name, "methods")
        return getattr(owner, name)(*args, **kwargs)

    def do_get(self, number: int, name: str) -> tuple[bool, Any]:
        """Return whether the attribute is a method, which is then called by its name, and else the attribute."""
        owner = self.values.object(number)
        self._allow(owner, name, "attributes")
        found = getattr(owner, name)
        if type(found) in PLAIN and len(self._asked) < MOST_ASKED:
            self._asked.add(name)
        is_method = isinstance(found, FunctionType if isinstance(owner, ModuleType) else MethodType)
        return is_method, None if is_method else found

    def do_set(self, number: int, name: str, value: Any) -> None:
        owner = self.values.object(number)
        offer = self.offer(owner)
        if offer is not None and offer.everything:
            setattr(owner, name, value)
            return
        before = getattr(owner, name) if offer is not None and name in offer.attributes else None
        # `network.gradients *= 2` also assigns the array that it has changed.
        if before is not None and value is before:
            return
        hint = f": change its elements, {name}[:] = ..." if isinstance(before, np.ndarray) else ""
        raise AttributeError(f"{type(owner).__name__}.{name:.{NAMED}} cannot be set from here{hint}")

    def do_repr(self, number: int) -> str:
        return repr(self.values.object(number))[:1000]

    def do_iter(self, number: int) -> Any:
        return iter(self.values.object(number, "i"))

    def do_take(self, number: int, most: int) -> list[Any]:
        return list(islice(self.values.object(number, "i"), most))

    def do_next(self, number: int) -> tuple[bool, Any]:
        try:
            return True, next(self.values.object(number, "n"))
        except StopIteration:
            return False, None

    def do_len(self, number: int) -> int:
        return len(self.values.object(number, "l"))

    def do_item(self, number: int, key: Any) -> Any:
        return self.values.object(number, "g")[key]

    def _allow(self, owner: Any, name: Any, what: str) -> None:
        offer = self.offer(owner)
        if offer is not None and offer.everything:
            return
        if not isinstance(name, str) or offer is None or name not in getattr(offer, what):
            raise AttributeError(f"{type(owner).__name__} has no {name!s:.{NAMED}} that a submission may use")

    # ---- messages

    def _send(self, kind: str, body: Any, temporary: Temporary | None = None) -> None:
        blobs: list[Any] = []
        if temporary is not None:
            temporary.hold(body[-2])
        coded = self.values.encoded(body, blobs, temporary)
        forget, changed = self.values.arrays.news(blobs)
        dropped, self.dropped = self.dropped, []
        message = json.dumps([kind, coded, forget, changed, dropped], separators=(",", ":"))
        self._channel.send(message.encode(), blobs)

    def _receive(self) -> tuple[str, Any, Temporary]:
        text, blobs = self._channel.receive()
        received = Temporary()
        try:
            kind, coded, forget, changed, dropped = json.loads(text)
            self.values.arrays.take_news(forget, changed, blobs)
            for gone, count in dropped:
                self.values.forget(gone, count)
            return kind, self.values.decoded(coded, blobs, received), received
        except (Ended, Malformed, MemoryError):
            raise
        except Exception as error:
            raise Malformed(f"{type(error).__name__} in a message") from error


def _copy_back(changed: Any, temporary: Temporary | None) -> None:
    for number, content in changed:
        if temporary is not None:
            fill(temporary.arrays[number], content)


def builtin_error(name: str) -> type[Exception] | None:
    """Return the built-in exception class of that name."""
    found = getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None
