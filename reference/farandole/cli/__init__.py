"""The command line: ``farandole COMMAND``. One module per command; this one puts them together.

Nothing here imports MPI or torch: a command answers at once, and mpirun is started from a process
that has never touched MPI.
"""

from __future__ import annotations

import os
import sys

import cyclopts

import farandole
from farandole.cli import (
    bench,
    compare,
    doctor,
    draw,
    hosts,
    join,
    lab,
    run,
    scenario_list,
    show,
    simulate,
    slurm,
    supervise,
    tour,
)
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
app.command(supervise.supervise)
app.command(join.join)
app.command(show.show)
app.command(draw.app)
app.command(simulate.simulate)
app.command(bench.bench)
app.command(lab.app)
app.command(slurm.app)
app.command(hosts.app)


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code.

    0, 1 (it failed), 2 (bad input), 75 (stopped as asked, can go on), 124 (time-out), 130 (Ctrl-C).
    """
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
    except BrokenPipeError:  # whoever read the output has left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        print("farandole: interrupted; every rank has been ended", file=sys.stderr)
        sys.exit(INTERRUPTED)
