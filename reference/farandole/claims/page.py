"""The documentation's page of all claims, written from kept results."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from farandole.claims import table
from farandole.claims.claim import KINDS, Verdict
from farandole.claims.results import Result, kept
from farandole.errors import UsageError

INTRODUCTION = """\
# Published results

What papers claim, and what we measure here. Each row is one claim: where a paper says it, how it is run here, the
figures that were measured, and a verdict. The verdict follows from the figures by a rule that stands with the row; no
figure and no verdict on this page is typed by hand. Some rows were changed after a first run, most of them because too
few steps or samples could not test the claim. Each of these says what was changed and, if the verdict has changed, the
earlier one. Reasons for a difference are explanations; few of them were tested by a further run. Rows on real ranks
have one or two seeds, so half a point of accuracy is noise. The page is written by

```
farandole reproduce all --out docs/published_results --page docs/published_results.md
```

`farandole reproduce` lists the rows, and `farandole reproduce gpipe-bubble` runs one and prints its figures, its rule
and its verdict. `make reproduce` runs all of them. Finished rows are kept in the folder, so a run that was interrupted
goes on where it was.

- **holds**: all conditions of the rule are met.
- **partly holds**: the core conditions, in bold type below, are met, and another one is not.
- **does not hold**: a core condition is not met. The setting here is never the paper's: the reason says whether it is
  the setting, the method as it stands here, or the claim.

How a row is run:

"""


def write_page(folder: Path, page: Path) -> None:
    """Write the page of all results in `folder`.

    Raises:
        UsageError: a claim has no result there, or the page cannot be written.
    """
    found = {name: kept(claim, folder) for name, claim in table.CLAIMS.items()}
    lacking = [name for name, result in found.items() if result is None]
    if lacking:
        raise UsageError(
            f"--page {page} needs all rows, and {folder} lacks {', '.join(lacking[:3])}"
            f"{f' and {len(lacking) - 3} more' if len(lacking) > 3 else ''}: farandole reproduce all --out {folder}"
        )
    results = {name: result for name, result in found.items() if result}
    try:
        page.write_text(text(results, Path(os.path.relpath(folder, page.parent))), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--page {page} cannot be written ({error.strerror}): give another") from error


def text(results: dict[str, Result], pictures: Path) -> str:
    """Return the page.

    Args:
        pictures: the folder of the pictures, from the page's.
    """
    counts: Counter[Verdict] = Counter(result.verdict for result in results.values())
    parts = [INTRODUCTION + "\n".join(f"- {kind}: {about}." for kind, about in KINDS.items())]
    total = f"{counts['holds']} hold, {counts['partly holds']} hold partly and {counts['does not hold']} do not hold"
    parts.append(f"## All rows\n\nOf {len(results)} claims {total}.\n")
    rows = [("claim", "source", "run as", "verdict")]
    for name, result in results.items():
        source = result.claim.source
        rows.append((f"[{name}](#{name})", f"{source.authors} {source.year}", result.claim.kind, result.verdict))
    parts[-1] += "\n" + _markdown(rows)
    for theme, claims in table.THEMES.items():
        parts.append(f"## {theme}")
        parts += [_row(results[claim.name], pictures) for claim in claims]
    return "\n\n".join(parts) + "\n"


def _row(result: Result, pictures: Path) -> str:
    """Return the section of one claim."""
    claim, figures = result.claim, result.measured.figures
    conditions = [("condition", "figure", "measured", "met")]
    for bound in claim.rule:
        says = f"**{bound.says}**" if bound.core else bound.says
        met = "yes" if bound.is_met(figures) else "no"
        conditions.append((says, bound.figure, number(figures.get(bound.figure)), met))
    judged = {bound.figure for bound in claim.rule}
    others = [f"{name}: {number(value)}" for name, value in figures.items() if name not in judged]
    parts = [
        f"({claim.name})=\n\n### {claim.name}: {result.verdict}",
        f"{claim.source}. Method: `{claim.module}`.",
        f"**Claim.** {claim.says}",
        f"**Here**, {claim.kind}: {_sentence(claim.setting)}",
        _markdown(conditions),
    ]
    if others:
        parts.append(f"Also measured: {'; '.join(others)}.")
    if reasons := result.reasons:
        parts.append(f"**Why it differs.** {' '.join(map(_sentence, reasons))}")
    if claim.revised:
        parts.append(f"**Changed after a first run.** {_sentence(claim.revised)}")
    if result.measured.picture:
        parts.append(f"![{claim.name}: {result.measured.picture.y}]({pictures / claim.name}.png)")
    return "\n\n".join(parts)


def number(value: float | None) -> str:
    """Return a figure as the page and the command print it; of none, a dash."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 1e5 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
