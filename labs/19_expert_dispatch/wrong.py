"""Known wrong answers of lab 19, as changes of `reference.py`."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

MUTANTS = [
    Mutant(
        name="accepts_the_last",
        says="Lets an expert accept the last tokens that choose it.",
        fails={
            "accept": "the last tokens are accepted",
            "capacity": "is right",
            "experts": "rows that are not those of its tokens",
        },
        changes={
            "place = before + chosen.cumsum(axis=0)": "place = before + chosen[::-1].cumsum(axis=0)[::-1]",
        },
    ),
    Mutant(
        name="adds_the_token",
        says="Returns a dropped token as its own answer, which the residual connection then adds a second time.",
        fails={"capacity": "is x where a token is dropped"},
        changes={"y = np.zeros_like(x)": "y = x.copy()"},
    ),
    Mutant(
        name="answers_into_x",
        says="Writes the answers over the tokens.",
        fails=dict.fromkeys(("bytes", "mixture", "capacity", "experts"), "mixture changes x: work on a copy"),
        changes={"y = np.zeros_like(x)": "y = x"},
    ),
    Mutant(
        name="blocks_of_floats_only",
        says="Makes room for float64, whatever the blocks are: the bits of whole numbers are others.",
        fails={"all to all": "whole numbers, one for each row: block"},
        changes={
            "np.empty((length, *blocks[0].shape[1:]), blocks[0].dtype)": "np.empty((length, *blocks[0].shape[1:]))",
            "own = np.bincount(choice, minlength=router.shape[1])": """
            own = np.bincount(choice, minlength=router.shape[1]).astype(float)
            """,
            "counts = np.concatenate(all_to_all([own[None]] * comm.size, [1] * comm.size, comm))": """
            counts = np.concatenate(all_to_all([own[None]] * comm.size, [1] * comm.size, comm)).astype(int)
            """,
        },
    ),
    Mutant(
        name="blocks_of_rows_only",
        says="Makes room for blocks of two dimensions, whatever dimensions they have.",
        fails={"all to all": "whole numbers, one for each row: IndexError"},
        changes={
            "np.empty((length, *blocks[0].shape[1:]), blocks[0].dtype)": """
            np.empty((length, blocks[0].shape[1]), blocks[0].dtype)
            """,
        },
    ),
    Mutant(
        name="choices_as_floats",
        says="Returns the choices as floats, which are no indices.",
        fails={"route": "the choices are float64: they are numbers of experts, integers"},
        changes={
            "return choice, odds[np.arange(len(odds)), choice]": """
            return choice.astype(float), odds[np.arange(len(odds)), choice]
            """,
            "choice, weight = route(x @ router)": """
            choice, weight = route(x @ router)
            choice = choice.astype(int)
            """,
        },
    ),
    Mutant(
        name="chooses_the_last_of_equals",
        says="Chooses the expert with the highest number among equal scores.",
        fails={"route": "among equal scores the lower number"},
        changes={
            "choice = odds.argmax(axis=1)": "choice = odds.shape[1] - 1 - odds[:, ::-1].argmax(axis=1)",
        },
    ),
    Mutant(
        name="clears_what_it_has_sent",
        says="Clears the blocks when it has sent them, which belong to the caller.",
        fails={"all to all": "all_to_all changes the blocks that it was given"},
        changes={
            "return arrived": """
            for block in blocks:
                block[...] = 0
            return arrived
            """,
        },
    ),
    Mutant(
        name="computes_with_everything",
        says="Lets every expert of a rank compute with all rows that have come to the rank, and chooses afterwards.",
        fails={"experts": "it computes with those that it accepts"},
        changes={
            "answers[expert_of == number] = expert(rows[expert_of == number])": """
            answers[expert_of == number] = expert(rows)[expert_of == number]
            """,
        },
    ),
    Mutant(
        name="counts_from_zero",
        says="Counts the tokens before a token, not up to it, so one more is accepted.",
        fails={"accept": "one token too many", "capacity": "has more bytes", "experts": "has more bytes"},
        changes={"[np.arange(len(choice)), choice] <= capacity": "[np.arange(len(choice)), choice] - 1 <= capacity"},
    ),
    Mutant(
        name="forgets_the_lower_ranks",
        says="Gives each rank a separate capacity.",
        fails={"capacity": "of *each rank*", "experts": "it computes with those that it accepts"},
        changes={"before = counts.cumsum(axis=0) - counts": "before = np.zeros_like(counts)"},
    ),
    Mutant(
        name="forgets_the_weight",
        says="Returns the expert's answer without the weight, of which the router would learn nothing.",
        fails={"mixture": "multiply it by the token's weight", "capacity": "is right"},
        changes={"y[order] = weight[order, None] * back": "y[order] = back"},
    ),
    Mutant(
        name="has_the_wrong_neighbour",
        says="Puts each block in the place of the block from the other side.",
        fails={
            "all to all": "comes from another rank",
            "bytes": "the message from rank",
            "mixture": "the message from rank",
            "capacity": "the message from rank",
            "experts": "the message from rank",
        },
        ranks=3,
        changes={
            "return arrived": "return arrived[: comm.rank + 1] + arrived[:comm.rank:-1]",
        },
    ),
    Mutant(
        name="ignores_before",
        says="Counts this rank's tokens alone, although those of lower ranks come first.",
        fails={
            "accept": "`before` of the capacity are used already",
            **dict.fromkeys(("capacity", "experts"), "ValueError: "),
        },
        changes={"place = before + chosen.cumsum(axis=0)": "place = chosen.cumsum(axis=0)"},
    ),
    Mutant(
        name="ignores_the_capacity",
        says="Accepts all tokens.",
        fails={"capacity": "is that without a capacity", "experts": "it computes with those that it accepts"},
        changes={
            "accepted = np.flatnonzero(accept(choice, before[comm.rank], capacity))": """
            capacity = len(x) * 1000
            accepted = np.arange(len(x))
            """,
        },
    ),
    Mutant(
        name="leaves_out_an_idle_expert",
        says="Does not call an expert that accepts no token.",
        fails={"experts": "was not called: each is called once"},
        changes={
            "answers[expert_of == number] = expert(rows[expert_of == number])": """
            if (expert_of == number).any():
                answers[expert_of == number] = expert(rows[expert_of == number])
            """,
        },
    ),
    Mutant(
        name="leaves_them_as_they_return",
        says="Puts the answers in the order in which they return.",
        fails={"mixture": "but for the order", "capacity": "is right"},
        changes={"y[order] = weight[order, None] * back": "y[: len(order)] = weight[order, None] * back"},
    ),
    Mutant(
        name="lets_scores_overflow",
        says="Takes exp of the scores as they are, which overflows where they are large.",
        fails={"route": "exp(10,000) is no float"},
        changes={"odds = np.exp(scores - scores.max(axis=1, keepdims=True))": "odds = np.exp(scores)"},
    ),
    Mutant(
        name="normalises_the_weight",
        says="Divides the weight by the sum of the chosen weights, which is itself.",
        fails={"route": "every weight is 1", "mixture": "multiply it by the token's weight", "capacity": "is right"},
        changes={"return choice, odds[np.arange(len(odds)), choice]": "return choice, np.ones(len(odds))"},
    ),
    Mutant(
        name="one_token_at_a_time",
        says="Calls an expert for each of its tokens.",
        fails={"experts": "times: once with all its rows"},
        changes={
            "answers[expert_of == number] = expert(rows[expert_of == number])": """
            for row in np.flatnonzero(expert_of == number):
                answers[row] = expert(rows[row : row + 1])[0]
            """,
        },
    ),
    Mutant(
        name="ones_and_zeros",
        says="Returns ones and zeros, which choose other tokens than booleans do.",
        fails={"accept": "not booleans: as indices, 0 and 1 would be the first two tokens"},
        changes={
            "return place[np.arange(len(choice)), choice] <= capacity": """
            return (place[np.arange(len(choice)), choice] <= capacity).astype(int)
            """,
        },
    ),
    Mutant(
        name="pads_the_blocks",
        says="Pads all blocks to the longest, so that all messages are equally long.",
        fails={"bytes": "need not be padded"},
        changes={
            """
                comm.exchange(blocks[to], to, arrived[source], source)
            return arrived
            """: """
                padded = np.zeros((max(3, *map(len, blocks), *lengths), *blocks[0].shape[1:]), blocks[0].dtype)
                most = np.array([len(padded)])
                comm.mpi.Allreduce(most.copy(), most, MPI.MAX)
                padded.resize((int(most[0]), *blocks[0].shape[1:]))
                padded[: len(blocks[to])] = blocks[to]
                came = np.empty_like(padded)
                comm.exchange(padded, to, came, source)
                arrived[source][...] = came[: lengths[source]]
            return arrived
            """,
            "import numpy as np": """
            import numpy as np
            from mpi4py import MPI
            """,
        },
    ),
    Mutant(
        name="sends_before_it_receives",
        says="Sends all blocks first, while every other rank sends too, and none receives.",
        fails={
            "all to all": "deadlock: ",
            "bytes": "deadlock: ",
            "mixture": "deadlock: ",
            "capacity": "deadlock: ",
            "experts": "deadlock: ",
        },
        ranks=2,
        changes={
            """
                comm.exchange(blocks[to], to, arrived[source], source)
            """: """
                comm.send(blocks[to], to)
                comm.receive(arrived[source], source)
            """,
        },
    ),
    Mutant(
        name="sends_itself_a_message",
        says="Sends the block that stays here through the communicator.",
        fails={"bytes": "a rank's block for itself"},
        changes={
            "arrived[comm.rank][...] = blocks[comm.rank]": "",
            "for distance in range(1, comm.size):": "for distance in range(comm.size):",
        },
    ),
    Mutant(
        name="sends_tokens_to_all",
        says="Sends every token to every rank, where each expert selects its own.",
        fails={"bytes": "and to no other"},
        changes={
            """
            rows = np.concatenate(all_to_all(leaving, here.sum(axis=1), comm))
            """: """
            everything = [x[order]] * comm.size
            totals = kept.sum(axis=1)
            came = np.concatenate(all_to_all(everything, totals, comm))
            experts_of_all = np.repeat(np.tile(np.arange(kept.shape[1]), comm.size), kept.ravel())
            rows = came[experts_of_all // len(experts) == comm.rank]
            """,
        },
    ),
    Mutant(
        name="subtracts_from_the_scores_themselves",
        says="Subtracts the largest score in place.",
        fails={"route": "route changes the scores that it was given"},
        changes={
            "odds = np.exp(scores - scores.max(axis=1, keepdims=True))": """
            scores -= scores.max(axis=1, keepdims=True)
            odds = np.exp(scores)
            """,
        },
    ),
    Mutant(
        name="weights_of_the_first_tokens",
        says="Multiplies what returns by the weights in the order of the tokens, which is not that of what returns.",
        fails={"mixture": "of the right experts, but with other weights", "capacity": "which tokens are accepted"},
        changes={"weight[order, None] * back": "weight[: len(order), None] * back"},
    ),
    Mutant(
        name="swaps_the_experts",
        says="Numbers the experts of a rank from the last to the first.",
        fails={"mixture": "is right", "capacity": "is right", "experts": "it computes with those that it accepts"},
        changes={
            "answers[expert_of == number] = expert(rows[expert_of == number])": """
            theirs = expert_of == len(experts) - 1 - number
            answers[theirs] = expert(rows[theirs])
            """,
        },
    ),
]

SENTENCES: Sentences = {
    "route": {
        "the weight of that expert's answer": ["normalises_the_weight"],
        "scores: (tokens, experts)": "describes an argument",
        "They may be large": ["lets_scores_overflow"],
        "They are not changed": ["subtracts_from_the_scores_themselves"],
        "among equal scores, the one with the lowest number": ["chooses_the_last_of_equals"],
        "(tokens,), integers": ["choices_as_floats"],
        "Its softmax probability": ["normalises_the_weight"],
    },
    "accept": {
        "(tokens,), booleans": ["ones_and_zeros"],
        "Each expert accepts the first `capacity` tokens": ["counts_from_zero"],
        "in rank order": ["ignores_before"],
        "within a rank in the order of the tokens": ["accepts_the_last"],
        "choice: each token's expert": "describes an argument",
        "before: for each expert": ["ignores_before"],
    },
    "all_to_all": {
        "block s of the result comes from rank s": ["has_the_wrong_neighbour"],
        "Every rank calls this at the same time": "says what the caller keeps to",
        "arrays (rows, …) with different numbers of rows": ["blocks_of_rows_only"],
        "of one type": ["blocks_of_floats_only"],
        "They are not changed": ["clears_what_it_has_sent"],
        "lengths: lengths[s] is the number of rows": ["pads_the_blocks"],
        "comm: this rank's communicator": "describes an argument",
        "comm.exchange(send, to, receive, source)": "describes an argument",
        "and wait for the other rank": ["sends_before_it_receives"],
    },
    "mixture": {
        "Return each token's answer": ["leaves_them_as_they_return"],
        "weight · expert(token)": ["forgets_the_weight", "weights_of_the_first_tokens"],
        "or zeros if the expert does not accept it": ["adds_the_token"],
        "Every rank calls this at the same time": "says what the caller keeps to",
        "expert e is number e % m on rank e // m": ["swaps_the_experts"],
        "x: this rank's tokens": "describes an argument",
        "They are not changed": ["answers_into_x"],
        "router: (width, experts of all ranks)": "describes an argument",
        "experts: the m experts of this rank": "describes an argument",
        "Each is called once": ["one_token_at_a_time"],
        "with exactly the rows that it accepts": ["computes_with_everything", "ignores_the_capacity"],
        "there may be 0 rows": ["leaves_out_an_idle_expert"],
        "over all ranks together": ["forgets_the_lower_ranks"],
    },
}
