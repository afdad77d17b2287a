"""α and β from the records of real runs over a slow link, which is as slow as they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole import launch
from farandole.cost.measured_link import measured_link

MBPS = 2.0  # so slow that what a busy machine adds to a message hardly counts


@pytest.mark.alone
def test_two_runs_determine_the_bandwidth_of_their_link(tmp_path: Path) -> None:
    runs = [
        launch("sync_sgd", 2, steps=12, hidden=hidden, link_mbps=MBPS, out=tmp_path / str(hidden))
        for hidden in (16, 128)
    ]
    found = measured_link(runs)
    assert found.link.beta * MBPS * 1e6 / 8 == pytest.approx(1, rel=0.2)
