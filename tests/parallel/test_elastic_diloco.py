"""DiLoCo whose ranks die: step by step the training that one process computes with the same deaths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from farandole import LaunchError, UsageError, launch, tasks
from farandole.data.elastic_sampler import ElasticSampler, divide
from farandole.data.shares import equal_shares
from farandole.data_parallel.outer_step import Outer
from farandole.runtime import devices
from farandole.runtime.buffers import FlatBuffers
from farandole.scenarios.elastic_diloco import Config

STEPS, PERIOD, BATCH, LR = 23, 5, 60, 0.2
OUTER = Outer(PERIOD, lr=0.7, momentum=0.9)
RECIPE: dict[str, Any] = {
    "steps": STEPS, "period": PERIOD, "batch": BATCH, "optimizer": "sgd", "lr": LR, "dropout": 0.0, "hidden": 16,
}  # fmt: skip


def computed(workers: int, dead: int = -1, dies_at: int = STEPS, spare: bool = False) -> list[float]:
    """Return the loss of every step, computed by one process: plain SGD for each worker, and numpy for the outer step.

    Args:
        dead: the slot of the worker that dies as step `dies_at` begins.
        spare: a spare takes its slot from the next round on.
    """
    devices.seed_everything(0)
    task = tasks.of(Config(**RECIPE))
    model = task.model()
    flat = FlatBuffers(model)
    common, velocity = flat.values_np.copy(), 0 * flat.values_np
    train = task.data(0).train
    reader = train.on(torch.device("cpu"))
    sampler = ElasticSampler(equal_shares(len(train), workers), BATCH, 0)
    own = {slot: common.copy() for slot in range(workers)}
    shares: dict[int, list[float]] = {slot: [] for slot in own}
    losses: list[float] = []
    noted: list[dict[int, tuple[float, float]]] = []  # of this round's steps: slot → mean loss, share
    for step in range(STEPS):
        if step == dies_at:
            del own[dead], shares[dead]
        parts = divide(next(sampler), workers)
        whole = sum(map(len, parts))
        noted.append({})
        for slot, values in own.items():
            share = len(parts[slot]) / whole
            flat.values_np[:] = values
            flat.zero_gradients()
            mean = task.loss(model, reader[parts[slot]])
            mean.backward()
            own[slot] = values - LR * flat.gradients_np
            shares[slot].append(share)
            noted[-1][slot] = mean.item(), share
        if (step + 1) % PERIOD == 0 or step + 1 == STEPS:  # a dead worker's losses have not reached the others
            for each in ([line[slot] for slot in own] for line in noted):
                losses.append(sum(mean * share for mean, share in each) / sum(share for _, share in each))
            noted = []
            weights = {slot: sum(each) / len(each) for slot, each in shares.items()}
            moved = sum(weight * (common - own[slot]) for slot, weight in weights.items()) / sum(weights.values())
            OUTER.move(common, velocity, moved)
            workers = workers if spare else len(own)
            own = {slot: common.copy() for slot in range(workers)}
            shares = {slot: [] for slot in own}
    return losses


@pytest.mark.parametrize("ranks", [1, 4, 3])
@pytest.mark.one_in(2)
def test_undisturbed_it_is_diloco(ranks: int, tmp_path: Path) -> None:
    run = launch("elastic_diloco", ranks, **RECIPE, out=tmp_path / "run")
    assert [line["loss"] for line in run.metrics] == pytest.approx(computed(ranks), rel=1e-4)
    assert len(set(run.summary.params_sha256)) == 1
    rounds, numbers = -(-STEPS // PERIOD), 64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10 + 1
    if ranks > 1:  # a ring of all parameters, and of one share
        assert sum(run.summary.bytes_sent) == rounds * 2 * (ranks - 1) * numbers * 4


@pytest.mark.parametrize("spares", [0, 1])
def test_who_dies_is_missing_from_the_round_and_nothing_else_is_lost(spares: int, tmp_path: Path) -> None:
    """Rank 1 dies in the third round after two local steps; the others keep all of theirs."""
    run = launch("elastic_diloco", 3 + spares, **RECIPE, spares=spares, fail="rank=1,step=12", out=tmp_path / "run")
    assert [line["loss"] for line in run.metrics] == pytest.approx(
        computed(3, dead=1, dies_at=12, spare=bool(spares)), rel=1e-4
    )
    assert [fault["rank"] for fault in run.summary.faults] == [1]
    assert len(set(run.summary.params_sha256)) == 1
    assert run.summary.steps == STEPS


def test_who_has_the_result_sends_it_to_who_was_interrupted(under_mpirun: Any) -> None:
    """One of three workers has taken the outer step and four more; one has not; one is new."""
    answer = under_mpirun("elastic_diloco_restore.py", 3)
    assert answer.pop("statistics") == [0.0, 1.0, 0.0], "the new one has those of the one that is ahead"
    assert answer == {
        "step": [10] * 3, "moved": [10] * 3, "outer_steps": [2] * 3, "common": [7.0] * 3, "values": [7.0] * 3,
        "velocity": [3.0] * 3,
    }  # fmt: skip


def test_the_rank_that_leads_may_die_in_the_last_round(tmp_path: Path) -> None:
    run = launch("elastic_diloco", 3, **RECIPE, fail="rank=0,step=22", out=tmp_path / "run")
    assert run.summary.members == [1, 2]
    assert run.metrics[-1]["step"] == STEPS - 1


def test_sixteen_bits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--precision bfloat16"):
        launch("elastic_diloco", 2, **RECIPE, precision="bfloat16", out=tmp_path / "run")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_under_random_kills_it_ends_in_step(seed: int, tmp_path: Path) -> None:
    """Four ranks, of which one dies every two seconds; each is replaced, unless the training is over before."""
    options = {**RECIPE, "steps": 600, "spawn": 50, "chaos": f"mtbf=2s,seed={seed}"}
    try:
        run = launch("elastic_diloco", 4, **options, out=tmp_path / "run", timeout_s=200)
    except LaunchError as error:
        if re.search("every worker has died|all ranks have died", str(error)):
            return
        raise
    assert run.metrics[-1]["step"] == 599
    assert len(set(run.summary.params_sha256)) == 1
