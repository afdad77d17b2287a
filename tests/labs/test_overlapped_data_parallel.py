"""Lab 4: the network's gradients are right, a correct answer may look different, and misuse gets a plain message."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farandole_tools.lab import labs
from farandole_tools.lab.grading import grade
from farandole_tools.lab.instrumented_network import Network, data, numbers, told
from tests.labs.labs_for_tests import LIMIT_S, on

LAB = labs.find("4")
CUT = """
def cut(lengths, most):
    buckets, room = [], 0
    for number in range(len(lengths))[::-1]:
        room -= lengths[number]
        if room < 0 or not buckets:
            buckets.append([])
            room = most - lengths[number]
        buckets[-1].insert(0, number)
    return buckets
"""

# Lists in place of ranges, a set of the received gradients in place of counts, waits in reverse order, and a
# generator that is paused at the next bucket.
ANOTHER = f"""{CUT}
class Overlapped:
    def __init__(self, network, comm, most, overlap=True):
        self.network, self.comm, self.overlap = network, comm, overlap
        self.buckets = [(set(bucket), slice(network.places[bucket[0]].start, network.places[bucket[-1]].stop))
                        for bucket in cut(network.lengths, most)]

    def begin(self, came, share):
        for bucket, place in self.buckets:
            while not bucket <= came:
                yield
            self.network.gradients[place] *= share
            self.begun.append(self.comm.begin(self.network.gradients[place]))

    def step(self, samples, share):
        came, self.begun = set(), []
        ready = self.begin(came, share)

        def is_there(number):
            came.add(number)
            if self.overlap:
                next(ready, None)

        self.network.backward(samples, is_there)
        came.update(range(len(self.network.lengths)))
        next(ready, None)
        for reduction in reversed(self.begun):
            reduction.wait()
            reduction.wait()
        self.network.update()
"""

PLAIN = """
class Overlapped:
    def __init__(self, network, comm, most, overlap=True):
        self.network, self.comm = network, comm

    def step(self, samples, share):
"""
BACKWARD = "        self.network.backward(samples, lambda number: None)\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_right_answer_need_not_look_like_ours(tmp_path: Path, ranks: int) -> None:
    (tmp_path / "mine.py").write_text(ANOTHER)
    result = grade(on(LAB, ranks), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert [check.message for check in result.results if not check.passed] == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("        pass", "step 0: backward is never called"),
        (f"{BACKWARD}        self.network.update()", "step 0: parameters 0 to 11 are never reduced"),
        (
            f"{BACKWARD}        for _ in range(2):\n            self.comm.begin(self.network.gradients)",
            "step 0: parameters 0 to 11 are reduced more than once in a step",
        ),
        (f"{BACKWARD}        self.comm.begin(self.network.gradients).wait()", "step 0: there is no update"),
        (
            f"{BACKWARD}        self.comm.begin(self.network.gradients).wait()\n"
            "        self.network.update()\n        self.network.update()",
            "step 0: there are 2 updates in one step",
        ),
        (f"{BACKWARD}        self.comm.begin([1.0])", "begin takes a part of network.gradients, such as"),
        (f"{BACKWARD}        self.comm.begin(self.network.gradients[::2])", "begin takes a part of network.gradients"),
        (f"{BACKWARD}        self.comm.begin(self.network.gradients + 0)", "itself, not a copy and not an empty one"),
        (f"{BACKWARD}        self.comm.begin(self.network.gradients[5:5])", "itself, not a copy and not an empty one"),
        (
            f"{BACKWARD}        self.comm.begin(self.network.gradients[:22])",
            "begin takes the whole gradients of some parameters: elements 0 to 21 are no such part",
        ),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(f"{CUT}{PLAIN}{body}\n")
    result = grade(on(LAB, 1, checks=("waits",)), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert message in result.results[0].message


def test_gradients_are_changed_in_place_and_not_replaced(tmp_path: Path) -> None:
    """In the sandbox, where `network` stands for an object of another process, and an error crosses that twice."""
    weighed = "        self.network.gradients {}\n"
    right = (
        f"{BACKWARD}{weighed.format('*= share')}"
        "        self.comm.begin(self.network.gradients).wait()\n        self.network.update()\n"
    )
    replaced = f"        self.network.backward(samples, self.is_there)\n    def is_there(self, number):\n{weighed}"
    messages = []
    for name, body in (("right", right), ("replaced", replaced.format("= self.network.gradients * 2"))):
        (tmp_path / f"{name}.py").write_text(f"{CUT}{PLAIN}{body}")
        messages.append(grade(on(LAB, 1, checks=("weighted mean",)), tmp_path / f"{name}.py").results[0].message)
    assert messages[0] == ""
    assert "step 0: AttributeError: Network.gradients cannot be set from here: change its elements, " in messages[1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("None", "cut([4], 4): it returns None: is there a return?"),
        ("[]", "cut([4], 4): parameter 0 is in no bucket"),
        ("[[0], []]", "cut([4], 4): a bucket is empty"),
        ("[[0], [0]]", "cut([4], 4): parameter 0 is in more than one bucket"),
        ("[[0, 1]]", "cut([4], 4): there is no parameter 1"),
    ],
)
def test_what_are_no_buckets(tmp_path: Path, answer: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(f"def cut(lengths, most):\n    return {answer}\n")
    result = grade(on(LAB, 1, checks=("buckets",)), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert message in result.results[0].message


@pytest.mark.parametrize("route", [(2, 1, 0), (1, 2, 0), (2, 0), ()])
def test_the_gradients_are_those_of_the_loss(route: tuple[int, ...]) -> None:
    """Compared with differences of the loss itself, which is computed here again."""
    samples, small = [3, 1, 4], 1e-6
    network = Network()
    network.route = route

    def loss(values: np.ndarray) -> float:
        x, target = data(samples)
        y = np.zeros_like(target)
        for branch in route:
            first, inner, second, outer = (
                values[network.places[4 * branch + part]].reshape(shape)
                for part, shape in enumerate(((4, 5), (5,), (5, 3), (3,)))
            )
            y += np.tanh(x @ first + inner) @ second + outer
        return float(((y - target) ** 2).sum() / 2 / len(samples))

    came: list[int] = []
    network.backward(samples, came.append)
    steps = small * np.eye(len(network.values))
    slopes = [(loss(network.values + step) - loss(network.values - step)) / (2 * small) for step in steps]
    np.testing.assert_allclose(network.gradients, slopes, atol=1e-7)
    assert came == [4 * branch + part for branch in route for part in (3, 2, 1, 0)]
    assert [(event.name, event.parameters) for event in network.events] == [("gradient", (each,)) for each in came]


def test_without_samples_a_rank_has_zero_gradients_of_everything() -> None:
    network, came = Network(), []
    network.backward([], came.append)
    assert len(came) == len(network.lengths)
    assert not network.gradients.any()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [((4,), "parameter 4"), ((5, 4), "parameters 4 and 5"), ((4, 6, 5), "parameters 4 to 6"), ((), "no parameter")],
)
def test_parameters_in_words(parameters: tuple[int, ...], text: str) -> None:
    assert told(parameters) == text
    assert not parameters or text.endswith(f" {numbers(parameters)}")
