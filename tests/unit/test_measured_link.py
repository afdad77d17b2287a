"""α and β from records: found where records determine them, and refused where not."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cyclopts
import pytest

from farandole.cli.simulate import simulate
from farandole.cost.measured_link import measured_link
from farandole.errors import UsageError
from farandole.runtime.command_line import run_app
from farandole.runtime.record import Run
from tests.unit.test_table import summary_of

ALPHA, BETA = 2e-4, 4e-7  # 20 Mbit/s


def a_run(folder: Path, nbytes: int, ranks: int = 3, steps: int = 50, factor: float = 1.0, **config: Any) -> Run:
    """Of ranks that have sent a ring's messages, `nbytes` the parameters, each in α + bβ, times `factor`."""
    messages = 2 * (ranks - 1) * steps
    sent = [messages * nbytes // ranks + 4 * rank for rank in range(ranks)]
    summary: dict[str, Any] = asdict(summary_of(ranks)) | {
        "scenario": config.pop("scenario", "sync_sgd"), "messages_sent": [messages] * ranks,
        "bytes_sent": sent, "comm_s": [factor * (messages * ALPHA + each * BETA) for each in sent],
    }  # fmt: skip
    event = {
        "ph": "X",
        "name": "forward and backward",
        "cat": "compute",
        "pid": 0,
        "tid": 0,
        "ts": 0,
        "dur": 2e3,
        "args": {},
    }
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps(summary | {"steps": steps}))
    (folder / "config.json").write_text(json.dumps({"collective": "ring", "link_change": []} | config))
    (folder / "trace.json").write_text(json.dumps({"traceEvents": [event, {**event, "ts": 1}]}))
    return Run(folder)


def test_both_are_found_from_two_lengths(tmp_path: Path) -> None:
    found = measured_link([a_run(tmp_path / "a", 3_000), a_run(tmp_path / "b", 60_000)])
    assert found.link.alpha == pytest.approx(ALPHA)
    assert found.link.beta == pytest.approx(BETA)
    assert found.error < 1e-6


def test_other_ranks_and_scenarios_say_the_same(tmp_path: Path) -> None:
    former = a_run(tmp_path / "c", 30_000, ranks=2, scenario="gossip_sgd", method="d-psgd")
    gossip = [former, a_run(tmp_path / "d", 30_000, ranks=2, scenario="push_sum")]
    found = measured_link([a_run(tmp_path / "a", 3_000), a_run(tmp_path / "b", 60_000, ranks=5), *gossip])
    assert found.link.alpha == pytest.approx(ALPHA)
    assert found.link.beta == pytest.approx(BETA)


def test_the_error_is_that_of_the_rank_it_is_worst_for(tmp_path: Path) -> None:
    exact = [a_run(tmp_path / str(nbytes), nbytes) for nbytes in (300, 3_000, 30_000, 300_000)]
    found = measured_link([*exact, a_run(tmp_path / "other", 30_000, factor=2)])
    assert 0.2 < found.error < 0.6


@pytest.mark.parametrize(
    ("nbytes", "config", "says"),
    [
        (3_300, {}, "are about equally long, 1,050 bytes: α and β need two runs that differ"),
        (60_000, {"link_mbps": 20}, "links of different speeds"),
        (60_000, {"link_latency_ms": 1}, "links of different speeds"),
        (60_000, {"collective": "tree"}, "has --collective tree, where"),
        (60_000, {"overlap": True}, "has --overlap True, where"),
        (60_000, {"link_change": ["step=1,mbps=2"]}, "has --link-change"),
        (60_000, {"scenario": "parameter_server"}, "is a run of parameter_server: for α and β give one of sync_sgd"),
        (60_000, {"scenario": "gossip_sgd", "method": "ad-psgd"}, "has --method ad-psgd, where"),
        (60_000, {"scenario": "ad_psgd"}, "is a run of ad_psgd: for α and β give one of sync_sgd"),
        (60_000, {"ranks": 1}, "has sent no messages that were counted"),
    ],
)
def test_what_does_not_say_it_is_refused(nbytes: int, config: dict[str, Any], says: str, tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "a", 3_000), a_run(tmp_path / "b", nbytes, **config)]
    with pytest.raises(UsageError) as error:
        measured_link(runs)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_librarys_messages_are_not_counted(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", 3_000)
    summary = json.loads((run.folder / "summary.json").read_text()) | {"bytes_sent": None, "messages_sent": None}
    (run.folder / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(UsageError, match="has sent no messages that were counted"):
        measured_link([run, a_run(tmp_path / "b", 60_000)])


def test_they_are_printed_as_the_options_take_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = cyclopts.App(name="farandole")
    app.command(simulate)
    folders = [str(a_run(tmp_path / str(nbytes), nbytes).folder) for nbytes in (3_000, 60_000)]
    run_app(app, ["simulate", "--fit", *folders])
    assert "--latency-us 200 --link-gbps 0.02\n" in capsys.readouterr().out
    run_app(app, ["simulate", "--json", "--fit", *folders])
    link = json.loads(capsys.readouterr().out)["link"]
    assert link["latency_us"] == pytest.approx(200)
    assert link["link_gbps"] == pytest.approx(0.02)
