"""Predict, write it down, and only then measure: the order of `farandole simulate --validate`.

    FOLDER/calibration/      the records of the runs from which is predicted
    FOLDER/predictions.json  all predictions, with their calibrations, seed and time; complete before a run is measured
    FOLDER/results/NAME.json one measured run each; a run that is there is not repeated

Predictions that have a result are never replaced: another set of methods or another seed needs another folder.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import exp, log
from pathlib import Path
from typing import Any

from farandole import __version__
from farandole.errors import UsageError
from farandole.runtime.files import json_text, read_object, write

FILE, RESULTS = "predictions.json", "results"
REMEDY = "give another --folder, or remove this one"


@dataclass(frozen=True)
class Prediction:
    """One run that is to be measured.

    Attributes:
        predicted_s: seconds in which each worker gives one gradient, on average.
        calibration: the names of the records on which it rests.
        note: what the comparison leaves out; "": nothing is known.
        options: of the scenario.
    """

    name: str
    method: str
    condition: str
    scenario: str
    ranks: int
    predicted_s: float
    calibration: tuple[str, ...]
    note: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """The time that the run of a prediction has taken.

    Attributes:
        began: when it was started, in seconds since 1970.
        encoding_s: of that, to encode and decode, which the prediction leaves out.
    """

    measured_s: float
    began: float
    encoding_s: float = 0.0


@dataclass(frozen=True)
class Compared:
    """A prediction beside its measurement."""

    prediction: Prediction
    measurement: Measurement

    @property
    def ratio(self) -> float:
        """Return predicted over measured."""
        return self.prediction.predicted_s / self.measurement.measured_s

    def to_dict(self) -> dict[str, Any]:
        return asdict(self.prediction) | asdict(self.measurement) | {"error": self.ratio - 1}


def predictions(
    names: Sequence[str], seed: int, folder: Path, predict: Callable[[], tuple[list[Prediction], dict[str, Any]]]
) -> list[Prediction]:
    """Return the predictions in `folder`; if there are none, make them and write them.

    Args:
        names: of the runs that are to be predicted.
        predict: returns all predictions, and what they rest on, for the file.

    Raises:
        UsageError: the folder has results for other predictions, cannot be written, or its file is damaged.
    """
    file = folder / FILE
    if file.exists():
        kept = read_object(file, REMEDY)
        try:
            found = [Prediction(**row | {"calibration": tuple(row["calibration"])}) for row in kept["predictions"]]
            if [row.name for row in found] == list(names) and kept["seed"] == seed:
                return found
        except (KeyError, TypeError) as error:
            raise UsageError(f"{file} is damaged (it has no predictions): {REMEDY}") from error
    if any((folder / RESULTS).glob("*.json")):
        raise UsageError(f"{folder} has results for other predictions, which are not replaced: {REMEDY}")
    made, rests_on = predict()
    assert [row.name for row in made] == list(names), "every run is predicted before one is measured"
    machine = {"farandole": __version__, "python": platform.python_version(), "cores": str(os.cpu_count())}
    values = {"predicted": time.time(), "seed": seed, "machine": machine, **rests_on}
    _write(file, values | {"predictions": [asdict(row) for row in made]})
    return made


def measured(
    rows: Sequence[Prediction],
    folder: Path,
    measure: Callable[[Prediction], Measurement],
    begins: Callable[[Prediction], None] = lambda row: None,
) -> Iterator[Compared]:
    """Measure the predicted runs one after the other, and keep each; what is kept is not measured.

    Raises:
        UsageError: the predictions are not in the folder, a kept result is damaged, or one cannot be written.
    """
    if not (folder / FILE).exists():
        raise UsageError(f"{folder} has no {FILE}: nothing is measured before it is predicted")
    for row in rows:
        file = folder / RESULTS / f"{re.sub('[^a-z0-9]+', '-', row.name)}.json"
        if file.exists():
            try:
                measurement = Measurement(**read_object(file, "remove it, and it is measured again"))
            except TypeError as error:
                raise UsageError(f"{file} is damaged (it is no result): remove it") from error
        else:
            begins(row)
            measurement = measure(row)
            _write(file, asdict(measurement))
        yield Compared(row, measurement)


def mean_error(rows: Sequence[Compared]) -> float:
    """Return the geometric mean of the errors, exp(mean of |ln(predicted/measured)|) − 1."""
    return exp(sum(abs(log(row.ratio)) for row in rows) / len(rows)) - 1


def largest(rows: Sequence[Compared]) -> Compared:
    """Return the row whose prediction is furthest off, by the same measure."""
    return max(rows, key=lambda row: abs(log(row.ratio)))


def _write(file: Path, values: dict[str, Any]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, json_text(values, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"{file} cannot be written ({error.strerror}): give another --folder") from error
