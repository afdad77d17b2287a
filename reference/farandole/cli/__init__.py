"""The command line: ``farandole COMMAND``. One module per command; this one puts them together.

Nothing here imports MPI or torch: a command answers at once, and mpirun is started from a process
that has never touched MPI.
"""

from __future__ import annotations

import sys

import cyclopts

import farandole
from farandole.cli import bench, compare, doctor, lab, run, scenario_list, show, slurm, tour
from farandole.errors import LaunchError, UsageError
from farandole.scenarios import run_app

USAGE_ERROR = 2
INTERRUPTED = 130

app = cyclopts.App(
    name="farandole",
    help="Distributed training, learned by running it. Each command explains itself with --help.",
    version=farandole.__version__,
    suppress_keyboard_interrupt=False,
)
app.command(doctor.doctor)
app.command(scenario_list.list_scenarios, name="list")
app.command(tour.tour)
app.command(show.show)
app.command(bench.bench)
app.command(lab.app)
app.command(slurm.app)


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code: 0, 1 (it failed), 2 (bad input), 130 (Ctrl-C)."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if not words:
            words = ["--help"]
        app.command(run.app(words), name="run")
        app.command(compare.command(words), name="compare")
        run_app(app, words)
    except UsageError as error:
        print(f"farandole: {error}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    except LaunchError as error:
        print(f"farandole: {error}", file=sys.stderr)
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        print("farandole: interrupted; every rank has been ended", file=sys.stderr)
        sys.exit(INTERRUPTED)
