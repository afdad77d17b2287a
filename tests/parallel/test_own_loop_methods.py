"""A user's own loop under each method: compared with the method in one process, and the effect of a death."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from farandole import Run, UsageError
from farandole.runtime.launcher import run_ranks

STEPS = 12  # 3 epochs of 53 samples, 15 at a time
PARAMETERS = 5 * 7 + 7 + 7 * 2 + 2


def trained(method: str, ranks: int, out: Path, **options: Any) -> tuple[Run, list[dict[str, Any]]]:
    """Return the run, and each living rank's result."""
    program = str(Path(__file__).parent / "programs" / "own_loop_methods.py")
    run_ranks([program, method, json.dumps(options), str(out)], ranks, timeout_s=90)
    run, ends = Run.open(out), found(out)
    if method != "ssp":  # its samples depend on the workers' speed
        assert run.summary.samples_per_s * run.summary.wall_s == pytest.approx(3 * 53), "each once an epoch"
    assert run.summary.test_metrics == {"error": pytest.approx(ends[0]["error"], rel=1e-12)}
    return run, ends


def found(out: Path) -> list[dict[str, Any]]:
    files = sorted(out.glob("rank-*.json"), key=lambda file: int(file.stem.removeprefix("rank-")))
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("ranks", "period", "alpha"), [(1, 5, 0.5), (2, 1, 1.0), (3, 5, 0.5), (4, 4, 1.0), (7, 5, 0.5)]
)
def test_local_sgd_equals_the_loop_in_one_process(ranks: int, period: int, alpha: float, tmp_path: Path) -> None:
    run, ends = trained("local_sgd", ranks, tmp_path / "run", period=period, alpha=alpha)
    assert max(end["apart"] for end in ends) < 1e-12
    assert min(end["moved"] for end in ends) > 1e-2
    assert [end["steps"] for end in ends] == [list(range(STEPS))] * ranks
    averages = STEPS // period + (alpha < 1)
    assert run.summary.messages_sent == [2 * (ranks - 1) * averages] * ranks
    assert sum(run.summary.bytes_sent or []) == 2 * (ranks - 1) * averages * PARAMETERS * 8
    assert len(set(run.summary.params_sha256 or [])) == 1


@pytest.mark.parametrize(("ranks", "period", "momentum"), [(1, 5, 0.9), (2, 4, 0.0), (3, 5, 0.9), (4, 1, 0.9)])
def test_diloco_equals_the_loop_in_one_process(ranks: int, period: int, momentum: float, tmp_path: Path) -> None:
    run, ends = trained("diloco", ranks, tmp_path / "run", period=period, outer_lr=0.7, outer_momentum=momentum)
    assert max(end["apart"] for end in ends) < 1e-12
    assert min(end["moved"] for end in ends) > 1e-2
    outer_steps = -(-STEPS // period)
    assert run.summary.messages_sent == [2 * (ranks - 1) * outer_steps] * ranks
    assert sum(run.summary.bytes_sent or []) == 2 * (ranks - 1) * outer_steps * PARAMETERS * 8
    assert len(set(run.summary.params_sha256 or [])) == 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("ranks", "graph", "every"), [(1, "ring", 1), (2, "ring", 1), (3, "complete", 2), (4, "ring", 1), (7, "torus", 1)]
)
def test_gossip_equals_the_loop_in_one_process(ranks: int, graph: str, every: int, tmp_path: Path) -> None:
    run, ends = trained("dpsgd", ranks, tmp_path / "run", topology=graph, mixing_every=every)
    assert max(end["apart"] for end in ends) < 1e-12
    assert min(end["moved"] for end in ends) > 1e-2
    assert [end["steps"] for end in ends] == [list(range(STEPS))] * ranks
    at_the_end = [line["consensus_error"] for line in run.metrics if "consensus_error" in line][-1]
    assert (at_the_end > 1e-6) == (ranks > 2 and graph != "complete")


@pytest.mark.parametrize(
    ("ranks", "options", "workers"),
    [(2, {"place": "servers=0,workers=1"}, 1), (4, {}, 2), (7, {"servers": 2, "assignment": "hashing"}, 4)],
)
def test_servers_in_rounds_step_as_one_process(
    ranks: int, options: dict[str, Any], workers: int, tmp_path: Path
) -> None:
    run, ends = trained("parameter_server", ranks, tmp_path / "run", sync="bsp", **options)
    assert max(end["apart"] for end in ends) < 1e-12
    assert min(end["moved"] for end in ends) > 1e-2
    assert [end["steps"] for end in ends] == [[]] * (ranks - workers) + [list(range(STEPS))] * workers
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    assert run.summary.steps == STEPS
    assert len(set(run.summary.params_sha256 or [])) == 1


def test_a_stale_server_lets_workers_take_each_others_steps(tmp_path: Path) -> None:
    slow = "rank=2,factor=8"
    run, ends = trained("ssp", 5, tmp_path / "run", staleness=3, slow=slow)
    assert sum(len(end["steps"]) for end in ends) == 3 * STEPS
    assert set(run.summary.lead or {}) <= {"0", "1", "2", "3"}
    assert run.rank_names[0] == "rank 0, manager, cleaner"
    assert run.metrics[-1]["loss"] < run.metrics[0]["loss"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("ranks", "options", "deaths"),
    [
        (1, {}, 0),
        (3, {}, 0),
        (4, {"fail": "rank=1,step=7"}, 1),
        (4, {"fail": "rank=0,step=8"}, 1),
        (7, {"fail": ["rank=0,step=4", "rank=5,step=10"]}, 2),
        (4, {"spares": 1, "fail": "rank=1,step=7"}, 1),
        (4, {"spares": 1, "fail": "rank=3,step=0"}, 0),  # a spare takes no step
    ],
)
def test_the_loop_continues_after_a_death(ranks: int, options: dict[str, Any], deaths: int, tmp_path: Path) -> None:
    run, ends = trained("backup", ranks, tmp_path / "run", backup_every=3, **options)
    assert max(end["apart"] for end in ends) < 1e-12
    for steps in (end["steps"] for end in ends if end["steps"]):
        joined = steps[0] > 0
        back = [step for before, step in pairwise(steps) if step != before + 1]
        assert all(step % 3 == 0 for step in [steps[0], *back]), "to a backup"
        assert len(back) + joined == deaths
        assert steps[-1] == STEPS - 1
    assert len(ends) == ranks - deaths
    assert len(run.summary.faults or []) == deaths
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    assert len(set(run.summary.params_sha256 or [])) == 1


def test_with_a_spare_the_end_is_bitwise_that_of_an_undisturbed_run(tmp_path: Path) -> None:
    program = str(Path(__file__).parent / "programs" / "own_loop_survives.py")
    ends = []
    for name, fail in (("quiet", {}), ("disturbed", {"fail": ["rank=2,step=7", "rank=0,step=15"]})):
        out = tmp_path / name
        run_ranks([program, str(out), json.dumps({"spares": 2, **fail})], 5, timeout_s=90)
        run = Run.open(out)
        of_workers = [end for end in found(out) if end["steps"]]
        ends.append((
            sorted({end["state"] for end in of_workers}), set(run.summary.params_sha256 or []),
            [line["loss"] for line in run.metrics], {line["step"]: line["lr"] for line in run.metrics if "lr" in line},
        ))  # fmt: skip
    (*quiet, rates), (*disturbed, known) = ends
    assert disturbed == quiet
    assert len(quiet[0]) == 1
    assert known.items() <= rates.items(), "a spare that writes knows none of the steps before it"
    assert rates[0] > rates[6] > rates[12]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("sync_sgd", {}),
        ("local_sgd", {"period": 4}),
        ("diloco", {"period": 4, "outer_momentum": 0.5}),
        ("dpsgd", {}),
        ("parameter_server", {"place": "servers=0,workers=1-2", "sync": "bsp"}),
        ("backup", {"fail": "rank=1,step=7"}),
    ],
)
def test_other_types_and_orders_are_trained(method: str, options: dict[str, Any], tmp_path: Path) -> None:
    program = str(Path(__file__).parent / "programs" / "own_loop_types.py")
    run_ranks([program, str(tmp_path / "run"), "bfloat16", method, json.dumps(options)], 3, timeout_s=60)
    run = Run.open(tmp_path / "run")
    assert run.metrics[-1]["loss"] < run.metrics[0]["loss"] / 4
    assert len(set(run.summary.params_sha256 or [])) == 1
    assert len(found(tmp_path / "run")) == 3 - (method == "backup")
    for end in found(tmp_path / "run"):
        assert end == [[3, 4], [True], [0.5], "torch.bfloat16"]


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_stream_is_divided_batch_by_batch(ranks: int, tmp_path: Path) -> None:
    program = str(Path(__file__).parent / "programs" / "own_loop_stream.py")
    run_ranks([program, str(tmp_path / "run"), "7", "6"], ranks, timeout_s=60)
    steps = zip(*found(tmp_path / "run"), strict=True)
    assert [number for parts in steps for part in parts for number in part] == [n % 17 for n in range(6 * 7)]
    assert Run.open(tmp_path / "run").summary.steps == 6


def test_what_does_not_fit_ends_all_ranks_with_one_line(tmp_path: Path) -> None:
    def refused(line: str, method: str, options: dict[str, Any], ranks: int = 2) -> None:
        with pytest.raises(UsageError, match=line):
            trained(method, ranks, tmp_path / "run", **options)

    refused("no method 'bakcup': choose from sync_sgd, ", "bakcup", {})
    refused("too few: a manager, 1 server", "parameter_server", {})
    refused("--spares 2: of 2 rank", "backup", {"spares": 2})
    refused("--graph takes the place", "dpsgd", {"topology": "torus", "graph": "mine.txt"})
