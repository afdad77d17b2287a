"""Measured results, kept in a folder: one file for each claim, so that a run that was interrupted goes on.

    FOLDER/NAME.json    figures, curves, seconds, the versions of what computed
    FOLDER/NAME.png     the curves, where there are any

Only what was measured is kept. The verdict follows from it by the claim's present rule each time it is read.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from farandole import __version__
from farandole.claims.claim import Claim, Measured, Picture, Verdict, not_met, verdict
from farandole.errors import LaunchError, UsageError
from farandole.runtime.files import json_text, read_object, write

REMEDY = "remove it, and it is measured again"


@dataclass(frozen=True)
class Result:
    """One claim with what was measured for it.

    Attributes:
        seconds: how long that took.
        machine: what it ran on, and the version of this package.
    """

    claim: Claim
    measured: Measured
    seconds: float
    machine: dict[str, str]

    @property
    def verdict(self) -> Verdict:
        return verdict(self.claim.rule, self.measured.figures)

    @property
    def reasons(self) -> list[str]:
        """Return why the bounds that are not met are not, each reason once."""
        unmet = not_met(self.claim.rule, self.measured.figures)
        return list(dict.fromkeys(bound.otherwise or "no reason is known" for bound in unmet))

    def to_dict(self) -> dict[str, Any]:
        """Return the claim, the measured figures, the rule and the verdict, as --json prints them."""
        claim, figures = self.claim, self.measured.figures
        rule = [asdict(bound) | {"value": figures.get(bound.figure), "met": bound.is_met(figures)}
                for bound in claim.rule]  # fmt: skip
        return {
            "name": claim.name, "source": str(claim.source), "claim": claim.says, "kind": claim.kind,
            "setting": claim.setting, "seconds": self.seconds, "figures": dict(figures), "rule": rule,
            "verdict": self.verdict, "reasons": self.reasons, "revised": claim.revised, "machine": self.machine,
        }  # fmt: skip


def run(
    claims: Sequence[Claim],
    folder: Path,
    again: bool = False,
    begins: Callable[[Claim], None] = lambda claim: None,
    fails: Callable[[Claim, LaunchError], None] | None = None,
) -> Iterator[Result]:
    """Measure the claims one after the other, and keep each result in `folder`; what is kept there is not measured.

    Args:
        again: measure what is kept, too.
        begins: is called before a claim is measured.
        fails: is called if a training of a claim fails, and the next claim follows; None: the error is raised.

    Raises:
        UsageError: the folder cannot be written, or a kept file is damaged.
        LaunchError: a training failed, and `fails` is not given.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {folder} cannot be written ({error.strerror}): give another") from error
    for claim in claims:
        if not again and (result := kept(claim, folder)):
            yield result
            continue
        begins(claim)
        start = time.perf_counter()
        try:
            measured = claim.measure()
        except LaunchError as error:
            if fails is None:
                raise
            fails(claim, error)
            continue
        result = Result(claim, measured, round(time.perf_counter() - start, 2), _machine())
        _keep(result, folder)
        yield result


def kept(claim: Claim, folder: Path) -> Result | None:
    """Return the claim's result from `folder`; None: it is not there, or lacks a figure of the present rule.

    Raises:
        UsageError: its file is damaged.
    """
    file = folder / f"{claim.name}.json"
    if not file.exists():
        return None
    values = read_object(file, REMEDY)
    try:
        figures, seconds, machine = dict(values["figures"]), float(values["seconds"]), dict(values["machine"])
        picture = Picture(**values["picture"]) if values.get("picture") else None
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{file} is damaged (it is not a result): {REMEDY}") from error
    if any(bound.figure not in figures for bound in claim.rule):
        return None
    return Result(claim, Measured(figures, picture), seconds, machine)


def _keep(result: Result, folder: Path) -> None:
    """Write the picture, and then the file whose presence says that the row is finished."""
    file = folder / f"{result.claim.name}.json"
    picture = result.measured.picture
    values = {
        "name": result.claim.name, "figures": dict(result.measured.figures), "seconds": result.seconds,
        "machine": result.machine, "picture": asdict(picture) if picture else None,
    }  # fmt: skip
    try:
        if picture:
            from farandole.report.lines_picture import draw

            draw(file.with_suffix(".png"), picture.x, picture.y, picture.lines, picture.published, picture.log)
        write(file, json_text(values, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"--out {folder} cannot be written ({error.strerror}): give another") from error


def _machine() -> dict[str, str]:
    return {"farandole": __version__, "python": platform.python_version(), "cores": str(os.cpu_count())}
