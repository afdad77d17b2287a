"""Known wrong answers of lab 1, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant

ORIGINAL = """\
import numpy as np


def shares(samples, ranks):
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    return range(start, start + shares(samples, ranks)[rank])


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    random = np.random.default_rng([seed, rank, epoch])
    rows = random.permutation(my_rows(samples, rank, ranks))
    return np.array_split(rows, steps)[start:]


def mean_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)
"""

MUTANTS = [
    Mutant(
        name="drops_the_last_rows",
        says="Makes all batches of a rank equally long: what is left of its share is never used.",
        fails={"every sample once": "never used"},
        changes={
            "return np.array_split(rows, steps)[start:]": """
            size = len(rows) // steps
            return [rows[step * size : (step + 1) * size] for step in range(start, steps)]
            """,
        },
    ),
    Mutant(
        name="drops_the_remainder",
        says="Gives every rank N // K samples: the N % K at the end are never used.",
        fails={"shares": "2 samples never used", "rows": "2 rows never used", "every sample once": "1 row never used"},
        changes={
            "return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]": """
            return [samples // ranks] * ranks
            """,
        },
    ),
    Mutant(
        name="generator_runs_on",
        says="Draws from one generator that runs on from call to call: a run that is restarted gets other batches.",
        fails={"restart": "the same call twice gives two orders"},
        changes={
            "import numpy as np": """
            import numpy as np



            random = np.random.default_rng(0)
            """,
            "random = np.random.default_rng([seed, rank, epoch])": "",
        },
    ),
    Mutant(
        name="not_shuffled",
        says="Uses the rows in their own order.",
        fails={"shuffled": "uses its rows in their own order"},
        changes={
            """
            random = np.random.default_rng([seed, rank, epoch])
            rows = random.permutation(my_rows(samples, rank, ranks))
            return np.array_split(rows, steps)[start:]
            """: "return np.array_split(np.array(my_rows(samples, rank, ranks)), steps)[start:]",
        },
    ),
    Mutant(
        name="overlaps_by_one",
        says="Counts the end of a share in, so that it is the beginning of the next one too.",
        fails={"rows": "is used by ranks 0 and 1", "every sample once": "is used by ranks 0 and 1"},
        changes={
            "return range(start, start + shares(samples, ranks)[rank])": """
            end = start + shares(samples, ranks)[rank]
            return range(start, min(end + 1, samples))
            """,
        },
    ),
    Mutant(
        name="own_seed_before_cutting",
        says="Every rank shuffles all rows with a different seed, and cuts its share out of that.",
        fails={"every sample once": "does every rank shuffle all rows with a different seed, before cutting?"},
        changes={
            "rows = random.permutation(my_rows(samples, rank, ranks))": """
            rows = random.permutation(samples)[my_rows(samples, rank, ranks)]
            """,
        },
    ),
    Mutant(
        name="plain_mean",
        says="Takes the plain mean of the ranks' gradients, whatever the sizes of their batches.",
        fails={
            "mean gradient": "the plain mean: weigh each by its share",
            "training": "one process on the same rows has",
        },
        changes={"return np.average(gradients, axis=0, weights=counts)": "return np.mean(gradients, axis=0)"},
    ),
    Mutant(
        name="remainder_to_the_last",
        says="Gives the whole remainder to the last rank, for which all others then wait.",
        fails={"shares": "spread the remainder"},
        changes={
            "return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]": """
            share = samples // ranks
            return [share] * (ranks - 1) + [samples - share * (ranks - 1)]
            """,
        },
    ),
    Mutant(
        name="restarts_from_the_beginning",
        says="Ignores where to go on, and begins the epoch anew.",
        fails={"restart": "start=1 of 5 steps gives 5 batches"},
        changes={"return np.array_split(rows, steps)[start:]": "return np.array_split(rows, steps)"},
    ),
    Mutant(
        name="same_order_every_epoch",
        says="Leaves the epoch's number out of the seed: every epoch has the same order.",
        fails={"shuffled": "epochs 0 and 1 have the same order"},
        changes={"random = np.random.default_rng([seed, rank, epoch])": "random = np.random.default_rng([seed, rank])"},
    ),
    Mutant(
        name="sum_of_gradients",
        says="Weighs each gradient by its samples, and forgets to divide by all of them.",
        fails={"mean gradient": "the mean over all samples is", "training": "one process on the same rows has"},
        changes={
            "return np.average(gradients, axis=0, weights=counts)": """
            return sum(count * gradient for gradient, count in zip(gradients, counts, strict=True))
            """,
        },
    ),
    Mutant(
        name="unequal_steps",
        says="Cuts batches of one size until the share is used up: ranks differ in their number of steps.",
        fails={
            "same steps": "the others would wait for it for ever",
            "training": "waits in the all-reduce of step 3; ranks 1, 2 and 3 have returned",
        },
        changes={
            "return np.array_split(rows, steps)[start:]": """
            size = -(-len(rows) // steps)
            return [rows[begin : begin + size] for begin in range(0, len(rows), size)][start:]
            """,
        },
    ),
]
