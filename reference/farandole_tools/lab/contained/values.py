"""Values as JSON and raw bytes, and back. Nothing is pickled: decoding runs no code of the sender.

Numbers, texts, lists, arrays and the like are sent by value. Any other object stays where it is, and the other side
receives a `Remote`. A coded value that JSON does not know is a list: a letter, and what belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from farandole_tools.lab.contained.arrays import Raw, SharedArrays, Temporary, bytes_of, checksum, fill, root_of
from farandole_tools.lab.contained.channel import Malformed
from farandole_tools.lab.contained.remote import ABILITIES, Caller, Offer, Remote

NAMED = 100  # letters of a name
BASES: tuple[Any, ...] = (int, str, float, list, tuple, dict)  # a value of a class derived from one is sent as that


class Values:
    """The values that one side has sent to the other and received from it.

    Args:
        peer: whom a received object's calls go to.
        offer: what the other side may do with an object; None: the object must not leave this side.
        by_value: classes whose objects are sent by value, by "module:name": dataclasses and named tuples.
    """

    def __init__(self, peer: Caller, offer: Callable[[Any], Offer | None], by_value: Mapping[str, type]) -> None:
        self.offer, self.by_value = offer, by_value
        self.arrays = SharedArrays()
        self._peer = peer
        self._objects: dict[int, list[Any]] = {}  # number → object of this side, how often it was sent
        self._numbers: dict[int, int] = {}  # id → number
        self._next = 1
        self._remotes: WeakValueDictionary[int, Remote] = WeakValueDictionary()
        self._kinds: dict[tuple[str, str], type[Remote]] = {}
        self._decoders = self._make_decoders()

    # ---- objects

    def object(self, number: Any, ability: str = "") -> Any:
        """Return the object of this side that has the number, if it can be used like this."""
        if not isinstance(number, int) or number not in self._objects:
            raise Malformed(f"there is no object {number!r:.20}")
        found = self._objects[number][0]
        if ability and ability not in self._abilities(found):
            raise TypeError(f"{type(found).__name__} cannot be used like this from here")
        return found

    def remote(self, number: int) -> Remote | None:
        """Return what stands for the other side's object, if it is in use."""
        return self._remotes.get(number)

    def forget(self, number: int, count: int) -> None:
        """Drop an object that the other side had received so often, and does not need any more."""
        if number in self._objects:
            entry = self._objects[number]
            entry[1] -= count
            if entry[1] <= 0:
                del self._numbers[id(entry[0])], self._objects[number]

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

    # ---- to be sent

    def encoded(self, value: Any, blobs: list[Any], temporary: Temporary | None) -> Any:
        """Return the value as JSON knows it; its bytes are added to `blobs`.

        Args:
            temporary: gets the arrays, if they live for one call only.

        Raises:
            TypeError: it must not leave this side.
        """
        kind = type(value)
        if value is None or kind in (bool, str, float, int):
            return value
        if kind in (list, tuple, set, frozenset):
            return [kind.__name__[0], *(self.encoded(each, blobs, temporary) for each in value)]
        if kind is dict:
            return ["d", *([self.encoded(each, blobs, temporary) for each in item] for item in value.items())]
        if isinstance(value, np.ndarray):
            return self._encoded_array(value, blobs, temporary)
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            blobs.append(value.tobytes())
            return ["n", value.dtype.str, len(blobs) - 1]
        if kind in (bytes, bytearray, memoryview):
            blobs.append(bytes(value))
            return ["b" if kind is bytes else "y", len(blobs) - 1]
        if kind is Raw:
            blobs.append(bytes_of(value.array))
            return ["z", len(blobs) - 1]
        if kind is range:
            return ["r", value.start, value.stop, value.step]
        if kind is slice:
            return ["c", *(self.encoded(each, blobs, None) for each in (value.start, value.stop, value.step))]
        if kind is complex:
            return ["x", value.real, value.imag]
        if isinstance(value, np.dtype):
            return ["D", value.str]
        if kind is Random:
            return ["R", self.encoded(value.getstate(), blobs, None)]
        name = f"{kind.__module__}:{kind.__qualname__}"
        if name in self.by_value:
            fields = getattr(value, "_fields", None) or list(getattr(kind, "__dataclass_fields__", ()))
            return ["v", name, [self.encoded(getattr(value, each), blobs, temporary) for each in fields]]
        if isinstance(value, Remote):
            return ["m", value._id] if value._peer is self._peer else self._exported(value, blobs)
        if base := next((base for base in BASES if isinstance(value, base)), None):
            return self.encoded(base(value), blobs, temporary)
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
        constants = {name: self.encoded(getattr(value, name), blobs, None) for name in offer.constants}
        return ["o", number, type(value).__name__, self._abilities(value), constants, list(offer.methods)]

    def _encoded_array(self, array: np.ndarray, blobs: list[Any], temporary: Temporary | None) -> Any:
        if array.dtype.hasobject:
            return ["O", list(array.shape)]
        if token := self.arrays.token(array):
            return ["k", token]
        root = root_of(array)
        if root is not array and root.flags.c_contiguous and not root.dtype.hasobject:
            held = temporary is not None and temporary.holds(root)
            known = self.arrays.token(root) is not None
            if not known and temporary is not None and not held and array.flags.c_contiguous:
                return self._temporary(array, blobs, temporary)
            coded = self._encoded_root(root, blobs, temporary)
            start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
            return ["w", coded, array.dtype.str, list(array.shape), list(array.strides), start]
        return self._encoded_root(array, blobs, temporary)

    def _encoded_root(self, array: np.ndarray, blobs: list[Any], temporary: Temporary | None) -> Any:
        if token := self.arrays.token(array):
            return ["k", token]
        if temporary is not None:
            return self._temporary(array, blobs, temporary)
        token = self.arrays.add(array)
        blobs.append(bytes_of(array))
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        return ["A", array.dtype.str, list(array.shape), len(blobs) - 1, token, order, array.flags.writeable]

    def _temporary(self, array: np.ndarray, blobs: list[Any], temporary: Temporary) -> Any:
        number = temporary.number(array)
        blobs.append(bytes_of(array))
        return ["a", array.dtype.str, list(array.shape), len(blobs) - 1, number, array.flags.writeable]

    # ---- received

    def decoded(self, coded: Any, blobs: list[Any], received: Temporary) -> Any:
        """Return the value.

        Args:
            received: gets the arrays that live for one call only.

        Raises:
            Malformed: the other side's `encoded` does not write this.
        """
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
        each = self.decoded
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
            "m": lambda rest, blobs, now: self.object(rest[0]),
            "o": self._decoded_object,
            "O": lambda rest, blobs, now: np.empty([min(each, 1000) for each in rest[0][:4]], dtype=object),
            "k": lambda rest, blobs, now: self.arrays[-rest[0]],
            "w": self._decoded_view,
            "A": self._decoded_array,
            "a": self._decoded_temporary,
        }

    def _decoded_random(self, rest: list[Any], blobs: list[Any], now: Temporary) -> Random:
        made = Random()
        made.setstate(self.decoded(rest[0], blobs, now))
        return made

    def _decoded_value(self, rest: list[Any], blobs: list[Any], now: Temporary) -> Any:
        name, fields = rest
        return self.by_value[name](*(self.decoded(each, blobs, now) for each in fields))

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
        decoded = {key: self.decoded(each, blobs, now) for key, each in constants.items()}
        made = self._remotes[number] = kind(self._peer, number, decoded, methods)
        return made

    def _decoded_array(self, rest: list[Any], blobs: list[Any], now: Temporary) -> np.ndarray:
        text, shape, blob, token, order, writeable = rest
        array = np.empty(shape, _dtype(text), order="F" if order == "F" else "C")
        fill(array, blobs[blob])
        array.flags.writeable = bool(writeable)
        self.arrays.add(array, -token)
        return array

    def _decoded_temporary(self, rest: list[Any], blobs: list[Any], now: Temporary) -> np.ndarray:
        text, shape, blob, number, writeable = rest
        if number in now.arrays:
            return now.arrays[number]
        array = np.empty(shape, _dtype(text))
        fill(array, blobs[blob])
        array.flags.writeable = bool(writeable)
        now.arrays[number], now.before[number] = array, checksum(array)
        return array

    def _decoded_view(self, rest: list[Any], blobs: list[Any], now: Temporary) -> np.ndarray:
        base, text, shape, strides, start = rest
        root = self.decoded(base, blobs, now)
        # numpy refuses what reaches beyond the buffer.
        view: np.ndarray = np.ndarray(shape, _dtype(text), buffer=root, offset=start, strides=strides)
        return view


def _dtype(text: Any) -> np.dtype[Any]:
    found = np.dtype(text if isinstance(text, str) else "")
    if found.hasobject or not found.itemsize:
        raise Malformed("a type of array")
    return found
