"""``farandole reproduce``: what papers claim, measured here, each with a verdict by a rule."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Column, Table

from farandole.errors import LaunchError, UsageError
from farandole.runtime import choices
from farandole.runtime.files import json_text

if TYPE_CHECKING:
    from farandole.claims.claim import Claim
    from farandole.claims.results import Result

FOLDER = Path("runs") / "reproduce"
WIDTH = 100


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Where results are kept, and in what form they are shown."""

    out: Path = FOLDER
    """Folder of the results. Rows that are finished there are not run again."""

    again: Annotated[bool, Parameter(negative="")] = False
    """Run finished rows again, too."""

    page: Path | None = None
    """Write the page of all rows into this Markdown file. Without names nothing is run before."""

    json: Annotated[bool, Parameter(negative="")] = False
    """Print the rows as JSON, and nothing else."""


def reproduce(*names: str, options: ReproduceOptions | None = None) -> None:
    """Run rows of published results: the claim, what is measured here, and a verdict by the row's own rule.

    Without a name the rows are listed. farandole reproduce gpipe-bubble ring-bandwidth

    Args:
        names: rows, or all.
    """
    from farandole.claims import page, results, table

    options = options or ReproduceOptions()
    claims = table.chosen(names)
    if not names and not options.page:
        if options != ReproduceOptions(json=options.json):
            raise UsageError("name what to run: farandole reproduce NAME, or all; without a name the rows are listed")
        _list(list(table.CLAIMS.values()), options.json)
        return
    if options.page and not options.page.parent.is_dir():
        raise UsageError(f"--page {options.page} cannot be written (No such file or directory): give another")
    found, failed = [], []

    def fails(claim: Claim, error: LaunchError) -> None:
        failed.append(claim.name)
        choices.advise(f"{claim.name} has no result: {error}")

    def begins(claim: Claim) -> None:
        if not options.json:
            left = f"{claims.index(claim) + 1} of {len(claims)}"
            print(f"reproduce: {claim.name} ({left}, {claim.kind}, about {claim.seconds:g} s) …", flush=True)

    try:
        for result in results.run(claims, options.out, options.again, begins, fails):
            found.append(result)
            if not options.json:
                print(described(result), flush=True)
    except KeyboardInterrupt:
        choices.advise(f"finished rows are kept in {options.out}: the same command goes on from there")
        raise
    if options.page and not failed:
        page.write_page(options.out, options.page)
    if options.json:
        print(json_text([result.to_dict() for result in found], indent=2))
    elif len(found) > 1:
        _summarise(found, options.out)
    if failed:
        raise LaunchError(f"trainings of {', '.join(failed)} failed; the other rows are kept in {options.out}", 1, "")


def described(result: Result) -> str:
    """Return the text of one result: claim, setting, figures, rule and verdict."""
    from farandole.claims.page import number

    claim, figures = result.claim, result.measured.figures
    lines = [f"\n{claim.name}: {result.verdict}", f"  {claim.source}"]
    for word, said in (("claim", claim.says), ("here", f"{claim.kind}: {claim.setting}")):
        lines += textwrap.wrap(said, WIDTH, initial_indent=f"  {word:9}", subsequent_indent=" " * 11)
    judged = {bound.figure for bound in claim.rule}
    for bound in claim.rule:
        met = "met" if bound.is_met(figures) else "not met"
        kind = f"{met}, core" if bound.core else met
        lines.append(f"  {'rule':9}{bound.says}: {number(figures.get(bound.figure))} [{kind}] ({bound.figure})")
    lines += [f"  {'also':9}{name}: {number(value)}" for name, value in figures.items() if name not in judged]
    for reason in result.reasons:
        lines += textwrap.wrap(reason, WIDTH, initial_indent=f"  {'why':9}", subsequent_indent=" " * 11)
    if claim.revised:
        said = f"after a first run: {claim.revised}"
        lines += textwrap.wrap(said, WIDTH, initial_indent=f"  {'changed':9}", subsequent_indent=" " * 11)
    return "\n".join(lines)


def _list(claims: list[Claim], as_json: bool) -> None:
    if as_json:
        rows = [{"name": claim.name, "source": str(claim.source), "kind": claim.kind, "seconds": claim.seconds}
                for claim in claims]  # fmt: skip
        print(json_text(rows, indent=2))
        return
    shown = Table(Column("name", no_wrap=True), "paper", "run as", Column("about", justify="right"), box=None)
    for claim in claims:
        shown.add_row(claim.name, f"{claim.source.authors} {claim.source.year}", claim.kind, f"{claim.seconds:g} s")
    Console().print(shown)
    print(f"\n{len(claims)} rows: farandole reproduce NAME, or all", file=sys.stdout)


def _summarise(found: list[Result], folder: Path) -> None:
    shown = Table(Column("name", no_wrap=True), "run as", Column("verdict", no_wrap=True), box=None)
    for result in found:
        shown.add_row(result.claim.name, result.claim.kind, result.verdict)
    print()
    Console().print(shown)
    counts = Counter(result.verdict for result in found)
    print(f"\n{', '.join(f'{count} × {each}' for each, count in counts.items())}; figures and pictures: {folder}")
