"""Known wrong answers of lab 15, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
import time

import numpy as np


def fit(nbytes, seconds):
    nbytes, seconds = np.asarray(nbytes, float), np.asarray(seconds, float)
    weights = 1 / seconds
    best = None
    for kept in ([0, 1], [0], [1]):
        columns = np.stack([weights, weights * nbytes], axis=1)
        line = np.zeros(2)
        line[kept] = np.linalg.lstsq(columns[:, kept], seconds * weights)[0]
        error = ((columns @ line - seconds * weights) ** 2).sum()
        if (line >= 0).all() and (best is None or error < best[0]):
            best = error, line
    alpha, beta = best[1]
    return float(alpha), float(beta)


def all_reduce_seconds(method, ranks, nbytes, alpha, beta):
    rounds = ranks.bit_length() - 1
    if method == "ring":
        return 2 * (ranks - 1) * (alpha + nbytes / ranks * beta)
    if method == "tree":
        return 2 * (ranks - 1).bit_length() * (alpha + nbytes * beta)
    beyond = ranks - 2**rounds
    return (rounds + (2 if beyond else 0)) * (alpha + nbytes * beta)


def slowest(samples, ranks):
    samples = sorted(samples)
    return sum(
        each * (((k + 1) / len(samples)) ** ranks - (k / len(samples)) ** ranks) for k, each in enumerate(samples)
    )


def step_seconds(way, samples, ranks, nbytes, alpha, beta, every=1):
    ring = all_reduce_seconds("ring", ranks, nbytes, alpha, beta)
    if way == "server":
        return slowest(samples, ranks) + 2 * ranks * (alpha + nbytes * beta)
    if way == "overlapped":
        return slowest([max(each, ring) for each in samples], ranks)
    if way == "local":
        rounds = [sum(samples[k : k + every]) for k in range(0, len(samples) - every + 1, every)]
        return (slowest(rounds, ranks) + ring) / every
    return slowest(samples, ranks) + ring


def measure(comm):
    if comm.rank > 1:
        return 0.0, 0.0
    sizes = [8, 40_000, 80_000, 200_000]
    there_and_back(np.zeros(1), comm)
    times = [min(there_and_back(np.zeros(n // 8), comm) / 2 for _ in range(5)) for n in sizes]
    return fit(sizes, times)


def there_and_back(array, comm):
    start = time.perf_counter()
    if comm.rank == 0:
        comm.send(array, 1)
        comm.receive(array, 1)
    else:
        comm.receive(array, 0)
        comm.send(array, 0)
    return time.perf_counter() - start
"""

MUTANTS = [
    Mutant(
        name="a_round_for_a_step",
        says="Returns the time of a whole round of several steps.",
        fails={"step": "the time of one step is needed", "real steps": "local, every 4 steps: a step took"},
        changes={"return (slowest(rounds, ranks) + ring) / every": "return slowest(rounds, ranks) + ring"},
    ),
    Mutant(
        name="a_server_of_one_worker",
        says="Forgets that all workers share the server's link.",
        fails={"step": "all of them go over the server", "real steps": "server: a step took"},
        changes={
            "return slowest(samples, ranks) + 2 * ranks * (alpha + nbytes * beta)": """
            return slowest(samples, ranks) + 2 * (alpha + nbytes * beta)
            """,
        },
    ),
    Mutant(
        name="bandwidth_for_beta",
        says="Returns bytes per second instead of seconds per byte.",
        fails={"fit": "not bytes per second", "measure": "not bytes per second", "real steps": "too long"},
        changes={"return float(alpha), float(beta)": "return float(alpha), float(1 / beta) if beta else 0.0"},
    ),
    Mutant(
        name="cuts_off_below_zero",
        says="Replaces a negative α by 0, and leaves the slope as it was.",
        fails={"fit": "fitted again without it"},
        changes={
            "for kept in ([0, 1], [0], [1]):": "for kept in ([0, 1],):",
            """
            if (line >= 0).all() and (best is None or error < best[0]):
                best = error, line
            """: "best = error, np.maximum(line, 0)",
        },
    ),
    Mutant(
        name="counts_the_server_as_a_worker",
        says="Takes the server for one of the ranks that compute.",
        fails={"step": "`ranks` workers push and pull; the server comes in addition"},
        changes={
            "return slowest(samples, ranks) + 2 * ranks * (alpha + nbytes * beta)": """
            return slowest(samples, ranks) + 2 * (ranks - 1) * (alpha + nbytes * beta)
            """,
        },
    ),
    Mutant(
        name="distribution_for_probability",
        says="Weights each sample by the probability that the slowest is at most so slow.",
        fails={"slowest": "that of less has to be subtracted", "step": "too long", "real steps": "too long"},
        changes={
            "((k + 1) / len(samples)) ** ranks - (k / len(samples)) ** ranks": "((k + 1) / len(samples)) ** ranks"
        },
    ),
    Mutant(
        name="every_for_all_ways",
        says="Groups steps into rounds for every method, although only one method waits once a round.",
        fails={"step": "`every` is used only by local"},
        changes={
            'ring = all_reduce_seconds("ring", ranks, nbytes, alpha, beta)': """
            ring = all_reduce_seconds("ring", ranks, nbytes, alpha, beta)
            if way != "local":
                samples = [sum(samples[k : k + every]) / every for k in range(0, len(samples) - every + 1, every)]
            """,
        },
    ),
    Mutant(
        name="folds_in_and_not_out",
        says="Forgets that each rank beyond the power of two receives the sum at the end.",
        fails={"all reduce": "their vectors come first, and the sum goes back last"},
        changes={"(2 if beyond else 0)": "(1 if beyond else 0)"},
    ),
    Mutant(
        name="forgets_the_latency",
        says="Counts the ring's bytes, and not its messages.",
        fails={"all reduce": "every message takes α", "step": "too short", "real steps": "synchronous: a step took"},
        changes={
            "return 2 * (ranks - 1) * (alpha + nbytes / ranks * beta)": """
            return 2 * (ranks - 1) * nbytes / ranks * beta
            """,
        },
    ),
    Mutant(
        name="half_of_the_ring",
        says="Goes round the ring once: the finished chunks never come back.",
        fails={"all reduce": "has still to come back", "step": "too short", "real steps": "synchronous: a step took"},
        changes={
            "return 2 * (ranks - 1) * (alpha + nbytes / ranks * beta)": """
            return (ranks - 1) * (alpha + nbytes / ranks * beta)
            """,
        },
    ),
    Mutant(
        name="larger_of_the_means",
        says="Returns the larger of two means instead of the mean of the larger.",
        fails={"step": "the larger of the two means"},
        changes={
            "return slowest([max(each, ring) for each in samples], ranks)": """
            return max(slowest(samples, ranks), ring)
            """,
        },
    ),
    Mutant(
        name="largest_of_all",
        says="Returns the largest of all samples as the slowest.",
        fails={"slowest": "not every step has one so slow", "step": "too long", "real steps": "too long"},
        changes={
            """
        samples = sorted(samples)
        return sum(
            each * (((k + 1) / len(samples)) ** ranks - (k / len(samples)) ** ranks) for k, each in enumerate(samples)
        )
        """: "return max(samples)",
        },
    ),
    Mutant(
        name="least_absolute_errors",
        says="Fits by the absolute errors, so that short messages count for nothing.",
        fails={"fit": "minimises the absolute errors"},
        changes={"weights = 1 / seconds": "weights = np.ones(len(seconds))"},
    ),
    Mutant(
        name="long_messages_only",
        says="Divides the time of a long message by its length, and has no α.",
        fails={"measure": "α cannot be told", "real steps": "too short"},
        changes={"return fit(sizes, times)": "return 0.0, times[-1] / sizes[-1]"},
    ),
    Mutant(
        name="mean_of_the_samples",
        says="Returns the mean as the slowest.",
        fails={"slowest": "that is the mean", "step": "a step waits for the slowest rank", "real steps": "too short"},
        changes={
            """
        samples = sorted(samples)
        return sum(
            each * (((k + 1) / len(samples)) ** ranks - (k / len(samples)) ** ranks) for k, each in enumerate(samples)
        )
        """: "return sum(samples) / len(samples)",
        },
    ),
    Mutant(
        name="negative_latency",
        says="Fits a line that may begin below 0.",
        fails={"fit": "neither can be below 0"},
        changes={
            "for kept in ([0, 1], [0], [1]):": "for kept in ([0, 1],):",
            "if (line >= 0).all() and (best is None or error < best[0]):": "if best is None or error < best[0]:",
        },
    ),
    Mutant(
        name="no_warm_up",
        says="Takes the mean of all round trips, the first one among them.",
        fails={"measure": "is the first message left out", "real steps": "too long"},
        changes={
            """
            sizes = [8, 40_000, 80_000, 200_000]
            there_and_back(np.zeros(1), comm)
            times = [min(there_and_back(np.zeros(n // 8), comm) / 2 for _ in range(5)) for n in sizes]
            """: """
            sizes = [200_000, 8]
            times = [np.mean([there_and_back(np.zeros(n // 8), comm) / 2 for _ in range(2)]) for n in sizes]
            """,
        },
    ),
    Mutant(
        name="one_after_the_other",
        says="Adds the two parts of an overlapped step.",
        fails={"step": "here they run at the same time"},
        changes={
            "return slowest([max(each, ring) for each in samples], ranks)": """
            return slowest(samples, ranks) + ring
            """,
        },
    ),
    Mutant(
        name="one_rank_sends_too",
        says="Counts a message up and one down a tree of one rank.",
        fails={"all reduce": "one rank sends nothing"},
        changes={
            "return 2 * (ranks - 1).bit_length() * (alpha + nbytes * beta)": """
            return 2 * max(1, (ranks - 1).bit_length()) * (alpha + nbytes * beta)
            """,
        },
    ),
    Mutant(
        name="powers_of_two_only",
        says="Ignores the ranks beyond the largest power of two.",
        fails={"all reduce": "their vectors come first"},
        changes={
            """
            beyond = ranks - 2**rounds
            return (rounds + (2 if beyond else 0)) * (alpha + nbytes * beta)
            """: "return rounds * (alpha + nbytes * beta)",
        },
    ),
    Mutant(
        name="pushes_and_never_pulls",
        says="Counts what is pushed to the server, but not what is pulled.",
        fails={"step": "has also to be pulled", "real steps": "server: a step took"},
        changes={
            "return slowest(samples, ranks) + 2 * ranks * (alpha + nbytes * beta)": """
            return slowest(samples, ranks) + ranks * (alpha + nbytes * beta)
            """,
        },
    ),
    Mutant(
        name="rounds_from_everywhere",
        says="Groups steps that are not consecutive, so a slow period counts in several rounds.",
        fails={"step": "local, every 3 steps"},
        changes={
            "rounds = [sum(samples[k : k + every]) for k in range(0, len(samples) - every + 1, every)]": """
            number = len(samples) // every
            rounds = [sum(samples[k : number * every : number]) for k in range(number)]
            """,
        },
    ),
    Mutant(
        name="the_other_way_round",
        says="Returns β and α.",
        fails={"fit": "the other way round", "measure": "α cannot be told", "real steps": "too long"},
        changes={"return float(alpha), float(beta)": "return float(beta), float(alpha)"},
    ),
    Mutant(
        name="tree_one_too_low",
        says="Rounds the tree's height down.",
        fails={"all reduce": "lg P rounded up"},
        changes={
            "return 2 * (ranks - 1).bit_length() * (alpha + nbytes * beta)": """
            return 2 * rounds * (alpha + nbytes * beta)
            """,
        },
    ),
    Mutant(
        name="up_the_tree_only",
        says="Adds up in a tree, and leaves the sum at its root.",
        fails={"all reduce": "The sum has still to come back to every rank"},
        changes={
            "return 2 * (ranks - 1).bit_length() * (alpha + nbytes * beta)": """
            return (ranks - 1).bit_length() * (alpha + nbytes * beta)
            """,
        },
    ),
    Mutant(
        name="uses_what_is_left_over",
        says="Counts the remaining steps at the end as a round, too.",
        fails={"step": "local, every 5 steps"},
        changes={"range(0, len(samples) - every + 1, every)": "range(0, len(samples), every)"},
    ),
    Mutant(
        name="waits_at_every_step",
        says="Waits for the slowest at every step, although the ranks meet once a round.",
        fails={"step": "local waits once per round", "real steps": "local, every 4 steps: a step took"},
        changes={
            """
            rounds = [sum(samples[k : k + every]) for k in range(0, len(samples) - every + 1, every)]
            return (slowest(rounds, ranks) + ring) / every
            """: "return slowest(samples, ranks) + ring / every",
        },
    ),
    Mutant(
        name="whole_round_trip",
        says="Counts a round trip as one message.",
        fails={"measure": "a round trip is two messages", "real steps": "too long"},
        changes={
            "times = [min(there_and_back(np.zeros(n // 8), comm) / 2 for _ in range(5)) for n in sizes]": """
            times = [min(there_and_back(np.zeros(n // 8), comm) for _ in range(5)) for n in sizes]
            """,
        },
    ),
    Mutant(
        name="whole_vector_every_hop",
        says="Counts the whole vector in each message of the ring.",
        fails={
            "all reduce": "is that the whole vector in every message?",
            "step": "too long",
            "real steps": "synchronous: a step took",
        },
        changes={
            "return 2 * (ranks - 1) * (alpha + nbytes / ranks * beta)": """
            return 2 * (ranks - 1) * (alpha + nbytes * beta)
            """,
        },
    ),
    Mutant(
        name="windows_that_overlap",
        says="Begins a round with every step, so that rounds share steps.",
        fails={"step": "local, every 5 steps"},
        changes={"range(0, len(samples) - every + 1, every)": "range(0, len(samples) - every + 1)"},
    ),
    Mutant(
        name="without_replacement",
        says="Draws the ranks' times without putting any back.",
        fails={"slowest": "may well take equally long", "step": "synchronous, 4 ranks"},
        changes={
            "import time": """
            import math
            import time
            """,
            """
        samples = sorted(samples)
        return sum(
            each * (((k + 1) / len(samples)) ** ranks - (k / len(samples)) ** ranks) for k, each in enumerate(samples)
        )
        """: """
            samples, left = sorted(samples), len(samples)
            ranks = min(ranks, left)
            ways = [math.comb(k, ranks) for k in range(left + 1)]
            return sum(each * (ways[k + 1] - ways[k]) for k, each in enumerate(samples)) / ways[-1]
            """,
        },
    ),
]

SENTENCES: Sentences = {
    "fit": {
        "Return the α and β": ["bandwidth_for_beta"],
        "the squares of the *relative* errors": ["least_absolute_errors"],
        "with neither α nor β below 0": ["negative_latency", "cuts_off_below_zero"],
        "nbytes: the lengths of the messages": "describes an argument",
        "seconds: the time of each message": "describes an argument",
        "alpha, in seconds per message": ["the_other_way_round"],
        "beta, in seconds per byte": ["bandwidth_for_beta"],
    },
    "all_reduce_seconds": {
        "if a message of n bytes takes α + nβ": ["forgets_the_latency"],
        "one P-th of the vector at a time": ["whole_vector_every_hop"],
        "once more to distribute the complete ones": ["half_of_the_ring"],
        "the whole vector up a binomial tree of ranks": ["tree_one_too_low"],
        "and down again": ["up_the_tree_only"],
        "first sends its vector to a partner": ["powers_of_two_only"],
        "at the end receives the sum from it": ["folds_in_and_not_out"],
        "1 sends nothing": ["one_rank_sends_too"],
    },
    "slowest": {
        "Return the expected time of the slowest": ["mean_of_the_samples", "largest_of_all"],
        "with equal probability": ["distribution_for_probability"],
        "independently of the other ranks": ["without_replacement"],
        "samples: the computation times": "describes an argument",
        "ranks: 1 or more": "describes an argument",
    },
    "step_seconds": {
        "Return the expected time of one training step": ["a_round_for_a_step"],
        '"synchronous" all ranks compute, then run a ring all-reduce': ["every_for_all_ways"],
        '"local" each rank computes `every` steps by itself': ["waits_at_every_step"],
        "runs in parallel with it": ["one_after_the_other"],
        "ends when both have ended on all ranks": ["larger_of_the_means"],
        "push their gradients to a server, which sends the parameters": ["pushes_and_never_pulls"],
        "samples: the computation times": "describes an argument",
        "the server comes in addition": ["counts_the_server_as_a_worker"],
        "nbytes: the length of the gradient": "describes an argument",
        "alpha, beta: a message of n bytes takes α + nβ": "describes the arguments",
        "use its one link, one after the other": ["a_server_of_one_worker"],
        'every: for "local", the number of steps': ["every_for_all_ways"],
        "are consecutive samples": ["rounds_from_everywhere", "windows_that_overlap"],
        "A remainder of fewer than `every` samples": ["uses_what_is_left_over"],
    },
    "measure": {
        "with messages back and forth between ranks 0 and 1": ["whole_round_trip", "long_messages_only"],
        "All ranks call this": "says what the caller keeps to",
        "Only the result of rank 0 counts": "says what is not needed",
        "The first message takes longer": ["no_warm_up"],
        "About a second of measuring is enough": "says what is enough",
        "comm.rank, comm.size": "describes an argument",
        "comm.send(array, to)": "describes an argument",
        "comm.receive(array, source)": "describes an argument",
    },
}
