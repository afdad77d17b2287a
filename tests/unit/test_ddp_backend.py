"""Which library adds up DDP's gradients: NCCL where every rank has its own card."""

from __future__ import annotations

import pytest

from farandole.data_parallel.ddp_twin import WantedBackend, backend_of
from farandole.errors import UsageError

OWN, SHARED, SOME, NONE = ["a", "b"], ["a", "a"], ["a", ""], ["", ""]


@pytest.mark.parametrize(
    ("cards", "has_nccl", "wanted", "backend"),
    [
        (OWN, True, "auto", "nccl"),
        (OWN, True, "nccl", "nccl"),
        (OWN, True, "gloo", "gloo"),
        (OWN, False, "auto", "gloo"),
        (SHARED, True, "auto", "gloo"),
        (SOME, True, "auto", "gloo"),
        (NONE, True, "auto", "gloo"),
    ],
)
def test_it_is_nccl_where_that_can_be(cards: list[str], has_nccl: bool, wanted: WantedBackend, backend: str) -> None:
    assert backend_of(wanted, cards, has_nccl) == backend


@pytest.mark.parametrize(("cards", "why"), [(SHARED, "share one"), (SOME, "have none"), (NONE, "have none")])
def test_nccl_is_refused_where_it_cannot_be(cards: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        backend_of("nccl", cards, has_nccl=True)
    with pytest.raises(UsageError, match="built without NCCL"):
        backend_of("nccl", OWN, has_nccl=False)
