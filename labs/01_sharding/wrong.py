"""Known wrong answers of lab 1, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

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
        name="adds_up_in_place",
        says="Adds all gradients to the first one, an array that belongs to the caller.",
        fails={"mean gradient": "the gradients given to mean_gradient are changed"},
        changes={
            "return np.average(gradients, axis=0, weights=counts)": """
            total = gradients[0]
            total *= counts[0]
            for gradient, count in zip(gradients[1:], counts[1:]):
                total += count * gradient
            return total / sum(counts)
            """,
        },
    ),
    Mutant(
        name="cuts_the_rest_anew",
        says="After a restart cuts the remaining rows into the remaining batches, which then differ from before.",
        fails={"restart": "start=1 of 5 steps gives 4 batches"},
        changes={
            "return np.array_split(rows, steps)[start:]": """
            rest = rows[start * (len(rows) // steps) :]
            return np.array_split(rest, steps - start) if start < steps else []
            """,
        },
    ),
    Mutant(
        name="deals_the_rows_out",
        says="Deals the rows out one by one, like cards, so a share is not contiguous.",
        fails={"rows": "should lie one after the other"},
        changes={
            """
            start = sum(shares(samples, ranks)[:rank])
            return range(start, start + shares(samples, ranks)[rank])
            """: "return range(rank, samples, ranks)",
        },
    ),
    Mutant(
        name="drops_the_last_rows",
        says="Makes all batches of a rank equally long: the remainder of its share is never used.",
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
        name="forgets_the_seed",
        says="Leaves the seed out: every run has the same order.",
        fails={"shuffled": "seeds 0 and 1 give the same order"},
        changes={"[seed, rank, epoch]": "[rank, epoch]"},
    ),
    Mutant(
        name="generator_runs_on",
        says="Draws from one generator that continues from call to call: a restarted run gets other batches.",
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
        name="highest_rank_first",
        says="Gives the first rows to the last rank: each share is contiguous, in the opposite order of the ranks.",
        fails={"rows": "the shares should lie one after the other, in rank order"},
        changes={
            "start = sum(shares(samples, ranks)[:rank])": "start = sum(shares(samples, ranks)[rank + 1 :])",
        },
    ),
    Mutant(
        name="larger_shares_last",
        says="Gives the remaining samples to the last ranks, one each.",
        fails={"shares": "the first ranks get the larger shares", "rows": "the ranks have [2, 2, 3, 3] rows"},
        changes={"(rank < samples % ranks)": "(rank >= ranks - samples % ranks)"},
    ),
    Mutant(
        name="numbers_from_zero",
        says="Shuffles the numbers of a share's rows within the share, which begin with 0 on every rank.",
        fails={"every sample once": "add the row at which its share begins"},
        changes={
            "rows = random.permutation(my_rows(samples, rank, ranks))": """
            rows = random.permutation(len(my_rows(samples, rank, ranks)))
            """,
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
        says="Includes the end of a share, which is also the beginning of the next one.",
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
        fails={"shares": "spread the remainder", "rows": "the ranks have [2, 2, 2, 4] rows"},
        changes={
            "return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]": """
            share = samples // ranks
            return [share] * (ranks - 1) + [samples - share * (ranks - 1)]
            """,
        },
    ),
    Mutant(
        name="remainder_to_the_last_batch",
        says="Gives all remaining rows to the last batch.",
        fails={"same steps": "which may differ by one at most"},
        changes={
            "return np.array_split(rows, steps)[start:]": """
            size = len(rows) // steps
            return [rows[k * size : (k + 1) * size if k < steps - 1 else None] for k in range(start, steps)]
            """,
        },
    ),
    Mutant(
        name="restarts_from_the_beginning",
        says="Ignores the step to resume from, and begins the epoch again.",
        fails={"restart": "start=1 of 5 steps gives 5 batches"},
        changes={"return np.array_split(rows, steps)[start:]": "return np.array_split(rows, steps)"},
    ),
    Mutant(
        name="rotates_the_rows",
        says="Begins somewhere else in every epoch, and uses the rows in their own order from there.",
        fails={"shuffled": "follow the row that they follow in the data set"},
        changes={
            """
            random = np.random.default_rng([seed, rank, epoch])
            rows = random.permutation(my_rows(samples, rank, ranks))
            """: "rows = np.roll(my_rows(samples, rank, ranks), 1 + epoch + 7 * seed)",
        },
    ),
    Mutant(
        name="rounds_where_shares_begin",
        says="Rounds where each share begins, so my_rows and shares disagree.",
        fails={"rows": "the ranks have [2, 3, 2, 3] rows, and not [3, 3, 2, 2]"},
        changes={
            """
            start = sum(shares(samples, ranks)[:rank])
            return range(start, start + shares(samples, ranks)[rank])
            """: "return range(samples * rank // ranks, samples * (rank + 1) // ranks)",
        },
    ),
    Mutant(
        name="same_order_every_epoch",
        says="Leaves the epoch's number out of the seed: every epoch has the same order.",
        fails={"shuffled": "epochs 0 and 1 have the same order"},
        changes={"random = np.random.default_rng([seed, rank, epoch])": "random = np.random.default_rng([seed, rank])"},
    ),
    Mutant(
        name="shuffles_the_batches",
        says="Cuts batches and shuffles their order: the same rows are always together.",
        fails={"shuffled": "every row needs another place, and not only whole batches"},
        changes={
            """
            rows = random.permutation(my_rows(samples, rank, ranks))
            return np.array_split(rows, steps)[start:]
            """: """
            cut = np.array_split(my_rows(samples, rank, ranks), steps)
            return [cut[number] for number in random.permutation(steps)][start:]
            """,
        },
    ),
    Mutant(
        name="shuffles_within_batches",
        says="Cuts batches and shuffles the rows of each: the same rows are always together.",
        fails={"shuffled": "the batches of epochs 0 and 1 are of the same rows"},
        changes={
            """
            rows = random.permutation(my_rows(samples, rank, ranks))
            return np.array_split(rows, steps)[start:]
            """: """
            cut = np.array_split(my_rows(samples, rank, ranks), steps)
            return [random.permutation(batch) for batch in cut][start:]
            """,
        },
    ),
    Mutant(
        name="sum_of_gradients",
        says="Weights each gradient by its samples, and does not divide by their total.",
        fails={"mean gradient": "the mean over all samples is", "training": "one process on the same rows has"},
        changes={
            "return np.average(gradients, axis=0, weights=counts)": """
            return sum(count * gradient for gradient, count in zip(gradients, counts, strict=True))
            """,
        },
    ),
    Mutant(
        name="two_orders_in_turn",
        says="Has two orders, one for even epochs and one for odd ones.",
        fails={"shuffled": "epochs 0 and 2 have the same order"},
        changes={"[seed, rank, epoch]": "[seed, rank, epoch % 2]"},
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

SENTENCES: Sentences = {
    "shares": {
        "Return the number of samples of each rank": ["drops_the_remainder"],
        "in rank order": ["larger_shares_last"],
        "Rank r of K gets N // K of the N samples": ["remainder_to_the_last"],
        "and one more if r < N % K": ["larger_shares_last"],
        "N and K": "describes the arguments",
    },
    "my_rows": {
        "Return the rows of the data set that belong to `rank`": ["rounds_where_shares_begin", "overlaps_by_one"],
        "contiguous": ["deals_the_rows_out"],
        "and in rank order": ["highest_rank_first"],
    },
    "batches": {
        "from step `start` on": ["restarts_from_the_beginning"],
        "as arrays of row numbers": ["numbers_from_zero"],
        "every row occurs exactly once": ["drops_the_last_rows", "own_seed_before_cutting"],
        "Every rank takes exactly `steps` steps": ["unequal_steps"],
        "differ in size by at most one": ["remainder_to_the_last_batch"],
        "The order is shuffled": ["not_shuffled", "rotates_the_rows", "shuffles_the_batches"],
        "differently in every epoch": ["same_order_every_epoch", "two_orders_in_turn", "shuffles_within_batches"],
        "for every seed": ["forgets_the_seed"],
        "depends only on the arguments": ["generator_runs_on"],
        "as if it had never been interrupted": ["cuts_the_rest_anew"],
        "steps: at least 1": "says what the caller keeps to",
    },
    "mean_gradient": {
        "Return the gradient of the mean loss over the samples of all ranks": ["sum_of_gradients"],
        "gradients: for each rank": "describes an argument",
        "counts: for each rank, the number of samples": ["plain_mean"],
    },
}
