"""The files of a record: complete or absent, valid JSON, and refused in one line if damaged."""

from __future__ import annotations

import errno
import json
import math
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.cli import simulate_record
from farandole.cli.show import show
from farandole.data import shards
from farandole.errors import FlawedRun, UsageError
from farandole.report import table
from farandole.report.curves import draw
from farandole.runtime import files, recorder
from farandole.runtime.failure import describe
from farandole.runtime.record import Run
from farandole.runtime.summary import divergence_in, write_summary
from tests.unit.test_table import SUMMARY

EVENT = {
    "ph": "X",
    "name": "forward",
    "cat": "compute",
    "pid": 0,
    "tid": 0,
    "ts": 0.0,
    "dur": 5.0,
    "args": {"depth": 0},
}
NAME = {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "rank 0"}}
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "torn": lambda whole: whole[: len(whole) // 2],
    "binary": lambda whole: bytes(range(256)),
    "a list": lambda whole: b"[1, 2]",
    "null": lambda whole: b"null",
    "other keys": lambda whole: b'{"a": 1}',
    "deep": lambda whole: b"[" * 100_000,
    "zeros": lambda whole: bytes(len(whole)),
}


def no_constants(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def a_run(folder: Path, losses: list[Any]) -> Run:
    """Write a finished run with this loss at each step."""
    folder.mkdir()
    (folder / "config.json").write_text('{"seed": 0}')
    (folder / "summary.json").write_text(SUMMARY.to_json())
    lines = [{"step": step, "wall_s": 0.1 * step, "loss": loss, "samples": 8} for step, loss in enumerate(losses)]
    (folder / "metrics.jsonl").write_text("".join(files.json_text(line) + "\n" for line in lines))
    (folder / "trace.json").write_text(json.dumps({"traceEvents": [NAME, EVENT]}))
    return Run.open(folder)


def test_latest_is_the_run_that_finished_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="there is no finished run in runs here"):
        Run.open("latest")
    Path("runs").mkdir()
    for name, finished in (("first", 100), ("slow", 300), ("second", 200)):
        a_run(Path("runs") / name, [1.0])
        os.utime(Path("runs") / name / "summary.json", (finished, finished))
    (Path("runs") / "unfinished").mkdir()
    assert Run.open("latest").folder == Path("runs/slow")
    a_run(Path("latest"), [1.0])
    assert Run.open("latest").folder == Path("latest"), "a folder of that name is meant if there is one"


def test_what_is_not_finite_is_null_wherever_it_stands() -> None:
    value = {"a": [math.nan, 1.5, (math.inf, {"b": -math.inf})], "c": 1, "d": "nan", "e": True}
    text = files.json_text(value)
    assert json.loads(text, parse_constant=no_constants) == {
        "a": [None, 1.5, [None, {"b": None}]], "c": 1, "d": "nan", "e": True,
    }  # fmt: skip


def test_a_file_is_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "summary.json"
    files.write(file, "old")
    full = OSError(errno.ENOSPC, "No space left on device")

    def half(path: Path, data: bytes) -> int:
        with path.open("wb") as stream:
            stream.write(data[: len(data) // 2])
        raise full

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space left"):
        files.write(file, "new, and longer")
    assert file.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["summary.json"], "what was begun takes no room"


def test_the_summary_outlives_a_disk_that_is_full_before_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = files.write

    def until_full(file: Path, content: str | bytes) -> None:
        if file.name == "trace.json":
            raise OSError(errno.ENOSPC, "No space left on device", str(file))
        real(file, content)

    monkeypatch.setattr("farandole.runtime.summary.write", until_full)
    ranks = [{"rank": 0, "sha256": "a", "wall_s": 1.0, "bytes": 1, "messages": 1, "memory": None}]
    ranks[0]["place"] = {"device": "cpu", "card": None, "host": "h", "cores": "0-1"}
    found = {"steps": 3, "final_loss": 0.5, "test_metrics": {"accuracy": 0.9}, "faults": []}
    found |= dict.fromkeys(("staleness", "lead", "cleaned"))
    options = recorder.RunOptions()
    summary = write_summary(tmp_path, "x", options, ranks, [], samples=8, bytes_are_counted=True, **found)
    assert Run.open(tmp_path).summary.final_loss == 0.5
    with pytest.raises(FlawedRun, match=r"trace\.json \(No space left on device\)"):
        table.print_summary(summary, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed["final_loss"] == 0.5
    assert printed["unwritten"] == [f"{tmp_path / 'trace.json'} (No space left on device)"]


def test_a_methods_own_file_that_cannot_be_written_does_not_end_the_training(tmp_path: Path) -> None:
    writing = recorder.Recorder.__new__(recorder.Recorder)
    writing.folder, writing._unwritten = tmp_path, {}
    (tmp_path / "costs.json").mkdir()  # so that no file can take its place
    writing.write_beside("costs.json", "{}")
    writing.write_beside("trials.json", "[]")
    assert list(writing._unwritten) == [str(tmp_path / "costs.json")]
    assert (tmp_path / "trials.json").read_text() == "[]"


def test_a_diverged_run_is_printed_and_then_said(capsys: pytest.CaptureFixture[str]) -> None:
    diverged = replace(SUMMARY, final_loss=math.nan, diverged={"step": 7, "rank": 2})
    with pytest.raises(FlawedRun, match="membership diverged: the loss of rank 2 is not finite at step 7") as said:
        table.print_summary(diverged, as_json=True)
    assert json.loads(capsys.readouterr().out, parse_constant=no_constants)["final_loss"] is None
    assert "\n" not in str(said.value)
    failure = describe(said.value, 0, -1)
    assert (failure.kind, str(failure)) == ("flawed", str(said.value))


def test_tables_of_several_runs_mark_the_one_that_diverged() -> None:
    diverged = replace(SUMMARY, test_accuracy=0.0985, diverged={"step": 7, "rank": 2})
    accuracies = [table.columns([summary])["accuracy"](summary) for summary in (SUMMARY, diverged)]
    assert [text.endswith("diverged") for text in accuracies] == [False, True]
    assert accuracies[1] == "9.8% diverged"


def test_horovods_workers_detect_that_they_diverge(tmp_path: Path) -> None:
    run = a_run(tmp_path / "r", [2.3, 1.0, None, None])
    assert divergence_in(run.folder) == {"step": 2, "rank": None}
    assert divergence_in(a_run(tmp_path / "s", [2.3, 1.0]).folder) is None


def test_the_first_divergence_is_that_of_the_earliest_step_whose_rank_is_known() -> None:
    assert recorder.first_divergence([None, None]) is None
    assert recorder.first_divergence([(5, 0), None, (3, 2), (3, 1)]) == {"step": 3, "rank": 1}
    assert recorder.first_divergence([(2, None), (4, 1)]) == {"step": 4, "rank": 1}
    assert recorder.first_divergence([(2, None)]) == {"step": 2, "rank": None}


def test_curves_of_a_diverged_run_are_drawn(tmp_path: Path) -> None:
    run = a_run(tmp_path / "r", [2.3, 1.0, None, None])
    assert [math.isnan(line["loss"]) for line in run.metrics] == [False, False, True, True]
    none = a_run(tmp_path / "n", [None, None])
    assert draw({"some": run, "none": none}, tmp_path / "curves.png").stat().st_size > 1000


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl", "trace.json", "config.json"])
def test_a_damaged_record_is_refused_in_one_line_that_names_the_file(tmp_path: Path, name: str, damage: str) -> None:
    run = a_run(tmp_path / "r", [2.3, 1.0, 0.9])
    file = run.folder / name
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    read = {
        "summary.json": lambda: run.summary,
        "metrics.jsonl": lambda: run.metrics,
        "trace.json": lambda: (run.trace, run.rank_names),
        "config.json": lambda: run.config,
    }[name]
    if name == "metrics.jsonl" and damage in ("empty", "torn", "binary", "deep", "zeros"):
        with suppress(UsageError):
            assert len(read()) <= 1, "a last line that was torn is left out"
    elif name == "config.json" and damage == "other keys":
        assert read() == {"a": 1}, "of an older version"
    else:
        with pytest.raises(UsageError) as refusal:
            read()
        assert str(file) in str(refusal.value)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl", "trace.json"])
def test_a_folder_or_nothing_in_the_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    run = a_run(tmp_path / "r", [2.3])
    (run.folder / name).unlink()
    for _ in range(2):
        with pytest.raises(UsageError, match=rf"{name}"):
            assert [run.summary, run.metrics, run.trace]
        (run.folder / name).mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ranks", "two"),
        ("members", 3),
        ("bytes_sent", [None]),
        ("faults", {}),
        ("ranks", 10**24),
        ("wait_s", [10**24, 0.1]),
        ("wall_s", math.nan),
        ("wall_s", math.inf),
    ],
)
def test_a_summary_with_a_field_of_another_type_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    run = a_run(tmp_path / "r", [2.3])
    (run.folder / "summary.json").write_text(json.dumps(json.loads(SUMMARY.to_json()) | {field: value}))
    with pytest.raises(UsageError, match=rf"damaged \({field} is not of type [a-z]"):
        assert run.summary


@pytest.mark.parametrize(
    "fields",
    [
        {"members": []},
        {"members": [0]},
        {"members": [0, 0]},
        {"ranks": 3},
        {"steps": -1},
        {"wall_s": -1.0},
        *({name: [1, 2, 3]} for name in ("bytes_sent", "messages_sent", "compute_s", "comm_s", "wait_s")),
        {"bytes_sent": []},
        {"params_sha256": ["a"]},
        {"places": [{"device": "cpu"}]},
        {"staleness": {"x": 1}},
        {"lead": {"1.5": 1}},
        {"lead": {"1": -1}},
        {"faults": [{"rank": 1}]},
        {"faults": [{"rank": 1, "step": 1, "kind": "kill", "detected_s": "a", "resumed_s": None, "steps_lost": 0}]},
    ],
    ids=str,
)
def test_a_summary_of_no_possible_run_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    run = a_run(tmp_path / "r", [2.3])
    (run.folder / "summary.json").write_text(json.dumps(json.loads(SUMMARY.to_json()) | fields))
    with pytest.raises(UsageError, match=r"summary\.json is damaged \(.*\): run the scenario again$"):
        assert run.summary


@pytest.mark.parametrize("value", ["1" + "0" * 24, "NaN", "-Infinity"])
@pytest.mark.parametrize("name", ["metrics.jsonl", "trace.json"])
def test_a_number_that_no_run_writes_is_refused(tmp_path: Path, name: str, value: str) -> None:
    run = a_run(tmp_path / "r", [2.3])
    text = (run.folder / name).read_text()
    key = {"metrics.jsonl": '"wall_s": 0.0', "trace.json": '"ts": 0.0'}[name]
    assert key in text
    (run.folder / name).write_text(text.replace(key, f"{key.partition(':')[0]}: {value}"))
    with pytest.raises(UsageError, match=name):
        assert [run.metrics, run.trace]


@pytest.mark.parametrize(
    ("key", "value"),
    [("cat", "rest"), ("ts", 1e300), ("dur", 1e300), ("dur", -1.0), ("args", {"depth": "a"})],
)
def test_an_event_that_no_run_writes_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    run = a_run(tmp_path / "r", [2.3])
    trace = json.loads((run.folder / "trace.json").read_text())
    next(event for event in trace["traceEvents"] if event["ph"] == "X")[key] = value
    (run.folder / "trace.json").write_text(json.dumps(trace))
    with pytest.raises(UsageError, match=r"trace\.json is damaged"):
        assert run.trace


def test_a_record_of_a_later_version_is_read_without_its_new_fields(tmp_path: Path) -> None:
    run = a_run(tmp_path / "r", [2.3])
    (run.folder / "summary.json").write_text(json.dumps(json.loads(SUMMARY.to_json()) | {"carbon_g": [1]}))
    assert run.summary == SUMMARY


@pytest.mark.parametrize("losses", [[0.0, 0.0], [2.3, 1e86, 1e259, 1.7e308, None], [1e-320, 1e300]], ids=str)
def test_curves_of_losses_beyond_the_axis_are_drawn_without_a_warning(tmp_path: Path, losses: list[float]) -> None:
    run = a_run(tmp_path / "r", losses)
    with warnings.catch_warnings():
        for kind in (UserWarning, RuntimeWarning):  # matplotlib's and numpy's; none about open files
            warnings.simplefilter("error", kind)
        draw({"run": run}, tmp_path / "curves.png")


@pytest.mark.parametrize("name", ["timeline.png", "curves.png"])
def test_pictures_that_cannot_be_written_are_named_in_one_line(tmp_path: Path, name: str) -> None:
    run = a_run(tmp_path / "r", [2.3, 1.0, 0.9])
    events = [event | {"pid": member} for member in SUMMARY.members for event in (NAME, EVENT)]
    (run.folder / "trace.json").write_text(json.dumps({"traceEvents": events}))
    (run.folder / name).mkdir()
    with pytest.raises(UsageError, match=rf"{name} cannot be written \(Is a directory\): copy the run's folder"):
        show(run.folder)


def test_an_older_summary_is_read_without_what_was_not_measured_then(tmp_path: Path) -> None:
    run = a_run(tmp_path / "r", [2.3])
    older = json.loads(SUMMARY.to_json())
    for later in ("diverged", "unwritten", "compression", "joined"):
        del older[later]
    (run.folder / "summary.json").write_text(json.dumps(older))
    assert run.summary == SUMMARY
    del older["ranks"]
    (run.folder / "summary.json").write_text(json.dumps(older))
    with pytest.raises(UsageError, match="lacks ranks"):
        assert run.summary


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_cannot_be_fitted(tmp_path: Path, damage: str) -> None:
    run = a_run(tmp_path / "r", [2.3])
    (run.folder / "trace.json").write_bytes(DAMAGES[damage]((run.folder / "trace.json").read_bytes()))
    with pytest.raises(UsageError, match=r"trace\.json"):
        simulate_record.fitted([run.folder], as_json=True)


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_options_of_a_run_that_goes_on_must_be_readable(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "config.json"
    recorder.write_config(file, {"steps": 3, "lr": 0.1}, incidental=())
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.raises(UsageError, match=r"config\.json|another scenario") as refused:
        recorder.write_config(file, {"steps": 3, "lr": 0.1}, incidental=())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_of_shards_is_refused(tmp_path: Path, damage: str) -> None:
    file = tmp_path / shards.MANIFEST
    file.write_text('{"shares": [1, 2], "crc32": [{"inputs": 1, "targets": 2}, {"inputs": 1, "targets": 2}]}')
    assert shards.stored_shares(tmp_path) == [1, 2]
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.raises(UsageError, match=r"manifest\.json"):
        shards.stored_shares(tmp_path)


def test_a_full_disk_is_said_in_one_line() -> None:
    failure = describe(OSError(errno.ENOSPC, "No space left on device", "/x/y"), 3, 7)
    assert str(failure) == "rank 3 at step 7 cannot go on: /x/y cannot be written (No space left on device)"
