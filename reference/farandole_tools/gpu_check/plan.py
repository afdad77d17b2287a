"""The checks of `make gpu-check`, in order: the doctor, the GPU tests, then one training by every system, in turn.

The systems that are not possible on a machine, as NCCL with two ranks on one card, refuse in one line, which the record
has in place of their figures. So the plan needs to know nothing but the number of cards.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SWEEPS = 3  # in which the systems alternate
# A perceptron of 15 million parameters: the training of docs/performance.md, "On a GPU".
TRAINING = ("--data", "mnist5k", "--hidden", "2048", "--depth", "4", "--batch", "1024", "--steps", "40", "--lr", "0.05")
RING, MPI = ("sync_sgd", "--collective", "ring"), ("sync_sgd", "--collective", "mpi")
STAGED, DIRECT = ("--card-transport", "staged"), ("--card-transport", "direct")
# Each system by its name in the record, a scenario and its options.
SYSTEMS: dict[str, tuple[str, ...]] = {
    "ring, staged": (*RING, *STAGED),
    "ring, direct": (*RING, *DIRECT),
    "ring, staged, overlapped": (*RING, *STAGED, "--overlap"),
    "ring, direct, overlapped": (*RING, *DIRECT, "--overlap"),
    "MPI_Allreduce, staged": (*MPI, *STAGED),
    "MPI_Allreduce, direct": (*MPI, *DIRECT),
    "window, staged": ("sync_sgd", "--collective", "window", *STAGED),
    "DDP, gloo": ("ddp_sgd", "--backend", "gloo"),
    "DDP, NCCL": ("ddp_sgd", "--backend", "nccl"),
    "Horovod": ("horovod_sgd",),
    "ZeRO-3, staged": ("sharded", "--optimizer", "sgd", "--prefetch", *STAGED),
    "FSDP, NCCL": ("fsdp_sgd", "--optimizer", "sgd", "--backend", "nccl"),
}
RUN_S = 300
TESTS_S = 3600
DOCTOR_S = 300


@dataclass(frozen=True)
class Check:
    """One thing to run.

    Attributes:
        kind: "doctor", "tests" or "training".
        name: in the record; of a training its system.
        module, arguments: what Python runs.
        timeout_s: seconds after which it is ended, and counts as failed.
        ranks: of a training, otherwise 0.
        writes: the file with its figures, for those that do not print them; None: it prints JSON.
    """

    kind: str
    name: str
    module: str
    arguments: tuple[str, ...]
    timeout_s: float
    ranks: int = 0
    writes: Path | None = None

    def __str__(self) -> str:
        return f"{self.name}, {self.ranks} ranks" if self.ranks else self.name


def checks(cards: int, folder: Path, with_tests: bool = True) -> list[Check]:
    """Return the checks to run on a machine with `cards` cards.

    Trainings have two ranks, which share one card if there is no second; with more than two cards they also have a rank
    for each card.

    Args:
        folder: for the runs' own records.
    """
    found = [Check("doctor", "farandole doctor", "farandole", ("doctor", "--json"), DOCTOR_S)]
    if with_tests:
        results = folder / "tests.xml"
        words = ("tests/unit", "tests/parallel", "-m", "gpu", f"--junitxml={results}")
        found.append(Check("tests", "GPU tests", "pytest", words, TESTS_S, writes=results))
    for ranks in [2] if cards <= 2 else [2, cards]:
        shared = ("--share-cards",) if cards < ranks else ()
        for sweep in range(SWEEPS):
            for number, (name, system) in enumerate(SYSTEMS.items()):
                run = ("run", *system, "-n", str(ranks), *TRAINING, "--device", "cuda", *shared, "--json")
                out = ("--out", str(folder / "runs" / f"{ranks}-{number}-{sweep}"), "--timeout", str(RUN_S))
                found.append(Check("training", name, "farandole", (*run, *out), RUN_S + 60, ranks))
    return found
