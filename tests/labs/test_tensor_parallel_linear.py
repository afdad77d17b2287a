"""Lab 9: the project's own layers pass it, another right answer too, and one class alone gets its points."""

from __future__ import annotations

from pathlib import Path

from farandole_tools.lab import labs
from farandole_tools.lab.grading import grade
from tests.labs.labs_for_tests import LIMIT_S, by_name, on

LAB = labs.find("9")

# The layers that the scenarios train with: autograd does the backward pass, and torch keeps the matrix transposed.
THE_PROJECTS_OWN = """
import torch
from torch import nn

from farandole.model_parallel.tensor import linear
from farandole.model_parallel.tensor.exchange import TensorGroup

class InTorch:
    def __init__(self, weight, bias, comm):
        whole = nn.Linear(*weight.shape, dtype=torch.float64)
        whole.load_state_dict({"weight": torch.tensor(weight.T.copy()), "bias": torch.tensor(bias)})
        self.layer = self.kind(whole, TensorGroup(comm))
        self.weight, self.bias = self.layer.weight.detach().numpy().T, self.layer.bias.detach().numpy()

    def forward(self, x):
        self.x = torch.tensor(x, requires_grad=True)
        self.y = self.layer(self.x)
        return self.y.detach().numpy()

    def backward(self, gradient):
        self.layer.zero_grad()
        self.y.backward(torch.tensor(gradient))
        self.weight_gradient, self.bias_gradient = self.layer.weight.grad.numpy().T, self.layer.bias.grad.numpy()
        return self.x.grad.numpy()

class ColumnLinear(InTorch):
    kind = linear.ColumnLinear

class RowLinear(InTorch):
    kind = linear.RowLinear
"""

# Transposed matrices, the bias added by one rank before the sum, and einsum instead of products.
ANOTHER = """
class Turned:
    def gradients(self, gradient):
        self.weight_gradient = np.einsum("bi,bo->io", self.x, gradient)
        self.bias_gradient = np.ones(len(gradient)) @ gradient
        return np.einsum("bo,io->bi", gradient, self.weight)

class ColumnLinear(Turned):
    def __init__(self, weight, bias, comm):
        own = np.array_split(np.arange(len(bias)), comm.size)[comm.rank]
        self.weight, self.bias, self.comm = weight[:, own], bias[own], comm

    def forward(self, x):
        self.x = x
        return np.einsum("bi,io->bo", x, self.weight) + self.bias

    def backward(self, gradient):
        return all_reduce(self.gradients(gradient), self.comm)

class RowLinear(Turned):
    def __init__(self, weight, bias, comm):
        self.weight = np.copy(np.array_split(weight, comm.size)[comm.rank], order="F")
        self.bias, self.comm = bias + 0, comm

    def forward(self, x):
        self.x = x
        y = x @ self.weight
        if self.comm.rank == self.comm.size - 1:
            y += self.bias
        return all_reduce(y, self.comm)

    def backward(self, gradient):
        return self.gradients(gradient)
"""


def helpers() -> str:
    """Return the top of the distributed file, with its all-reduce."""
    handed_out = (LAB.folder / LAB.file).read_text()
    return handed_out[: handed_out.index("class ColumnLinear")]


def test_the_projects_own_layers_get_full_marks(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(THE_PROJECTS_OWN)
    result = grade(on(LAB, 3), tmp_path / "own.py", limit_s=LIMIT_S, ours=True)
    assert [check.message for check in result.results if not check.passed] == []


def test_a_right_answer_need_not_look_like_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(helpers() + ANOTHER)
    result = grade(on(LAB, 2, 4), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert [check.message for check in result.results if not check.passed] == []


def test_what_is_written_counts_though_the_rest_is_not(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(helpers() + ANOTHER[: ANOTHER.index("class RowLinear")])
    results = by_name(grade(on(LAB, 2), tmp_path / "half.py", limit_s=LIMIT_S, ours=True))
    assert [name for name, result in results.items() if result.passed] == ["column forward", "column backward"]
    assert "there is no RowLinear in half.py" in results["row forward"].message


def test_what_a_layer_should_have_and_has_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(helpers() + ANOTHER.replace("self.bias_gradient", "self.gradient_of_the_bias"))
    results = by_name(
        grade(on(LAB, 2, checks=("row forward", "row backward")), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    )
    assert results["row forward"].passed
    assert "there is no RowLinear's bias_gradient" in results["row backward"].message
