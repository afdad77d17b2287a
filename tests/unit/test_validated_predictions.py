"""``simulate --validate``: nothing is measured before everything is predicted, and never by its own method's runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from farandole.cli import simulate_validate
from farandole.cost import failing_runs
from farandole.cost.calibrated import CALIBRATIONS, Calibrated, encoding_s, measured_s, passes, predicted_s
from farandole.cost.choice import Choice
from farandole.cost.failing_runs import FAILING, KILLED_AT, STEPS
from farandole.cost.goodput import Recovery
from farandole.cost.predicted_first import Compared, Measurement, Prediction, largest, mean_error, measured
from farandole.cost.validated import Launchers, rows_of, validate
from farandole.cost.validated_runs import (
    CONDITIONS,
    EVEN,
    LINKS,
    NOT_COMPARED,
    STRAGGLERS,
    WORKERS,
    Case,
    cases,
)
from farandole.errors import LaunchError, UsageError
from farandole.methods import METHODS, simulated

STEP_S = 0.1
ALPHA, BETA = 1e-3, 4e-7


def a_run(scenario: str, options: dict[str, Any]) -> Any:
    """Write a finished run whose ranks each computed for 0.1 s a step; messages took α + nβ."""
    steps, nbytes = options["steps"], 26_000 if "wide" in options["task"] else 6_500
    messages = 6 * steps
    trace = [
        {"name": name, "cat": category, "pid": rank, "ts": 1e6 * at + number, "dur": 1e6 * seconds}
        for rank in range(WORKERS)
        for at in range(steps)
        for number, (name, category, seconds) in enumerate(
            [
                ("forward and backward", "compute", STEP_S),
                ("wait for receive activation 0", "wait", 0.01),
                ("receive activation 0", "communicate", ALPHA + nbytes * BETA),
            ]
        )
    ]
    summary = SimpleNamespace(
        scenario=scenario, steps=steps, ranks=WORKERS, wall_s=0.2 * steps, staleness=None, compression=None,
        compute_s=[STEP_S * steps] * WORKERS, comm_s=[messages * (ALPHA + nbytes * BETA)] * WORKERS,
        messages_sent=[messages] * WORKERS, bytes_sent=[messages * nbytes] * WORKERS,
        faults=[{"resumed_s": 0.5, "steps_lost": 0}],
    )  # fmt: skip
    return SimpleNamespace(
        summary=summary, trace=trace, config={"link_mbps": options.get("link_mbps")}, folder=options["out"],
        metrics=[{"wall_s": 0.2 * steps}],
    )  # fmt: skip


class Fake:
    """Starts nothing, and records the requested starts and the number of predictions at that time."""

    def __init__(self, folder: Path, fails_at: int | None = None) -> None:
        self.file, self.fails_at = folder / "predictions.json", fails_at
        self.measured: list[tuple[str, int]] = []
        self.calibrations: list[str] = []

    def __call__(self, scenario: str, ranks: int, *, timeout_s: float, **options: Any) -> Any:
        if options["out"].parent.name == "calibration":
            assert not self.file.exists()
            self.calibrations.append(options["out"].name)
            if scenario == "sync_sgd" and "fail" in options:
                raise LaunchError("rank 2 was killed", 1, "")
        else:
            self.measured.append((scenario, len(json.loads(self.file.read_text())["predictions"])))
            if len(self.measured) == self.fails_at:
                raise LaunchError("rank 1 has failed", 1, "")
        return a_run(scenario, options)

    @property
    def both(self) -> Launchers:
        return Launchers(self, self)


def test_all_predictions_are_in_the_file_before_the_first_run_starts(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    rows = list(validate(["local-sgd", "1f1b", "restart", "backup"], tmp_path, 0, fake.both))
    assert fake.measured == [
        *[("local_sgd", len(rows))] * 3, *[("pipeline", len(rows))] * 3, ("restart", len(rows)), ("backup", len(rows)),
    ]  # fmt: skip
    kept = json.loads(fake.file.read_text())
    assert [each["name"] for each in kept["predictions"]] == [row.prediction.name for row in rows]
    assert all(kept["predicted"] < row.measurement.began for row in rows)
    slowed = next(each for each in kept["predictions"] if each["name"] == "1f1b, stragglers")
    assert slowed["options"]["slow"] == ["rank=1,factor=1.5", "rank=3,factor=2.5"]
    assert slowed["options"]["schedule"] == "1f1b"
    records = {name for row in rows for name in row.prediction.calibration}
    assert {name.replace(" ", "-") for name in records} == set(fake.calibrations)
    assert kept["calibrations"]["ring"]["alpha"] == pytest.approx(ALPHA)
    assert kept["calibrations"]["gpipe"]["alpha"] == pytest.approx(ALPHA), "of a message for which a stage waited"


def test_a_servers_messages_are_calibrated_by_another_policy(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    [*rows] = validate(["ssp"], tmp_path, 0, fake.both)
    kept = json.loads(fake.file.read_text())["calibrations"]
    assert kept["async"]["alpha"] == pytest.approx((0.2 - STEP_S) / 2), "of a step of 0.2 s"
    assert kept["async"]["beta"] == kept["ring"]["beta"]
    assert rows[0].prediction.calibration == ("async-0", "ring-0", "ring-1")


def test_a_finished_run_is_not_repeated_and_its_prediction_stays(tmp_path: Path) -> None:
    fake = Fake(tmp_path, fails_at=3)
    with pytest.raises(LaunchError):
        list(validate(["local-sgd"], tmp_path, 0, fake.both))
    before = fake.file.read_text()
    again = Fake(tmp_path)
    assert len(list(validate(["local-sgd"], tmp_path, 0, again.both))) == 3
    assert (len(again.measured), again.calibrations) == (1, [])
    assert fake.file.read_text() == before
    for methods, seed in ((["local-sgd"], 1), (["diloco"], 0)):
        with pytest.raises(UsageError, match="has results for other predictions, which are not replaced"):
            list(validate(methods, tmp_path, seed, again.both))
    assert fake.file.read_text() == before


def test_without_predictions_nothing_is_measured(tmp_path: Path) -> None:
    row = Prediction("ring, even", "ring", EVEN, "sync_sgd", 4, 0.1, ("gossip-0",))
    with pytest.raises(UsageError, match="nothing is measured before it is predicted"):
        list(measured([row], tmp_path, lambda row: pytest.fail("it was measured")))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    list(validate(["diloco"], tmp_path, 0, fake.both))
    [result, *_] = sorted((tmp_path / "results").iterdir())
    result.write_text("{}")
    with pytest.raises(UsageError, match="is no result"):
        list(validate(["diloco"], tmp_path, 0, fake.both))
    fake.file.write_text("{}")
    with pytest.raises(UsageError, match="it has no predictions"):
        list(validate(["diloco"], tmp_path, 0, fake.both))


def test_every_simulated_method_has_a_run_or_a_reason() -> None:
    covered = {case.method for case in cases()}
    assert covered | NOT_COMPARED.keys() == set(simulated())
    assert not covered & NOT_COMPARED.keys()
    names = [name for name, _, _ in rows_of(())]
    assert len(set(names)) == len(names)
    assert {condition for case in cases() for condition in case.conditions} == set(CONDITIONS)


def test_no_method_is_predicted_from_its_own_runs() -> None:
    for case in cases():
        assert case.calibration != case.method
        if case.scenario == "sync_sgd":
            assert CALIBRATIONS[case.calibration].scenario != case.scenario
    for failing in FAILING:
        assert failing.method not in failing.calibration.split()


def test_a_run_is_of_the_scenario_that_the_method_simulates() -> None:
    for case in cases():
        of = {name for name, method in METHODS.items() if case.method in method.simulated}
        if case.method == "grid":
            assert "hybrid" in case.note
        elif case.method == "naive":
            assert case.options["schedule"] == "naive"
        else:
            assert of == {case.scenario}


GIVEN = Calibrated(STEP_S, "constant", ALPHA, BETA, 0.0, "gossip")


def of(method: str) -> Case:
    return next(case for case in cases() if case.method == method)


def test_the_conditions_are_in_the_prediction() -> None:
    case = of("ring")
    messages_s = 6 * ALPHA
    assert predicted_s(case, EVEN, GIVEN, 0) == pytest.approx(STEP_S + messages_s)
    with_links_s = messages_s + 2 * 3 / 4 * case.nbytes * BETA
    assert predicted_s(case, LINKS, GIVEN, 0) == pytest.approx(STEP_S + with_links_s)
    assert predicted_s(case, STRAGGLERS, GIVEN, 0) == pytest.approx(2.5 * STEP_S + with_links_s)


def test_a_servers_workers_are_slow_by_their_ranks() -> None:
    case = of("bsp")
    assert CONDITIONS[STRAGGLERS].options(case.first_worker)["slow"] == ["rank=2,factor=1.5", "rank=4,factor=2.5"]
    assert CONDITIONS[EVEN].options(0) == {}


def test_more_passes_take_longer() -> None:
    assert [passes(name, of(name).choice) for name in ("gpipe", "zero-bubble", "zb-v")] == [16, 24, 48]
    naive = of("naive")
    given = Calibrated(STEP_S, "constant", 0.0, 0.0, 0.0, "gpipe", pass_s=1e-3)
    assert predicted_s(naive, EVEN, given, 0) == pytest.approx(WORKERS * (STEP_S + 16e-3)), "one stage works at a time"


def test_what_counts_is_a_gradient_of_each_worker() -> None:
    run = a_run("parameter_server", {"steps": 10, "task": "", "out": Path()})
    run.summary.staleness = {"0": 10, "1": 10}
    assert measured_s(run) == pytest.approx(4 * 2.0 / 20)
    run.summary.compression = {"encode_s": [0.1, 0.2], "decode_s": [0.3, 0.1], "transfer_s": [9.0]}
    assert encoding_s(run) == pytest.approx(0.05)
    run = a_run("dynamic_sync", {"steps": 10, "task": "", "out": Path()})
    run.summary.wall_s = 99.0
    assert measured_s(run) == pytest.approx(0.2), "without measuring the loss"


@pytest.mark.parametrize(
    ("method", "steps"),
    [("restart", STEPS + KILLED_AT % 8), ("membership", KILLED_AT + (STEPS - KILLED_AT) * 4 / 3),
     ("backup", KILLED_AT + (STEPS - KILLED_AT + KILLED_AT % 5) * 4 / 3)],
)  # fmt: skip
def test_a_kill_costs_a_pause_and_the_steps_that_are_done_again(method: str, steps: float) -> None:
    case = next(each for each in FAILING if each.method == method)
    assert failing_runs.predicted_s(case, 0.1, 2.0) == pytest.approx((0.1 * steps + 2.0) / STEPS)


def test_without_a_failure_the_work_takes_its_time() -> None:
    assert failing_runs.seconds_for(12.0, Recovery(1.0), 4, []) == pytest.approx(3.0)


def test_the_pauses() -> None:
    run = a_run("backup", {"steps": 4, "task": "", "out": Path()})
    assert failing_runs.regrouping_s(run, 0.3) == pytest.approx(0.5 - 0.4)
    assert failing_runs.starting_s(3.1, 0.1) == pytest.approx(3.1 - 2.1 + 1.0)


def test_the_errors_are_summed_up() -> None:
    rows = [
        Compared(Prediction(name, "ring", EVEN, "sync_sgd", 4, predicted, ()), Measurement(1.0, 0.0))
        for name, predicted in (("a", 1.1), ("b", 1 / 1.21))
    ]
    assert mean_error(rows) == pytest.approx(1.1**1.5 - 1)
    assert largest(rows).prediction.name == "b"
    assert rows[0].to_dict()["error"] == pytest.approx(0.1)


def test_stages_that_wait_for_their_links_take_longer() -> None:
    """Two stages, two micro-batches, forward 1 s, backward 2 s, half a second for a message: 11 s, and 10 s without."""
    from farandole.collectives.costs import Link
    from farandole.cost.comparison import compared
    from farandole.cost.setting import Setting

    setting = Setting(2, 1, 6.0, link=Link(0.0, 0.5))
    for blocks, seconds in ((True, 11.0), (False, 10.0)):
        choice = Choice(stages=2, micro_batches=2, activation=1.0, sends_block=blocks)
        assert compared("gpipe", setting, choice).outcome.wall_s == pytest.approx(seconds)


def test_the_command_says_what_was_predicted_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = Fake(tmp_path)
    monkeypatch.setattr(simulate_validate, "launchers", lambda: fake.both)
    picture = tmp_path / "picture.png"
    simulate_validate.validate(["sign", "membership"], tmp_path, 0, picture, True)
    found = json.loads(capsys.readouterr().out)
    assert [run["method"] for run in found["runs"]] == ["sign", "sign", "membership"]
    assert all(run["predicted_s"] > 0 and run["measured_s"] == pytest.approx(0.2) for run in found["runs"])
    assert picture.stat().st_size > 5000
    simulate_validate.validate(["sign", "membership"], tmp_path, 0, None, False)
    said = capsys.readouterr().out
    assert "sign, slow links" in said
    assert "geometric mean of the errors" in said
    assert "sign: the time to encode and decode is left out" in said
    with pytest.raises(UsageError, match="sync_sgd has no run for --validate"):
        simulate_validate.validate(["sync_sgd"], tmp_path, 0, None, False)
