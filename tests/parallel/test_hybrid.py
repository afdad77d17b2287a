"""The hybrid of servers' and workers' own rows: the same training with fewer bytes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, Run, UsageError, launch
from farandole.runtime.command_line import parse
from farandole.scenarios.hybrid_parameters import Config
from tests.parallel.test_sparse import CLASSES, HEADER, ROW_NUMBER, STEPS, equals_the_single_process, run

EPOCH = 14  # ⌈889 training passages / 64⌉


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("ranks", "places"),
    [
        (3, ["servers=1,workers=2", "servers=0+1,workers=2"]),
        (5, ["servers=1,workers=2-4", "servers=0+1,workers=2-4", "servers=1+2,workers=3-4"]),
    ],
)
def test_every_step_equals_the_single_process(
    under_mpirun: Callable[..., Any], tmp_path: Path, ranks: int, places: list[str]
) -> None:
    runs = [run(scenario="hybrid", place=place) for place in places]
    runs += [run(scenario="hybrid", place=places[-1], hot=0.1, shards="shuffled", update="adagrad", lr=0.1)]
    cold = {"scenario": "hybrid", "hot": 0.1, "cold": "clients"}
    runs += [run(**cold, place=places[0]), run(**cold, place=places[0], shards="shuffled", update="adagrad", lr=0.1)]
    for answer in under_mpirun("sparse_runs.py", ranks, str(tmp_path), json.dumps(runs), timeout_s=240):
        equals_the_single_process(answer)


def test_local_rows_are_updated_as_a_server_would_update_them(under_mpirun: Callable[..., Any], tmp_path: Path) -> None:
    """Momentum and Adam have a state per row, so no dense optimizer is the same; stale training has no fixed result."""
    cases = [("bsp", "momentum", 5.0), ("bsp", "adam", 0.1), ("ssp", "sgd", 30.0)]
    runs = [
        run(scenario=scenario, sync=sync, update=update, lr=rate, steps=60 if sync == "ssp" else STEPS)
        for sync, update, rate in cases
        for scenario in ("sparse", "hybrid")
    ]
    cold = {"scenario": "hybrid", "hot": 0.1, "cold": "clients"}
    runs += [run(**cold, sync=sync, update=update, lr=rate) for sync, update, rate in cases[:2]]
    answers = under_mpirun("sparse_runs.py", 4, str(tmp_path), json.dumps(runs), timeout_s=240)
    for centre, found in zip(answers[:4:2], answers[6:], strict=True):
        assert found["fingerprint"] == pytest.approx(centre["fingerprint"], rel=1e-9), "shared rows, too"
    answers = answers[:6]
    for (sync, _, _), centre, hybrid in zip(cases, answers[::2], answers[1::2], strict=True):
        assert sum(hybrid["bytes_sent"]) < 0.7 * sum(centre["bytes_sent"])
        if sync == "bsp":
            assert hybrid["fingerprint"] == pytest.approx(centre["fingerprint"], rel=1e-9)
            assert hybrid["test_accuracy"] == centre["test_accuracy"]
        else:
            assert hybrid["final_loss"] < 0.5
            assert hybrid["test_accuracy"] >= 0.6


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Whole passages of documents with each of three workers, or shuffled ones; and all rows on the servers."""
    folder = tmp_path_factory.mktemp("runs")
    same = {"lr": 30.0, "steps": EPOCH, "seed": 1}
    return {
        "all at the centre": launch("parameter_server", 5, data="text", sync="bsp", **same, out=folder / "centre"),
        "documents": launch("hybrid_parameters", 5, **same, out=folder / "documents"),
        "shuffled": launch("hybrid_parameters", 5, shards="shuffled", **same, out=folder / "shuffled"),
        "cold at clients": launch(
            "hybrid_parameters", 5, hot=0.1, cold="clients", **same, out=folder / "cold-at-clients"
        ),
    }


def rows_sent(found: Run, workers: int = 3) -> float:
    """Return how many rows were sent, in either direction, by the bytes of the record.

    Each step a worker pulls (row numbers there, rows back) and pushes (numbers and rows): four payloads.
    There is a last pull whose numbers bring no rows; it counts little.
    """
    assert found.summary.bytes_sent is not None
    assert found.summary.messages_sent is not None
    payloads = workers * (4 * EPOCH + 1)
    headers = sum(found.summary.messages_sent) - payloads
    return (sum(found.summary.bytes_sent) - HEADER * headers) / (ROW_NUMBER + CLASSES * 4)


def test_the_result_is_that_of_all_rows_at_the_centre(runs: dict[str, Run]) -> None:
    centre, hybrid = runs["all at the centre"], runs["documents"]
    assert hybrid.summary.test_accuracy == centre.summary.test_accuracy
    # Over all lines: which line a worker's report comes to is a matter of time.
    losses = [sum(line["loss"] * line["samples"] for line in found.metrics) for found in (centre, hybrid)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert len(set(hybrid.summary.params_sha256 or [])) == 1, "every rank has the whole table at the end"


def test_fewer_bytes_are_sent_by_as_much_as_the_counts_predict(runs: dict[str, Run]) -> None:
    sent = {name: rows_sent(found) for name, found in runs.items() if name != "cold at clients"}
    division = {
        name: json.loads((runs[name].folder / "division.json").read_text()) for name in ("documents", "shuffled")
    }
    one_pull = 1 + 1 / EPOCH  # the last pull's numbers: less than an average step's rows
    for name, found in division.items():
        assert found["rows_sent_per_epoch"] <= sent[name] <= found["rows_sent_per_epoch"] * one_pull
        assert found["at_the_centre"] + sum(found["with_each_worker"]) == found["rows_updated"]
    everything = division["documents"]["rows_sent_per_epoch_without"]
    assert everything <= sent["all at the centre"] <= everything * one_pull
    assert sum(runs["documents"].summary.bytes_sent or []) < 0.7 * sum(
        runs["all at the centre"].summary.bytes_sent or []
    )
    # Shuffled, the same passages leave fewer rows to one worker alone.
    assert sum(division["shuffled"]["with_each_worker"]) < 0.95 * sum(division["documents"]["with_each_worker"])
    assert sent["documents"] < 0.9 * sent["shuffled"] < sent["shuffled"] < sent["all at the centre"]


def test_cold_rows_at_clients_travel_only_between_those_that_share_them(runs: dict[str, Run]) -> None:
    """To the servers as counted for the hot rows; between clients numbers once, values and gradients."""
    found, workers = runs["cold at clients"], 3
    division = json.loads((found.folder / "division.json").read_text())
    summary = found.summary
    assert summary.bytes_sent is not None
    assert summary.messages_sent is not None
    between = division["rows_sent_between_clients"]
    at_servers = division["rows_sent_per_epoch"] - between
    pairs = EPOCH * workers * (workers - 1)
    headers = sum(summary.messages_sent) - workers * (4 * EPOCH + 1) - 4 * pairs
    nbytes = sum(summary.bytes_sent) - HEADER * headers - 8 * pairs  # the number of requested rows
    nbytes -= between // 2 * (ROW_NUMBER + 2 * CLASSES * 4)
    assert at_servers <= nbytes / (ROW_NUMBER + CLASSES * 4) <= at_servers * (1 + 1 / EPOCH)
    assert between > 0
    for other in ("all at the centre", "documents"):
        assert sum(summary.bytes_sent) < sum(runs[other].summary.bytes_sent or []), other
        assert summary.test_accuracy == runs[other].summary.test_accuracy
    assert summary.params_sha256 is not None
    assert len(set(summary.params_sha256)) == 1


def test_bad_input_is_one_line(command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    for arguments in (["--topk", "0.1"], ["--sync", "history"], ["--update", "blend"], ["--hot", "1.5"]):
        with pytest.raises(UsageError):
            parse(Config, arguments)
    # All of 16 rows are updated, and there is one worker only.
    ended = command("run", "hybrid_parameters", "-n", "3", "--out", "run", "--buckets", "16", cwd=tmp_path)
    assert ended.returncode == 2
    assert "none is left for the servers" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_a_death_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    """Each worker has rows that no other has."""
    with pytest.raises(LaunchError, match="rank 3 at step 10 was killed by SIGKILL"):
        launch("hybrid_parameters", 5, buckets=4096, steps=100, fail="rank=3,step=10", out=tmp_path / "run")
