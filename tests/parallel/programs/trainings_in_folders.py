"""Trainings in this launch, one after another: `FOLDER COMMAND …`, each command as after `farandole run`.

The records are FOLDER/0, FOLDER/1, … Rank 0's answer is the number of trainings.
"""

import contextlib
import io
import sys

from mpi4py import MPI

from farandole.runtime.command_line import parse
from farandole.scenarios import load

folder, *commands = sys.argv[1:]
for number, command in enumerate(commands):
    name, *words = command.split()
    scenario = load(name)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            scenario.main(parse(scenario.Config, [*words, "--out", f"{folder}/{number}"]))
        except BaseException as error:
            error.add_note(f"in: {command}")
            raise
    MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print(len(commands))
