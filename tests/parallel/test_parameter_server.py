"""The parameter server under mpirun: exact where it must be, and otherwise within its bound."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, UsageError, launch
from farandole.parameter_server.header import FIELDS
from farandole.parameter_server.keys import assign_by_hashing, cut, moves
from farandole.runtime.record import Summary

# 30 steps, float64, sums added in another order.
TOLERANCE = 1e-12

SYNCHRONOUS = ("bsp", "hashing", "window")
IN_TWO_WAYS = ("window, hashing", "range by range", "top-k, all")
POLICIES_AT_THEIR_LIMIT = ("ssp 0", "ssp 0, aware", "half 0", "dssp 0", "partial, all", "history, patient")
RULES = ("momentum", "adagrad", "adam", "staleness-aware", "delay-compensated")


def check(answers: dict[str, dict[str, Any]]) -> None:
    for variant, found in answers.items():
        assert found["difference"] <= TOLERANCE, variant
        assert found["every worker made every step"], variant
        assert found["moved"] > 0.05, "the model was trained at all"
        assert set(found["lead"]) == {"0"}, variant


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 1), (3, 1), (6, 1), (1, 2), (2, 2), (3, 2), (6, 2)])
def test_bsp_equals_the_single_process_at_every_step(
    under_mpirun: Callable[..., Any], workers: int, servers: int
) -> None:
    answers = under_mpirun("ps_equals_single.py", 1 + servers + workers, str(servers), *SYNCHRONOUS)
    check(answers)
    for found in answers.values():
        assert found["updates"] == [30], "one update a step"
        assert found["staleness"] == {"0": 30 * workers}


def test_other_transports_and_assignments_change_nothing(under_mpirun: Callable[..., Any]) -> None:
    check(under_mpirun("ps_equals_single.py", 6, "2", *IN_TWO_WAYS))


def test_policies_at_their_synchronous_limit_equal_bsp(under_mpirun: Callable[..., Any]) -> None:
    """Also under rules with a state, which four small steps in place of one would show."""
    answers = under_mpirun("ps_equals_single.py", 6, "2", *POLICIES_AT_THEIR_LIMIT)
    check(answers)
    for found in answers.values():
        assert found["updates"] == [30], "one update a step"
        assert found["staleness"] == {"0": 30 * 3}


def test_rules_equal_those_of_torch(under_mpirun: Callable[..., Any]) -> None:
    check(under_mpirun("ps_equals_single.py", 4, "1", *RULES))


def test_elastic_averaging_equals_zhangs_formulas(under_mpirun: Callable[..., Any]) -> None:
    """18 iterations of 3 workers in single precision, an exchange after every third."""
    found = under_mpirun("elastic_averaging.py", 5)
    assert found["workers"] < 1e-5
    assert found["centre"] < 1e-5
    assert min(found["moved"], found["spread"]) > 1e-3
    assert found["updates"] == [6]


def test_document_000s_round_costs_twice_and_descends_twice(tmp_path: Path) -> None:
    """It is SGD at twice the rate, to rounding, with twice the messages; at its own rate it differs."""
    options: dict[str, Any] = {"sync": "bsp", "steps": 30}
    twice = launch("parameter_server", 4, **options, update="twice", lr=0.1, out=tmp_path / "twice").summary
    once = launch("parameter_server", 4, **options, lr=0.2, out=tmp_path / "once").summary
    assert twice.final_loss == pytest.approx(once.final_loss, rel=1e-3)
    assert (twice.steps, once.steps) == (60, 30), "how often the table is moved"
    for rank in (1, 2, 3):
        assert twice.bytes_sent is not None
        assert once.bytes_sent is not None
        assert twice.bytes_sent[rank] == pytest.approx(2 * once.bytes_sent[rank], rel=0.04)


def test_a_tree_keeps_the_parameters_and_reduces_the_servers_bytes(
    under_mpirun: Callable[..., Any], tmp_path: Path
) -> None:
    check(under_mpirun("ps_equals_single.py", 8, "1", "tree"))
    flat = launch("parameter_server", 6, sync="bsp", steps=20, out=tmp_path / "flat").summary
    tree = launch("parameter_server", 8, sync="bsp", steps=20, tree=2, out=tmp_path / "tree").summary
    assert flat.bytes_sent is not None
    assert tree.bytes_sent is not None
    assert tree.bytes_sent[1] == pytest.approx(flat.bytes_sent[1] / 2, rel=0.05), "2 aggregators instead of 4 workers"


KEYS = 64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10
ARRAYS = {"momentum": 2, "adam": 3, "adagrad": 2, "delay-compensated": 1}  # the parameters, and the rule's state


def test_a_server_change_leaves_synchronous_parameters_unchanged(under_mpirun: Callable[..., Any]) -> None:
    """Bitwise that of 3 servers all along; only what consistent hashing moves is moved, once, with the rule's state."""
    changing = {
        "1 → 2": ("momentum", [1, 2]),
        "2 → 3": ("adam", [2, 3]),
        "3 → 2": ("adagrad", [3, 2]),
        "4 → 3": ("delay-compensated", [4, 3]),
        "1 → 4 → 2 → 3": ("adam", [1, 4, 2, 3]),
    }
    others = ("ssp 0, 3 → 1", "top-k, all, 2 → 3", "3, adam")
    answers = under_mpirun("ps_equals_single.py", 7, "3", *changing, *others)
    check(answers)
    assert answers["2 → 3"]["sha256"] == answers["3, adam"]["sha256"]
    for name, found in answers.items():
        assert (found["updates"], set(found["staleness"])) == ([30], {"0"}), name
        assert sum(found["staleness"].values()) % 30 == 0, f"{name}: each push counts once"
    for name, (update, servers) in changing.items():
        ranges = cut(KEYS, 40 * servers[0])
        changes = answers[name]["server changes"]
        rings = [list(range(1, 1 + count)) for count in servers]
        assert [change["servers"] for change in changes] == rings[1:], name
        for change, (before, after) in zip(changes, pairwise(rings), strict=True):
            moving = moves(assign_by_hashing(ranges, before), assign_by_hashing(ranges, after))
            keys = sum(len(part) for parts in moving.values() for part in parts)
            assert change["keys"] == keys, name
            assert change["bytes"] == 8 * (ARRAYS[update] * keys + len(FIELDS) * len(moving)), name


def test_a_server_change_in_an_asynchronous_training_loses_nothing(tmp_path: Path) -> None:
    """Every gradient counts once on every server, also with asynchronous workers of unequal speed."""
    changes = ["step=30,servers=3", "step=60,servers=1"]
    summary = launch(
        "parameter_server", 6, servers=2, sync="async", update="momentum", lr=0.01, server_change=changes, steps=200,
        slow="rank=5,factor=3", assignment="hashing", out=tmp_path / "run",
    ).summary  # fmt: skip
    assert summary.steps == 200 * 2
    assert sum((summary.staleness or {}).values()) == 200 * 2
    assert [change["servers"] for change in summary.server_changes] == [[1, 2, 3], [1]]
    assert summary.test_accuracy is not None
    assert summary.test_accuracy >= LEARNED


def test_a_thread_ends_the_training_and_nothing_is_lost(tmp_path: Path) -> None:
    """All workers are informed; each begun gradient is applied once; the thread saw the loss that ended training."""
    summary = launch(
        "parameter_server", 6, servers=2, sync="async", steps=20_000, stop_below=1.0, check_every=0.02,
        out=tmp_path / "run",
    ).summary  # fmt: skip
    assert summary.stopping is not None
    assert summary.stopping["ended"].endswith("is below 1")
    *before, last = [check["loss"] for check in summary.stopping["checks"]]
    assert last < 1.0 <= min(before, default=1.0)
    assert summary.stopping["checks"][-1]["updates"] <= summary.steps < 20_000 * WORKERS
    assert sum((summary.lead or {}).values()) == sum((summary.staleness or {}).values()) == summary.steps
    assert summary.cleaned is not None
    assert summary.cleaned["clients"] == WORKERS + 1, "the thread's client, too, has left"
    assert len(set(summary.params_sha256 or [])) == 1


# Of 180 test samples, after updates whose order is another each time, by workers of which a busy machine may
# starve one: 84 to 98 % have been seen. Guessing gets a tenth.
LEARNED = 0.75

# One worker four times slower; a batch large enough that this shows.
STEPS = 150
WORKERS = 3
STRAGGLER = {"slow": "rank=4,factor=4", "steps": STEPS}


def learned(tmp_path: Path, **options: Any) -> Summary:
    summary = launch("parameter_server", 5, **{**STRAGGLER, **options}, out=tmp_path / "run").summary
    assert summary.test_accuracy is not None
    assert summary.test_accuracy >= LEARNED
    assert summary.staleness is not None
    assert summary.lead is not None
    return summary


def largest(histogram: dict[str, int] | None) -> int:
    assert histogram is not None
    return max(map(int, histogram))


def test_bsp_learns_without_staleness(tmp_path: Path) -> None:
    summary = learned(tmp_path, sync="bsp")
    assert summary.steps == STEPS
    assert summary.lead == {"0": STEPS * WORKERS}
    assert summary.staleness == {"0": STEPS * WORKERS}
    assert summary.bytes_sent is not None
    parameters = 4 * (64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10)
    assert summary.bytes_sent[1] == pytest.approx(WORKERS * STEPS * parameters, rel=0.01), (
        "2Pnβ, half of it from the server"
    )
    assert summary.bytes_sent[2] == pytest.approx(STEPS * parameters, rel=0.01)


@pytest.mark.parametrize("sync", ["ssp", "half"])
def test_ssp_keeps_its_bound(tmp_path: Path, sync: str) -> None:
    summary = learned(tmp_path, sync=sync, staleness=3, longest_wait=0.002)
    assert summary.steps == STEPS * WORKERS, "every gradient is an update"
    assert largest(summary.lead) == 3, "the fast workers are at the bound"
    assert sum(summary.staleness.values()) == STEPS * WORKERS  # type: ignore[union-attr]


def test_async_loses_nothing_and_runs_ahead(tmp_path: Path) -> None:
    summary = learned(tmp_path, sync="async")
    assert summary.steps == STEPS * WORKERS
    assert sum(summary.staleness.values()) == STEPS * WORKERS  # type: ignore[union-attr]
    assert largest(summary.lead) > 8, "nothing holds the fast workers back"
    assert largest(summary.staleness) >= 1


def test_partial_drops_the_late(tmp_path: Path) -> None:
    summary = learned(tmp_path, sync="partial", enough=2)
    assert summary.steps == STEPS
    assert summary.cleaned is not None
    assert summary.cleaned["late pushes"] > 0
    counted = sum(summary.staleness.values())  # type: ignore[union-attr]
    assert counted == 2 * STEPS, "2 of 3 gradients count in each step"


def test_dssp_stays_within_its_bounds(tmp_path: Path) -> None:
    summary = learned(tmp_path, sync="dssp", least_staleness=1, staleness=5)
    assert summary.steps == STEPS * WORKERS
    assert 1 <= largest(summary.lead) <= 5


def test_history_uses_the_slow_workers_last_gradient(tmp_path: Path) -> None:
    summary = learned(tmp_path, sync="history", enough=2, patience=0.0, slow="rank=4,factor=8")
    assert summary.steps == STEPS
    counted = sum(summary.staleness.values())  # type: ignore[union-attr]
    assert 2 * STEPS <= counted < WORKERS * STEPS, "the slow worker has given fewer gradients than there were steps"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "update", ["momentum", "adagrad", "adam", "staleness-aware", "delay-compensated", "blend", "elastic"]
)
def test_every_rule_learns(tmp_path: Path, update: str) -> None:
    lr = {"momentum": 0.05, "adagrad": 0.03, "adam": 0.003}.get(update, 0.3)
    options = {"sync": "async", "update": update, "lr": lr, "steps": STEPS}
    summary = launch("parameter_server", 4, **options, out=tmp_path / "run").summary
    assert summary.test_accuracy is not None
    assert summary.test_accuracy >= LEARNED


def test_top_k_sends_less_and_learns(tmp_path: Path) -> None:
    summary = launch("parameter_server", 4, sync="bsp", topk=0.02, steps=200, out=tmp_path / "run").summary
    assert summary.test_accuracy is not None
    assert summary.test_accuracy >= LEARNED
    assert summary.bytes_sent is not None
    entries = round(0.02 * 26122)
    assert summary.bytes_sent[2] == pytest.approx(200 * (entries * 8 + 3 * 8 * len(FIELDS)), rel=0.02), (
        "4 + 4 bytes an entry"
    )
    figures = summary.compression
    assert figures
    assert figures["ring_bytes"] == [0, 0, 200 * 4 * 26122, 200 * 4 * 26122]
    assert [seconds > 0 for seconds in figures["encode_s"]] == [False, False, True, True]
    assert figures["decode_s"] == [0] * 4, "a server applies keys and values as they are"
    assert all(seconds > 0 for seconds in figures["transfer_s"][1:])


# Bytes of a server's part with that many entries, by hand.
ENCODED: dict[str, Callable[[int], int]] = {
    "float16": lambda entries: 2 * entries,
    "bfloat16": lambda entries: 2 * entries,
    "qsgd": lambda entries: 4 * -(-entries // 512) + -(-entries // 2),
    "terngrad": lambda entries: 4 * -(-entries // 512) + -(-entries // 4),
    "sign": lambda entries: 4 + -(-entries // 8),
    "random-k": lambda entries: 8 + 4 * 1306,
}
TENTH = {"fraction": 0.1}
ENCODED_STEPS = 100


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ENCODED)
def test_compressed_pushes_have_the_formulas_bytes_and_learn(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"sync": "bsp", "servers": 2, "steps": ENCODED_STEPS, "compressor": name}
    options |= TENTH if name == "random-k" else {}
    run = launch("parameter_server", 5, **options, out=tmp_path / "run")
    summary = run.summary
    assert summary.test_accuracy is not None
    assert summary.test_accuracy >= LEARNED
    pushed = ENCODED_STEPS * sum(ENCODED[name](entries) for entries in (13061, 13061))
    assert summary.bytes_sent is not None
    for worker in (3, 4):  # and headers: of a pull and of a push to each server, of a report
        assert summary.bytes_sent[worker] == pytest.approx(pushed + ENCODED_STEPS * 5 * 8 * len(FIELDS), rel=0.03)
    figures = summary.compression
    assert figures
    assert figures["ring_bytes"] == [0, 0, 0, *[ENCODED_STEPS * 4 * 26122] * 2]
    assert [seconds > 0 for seconds in figures["encode_s"]] == [False, False, False, True, True]
    assert [seconds > 0 for seconds in figures["decode_s"]] == [False, True, True, False, False]
    assert all(seconds > 0 for seconds in figures["transfer_s"][1:])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sync", ["ssp", "async", "partial"])
@pytest.mark.parametrize("encoder", [{"compressor": "sign"}, {"compressor": "random-k", **TENTH}])
def test_every_worker_keeps_its_compression_error(sync: str, encoder: dict[str, Any], tmp_path: Path) -> None:
    options: dict[str, Any] = {"sync": sync, "steps": ENCODED_STEPS, **encoder}
    summary = launch("parameter_server", 4, **options, out=tmp_path / "run").summary
    assert summary.test_accuracy is not None
    assert summary.test_accuracy >= LEARNED


def test_two_servers_decode_alike_so_one_may_die(tmp_path: Path) -> None:
    options: dict[str, Any] = {"sync": "bsp", "steps": 60, "compressor": "qsgd", "servers": 2}
    whole = launch("parameter_server", 5, **options, out=tmp_path / "whole").summary
    options |= {"replicas": 2, "fail": "rank=1,step=20"}
    orphaned = launch("parameter_server", 5, **options, out=tmp_path / "orphaned").summary
    assert [fault["rank"] for fault in orphaned.faults] == [1]
    assert set(orphaned.params_sha256 or []) == set(whole.params_sha256 or [])


def test_two_applications_share_the_servers(tmp_path: Path) -> None:
    options = {"applications": 2, "sync": "ssp", "servers": 2, "steps": 200, "batch": 32}
    summary = launch("parameter_server", 7, **options, out=tmp_path / "run").summary
    assert summary.test_accuracy is not None
    assert summary.test_accuracy >= LEARNED, "the worse of the two"
    assert summary.params_sha256 is not None
    workers = summary.params_sha256[3:]
    assert workers[0] == workers[1] != workers[2] == workers[3]


@pytest.mark.parametrize(
    ("ranks", "options", "message"),
    [
        (2, {}, "2 rank(s) are too few: a manager, 1 server(s) and at least 1 worker need 3"),
        (4, {"sync": "partial", "enough": 3}, "--enough 3: a step has at most 2 gradients"),
        (
            4,
            {"sync": "half", "longest_wait": 30},
            "--longest-wait 30: a worker that pauses so long is declared dead by --hang-after 20",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(
    tmp_path: Path, ranks: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        launch("parameter_server", ranks, **options, steps=2, out=tmp_path / "run")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_roles_may_share_a_rank(tmp_path: Path) -> None:
    place = "servers=0+2,cleaner=2,workers=1"
    summary = launch("parameter_server", 3, sync="bsp", steps=10, place=place, out=tmp_path / "run").summary
    assert summary.steps == 10
    assert summary.cleaned is not None
    assert summary.cleaned["clients"] == 1


def test_a_hung_worker_is_named(tmp_path: Path) -> None:
    """With shared memory there are no heartbeats, because no rank could continue without another."""
    options = {"sync": "ssp", "transport": "window", "fail": "rank=3,step=5,how=hang", "wait_timeout": 4}
    with pytest.raises(LaunchError, match="rank 3 at step 5"):
        launch("parameter_server", 4, **options, timeout_s=60, out=tmp_path / "run")


def test_a_hang_time_out_beyond_the_wait_time_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--hang-after 20: a waiting rank gives up after --wait-timeout 15; give less"):
        launch("parameter_server", 3, wait_timeout=15, out=tmp_path / "run")


def test_a_silent_worker_is_cleaned_away_and_the_others_continue(under_mpirun: Callable[..., Any]) -> None:
    answer = under_mpirun("ps_silent_worker.py", 5)
    assert answer["dead"] == [4]
    assert answer["noted"].startswith("farandole: rank 4 sent nothing for 1 s (--hang-after)")
    assert answer["others went on"]
    assert answer["every other gradient was applied"]
    assert answer["its late push was dropped"]
    assert answer["cleaned"]["clients"] == 3
    assert answer["cleaned"]["pushes"] == 1, "one range of a gradient, the rest of which never came"
    assert answer["cleaned"]["late pushes"] == 1, "what it pushed after it had been cleaned away"
    assert answer["its pull was answered with FINISHED"]
    assert answer["its push after the end was not sent"]


def test_pushes_and_pulls_keep_their_promises(under_mpirun: Callable[..., Any]) -> None:
    answer = under_mpirun("ps_promises.py", 5)
    assert answer["pushes"] == 6
    assert answer["a duplicate is applied once"]
    assert answer["a pull after the acknowledgement sees the push"]
    assert answer["calls return before the answers come"]
