"""The command line: ``farandole COMMAND``. One module per command; this one puts them together.

The commands of `farandole_tools` are named as text and imported when they are used. Nothing here imports
MPI or torch: a command answers at once, and mpirun is started from a process that has never touched MPI.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import cyclopts

from farandole import __version__, former_names
from farandole.cli import (
    advise,
    checkpoint,
    compare,
    draw,
    export,
    flops,
    goodput,
    join,
    memory,
    new,
    reproduce,
    run,
    scenario_list,
    show,
    simulate,
    supervise,
    tour,
)
from farandole.errors import LaunchError, UsageError
from farandole.runtime import choices, signals, streams, surroundings
from farandole.runtime.command_line import run_app
from farandole.runtime.failure import describe
from farandole.runtime.flight_recorder import NO_STEP

USAGE_ERROR = 2
INTERRUPTED = 130
OUTPUT_LOST = FAILED = 1

app = cyclopts.App(
    name="farandole",
    help="Distributed training, learned by running it. Each command explains itself with --help.",
    version=__version__,
    suppress_keyboard_interrupt=False,
)
app.command(scenario_list.list_scenarios, name="list")
app.command(tour.tour)
app.command(supervise.supervise)
app.command(join.join)
app.command(new.app)
app.command(show.show)
app.command(export.export)
app.command(checkpoint.checkpoint)
app.command(draw.app)
app.command(advise.advise)
app.command(memory.memory)
app.command(flops.flops)
app.command(goodput.goodput)
app.command(simulate.simulate)
app.command(reproduce.reproduce)
# The tools' commands, each with its line for the list of commands, which imports none of them.
for name, command, line in (
    ("doctor", "doctor.command:doctor", "Show what works on this machine, and the line that mends what does not."),
    (
        "bench",
        "bench.command:bench",
        "Measure against a peer in the same run; a ratio above 1 means that we are faster.",
    ),
    ("lab", "lab.command:app", "Exercises: write a method yourself and have it judged on real ranks."),
    ("slurm", "slurm.command:app", "A real Slurm cluster on this one machine, for trying job scripts."),
    ("scripts", "material:scripts", "Copy the Slurm batch scripts to a folder of yours."),
    ("notebooks", "material:notebooks", "Copy the notebooks to a folder of yours."),
    ("hosts", "hosts.command:app", "Several hosts on this machine, and a network of a chosen speed between them."),
):
    app.command(f"farandole_tools.{command}", name=name, help=line)


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code.

    0, 1 (failed, or its output could not be written), 2 (bad input), 75 (stopped on request, can be resumed), 124
    (time-out), 128 + the number of the signal that ended it: 129 (the terminal was closed), 130 (Ctrl-C), 131
    (SIGQUIT), 143 (SIGTERM).
    """
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None:  # run as a command; a program that calls this may use MPI and show windows
        os.environ["MPLBACKEND"] = "agg"  # it saves its pictures as files
        streams.widen()
        with suppress(ImportError):
            import mpi4py

            mpi4py.rc.initialize = False  # what it imports must not start MPI, which would replace signal handlers
    choices.advise = _say
    streams.secure()
    with signals.raised():
        try:
            surroundings.check_working_folder()
            _run(words)
            if missing := streams.lost():
                if not streams.left_by_reader():
                    _say(missing)
                sys.exit(OUTPUT_LOST)
        except UsageError as error:
            _say(str(error))
            sys.exit(USAGE_ERROR)
        except LaunchError as error:
            _say(str(error))
            sys.exit(error.returncode)
        except KeyboardInterrupt:
            _say("interrupted; every rank has been ended")
            sys.exit(INTERRUPTED)
        except signals.Terminated as terminated:
            _say(f"ended by {terminated.number.name}; every rank has been ended")
            raise
        except Exception as error:
            failure = describe(error, 0, NO_STEP)
            if failure.kind != "unable":  # else memory or the disk has not been enough
                raise
            _say(failure.text)
            sys.exit(FAILED)


def _run(words: list[str]) -> None:
    run.prepare(words)
    words = run.with_policy(former_names.current_command(words or ["--help"]))
    for name, command in (("run", run.app(words)), ("compare", compare.command(words))):
        if name in app:  # a program that calls `main` again, with other words
            del app[name]
        app.command(command, name=name)
    run_app(app, run.with_present_names(words))


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal may have been closed
        print(f"farandole: {text}", file=sys.stderr, flush=True)
