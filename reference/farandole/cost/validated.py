"""`farandole simulate --validate`: calibrate, predict all runs, and measure each. One launch at a time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from farandole.cost import calibrated, failing_runs
from farandole.cost.calibrated import CALIBRATIONS, Calibrated
from farandole.cost.failing_runs import FAILING, FailingCase
from farandole.cost.predicted_first import Compared, Measurement, Prediction, measured, predictions
from farandole.cost.validated_runs import CONDITIONS, EVEN, WORKERS, Case, cases
from farandole.errors import LaunchError
from farandole.runtime.record import Run

FAILURE = "a rank killed"
TIMEOUT_S = 120.0


class Launcher(Protocol):
    """`launching.launch`, or `supervised_launch`."""

    def __call__(self, scenario: str, ranks: int, *, timeout_s: float, **options: Any) -> Run: ...


@dataclass(frozen=True)
class Launchers:
    """The functions that start ranks, which a test replaces."""

    once: Launcher
    supervised: Launcher


Row = tuple[str, Case | FailingCase, str]  # its name, what runs, its condition


def rows_of(methods: Collection[str]) -> list[Row]:
    """Return the runs of these methods, in the order of the table; none: those of all."""
    found: list[Row] = []
    for case in cases():
        if not methods or case.method in methods:
            title = f"{case.method} {case.variant}".strip()
            found += [(f"{title}, {condition}", case, condition) for condition in case.conditions]
    failing = [each for each in FAILING if not methods or each.method in methods]
    return found + [(f"{each.method}, {FAILURE}", each, FAILURE) for each in failing]


def validate(
    methods: Collection[str],
    folder: Path,
    seed: int,
    starts: Launchers,
    says: Callable[[str], None] = lambda line: None,
) -> Iterator[Compared]:
    """Predict all runs of `methods`, write the predictions, and then measure run after run.

    Raises:
        UsageError: as `predicted_first`.
        LaunchError: a run failed; finished ones are kept.
    """
    rows = rows_of(methods)
    names = [name for name, _, _ in rows]
    made = predictions(names, seed, folder, lambda: _predicted(rows, folder, seed, starts, says))
    by_name = {name: (case, condition) for name, case, condition in rows}

    def begins(row: Prediction) -> None:
        says(f"validate: {row.name} ({names.index(row.name) + 1} of {len(names)}) …")

    yield from measured(made, folder, lambda row: _measured(*by_name[row.name], seed, starts), begins)


def _predicted(
    rows: Sequence[Row], folder: Path, seed: int, starts: Launchers, says: Callable[[str], None]
) -> tuple[list[Prediction], dict[str, Any]]:
    records = folder / "calibration"
    shutil.rmtree(records, ignore_errors=True)  # of a command that was ended before it predicted
    failing = [case for _, case, _ in rows if isinstance(case, FailingCase)]
    needed = {case.calibration for _, case, _ in rows if isinstance(case, Case)} | {"ring"}
    found: dict[str, Calibrated] = {}
    for name, of in CALIBRATIONS.items():
        if name in needed:
            says(f"validate: calibration by {name} …")
            runs = [
                starts.once(of.scenario, of.ranks, timeout_s=TIMEOUT_S, out=records / f"{name}-{number}", seed=seed,
                            **dict(options) | of.options)
                for number, options in enumerate(of.runs)
            ]  # fmt: skip
            found[name] = calibrated.calibrated(of, runs, None if of.gives == "α and β" else found["ring"])
    ring = next(case for case in cases() if case.method == "ring")
    step_s = calibrated.predicted_s(ring, EVEN, found["ring"], seed)
    pauses = {case.calibration: _pause_s(case, records, seed, starts, step_s, says) for case in failing}
    made = []
    for name, case, condition in rows:
        if isinstance(case, FailingCase):
            seconds = failing_runs.predicted_s(case, step_s, pauses[case.calibration])
            rests = (*_records("ring"), case.calibration)
            about = case.method, condition, case.method, WORKERS, seconds
            made.append(Prediction(name, *about, rests, options=failing_runs.options_of(case)))
        else:
            seconds = calibrated.predicted_s(case, condition, found[case.calibration], seed)
            rests = tuple(dict.fromkeys((*_records(case.calibration), *_records("ring", case.calibration))))
            about = case.method, condition, case.scenario, case.ranks, seconds
            made.append(Prediction(name, *about, rests, case.note, _options(case, condition)))
    return made, {"calibrations": {name: each.to_dict() for name, each in found.items()}, "pauses_s": pauses}


def _records(name: str, borrower: str = "") -> tuple[str, ...]:
    """Return the records of a calibration; with a borrower, only if that takes β from this one."""
    if borrower and CALIBRATIONS[borrower].gives == "α and β":
        return ()
    return tuple(f"{name}-{number}" for number in range(len(CALIBRATIONS[name].runs)))


def _pause_s(
    case: FailingCase, records: Path, seed: int, starts: Launchers, step_s: float, says: Callable[[str], None]
) -> float:
    """Measure the pause after a kill, by a run of another method."""
    says(f"validate: calibration by a {case.calibration} …")
    method = case.calibration.split()[-1]
    out = records / case.calibration.replace(" ", "-")
    other = next((each for each in FAILING if each.method == method), FailingCase(method, {}, "", 0))
    start = time.perf_counter()
    try:
        run = starts.once(method, WORKERS, timeout_s=TIMEOUT_S, out=out, seed=seed, **failing_runs.options_of(other))
    except LaunchError:
        return failing_runs.starting_s(time.perf_counter() - start, step_s)
    return failing_runs.regrouping_s(run, step_s)


def _options(case: Case, condition: str) -> dict[str, Any]:
    """Return the options of a run."""
    return dict(case.options) | {"steps": case.steps} | CONDITIONS[condition].options(case.first_worker)


def _measured(case: Case | FailingCase, condition: str, seed: int, starts: Launchers) -> Measurement:
    with TemporaryDirectory(prefix="farandole-validate-") as folder:
        began, out = time.time(), Path(folder) / "run"
        if isinstance(case, FailingCase):
            launch = starts.supervised if case.replaced else starts.once
            run = launch(case.method, WORKERS, timeout_s=TIMEOUT_S, out=out, seed=seed, **failing_runs.options_of(case))
            return Measurement(run.summary.wall_s / run.summary.steps, began)
        options = _options(case, condition)
        run = starts.once(case.scenario, case.ranks, timeout_s=TIMEOUT_S, out=out, seed=seed, **options)
        return Measurement(calibrated.measured_s(run), began, calibrated.encoding_s(run))
