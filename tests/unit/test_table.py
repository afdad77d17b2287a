"""Records as tables: their content where ranks have died."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from farandole.report import table
from farandole.report.run_name import label
from farandole.report.table import NOT_COUNTED
from farandole.runtime.record import Summary

SUMMARY = Summary(
    scenario="membership",
    ranks=2,
    members=[0, 3],
    seed=0,
    device="cpu",
    wall_s=2.0,
    steps=60,
    samples_per_s=1000.0,
    final_loss=0.5,
    test_accuracy=0.9,
    bytes_sent=[1_000_000, 2_500_000],
    messages_sent=[10, 25],
    compute_s=[0.5, 0.6],
    comm_s=[0.3, 0.2],
    wait_s=[0.2, 0.2],
    staleness=None,
    lead=None,
    cleaned=None,
    memory=None,
    params_sha256=["a", "a"],
    faults=[],
    versions={},
)


def summary_of(ranks: int, **fields: Any) -> Summary:
    """Return the summary of that many ranks, 0 and up."""
    none: dict[str, Any] = dict.fromkeys(("bytes_sent", "messages_sent", "params_sha256"))
    seconds = dict.fromkeys(("compute_s", "comm_s", "wait_s"), [0.5] * ranks)
    return replace(SUMMARY, ranks=ranks, members=list(range(ranks)), **none | seconds | fields)


def fault(**values: Any) -> dict[str, Any]:
    known = {"rank": 2, "step": 33, "kind": "kill", "detected_s": 0.02, "resumed_s": 0.0714, "steps_lost": 3}
    return known | values


def rows(shown: Table) -> list[list[str]]:
    """Return the table's content, line by line."""
    return [list(row) for row in zip(*(column.cells for column in shown.columns), strict=True)]


def test_a_failure_is_a_row_with_the_times_that_count() -> None:
    shown = table.faults(replace(SUMMARY, faults=[fault(), fault(rank=1, step=47, steps_lost=0)]))
    headings = [column.header for column in shown.columns]
    assert headings == ["failed", "step", "how", "noticed after", "first step after", "steps lost"]
    assert rows(shown) == [
        ["rank 2", "33", "kill", "0.020 s", "0.071 s", "3"],
        ["rank 1", "47", "kill", "0.020 s", "0.071 s", "0"],
    ]


def test_what_nobody_knows_of_a_failure_is_not_made_up() -> None:
    unknown = fault(rank=-1, kind="lost", detected_s=None, resumed_s=None, steps_lost=0)
    assert rows(table.faults(replace(SUMMARY, faults=[unknown]))) == [
        ["a rank", "33", "lost", NOT_COUNTED, NOT_COUNTED, "0"],
    ]


def test_a_time_of_nothing_is_a_time() -> None:
    [row] = rows(table.faults(replace(SUMMARY, faults=[fault(rank=0, detected_s=0.0)])))
    assert row[0] == "rank 0"
    assert row[3] == "0.000 s"


def test_each_row_is_of_a_member_by_its_number() -> None:
    assert rows(table.per_rank(SUMMARY)) == [
        ["0", "0.500", "0.300", "0.200", "1.00", "10"],
        ["3", "0.600", "0.200", "0.200", "2.50", "25"],
    ]


def test_without_counts_there_is_a_dash() -> None:
    shown = rows(table.per_rank(replace(SUMMARY, bytes_sent=None, messages_sent=None)))
    assert [row[4:] for row in shown] == [[NOT_COUNTED, NOT_COUNTED]] * 2


@pytest.mark.parametrize("failed", [False, True])
def test_failures_are_shown_where_there_are_any(failed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    table.print_summary(replace(SUMMARY, faults=[fault()] if failed else []), as_json=False)
    printed = capsys.readouterr().out
    assert "membership" in printed
    assert ("rank 2" in printed) == failed
    assert ("noticed" in printed) == failed


def test_a_rank_without_the_summary_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    table.print_summary(None, as_json=False)
    table.print_summary(None, as_json=True)
    assert capsys.readouterr().out == ""


def test_who_has_come_later_is_a_row() -> None:
    shown = table.joined(replace(SUMMARY, joined=[{"rank": 4, "step": 40, "joined_s": 2.5}]))
    assert [column.header for column in shown.columns] == ["joined", "at step", "first step after"]
    assert rows(shown) == [["rank 4", "40", "2.500 s"]]


def test_compression_is_seconds_and_a_ratio_of_bytes() -> None:
    figures = {"encode_s": [0.1, 0.2], "transfer_s": [0.3, 0.4], "decode_s": [0.5, 0.6], "ring_bytes": [4e6, 5e6]}
    shown = table.compression(replace(SUMMARY, compression=figures))
    assert [column.header for column in shown.columns] == ["rank", "encode s", "transfer s", "decode s", "bytes, 1 to"]
    assert rows(shown) == [["0", "0.100", "0.300", "0.500", "4.0"], ["3", "0.200", "0.400", "0.600", "2.0"]]
    alone = table.compression(replace(SUMMARY, bytes_sent=[0, 0], compression=figures | {"ring_bytes": [0, 0]}))
    assert [row[-1] for row in rows(alone)] == [NOT_COUNTED] * 2
    assert rows(table.compression(SUMMARY)) == []


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "[", "a\\"])
def test_a_runs_name_is_shown_as_it_is(name: str) -> None:
    console = Console(record=True, width=120)
    console.print(table.comparison({name: SUMMARY}))
    assert f" {name} " in console.export_text()


def test_a_runs_name_is_a_label_and_no_command_of_matplotlibs() -> None:
    axes = Figure().subplots()
    names = ["$a$ and $b$", "$\\frac$", "_hidden", "not UTF-8: \udcff", "[red]"]
    for name in names:
        axes.plot([0, 1], label=label(name))
    axes.legend()
    axes.figure.savefig(io.BytesIO(), format="png")
    assert len(axes.get_legend_handles_labels()[1]) == len(names)
