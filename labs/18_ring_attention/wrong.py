"""Known wrong answers of lab 18, as changes of `reference.py`."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

MUTANTS = [
    Mutant(
        name="adds_the_answers",
        says="Adds the answers of two blocks, as if each were a part of a sum.",
        fails={"join": "is the sum of the two", "attention": "is right"},
        changes={
            "return share[:, None] * answer + other_share[:, None] * other_answer, joined": """
            return answer + other_answer, joined
            """,
        },
    ),
    Mutant(
        name="as_many_keys_as_queries",
        says="Assumes that the block of scores is square.",
        fails={"block": "IndexError"},
        changes={
            "scores[np.arange(len(key)) > np.arange(len(query))[:, None] + ahead] = -np.inf": """
            scores[~np.tri(len(query), len(query), ahead, dtype=bool)] = -np.inf
            """,
        },
    ),
    Mutant(
        name="divides_by_no_weight",
        says="Divides by the sum of a query's weights, although it may have seen no key.",
        fails={
            "block": "an answer is nan: which query sees no key of this block?",
            "attention": "the answer on rank 0 is nan",
        },
        changes={"/ np.where(total > 0, total, 1)": "/ total"},
    ),
    Mutant(
        name="forgets_the_largest_score",
        says="Takes exp of the scores as they are, which overflows where they are large.",
        fails={"large scores": "exp(10,000) is no float"},
        changes={"largest[np.isinf(largest)] = 0": "largest[:] = 0"},
    ),
    Mutant(
        name="forgets_the_root",
        says="Leaves the scores as large as the width makes them.",
        fails={"block": "not divided by √width", "large scores": "is right", "attention": "is right"},
        changes={"query @ key.T / np.sqrt(query.shape[1])": "query @ key.T"},
    ),
    Mutant(
        name="forgets_what_it_has_subtracted",
        says="Subtracts the largest score, and does not add it to the logarithm again.",
        fails={
            "block": ": the logarithm of the sum of exp(score)",
            "large scores": "L is 0 at 0",
            "attention": "each with its own positions?",
        },
        changes={"return answer, log_sum + largest[:, 0]": "return answer, log_sum"},
    ),
    Mutant(
        name="gathers_all_scores",
        says="Keeps the scores of every block, and takes the softmax of whole rows at the end.",
        fails={"memory": "blocks of scores at a time"},
        changes={
            """
            answer, log_sum = attend(query, block[0], block[1], 0)
            for step in range(1, comm.size):
            """: """
            scores, values = [], []
            for step in range(comm.size):
                if step:
            """,
            """
                arriving = np.empty_like(block)
                comm.exchange(block, right, arriving, left)
                block = arriving
                owner = (comm.rank - step) % comm.size
                ahead = (comm.rank - owner) * len(query)
                answer, log_sum = join(answer, log_sum, *attend(query, block[0], block[1], ahead))
            return answer
            """: """
                    arriving = np.empty_like(block)
                    comm.exchange(block, right, arriving, left)
                    block = arriving
                owner = (comm.rank - step) % comm.size
                ahead = (comm.rank - owner) * len(query)
                scores.append(query @ block[0].T / np.sqrt(query.shape[1]))
                scores[-1][np.arange(len(query)) > np.arange(len(query))[:, None] + ahead] = -np.inf
                values.append(block[1])
            scores = np.concatenate(scores, axis=1)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            return weights @ np.concatenate(values) / weights.sum(axis=1, keepdims=True)
            """,
        },
    ),
    Mutant(
        name="gathers_the_blocks_first",
        says="Receives all blocks, and attends to them only then: the keys and values of the whole sequence at once.",
        fails={"memory": "blocks of keys and values: it needs the one that is here"},
        changes={
            """
            answer, log_sum = attend(query, block[0], block[1], 0)
            for step in range(1, comm.size):
                arriving = np.empty_like(block)
                comm.exchange(block, right, arriving, left)
                block = arriving
                owner = (comm.rank - step) % comm.size
            """: """
            blocks = [block]
            for _ in range(1, comm.size):
                blocks.append(np.empty_like(block))
                comm.exchange(blocks[-2], right, blocks[-1], left)
            answer, log_sum = attend(query, block[0], block[1], 0)
            for step in range(1, comm.size):
                block = blocks[step]
                owner = (comm.rank - step) % comm.size
            """,
        },
    ),
    Mutant(
        name="hides_its_own_key",
        says="Lets a query see only the keys before its own.",
        fails={"block": "does not see its own key", "attention": "is right"},
        changes={"np.arange(len(key)) > np.arange(len(query))": "np.arange(len(key)) >= np.arange(len(query))"},
    ),
    Mutant(
        name="keeps_its_own_block",
        says="Attends to its own block in every step, and passes the others on unread.",
        fails={"attention": "has seen this rank's keys alone"},
        changes={
            "join(answer, log_sum, *attend(query, block[0], block[1], ahead))": """
            join(answer, log_sum, *attend(query, key, value, 0))
            """,
        },
    ),
    Mutant(
        name="looks_ahead",
        says="Ignores a block's positions, and lets every query see all of it.",
        fails={"attention": "which `ahead` have their blocks"},
        changes={"ahead = (comm.rank - owner) * len(query)": "ahead = len(query)"},
    ),
    Mutant(
        name="nothing_counts_as_one",
        says="Begins with 0 where a query has seen no key: that is the logarithm of one key's weight.",
        fails={"block": "L is 0 at 0, and -inf is right", "attention": "which `ahead` have their blocks"},
        changes={"log_sum = np.full(len(query), -np.inf)": "log_sum = np.zeros(len(query))"},
    ),
    Mutant(
        name="passes_them_home",
        says="Passes the blocks on after the last step too, until each is back on its own rank.",
        fails={"bytes": "after the last one the ring has no need"},
        changes={
            """
                answer, log_sum = join(answer, log_sum, *attend(query, block[0], block[1], ahead))
            return answer
            """: """
                answer, log_sum = join(answer, log_sum, *attend(query, block[0], block[1], ahead))
            comm.exchange(block, right, np.empty_like(block), left)
            return answer
            """,
        },
    ),
    Mutant(
        name="passes_them_to_the_left",
        says="Passes the blocks to the left, and takes them for those of a ring to the right.",
        fails={"attention": "whose block is here after each exchange?"},
        changes={"comm.exchange(block, right, arriving, left)": "comm.exchange(block, left, arriving, right)"},
    ),
    Mutant(
        name="keys_minus_queries",
        says="Subtracts the position of the query from that of the key, so that later blocks count.",
        fails={"attention": "which `ahead` have their blocks"},
        changes={"(comm.rank - owner) * len(query)": "(owner - comm.rank) * len(query)"},
    ),
    Mutant(
        name="receives_into_its_keys",
        says="Receives each block into the keys and values that it was given.",
        fails=dict.fromkeys(
            ("attention", "bytes", "neighbours", "memory"), "ring_attention changes key: work on a copy"
        ),
        changes={
            "block = np.stack((key, value))": "block = key, value",
            """
            arriving = np.empty_like(block)
            comm.exchange(block, right, arriving, left)
            block = arriving
            """: """
            for array in block:
                arriving = np.empty_like(array)
                comm.exchange(array, right, arriving, left)
                array[:] = arriving
            """,
        },
    ),
    Mutant(
        name="scales_the_query_itself",
        says="Divides the query that it is given by √width, in place.",
        fails={
            "block": "attend changes its query, key or value",
            "large scores": "is right",
            "attention": "ring_attention changes query",
            "bytes": "ring_attention changes query",
            "neighbours": "ring_attention changes query",
            "memory": "ring_attention changes query",
        },
        changes={
            "scores = query @ key.T / np.sqrt(query.shape[1])": """
            query /= np.sqrt(query.shape[1])
            scores = query @ key.T
            """,
        },
    ),
    Mutant(
        name="sees_everything_in_a_block",
        says="Leaves out the causal mask.",
        fails={
            "block": "every query sees every key",
            "attention": "has seen keys after the query",
        },
        changes={"scores[np.arange(len(key)) > np.arange(len(query))[:, None] + ahead] = -np.inf": "pass"},
    ),
    Mutant(
        name="sends_to_each",
        says="Sends its own block to every rank itself, instead of passing on what has come from the left.",
        fails={"neighbours": "in a ring it knows only"},
        changes={
            "comm.exchange(block, right, arriving, left)": """
            own, to, source = np.stack((key, value)), (comm.rank + step) % comm.size, (comm.rank - step) % comm.size
            comm.exchange(own, to, arriving, source)
            """,
        },
    ),
    Mutant(
        name="stumbles_over_nothing",
        says="Compares with L even where no key has been seen in either block: −inf − (−inf).",
        fails={"join": "−inf − (−inf) is none"},
        changes={"np.where(np.isinf(joined), 0, joined)": "joined"},
    ),
    Mutant(
        name="subtracts_only_what_is_above_zero",
        says="Subtracts the largest score only where it is above 0: where all are far below, every exp is 0.",
        fails={"large scores": "scores of −10,000: there are infinities or nan"},
        changes={
            "largest = scores.max(axis=1, keepdims=True)": """
            largest = np.maximum(scores.max(axis=1, keepdims=True), 0)
            """,
        },
    ),
    Mutant(
        name="takes_the_mean",
        says="Takes the plain mean of two blocks' answers, whatever their weights.",
        fails={"join": "is the mean of the two", "attention": "is right"},
        changes={
            "return share[:, None] * answer + other_share[:, None] * other_answer, joined": """
            return (answer + other_answer) / 2, joined
            """,
        },
    ),
    Mutant(
        name="takes_the_sums_themselves",
        says="Computes with exp(L), which is too large for any float where scores are large.",
        fails={"join": "use L only in differences"},
        changes={
            "share, other_share = np.exp(log_sum - reference), np.exp(other_log_sum - reference)": """
            total = np.exp(log_sum) + np.exp(other_log_sum)
            total = np.where(total == 0, 1, total)
            share, other_share = np.exp(log_sum) / total, np.exp(other_log_sum) / total
            """,
        },
    ),
    Mutant(
        name="warns_of_nothing",
        says="Computes −inf − (−inf) and replaces it afterwards: right, with a warning for every empty block.",
        fails={"join": "join warns (RuntimeWarning: invalid value"},
        changes={
            """
            reference = np.where(np.isinf(joined), 0, joined)
            share, other_share = np.exp(log_sum - reference), np.exp(other_log_sum - reference)
            """: """
            sums = log_sum, other_log_sum
            share, other_share = (np.where(np.isinf(each), 0, np.exp(each - joined)) for each in sums)
            """,
        },
    ),
]

SENTENCES: Sentences = {
    "attend": {
        "Return the attention of some queries to one block of keys": ["as_many_keys_as_queries"],
        "query[i]·key[j]/√width": ["forgets_the_root"],
        "Query i sees exactly the keys j <= i + ahead": ["sees_everything_in_a_block", "hides_its_own_key"],
        "query, key, value: (queries, width)": ["as_many_keys_as_queries"],
        "They are not changed": ["scales_the_query_itself"],
        "ahead: position of the first query minus": ["keys_minus_queries"],
        "weighted by the softmax of its scores": ["forgets_the_largest_score", "subtracts_only_what_is_above_zero"],
        "0 for a query that sees no key": ["divides_by_no_weight"],
        "the logarithm of the sum of exp(score)": ["forgets_what_it_has_subtracted"],
        "-np.inf if it sees none": ["nothing_counts_as_one"],
    },
    "join": {
        "Return the answers and L for two blocks together": ["takes_the_mean", "takes_the_sums_themselves"],
        "A query may have seen no key in either block": ["stumbles_over_nothing"],
        "This causes no warning and no nan": ["warns_of_nothing", "stumbles_over_nothing"],
    },
    "ring_attention": {
        "Return the answers of this rank's queries": ["keeps_its_own_block"],
        "A query sees all keys up to its own position": ["looks_ahead"],
        "Every rank calls this at the same time": "says what the caller keeps to",
        "Rank r has the positions": ["passes_them_to_the_left"],
        "for this rank's positions; n is the same": "describes the arguments",
        "They are not changed": ["receives_into_its_keys"],
        "comm: this rank's communicator": "describes an argument",
        "comm.exchange(send, to, receive, source)": "describes an argument",
        "The arrays are contiguous": "says what the caller of comm keeps to",
    },
}
