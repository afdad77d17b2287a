"""The state of optimizers and schedules, flattened and restored."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from farandole import UsageError
from farandole.own_loop.trees import flatten, unflatten


def there_and_back(tree: Any) -> Any:
    tensors: dict[str, Tensor] = {}
    form = json.loads(json.dumps(flatten(tree, "it", tensors)))
    return unflatten(form, tensors)


def test_an_optimizers_state_comes_back_and_is_a_copy() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    back = there_and_back(optimizer.state_dict())
    other = torch.optim.AdamW(model.parameters(), lr=0.3)
    other.load_state_dict(back)
    assert other.param_groups[0]["lr"] == 0.1
    average = other.state[model.weight]["exp_avg"]
    assert torch.equal(average, optimizer.state[model.weight]["exp_avg"])
    assert average.data_ptr() != optimizer.state[model.weight]["exp_avg"].data_ptr()


def test_a_schedules_state_comes_back_with_its_types() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    state = schedule.state_dict()
    back = there_and_back(state)
    assert back == state
    assert isinstance(back["milestones"], Counter)


@pytest.mark.parametrize("tree", [{1: (2.5, None, True)}, [{"a/b": 1}, {"a": {"b": 2}}], {3, 4}, "", {}, float("inf")])
def test_trees_of_numbers_and_texts_come_back(tree: Any) -> None:
    assert there_and_back(tree) == tree


def test_names_that_would_meet_stay_apart() -> None:
    tree = {"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}}
    back = there_and_back(tree)
    assert (float(back["a/b"]), float(back["a"]["b"])) == (1.0, 0.0)


def test_what_cannot_be_kept_is_named() -> None:
    with open(__file__) as file, pytest.raises(UsageError, match="it/file is a TextIOWrapper, which cannot be kept"):
        there_and_back({"file": file})
