"""`make gpu-check` on a machine without a card: its commands, how it reads their results, and its record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole_tools.gpu_check import __main__ as command
from farandole_tools.gpu_check import execution, plan, report
from farandole_tools.gpu_check.execution import Outcome
from farandole_tools.gpu_check.plan import SWEEPS, SYSTEMS, Check

MACHINE = {"torch": "2.13", "cards": [{"card": "H100", "UUID": "GPU-1"}], "nvidia-smi": ["H100, GPU-1, 570.1"]}
JUNIT = """<testsuites><testsuite>
<testcase classname="tests.parallel.test_a" name="test_one"/>
<testcase classname="tests.parallel.test_a" name="test_two"><failure message="E  assert 1 == 2"/></testcase>
<testcase classname="tests.parallel.test_a" name="test_three"><skipped message="no card"/></testcase>
</testsuite></testsuites>"""


def training(name: str, ranks: int = 2) -> Check:
    return Check("training", name, "farandole", ("run", "sync_sgd"), 1, ranks)


def measured(step_ms: float, loss: float | None = 0.5) -> dict[str, Any]:
    speed = {"computing_ms": step_ms / 2, "communicating_ms": step_ms / 4, "samples_per_s": 1e6 / step_ms}
    return {"step_ms": step_ms, **speed, "final_loss": loss, "versions": {"mpi": "Open MPI v5"}, "places": []}


@pytest.mark.parametrize(
    ("cards", "ranks", "shared"), [(1, {2: True}, True), (2, {2: False}, False), (4, {2: False, 4: False}, False)]
)
def test_every_system_runs_on_two_ranks_and_on_a_rank_for_each_card(
    cards: int, ranks: dict[int, bool], shared: bool
) -> None:
    checks = plan.checks(cards, Path("/there"))
    assert [each.kind for each in checks[:3]] == ["doctor", "tests", "training"]
    trainings = checks[2:]
    assert {each.ranks for each in trainings} == set(ranks)
    assert len(trainings) == SWEEPS * len(SYSTEMS) * len(ranks)
    assert {each.name for each in trainings[: len(SYSTEMS)]} == set(SYSTEMS), "a sweep has each system once"
    assert len({each.arguments for each in trainings}) == len(trainings), "each run has a folder of its own"
    for each in trainings:
        assert ("--share-cards" in each.arguments) == shared
        assert each.arguments[each.arguments.index("-n") + 1] == str(each.ranks)
    assert [each.kind for each in plan.checks(cards, Path("/there"), with_tests=False)[:2]] == ["doctor", "training"]


def test_the_words_of_each_training_are_ones_that_the_command_line_knows() -> None:
    from tests.unit.test_written_commands import parse

    for each in plan.checks(1, Path("/there"))[2 : 2 + len(SYSTEMS)]:
        parse(*each.arguments)


def test_without_a_card_there_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    exec(execution.PROBE, {})
    probed = subprocess.CompletedProcess([], 0, capsys.readouterr().out, "")
    assert json.loads(probed.stdout)["about"].keys() > {"torch", "cores"}
    monkeypatch.setattr(execution.subprocess, "run", lambda *words, **named: probed)
    assert command.main(["--folder", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "run make gpu-check on a machine with a card" in said[0]
    assert not (tmp_path / "none").exists()


def test_a_machine_with_a_card_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"about": {"torch": "2.13"}, "cards": MACHINE["cards"], "why": ""}
    answers = {sys.executable: json.dumps(found), "nvidia-smi": "H100, GPU-1, 570.1\n", "git": "abc\n"}

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 0, answers[words[0]], "")

    monkeypatch.setattr(execution.subprocess, "run", run)
    assert execution.machine(Path()) == MACHINE | {"commit": "abc"}


def test_the_record_is_written_after_each_check_and_a_failure_gives_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ran: list[Check] = []

    def run(check: Check, checkout: Path) -> Outcome:
        ran.append(check)
        if check.kind != "training":
            return Outcome(check, "failed" if check.kind == "tests" else "passed", 1.0, "1 passed, 1 failed, 0 skipped")
        if "NCCL" in check.name:
            return Outcome(check, "refused", 2.0, "needs a card for each rank")
        return Outcome(check, "passed", 3.0, figures=measured(10))

    monkeypatch.setattr(command.execution, "machine", lambda checkout: MACHINE)
    monkeypatch.setattr(command.execution, "run", run)
    assert command.main(["--folder", str(tmp_path)]) == 1
    refused = sum("NCCL" in name for name in SYSTEMS)
    assert sum("NCCL" in each.name for each in ran) == refused, "what was refused is not tried again"
    assert len(ran) == 2 + SWEEPS * (len(SYSTEMS) - refused) + refused
    [record] = tmp_path.glob("*/record.md")
    text = record.read_text()
    for words in ("| card 0 | H100, GPU-1 |", "| DDP, NCCL |", "refused: needs a card for each rank", "| 10.00 |"):
        assert words in text
    assert str(record) in capsys.readouterr().out
    monkeypatch.setattr(command.execution, "run", lambda check, _: Outcome(check, "passed", 1.0, figures=measured(10)))
    assert command.main(["--folder", str(tmp_path / "again"), "--without-tests"]) == 0


def test_pytests_results_are_read(tmp_path: Path) -> None:
    check = plan.checks(1, tmp_path)[1]
    assert check.writes
    assert execution.of_tests(check, 1, check.writes, "no such file: tests").note == "no such file: tests"
    check.writes.write_text(JUNIT)
    outcome = execution.of_tests(check, 1, check.writes, "")
    assert (outcome.state, outcome.note) == ("failed", "1 passed, 1 failed, 1 skipped")
    assert outcome.figures["failures"] == {"tests.parallel.test_a::test_two": "E  assert 1 == 2"}
    check.writes.write_text(JUNIT.replace('<failure message="E  assert 1 == 2"/>', ""))
    assert execution.of_tests(check, 1, check.writes, "").state == "passed"
    check.writes.write_text("<testsuites/>")
    assert execution.of_tests(check, 1, check.writes, "").state == "failed", "no test was run"


def test_a_refusal_is_told_from_a_failure() -> None:
    for module, arguments, state, note in (
        ("farandole", ("run", "no_such_scenario"), "refused", "no_such_scenario"),
        ("json.tool", ("/no/such/file",), "refused", "No such file"),  # argparse exits with 2, too
        ("no_such_module", (), "failed", "No module named no_such_module"),
    ):
        outcome = execution.run(Check("training", "x", module, arguments, 60, 2), Path())
        assert outcome.state == state
        assert note in outcome.note
        assert "\n" not in outcome.note
    late = execution.run(Check("training", "x", "http.server", ("0",), 0.2, 2), Path())
    assert (late.state, late.note) == ("failed", "ended after 0.2 s, its time-out")


def test_a_trainings_times_are_those_of_the_slowest_rank_in_a_step() -> None:
    summary = {"steps": 10, "wall_s": 2.0, "compute_s": [0.5, 1.0], "comm_s": [0.3, 0.2], "samples_per_s": 7.0}
    summary |= {"final_loss": 0.1, "versions": {}, "places": []}
    figures = execution.figures(training("x"), summary)
    assert figures["step_ms"] == pytest.approx(200)
    assert figures["computing_ms"] == pytest.approx(100)
    assert figures["communicating_ms"] == pytest.approx(30)


@pytest.mark.parametrize(
    ("losses", "states"),
    [([0.5, 0.501], ["passed"]), ([0.5, 0.6], ["failed"]), ([0.5, None], ["failed"]), ([0.5], [])],
)
def test_all_systems_have_to_come_to_the_same_loss(losses: list[float | None], states: list[str]) -> None:
    ended = [Outcome(training(str(n)), "passed", 1, figures=measured(10, loss)) for n, loss in enumerate(losses)]
    ended.append(Outcome(training("refused"), "refused", 1, "not here"))
    assert [each.state for each in report.agreement(ended)] == states


def test_the_record_has_medians_and_ends_with_all_figures() -> None:
    ended = [Outcome(training("ring"), "passed", 1, figures=measured(ms)) for ms in (30, 10, 20)]
    doctor = Check("doctor", "farandole doctor", "farandole", ("doctor", "--json"), 1)
    ended.append(Outcome(doctor, "passed", 1, figures={"findings": [{"name": "MPI", "works": True, "seen": "a | b"}]}))
    text = report.markdown(MACHINE, ended)
    assert "| 2 | ring | 20.00 | 10.00 | 5.00 | 50,000 | 0.5 |" in text
    assert "| MPI | works | a \\| b |" in text
    assert "| mpi | Open MPI v5 |" in text
    everything = json.loads(text.partition("```json\n")[2].partition("\n```")[0])
    assert [each["figures"].get("step_ms") for each in everything["outcomes"]] == [30, 10, 20, None]


def test_a_probe_that_fails_says_what_would_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\nModuleNotFoundError: No module named 'torch'\n")
    monkeypatch.setattr(execution.subprocess, "run", lambda *words, **named: failed)
    with pytest.raises(UsageError, match=r"No module named 'torch'\): make setup"):
        execution.machine(Path())
