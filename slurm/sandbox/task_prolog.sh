#!/bin/sh
# slurmd runs this before every task, and adds each line "export NAME=value" that it prints to the
# task's environment. Everything that is true of the sandbox and of no cluster belongs here.

# Marks the job's processes, so that `farandole slurm down` finds them.
echo "export FARANDOLE_SLURM_SANDBOX=${folder}"

# Scratch of this node, removed by `down`.
echo "export TMPDIR=${folder}/tmp/$$SLURMD_NODENAME"

# Open MPI refuses to run as root unless told twice.
if [ "$$(id -u)" -eq 0 ]; then
    echo "export OMPI_ALLOW_RUN_AS_ROOT=1"
    echo "export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    echo "export PRTE_ALLOW_RUN_AS_ROOT=1"
    echo "export PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1"
fi

# The nodes declare more cores than the machine has, so a rank that waits must give its core away:
# an all-reduce of 4 MB over 4 ranks on 2 cores took 15 to 45 ms with this, 530 to 940 ms without.
echo "export OMPI_MCA_mpi_yield_when_idle=1"

# Where libfabric finds no fast network, Open MPI sleeps for a second at the start of every process.
echo "export OMPI_MCA_btl=^ofi"

# UCX's one-sided component prints a warning where there is no fast network.
echo "export OMPI_MCA_osc=^ucx"
