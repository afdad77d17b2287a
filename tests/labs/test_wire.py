"""Two sides of a connection, in two threads: what arrives is what was sent, and arrays keep their identity."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from farandole_tools.lab import learner
from farandole_tools.lab.contained.wire import Ended, Malformed, Offer, Peer
from farandole_tools.lab.learner import Explained

EVERYTHING = Offer(everything=True)


class Layer:
    """A proxy of a submission's object."""

    def __init__(self) -> None:
        self.weight = np.arange(6.0).reshape(2, 3)
        self.half = self.weight[:, :2]
        self.steps = 0

    def same(self, value: Any) -> Any:
        return value

    def fill(self, array: np.ndarray) -> None:
        array[...] = 7

    def keep(self, array: np.ndarray) -> None:
        self.kept = array

    def double(self) -> None:
        self.weight *= 2
        self.steps += 1

    def calls(self, comm: Any, *arrays: np.ndarray) -> Any:
        return comm.send(*arrays)

    def view(self) -> np.ndarray:
        return self.kept[1:3]

    @property
    def level(self) -> int:
        return 10 * self.steps

    def fails(self) -> None:
        raise LookupError("not there")

    def numbers(self) -> Iterator[int]:
        yield from range(3)


class Comm:
    """A proxy of an object of the checks."""

    rank = 3
    secret = 1

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def send(self, *arrays: np.ndarray) -> str:
        self.seen = [array.copy() for array in arrays]
        self.flags = [array.flags.c_contiguous for array in arrays]
        self.shared = len(arrays) > 1 and np.may_share_memory(*arrays[:2])
        for array in arrays:
            array += 100
        return "sent"

    def hidden(self) -> None:
        raise AssertionError


def offer(thing: Any) -> Offer | None:
    return Offer(("rank",), (), ("send",)) if isinstance(thing, Comm) else None


@pytest.fixture
def layer() -> Iterator[Any]:
    """A `Layer` on the other side."""
    ours, theirs = socket.socketpair()
    far = Peer(
        theirs,
        offer=lambda thing: EVERYTHING,
        values={},
        explain=lambda error: ("error", str(error)),
        raised=lambda kind, text, name, own: own or AttributeError(text),
        lives_by_call=True,
    )
    far.values._exported(Layer(), [])  # object number 1

    def serve() -> None:
        with contextlib.suppress(Ended):
            far.serve()

    thread = threading.Thread(target=serve)
    thread.start()
    near = Peer(
        ours,
        offer=offer,
        values={},
        explain=lambda error: ("error", str(error)),
        raised=lambda kind, text, name, own: own or Explained(kind, text),
    )
    yield near.values._decoded_object([1, "Layer", "", {}, []], [], None)  # type: ignore[arg-type]
    ours.shutdown(socket.SHUT_RDWR)
    thread.join()
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2**80,
        1.5,
        float("inf"),
        "é\n",
        b"\0x",
        [1, (2, [3])],
        {1: "a", "b": {2.0}},
        range(1, 9, 2),
        slice(1, None),
        1j,
        frozenset({1}),
        np.dtype(np.float32),
    ],
    ids=str,
)
def test_a_value_arrives_as_it_was(layer: Any, value: Any) -> None:
    found = layer.same(value)
    assert found == value
    assert type(found) is type(value)


def test_numbers_and_arrays_of_numpy_keep_their_type(layer: Any) -> None:
    for dtype in (np.int32, np.float16, np.float32, bool, np.uint8, np.complex64):
        array = np.arange(6).reshape(2, 3).astype(dtype)
        for each in (array, array.T, array[:, 1:], array[:0], array[0, 0], np.asfortranarray(array)):
            found = layer.same(each)
            assert found.dtype == each.dtype
            assert np.array_equal(found, each)
    assert layer.same(Random(4)).random() == Random(4).random()


def test_an_argument_that_is_filled_is_filled_here(layer: Any) -> None:
    array = np.zeros(5)
    layer.fill(array)
    assert array.tolist() == [7] * 5
    layer.fill(array[1:3])
    parts = [np.zeros(2), np.zeros(3)]
    layer.keep(parts[0])
    parts[0] += 4
    assert layer.kept is parts[0]
    assert layer.kept.tolist() == [4, 4]


def test_an_array_of_the_other_side_changes_on_both(layer: Any) -> None:
    weight = layer.weight
    layer.double()
    assert weight.tolist() == (2 * np.arange(6.0).reshape(2, 3)).tolist()
    weight -= 1
    assert layer.half.tolist() == weight[:, :2].tolist()
    assert np.shares_memory(layer.half, layer.weight)


def test_a_view_of_an_argument_is_one_here_too(layer: Any) -> None:
    array = np.arange(5.0)
    layer.keep(array)
    view = layer.view()
    assert np.shares_memory(view, array)
    assert view.tolist() == [1, 2]


def test_what_a_submission_passes_lives_by_its_call(layer: Any) -> None:
    comm, array = Comm(), np.arange(4.0)
    assert layer.calls(comm, array[1:3]) == "sent"
    assert comm.seen[0].tolist() == [1, 2]
    assert array.tolist() == [0, 101, 102, 3], "what the call has changed is changed on the other side, and here"
    layer.calls(comm, np.arange(8.0)[::2])
    assert not comm.flags[0]
    whole = np.arange(4.0)
    layer.calls(comm, whole[:3], whole[2:])
    assert comm.shared, "they overlap there as well"


def test_an_object_comes_home_as_itself(layer: Any) -> None:
    comm = Comm()
    assert layer.same(comm) is comm


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (("get", "secret"), "Comm has no secret that a submission may use"),
        (("get", "seen"), "Comm has no seen that a submission may use"),
        (("method", "hidden", (), {}), "Comm has no hidden that a submission may use"),
        (("set", "rank", 0), r"Comm\.rank cannot be set from here"),
        (("call", (), {}), "Comm cannot be used like this from here"),
        (("iter",), "Comm cannot be used like this from here"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_only_what_is_offered_can_be_used(request_: tuple[Any, ...], message: str) -> None:
    ours, _ = socket.socketpair()
    peer = Peer(ours, offer=offer, values={}, explain=lambda error: ("", ""), raised=lambda *given: Explained("", ""))
    peer.values._exported(Comm(), [])
    action, *rest = request_
    with pytest.raises((AttributeError, TypeError), match=message):
        getattr(peer, f"do_{action}")(1, *rest)


def test_an_object_that_is_not_offered_does_not_leave(layer: Any) -> None:
    with pytest.raises(TypeError, match="object cannot be handed to the other process"):
        layer.same(object())


def test_errors_plain_attributes_and_generators(layer: Any) -> None:
    with pytest.raises(Explained, match="not there"):
        layer.fails()
    layer.double()
    before = layer._peer.requests
    assert layer.steps == 1
    assert layer._peer.requests == before, "it has come with the answer of the call"
    assert list(layer.numbers()) == [0, 1, 2]
    assert sorted(vars(layer)) == ["half", "steps", "weight"]


def test_arrays_that_are_gone_are_forgotten(layer: Any) -> None:
    for _ in range(50):
        layer.fill(np.zeros(10))
    layer.same(1)
    assert len(layer._peer.values.arrays) < 5


def test_garbage_is_no_message() -> None:
    for data in (b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}", b"\x05\0\0\0\0\0\0\0[1,2]", b"\x04\0\0\0\0\0\0\0nope"):
        ours, theirs = socket.socketpair()
        peer = Peer(
            ours, offer=offer, values={}, explain=lambda error: ("", ""), raised=lambda *given: Explained("", "")
        )
        theirs.sendall(data)
        theirs.close()
        with pytest.raises((Malformed, Ended)):
            peer.serve()
        ours.close()


def test_a_change_of_an_array_that_nothing_holds_arrives(layer: Any) -> None:
    """As in `network.gradients[place] *= share`: the array is fetched, changed and released."""
    layer.weight[0] *= 3
    assert layer.weight[0].tolist() == [0, 3, 6]
    layer.weight[1] += 1
    assert layer.half[1].tolist() == [4, 5]


def test_a_property_comes_with_the_answer_and_elements_by_one_call(layer: Any) -> None:
    assert layer.level == 0
    layer.double()
    before = layer._peer.requests
    assert layer.level == 10
    assert layer._peer.requests == before
    assert learner.taken(layer.numbers(), 2) == [0, 1]
    assert layer._peer.requests == before + 3, "find the method, call it, take"
