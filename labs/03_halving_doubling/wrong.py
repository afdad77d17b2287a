"""Known wrong answers of lab 3, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
import numpy as np


def halving_doubling_all_reduce(vector, comm):
    core = 1 << (comm.size.bit_length() - 1)
    extra = comm.size - core
    if comm.rank >= core:
        comm.send(vector, comm.rank - core)
        comm.receive(vector, comm.rank - core)
        return
    if comm.rank < extra:
        arriving = np.empty_like(vector)
        comm.receive(arriving, comm.rank + core)
        vector += arriving
    start, stop, distance = 0, len(vector), 1
    way_back = []
    while distance < core:
        partner, middle = comm.rank ^ distance, (start + stop) // 2
        lower, upper = slice(start, middle), slice(middle, stop)
        kept, given = (upper, lower) if comm.rank & distance else (lower, upper)
        arriving = np.empty_like(vector[kept])
        comm.exchange(vector[given], partner, arriving, partner)
        vector[kept] += arriving
        way_back.append((partner, kept, given))
        start, stop, distance = kept.start, kept.stop, 2 * distance
    for partner, kept, given in reversed(way_back):
        comm.exchange(vector[kept], partner, vector[given], partner)
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
"""

MUTANTS = [
    Mutant(
        name="adds_on_the_way_back",
        says="Adds on the way back too, where a finished part should replace the rank's own.",
        fails={
            "sum": "is it added?",
            "any length": "see the check sum",
            "same bits": "end with different vectors",
            "any number of ranks": "is it added?",
        },
        changes={
            "comm.exchange(vector[kept], partner, vector[given], partner)": """
            arriving = np.empty_like(vector[given])
            comm.exchange(vector[kept], partner, arriving, partner)
            vector[given] += arriving
            """,
        },
    ),
    Mutant(
        name="asks_mpi",
        says="Calls MPI's own all-reduce.",
        fails={
            "messages": "is everything sent through comm?",
            "bytes": "is everything sent through comm?",
            "folding": "is everything sent through comm?",
        },
        changes={
            ORIGINAL: """
            def halving_doubling_all_reduce(vector, comm):
                comm.mpi_all_reduce(vector)
            """,
        },
    ),
    Mutant(
        name="both_keep_the_lower_half",
        says="Lets both partners keep the lower half and give away the upper one.",
        fails={
            "sum": "do both partners halve the same part",
            "any length": "see the check sum",
            "same bits": "end with different vectors",
            "any number of ranks": "do both partners halve the same part",
        },
        changes={
            "kept, given = (upper, lower) if comm.rank & distance else (lower, upper)": """
            kept, given = lower, upper
            """,
        },
    ),
    Mutant(
        name="collects_at_rank_0",
        says="Lets rank 0 collect the vectors of all ranks beyond the power of two, and answer all of them.",
        fails={"folding": "where 4 for 4 ranks and 2 for those beyond"},
        changes={
            """
            extra = comm.size - core
            if comm.rank >= core:
                comm.send(vector, comm.rank - core)
                comm.receive(vector, comm.rank - core)
            """: """
            beyond = range(core, comm.size)
            if comm.rank in beyond:
                comm.send(vector, 0)
                comm.receive(vector, 0)
            """,
            """
            if comm.rank < extra:
                arriving = np.empty_like(vector)
                comm.receive(arriving, comm.rank + core)
                vector += arriving
            """: """
            if comm.rank == 0:
                for other in beyond:
                    arriving = np.empty_like(vector)
                    comm.receive(arriving, other)
                    vector += arriving
            """,
            """
            if comm.rank < extra:
                comm.send(vector, comm.rank + core)
            """: """
            if comm.rank == 0:
                for other in beyond:
                    comm.send(vector, other)
            """,
        },
        ranks=7,
    ),
    Mutant(
        name="distances_of_one_two_three",
        says="Increases the distance by one in every round, instead of doubling it: the same up to 7 ranks.",
        fails={"sum": "do both partners halve the same part", "same bits": "end with different vectors"},
        changes={
            "start, stop, distance = 0, len(vector), 1": "start, stop = 0, len(vector)",
            "while distance < core:": "for distance in range(1, core.bit_length()):",
            "kept, given = (upper, lower) if comm.rank & distance else (lower, upper)": """
            kept, given = (upper, lower) if comm.rank > partner else (lower, upper)
            """,
            "start, stop, distance = kept.start, kept.stop, 2 * distance": "start, stop = kept.start, kept.stop",
        },
        ranks=8,
    ),
    Mutant(
        name="divides_by_the_ranks",
        says="Divides the sum to a mean, as in lab 2.",
        fails={
            "sum": "the result is the mean",
            "any length": "see the check sum",
            "any number of ranks": "the result is the mean",
        },
        changes={
            """
            if comm.rank < extra:
                comm.send(vector, comm.rank + core)
            """: """
            vector /= comm.size
            if comm.rank < extra:
                comm.send(vector, comm.rank + core)
            """,
        },
    ),
    Mutant(
        name="drops_the_odd_element",
        says="Cuts into halves of equal length: of an odd number of elements one belongs to neither.",
        fails={
            "any length": "of an odd number of elements one half has one more",
            "any number of ranks": "of an odd number of elements one half has one more",
        },
        changes={
            "lower, upper = slice(start, middle), slice(middle, stop)": """
            lower, upper = slice(start, middle), slice(middle, 2 * middle - start)
            """,
        },
    ),
    Mutant(
        name="everybodys_in_its_own_order",
        says="Passes whole vectors on by recursive doubling, and each rank adds them up alone, its own first.",
        fails={
            "same bits": "in the last bits",
            "bytes": "is the whole vector sent in every round?",
            "memory": "takes memory for",
            "any number of ranks": "in the last bits",
        },
        changes={
            """
            start, stop, distance = 0, len(vector), 1
            way_back = []
            """: "held, distance = vector.copy(), 1",
            """
            while distance < core:
                partner, middle = comm.rank ^ distance, (start + stop) // 2
                lower, upper = slice(start, middle), slice(middle, stop)
                kept, given = (upper, lower) if comm.rank & distance else (lower, upper)
                arriving = np.empty_like(vector[kept])
                comm.exchange(vector[given], partner, arriving, partner)
                vector[kept] += arriving
                way_back.append((partner, kept, given))
                start, stop, distance = kept.start, kept.stop, 2 * distance
            for partner, kept, given in reversed(way_back):
                comm.exchange(vector[kept], partner, vector[given], partner)
            """: """
            while distance < core:
                partner, arriving = comm.rank ^ distance, np.empty_like(held)
                comm.exchange(held, partner, arriving, partner)
                held = np.concatenate([held, arriving])
                distance *= 2
            for other in held.reshape(core, -1)[1:]:
                vector += other
            """,
        },
    ),
    Mutant(
        name="goes_back_in_the_same_order",
        says="Exchanges with its partners on the way back in the same order, not in reverse.",
        fails={
            "sum": "the others' finished parts have still to come, over the same partners in reverse order",
            "any length": "see the check sum",
            "same bits": "end with different vectors",
            "any number of ranks": "in reverse order",
        },
        changes={"for partner, kept, given in reversed(way_back):": "for partner, kept, given in way_back:"},
    ),
    Mutant(
        name="halves_of_equal_length",
        says="Assumes that both halves of an odd number of elements are equally long.",
        fails={
            "any length": "the same length and type on both sides?",
            "any number of ranks": "the same length and type on both sides?",
        },
        changes={"arriving = np.empty_like(vector[kept])": "arriving = np.empty((stop - start) // 2, vector.dtype)"},
    ),
    Mutant(
        name="one_round_too_few",
        says="Ends one distance too early: it never exchanges with the other half of the ranks.",
        fails={
            "sum": "lacks the vector of ranks 2 and 3: are its partners at all distances",
            "any length": "see the check sum",
            "same bits": "end with different vectors",
            "bytes": "a half, a quarter, and so on",
            "any number of ranks": "lacks the vector of ranks 2 and 3",
        },
        changes={"while distance < core:": "while distance < core // 2:"},
    ),
    Mutant(
        name="powers_of_two_only",
        says="Ignores that there are ranks beyond the power of two: some have a partner that does not exist.",
        fails={"any number of ranks": "there is no rank", "folding": "there is no rank"},
        changes={
            """
            core = 1 << (comm.size.bit_length() - 1)
            extra = comm.size - core
            if comm.rank >= core:
                comm.send(vector, comm.rank - core)
                comm.receive(vector, comm.rank - core)
                return
            if comm.rank < extra:
                arriving = np.empty_like(vector)
                comm.receive(arriving, comm.rank + core)
                vector += arriving
            """: "",
            "while distance < core:": "while distance < comm.size:",
            """
            if comm.rank < extra:
                comm.send(vector, comm.rank + core)
            """: "",
        },
        ranks=5,
    ),
    Mutant(
        name="ranks_beyond_are_left_out",
        says="Leaves the ranks beyond the power of two alone with their vectors.",
        fails={
            "any number of ranks": "are the ranks beyond the power of two folded in?",
            "folding": "is everything sent through comm?",
        },
        changes={
            "extra = comm.size - core": "",
            """
            comm.send(vector, comm.rank - core)
            comm.receive(vector, comm.rank - core)
            """: "",
            """
            if comm.rank < extra:
                arriving = np.empty_like(vector)
                comm.receive(arriving, comm.rank + core)
                vector += arriving
            """: "",
            """
            if comm.rank < extra:
                comm.send(vector, comm.rank + core)
            """: "",
        },
        ranks=5,
    ),
    Mutant(
        name="ranks_beyond_get_nothing_back",
        says="Folds the vectors of the ranks beyond the power of two in, and sends them no result.",
        fails={"any number of ranks": "does a rank beyond the power of two get the sum, too?"},
        changes={
            "comm.receive(vector, comm.rank - core)": "",
            """
            if comm.rank < extra:
                comm.send(vector, comm.rank + core)
            """: "",
        },
        ranks=5,
    ),
    Mutant(
        name="recursive_doubling",
        says="Exchanges the whole vector with every partner: the fewest rounds possible, with the most bytes.",
        fails={"bytes": "is the whole vector sent in every round?"},
        changes={
            """
            start, stop, distance = 0, len(vector), 1
            way_back = []
            """: """
            arriving = np.empty_like(vector)
            distance = 1
            """,
            """
            while distance < core:
                partner, middle = comm.rank ^ distance, (start + stop) // 2
                lower, upper = slice(start, middle), slice(middle, stop)
                kept, given = (upper, lower) if comm.rank & distance else (lower, upper)
                arriving = np.empty_like(vector[kept])
                comm.exchange(vector[given], partner, arriving, partner)
                vector[kept] += arriving
                way_back.append((partner, kept, given))
                start, stop, distance = kept.start, kept.stop, 2 * distance
            for partner, kept, given in reversed(way_back):
                comm.exchange(vector[kept], partner, vector[given], partner)
            """: """
            while distance < core:
                partner = comm.rank ^ distance
                comm.exchange(vector, partner, arriving, partner)
                vector += arriving
                distance *= 2
            """,
        },
    ),
    Mutant(
        name="refuses_an_empty_vector",
        says="Treats an empty vector as a mistake of the caller.",
        fails=dict.fromkeys(("any length", "any number of ranks"), "length 0: ValueError: there is no vector"),
        changes={
            "core = 1 << (comm.size.bit_length() - 1)": """
            if not len(vector):
                raise ValueError("there is no vector")
            core = 1 << (comm.size.bit_length() - 1)
            """,
        },
    ),
    Mutant(
        name="replaces_what_it_keeps",
        says="Overwrites the half that it keeps with what arrives, where it should add.",
        fails={
            "sum": "is what arrives added to the part that it keeps",
            "any length": "see the check sum",
            "any number of ranks": "is what arrives added to the part that it keeps",
        },
        changes={"vector[kept] += arriving": "vector[kept] = arriving"},
    ),
    Mutant(
        name="returns_a_new_array",
        says="Returns the sum in a new array and leaves the vector itself as it was.",
        fails={
            "sum": "is the result written into it?",
            "any length": "see the check sum",
            "same bits": "end with different vectors",
            "memory": "takes memory for 1.8 vectors beside its own",
            "any number of ranks": "is the result written into it?",
        },
        changes={
            "if comm.rank >= core:": """
            vector = vector.copy()
            if comm.rank >= core:
            """,
            "return": "return vector",
            """
            if comm.rank < extra:
                comm.send(vector, comm.rank + core)
            """: """
            if comm.rank < extra:
                comm.send(vector, comm.rank + core)
            return vector
            """,
        },
    ),
    Mutant(
        name="ring",
        says="Passes chunks around a ring, as in lab 2: the fewest bytes, and more messages the more ranks there are.",
        fails={"messages": "where 2·lg P = 4 are enough"},
        changes={
            ORIGINAL: """
            import numpy as np



            def halving_doubling_all_reduce(vector, comm):
                rank, size = comm.rank, comm.size
                right, left = (rank + 1) % size, (rank - 1) % size
                chunks = np.array_split(vector, size)
                for step in range(size - 1):
                    own = chunks[(rank - step - 1) % size]
                    arriving = np.empty_like(own)
                    comm.exchange(chunks[(rank - step) % size], right, arriving, left)
                    own += arriving
                for step in range(size - 1):
                    comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)
            """,
        },
    ),
    Mutant(
        name="ring_for_other_numbers",
        says="Halves and doubles for a power of two of ranks, and uses a ring for other numbers.",
        fails={"folding": "sent 8 messages where 4 for 4 ranks and 2 for those beyond"},
        changes={
            ORIGINAL: """
            import numpy as np



            def halving_doubling_all_reduce(vector, comm):
                rank, size = comm.rank, comm.size
                if size & (size - 1):
                    ring(vector, comm)
                    return
                start, stop, distance = 0, len(vector), 1
                way_back = []
                while distance < size:
                    partner, middle = rank ^ distance, (start + stop) // 2
                    lower, upper = slice(start, middle), slice(middle, stop)
                    kept, given = (upper, lower) if rank & distance else (lower, upper)
                    arriving = np.empty_like(vector[kept])
                    comm.exchange(vector[given], partner, arriving, partner)
                    vector[kept] += arriving
                    way_back.append((partner, kept, given))
                    start, stop, distance = kept.start, kept.stop, 2 * distance
                for partner, kept, given in reversed(way_back):
                    comm.exchange(vector[kept], partner, vector[given], partner)


            def ring(vector, comm):
                rank, size = comm.rank, comm.size
                right, left = (rank + 1) % size, (rank - 1) % size
                chunks = np.array_split(vector, size)
                for step in range(size - 1):
                    own = chunks[(rank - step - 1) % size]
                    arriving = np.empty_like(own)
                    comm.exchange(chunks[(rank - step) % size], right, arriving, left)
                    own += arriving
                for step in range(size - 1):
                    comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)
            """,
        },
        ranks=5,
    ),
    Mutant(
        name="sends_before_receiving",
        says="Every rank sends first and receives afterwards: no rank receives, and all wait for ever.",
        fails=dict.fromkeys(
            ("sum", "any length", "same bits", "messages", "bytes", "memory", "any number of ranks", "folding"),
            "all wait in send: no rank receives",
        ),
        changes={
            "comm.exchange(vector[given], partner, arriving, partner)": """
            comm.send(vector[given], partner)
            comm.receive(arriving, partner)
            """,
            "comm.exchange(vector[kept], partner, vector[given], partner)": """
            comm.send(vector[kept], partner)
            comm.receive(vector[given], partner)
            """,
        },
    ),
    Mutant(
        name="skips_empty_messages",
        says=(
            "Sends nothing where there is nothing to send, and the partner takes its next message for the missing one."
        ),
        fails={
            "any length": "length 3: ValueError: the message from rank 2 has more bytes than the 0",
            "any number of ranks": "has more bytes than the 0",
        },
        changes={
            "comm.exchange(vector[given], partner, arriving, partner)": """
            if len(vector[given]):
                comm.exchange(vector[given], partner, arriving, partner)
            """,
        },
    ),
    Mutant(
        name="stops_half_way",
        says="Stops when the sums are finished: every rank has a part of them, and keeps it.",
        fails={
            "sum": "has the sum of 1 of 4 elements: the others' finished parts have still to come",
            "any length": "see the check sum",
            "same bits": "end with different vectors",
            "bytes": "that is the way there",
            "any number of ranks": "the others' finished parts have still to come",
        },
        changes={
            "way_back = []": "",
            "way_back.append((partner, kept, given))": "",
            """
            for partner, kept, given in reversed(way_back):
                comm.exchange(vector[kept], partner, vector[given], partner)
            """: "",
        },
    ),
    Mutant(
        name="whole_vector_every_round",
        says="Sends the whole vector in every round and uses the half that it needs.",
        fails={"bytes": "is the whole vector sent in every round?", "folding": "bytes where 100,800 are enough"},
        changes={
            """
            if comm.rank >= core:
                comm.send(vector, comm.rank - core)
                comm.receive(vector, comm.rank - core)
                return
            """: """
            if comm.rank >= core:
                comm.send(vector, comm.rank - core)
                comm.receive(vector, comm.rank - core)
                return
            arriving = np.empty_like(vector)
            """,
            """
            arriving = np.empty_like(vector)
            comm.receive(arriving, comm.rank + core)
            """: "comm.receive(arriving, comm.rank + core)",
            """
            arriving = np.empty_like(vector[kept])
            comm.exchange(vector[given], partner, arriving, partner)
            vector[kept] += arriving
            way_back.append((partner, kept, given))
            """: """
            comm.exchange(vector, partner, arriving, partner)
            vector[kept] += arriving[kept]
            way_back.append((partner, given))
            """,
            """
            for partner, kept, given in reversed(way_back):
                comm.exchange(vector[kept], partner, vector[given], partner)
            """: """
            for partner, given in reversed(way_back):
                comm.exchange(vector, partner, arriving, partner)
                vector[given] = arriving[given]
            """,
        },
    ),
    Mutant(
        name="works_on_a_copy",
        says="Adds up in a copy of the vector, and copies the result back at the end.",
        fails={"memory": "takes memory for 1.8 vectors beside its own"},
        changes={
            "start, stop, distance = 0, len(vector), 1": """
            sums = vector.copy()
            start, stop, distance = 0, len(vector), 1
            """,
            """
            arriving = np.empty_like(vector[kept])
            comm.exchange(vector[given], partner, arriving, partner)
            vector[kept] += arriving
            """: """
            arriving = np.empty_like(sums[kept])
            comm.exchange(sums[given], partner, arriving, partner)
            sums[kept] += arriving
            """,
            """
            for partner, kept, given in reversed(way_back):
                comm.exchange(vector[kept], partner, vector[given], partner)
            """: """
            for partner, kept, given in reversed(way_back):
                comm.exchange(sums[kept], partner, sums[given], partner)
            vector[:] = sums
            """,
        },
    ),
]

SENTENCES: Sentences = {
    "halving_doubling_all_reduce": {
        "Replace `vector` on every rank": ["stops_half_way"],
        "with the sum of all ranks' vectors": ["divides_by_the_ranks", "one_round_too_few", "replaces_what_it_keeps"],
        "Every rank calls this at the same time": "says what the caller keeps to",
        "need not be a power of two": ["powers_of_two_only", "ranks_beyond_are_left_out"],
        "float32, of any length": ["drops_the_odd_element", "halves_of_equal_length", "skips_empty_messages"],
        "0 included": ["refuses_an_empty_vector"],
        "The result is written into this same array": ["returns_a_new_array"],
        "The order of the additions is free": "says what is allowed",
        "but all ranks end with the same bits": ["everybodys_in_its_own_order"],
        "Allocate at most the size of `vector` in addition": ["works_on_a_copy"],
        "sends `array`; returns once rank `to` receives it": ["sends_before_receiving"],
    },
}
