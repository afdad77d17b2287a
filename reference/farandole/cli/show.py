"""``farandole show RUN``: a record as tables and pictures."""

from __future__ import annotations

from pathlib import Path

from farandole.errors import UsageError
from farandole.report import table
from farandole.runtime.record import Run


def show(run: Path, *, trace: bool = False) -> None:
    """Print a run's tables and draw timeline.png, curves.png and, of a pipeline, pipeline.png into its folder.

    Args:
        run: the run's folder, or latest: the run below runs/ that finished last.
        trace: then open the trace, what each rank did when, in Perfetto, which needs no network.
    """
    from farandole.report import curves, pipeline_picture, timeline, trace_viewer

    record = Run.open(run)
    run = record.folder
    table.show([table.comparison({run.name: record.summary}), table.per_rank(record.summary)])
    try:
        print(f"timeline: {timeline.draw(record, run / 'timeline.png')}")
        print(f"curves:   {curves.draw({run.name: record}, run / 'curves.png')}")
        if pipeline_picture.has_passes(record):
            print(f"pipeline: {pipeline_picture.draw(run / 'pipeline.png', pipeline_picture.measured(record))}")
    except (PermissionError, IsADirectoryError) as error:
        raise UsageError(
            f"{error.filename} cannot be written ({error.strerror}): copy the run's folder to a place "
            "where you may write, and show that"
        ) from error
    if trace:
        trace_viewer.view(run / "trace.json")
    else:
        print(f"trace:    {run / 'trace.json'} (farandole show {run} --trace opens it)")
