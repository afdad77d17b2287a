"""``farandole simulate --map``: the fastest method by bandwidth and scatter, in one piece or combined from parts.

``--map --json`` prints a part: the methods, the setting, and for each bandwidth and scatter the method that reaches the
loss first. Each element of an array job makes one part (slurm/simulate_map.sbatch).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from farandole.cli.pictures import check, save
from farandole.cli.simulate_progress import simulated
from farandole.errors import UsageError
from farandole.runtime.files import json_text

if TYPE_CHECKING:
    from farandole.cost.choice import Choice
    from farandole.cost.setting import Setting

FILE = Path("map.png")
WIDE = 160  # columns in a file, such as a job's output
SIGMAS = (0.1, 0.25, 0.5, 0.75, 1.0)
Winners = Mapping[tuple[float, float], str]  # (Gbit/s, sigma) → method; "": none has reached the loss


def draw(
    methods: Sequence[str], setting: Setting, choice: Choice, gbps: Sequence[float], file: Path | None, as_json: bool
) -> None:
    """Simulate all methods at each bandwidth and scatter, and show the winners.

    Args:
        file: of the picture; None: the usual one, and none at all if JSON is printed.
    """
    file = file or (None if as_json else FILE)
    if file:
        check(file)
    places = [(rate, sigma) for rate in gbps for sigma in SIGMAS]
    rows = simulated([(method, _at(setting, *place)) for place in places for method in methods], choice)
    winners: dict[tuple[float, float], str] = {}
    for place in places:
        times = {method: row.outcome.to_loss_s for method, row in zip(methods, rows, strict=False)}
        reached = {method: seconds for method, seconds in times.items() if seconds is not None}
        winners[place] = min(reached, key=reached.__getitem__, default="")
    title = f"{setting.workers} workers, {setting.nbytes / 1e6:g} MB, {setting.compute_s * 1e3:g} ms a step"
    title += f", network {setting.network.text}" if setting.network else ""
    _show(winners, methods, title, file, as_json)


def _at(setting: Setting, gbps: float, sigma: float) -> Setting:
    """Return the setting at one place of the map."""
    from farandole.cost.failures import Failing
    from farandole.cost.stragglers import LogNormal, Straggler

    scatter: Straggler = LogNormal(sigma)
    if isinstance(setting.straggler, Failing):
        scatter = replace(setting.straggler, straggler=scatter)
    return replace(setting, link=replace(setting.link, beta=8 / (gbps * 1e9)), straggler=scatter)


def collect(parts: Sequence[Path], file: Path, as_json: bool) -> None:
    """Put the parts of a map together.

    Raises:
        UsageError: a file is no part of a map, or of another one than the first.
    """
    check(file)
    read = [_part(path) for path in parts]
    methods, title = read[0]["methods"], read[0]["title"]
    winners: dict[tuple[float, float], str] = {}
    for path, part in zip(parts, read, strict=True):
        if (part["methods"], part["title"]) != (methods, title):
            raise UsageError(
                f"{path} is of another map than {parts[0]} ({part['title']}, not {title}): collect parts of one"
            )
        winners |= {(place["link_gbps"], place["sigma"]): place["method"] or "" for place in part["map"]}
    missing = [f"{gbps:g} Gbit/s and {sigma:g}" for gbps in sorted({place[0] for place in winners})
               for sigma in sorted({place[1] for place in winners}) if (gbps, sigma) not in winners]  # fmt: skip
    if missing:
        raise UsageError(f"the parts leave out {missing[0]}: all need the same scatters")
    _show(winners, methods, title, file, as_json)


def _part(path: Path) -> dict[str, Any]:
    """
    Raises:
        UsageError: it is none.
    """
    wrong = f"{path} is no part of a map: give files that farandole simulate --map --json has printed"
    try:
        part = json.loads(path.read_text(encoding="utf-8"))
        found = {key: part[key] for key in ("methods", "title", "map")}
        assert all(place.keys() == {"link_gbps", "sigma", "method"} for place in found["map"])
        assert found["map"]
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): give a part of a map") from error
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise UsageError(wrong) from error
    return found


def _show(winners: Winners, methods: Sequence[str], title: str, file: Path | None, as_json: bool) -> None:
    if file:
        from farandole.report import cost_picture

        save(file, lambda: cost_picture.draw_map(winners, methods, file, title, "first to the loss"))
    if as_json:
        found = [{"link_gbps": gbps, "sigma": sigma, "method": name or None} for (gbps, sigma), name in winners.items()]
        print(json_text({"title": title, "methods": list(methods), "map": found}, indent=2))
        return
    print(f"first to the loss: {title}; Gbit/s across, scatter down")
    console = Console()
    Console(width=console.width if console.is_terminal else WIDE).print(_table(winners))
    print(f"the picture: {file}")


def _table(winners: Winners) -> Table:
    """Return a row per scatter, a column per bandwidth."""
    table = Table(box=None, pad_edge=False)
    speeds, sigmas = (sorted({place[axis] for place in winners}) for axis in (0, 1))
    table.add_column("sigma", justify="right")
    for gbps in speeds:
        table.add_column(f"{gbps:g}")
    for sigma in reversed(sigmas):
        table.add_row(f"{sigma:g}", *(winners[gbps, sigma] or "none" for gbps in speeds))
    return table
