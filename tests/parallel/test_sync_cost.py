"""The measured cost of synchronising: the methods are the scenarios' own, and their bytes are the formula's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from farandole import UsageError, launch
from farandole.collectives.steps import chunk_slices

PARAMETERS = 64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10  # 3466
SMALL: dict[str, Any] = {"steps": 16, "hidden": 32, "calibration_steps": 5}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_method_is_predicted_and_measured(ranks: int, tmp_path: Path) -> None:
    run = launch("sync_cost", ranks, **SMALL, out=tmp_path / "run")
    found = json.loads((run.folder / "costs.json").read_text())
    rows = {row["way"]: row for row in found["ways"]}
    assert len(rows) == 8
    for row in rows.values():
        assert row["predicted_s"] == pytest.approx(row["comm_s"] + row["compute_s"])
        assert row["error"] == pytest.approx(row["predicted_s"] / row["measured_s"] - 1)
        assert 0 <= row["measured_comm_s"] < row["measured_s"]
        assert row["compute_s"] > 0
        assert row["efficiency"].keys() == {str(ranks), "8", "64", "512"}
    # Each rank sends the ring's chunks; rank 0 of `central` sends a vector to each other rank.
    nbytes, others = 4 * PARAMETERS, ranks - 1
    rings = 2 * nbytes * others / ranks
    sent = {method: row["bytes_sent"] for method, row in rows.items()}
    assert sent["ring"] == pytest.approx(rings, abs=16)
    assert sent["overlapped"] == pytest.approx(rings, abs=64)
    assert sent["large-batch"] == sent["local-sgd"] == pytest.approx(rings / 8, abs=2)
    assert sent["float16"] == pytest.approx(rings / 2, abs=8)
    assert sent["top-k"] == 8 * 35 * others
    assert sent["gossip"] == nbytes * min(2, others)
    assert sent["central"] == nbytes * others
    if ranks == 1:
        assert found["alpha_s"] == found["beta_s"] == 0
        assert found["noise"] is None
    else:
        assert found["alpha_s"] + found["beta_s"] > 0
        assert found["noise"]["critical_batch"] > 0
    assert run.summary.steps == 8 * 16
    assert [line["step"] for line in run.metrics][:17] == list(range(17))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("method", "scenario", "options"),
    [
        ("ring", "sync_sgd", {}),
        ("overlapped", "sync_sgd", {"overlap": True, "bucket_kb": 64}),
        ("local-sgd", "local_sgd", {"period": 8}),
        ("float16", "compressed_sgd", {"compressor": "float16"}),
        ("top-k", "compressed_sgd", {"compressor": "top-k"}),
        ("large-batch", "sync_sgd", {"steps": 2, "batch": 512}),
    ],
)
def test_each_method_trains_as_its_scenario(
    method: str, scenario: str, options: dict[str, Any], tmp_path: Path
) -> None:
    own = launch("sync_cost", 3, **SMALL, methods=[method], out=tmp_path / "own").summary
    other = launch(scenario, 3, **({"steps": 16, "hidden": 32} | options), out=tmp_path / "other").summary
    assert own.params_sha256 == other.params_sha256
    assert own.test_accuracy == other.test_accuracy


def test_the_calibration_is_not_part_of_the_record(tmp_path: Path) -> None:
    summary = launch("sync_cost", 3, **SMALL, methods=["ring"], out=tmp_path / "run").summary
    sizes = [4 * (part.stop - part.start) for part in chunk_slices(PARAMETERS, 3)]
    assert summary.bytes_sent
    assert sum(summary.bytes_sent) == 16 * 2 * 2 * sum(sizes)
    assert summary.messages_sent == [16 * 4] * 3
    assert max(summary.compute_s) < summary.wall_s


def test_samples_are_counted_with_batches_smaller_than_the_ranks(tmp_path: Path) -> None:
    options: dict[str, Any] = {"methods": ["ring", "large-batch"], "period": 8, "calibration_steps": 5, "steps": 16}
    run = launch("sync_cost", 3, batch=2, **options, out=tmp_path / "run")
    assert run.summary.samples_per_s == pytest.approx((16 * 3 + 2 * 18) / run.summary.wall_s)
    assert {line["samples"] for line in run.metrics} == {3, 18}, "at first each rank's part has one sample more"
    assert json.loads((run.folder / "costs.json").read_text())["noise"] is None
    large = launch("sync_cost", 2, batch=512, **options | {"methods": ["ring"]}, out=tmp_path / "large")
    assert sum(line["samples"] for line in large.metrics[:3]) == 1437, "an epoch's, in three steps"


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--steps 20 is no multiple of --period 8: give 16"):
        launch("sync_cost", 2, steps=20, out=tmp_path / "run")
    with pytest.raises(UsageError, match="large-batch takes 8 times 256 samples a step, and there are 1437"):
        launch("sync_cost", 2, steps=8, batch=256, out=tmp_path / "other")
