"""The units of a model: the modules whose parameters are gathered, used and freed together.

A unit should be small, since a rank holds one of them whole at a time, and large enough that its messages are. Blocks
of a network are both: the modules in its lists (Sequential, ModuleList, ModuleDict). So whatever contains such a list
is opened, and what does not is a unit, as a transformer's block with its attention and its perceptron. Parameters of
opened modules themselves, and those that several units share (tied ones), form the root unit, which stays gathered
during the whole step.

    Transformer                     root unit: parameters outside the units, tied ones
      embedding                     unit
      blocks = ModuleList           opened
        block 0: attention, mlp     unit
        block 1                     unit
      head                          unit

Source: Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", 2023 (there: wrapping policy).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from farandole.runtime.buffers import trained

LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
ROOT = "root"


@dataclass(frozen=True)
class Planned:
    """A unit of a model.

    Attributes:
        name: of its module, or `ROOT`.
        module: the one whose calls gather it; None: the root unit, which each step gathers.
        parameters: the trained ones, each once; frozen parameters stay whole on every rank.
    """

    name: str
    module: nn.Module | None
    parameters: list[nn.Parameter]


def units(model: nn.Module) -> list[Planned]:
    """Return the units of `model` that have trained parameters, the root unit first."""
    modules = dict(_opened(model, ""))
    owners = Counter(id(each) for module in modules.values() for each in trained(module))
    planned = [
        Planned(name, module, [each for each in trained(module) if owners[id(each)] == 1])
        for name, module in modules.items()
    ]
    rest = [each for each in trained(model) if owners[id(each)] != 1]
    return [each for each in (Planned(ROOT, None, rest), *planned) if each.parameters]


def _opened(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    for child_name, child in module.named_children():
        path = f"{name}.{child_name}" if name else child_name
        if any(isinstance(each, LISTS) for each in child.modules()):
            yield from _opened(child, path)
        else:
            yield path, child
