"""Known wrong answers of lab 14, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
import numpy as np


def metropolis(neighbours):
    weights = np.zeros((len(neighbours), len(neighbours)))
    for one, others in enumerate(neighbours):
        for other in others:
            weights[one, other] = 1 / (1 + max(len(others), len(neighbours[other])))
    return weights + np.diag(1 - weights.sum(axis=1))


def spectral_gap(weights):
    moduli = sorted(abs(np.linalg.eigvalsh(weights)))
    return 1 - moduli[-2] if len(moduli) > 1 else 1.0


def one_peer(rank, ranks, number):
    distances = [2**k for k in range(ranks) if 2**k < ranks] or [0]
    distance = distances[number % len(distances)]
    return (rank + distance) % ranks, (rank - distance) % ranks


def mix(vector, neighbours, comm):
    weights = metropolis(neighbours)[comm.rank]
    old, arriving = vector.copy(), np.empty_like(vector)
    vector *= weights[comm.rank]
    for other in sorted(neighbours[comm.rank]):
        comm.exchange(old, other, arriving, other)
        vector += weights[other] * arriving


def dpsgd_step(vector, gradient, rate, neighbours, comm):
    move = rate * gradient(vector)
    mix(vector, neighbours, comm)
    vector -= move


def push_sum_round(values, weights, hearers):
    new_values, new_weights = np.zeros_like(values), np.zeros_like(weights)
    for rank, others in enumerate(hearers):
        for to in (rank, *others):
            new_values[to] += values[rank] / (1 + len(others))
            new_weights[to] += weights[rank] / (1 + len(others))
    return new_values, new_weights
"""

MUTANTS = [
    Mutant(
        name="always_the_next",
        says="Sends to the next rank in every round: a ring.",
        fails={"one peer": "are the distances 1, 2, 4"},
        changes={
            """
            distances = [2**k for k in range(ranks) if 2**k < ranks] or [0]
            distance = distances[number % len(distances)]
            return (rank + distance) % ranks, (rank - distance) % ranks
            """: "return (rank + 1) % ranks, (rank - 1) % ranks",
        },
    ),
    Mutant(
        name="asks_mpi",
        says="Sends past comm, with a collective of MPI.",
        fails={"messages": "is everything sent through comm"},
        changes={
            """
            weights = metropolis(neighbours)[comm.rank]
            old, arriving = vector.copy(), np.empty_like(vector)
            vector *= weights[comm.rank]
            for other in sorted(neighbours[comm.rank]):
                comm.exchange(old, other, arriving, other)
                vector += weights[other] * arriving
            """: """
            everybodys = np.array(comm.mpi.allgather(vector))
            vector[:] = metropolis(neighbours)[comm.rank] @ everybodys
            """,
        },
    ),
    Mutant(
        name="begins_again_too_late",
        says="Continues up to the distance P, which leads back to itself.",
        fails={"one peer": "the distances begin again"},
        changes={
            "distances = [2**k for k in range(ranks) if 2**k < ranks] or [0]": """
            distances = [2**k for k in range(ranks) if 2**k <= ranks] or [0]
            """,
        },
    ),
    Mutant(
        name="cuts_the_weights_themselves",
        says="Divides the weights that it is given, in place.",
        fails={"push-sum": "push_sum_round changes the weights that it is given"},
        changes={
            "new_values, new_weights = np.zeros_like(values), np.zeros_like(weights)": """
            weights /= [1 + len(others) for others in hearers]
            new_values, new_weights = np.zeros_like(values), np.zeros_like(weights)
            """,
            "weights[rank] / (1 + len(others))": "weights[rank]",
        },
    ),
    Mutant(
        name="distances_of_one_two_three",
        says="Sends at distances 1, 2, 3, and so on.",
        fails={"one peer": "the distances begin again"},
        changes={
            """
            distances = [2**k for k in range(ranks) if 2**k < ranks] or [0]
            distance = distances[number % len(distances)]
            """: "distance = number % (ranks - 1) + 1 if ranks > 1 else 0",
        },
    ),
    Mutant(
        name="eigenvalue_itself",
        says="Returns the eigenvalue and not its distance from 1.",
        fails={"gap": "is the eigenvalue"},
        changes={"return 1 - moduli[-2] if len(moduli) > 1 else 1.0": "return moduli[-2] if len(moduli) > 1 else 0.0"},
    ),
    Mutant(
        name="all_to_all",
        says="Exchanges with all ranks, and gives most vectors the weight 0.",
        fails={"messages": "which is no neighbour"},
        changes={
            """
            for other in sorted(neighbours[comm.rank]):
                comm.exchange(old, other, arriving, other)
                vector += weights[other] * arriving
            """: """
            for other in range(comm.size):
                if other != comm.rank:
                    comm.exchange(old, other, arriving, other)
                    vector += weights[other] * arriving
            """,
        },
    ),
    Mutant(
        name="eigenvalues_as_they_come",
        says="Uses the second eigenvalue of an unsorted list.",
        fails={"gap": "the gap is"},
        changes={
            "moduli = sorted(abs(np.linalg.eigvalsh(weights)))": "moduli = abs(np.linalg.eigvals(weights))[::-1]",
        },
    ),
    Mutant(
        name="goes_uphill",
        says="Adds the gradient.",
        fails={"step": "that goes uphill"},
        changes={"vector -= move": "vector += move"},
    ),
    Mutant(
        name="gradient_after_mixing",
        says="Computes the gradient at the mixed vector.",
        fails={"step": "the gradient is that at the mixed vector"},
        changes={
            "move = rate * gradient(vector)": "",
            "vector -= move": "vector -= rate * gradient(vector)",
        },
    ),
    Mutant(
        name="exchanges_in_pairs",
        says="Exchanges with rank XOR distance, so that some send to the right and some to the left.",
        fails={"one peer": "in a round all send to the right by the same distance"},
        changes={
            "return (rank + distance) % ranks, (rank - distance) % ranks": "return rank ^ distance, rank ^ distance",
        },
    ),
    Mutant(
        name="divides_by_the_weights",
        says="Returns each rank's estimate of the mean instead of its value.",
        fails={"push-sum": "the values come back divided by their weights"},
        changes={"return new_values, new_weights": "return new_values / new_weights[:, None], new_weights"},
    ),
    Mutant(
        name="hears_whom_it_sends_to",
        says="Receives from the rank that it sends to, which sends to another one.",
        fails={"one peer": "from which rank does one receive"},
        changes={
            "return (rank + distance) % ranks, (rank - distance) % ranks": """
            return (rank + distance) % ranks, (rank + distance) % ranks
            """,
        },
    ),
    Mutant(
        name="keeps_all_and_sends_more",
        says="Keeps all of its value and sends parts as well.",
        fails={"push-sum": "the sum of all values has changed"},
        changes={
            "new_values, new_weights = np.zeros_like(values), np.zeros_like(weights)": """
            new_values, new_weights = values.copy(), weights.copy()
            """,
            "for to in (rank, *others):": "for to in others:",
        },
    ),
    Mutant(
        name="keeps_half",
        says="Keeps half, and divides the other half among the ranks that receive from it: the parts are not equal.",
        fails={"push-sum": "rank 1 has a weight of 0.75 after a round"},
        changes={
            """
            for to in (rank, *others):
                new_values[to] += values[rank] / (1 + len(others))
                new_weights[to] += weights[rank] / (1 + len(others))
            """: """
            for to in (rank, *others):
                part = 2 if to == rank else 2 * len(others)
                new_values[to] += values[rank] / part
                new_weights[to] += weights[rank] / part
            """,
        },
    ),
    Mutant(
        name="keeps_nothing",
        says="Sends everything to its receivers and keeps nothing.",
        fails={"push-sum": "that it keeps for itself"},
        changes={
            """
            for to in (rank, *others):
                new_values[to] += values[rank] / (1 + len(others))
                new_weights[to] += weights[rank] / (1 + len(others))
            """: """
            for to in others:
                new_values[to] += values[rank] / len(others)
                new_weights[to] += weights[rank] / len(others)
            """,
        },
    ),
    Mutant(
        name="largest_degree_of_all",
        says="Takes the largest degree of the whole graph for every edge: that mixes, but more slowly.",
        fails={"weights": "not the largest of the graph"},
        changes={
            "weights = np.zeros((len(neighbours), len(neighbours)))": """
            largest = max(map(len, neighbours))
            weights = np.zeros((len(neighbours), len(neighbours)))
            """,
            "weights[one, other] = 1 / (1 + max(len(others), len(neighbours[other])))": """
            weights[one, other] = 1 / (1 + largest)
            """,
        },
    ),
    Mutant(
        name="largest_distance_first",
        says="Begins with the largest distance, and ends with 1.",
        fails={"one peer": "in round 0 rank 0 sends to rank 2, where the distance is 1"},
        changes={"distance = distances[number % len(distances)]": "distance = distances[-1 - number % len(distances)]"},
    ),
    Mutant(
        name="mixes_with_all",
        says="Gives every rank the same weight in every vector, whether or not they are neighbours.",
        fails={
            "weights": "which is no neighbour",
            "mix": "and the mean of all has moved",
            "step": "is mix right",
        },
        changes={
            """
            for one, others in enumerate(neighbours):
                for other in others:
                    weights[one, other] = 1 / (1 + max(len(others), len(neighbours[other])))
            return weights + np.diag(1 - weights.sum(axis=1))
            """: "return weights + 1 / len(neighbours)",
        },
    ),
    Mutant(
        name="no_gap_of_one_rank",
        says="Looks for a second eigenvalue with one rank, which has only one.",
        fails={"gap": "one rank alone: IndexError"},
        changes={"return 1 - moduli[-2] if len(moduli) > 1 else 1.0": "return 1 - moduli[-2]"},
    ),
    Mutant(
        name="no_peer_of_one_rank",
        says="Has no distance for one rank alone.",
        fails={"one peer": "1 rank: ZeroDivisionError"},
        changes={" or [0]": ""},
    ),
    Mutant(
        name="nothing_on_the_diagonal",
        says="Leaves out the weight of a rank's own vector.",
        fails={"weights": "it keeps for itself", "mix": "its own vector is missing", "step": "is mix right"},
        changes={"return weights + np.diag(1 - weights.sum(axis=1))": "return weights"},
    ),
    Mutant(
        name="own_degree_only",
        says="Each rank gives all its neighbours the same weight: the rows sum to 1, but not the columns.",
        fails={
            "weights": "Both ends of an edge need the same weight",
            "mix": "the mean of all has moved",
            "step": "is mix right",
        },
        changes={
            """
            for one, others in enumerate(neighbours):
                for other in others:
                    weights[one, other] = 1 / (1 + max(len(others), len(neighbours[other])))
            return weights + np.diag(1 - weights.sum(axis=1))
            """: """
            for one, others in enumerate(neighbours):
                for other in (one, *others):
                    weights[one, other] = 1 / (1 + len(others))
            return weights
            """,
        },
    ),
    Mutant(
        name="receives_from_its_receivers",
        says="Adds up the parts of the ranks that it sends to, not of those that send to it.",
        fails={"push-sum": "do each rank's parts sum to what it had before?"},
        changes={
            """
            new_values[to] += values[rank] / (1 + len(others))
            new_weights[to] += weights[rank] / (1 + len(others))
            """: """
            new_values[rank] += values[to] / (1 + len(hearers[to]))
            new_weights[rank] += weights[to] / (1 + len(hearers[to]))
            """,
        },
    ),
    Mutant(
        name="returns_the_mixed_vector",
        says="Returns the vector that it has changed, as if it were a new one.",
        fails={"mix": "mix returns something: the result belongs into the vector itself"},
        changes={
            """
            for other in sorted(neighbours[comm.rank]):
                comm.exchange(old, other, arriving, other)
                vector += weights[other] * arriving
            """: """
            for other in sorted(neighbours[comm.rank]):
                comm.exchange(old, other, arriving, other)
                vector += weights[other] * arriving
            return vector
            """,
        },
    ),
    Mutant(
        name="sends_its_row_along",
        says="Sends the weights in a separate message before the vector.",
        fails={"messages": "one to each is enough"},
        changes={
            "old, arriving = vector.copy(), np.empty_like(vector)": """
            old, arriving, theirs = vector.copy(), np.empty_like(vector), np.empty_like(weights)
            """,
            "comm.exchange(old, other, arriving, other)": """
            comm.exchange(weights, other, theirs, other)
            comm.exchange(old, other, arriving, other)
            """,
            "vector += weights[other] * arriving": "vector += theirs[comm.rank] * arriving",
        },
    ),
    Mutant(
        name="sends_its_own_share",
        says="Multiplies its vector by its own weight before it sends it.",
        fails={"mix": "has it sent 0.5 times its vector? Send it as it was", "step": "is mix right"},
        changes={
            """
            old, arriving = vector.copy(), np.empty_like(vector)
            vector *= weights[comm.rank]
            """: """
            vector *= weights[comm.rank]
            old, arriving = vector.copy(), np.empty_like(vector)
            """,
        },
        ranks=2,
    ),
    Mutant(
        name="sends_what_is_mixed",
        says="Sends to the second neighbour what it has already mixed with the first.",
        fails={"mix": "already mixed", "step": "is mix right"},
        changes={
            """
            old, arriving = vector.copy(), np.empty_like(vector)
            vector *= weights[comm.rank]
            """: "",
            """
            comm.exchange(old, other, arriving, other)
            vector += weights[other] * arriving
            """: """
            arriving = np.empty_like(vector)
            comm.exchange(vector, other, arriving, other)
            vector += weights[other] * (arriving - vector)
            """,
        },
    ),
    Mutant(
        name="signed_eigenvalue",
        says="Uses the second largest eigenvalue, although −1 counts as much as 1.",
        fails={"gap": "their moduli count"},
        changes={
            """
            moduli = sorted(abs(np.linalg.eigvalsh(weights)))
            return 1 - moduli[-2] if len(moduli) > 1 else 1.0
            """: """
            eigenvalues = np.sort(np.linalg.eigvalsh(weights))
            return 1 - eigenvalues[-2] if len(eigenvalues) > 1 else 1.0
            """,
        },
    ),
    Mutant(
        name="steps_and_then_mixes",
        says="Mixes after the step.",
        fails={"step": "mix the vectors as they were before the step"},
        changes={
            "move = rate * gradient(vector)": "vector -= rate * gradient(vector)",
            "vector -= move": "",
        },
    ),
    Mutant(
        name="steps_in_a_new_array",
        says="Puts the result of the step into a new array.",
        fails={"step": "that is the mixing alone"},
        changes={"vector -= move": "vector = vector - move"},
    ),
    Mutant(
        name="weights_stay_at_home",
        says="Sends the values and keeps the weight.",
        fails={"push-sum": "they travel with the values"},
        changes={
            "new_values, new_weights = np.zeros_like(values), np.zeros_like(weights)": """
            new_values = np.zeros_like(values)
            """,
            """
            for rank, others in enumerate(hearers):
                for to in (rank, *others):
                    new_values[to] += values[rank] / (1 + len(others))
                    new_weights[to] += weights[rank] / (1 + len(others))
            return new_values, new_weights
            """: """
            for rank, others in enumerate(hearers):
                for to in (rank, *others):
                    new_values[to] += values[rank] / (1 + len(others))
            return new_values, weights
            """,
        },
    ),
    Mutant(
        name="works_on_a_copy",
        says="Mixes into a new array and leaves the vector as it was.",
        fails={"mix": "as it was", "step": "own step alone"},
        changes={
            """
            old, arriving = vector.copy(), np.empty_like(vector)
            vector *= weights[comm.rank]
            """: "mixed, arriving = weights[comm.rank] * vector, np.empty_like(vector)",
            """
            for other in sorted(neighbours[comm.rank]):
                comm.exchange(old, other, arriving, other)
                vector += weights[other] * arriving
            """: """
            for other in sorted(neighbours[comm.rank]):
                comm.exchange(vector, other, arriving, other)
                mixed += weights[other] * arriving
            vector = mixed
            """,
        },
    ),
]

SENTENCES: Sentences = {
    "metropolis": {
        "Return the Metropolis weights": ["largest_degree_of_all"],
        "neighbours: for each rank, its neighbours": "describes an argument",
        "The graph is undirected": "says what the caller keeps to",
        "W, float64, of shape (ranks, ranks)": ["own_degree_only"],
        "the larger of the two degrees": ["largest_degree_of_all", "own_degree_only"],
        "and 0 for other pairs": ["mixes_with_all"],
        "The diagonal entries make each row sum to 1": ["nothing_on_the_diagonal"],
    },
    "spectral_gap": {
        "Return 1 minus": ["eigenvalue_itself"],
        "the second largest |eigenvalue|": ["signed_eigenvalue", "eigenvalues_as_they_come"],
        "1 for a single rank": ["no_gap_of_one_rank"],
    },
    "one_peer": {
        "whose distances are 1, 2, 4, …": ["always_the_next", "distances_of_one_two_three", "exchanges_in_pairs"],
        "from 0 on": ["largest_distance_first"],
        "The distances start again at 1": ["begins_again_too_late"],
        "and the rank that it receives from": ["hears_whom_it_sends_to"],
        "itself if it is the only rank": ["no_peer_of_one_rank"],
    },
    "mix": {
        "Σ_j W[i, j]·(rank j's vector before the round)": ["sends_what_is_mixed", "sends_its_own_share"],
        "Every rank calls this at the same time": "says what the caller keeps to",
        "at most one message to each of its neighbours": ["sends_its_row_along"],
        "none to any other rank": ["all_to_all"],
        "vector: float64": "describes an argument",
        "The result is written into it": ["works_on_a_copy"],
        "nothing is returned": ["returns_the_mixed_vector"],
        "neighbours: those of all ranks": "describes an argument",
        "comm: this rank's communicator": "describes an argument",
    },
    "dpsgd_step": {
        "x_i ← Σ_j W[i, j]·x_j − rate·g_i": ["goes_uphill", "steps_and_then_mixes"],
        "as it was before the step": ["gradient_after_mixing"],
        "the result is written into it": ["steps_in_a_new_array"],
        "gradient: a function": "describes an argument",
    },
    "push_sum_round": {
        "Run one round of push-sum": ["keeps_all_and_sends_more"],
        "into equal parts": ["keeps_half"],
        "and one that it keeps": ["keeps_nothing"],
        "Each rank's estimate of the mean": ["divides_by_the_weights"],
        "values: of shape (ranks, length)": "describes the arguments",
        "Neither is changed": ["cuts_the_weights_themselves"],
        "hearers: for each rank": ["receives_from_its_receivers"],
        "The values and the weights after the round": ["weights_stay_at_home"],
    },
}
