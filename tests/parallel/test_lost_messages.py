"""Messages that are lost, late or duplicated between real ranks: the same training, and its cost is counted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, UsageError, launch
from farandole.runtime.record import Summary

RECIPE: dict[str, Any] = {"steps": 12, "hidden": 16}
ALL_KINDS = ["rank=1,step=2,how=drop,share=0.3", "rank=0,step=1,how=duplicate", "rank=2,step=0,how=delay,delay=0.01"]
# Half of it passes before a message is given up. On a busy machine a rank may begin to wait long before another sends.
WAIT_TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """Synchronous SGD on three ranks."""
    return launch("sync_sgd", 3, **RECIPE, out=tmp_path_factory.mktemp("undisturbed") / "run").summary


def both(folder: Path, scenario: str, ranks: int, fail: list[str], **options: Any) -> tuple[Summary, Summary]:
    """The summaries without and with these faults."""
    return (
        launch(scenario, ranks, **RECIPE | options, out=folder / "plain").summary,
        launch(scenario, ranks, **RECIPE | options, fail=fail, out=folder / "struck").summary,
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("scenario", "ranks", "options"),
    [
        ("sync_sgd", 4, {"collective": "bidirectional-ring"}),  # several messages at a time; the ring is local_sgd's
        ("sync_sgd", 3, {"overlap": True, "bucket_kb": 4}),  # a separate thread and group
        ("local_sgd", 7, {"period": 4}),
        ("dpsgd", 4, {}),
        ("parameter_server", 4, {"sync": "bsp"}),
        ("pipeline", 3, {"schedule": "1f1b", "balance": "layers"}),
    ],
)
def test_lost_messages_leave_the_parameters_bitwise_unchanged(
    scenario: str, ranks: int, options: dict[str, Any], tmp_path: Path
) -> None:
    plain, struck = both(tmp_path, scenario, ranks, ALL_KINDS, **options)
    assert struck.params_sha256 == plain.params_sha256
    assert plain.delivery is None
    assert plain.faults == []
    assert struck.delivery
    assert plain.bytes_sent
    if scenario != "parameter_server":  # its clients also send heartbeats
        repeated = struck.delivery["repeated_bytes"]
        assert struck.bytes_sent == [sent + again for sent, again in zip(plain.bytes_sent, repeated, strict=True)]
    lost, doubled, late = struck.faults
    assert [fault["kind"] for fault in struck.faults] == ["drop", "duplicate", "delay"]
    assert lost["messages"] > 0
    assert doubled["messages"] > 0
    assert late["messages"] > 0
    assert sum(struck.delivery["repeated"]) > 0, "what was lost has been sent again"
    assert sum(struck.delivery["discarded"]) > 0, "and what was doubled was recognised"


def test_an_asynchronous_server_applies_each_gradient_once(tmp_path: Path) -> None:
    options = RECIPE | {"sync": "async", "steps": 20}
    struck = launch("parameter_server", 4, **options, fail=ALL_KINDS, out=tmp_path / "run").summary
    assert struck.steps == 40, "two workers"
    assert struck.staleness
    assert sum(struck.staleness.values()) == 40, "one update per gradient, none lost and none twice"


def test_checksums_find_every_corrupted_message_and_it_is_sent_again(tmp_path: Path) -> None:
    corrupt = ["rank=1,step=2,how=corrupt,share=0.5"]
    plain, struck = both(tmp_path, "sync_sgd", 3, corrupt, checksum=True)
    assert struck.params_sha256 == plain.params_sha256
    assert plain.delivery
    assert plain.delivery["corrupted"] == [0, 0, 0]
    assert struck.delivery
    [fault] = struck.faults
    assert fault["messages"] == sum(struck.delivery["corrupted"]) > 0
    # A busy machine may send more of them again: a message that is not acknowledged in time.
    assert struck.delivery["repeated"][1] >= fault["messages"]


def test_without_checksums_corrupted_gradients_pass_unless_they_are_audited(
    undisturbed: Summary, tmp_path: Path
) -> None:
    """In a ring some corrupted part reaches the other ranks, and one does not come back to its sender."""
    corrupt = ["rank=1,step=4,how=corrupt,share=1,until=5"]
    struck = launch("sync_sgd", 3, **RECIPE, fail=corrupt, out=tmp_path / "struck").summary
    assert struck.params_sha256 != undisturbed.params_sha256
    audited = launch("sync_sgd", 3, **RECIPE, audit=True, out=tmp_path / "audited").summary
    assert audited.params_sha256 == undisturbed.params_sha256
    with pytest.raises(LaunchError, match=r"rank \d at step 4 cannot go on: --audit: .* received another sum of grad"):
        launch("sync_sgd", 3, **RECIPE, fail=corrupt, audit=True, out=tmp_path / "found")


def test_a_partition_that_heals_in_time_costs_only_time(undisturbed: Summary, tmp_path: Path) -> None:
    fail = "rank=2,step=5,how=partition,heals=1"
    struck = launch("sync_sgd", 3, **RECIPE, fail=fail, out=tmp_path / "struck").summary
    assert struck.params_sha256 == undisturbed.params_sha256
    [fault] = struck.faults
    assert (fault["rank"], fault["step"], fault["kind"]) == (2, 5, "partition")
    assert fault["messages"] >= 2, "what rank 2 sends, and what is sent to it"
    assert struck.wall_s > 1


def test_a_partition_that_does_not_heal_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(
        LaunchError, match=r"rank \d at step \d cannot go on: rank \d has acknowledged none of \d+ copies"
    ):
        launch(
            "sync_sgd",
            2,
            **RECIPE,
            fail="rank=1,step=4,how=partition",
            wait_timeout=WAIT_TIMEOUT_S,
            out=tmp_path / "run",
        )


def test_a_link_that_loses_all_messages_ends_the_run_and_both_ranks_are_named(tmp_path: Path) -> None:
    lossy = "rank=1,step=4,how=drop,share=1"
    with pytest.raises(LaunchError) as error:
        launch("sync_sgd", 2, **RECIPE, fail=lossy, wait_timeout=WAIT_TIMEOUT_S, out=tmp_path / "run")
    line = (
        r"rank [01] at step [45] cannot go on: rank [01] has acknowledged none of \d+ copies of a message in 1\d\.\d s"
    )
    assert re.match(line, str(error.value))


@pytest.mark.parametrize(
    ("scenario", "options", "why"),
    [
        ("sync_sgd", {"collective": "mpi"}, "a library sends none of them"),
        ("sync_sgd", {"collective": "shared-memory"}, "shared memory sends none of them"),
        ("sync_sgd", {"collective": "auto"}, "--collective auto"),
        ("ddp_sgd", {}, "a library sends none of them"),
        ("parameter_server", {"transport": "window"}, "--transport window sends none of them"),
        ("membership", {}, "ranks may die here"),
        ("sync_sgd", {"collective": "mpi", "fail": (), "checksum": True}, "--checksum covers only our own messages"),
        ("membership", {"fail": (), "checksum": True}, "--checksum is not supported here, since ranks may die"),
        (
            "sync_sgd",
            {"audit": True, "card_transport": "direct", "fail": ()},
            "--audit reads the gradients in",
        ),
    ],
)
def test_message_loss_is_refused_where_no_retransmission_exists(
    scenario: str, options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    ranks = 3 if scenario == "parameter_server" else 2
    with pytest.raises(UsageError, match=why):
        launch(scenario, ranks, steps=2, out=tmp_path / "run", **{"fail": "rank=1,step=0,how=drop"} | options)
    assert not (tmp_path / "run").exists()
