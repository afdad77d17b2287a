"""Chakra traces of records made by hand: each node's fields and dependencies, and which records are refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from farandole.cli import main
from farandole.report import chakra
from farandole.runtime.record import Run, Summary
from farandole.runtime.trace import Span, chrome_trace
from farandole.runtime.traffic import Operation
from tests.chakra_replay import COLLECTIVE, COMPUTE, RECEIVE, SEND, Read, load, read, replay

ALL, ODD = ((0, 1), 0), ((1, 3), 0)
MS = 1e-3


def recorded(
    folder: Path,
    spans: Sequence[Span],
    operations: Sequence[Operation],
    members: Sequence[int] = (0, 1),
    bytes_sent: list[int] | None = None,
) -> Run:
    folder.mkdir(exist_ok=True)
    nothing = [0.0] * len(members)
    summary = Summary(
        scenario="sync_sgd", ranks=len(members), members=list(members), seed=0, device="cpu", wall_s=1.0, steps=1,
        samples_per_s=1.0, final_loss=None, test_accuracy=None, bytes_sent=bytes_sent, messages_sent=None,
        compute_s=nothing, comm_s=nothing, wait_s=nothing, staleness=None, lead=None, cleaned=None, memory=None,
        params_sha256=None, faults=[], versions={},
    )  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(asdict(summary)))
    (folder / "trace.json").write_text(json.dumps(chrome_trace(spans, members, operations=operations)))
    return Run(folder)


def computed(rank: int, name: str, start: float, end: float, depth: int = 0) -> Span:
    return Span(rank, name, "compute", start * MS, end * MS, depth=depth)


def waited(rank: int, name: str, start: float, end: float) -> Span:
    return Span(rank, name, "wait", start * MS, end * MS)


def message(kind: str, rank: int, peer: int, at: float, nbytes: int, place: int = 0, thread: int = 0) -> Operation:
    return Operation(rank, kind, at * MS, at * MS, nbytes, 0, ALL, peer, 0, place, thread)


def collective(rank: int, start: float, end: float, size: int, group: Any = ALL, thread: int = 0) -> Operation:
    return Operation(rank, "all-reduce", start * MS, end * MS, size, size, group, thread=thread)


def exported(run: Run, folder: Path) -> list[list[Read]]:
    """Return each rank's nodes, after a replay to their end."""
    chakra.export(run, folder)
    replay(folder, one_at_a_time=True)
    return replay(folder)


def names(nodes: Sequence[Read], of: Read) -> set[str]:
    """Return what a node waits for."""
    return {nodes[place].name for place in of.after}


def test_computations_messages_and_collectives_are_nodes_of_the_schema(tmp_path: Path) -> None:
    spans = [computed(0, "forward", 0, 1.5), computed(1, "forward", 0.25, 3), waited(0, "all-reduce", 1.5, 3)]
    operations = [
        collective(0, 1.5, 4, 4096),
        message("send", 0, 1, 5, 300),
        collective(1, 3, 4, 4096),
        message("receive", 1, 0, 5.5, 300),
    ]
    first, second = exported(recorded(tmp_path / "run", spans, operations), tmp_path / "et")
    no_cpu = {"is_cpu_op": False}
    assert first == [
        Read(0, "forward", COMPUTE, (), 1500, no_cpu),
        Read(1, "all-reduce", COLLECTIVE, (0,), 0, no_cpu | {"comm_type": 0, "comm_size": 4096}),
        Read(2, "send to 1", SEND, (1,), 0, no_cpu | {"comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 300}),
    ]
    assert [(node.type, node.after, node.duration_us) for node in second] == [
        (COMPUTE, (), 2750), (COLLECTIVE, (0,), 0), (RECEIVE, (1,), 0)
    ]  # fmt: skip
    assert second[2].about == first[2].about
    assert sorted(file.name for file in (tmp_path / "et").iterdir()) == ["sync_sgd.0.et", "sync_sgd.1.et"]


def test_a_bucket_leaves_in_the_middle_of_backward_and_the_update_waits_for_it(tmp_path: Path) -> None:
    spans, operations = [], []
    for rank in range(2):
        spans += [
            computed(rank, "backward", 0, 10),
            waited(rank, "all-reduce", 10, 12),
            computed(rank, "update", 12, 13),
        ]
        spans.append(computed(rank, "forward", 13, 14))
        operations += [collective(rank, 4, 7, 100, thread=1), collective(rank, 9, 12, 200, thread=1)]
    nodes, _ = exported(recorded(tmp_path / "run", spans, operations), tmp_path / "et")
    parts = [node for node in nodes if node.name == "backward"]
    first, last = (node for node in nodes if node.type == COLLECTIVE)
    assert [node.duration_us for node in parts] == [4000, 5000, 1000]
    assert set(first.after) == {parts[0].id}
    assert set(last.after) == {first.id, parts[1].id}
    assert set(parts[1].after) == {parts[0].id}, "the computation goes on beside the collective"
    update, forward = nodes[-2:]
    assert set(update.after) == {parts[2].id, last.id}
    assert forward.after == (update.id,)


def test_a_thread_that_is_not_waited_for_holds_up_no_computation(tmp_path: Path) -> None:
    spans = [computed(0, "first", 0, 2), computed(0, "second", 4, 5)]
    operations = [message("send", 0, 1, 3, 8, thread=1), message("receive", 0, 1, 3.5, 8, thread=1)]
    operations += [message("receive", 1, 0, 3.2, 8), message("send", 1, 0, 3.3, 8)]
    nodes, _ = exported(recorded(tmp_path / "run", spans, operations), tmp_path / "et")
    first, send, _, second = nodes
    assert send.after == (first.id,)
    assert second.after == (first.id,)


def test_what_follows_a_send_does_not_wait_for_it_and_the_next_send_does(tmp_path: Path) -> None:
    spans = [computed(0, "first", 0, 1), computed(0, "second", 3, 4)]
    operations = [message("send", 0, 1, 1.5, 8), message("send", 0, 1, 2, 9, place=1), message("send", 0, 1, 5, 7, 2)]
    nodes, _ = exported(recorded(tmp_path / "run", spans, operations), tmp_path / "et")
    first, one, two, second, three = nodes
    assert (one.after, second.after) == ((first.id,), (first.id,))
    assert set(two.after) == {first.id, one.id}
    assert set(three.after) == {second.id, two.id}


def test_a_message_within_a_computation_cuts_it_and_inner_spans_are_parts_of_outer_ones(tmp_path: Path) -> None:
    spans = [computed(0, "update", 0, 10), computed(0, "decode", 1, 2, depth=1)]
    operations = [message("receive", 0, 1, 6, 8), message("send", 1, 0, 5, 8)]
    nodes, _ = exported(recorded(tmp_path / "run", spans, operations), tmp_path / "et")
    assert [(node.name, node.duration_us, node.after) for node in nodes] == [
        ("update", 6000, ()), ("receive from 1", 0, (0,)), ("update", 4000, (1,))
    ]  # fmt: skip


def test_a_receive_without_a_send_and_a_message_to_oneself_are_left_out(tmp_path: Path) -> None:
    operations = [message("receive", 0, 1, 6, 8), message("send", 0, 0, 7, 8), message("receive", 0, 0, 8, 8)]
    operations.append(message("send", 1, 0, 9, 8, place=1))  # which has not arrived by the clock of rank 0
    nodes, others = exported(recorded(tmp_path / "run", [], operations), tmp_path / "et")
    assert nodes == []
    assert [node.name for node in others] == ["send to 0"]


def test_groups_of_some_ranks_are_defined_by_the_numbers_of_the_files(tmp_path: Path) -> None:
    whole, twin = ((1, 2, 3), 0), ((1, 2, 3), 1)
    operations = [
        collective(rank, start, start + 0.5, size, group)
        for start, size, group in ((1, 2, whole), (2, 64, ODD), (3, 48, twin))
        for rank in group[0]
    ]
    run = recorded(tmp_path / "run", [], operations, members=[1, 2, 3])
    nodes, _, last = exported(run, tmp_path / "et")
    _, groups = load(tmp_path / "et")
    named = [node.about.get("pg_name") for node in nodes]
    assert named == [node.about.get("pg_name") for node in last]
    assert named[0] is None
    assert groups[named[1]] == [0, 2]
    assert groups[named[2]] == [0, 1, 2]
    assert len(set(named)) == 3, "two groups of the same ranks are two"
    assert nodes[0].about["comm_size"] == 3, "at least a byte for each"


def test_the_numbers_of_fields_are_those_of_the_schema(tmp_path: Path) -> None:
    """A node by hand: id 0 is the default and left out, type 4, 2 µs from µs 1 on, and is_cpu_op, which is false."""
    chakra.export(
        recorded(tmp_path / "run", [computed(0, "x", 0, 1), computed(0, "y", 1, 1.002)], [], bytes_sent=[0, 0]),
        tmp_path / "et",
    )
    data = (tmp_path / "et" / "sync_sgd.0.et").read_bytes()
    attribute = b"\x0a\x09is_cpu_op" + b"\xd8\x01\x00"
    node = b"\x08\x01" + b"\x12\x01y" + b"\x18\x04" + b"\x2a\x01\x00" + b"\x30\xe8\x07" + b"\x38\x02"
    node += b"\x52" + bytes([len(attribute)]) + attribute
    assert data.endswith(bytes([len(node)]) + node)
    assert read(tmp_path / "et" / "sync_sgd.1.et") == []


def refused(run: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one-line reason, with exit code 2."""
    with pytest.raises(SystemExit) as left:
        main(["export", str(run), "--format", "chakra", "--out", str(out)])
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("operations", "says"),
    [
        ([message("send", 0, 2, 1, 8)], "messages with rank 2, which did not finish"),
        ([collective(0, 1, 2, 8, ((0, 2), 0))], "messages with rank 2, which did not finish"),
        ([collective(0, 1, 2, 8)], "took part in different collectives"),
        ([], "communicates by a library"),
    ],
)
def test_a_record_that_cannot_be_replayed_is_refused(
    operations: list[Operation], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "run", [], operations)
    assert says in refused(tmp_path / "run", tmp_path / "et", capsys)
    assert not (tmp_path / "et").exists()


def test_other_folders_than_a_records_and_a_new_one_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = tmp_path / "run", tmp_path / "et"
    assert "not a run's folder" in refused(tmp_path, out, capsys)
    recorded(run, [], [], bytes_sent=[0, 0])
    main(["export", str(run), "--out", str(out)])
    capsys.readouterr()
    assert f"--out {out} exists" in refused(run, out, capsys)
    trace = json.loads((run / "trace.json").read_text())
    for damage, says in (({}, "recorded no messages"), ({"groups": [1]}, "damaged"), ({"groups": "x"}, "damaged")):
        (run / "trace.json").write_text(json.dumps(trace | {"otherData": damage}))
        assert says in refused(run, tmp_path / "other", capsys)
    event = {"ph": "X", "pid": 0, "tid": 10, "name": "x", "cat": "message", "ts": 0.0, "dur": 0.0}
    for about in (
        {},
        {"operation": "send", "bytes": 1},
        {"operation": "all-reduce", "bytes": 1, "size": 1, "group": 9},
    ):
        (run / "trace.json").write_text(json.dumps(trace | {"traceEvents": [event | {"args": about}]}))
        assert "damaged" in refused(run, tmp_path / "other", capsys)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    assert "pip install 'protobuf" in refused(run, tmp_path / "other", capsys)
    assert not (tmp_path / "other").exists()
