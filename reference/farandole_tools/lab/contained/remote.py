"""Stand-ins for objects of the other process, and what may be done with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Offer:
    """The rights of the other side on an object of this side.

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


class Caller(Protocol):
    """The side of the connection that a `Remote` asks.

    Attributes:
        requests: how many it has made.
        dropped: the numbers of objects that are no longer needed here, and how often each was received.
    """

    requests: int
    dropped: list[list[int]]

    def request(self, *body: Any) -> Any: ...


class Remote:
    """An object of the other side."""

    __slots__ = ("__weakref__", "_constants", "_count", "_id", "_methods", "_peer", "_plain")

    def __init__(
        self, peer: Caller, number: int, constants: Mapping[str, Any] | None = None, methods: Sequence[str] = ()
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
