"""``farandole show RUN``: a record as tables and pictures."""

from __future__ import annotations

from pathlib import Path

from farandole.report import table
from farandole.runtime.record import Run


def show(run: Path) -> None:
    """Print a run's tables and draw timeline.png, curves.png and, of a pipeline, pipeline.png into its folder.

    Args:
        run: the run's folder.
    """
    from farandole.report import curves, pipeline_picture, timeline

    record = Run.open(run)
    table.show([table.comparison({run.name: record.summary}), table.per_rank(record.summary)])
    print(f"timeline: {timeline.draw(record, run / 'timeline.png')}")
    print(f"curves:   {curves.draw({run.name: record}, run / 'curves.png')}")
    if pipeline_picture.has_passes(record):
        print(f"pipeline: {pipeline_picture.draw(run / 'pipeline.png', pipeline_picture.measured(record))}")
    print(f"trace:    {run / 'trace.json'} (drag it into ui.perfetto.dev)")
