"""``farandole simulate --validate``: the simulator against real runs, each predicted before it is measured."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Column, Table

from farandole.cli.pictures import check, save
from farandole.errors import UsageError
from farandole.runtime import choices
from farandole.runtime.files import json_text

if TYPE_CHECKING:
    from farandole.cost.predicted_first import Compared
    from farandole.cost.validated import Launchers

WIDE = 120  # columns in a file


def launchers() -> Launchers:
    """Return what starts the ranks, which a test replaces."""
    from farandole import launching
    from farandole.cost.failing_runs import BACKOFF_S
    from farandole.cost.validated import Launchers
    from farandole.runtime import rank_starter

    rank_starter.prepare("farandole.cost.paced_task")
    again = partial(launching.supervised_launch, backoff_s=BACKOFF_S, announce=lambda line: None)
    return Launchers(launching.launch, again)


def validate(methods: Collection[str], folder: Path, seed: int, picture: Path | None, as_json: bool) -> None:
    """Predict, measure, and print both with the errors.

    Raises:
        UsageError: a method that has no run here.
        LaunchError: a run failed; those before are kept.
    """
    from farandole.cost import validated
    from farandole.cost.predicted_first import FILE, largest, mean_error
    from farandole.cost.validated_runs import NOT_COMPARED

    known = {case.method for _, case, _ in validated.rows_of(())}
    for method in methods:
        if method not in known:
            reason = NOT_COMPARED.get(method, f"choose from {', '.join(sorted(known))}")
            raise UsageError(f"{method} has no run for --validate: {reason}")
    if picture:
        check(picture)
    says = (lambda line: None) if as_json else (lambda line: print(line, flush=True))
    try:
        rows = list(validated.validate(methods, folder, seed, launchers(), says))
    except KeyboardInterrupt:
        choices.advise(f"finished runs are kept in {folder}: the same command goes on from there")
        raise
    worst = largest(rows)
    if as_json:
        figures = {"geometric_mean_error": mean_error(rows), "largest_error": worst.ratio - 1,
                   "largest_error_of": worst.prediction.name, "not_compared": NOT_COMPARED}  # fmt: skip
        print(json_text({"runs": [row.to_dict() for row in rows], **figures}, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else WIDE).print(_table(rows))
        print(f"{len(rows)} runs, all predicted before the first was measured ({folder / FILE})")
        print(f"geometric mean of the errors {mean_error(rows):.1%}, largest {worst.ratio - 1:+.1%} "
              f"({worst.prediction.name})")  # fmt: skip
        for note, of in _notes(rows).items():
            print(f"{', '.join(of)}: {note}")
        for method, reason in NOT_COMPARED.items():
            print(f"{method} is not compared: {reason}")
    if picture:
        _draw(rows, picture)
        if not as_json:
            print(f"the picture: {picture}")


def _table(rows: Sequence[Compared]) -> Table:
    right = {"justify": "right", "no_wrap": True}
    shown = Table(
        Column("method", no_wrap=True), Column("ranks", **right), Column("predicted, ms", **right),  # type: ignore[arg-type]
        Column("measured, ms", **right), Column("error", **right), Column("encoding, ms", **right), box=MARKDOWN,  # type: ignore[arg-type]
    )  # fmt: skip
    for row in rows:
        prediction, measurement = row.prediction, row.measurement
        encoding = f"{1e3 * measurement.encoding_s:.1f}" if measurement.encoding_s else ""
        shown.add_row(
            prediction.name, str(prediction.ranks), f"{1e3 * prediction.predicted_s:.1f}",
            f"{1e3 * measurement.measured_s:.1f}", f"{row.ratio - 1:+.1%}", encoding,
        )  # fmt: skip
    return shown


def _notes(rows: Sequence[Compared]) -> dict[str, list[str]]:
    """Return each note with the methods that it is for."""
    found: dict[str, list[str]] = {}
    for row in rows:
        prediction = row.prediction
        if prediction.note and prediction.method not in found.setdefault(prediction.note, []):
            found[prediction.note].append(prediction.method)
    return found


def _draw(rows: Sequence[Compared], picture: Path) -> None:
    from farandole.report.validation_picture import draw

    by_condition: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        point = 1e3 * row.measurement.measured_s, 1e3 * row.prediction.predicted_s
        by_condition.setdefault(row.prediction.condition, []).append(point)
    save(picture, lambda: draw(picture, by_condition))
