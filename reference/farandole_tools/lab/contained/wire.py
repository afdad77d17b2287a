"""Messages between the process that judges and the process in which a submission runs.

Both sides call each other's objects. Numbers, texts, lists, arrays and the like are sent by value. Anything else
stays where it is, and the other side receives a `Remote` that forwards calls to it. Nothing is pickled: a message is
JSON and raw bytes, and decoding it runs no code of the sender.

Arrays keep their identity. The one that a side has received is the counterpart of the one that was sent: before each
message the bytes that have changed on one side are copied to the other, so a function that fills its argument, or a
layer whose weights are moved from outside, works as in one process. A view is sent as a view. Only the arguments with
which a submission calls the judge are temporary: they are copied there, and what the call has changed is copied back.

This file and `guest` run inside the sandbox too, so they import numpy and the standard library alone.
"""

from __future__ import annotations

import builtins
import json
import mmap
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from socket import socket
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

LENGTHS = struct.Struct("<II")  # bytes of JSON, number of blobs
INBOX = 262_144  # bytes; messages lie in mappings, since tracemalloc must not count them as the submission's
MOST = 2**30  # bytes of one message
MOST_PARTS = 500  # of one system call
KEPT_ERRORS = 20
PLAIN = {type(None), bool, int, float, str}
NAMED = 100  # letters of a name, and names, that are kept


class Ended(Exception):
    """The other process has ended."""


class Malformed(Exception):
    """The other process sends what is no message."""


@dataclass(frozen=True)
class Offer:
    """What the other side may do with an object of this side.

    Attributes:
        constants: attributes that are sent once, with the object.
        attributes: those that are looked up at each access.
        methods: those that may be called.
        everything: no limit.
    """

    constants: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    everything: bool = False


class Remote:
    """An object of the other side."""

    __slots__ = ("__weakref__", "_constants", "_count", "_id", "_methods", "_peer", "_plain")

    def __init__(
        self, peer: Peer, number: int, constants: Mapping[str, Any] | None = None, methods: Sequence[str] = ()
    ) -> None:
        for name, value in (("peer", peer), ("id", number), ("count", 1)):
            object.__setattr__(self, f"_{name}", value)
        object.__setattr__(self, "_constants", dict(constants or {}))
        object.__setattr__(self, "_methods", set(methods))
        object.__setattr__(self, "_plain", (0, {}))

    def __getattr__(self, name: str) -> Any:
        if name in self._constants:
            return self._constants[name]
        seen, plain = self._plain
        if seen == self._peer.requests and name in plain:
            return plain[name]
        if name in self._methods:
            return lambda *args, **kwargs: self._peer.request("method", self._id, name, args, kwargs)
        is_method, value = self._peer.request("get", self._id, name)
        if is_method:
            self._methods.add(name)
            return getattr(self, name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.request("set", self._id, name, value)

    def __repr__(self) -> str:
        return str(self._peer.request("repr", self._id))

    def __del__(self) -> None:
        self._peer.dropped.append([self._id, self._count])


class _Callable(Remote):
    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._peer.request("call", self._id, args, kwargs)


class _Iterable(Remote):
    __slots__ = ()

    def __iter__(self) -> Any:
        return self._peer.request("iter", self._id)

    def _taken(self, most: int) -> Any:
        """Return the next elements, at most `most`, by one call."""
        return self._peer.request("take", self._id, most)


class _Iterator(Remote):
    __slots__ = ()

    def __next__(self) -> Any:
        more, value = self._peer.request("next", self._id)
        if not more:
            raise StopIteration
        return value


class _Sized(Remote):
    __slots__ = ()

    def __len__(self) -> int:
        return int(self._peer.request("len", self._id))


class _Indexed(Remote):
    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        return self._peer.request("item", self._id, key)


ABILITIES: dict[str, tuple[str, type[Remote]]] = {
    "c": ("__call__", _Callable),
    "i": ("__iter__", _Iterable),
    "n": ("__next__", _Iterator),
    "l": ("__len__", _Sized),
    "g": ("__getitem__", _Indexed),
}


@dataclass(frozen=True)
class _Raw:
    """An array's bytes, which arrive as a buffer that nothing else holds: no copy that tracemalloc would count."""

    array: np.ndarray


@dataclass
class Temporary:
    """Arrays that live for one call, by number: those sent with it, or those received and their checksums then."""

    arrays: dict[int, np.ndarray] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)


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
        self.connection, self.offer, self.values = connection, offer, values
        self.explain, self.raised, self.lives_by_call = explain, raised, lives_by_call
        self.dropped: list[list[int]] = []
        self.requests = 0  # made so far
        self._asked: set[str] = set()  # names of plain attributes that the other side has looked at
        self.errors: dict[int, BaseException] = {}  # of this side, that the other side has been sent
        self._objects: dict[int, list[Any]] = {}  # number → object, how often it was sent
        self._numbers: dict[int, int] = {}  # id → number
        self._remotes: WeakValueDictionary[int, Remote] = WeakValueDictionary()
        self._kinds: dict[tuple[str, str], type[Remote]] = {}
        self._arrays: dict[int, tuple[np.ndarray, int]] = {}  # token → array, checksum at the last message
        # id → token. A token is positive on the side on which the array was first, negative on the other.
        self._tokens: dict[int, int] = {}
        self._next = 1
        self._decoders = self._make_decoders()
        self._lock = threading.RLock()
        self._inbox = memoryview(mmap.mmap(-1, INBOX))
        self._start = self._end = 0  # what has arrived and is not read yet

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
                    self._copy_back(changed, temporary)
                    if plain and (owner := self._remotes.get(body[1])) is not None:
                        object.__setattr__(owner, "_plain", (self.requests, plain))
                    return value
                if kind == "!":
                    (number, *told), changed = answer
                    self._copy_back(changed, temporary)
                    text = [str(each) for each in told]
                    error = self.raised(text[0], text[1], text[2], self.errors.get(number))
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
            self._send(
                "=", [answer, self._changed(received), self._plain_of(rest) if action in ("method", "get") else None]
            )
        except (Ended, Malformed):
            raise
        except BaseException as error:
            self._send("!", [self._failure(error), self._changed(received)])

    def _failure(self, error: BaseException) -> list[Any]:
        """What is sent of an exception. The number is negative for one of this side, positive for one of the other."""
        number = getattr(error, "remote_number", 0)
        if not number:
            number = -self._next
            self._next += 1
            self.errors[-number] = error
            while len(self.errors) > KEPT_ERRORS:
                del self.errors[min(self.errors)]
        return [number, *self.explain(error), type(error).__name__]

    def _plain_of(self, rest: list[Any]) -> dict[str, Any] | None:
        """Plain attributes of the object whose method was called, which are often looked at next."""
        owner = self._object(rest[0])
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
        return self._object(number, "c")(*args, **kwargs)

    def do_method(self, number: int, name: str, args: Any, kwargs: Any) -> Any:
        owner = self._object(number)
        self._allow(owner, name, "methods")
        return getattr(owner, name)(*args, **kwargs)

    def do_get(self, number: int, name: str) -> tuple[bool, Any]:
        """Return whether the attribute is a method, which is then called by its name, and else the attribute."""
        owner = self._object(number)
        self._allow(owner, name, "attributes")
        found = getattr(owner, name)
        if type(found) in PLAIN and len(self._asked) < NAMED:
            self._asked.add(name)
        is_method = isinstance(found, FunctionType if isinstance(owner, ModuleType) else MethodType)
        return is_method, None if is_method else found

    def do_set(self, number: int, name: str, value: Any) -> None:
        owner = self._object(number)
        offer = self.offer(owner)
        if offer is None or not offer.everything:
            raise AttributeError(f"{type(owner).__name__}.{name:.{NAMED}} cannot be set from here")
        setattr(owner, name, value)

    def do_repr(self, number: int) -> str:
        return repr(self._object(number))[:1000]

    def do_iter(self, number: int) -> Any:
        return iter(self._object(number, "i"))

    def do_take(self, number: int, most: int) -> list[Any]:
        return list(islice(self._object(number, "i"), most))

    def do_next(self, number: int) -> tuple[bool, Any]:
        try:
            return True, next(self._object(number, "n"))
        except StopIteration:
            return False, None

    def do_len(self, number: int) -> int:
        return len(self._object(number, "l"))

    def do_item(self, number: int, key: Any) -> Any:
        return self._object(number, "g")[key]

    def _object(self, number: Any, ability: str = "") -> Any:
        if not isinstance(number, int) or number not in self._objects:
            raise Malformed(f"there is no object {number!r:.20}")
        found = self._objects[number][0]
        if ability and ability not in self._abilities(found):
            raise TypeError(f"{type(found).__name__} cannot be used like this from here")
        return found

    def _allow(self, owner: Any, name: Any, what: str) -> None:
        offer = self.offer(owner)
        if offer is not None and offer.everything:
            return
        if not isinstance(name, str) or offer is None or name not in getattr(offer, what):
            raise AttributeError(f"{type(owner).__name__} has no {name!s:.{NAMED}} that a submission may use")

    def _abilities(self, thing: Any) -> str:
        offer = self.offer(thing)
        everything = offer is not None and offer.everything
        is_function = callable(thing) and not isinstance(thing, type) and offer is not None and not offer.methods
        found = ""
        for letter, (method, _) in ABILITIES.items():
            wanted = everything or (letter == "c" and is_function) or letter in "in"
            if wanted and hasattr(type(thing), method):
                found += letter
        return found

    # ---- messages

    def _send(self, kind: str, body: Any, temporary: Temporary | None = None) -> None:
        blobs: list[Any] = []
        if temporary is not None:
            self._hold(body, temporary)
        coded = self._encoded(body, blobs, temporary)
        forget = [token for token, count in _references(self._arrays).items() if count <= ALONE]
        changed = []
        for token, (array, checksum) in self._arrays.items():
            if (now := _checksum(array)) != checksum:
                self._arrays[token] = array, now
                changed.append([token, len(blobs)])
                blobs.append(_bytes_of(array))
        for token in forget:  # after its last change has been noted
            del self._tokens[id(self._arrays[token][0])]
            del self._arrays[token]
        dropped, self.dropped = self.dropped, []
        text = json.dumps([kind, coded, forget, changed, dropped], separators=(",", ":")).encode()
        parts = [LENGTHS.pack(len(text), len(blobs)), struct.pack(f"<{len(blobs)}Q", *map(_size, blobs)), text, *blobs]
        try:
            sent = self.connection.sendmsg([part for part in parts if _size(part)][:MOST_PARTS])
            for part in parts:
                if sent < _size(part):
                    self.connection.sendall(memoryview(part)[sent:])
                sent = max(0, sent - _size(part))
        except OSError as error:
            raise Ended from error

    def _receive(self) -> tuple[str, Any, Temporary]:
        if self._start == self._end:
            self._start = self._end = 0
        length, number = LENGTHS.unpack(self._read(LENGTHS.size))
        if length > MOST or number > MOST // 8:
            raise Malformed("a message that is too long")
        sizes = struct.unpack(f"<{number}Q", self._read(8 * number))
        if sum(sizes) > MOST:
            raise Malformed("a message that is too long")
        received = Temporary()
        try:
            kind, coded, forget, changed, dropped = json.loads(bytes(self._read(length)))
            blobs = [self._read(size) for size in sizes]
            for token, blob in changed:
                array, _ = self._arrays[-token]
                _fill(array, blobs[blob])
                self._arrays[-token] = array, _checksum(array)
            for token in forget:
                if -token in self._arrays:
                    del self._tokens[id(self._arrays[-token][0])]
                    del self._arrays[-token]
            for gone, count in dropped:
                self._forget(gone, count)
            return kind, self._decoded(coded, blobs, received), received
        except (Ended, Malformed, MemoryError):
            raise
        except Exception as error:
            raise Malformed(f"{type(error).__name__} in a message") from error

    def _read(self, size: int) -> memoryview:
        """Return the next bytes, which are good until the next message is read."""
        while size <= INBOX - self._start:
            if self._end - self._start >= size:
                self._start += size
                return self._inbox[self._start - size : self._start]
            self._end += self._received(self._inbox[self._end :])
        view = memoryview(mmap.mmap(-1, size))
        read = self._end - self._start
        view[:read] = self._inbox[self._start : self._end]
        self._start = self._end
        while read < size:
            read += self._received(view[read:])
        return view

    def _received(self, place: memoryview) -> int:
        try:
            got = self.connection.recv_into(place)
        except OSError as error:
            raise Ended from error
        if not got:
            raise Ended
        return got

    def _forget(self, number: int, count: int) -> None:
        if number in self._objects:
            entry = self._objects[number]
            entry[1] -= count
            if entry[1] <= 0:
                del self._numbers[id(entry[0])], self._objects[number]

    def _changed(self, received: Temporary) -> list[list[Any]]:
        return [
            [number, _Raw(array)]
            for number, array in received.arrays.items()
            if _checksum(array) != received.before[number]
        ]

    def _copy_back(self, changed: Any, temporary: Temporary | None) -> None:
        for number, content in changed:
            if temporary is not None:
                _fill(temporary.arrays[number], content)

    # ---- values

    def _hold(self, body: Any, temporary: Temporary) -> None:
        """Find arguments that share memory: their whole base is sent, and they are views of it."""
        arrays = [each for each in body[-2] if isinstance(each, np.ndarray) and not each.dtype.hasobject]
        for index, one in enumerate(arrays):
            if any(other is not one and np.may_share_memory(one, other) for other in arrays[index + 1 :]):
                root = _root(one)
                if not any(root is each for each in temporary.arrays.values()):
                    temporary.arrays[len(temporary.arrays)] = root

    def _encoded(self, value: Any, blobs: list[Any], temporary: Temporary | None) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, float):
            return value
        if kind is int:
            return value
        if kind in (list, tuple, set, frozenset):
            return [kind.__name__[0], *(self._encoded(each, blobs, temporary) for each in value)]
        if kind is dict:
            return ["d", *([self._encoded(each, blobs, temporary) for each in item] for item in value.items())]
        if isinstance(value, np.ndarray):
            return self._encoded_array(value, blobs, temporary)
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            blobs.append(value.tobytes())
            return ["n", value.dtype.str, len(blobs) - 1]
        if kind in (bytes, bytearray, memoryview):
            blobs.append(bytes(value))
            return ["b" if kind is bytes else "y", len(blobs) - 1]
        if kind is _Raw:
            blobs.append(_bytes_of(value.array))
            return ["z", len(blobs) - 1]
        if kind is range:
            return ["r", value.start, value.stop, value.step]
        if kind is slice:
            return ["c", *(self._encoded(each, blobs, None) for each in (value.start, value.stop, value.step))]
        if kind is complex:
            return ["x", value.real, value.imag]
        if isinstance(value, np.dtype):
            return ["D", value.str]
        if kind is Random:
            return ["R", self._encoded(value.getstate(), blobs, None)]
        name = f"{kind.__module__}:{kind.__qualname__}"
        if name in self.values:
            fields = getattr(value, "_fields", None) or list(getattr(kind, "__dataclass_fields__", ()))
            return ["v", name, [self._encoded(getattr(value, each), blobs, temporary) for each in fields]]
        if isinstance(value, int | str | float | list | tuple | dict) and not isinstance(value, Remote):
            bases: tuple[Any, ...] = (int, str, float, list, tuple, dict)
            for base in bases:
                if isinstance(value, base):
                    return self._encoded(base(value), blobs, temporary)
        if isinstance(value, Remote) and value._peer is self:
            return ["m", value._id]
        return self._exported(value, blobs)

    def _exported(self, value: Any, blobs: list[Any]) -> Any:
        offer = self.offer(value)
        if offer is None:
            raise TypeError(f"{type(value).__name__} cannot be handed to the other process")
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = self._next
            self._objects[number] = [value, 0]
            self._next += 1
        self._objects[number][1] += 1
        constants = {name: self._encoded(getattr(value, name), blobs, None) for name in offer.constants}
        return ["o", number, type(value).__name__, self._abilities(value), constants, list(offer.methods)]

    def _encoded_array(self, array: np.ndarray, blobs: list[Any], temporary: Temporary | None) -> Any:
        if array.dtype.hasobject:
            return ["O", list(array.shape)]
        if id(array) in self._tokens:
            return ["k", self._tokens[id(array)]]
        root = _root(array)
        if root is not array and root.flags.c_contiguous and not root.dtype.hasobject:
            held = temporary is not None and any(root is each for each in temporary.arrays.values())
            if id(root) not in self._tokens and temporary is not None and not held and array.flags.c_contiguous:
                return self._temporary(array, blobs, temporary)
            coded = self._encoded_root(root, blobs, temporary)
            start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
            return ["w", coded, array.dtype.str, list(array.shape), list(array.strides), start]
        return self._encoded_root(array, blobs, temporary)

    def _encoded_root(self, array: np.ndarray, blobs: list[Any], temporary: Temporary | None) -> Any:
        if id(array) in self._tokens:
            return ["k", self._tokens[id(array)]]
        if temporary is not None:
            return self._temporary(array, blobs, temporary)
        token = self._next
        self._next += 1
        self._tokens[id(array)] = token
        self._arrays[token] = array, _checksum(array)
        blobs.append(_bytes_of(array))
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        return ["A", array.dtype.str, list(array.shape), len(blobs) - 1, token, order, array.flags.writeable]

    def _temporary(self, array: np.ndarray, blobs: list[Any], temporary: Temporary) -> Any:
        known = [number for number, each in temporary.arrays.items() if each is array]
        number = known[0] if known else len(temporary.arrays)
        temporary.arrays[number] = array
        blobs.append(_bytes_of(array))
        return ["a", array.dtype.str, list(array.shape), len(blobs) - 1, number, array.flags.writeable]

    def _decoded(self, coded: Any, blobs: list[Any], received: Temporary) -> Any:
        if not isinstance(coded, list):
            if isinstance(coded, dict):
                raise Malformed("a dictionary")
            return coded
        tag, *rest = coded
        work = self._decoders.get(tag)
        if work is None:
            raise Malformed(f"the tag {tag!r:.20}")
        return work(rest, blobs, received)

    def _make_decoders(self) -> dict[str, Callable[[list[Any], list[Any], Temporary], Any]]:
        each = self._decoded
        return {
            "l": lambda rest, blobs, now: [each(one, blobs, now) for one in rest],
            "t": lambda rest, blobs, now: tuple(each(one, blobs, now) for one in rest),
            "s": lambda rest, blobs, now: {each(one, blobs, now) for one in rest},
            "f": lambda rest, blobs, now: frozenset(each(one, blobs, now) for one in rest),
            "d": lambda rest, blobs, now: {each(key, blobs, now): each(one, blobs, now) for key, one in rest},
            "n": lambda rest, blobs, now: np.frombuffer(blobs[rest[1]], _dtype(rest[0]))[0],
            "z": lambda rest, blobs, now: blobs[rest[0]],
            "b": lambda rest, blobs, now: bytes(blobs[rest[0]]),
            "y": lambda rest, blobs, now: bytearray(blobs[rest[0]]),
            "r": lambda rest, blobs, now: range(*rest),
            "c": lambda rest, blobs, now: slice(*(each(one, blobs, now) for one in rest)),
            "x": lambda rest, blobs, now: complex(*rest),
            "D": lambda rest, blobs, now: _dtype(rest[0]),
            "R": self._decoded_random,
            "v": self._decoded_value,
            "m": lambda rest, blobs, now: self._object(rest[0]),
            "o": self._decoded_object,
            "O": lambda rest, blobs, now: np.empty([min(each, 1000) for each in rest[0][:4]], dtype=object),
            "k": lambda rest, blobs, now: self._arrays[-rest[0]][0],
            "w": self._decoded_view,
            "A": self._decoded_array,
            "a": self._decoded_temporary,
        }

    def _decoded_random(self, rest: list[Any], blobs: list[Any], now: Temporary) -> Random:
        made = Random()
        made.setstate(self._decoded(rest[0], blobs, now))
        return made

    def _decoded_value(self, rest: list[Any], blobs: list[Any], now: Temporary) -> Any:
        name, fields = rest
        return self.values[name](*(self._decoded(each, blobs, now) for each in fields))

    def _decoded_object(self, rest: list[Any], blobs: list[Any], now: Temporary) -> Any:
        number, name, abilities, constants, methods = rest
        if (known := self._remotes.get(number)) is not None:
            object.__setattr__(known, "_count", known._count + 1)
            return known
        name = name if str(name).isidentifier() else "object"
        kind = self._kinds.get((name, abilities))
        if kind is None:
            bases = tuple(ABILITIES[letter][1] for letter in abilities if letter in ABILITIES) or (Remote,)
            kind = self._kinds[name, abilities] = type(str(name)[:NAMED], bases, {"__slots__": ()})
        decoded = {key: self._decoded(each, blobs, now) for key, each in constants.items()}
        made = self._remotes[number] = kind(self, number, decoded, methods)
        return made

    def _decoded_array(self, rest: list[Any], blobs: list[Any], now: Temporary) -> np.ndarray:
        text, shape, blob, token, order, writeable = rest
        array = np.empty(shape, _dtype(text), order="F" if order == "F" else "C")
        _fill(array, blobs[blob])
        array.flags.writeable = bool(writeable)
        self._tokens[id(array)] = -token
        self._arrays[-token] = array, _checksum(array)
        return array

    def _decoded_temporary(self, rest: list[Any], blobs: list[Any], now: Temporary) -> np.ndarray:
        text, shape, blob, number, writeable = rest
        if number in now.arrays:
            return now.arrays[number]
        array = np.empty(shape, _dtype(text))
        _fill(array, blobs[blob])
        array.flags.writeable = bool(writeable)
        now.arrays[number], now.before[number] = array, _checksum(array)
        return array

    def _decoded_view(self, rest: list[Any], blobs: list[Any], now: Temporary) -> np.ndarray:
        base, text, shape, strides, start = rest
        root = self._decoded(base, blobs, now)
        # numpy refuses what reaches beyond the buffer.
        view: np.ndarray = np.ndarray(shape, _dtype(text), buffer=root, offset=start, strides=strides)
        return view


def _root(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _contiguous(array: np.ndarray) -> np.ndarray:
    """The elements in the order in which they are sent: as they lie, if they lie together."""
    if array.flags.c_contiguous:
        return array
    return array.T if array.flags.f_contiguous else np.ascontiguousarray(array)


def _bytes_of(array: np.ndarray) -> Any:
    flat = _contiguous(array)
    whole: Any = flat.reshape(-1).view(np.uint8)
    return memoryview(whole) if flat.size else b""


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(_bytes_of(array)) if not array.dtype.hasobject else 0


def _references(arrays: dict[int, tuple[np.ndarray, int]]) -> dict[int, int]:
    return {token: sys.getrefcount(array) for token, (array, _) in arrays.items()}


ALONE = _references({0: (np.empty(1), 0)})[0]  # references to an array that nothing but the table holds


def _size(part: Any) -> int:
    return part.nbytes if isinstance(part, memoryview) else len(part)


def _fill(array: np.ndarray, content: Any) -> None:
    if not array.size:
        return
    writeable = array.flags.writeable
    array.flags.writeable = True
    flat = np.frombuffer(content, array.dtype)
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        array.T[...] = flat.reshape(array.T.shape)
    else:
        array[...] = flat.reshape(array.shape)
    array.flags.writeable = writeable


def _dtype(text: Any) -> np.dtype[Any]:
    found = np.dtype(text if isinstance(text, str) else "")
    if found.hasobject or not found.itemsize:
        raise Malformed("a type of array")
    return found


def builtin_error(name: str) -> type[Exception] | None:
    """The built-in exception class of that name."""
    found = getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None
