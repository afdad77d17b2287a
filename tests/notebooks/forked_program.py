"""A module's program in a process forked from one that has already imported what a notebook needs.

    python -P forked_program.py MODULE [ARG ...]      does as python -m MODULE [ARG ...]

`nbval_runs` starts pytest this way, and the kernel of each notebook. The process that they are forked from is a fork
server (`farandole_tools.forked_ranks`); without one, the program runs in this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from farandole_tools.forked_ranks import fork_client

SERVER = "FARANDOLE_TEST_NOTEBOOKS"  # in the environment: the address of the fork server; ADDRESS is that of the ranks
PR_SET_PDEATHSIG = 1  # linux/prctl.h

if __name__ == "__main__":
    if sys.platform == "linux":  # a kernel checks that its parent is alive, but a fork's parent is the fork server
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.argv = ["-m", "--without-mpi", "-m", *sys.argv[1:]]
    fork_client.run(server=os.environ[SERVER])
    from farandole.runtime.rank import main

    main()
