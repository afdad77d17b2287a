"""Which rank gets which card: a pure function of what all ranks report."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.sparse_options import HybridOptions, TextOptions
from farandole.recovery.options import MembershipOptions, PipelineBackupOptions
from farandole.runtime.cards import detection, marks, near_cores, rank_device
from farandole.runtime.cards.assignment import Card, Report, assign, requested
from farandole.runtime.cards.marks import take_free
from farandole.runtime.cards.rank_device import free
from farandole.runtime.options import RunOptions
from farandole.scenarios.online import Config as Online

TWO = [Card("a"), Card("b")]


def test_ranks_of_a_host_get_a_card_each_and_hosts_are_apart() -> None:
    reports = [Report(host, True, cards=TWO) for host in (0, 0, 2, 2)]
    assert assign(reports, share=False).numbers == [0, 1, 0, 1]
    interleaved = [Report(host, True, cards=TWO) for host in (0, 1, 0, 1)]  # mpirun --map-by node
    assert assign(interleaved, share=False).numbers == [0, 0, 1, 1]


def test_a_card_that_slurm_shows_one_task_only_is_that_tasks() -> None:
    """Each card is number 0 in its task: by numbers, all ranks would share one card."""
    reports = [Report(0, True, cards=[Card(name)], requested="CUDA_VISIBLE_DEVICES=0") for name in ("a", "b", "MIG-c")]
    assert assign(reports, share=False).numbers == [0, 0, 0]


def test_a_rank_that_computes_nothing_takes_no_card() -> None:
    reports = [Report(0, False, cards=TWO), Report(0, True, cards=TWO), Report(0, False), Report(0, True, cards=TWO)]
    assert assign(reports, share=False).numbers == [None, 0, None, 1]


@pytest.mark.parametrize("by", [{"required": True}, {"requested": "SLURM_JOB_GPUS=0,1"}])
def test_two_ranks_on_a_card_that_was_requested_are_refused(by: dict[str, object]) -> None:
    reports = [Report(0, True, cards=TWO, **by) for _ in range(3)]  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^3 ranks of a host would compute on 2 cards \(.*--share-cards$"):
        assign(reports, share=False)
    assert assign(reports, share=True).numbers == [0, 1, 0]


def test_where_nobody_requested_cards_too_many_ranks_compute_on_the_cpu_and_it_is_said() -> None:
    reports = [Report(0, True, cards=[Card("a")]) for _ in range(4)]
    assigned = assign(reports, share=False)
    assert assigned.numbers == [None] * 4
    assert assigned.note.startswith("4 ranks of a host would compute on 1 card, so all ranks compute on the CPU")
    assert not assign(reports, share=True).note


def test_cards_that_cannot_be_used_are_named_or_refused() -> None:
    why = "there are cards (CUDA_VISIBLE_DEVICES=0), but torch 2 is built for the CPU only"
    assert assign([Report(0, False), Report(0, True, unusable=why)], share=False).note == (
        f"all ranks compute on the CPU: {why}"
    )
    mixed = [Report(0, True, unusable=why), Report(1, True, cards=TWO)]
    assert assign(mixed, share=False).note == f"1 of 2 ranks compute on the CPU: {why}"
    with pytest.raises(UsageError, match=r"^--device cuda: there are cards .*; use --device cpu$"):
        assign([Report(0, True, required=True, unusable=why)], share=False)
    with pytest.raises(UsageError, match=r"^--device cuda: no CUDA device is usable here; use --device cpu$"):
        assign([Report(0, True, required=True)], share=False)
    assert assign([Report(0, True)], share=False).note == "", "a machine without cards"
    apart = [Report(0, True), Report(1, True, cards=TWO), Report(1, True, cards=TWO)]
    assert assign(apart, share=False).note == "1 of 3 ranks compute on the CPU: their hosts have no card"


def test_a_report_survives_the_way_to_the_other_ranks() -> None:
    own = Report(3, True, True, [Card("a", "0-3")], "SLURM_JOB_GPUS=0", "")
    assert Report.from_dict(own.to_dict()) == own


@pytest.mark.parametrize(
    ("environ", "by"),
    [
        ({}, ""),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "CUDA_VISIBLE_DEVICES=0"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1", "SLURM_JOB_GPUS": "0"}, "CUDA_VISIBLE_DEVICES=MIG-1"),
        ({"CUDA_VISIBLE_DEVICES": "", "SLURM_JOB_GPUS": "0"}, ""),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, ""),
        ({"SLURM_JOB_GPUS": "0"}, "SLURM_JOB_GPUS=0"),
        ({"SLURM_GPUS_ON_NODE": "0"}, ""),
        ({"SLURM_GPUS_ON_NODE": "4"}, "SLURM_GPUS_ON_NODE=4"),
    ],
)
def test_whether_cards_were_requested(environ: dict[str, str], by: str) -> None:
    assert requested(environ) == by


# --- which ranks compute -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "ranks", "computing"),
    [
        (RunOptions(), 3, [0, 1, 2]),
        (MembershipOptions(spares=1), 3, [0, 1, 2]),
        (PolicyOptions(servers=2), 5, [3, 4]),
        (PolicyOptions(place="servers=0+3,workers=1-2"), 4, [1, 2]),
        (PolicyOptions(tree=2), 6, [4, 5]),
        (Online(readers=1), 4, [2, 3]),
        (TextOptions(data="text"), 3, []),
        (HybridOptions(), 3, []),
    ],
)
def test_managers_servers_and_aggregators_compute_nothing(
    options: RunOptions, ranks: int, computing: list[int]
) -> None:
    assert [rank for rank in range(ranks) if options.computes(rank, ranks)] == computing


def test_which_trainings_outlive_their_ranks() -> None:
    assert MembershipOptions().outlives
    assert PolicyOptions().outlives
    assert PipelineBackupOptions(spares=1).outlives
    assert not PipelineBackupOptions().outlives
    assert not HybridOptions().outlives
    assert not RunOptions().outlives


# --- processes that join later -----------------------------------------------------------------------------


def test_a_newcomer_takes_the_card_of_the_dead_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    three = [Card("a"), Card("b"), Card("c")]
    monkeypatch.setattr(marks, "_held", [])
    scope = f"test-{os.getpid()}"
    assert [take_free(scope, three, share=False) for _ in range(4)] == [0, 1, 2, None]
    marks._held.pop(1).close()  # as the kernel does when the process dies
    assert take_free(scope, three, share=False) == 1
    assert take_free(scope, three, share=True) == 0, "shared: the least used"
    assert take_free(f"{scope}-other", three, share=False) == 0, "another job's cards do not count"
    for mark in marks._held:
        mark.close()


def test_workers_that_start_by_themselves_are_all_on_cards_or_all_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elastic Horovod's processes: none knows whether it is the last. A process that joins alone gets the reason."""
    monkeypatch.setattr(marks, "_held", [])
    monkeypatch.setattr(detection, "usable_cards", lambda wanted, requested: (TWO, ""))
    monkeypatch.setattr(rank_device, "requested", lambda environ: "")
    scope = f"test-{os.getpid()}"
    three = [free(RunOptions(), scope, mates=3, at_once=3) for _ in range(3)]
    assert [each.card for each in three] == [None] * 3
    assert three[0].note.startswith("3 ranks of a host would compute on 2 cards, so all ranks compute on the CPU")
    with pytest.raises(UsageError, match=r"^3 ranks of a host .* \(--device cuda\): start one per card"):
        free(RunOptions(device="cuda"), scope, mates=3, at_once=3)
    assert [free(RunOptions(), scope, mates=2, at_once=2).card for _ in range(2)] == TWO
    late = free(RunOptions(), scope, mates=2)
    assert late.card is None
    assert late.note.startswith("all cards of this host (2) are taken, so a process computes on the CPU")
    with pytest.raises(UsageError, match=r"^all cards of this host \(2\) are taken: --share-cards"):
        free(RunOptions(device="cuda"), scope, mates=2)
    assert free(RunOptions(share_cards=True), scope, mates=2).card == TWO[0]
    for mark in marks._held:
        mark.close()


# --- cores near a card -------------------------------------------------------------------------------------


def test_lists_of_cores_are_read_and_written() -> None:
    assert near_cores.numbers("0-3,8") == {0, 1, 2, 3, 8}
    assert near_cores.as_text({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11"
    assert near_cores.as_text(near_cores.numbers("")) == ""


def test_a_rank_stays_on_those_of_its_cores_that_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 5, 6, 7}, raising=False)
    moved: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, to: moved.append(to), raising=False)
    own = near_cores.allowed_cores()
    for near in ("6-15", "", "0-3", "0-15"):
        near_cores.bind(near_cores.best_cores(own, near))
    assert near_cores.best_cores(own, "6-15") == "6-7"
    assert moved == [{6, 7}], "it stays where it is, if it may use none of the near ones"


@pytest.mark.parametrize("text", ["", "ffff", "0-", "0-3\n4"])
def test_a_list_of_another_form_is_no_list(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "bus/pci/devices/0000:17:00.0"
    place.mkdir(parents=True)
    (place / "local_cpulist").write_text(text)
    monkeypatch.setattr(near_cores, "SYS", tmp_path)
    assert near_cores.near_cores("0000:17:00.0") == near_cores.near_cores("0000:99:00.0") == ""
