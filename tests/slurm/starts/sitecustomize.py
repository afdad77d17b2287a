"""What Python imports as it starts, where this folder is on its path: in the jobs of the tests of batch scripts.

A rank of such a job, or a worker of Elastic Horovod, has its work done by a fork of the test session's fork server,
which has imported torch. Slurm starts, names, signals and ends the same processes as otherwise. Tests marked `cold`
start ranks as a cluster does.
"""

import os
import sys

RANK, RANKS = "PMIX_RANK", ("-m", "farandole.scenarios.")
WORKER, WORKERS = "HOROVOD_ELASTIC", ("-P", "-m", "farandole.runtime")

program = []  # what `python -m farandole.runtime` would be given
if RANK in os.environ and sys.orig_argv[1:2] == [RANKS[0]] and sys.orig_argv[2].startswith(RANKS[1]):
    program = sys.orig_argv[1:]
elif WORKER in os.environ and tuple(sys.orig_argv[1:4]) == WORKERS:
    program = sys.orig_argv[4:]
if program:
    from farandole_tools.forked_ranks import fork_client

    _, _, socket = os.environ.get(fork_client.ADDRESS, "").rpartition(":")
    os.environ[fork_client.ADDRESS] = f"{sys.executable}:{socket}"  # a checkout has another name for the same Python
    sys.path[:] = os.environ["FARANDOLE_PATH_OF_FORKS"].split(os.pathsep)
    arguments, sys.argv = sys.argv, ["", *program]
    fork_client.run(in_slurm=True)
    sys.argv = arguments
