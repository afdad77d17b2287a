"""Trainings on the card for tests end with the bits of the CPU, and it detects harmful changes.

`test_on_a_gpu.py` has every scenario, each case in a separate launch; here trainings of each kind share one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole.collectives.schedules import SCHEDULES
from farandole.scenarios.sync_sgd import IN_HOST_MEMORY

pytestmark = pytest.mark.usefixtures("card_for_tests")
FUSED = ("expert_parallel",)  # fused attention picks another kernel than on the CPU


def test_its_rules_are_those_of_a_card(under_mpirun: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_TEST_CARD_KERNEL_US", "200")
    assert len(under_mpirun("card_rules.py", 1)) == 7


def test_trainings_have_the_cpus_bits_and_harmful_copies_are_noticed(
    under_mpirun: Callable[..., Any], tmp_path: Path
) -> None:
    answer = under_mpirun("card_trainings.py", 2, str(tmp_path), timeout_s=200)
    assert answer["right"].keys() > {"sync_sgd", "sharded", "pipeline"}
    for name, its in answer["right"].items():
        assert its["losses"] == pytest.approx(answer["on the CPU"][name]["losses"], rel=1e-5), name
        if name not in FUSED:
            assert its == answer["on the CPU"][name], name
    assert [change for change, end in answer["harmful"].items() if end == "same"] == []
    assert set(answer["harmless"].values()) == {"same"}
    assert "waited" in answer["harmful"]["a bucket's copy does not wait for backward"]
    assert "numpy" in answer["harmful"]["the card's memory for numpy"]


def test_zero_moves_only_the_parts_that_are_needed(under_mpirun: Callable[..., Any]) -> None:
    assert under_mpirun("card_traffic.py", 3)["out"] > 0


def test_an_mpi_that_reads_the_cards_memory_is_given_it_complete(
    under_mpirun: Callable[..., Any], tmp_path: Path
) -> None:
    """Direct equals staged bit by bit; each missing wait is detected; sums on the host stay staged."""
    answer = under_mpirun("card_transport.py", 4, str(tmp_path), timeout_s=200)
    assert len(answer["schedules"]) == 2 * (len(SCHEDULES) + 2)
    for name, its in answer["direct"].items():
        staged = answer["staged"][name]
        assert not isinstance(its, str), its
        assert (its.pop("transports"), staged.pop("transports")) == (["direct"] * 4, ["staged"] * 4), name
        assert its == staged, name
    assert answer["left the card"]["direct"] < answer["left the card"]["staged"] / 2
    for change, end in answer["harmful"].items():
        assert isinstance(end, str), change
        assert "card: " in end, change
    assert answer["auto"]["transports"] == ["direct"] * 4
    assert {its["transports"][0] for its in answer["in host memory"].values()} == {"staged"}
    for name, note in zip(IN_HOST_MEMORY, answer["notes"], strict=True):
        assert note.startswith(f"farandole: --collective {name} is for the host's memory")
    assert answer["refused"].startswith("--card-transport direct needs a CUDA-aware MPI")
