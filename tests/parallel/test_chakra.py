"""The trace has what real ranks communicate, to the byte, and the exported traces can be replayed to their end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import Run
from farandole.report import chakra
from tests.chakra_replay import COLLECTIVE, COMPUTE, RECEIVE, SEND, Read, replay

STEPS, RANKS = 2, 4
MODEL = 64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10  # parameters of the digits' model with --hidden 16
# A training, and the types of its communicating nodes.
TRAININGS = {
    "sync_sgd": {COLLECTIVE},
    "sync_sgd --overlap --bucket-kb 4": {COLLECTIVE},
    "sync_sgd --collective shared-memory": {COLLECTIVE},
    "sharded --stage 3": {COLLECTIVE},
    "dpsgd": {SEND, RECEIVE, COLLECTIVE},
    "dpsgd --checksum": {SEND, RECEIVE, COLLECTIVE},
    "ad_psgd": {SEND, RECEIVE, COLLECTIVE},
    "pipeline --balance layers": {SEND, RECEIVE},
    "parameter_server --sync ssp": {SEND, RECEIVE},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """All trainings, in one launch."""
    from farandole.runtime.launcher import run_ranks

    folder = tmp_path_factory.mktemp("runs")
    program = Path(__file__).parent / "programs" / "trainings_in_folders.py"
    small = f"--steps {STEPS} --hidden 16"
    run_ranks([str(program), str(folder), *(f"{each} {small}" for each in TRAININGS)], RANKS, timeout_s=300)
    return {training: Run.open(folder / str(number)) for number, training in enumerate(TRAININGS)}


@pytest.fixture(scope="module")
def replayed(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[list[Read]]]:
    folder = tmp_path_factory.mktemp("traces")

    def nodes(training: str) -> list[list[Read]]:
        into = folder / str(list(TRAININGS).index(training))
        if not into.exists():
            chakra.export(runs[training], into)
        return replay(into)

    return nodes


def operations(run: Run, rank: int) -> list[dict[str, Any]]:
    return [event["args"] for event in run.messages if event["pid"] == rank]


@pytest.mark.parametrize("training", TRAININGS)
def test_the_bytes_of_the_trace_are_those_of_the_record(training: str, runs: dict[str, Run]) -> None:
    run = runs[training]
    sent = [
        sum(each["bytes"] for each in operations(run, rank) if each["operation"] != "receive") for rank in range(RANKS)
    ]
    again = (run.summary.delivery or {}).get("repeated_bytes", [0] * RANKS)  # a busy machine may send one again
    assert run.summary.bytes_sent == [*map(sum, zip(sent, again, strict=True))]
    assert sum(sent) > 0 or "shared-memory" in training


@pytest.mark.parametrize("training", TRAININGS)
def test_a_replay_reaches_the_end_and_carries_the_same_bytes(
    training: str, runs: dict[str, Run], replayed: Callable[[str], list[list[Read]]]
) -> None:
    ranks, run = replayed(training), runs[training]
    assert {node.type for nodes in ranks for node in nodes} == {COMPUTE, *TRAININGS[training]}
    for rank, nodes in enumerate(ranks):
        computed = sum(node.duration_us for node in nodes if node.type == COMPUTE) / 1e6
        assert computed == pytest.approx(run.summary.compute_s[rank], abs=2e-6 * len(nodes))
        messages = [node.about["comm_size"] for node in nodes if node.type == SEND]
        sent = [each for each in operations(run, rank) if each["operation"] == "send" and each["peer"] != rank]
        assert sum(messages) == sum(each["bytes"] for each in sent)


def test_a_ring_is_an_all_reduce_of_the_model_between_backward_and_update(
    replayed: Callable[[str], list[list[Read]]],
) -> None:
    for nodes in replayed("sync_sgd"):
        assert [node.name for node in nodes] == ["forward and backward", "all-reduce", "update"] * STEPS
        assert [node.after for node in nodes] == [(), *((before,) for before in range(3 * STEPS - 1))]
        assert [node.about["comm_size"] for node in nodes if node.type == COLLECTIVE] == [4 * MODEL] * STEPS


def test_overlapped_buckets_are_a_chain_beside_backward_and_add_up_to_the_model(
    replayed: Callable[[str], list[list[Read]]],
) -> None:
    for nodes in replayed("sync_sgd --overlap --bucket-kb 4"):
        updates = [node for node in nodes if node.name == "update"]
        assert len(updates) == STEPS
        buckets = [node for node in nodes if node.type == COLLECTIVE]
        assert sum(node.about["comm_size"] for node in buckets) == 4 * MODEL * STEPS
        assert updates[0].after[-1] == buckets[len(buckets) // STEPS - 1].id, "it waits for the last bucket"
        assert any(nodes[place].name == "forward and backward" for place in buckets[0].after)


def test_a_forward_pass_waits_for_the_activation_of_the_stage_before(
    replayed: Callable[[str], list[list[Read]]],
) -> None:
    ranks = replayed("pipeline --balance layers")
    for rank, nodes in enumerate(ranks):
        for forward in (node for node in nodes if node.name.startswith("forward")):
            before = [nodes[place] for place in forward.after]
            if rank:
                assert [(node.type, node.about["comm_src"]) for node in before] == [(RECEIVE, rank - 1)]


def test_a_workers_gradient_goes_to_a_server_after_backward(
    replayed: Callable[[str], list[list[Read]]], runs: dict[str, Run]
) -> None:
    ranks = replayed("parameter_server --sync ssp")
    worker = next(rank for rank, name in enumerate(runs["parameter_server --sync ssp"].rank_names) if "worker" in name)
    pushes = [node for node in ranks[worker] if node.type == SEND and node.about["comm_size"] > 1000]
    assert pushes
    for push in pushes:
        assert any(ranks[worker][place].name == "forward and backward" for place in push.after)
