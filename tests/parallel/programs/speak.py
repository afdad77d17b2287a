"""Each rank prints two lines, the later ranks first, in pieces; then does what its argument says."""

import os
import sys
import time

from mpi4py import MPI

rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
time.sleep(0.05 * (size - rank))
for line in ("first", "second"):
    sys.stdout.write(f"rank {rank} ")
    sys.stdout.flush()
    print(line, "x" * 3000)
what = sys.argv[1] if len(sys.argv) > 1 else ""
if what == "raise" and rank == size - 1:
    raise ZeroDivisionError("on purpose")
if what == "exit" and rank == size - 1:
    sys.exit("I have had enough")
if what == "sleep":
    time.sleep(600)
if what == "nested" and rank == 0:
    from farandole.runtime.launcher import run_ranks

    print("inner:", *[text.split()[1] for text in run_ranks([__file__], 2).stdout])
if what == "child" and rank == 0:
    os.system("sleep 600 &")
MPI.COMM_WORLD.Barrier()
