"""``farandole draw zero`` and ``diloco``: what happens when in a training's steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import cyclopts
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from farandole.cli.pictures import save
from farandole.errors import UsageError
from farandole.runtime.numbers import AtLeastOne, NotNegative, Positive


def add_to(app: cyclopts.App) -> None:
    """Add the commands to ``farandole draw``."""
    app.command(_zero, name="zero")
    app.command(_diloco, name="diloco")


def _zero(
    *,
    stage: Literal[1, 2, 3] = 3,
    units: AtLeastOne = 4,
    accumulate: AtLeastOne = 1,
    prefetch: Annotated[bool, Parameter(negative="")] = False,
    collective: Positive = 1.0,
    out: Path | None = None,
) -> None:
    """Draw what a rank computes and communicates in a step of ZeRO, unit by unit.

    Args:
        stage: as of `farandole run sharded`.
        units: parts of the model that are gathered together.
        accumulate: micro-batches.
        prefetch: stage 3 gathers a unit while the one before it computes.
        collective: time of a collective, in forward passes of a unit; a backward pass takes two.
        out: the picture, a .png, .svg or .pdf. [default: as zero-3-4x1.png, in the current folder]
    """
    from farandole.cost.sharding import timeline
    from farandole.report import steps_picture
    from farandole.sharded.steps import halves, steps

    if prefetch and stage < 3:
        raise UsageError(f"--prefetch is for --stage 3: with --stage {stage} the parameters are on every rank")
    seconds = {"forward": 1.0, "backward": 2.0, "gather": collective, "reduce": collective}
    spans = list(timeline(list(steps(stage, units, accumulate)), seconds, prefetch))
    name = f"zero-{stage}-{units}x{accumulate}{'-prefetch' if prefetch else ''}.png"
    file = out or Path(name)
    title = f"ZeRO, stage {stage}{', prefetch' if prefetch else ''}"
    save(file, lambda: steps_picture.sharded(spans, title).savefig(file, dpi=120))
    table = Table("collective", "how often")
    for kind in ("gather", "reduce"):
        table.add_row(kind, str(sum(span.step.kind == kind for span in spans)))
    Console().print(table)
    print(f"a rank sends {halves(stage, accumulate)}·(N−1)/N of the parameters' bytes; data parallel: 2·(N−1)/N")
    end, computing = max(span.end for span in spans), 3 * units * accumulate
    print(f"a step takes {end:g} forward passes of a unit, {computing} of them for its computations")
    print(f"the picture: {file}")


def _diloco(
    *,
    steps: AtLeastOne = 24,
    period: AtLeastOne = 8,
    fragments: AtLeastOne = 1,
    delay: NotNegative = 0,
    out: Path | None = None,
) -> None:
    """When DiLoCo's ranks average what they have moved, fragment by fragment, and take the outer step.

    Args:
        steps: inner steps of the training.
        period: inner steps from one outer step of a fragment to the next.
        fragments: into how many the parameters are cut; more than 1: streaming DiLoCo.
        delay: inner steps while a fragment's average is on its way.
        out: the picture, a .png, .svg or .pdf. [default: as diloco-8x4x2.png, in the current folder]
    """
    from farandole.data_parallel.outer_step import Outer
    from farandole.report import steps_picture

    outer = Outer(period, lr=0.7, momentum=0.9, fragments=fragments, delay=delay)  # the rates change no time
    file = out or Path(f"diloco-{period}x{fragments}x{delay}.png")
    save(file, lambda: steps_picture.outer(outer, steps).savefig(file, dpi=120))
    table = Table("fragment", "sent after steps", "outer step after steps")
    for fragment in range(fragments):
        sent = [step for step in range(1, steps + 1) if outer.sends(fragment, step)]
        after = [min(step + delay, steps) for step in sent]
        table.add_row(str(fragment), *(" ".join(map(str, each)) for each in (sent, after)))
    Console().print(table)
    messages = "1 message of all parameters" if fragments == 1 else f"{fragments} messages of 1/{fragments} of them"
    print(f"a rank sends 1/{period} of synchronous SGD's bytes, in {messages} a period")
    print(f"the picture: {file}")
