"""The state of the foremost rank reaches those behind, and costs the others nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from farandole.recovery.membership_protection import send_state
from farandole.recovery.state import TrainingState
from tests.unit.ranks_in_threads import Group, Rank


def state_of(rank: int) -> TrainingState:
    shared = {"parameters": torch.full((6,), float(rank)), "count": torch.tensor(rank), "flags": torch.tensor([True])}
    return TrainingState(10 + rank, shared, {"own": torch.tensor(rank)}, {"lr": rank / 8})


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize(
    ("size", "source", "behind"),
    [(1, 0, []), (2, 1, [0]), (3, 1, [2]), (4, 3, [0, 2]), (4, 2, []), (7, 4, [0, 1, 2, 3, 5, 6]), (7, 0, [3, 4, 6])],
)
def test_only_the_ranks_behind_have_the_state_of_the_source(
    size: int, source: int, behind: list[int], new: bool
) -> None:
    before = [state_of(rank) for rank in range(size)]

    def program(one: Rank) -> tuple[TrainingState, int]:
        found = send_state(one.mpi, before[one.rank], source, behind, in_place=new)  # type: ignore[arg-type]
        return found, one.bytes_sent

    results: list[Any] = Group(size).run(program)
    expected = state_of(source)
    for rank, (found, _) in enumerate(results):
        if rank in behind:
            assert (found.step, found.values, found.own) == (expected.step, expected.values, {})
            assert found.shared.keys() == expected.shared.keys()
            assert all(torch.equal(found.shared[name], tensor) for name, tensor in expected.shared.items())
        elif rank != source:
            assert found is before[rank]
        mine = source if new and rank in behind else rank  # a worker's own may still be needed
        assert torch.equal(before[rank].shared["parameters"], state_of(mine).shared["parameters"])
    sent = [nbytes for _, nbytes in results]
    assert not any(sent[rank] for rank in range(size) if rank not in [source, *behind])
    tensors = sum(tensor.nbytes for tensor in expected.shared.values())
    beside = len(f'{{"step": {expected.step}, "lr": {expected.values["lr"]}}}') + 8  # and its length
    assert sum(sent) == len(behind) * (tensors + beside)
