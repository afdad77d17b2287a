"""A rank's transport: by its device, its MPI's report and its method's needs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from farandole import launching
from farandole.errors import LaunchError, UsageError
from farandole.runtime import transport
from farandole.runtime.faults import Fail
from farandole.runtime.transport import chosen, of_rank
from farandole.scenarios import ddp_sgd, sync_sgd

CARD, CPU = torch.device("cuda", 0), torch.device("cpu")
NEEDS_HOST = "it adds up on the host"


@pytest.mark.parametrize(
    ("wanted", "on_card", "reads", "needs_host", "expected"),
    [
        ("staged", True, True, "", "staged"),
        ("direct", True, True, "", "direct"),
        ("auto", True, True, "", "direct"),
        ("auto", True, False, "", "staged"),
        ("auto", True, True, NEEDS_HOST, "staged"),
        ("staged", True, False, NEEDS_HOST, "staged"),
        ("auto", False, False, "", None),
        ("staged", False, False, NEEDS_HOST, None),
    ],
)
def test_the_transport(wanted: str, on_card: bool, reads: bool, needs_host: str, expected: str | None) -> None:
    assert chosen(wanted, on_card, reads, needs_host) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("on_card", "reads", "needs_host", "said"),
    [
        (True, False, "", "needs a CUDA-aware MPI, and this one does not say that it is: use --card-transport staged"),
        (False, True, "", "is for cards, and this run computes on the CPU: leave it out"),
        (True, True, NEEDS_HOST, f"{NEEDS_HOST}; use --card-transport staged"),
    ],
)
def test_direct_where_it_cannot_be_is_refused_in_one_line(
    on_card: bool, reads: bool, needs_host: str, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        chosen("direct", on_card, reads, needs_host)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_added_up_or_kept_in_the_hosts_memory_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "mpi_reads", lambda kind: kind == "cuda")
    for collective, expected in (
        ("ring", "direct"),
        ("mpi", "direct"),
        ("window", "staged"),
        ("hierarchical", "staged"),
    ):
        assert of_rank(sync_sgd.Config(collective=collective, card_transport="auto"), CARD) == expected
    with pytest.raises(UsageError, match="--collective window adds up in memory of the host: choose ring, or mpi"):
        of_rank(sync_sgd.Config(collective="window", card_transport="direct"), CARD)
    with pytest.raises(UsageError, match="--backend"):
        of_rank(ddp_sgd.Config(card_transport="direct"), CARD)
    lost = (Fail.parse("rank=1,step=3,how=drop"),)
    assert of_rank(sync_sgd.Config(fail=lost, card_transport="auto"), CARD) == "staged"
    assert of_rank(sync_sgd.Config(card_transport="auto"), CPU) is None


def test_what_is_for_the_hosts_memory_has_a_note_for_cards_that_names_what_does_not_copy() -> None:
    assert [sync_sgd.Config(collective=name).note_on_cards() for name in ("ring", "mpi")] == ["", ""]
    for name in sync_sgd.IN_HOST_MEMORY:
        note = sync_sgd.Config(collective=name).note_on_cards()
        assert note.startswith(f"--collective {name} is for the host's memory: each gradient is copied there")
        assert note.endswith("ring, or mpi, with --card-transport direct; ddp_sgd --backend nccl")
        assert "\n" not in note


def test_direct_is_launched_with_an_mpi_that_reads_cards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Such a launch has no ULFM, with which Open MPI would leave UCX out (`Mpi.between`)."""
    launched = []

    def not_started(*_: object, **named: object) -> None:
        launched.append((named["outlives"], named["reads_cards"]))
        raise LaunchError("nothing is started here")

    monkeypatch.setattr(launching, "run_ranks", not_started)
    for wanted in ("staged", "auto", "direct"):
        with pytest.raises(LaunchError):
            launching.launch("sync_sgd", 2, card_transport=wanted, out=tmp_path / wanted)
    assert launched == [(False, False), (False, False), (False, True)]


def test_mpi_is_not_asked_where_it_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "mpi_reads", lambda kind: pytest.fail("a staged run needs nothing of MPI"))
    assert of_rank(sync_sgd.Config(), CARD) == "staged"
