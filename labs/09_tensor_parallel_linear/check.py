"""Checks of lab 9: the split layers compute the same as the dense one, forward and backward, at the right cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole.data.shares import equal_shares, slices
from farandole_tools.lab import Check, Lab, expect

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

    Comm = LabCommunicator

Vector = NDArray[Any]
Mistake = tuple[Vector, str]  # what a usual mistake comes to, and what to say of it

ALL = (1, 2, 3, 4)
BATCH = 6
EVEN = (12, 24)  # inputs and outputs; every number of ranks above divides them
UNEVEN = ((7, 10), (10, 7))
STEPS = 4
RATE = 0.02
PASSES = ("column forward", "row forward", "column backward", "row backward")  # checks of one pass of one layer


class Dense:
    """y = x·A + b on one rank, in the form of the lab: what everything is compared with."""

    def __init__(self, weight: Vector, bias: Vector) -> None:
        self.weight, self.bias = weight, bias

    def forward(self, x: Vector) -> Vector:
        self.x = x
        return x @ self.weight + self.bias

    def backward(self, gradient: Vector) -> Vector:
        self.weight_gradient, self.bias_gradient = self.x.T @ gradient, gradient.sum(axis=0)
        return gradient @ self.weight.T


class Case:
    """A dense layer, a batch that goes through it, and which part of everything this rank has.

    Attributes:
        inputs, outputs: each rank's inputs and outputs, where they are divided.
        own_inputs, own_outputs: this rank's.
        x, y, y_gradient, x_gradient: what goes through the dense layer, forward and backward.
    """

    def __init__(self, comm: Comm, sizes: tuple[int, int] = EVEN, seed: int = 0) -> None:
        random = np.random.default_rng([*sizes, seed])
        self.rank, self.ranks, self.comm = comm.rank, comm.size, comm
        self.inputs, self.outputs = (slices(equal_shares(size, comm.size)) for size in sizes)
        self.own_inputs, self.own_outputs = self.inputs[comm.rank], self.outputs[comm.rank]
        self.dense = Dense(random.normal(size=sizes) / 4, random.normal(size=sizes[1]))
        self.x, self.y_gradient = (random.normal(size=(BATCH, size)) for size in sizes)
        self.y, self.x_gradient = self.dense.forward(self.x), self.dense.backward(self.y_gradient)

    def columns(self, whole: Vector) -> Vector:
        """This rank's, of something with an element or a column for each output."""
        return whole[..., self.own_outputs]

    def rows(self, whole: Vector) -> Vector:
        return whole[self.own_inputs]

    def column_layer(self, student: Any) -> Any:
        layer = student.ColumnLinear(self.dense.weight.copy(), self.dense.bias.copy(), self.comm)
        rows, columns = self.rows(self.dense.weight), self.columns(self.dense.weight)
        hint = cut_into("columns", self.outputs)
        turned = rows, "has rows of A: a column layer has columns"
        others = [(self.dense.weight[:, part], f"is the part of rank {rank}") for rank, part in enumerate(self.outputs)]
        self.same(layer, "weight", columns, turned, *others, hint=hint)
        whole = self.dense.bias, "is all of b: its columns are enough"
        self.same(layer, "bias", self.columns(self.dense.bias), whole, hint=hint)
        return layer

    def row_layer(self, student: Any) -> Any:
        layer = student.RowLinear(self.dense.weight.copy(), self.dense.bias.copy(), self.comm)
        rows, columns = self.rows(self.dense.weight), self.columns(self.dense.weight)
        hint = cut_into("rows", self.inputs)
        turned = columns, "has columns of A: a row layer has rows"
        others = [(self.dense.weight[part], f"is the part of rank {rank}") for rank, part in enumerate(self.inputs)]
        self.same(layer, "weight", rows, turned, *others, hint=hint)
        text = "is a piece of b: every rank makes the whole y, so it keeps the whole bias"
        pieces = [(self.dense.bias[own], text) for own in (self.own_outputs, self.own_inputs)]
        self.same(layer, "bias", self.dense.bias, *pieces)
        return layer

    def same(self, layer: Any, attribute: str, right: Vector, *mistakes: Mistake, hint: str = "") -> None:
        what = f"{type(layer).__name__}'s {attribute}"
        expect(hasattr(layer, attribute), f"there is no {what}")
        self.equal(what, getattr(layer, attribute), right, *mistakes, hint=hint)

    def equal(self, what: str, given: Any, right: Vector, *mistakes: Mistake, hint: str = "") -> None:
        """Tell the usual mistakes apart by what they come to."""
        what = f"{what} on rank {self.rank}"
        expect(given is not None, f"{what} is None: is there a return?")
        given = np.asarray(given)
        if alike(given, right):
            return
        for mistaken, text in mistakes:
            expect(not alike(given, mistaken), f"{what} {text}")
        expect(given.shape == right.shape, f"{what} has the shape {given.shape} where {right.shape} is right{hint}")
        place = tuple(int(index) for index in np.argwhere(~np.isclose(given, right, rtol=1e-9, atol=1e-12))[0])
        expect(False, f"{what} is {given[place]:.6g} at {place}, and {right[place]:.6g} by the dense layer{hint}")


def cut_into(what: str, parts: Sequence[slice]) -> str:
    lengths = ", ".join(str(part.stop - part.start) for part in parts)
    return f": np.array_split cuts {parts[-1].stop} {what} into {lengths}"


def alike(given: Vector, other: Vector) -> bool:
    return given.shape == other.shape and np.allclose(given, other, rtol=1e-9, atol=1e-12)


def judge_parts(student: Any, case: Case) -> None:
    case.column_layer(student)
    case.row_layer(student)
    for kind in (student.ColumnLinear, student.RowLinear):
        whole, bias = case.dense.weight.copy(), case.dense.bias.copy()
        layer = kind(whole, bias, case.comm)
        name = type(layer).__name__
        expect(
            not np.shares_memory(layer.weight, whole),
            f"{name}'s weight is a view of A: with it all of A stays in memory; copy it",
        )
        expect(
            not np.shares_memory(layer.bias, bias),
            f"{name}'s bias is the array that it was given, or a view: the training would move that, too; copy it",
        )
        for attribute, held in vars(layer).items():
            expect(
                not isinstance(held, np.ndarray) or held.size < whole.size or case.ranks == 1,
                f"{name} keeps all of A, as .{attribute}: its own part is enough",
            )


def judge_column_forward(student: Any, case: Case) -> None:
    layer, right = case.column_layer(student), case.columns(case.y)
    case.equal(
        "ColumnLinear.forward",
        layer.forward(case.x.copy()),
        right,
        (case.y, "has all columns of y: each rank goes on with its own, and no rank needs the others"),
        (right - case.columns(case.dense.bias), "lacks the bias"),
        (
            added_up([case.y[:, part] for part in case.outputs]),
            "is a sum over the ranks: their columns are different columns of y, and stay apart",
        ),
    )


def judge_row_forward(student: Any, case: Case) -> None:
    layer, bias = case.row_layer(student), case.dense.bias
    x = case.x[:, case.own_inputs]
    own, summed = x @ case.rows(case.dense.weight), case.y - bias
    case.equal(
        "RowLinear.forward",
        layer.forward(x.copy()),
        case.y,
        (summed, "lacks the bias"),
        (
            summed + case.ranks * bias,
            f"has the bias {case.ranks} times: add it once, to the sum, not to each rank's part",
        ),
        (own, "is this rank's part alone: what all ranks' parts add up to is y"),
        (own + bias, "is this rank's part alone: what all ranks' parts add up to is y"),
        (summed / case.ranks + bias, "is a mean over the ranks: what their parts add up to is y"),
    )


def judge_column_backward(student: Any, case: Case) -> None:
    layer, own = case.column_layer(student), case.columns(case.y_gradient)
    layer.forward(case.x.copy())
    case.equal(
        "ColumnLinear.backward",
        layer.backward(own.copy()),
        case.x_gradient,
        (
            own @ case.columns(case.dense.weight).T,
            "is what this rank's columns contribute: all ranks' columns have used x, so add up what all contribute",
        ),
        (case.x_gradient / case.ranks, "is a mean over the ranks: what they contribute is to be added up"),
    )
    weight, bias = case.dense.weight_gradient, case.dense.bias_gradient
    judge_gradients(layer, case, [weight[:, part] for part in case.outputs], [bias[part] for part in case.outputs])


def judge_row_backward(student: Any, case: Case) -> None:
    layer = case.row_layer(student)
    layer.forward(case.x[:, case.own_inputs].copy())
    case.equal(
        "RowLinear.backward",
        layer.backward(case.y_gradient.copy()),
        case.x_gradient[:, case.own_inputs],
        (case.x_gradient, "has all columns: those of this rank's inputs are enough"),
        (
            added_up([case.x_gradient[:, part] for part in case.inputs]),
            "is a sum over the ranks: each has other columns of x, and their gradients stay apart",
        ),
    )
    weight, bias = case.dense.weight_gradient, case.dense.bias_gradient
    judge_gradients(layer, case, [weight[part] for part in case.inputs], [bias] * case.ranks)


def judge_gradients(layer: Any, case: Case, weights: Sequence[Vector], biases: Sequence[Vector]) -> None:
    """Compare with what each rank should have."""
    for name, everybodys in (("weight_gradient", weights), ("bias_gradient", biases)):
        right = everybodys[case.rank]
        case.same(
            layer,
            name,
            right,
            (right * case.ranks, f"is {case.ranks} times too large: is it added up over the ranks? Each has all of it"),
            (added_up(everybodys), "is a sum over the ranks: they are of different parts of A or b, and stay apart"),
            (right / BATCH, "is a mean over the batch: the layer needs the sum"),
        )


def added_up(parts: Sequence[Vector]) -> Vector:
    """Return the sum of the parts, or an empty vector if their shapes differ."""
    return np.sum(parts, axis=0) if len({part.shape for part in parts}) == 1 else np.empty(0)


def on_even_sizes(judge: Callable[[Any, Case], None]) -> Callable[[Any, Comm], None]:
    return lambda student, comm: judge(student, Case(comm))


def check_uneven_sizes(student: Any, comm: Comm) -> None:
    for sizes in UNEVEN:
        with comm.case(f"{sizes[0]} inputs, {sizes[1]} outputs"):
            for judge in (judge_column_forward, judge_row_forward, judge_column_backward, judge_row_backward):
                judge(student, Case(comm, sizes))


def passes(student: Any, comm: Comm) -> list[tuple[str, int, int, int]]:
    """Return for each pass its name, the count of numbers to add up, and the bytes and messages that it sent."""
    case = Case(comm)
    column, row = case.column_layer(student), case.row_layer(student)
    sent = []
    for name, numbers, make in (
        ("ColumnLinear.forward", 0, lambda: column.forward(case.x.copy())),
        ("RowLinear.forward", case.y.size, lambda: row.forward(case.x[:, case.own_inputs].copy())),
        ("ColumnLinear.backward", case.x.size, lambda: column.backward(case.columns(case.y_gradient).copy())),
        ("RowLinear.backward", 0, lambda: row.backward(case.y_gradient.copy())),
    ):
        before = comm.bytes_sent, comm.messages_sent
        make()
        sent.append((name, numbers, comm.bytes_sent - before[0], comm.messages_sent - before[1]))
    return sent


def check_bytes(student: Any, comm: Comm) -> None:
    for name, numbers, sent, _ in passes(student, comm):
        right = 2 * (comm.size - 1) * 8 * numbers // comm.size
        hint = f"an all-reduce of its result sends {right:,}"
        if not numbers:
            hint = "it should send nothing, every rank has all that it needs"
        elif sent == (comm.size - 1) * 8 * numbers:
            hint += ": is every rank's part sent to every rank, and added up there?"
        expect(sent == right, f"{name} on rank {comm.rank} sent {sent:,} bytes; {hint}")


def check_messages(student: Any, comm: Comm) -> None:
    for name, numbers, _, sent in passes(student, comm):
        right = 2 * (comm.size - 1) if numbers else 0
        hint = f"one all-reduce, of the whole batch together, sends {right}"
        if not numbers:
            hint = "it should send none, every rank has all that it needs"
        expect(sent == right, f"{name} on rank {comm.rank} sent {sent} message{'s' * (sent != 1)}; {hint}")


def check_training(student: Any, comm: Comm) -> None:
    """Two pairs of layers, so that gradients go back through a whole pair."""
    cases = [Case(comm, EVEN if number % 2 == 0 else EVEN[::-1], seed=number) for number in range(4)]
    alone = [case.dense for case in cases]
    layers = [
        case.row_layer(student) if number % 2 else case.column_layer(student) for number, case in enumerate(cases)
    ]
    x, target = cases[0].x, cases[-1].y_gradient
    before: dict[tuple[int, str], Vector] = {}
    for step in range(STEPS):
        propagate(alone, x, target)
        propagate(layers, x, target)
        hint = (
            ": does each pass use weight and bias as they are now, after an update?"
            if step
            else ": see the checks above"
        )
        for number, (case, layer) in enumerate(zip(cases, layers, strict=True)):
            part = case.rows if number % 2 else case.columns
            for name in ("weight_gradient", "bias_gradient"):
                right = getattr(case.dense, name)
                right = right if right.ndim == 1 and number % 2 else part(right)
                added = right + before.get((number, name), 0)
                with comm.case(f"step {step}, layer {number}"):
                    text = "contains that of the step before: every backward pass sets it anew"
                    case.same(layer, name, right, (added, text), hint=hint)
                before[number, name] = right
        for layer in (*layers, *alone):
            layer.weight -= RATE * layer.weight_gradient
            layer.bias -= RATE * layer.bias_gradient


def propagate(layers: Sequence[Any], x: Vector, target: Vector) -> None:
    """Forward and backward through the layers, with ReLU between them; the loss is half the squared error."""
    masks = []
    for layer in layers:
        y = layer.forward(x)
        masks.append(y > 0)
        x = np.where(masks[-1], y, 0)
    gradient = y - target
    for layer, mask in zip(reversed(layers), [np.ones_like(y, dtype=bool), *reversed(masks[:-1])], strict=True):
        gradient = layer.backward(np.where(mask, gradient, 0))


LAB = Lab(
    title="Tensor parallel",
    file="parallel_linear.py",
    checks=(
        Check("parts", 1, ALL, on_even_sizes(judge_parts)),
        Check("column forward", 1, ALL, on_even_sizes(judge_column_forward)),
        Check("row forward", 1, ALL, on_even_sizes(judge_row_forward)),
        Check("column backward", 2, ALL, on_even_sizes(judge_column_backward)),
        Check("row backward", 1, ALL, on_even_sizes(judge_row_backward)),
        Check("bytes", 1, ALL, check_bytes, needs=PASSES),
        Check("messages", 1, ALL, check_messages, needs=PASSES),
        Check("training", 1, (1, 4), check_training, builds_on=("parts", *PASSES)),
        Check("uneven sizes", 1, (3, 4), check_uneven_sizes, builds_on=PASSES),
    ),
)
