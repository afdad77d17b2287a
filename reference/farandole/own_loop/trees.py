"""A `state_dict` flattened: its tensors by name, and the rest as JSON can hold it.

So what an optimizer or a schedule remembers can be kept, sent and compared as any other state (`recovery.state`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from farandole.errors import UsageError

MAPPINGS: dict[str, Any] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "deque": deque}


def flatten(tree: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return `tree` without its tensors, which are added to `tensors`, by names that contain `name`.

    Raises:
        UsageError: it contains something else than tensors, numbers, texts and collections of these.
    """
    if isinstance(tree, Tensor):
        label = f"{len(tensors)}: {name}"  # the number, since names of two places may be alike
        tensors[label] = tree
        return {"tensor": label}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    if isinstance(tree, defaultdict):
        tree = dict(tree)
    kind = type(tree).__name__
    if kind in MAPPINGS:
        pairs = [
            [flatten(key, f"{name}/{number}", tensors), flatten(value, f"{name}/{key}", tensors)]
            for number, (key, value) in enumerate(tree.items())
        ]
        return {kind: pairs}
    if kind in SEQUENCES:
        return {kind: [flatten(value, f"{name}/{number}", tensors) for number, value in enumerate(tree)]}
    raise UsageError(f"{name} is a {kind}, which cannot be kept: keep what has tensors, numbers and texts")


def unflatten(form: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """Return the tree of which `flatten` has made `form` and `tensors`; its tensors are copies."""
    [(kind, content)] = form.items()
    if kind == "tensor":
        return torch.clone(tensors[content])
    if kind == "value":
        return content
    if kind in MAPPINGS:
        return MAPPINGS[kind]({unflatten(key, tensors): unflatten(value, tensors) for key, value in content})
    return SEQUENCES[kind]([unflatten(each, tensors) for each in content])
