#!/bin/bash
# Becomes one rank of a heterogeneous job, if this is where its role belongs. srun runs it for every rank:
#
#     bash slurm/as_role.sh worker 3-6 'gpu[01-02]' python -m farandole.scenarios.parameter_server …
#
# prints "rank 3 is a worker, on gpu01, CUDA_VISIBLE_DEVICES=0" and becomes the program. With another rank,
# on another node, or as a worker without a GPU it refuses, with exit status 2.
set -euo pipefail

role=$1 first=${2%-*} last=${2#*-} nodes=$3
shift 3
rank=${PMIX_RANK:-$SLURM_PROCID} # PMIX_RANK is MPI's rank; without PMIx, --expect-ranks will refuse

refuse() {
    echo "rank $rank on $SLURMD_NODENAME: $1" >&2
    exit 2
}

if ((rank < first || rank > last)); then
    refuse "as $role expected are ranks $first to $last: start the components in order"
elif ! scontrol show hostnames "$nodes" | grep --quiet --line-regexp --fixed-strings "$SLURMD_NODENAME"; then
    refuse "a $role belongs on $nodes"
elif [[ $role == worker && -z ${CUDA_VISIBLE_DEVICES:-} ]]; then
    refuse "a worker needs a GPU: ask for as many GPUs on a node as there are workers"
fi

if ((rank == 0)); then
    role=manager
fi
echo "rank $rank is a $role, on $SLURMD_NODENAME${CUDA_VISIBLE_DEVICES:+, CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES}"
exec "$@"
