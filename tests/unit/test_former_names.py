"""gossip_sgd, whose --method told which of five scenarios was meant, is still understood, and so are its records."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from farandole import cli, scenarios
from farandole.errors import UsageError
from farandole.former_names import current, current_command
from farandole.runtime import choices, command_line
from tests.unit.test_table import SUMMARY


@pytest.mark.parametrize(
    ("options", "scenario", "rest"),
    [
        ({}, "dpsgd", {}),
        ({"topology": "torus", "compressor": "none"}, "dpsgd", {"topology": "torus"}),
        ({"method": "d-psgd", "mix_after_update": True}, "dpsgd", {"mix_after_update": True}),
        ({"method": "push-sum", "mixing_every": 4}, "push_sum", {"mixing_every": 4}),
        ({"method": "ad-psgd"}, "ad_psgd", {}),
        ({"method": "central-directions", "own_weight": 0.2}, "central_directions", {"own_weight": 0.2}),
        ({"compressor": "sign", "consensus_step": 0.1}, "choco_sgd", {"compressor": "sign", "consensus_step": 0.1}),
    ],
)
def test_what_the_former_options_stand_for(options: dict[str, Any], scenario: str, rest: dict[str, Any]) -> None:
    assert current("gossip_sgd", options) == (scenario, rest)
    words = current_command(["run", "gossip_sgd", "-n", "4", *command_line.to_arguments(options)])
    assert words[:4] == ["run", scenario, "-n", "4"]
    module = scenarios.load(scenario)
    config = command_line.parse(module.Config, words[4:])
    assert config == module.Config(**rest)


def test_other_scenarios_keep_their_options() -> None:
    assert current("sync_sgd", {"method": "ad-psgd"}) == ("sync_sgd", {"method": "ad-psgd"})
    for words in (["run", "sync_sgd", "--out", "gossip_sgd"], ["show", "gossip_sgd"], ["--help"], []):
        assert current_command(words) == words


def test_what_did_not_go_together_is_still_refused() -> None:
    for options in ({"method": "gossip"}, {"method": "push-sum", "compressor": "sign"}, {"own_weight": 0.2}):
        scenario, rest = current("gossip_sgd", options)
        with pytest.raises(UsageError, match="Unknown option") as refused:
            command_line.parse(scenarios.load(scenario).Config, command_line.to_arguments(rest))
        assert "\n" not in str(refused.value)


def test_a_comparison_keeps_what_its_other_methods_are_given() -> None:
    assert current_command(["compare", "gossip_sgd", "compressed_sgd", "--compressor=none", "--method", "d-psgd"]) == [
        *("compare", "dpsgd", "compressed_sgd", "--compressor", "none")
    ]


def test_who_types_the_former_name_is_told_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(choices, "advise", lines.append)
    current_command(["run", "gossip_sgd", "--method=push-sum", "--steps", "3"])
    assert lines == ["gossip_sgd --method push-sum is called push_sum now; the old word is still accepted"]


def test_it_is_not_listed_and_its_help_is_that_of_dpsgd(capsys: pytest.CaptureFixture[str]) -> None:
    assert "gossip_sgd" not in scenarios.names()
    cli.main(["run", "gossip_sgd", "--help"])
    told = capsys.readouterr()
    assert "--mix-after-update" in told.out
    assert "gossip_sgd is called dpsgd now" in told.err


def test_records_of_the_former_name_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps(asdict(replace(SUMMARY, scenario="gossip_sgd"))))
    (folder / "config.json").write_text(json.dumps({"method": "ad-psgd", "topology": "ring"}))
    span = {"ph": "X", "name": "update", "cat": "compute", "tid": 0, "ts": 1.0, "dur": 2e3, "args": {"depth": 0}}
    names = [{"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}} for rank in (0, 3)]
    spans = [span | {"pid": rank} for rank in (0, 3)]
    (folder / "trace.json").write_text(json.dumps({"traceEvents": names + spans}))
    (folder / "metrics.jsonl").write_text('{"step": 0, "wall_s": 0.1, "loss": 2.0, "samples": 8}\n')
    cli.main(["show", str(folder)])
    assert (folder / "timeline.png").stat().st_size > 1000
    assert "old" in capsys.readouterr().out
    cli.main(["compare", str(folder), str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)[0]["scenario"] == "gossip_sgd"
