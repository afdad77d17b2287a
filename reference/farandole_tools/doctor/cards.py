"""The cards of this host, and in a Slurm job of all its hosts."""

from __future__ import annotations

import os
import subprocess

from farandole.runtime import surroundings
from farandole.runtime.cards.assignment import requested
from farandole_tools.doctor.finding import Finding

MEND = "on a GPU node: pip install torch, built for a CUDA that its driver can run (nvidia-smi shows which)"
COUNT = 'echo "$SLURMD_NODENAME $(nvidia-smi -L 2>/dev/null | grep -c ^GPU)"'
TIMEOUT_S = 30


def findings() -> list[Finding]:
    """Return the cards that torch can use here, each with the cores near it, and how many each host of the job has."""
    from farandole.runtime import devices
    from farandole.runtime.cards import detection

    found, why = detection.usable_cards("auto", requested(os.environ))
    near = [f", near the cores {card.cores}" if card.cores else "" for card in found]
    kinds = [devices.describe(detection.device_of(number)) for number in range(len(found))]
    names = [f"{n}: {kinds[n]}, {card.name}{near[n]}" for n, card in enumerate(found)]
    own = Finding("GPU", bool(found), "; ".join(names) or why or "none: everything runs on the CPU", MEND)
    return [own, *of_the_job()] if surroundings.nodes(os.environ) > 1 else [own]


def of_the_job() -> list[Finding]:
    """Return how many cards nvidia-smi lists on each host of this Slurm job; nothing where srun cannot tell."""
    step = ["srun", "--overlap", "--mpi=none", "--ntasks-per-node=1", f"--ntasks={surroundings.nodes(os.environ)}"]
    try:
        told = subprocess.run([*step, "sh", "-c", COUNT], capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    counts = dict(line.split() for line in sorted(told.stdout.splitlines()) if len(line.split()) == 2)
    if told.returncode or not counts:
        return []
    seen = ", ".join(f"{host} {count}" for host, count in counts.items())
    equal = len(set(counts.values())) == 1
    return [Finding("GPUs of the job", equal, seen, "leave out the nodes with other numbers: sbatch --exclude=…")]
