"""A slow link between real ranks: never faster than its bits allow, and the same training."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole import UsageError, launch
from farandole.cost.validation import against

RECIPE = {"steps": 4, "hidden": 32}
MBPS = 4.0


@pytest.mark.parametrize(("scenario", "ranks"), [("sync_sgd", 3), ("parameter_server", 3)])
def test_a_run_lasts_as_long_as_its_link_needs_and_computes_the_same(scenario: str, ranks: int, tmp_path: Path) -> None:
    slow = launch(scenario, ranks, **RECIPE, link_mbps=MBPS, out=tmp_path / "slow").summary
    plain = launch(scenario, ranks, **RECIPE, out=tmp_path / "plain").summary
    assert slow.params_sha256 == plain.params_sha256
    assert slow.bytes_sent
    assert slow.bytes_sent == plain.bytes_sent
    assert slow.wall_s > max(slow.bytes_sent) * 8 / (MBPS * 1e6)


def test_and_each_message_as_long_as_the_links_latency(tmp_path: Path) -> None:
    """Buckets of a single tensor each: 6 tensors, and 2(P − 1) messages for each in a ring."""
    latency_ms, ranks = 20.0, 3
    options = {**RECIPE, "bucket_kb": 1, "overlap": True, "link_mbps": 1000, "link_latency_ms": latency_ms}
    found = launch("sync_sgd", ranks, **options, out=tmp_path / "run").summary
    assert found.messages_sent == [RECIPE["steps"] * 6 * 2 * (ranks - 1)] * ranks
    assert found.wall_s > max(found.messages_sent) * latency_ms / 1e3


@pytest.mark.parametrize(
    ("scenario", "options", "what"),
    [
        ("sync_sgd", {"collective": "shared-memory"}, "shared memory"),
        ("sync_sgd", {"collective": "window"}, "shared memory"),
        ("sync_sgd", {"collective": "hierarchical"}, "within a node --collective hierarchical"),
        ("sync_sgd", {"collective": "mpi"}, "a library"),
        ("ddp_sgd", {}, "a library"),
        ("parameter_server", {"transport": "window"}, "--transport window"),
    ],
)
def test_a_slow_link_is_refused_where_messages_bypass_it(
    scenario: str, options: dict[str, object], what: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"--link-mbps slows down our own messages, and {what} sends none"):
        launch(scenario, 3, steps=2, link_mbps=100, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.alone
def test_the_simulator_knows_how_long_a_servers_link_takes(tmp_path: Path) -> None:
    """Two workers, one of them slow: sleeping for it and for the link is nearly all there is to a round."""
    placed = {"place": "servers=0,workers=1-2", "slow": "rank=2,factor=60"}
    options = {**RECIPE, **placed, "steps": 20, "sync": "bsp", "link_mbps": MBPS}
    run = launch("parameter_server", 3, **options, out=tmp_path / "run")
    verdict = against(run)
    assert abs(verdict.error) < 0.2, verdict
    message_s = 4 * (64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10) * 8 / (MBPS * 1e6)
    assert verdict.predicted_s > 3 * message_s, "both reads, and the slow worker's push"
