"""Ranks of the tests of labs are forked from a process that has imported torch, which halves a launch."""

from __future__ import annotations

import pytest

from farandole.runtime.launcher import run_ranks
from farandole_tools.lab import launch
from tests.conftest import SOAK


@pytest.fixture(autouse=True)
def forked_ranks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ranks forked also where a lab needs no torch. They share the seed of hash(): not if marked own_hash."""
    if not SOAK and "own_hash" not in request.keywords:
        monkeypatch.setattr(
            launch, "run_ranks", lambda *given, **named: run_ranks(*given, **named | {"with_torch": True})
        )
