"""Sparse training: only used rows are sent, and it is single-process SGD on the union batch, step by step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import launch
from farandole.data import text
from farandole.errors import UsageError
from farandole.parameter_server.choices import check, check_workload
from farandole.parameter_server.header import FIELDS
from farandole.parameter_server.rpc_channel import HEARTBEAT_S
from farandole.runtime.command_line import parse
from farandole.scenarios.parameter_server import Config

HEADER, ROW_NUMBER, CLASSES = 8 * len(FIELDS), 4, 8
STEPS = 17  # an epoch has 14
TOLERANCE = 1e-12


def run(**options: Any) -> dict[str, Any]:
    return {"scenario": "sparse", "sync": "bsp", "lr": 30, "steps": STEPS, "buckets": 1 << 14} | options


def equals_the_single_process(answer: dict[str, Any]) -> None:
    assert 0 <= answer["difference"] <= TOLERANCE, "at any step, on any worker"
    assert answer["moved"] > 0.5, "the table was trained at all"
    assert answer["steps"] == STEPS
    assert set(answer["lead"]) == set(answer["staleness"]) == {"0"}


# The steps themselves are compared in the program.
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
    runs = [run(place=place) for place in places]
    runs += [run(place=places[-1], assignment="hashing", shards="shuffled", update="adagrad", lr=0.1)]
    answers = under_mpirun("sparse_runs.py", ranks, str(tmp_path), json.dumps(runs), timeout_s=240)
    assert len(answers) == len(runs)
    for answer in answers:
        equals_the_single_process(answer)


def test_every_policy_and_rule_learns_the_topics(under_mpirun: Callable[..., Any], tmp_path: Path) -> None:
    # Shuffled: with whole documents a dropped worker's data would be known to no other worker.
    same = {"steps": 60, "shards": "shuffled"}
    runs = [run(sync=sync, **same) for sync in ("ssp", "async", "half", "partial", "dssp", "history")]
    rates = {"momentum": 5.0, "adam": 0.1, "staleness-aware": 30.0, "delay-compensated": 30.0}
    runs += [run(sync="ssp", update=update, **same | {"lr": rate}) for update, rate in rates.items()]
    runs += [run(sync="async", applications=2, **same)]
    answers = under_mpirun("sparse_runs.py", 4, str(tmp_path), json.dumps(runs), timeout_s=240)
    for wanted, answer in zip(runs, answers, strict=True):
        assert answer["test_accuracy"] >= 0.6, wanted  # always the largest topic: 0.25
        if wanted["sync"] == "ssp":
            assert max(map(int, answer["lead"])) <= 4, wanted


def test_bytes_sent_are_those_of_the_rows_used(tmp_path: Path) -> None:
    steps, workers = 28, 2
    summary = launch("parameter_server", 4, data="text", sync="bsp", lr=30.0, steps=steps, out=tmp_path / "run").summary
    assert summary.test_accuracy is not None
    assert summary.test_accuracy >= 0.75
    assert len(set(summary.params_sha256 or [])) == 1
    assert summary.bytes_sent is not None
    assert summary.messages_sent is not None
    # A worker: a pull with row numbers and a push with numbers and rows in each step, and a last pull; it sends
    # a report a step, and a message at the end. So its bytes tell how many rows it has pushed and pulled.
    headers = (steps + 1) + steps + steps + 1
    # A worker that waits for longer than HEARTBEAT_S sends a heartbeat.
    heartbeats = [messages - (headers + (steps + 1) + 2 * steps) for messages in summary.messages_sent[2:]]
    assert all(0 <= number <= summary.wall_s / HEARTBEAT_S for number in heartbeats)
    train = text.split(text.load(), 0).train
    samples_sent = summary.samples_per_s * summary.wall_s
    assert samples_sent == pytest.approx(2 * len(train)), "two epochs"
    row = ROW_NUMBER + CLASSES * 4
    payload = sum(summary.bytes_sent[2:]) - HEADER * (workers * headers + sum(heartbeats))
    # A batch touches at most as many rows as its samples have features, and at least those of the longest.
    features = 2 * len(train.indices)
    rows = payload / (ROW_NUMBER + row)
    assert 0.5 * features < rows < features * (1 + 1 / steps)
    # The server sends the rows of each pull.
    assert summary.bytes_sent[1] == pytest.approx(rows * CLASSES * 4, rel=0.1)
    dense = workers * steps * 2 * (1 << 16) * CLASSES * 4
    assert sum(summary.bytes_sent) < dense / 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "text", "--model", "cnn"], "leave out --model"),
        (["--data", "text", "--hidden", "64"], "leave out --hidden"),
        (["--data", "text", "--topk", "0.1"], "leave out --topk"),
        (["--data", "text", "--tree", "2"], "leave out --tree"),
        (["--data", "text", "--loading", "files"], "leave out --loading"),
        (["--data", "text", "--capabilities", "2", "1"], "leave out --capabilities"),
        (["--data", "text", "--transport", "window"], "leave out --transport"),
        (["--data", "text", "--update", "blend"], "--update blend needs whole models"),
        (["--data", "text", "--update", "elastic"], "--update elastic needs whole models"),
        (["--buckets", "1024"], "--buckets is for --data text"),
        (["--shards", "shuffled"], "--shards is for --data text"),
    ],
)
def test_incompatible_options_are_refused_until_the_advice_is_followed(arguments: list[str], message: str) -> None:
    config = parse(Config, arguments)
    check(config)
    with pytest.raises(UsageError, match=message):
        check_workload(config)
    advised = ["--data", "text"] if "text" in arguments else ["--data", "text", *arguments]
    check_workload(parse(Config, advised))
