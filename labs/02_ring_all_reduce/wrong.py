"""Known wrong answers of lab 2, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
import numpy as np


def ring_all_reduce_mean(gradient, comm):
    rank, size = comm.rank, comm.size
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(gradient, size)
    for step in range(size - 1):
        own = chunks[(rank - step - 1) % size]
        arriving = np.empty_like(own)
        comm.exchange(chunks[(rank - step) % size], right, arriving, left)
        own += arriving
    for step in range(size - 1):
        comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)
    gradient /= size
"""

MUTANTS = [
    Mutant(
        name="adds_in_its_own_order",
        says="Passes whole gradients around once, and every rank adds them up alone, in another order.",
        fails={"same bits": "in the last bits", "bytes": "where a ring sends", "messages": "where a ring sends"},
        changes={
            ORIGINAL: """
            import numpy as np



            def ring_all_reduce_mean(gradient, comm):
                right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
                passing, arriving = gradient.copy(), np.empty_like(gradient)
                for _ in range(comm.size - 1):
                    comm.exchange(passing, right, arriving, left)
                    gradient += arriving
                    passing, arriving = arriving, passing
                gradient /= comm.size
            """,
        },
    ),
    Mutant(
        name="adds_in_the_second_round",
        says="Adds in the second round too, where a finished chunk should replace the rank's own.",
        fails={
            "mean": "is a sum added to what it contains already?",
            "any length": "see the check mean",
            "same bits": "end with different vectors",
            "type": "see the check mean",
        },
        changes={
            """
            for step in range(size - 1):
                own = chunks[(rank - step - 1) % size]
            """: """
            for step in range(2 * (size - 1)):
                own = chunks[(rank - step - 1) % size]
            """,
            """
            for step in range(size - 1):
                comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)
            """: "",
        },
    ),
    Mutant(
        name="another_ring",
        says="Goes around a ring in another order of the ranks, in which neighbours are not next to each other.",
        fails={"neighbours": "rank 0 communicated with rank 2: in a ring it knows only ranks 1 and 3"},
        changes={
            "right, left = (rank + 1) % size, (rank - 1) % size": """
            order = [*range(0, size, 2), *range(1, size, 2)]
            rank = order.index(rank)
            right, left = order[(rank + 1) % size], order[(rank - 1) % size]
            """,
        },
    ),
    Mutant(
        name="cuts_copies",
        says="Cuts the gradient into copies: what it adds up is in them, and not in the gradient.",
        fails={
            "mean": "are your chunks copies",
            "any length": "see the check mean",
            "same bits": "end with different vectors",
            "type": "see the check mean",
        },
        changes={
            "chunks = np.array_split(gradient, size)": """
            chunks = [chunk.copy() for chunk in np.array_split(gradient, size)]
            """,
        },
    ),
    Mutant(
        name="divides_a_new_array",
        says="Binds the name gradient to a new array with the mean: the sum stays in the array that it was given.",
        fails={
            "mean": "does the mean go into the array itself",
            "any length": "see the check mean",
            "type": "see the check mean",
        },
        changes={"gradient /= size": "gradient = gradient / size"},
    ),
    Mutant(
        name="divides_at_every_step",
        says="Divides after every addition: what was added first is divided again and again.",
        fails={"mean": "is it divided at every step", "any length": "see the check mean", "type": "see the check mean"},
        changes={
            "own += arriving": """
            own += arriving
            own /= size
            """,
            "gradient /= size": "",
        },
    ),
    Mutant(
        name="divides_twice",
        says="Divides its own gradient before the ring, and the result after it.",
        fails={"mean": "divide only once", "any length": "see the check mean", "type": "see the check mean"},
        changes={
            "chunks = np.array_split(gradient, size)": """
            gradient /= size
            chunks = np.array_split(gradient, size)
            """,
        },
    ),
    Mutant(
        name="drops_the_remainder",
        says="Cuts P chunks of n // P elements: the n % P elements at the end belong to no chunk.",
        fails={"any length": "where the remainder of"},
        changes={
            "chunks = np.array_split(gradient, size)": """
            length = len(gradient) // size
            chunks = [gradient[i * length : (i + 1) * length] for i in range(size)]
            """,
        },
    ),
    Mutant(
        name="forgets_to_divide",
        says="Leaves the sum, not the mean.",
        fails={"mean": "the result is the sum", "any length": "see the check mean", "type": "see the check mean"},
        changes={"gradient /= size": ""},
    ),
    Mutant(
        name="leaves_out_empty_chunks",
        says="Exchanges nothing where its own chunk is empty: the next message is taken for the one left out.",
        fails={"any length": "has a rank left out an empty chunk?"},
        changes={
            "comm.exchange(chunks[(rank - step) % size], right, arriving, left)": """
            if len(chunks[(rank - step) % size]):
                comm.exchange(chunks[(rank - step) % size], right, arriving, left)
            """,
            "comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)": """
            if len(chunks[(rank + 1 - step) % size]):
                comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)
            """,
        },
    ),
    Mutant(
        name="memory_of_another_type",
        says="Receives into np.empty(n), which is float64 whatever the gradient is.",
        fails={"type": "the same length and type on both sides?"},
        changes={"arriving = np.empty_like(own)": "arriving = np.empty(len(own))"},
    ),
    Mutant(
        name="off_by_one_chunk",
        says="Counts the chunks of the second round as in the first: unfinished chunks are passed around.",
        fails={
            "mean": "is a chunk number off by one, or",
            "any length": "see the check mean",
            "type": "see the check mean",
        },
        changes={
            "import numpy as np": """
            from itertools import pairwise

            import numpy as np
            """,
            "chunks = np.array_split(gradient, size)": """
            bounds = [len(gradient) * i // size for i in range(size + 1)]
            chunks = [gradient[start:stop] for start, stop in pairwise(bounds)]
            """,
            "comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)": """
            comm.exchange(chunks[(rank - step) % size], right, chunks[(rank - step - 1) % size], left)
            """,
        },
    ),
    Mutant(
        name="receives_before_sending",
        says="Every rank receives first and sends afterwards: no rank sends, and all wait for ever.",
        fails=dict.fromkeys(
            ("mean", "any length", "same bits", "bytes", "messages", "neighbours", "type"),
            "all wait in receive: no rank sends",
        ),
        changes={
            "comm.exchange(chunks[(rank - step) % size], right, arriving, left)": """
            comm.receive(arriving, left)
            comm.send(chunks[(rank - step) % size], right)
            """,
            "comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)": """
            comm.receive(chunks[(rank - step) % size], left)
            comm.send(chunks[(rank + 1 - step) % size], right)
            """,
        },
    ),
    Mutant(
        name="receives_into_what_it_sends",
        says="In the second round receives into the chunk that it is sending.",
        fails=dict.fromkeys(
            ("mean", "any length", "same bits", "bytes", "messages", "neighbours", "type"),
            "would overwrite what has still to leave",
        ),
        changes={
            "comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)": """
            chunk = chunks[(rank + 1 - step) % size]
            comm.exchange(chunk, right, chunk, left)
            """,
        },
    ),
    Mutant(
        name="receives_into_what_it_adds_to",
        says="Receives into its own chunk and adds that to itself: its own contribution is overwritten.",
        fails={
            "mean": "do you receive into the chunk that you then add to?",
            "any length": "see the check mean",
            "type": "see the check mean",
        },
        changes={"arriving = np.empty_like(own)": "arriving = own"},
    ),
    Mutant(
        name="refuses_an_empty_gradient",
        says="Treats an empty gradient as a mistake of the caller.",
        fails={"any length": "length 0: ValueError: there is no gradient"},
        changes={
            "rank, size = comm.rank, comm.size": """
            if not len(gradient):
                raise ValueError("there is no gradient")
            rank, size = comm.rank, comm.size
            """,
        },
    ),
    Mutant(
        name="returns_a_new_array",
        says="Returns the mean in a new array and leaves the gradient itself as it was.",
        fails={
            "mean": "is the result written into the array itself",
            "any length": "see the check mean",
            "same bits": "end with different vectors",
            "type": "see the check mean",
        },
        changes={
            "chunks = np.array_split(gradient, size)": """
            chunks = [chunk.copy() for chunk in np.array_split(gradient, size)]
            """,
            "gradient /= size": "return np.concatenate(chunks) / size",
        },
    ),
    Mutant(
        name="sends_before_receiving",
        says="Every rank sends first and receives afterwards: no rank receives, and all wait for ever.",
        fails=dict.fromkeys(
            ("mean", "any length", "same bits", "bytes", "messages", "neighbours", "type"),
            "all wait in send: no rank receives",
        ),
        changes={
            "comm.exchange(chunks[(rank - step) % size], right, arriving, left)": """
            comm.send(chunks[(rank - step) % size], right)
            comm.receive(arriving, left)
            """,
            "comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)": """
            comm.send(chunks[(rank + 1 - step) % size], right)
            comm.receive(chunks[(rank - step) % size], left)
            """,
        },
    ),
    Mutant(
        name="sends_float64",
        says="Adds up and sends float64 for any gradient: twice the bytes of a float32 gradient.",
        fails={"type": "are the chunks sent in the gradient's own type?"},
        changes={
            "chunks = np.array_split(gradient, size)": """
            sums = gradient.astype(np.float64)
            chunks = np.array_split(sums, size)
            """,
            "gradient /= size": "gradient[:] = sums / size",
        },
    ),
    Mutant(
        name="stops_after_one_round",
        says="Stops when the sums are finished: every rank has one of the finished chunks, and keeps it.",
        fails={
            "mean": "have still to be passed around the ring",
            "any length": "see the check mean",
            "same bits": "end with different vectors",
            "bytes": "that is one round",
            "messages": "where a ring sends",
            "type": "see the check mean",
        },
        changes={
            """
            for step in range(size - 1):
                comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)
            """: "",
        },
    ),
    Mutant(
        name="through_rank_0",
        says="Rank 0 collects, averages and sends back: the central aggregator, not a ring.",
        fails={
            "bytes": "where a ring sends",
            "messages": "where a ring sends",
            "neighbours": "in a ring it knows only",
        },
        changes={
            ORIGINAL: """
            import numpy as np



            def ring_all_reduce_mean(gradient, comm):
                if comm.rank != 0:
                    comm.send(gradient, 0)
                    comm.receive(gradient, 0)
                    return
                arriving = np.empty_like(gradient)
                for other in range(1, comm.size):
                    comm.receive(arriving, other)
                    gradient += arriving
                gradient /= comm.size
                for other in range(1, comm.size):
                    comm.send(gradient, other)
            """,
        },
    ),
    Mutant(
        name="two_messages_for_a_chunk",
        says="Sends every chunk in two halves: the right bytes in more messages.",
        fails={"messages": "sent 9 messages where a ring sends 6"},
        changes={
            "comm.exchange(chunks[(rank - step) % size], right, arriving, left)": """
            leaving = chunks[(rank - step) % size]
            gone, come = len(leaving) // 2, len(arriving) // 2
            comm.exchange(leaving[:gone], right, arriving[:come], left)
            comm.exchange(leaving[gone:], right, arriving[come:], left)
            """,
        },
    ),
    Mutant(
        name="whole_vector_every_hop",
        says="Sends the whole vector at every hop and uses one chunk of it: the right mean, P times the bytes.",
        fails={"bytes": "is the whole vector sent at every hop?"},
        changes={
            "chunks = np.array_split(gradient, size)": """
            bounds = [len(gradient) * i // size for i in range(size + 1)]
            arriving = np.empty_like(gradient)
            """,
            """
            own = chunks[(rank - step - 1) % size]
            arriving = np.empty_like(own)
            comm.exchange(chunks[(rank - step) % size], right, arriving, left)
            own += arriving
            """: """
            comm.exchange(gradient, right, arriving, left)
            chunk = (rank - step - 1) % size
            part = slice(bounds[chunk], bounds[chunk + 1])
            gradient[part] += arriving[part]
            """,
            "comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)": """
            comm.exchange(gradient, right, arriving, left)
            chunk = (rank - step) % size
            part = slice(bounds[chunk], bounds[chunk + 1])
            gradient[part] = arriving[part]
            """,
        },
    ),
]

SENTENCES: Sentences = {
    "ring_all_reduce_mean": {
        "Replace `gradient` on every rank": ["stops_after_one_round"],
        "with the mean of all ranks' gradients": ["forgets_to_divide", "divides_twice", "off_by_one_chunk"],
        "Every rank calls this at the same time": "says what the caller keeps to",
        "a vector of any length": ["drops_the_remainder", "leaves_out_empty_chunks"],
        "0 included": ["refuses_an_empty_gradient"],
        "float32 or float64": ["memory_of_another_type", "sends_float64"],
        "The result is written into this same array": ["cuts_copies", "divides_a_new_array", "returns_a_new_array"],
        "sends `array`; returns once rank `to` receives it": ["sends_before_receiving", "receives_before_sending"],
        "with two arrays": ["receives_into_what_it_sends"],
    },
}
