"""What Python imports as it starts, where this folder is on its path: in the jobs of the tests of batch scripts.

A rank of such a job has its work done by a fork of the test session's fork server, which has imported torch. Slurm
starts, names, signals and ends the same processes as otherwise. Tests marked `cold` start ranks as a cluster does.
"""

import os
import sys

RANK, PROGRAM, SCENARIOS = "PMIX_RANK", "-m", "farandole.scenarios."

if RANK in os.environ and sys.orig_argv[1:2] == [PROGRAM] and sys.orig_argv[2].startswith(SCENARIOS):
    from farandole_tools.forked_ranks import fork_client

    _, _, socket = os.environ.get(fork_client.ADDRESS, "").rpartition(":")
    os.environ[fork_client.ADDRESS] = f"{sys.executable}:{socket}"  # a checkout has another name for the same Python
    sys.path[:] = os.environ["FARANDOLE_PATH_OF_FORKS"].split(os.pathsep)
    arguments, sys.argv = sys.argv, ["", *sys.orig_argv[1:]]
    fork_client.run(in_slurm=True)
    sys.argv = arguments
