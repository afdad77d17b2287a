"""The card for tests notices what a real card would spoil: its rules, and harmful changes of the package's copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("card_for_tests")


def test_its_rules_are_those_of_a_card(under_mpirun: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_TEST_CARD_KERNEL_US", "200")
    assert len(under_mpirun("card_rules.py", 1)) == 7


def test_harmful_copies_are_noticed_and_harmless_ones_are_not(under_mpirun: Callable[..., Any], tmp_path: Path) -> None:
    answer = under_mpirun("harmful_copies.py", 2, str(tmp_path), timeout_s=120)
    assert all(isinstance(digests, list) for digests in answer["right"].values()), "without a change all runs succeed"
    assert [change for change, end in answer["harmful"].items() if end == "same"] == []
    assert set(answer["harmless"].values()) == {"same"}
    assert "waited" in answer["harmful"]["a bucket's copy does not wait for backward"]
    assert "numpy" in answer["harmful"]["the card's memory for numpy"]


def test_zero_moves_only_the_parts_that_are_needed(under_mpirun: Callable[..., Any]) -> None:
    assert under_mpirun("card_traffic.py", 3)["out"] > 0
