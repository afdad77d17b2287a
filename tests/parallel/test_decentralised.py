"""Decentralised SGD follows its formulas, sends a message per edge, and its limit cases are synchronous SGD."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole import launch
from farandole.decentralised.pairing import partners
from farandole.decentralised.topologies import topology
from farandole.errors import UsageError
from farandole.runtime.record import Run

HIDDEN = 32
PARAMETERS = 64 * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN + HIDDEN * 10 + 10
SCENARIOS = ["dpsgd", "push_sum", "ad_psgd", "choco_sgd", "central_directions"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_step_equals_the_loop_in_one_process(under_mpirun: Callable[..., Any], ranks: int) -> None:
    found = under_mpirun("gossip_steps.py", ranks)
    assert len(found) == 16
    if ranks == 1:
        assert {case["apart"] for case in found.values()} == {0}
        return
    # In 7 steps; the program asserts the numbers of messages and bytes that its ranks send.
    assert found["d-psgd, ring"]["messages"] == [7 * min(2, ranks - 1)] * ranks
    assert found["d-psgd, complete"]["messages"] == [7 * (ranks - 1)] * ranks
    assert found["d-psgd, one-peer-exponential"]["messages"] == [7] * ranks
    assert found["push-sum every 3"]["messages"] == [2] * ranks
    assert found["d-psgd after, complete"]["apart"] < 1e-12, "W = 11ᵀ/P after the update: all are the mean"
    assert found["d-psgd, complete"]["apart"] > 1e-3, "before it, each is its own last gradient away"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("ranks", "graph"), [(1, "ring"), (2, "ring"), (3, "ring"), (4, "complete"), (7, "ring")])
def test_pairwise_averages_preserve_the_sum_with_any_slow_rank(
    under_mpirun: Callable[..., Any], ranks: int, graph: str
) -> None:
    count = 40 * ranks
    found = under_mpirun("gossip_pairs.py", ranks, graph, str(count))
    active = partners(topology(graph, ranks))
    assert sum(own for own, *_ in found["ranks"]) == sum(found["staleness"].values()) == sum(found["lead"].values())
    assert sum(own for own, *_ in found["ranks"]) == count, "nobody's work was lost, or done twice"
    for rank, (own, averages, sent, messages) in enumerate(found["ranks"]):
        assert (messages, sent) == (averages, averages * 8 * found["length"]), "a vector each way for every average"
        assert rank not in active or averages == (own if active[rank] else 0)
    asked = sum(found["ranks"][rank][1] for rank in active)
    assert sum(averages for _, averages, *_ in found["ranks"]) == 2 * asked, "every question was answered"
    if ranks > 1:
        slow = found["ranks"][-1][0]
        assert slow < count / ranks, "a slow rank does less than its share, and is not waited for"
    assert found["apart"] < 1


def run(tmp_path: Path, scenario: str, ranks: int, steps: int, **options: Any) -> Run:
    return launch(scenario, ranks, steps=steps, hidden=HIDDEN, **options, out=tmp_path / scenario)


def losses(run: Run) -> list[float]:
    return [line["loss"] for line in run.metrics]


@pytest.fixture(scope="module")
def synchronous(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """Synchronous SGD on one rank and on three."""
    folder = tmp_path_factory.mktemp("synchronous")
    return {
        ranks: launch("sync_sgd", ranks, steps=steps, hidden=HIDDEN, out=folder / str(ranks))
        for ranks, steps in ((1, 30), (3, 40))
    }


@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("dpsgd", {"topology": "complete", "mix_after_update": True}),
        ("push_sum", {"topology": "complete"}),
        ("central_directions", {"own_weight": 0.0}),
    ],
)
def test_limit_cases_are_synchronous_sgd(
    scenario: str, options: dict[str, Any], synchronous: dict[int, Run], tmp_path: Path
) -> None:
    plain = synchronous[3]
    limit = run(tmp_path, scenario, 3, 40, **options)
    np.testing.assert_allclose(losses(limit), losses(plain), rtol=1e-4)
    errors = [line["consensus_error"] for line in limit.metrics if "consensus_error" in line]
    assert len(errors) == 4
    assert max(errors) < 1e-5
    assert limit.summary.test_accuracy == pytest.approx(plain.summary.test_accuracy, abs=0.01)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_rank_is_one_process(scenario: str, synchronous: dict[int, Run], tmp_path: Path) -> None:
    plain = synchronous[1]
    alone = run(tmp_path, scenario, 1, 30)
    np.testing.assert_allclose(losses(alone), losses(plain), rtol=1e-5)
    same = alone.summary.params_sha256 == plain.summary.params_sha256
    assert same or scenario == "central_directions", "bit by bit, but for a centre's a·g + (1 − a)·g"
    assert alone.summary.bytes_sent == [0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("scenario", "options", "messages"),  # of a rank, in 160 steps
    [
        ("dpsgd", {}, 2 * 160),
        ("dpsgd", {"topology": "exponential", "mixing_every": 4}, 2 * 40),
        ("dpsgd", {"topology": "one-peer-exponential"}, 160),
        ("push_sum", {"topology": "one-peer-exponential"}, 160),
        ("push_sum", {"topology": "one-peer-exponential", "background_metrics": True}, 160),
    ],
)
def test_decentralised_methods_learn_with_one_message_per_edge(
    scenario: str, options: dict[str, Any], messages: int, tmp_path: Path
) -> None:
    found = run(tmp_path, scenario, 4, 160, **options)
    summary = found.summary
    length = PARAMETERS + (scenario == "push_sum")
    average = 2 * 3  # messages of the mean at the end, each a quarter of n
    assert summary.messages_sent == [messages + average] * 4
    assert summary.bytes_sent == [pytest.approx(4 * (messages * length + average / 4 * PARAMETERS), rel=1e-4)] * 4
    assert len(set(summary.params_sha256)) == 1, "what is evaluated is the mean of all"
    assert summary.test_accuracy > 0.8
    assert summary.staleness is summary.lead is None
    errors = {line["step"]: line["consensus_error"] for line in found.metrics if "consensus_error" in line}
    assert list(errors) == list(range(9, 160, 10))
    assert 0 < max(errors.values()) < 10


def test_the_same_seed_gives_the_same_bits(tmp_path: Path) -> None:
    digests = [
        launch("dpsgd", 3, steps=15, hidden=16, out=tmp_path / str(number)).summary.params_sha256[0]
        for number in range(2)
    ]
    assert digests[0] == digests[1]


def test_the_coordinator_exchanges_messages_with_every_rank(tmp_path: Path) -> None:
    found = run(tmp_path, "central_directions", 4, 240)
    assert found.summary.messages_sent == [240 * 3 + 6, *[240 + 6] * 3]
    assert found.summary.test_accuracy > 0.8
    assert found.metrics[-1]["consensus_error"] > 1e-3, "each has gone in a direction of its own"


def test_ad_psgd_does_not_wait_for_a_slow_rank(tmp_path: Path) -> None:
    found = run(tmp_path, "ad_psgd", 4, 240, slow="rank=3,factor=4")
    summary = found.summary
    assert summary.test_accuracy > 0.8
    assert (len(found.metrics), summary.steps) == (240, 240)
    assert [line["step"] for line in found.metrics] == list(range(240))
    assert sum(summary.staleness.values()) == sum(summary.lead.values()) == 240 * 4
    assert max(map(int, summary.lead)) > 5, "the others were ahead of the slow rank"
    average = 2 * 3
    asked = [sent - average for sent in summary.messages_sent]
    assert asked[0] + asked[2] == asked[1] + asked[3], "a question of the even ranks, an answer of the odd ones"
    assert sum(summary.bytes_sent) == pytest.approx(4 * PARAMETERS * (sum(asked) + 4 * average / 4), rel=1e-4)
    assert len(set(summary.params_sha256)) == 1
    errors = [line["consensus_error"] for line in found.metrics if "consensus_error" in line]
    assert len(errors) == 24


def test_a_batch_too_small_for_a_rank_that_runs_ahead_is_refused(tmp_path: Path) -> None:
    """A quick rank may take nearly all iterations, and in its 360th step a batch of 3 has no sample for any of four."""
    with pytest.raises(UsageError, match="--batch 3"):
        run(tmp_path, "ad_psgd", 4, 300, batch=3)


def test_a_graph_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "graph"
    file.write_text("0 1\n1 2  # a line\n")
    found = run(tmp_path, "dpsgd", 3, 20, graph=file)
    assert found.summary.messages_sent == [20 + 4, 40 + 4, 20 + 4]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0 1\n", "has no way from rank 0 to rank 2: add an edge"),
        ("0 > 1\n1 > 2\n2 > 0\n0 > 2\n", "take push-sum, or edges that lead both ways"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "graph"
    file.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        run(tmp_path, "dpsgd", 3, 20, graph=file)


# Options, and the bytes of one payload of all parameters, by hand: QSGD's buckets of 40 with 4 bits an entry.
ENCODED: dict[str, tuple[dict[str, Any], int]] = {
    "float16": ({}, 2 * PARAMETERS),
    "sign": ({}, 4 + -(-PARAMETERS // 8)),
    "top-k": ({"fraction": 0.1}, 8 * -(-PARAMETERS // 10)),
    "random-k": ({"fraction": 0.1}, 4 * -(-PARAMETERS // 10)),
    "qsgd": ({"levels": 7, "bucket": 40}, 4 * -(-PARAMETERS // 40) + PARAMETERS // 2),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ENCODED)
def test_compressed_differences_have_the_formulas_bytes(name: str, tmp_path: Path) -> None:
    options, nbytes = ENCODED[name]
    recipe: dict[str, Any] = {"steps": 10, "hidden": HIDDEN, "mixing_every": 2}
    run = launch("choco_sgd", 4, **recipe, compressor=name, **options, out=tmp_path / "run")
    at_the_end = 6 / 4 * 4 * PARAMETERS  # the average of all copies, by a ring
    assert run.summary.bytes_sent == [pytest.approx(5 * 2 * nbytes + at_the_end, abs=64)] * 4
    figures = run.summary.compression
    assert figures
    assert figures["ring_bytes"] == [5 * 2 * 4 * PARAMETERS] * 4
    assert all(seconds > 0 for name in ("encode_s", "transfer_s", "decode_s") for seconds in figures[name])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["top-k", "random-k"])
def test_the_default_consensus_step_keeps_copies_together_at_high_compression(name: str, tmp_path: Path) -> None:
    recipe: dict[str, Any] = {"steps": 300, "hidden": HIDDEN, "compressor": name, "out": tmp_path / "run"}
    apart = [line["consensus_error"] for line in launch("choco_sgd", 4, **recipe).metrics if "consensus_error" in line]
    assert max(apart[20:]) < 1.5 * max(apart[:20]), "30 exchanges, one every ten steps"


def test_choco_with_half_precision_and_a_whole_step_is_close_to_dpsgd(tmp_path: Path) -> None:
    common: dict[str, Any] = {"steps": 40, "hidden": HIDDEN}
    plain = launch("dpsgd", 3, **common, mix_after_update=True, out=tmp_path / "plain")
    choco = launch("choco_sgd", 3, **common, compressor="float16", consensus_step=1.0, out=tmp_path / "choco")
    apart = [abs(one["loss"] - other["loss"]) for one, other in zip(plain.metrics, choco.metrics, strict=True)]
    assert max(apart) < 5e-3


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("ranks", "topology_name"), [(1, "ring"), (2, "ring"), (4, "ring"), (4, "exponential")])
def test_a_twentieth_of_the_differences_is_enough_to_learn(ranks: int, topology_name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"compressor": "top-k", "fraction": 0.05, "topology": topology_name}
    run = launch("choco_sgd", ranks, steps=80, **options, out=tmp_path / "run")
    assert run.summary.test_accuracy is not None
    assert run.summary.test_accuracy > 0.8
    assert len(set(run.summary.params_sha256 or [])) == 1, "the mean of all copies is what was trained"


def test_compression_with_changing_neighbours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has other neighbours in each round"):
        launch("choco_sgd", 4, steps=4, compressor="sign", topology="one-peer-exponential", out=tmp_path / "run")
