"""Known wrong answers of lab 13, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
import numpy as np


def largest(vector, k):
    return np.sort(np.argsort(-np.abs(vector), kind="stable")[:k]).astype(np.int32)


def compress(gradient, residual, k):
    residual += gradient
    places = largest(residual, k)
    values = residual[places]
    residual[places] = 0
    return places, values


def pack(places, values):
    return np.concatenate([places.astype(np.int32).view(np.uint8), values.astype(np.float32).view(np.uint8)])


def unpack(payload):
    half = len(payload) // 2
    return payload[:half].view(np.int32), payload[half:].view(np.float32)


def sum_of_all(places, values, length, comm):
    payloads = {comm.rank: pack(places, values)}
    for distance in range(1, comm.size):
        to, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
        payloads[source] = np.empty_like(payloads[comm.rank])
        comm.exchange(payloads[comm.rank], to, payloads[source], source)
    total = np.zeros(length, np.float32)
    for rank in range(comm.size):
        own_places, own_values = unpack(payloads[rank])
        total[own_places] += own_values
    return total


def compress_with_momentum(gradient, velocity, residual, momentum, k):
    velocity *= momentum
    velocity += gradient
    residual += velocity
    places = largest(residual, k)
    values = residual[places]
    residual[places] = 0
    velocity[places] = 0
    return places, values
"""

MUTANTS = [
    Mutant(
        name="all_of_them_for_none",
        says="Uses sorted[-k:], which for k = 0 is everything.",
        fails={"largest": "with k = 0, of 5 entries: largest returns 5 places"},
        changes={
            'np.sort(np.argsort(-np.abs(vector), kind="stable")[:k])': """
            np.sort(np.argsort(np.abs(vector), kind="stable")[-k:])
            """,
        },
    ),
    Mutant(
        name="asks_mpi",
        says="Lets a collective of MPI gather, which is not counted.",
        fails={"bytes": "is everything sent through comm"},
        changes={
            """
            payloads = {comm.rank: pack(places, values)}
            for distance in range(1, comm.size):
                to, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
                payloads[source] = np.empty_like(payloads[comm.rank])
                comm.exchange(payloads[comm.rank], to, payloads[source], source)
            """: "",
            """
            for rank in range(comm.size):
                own_places, own_values = unpack(payloads[rank])
            """: """
            for payload in comm.mpi.allgather(pack(places, values)):
                own_places, own_values = unpack(payload)
            """,
        },
    ),
    Mutant(
        name="changes_the_gradient",
        says="Adds the residual to the gradient itself.",
        fails={"feedback": "changes the gradient"},
        changes={
            """
            residual += gradient
            places = largest(residual, k)
            values = residual[places]
            """: """
            gradient += residual
            places = largest(gradient, k)
            values = gradient[places]
            residual[:] = gradient
            """,
        },
    ),
    Mutant(
        name="chooses_by_the_gradient",
        says="Selects by the new gradient alone, so large residuals elsewhere have to wait.",
        fails={"feedback": "of what is owed, gradient and residual together", "training": "away from where it"},
        changes={
            """
            residual += gradient
            places = largest(residual, k)
            """: """
            residual += gradient
            places = largest(gradient, k)
            """,
        },
    ),
    Mutant(
        name="divides_by_the_ranks",
        says="Returns the mean.",
        fails={"sum": "the result is the mean"},
        changes={"return total": "return total / np.float32(comm.size)"},
    ),
    Mutant(
        name="everybodys_in_its_own_order",
        says="Adds up beginning with its own, so that the last bits differ.",
        fails={"sum": "in a different order"},
        changes={
            "for rank in range(comm.size):": """
            for rank in [(comm.rank + i) % comm.size for i in range(comm.size)]:
            """,
        },
    ),
    Mutant(
        name="forgets_the_rest",
        says="Discards what is not sent.",
        fails={"feedback": "what is not sent now is to be kept in it", "training": "away from where it"},
        changes={
            """
            residual += gradient
            places = largest(residual, k)
            values = residual[places]
            residual[places] = 0
            return places, values
            """: """
            places = largest(gradient, k)
            return places, gradient[places]
            """,
        },
    ),
    Mutant(
        name="keeps_the_last_rest_only",
        says="Keeps the rest of this gradient, and loses the residual from before.",
        fails={"feedback": "what was owed before is gone", "training": "away from where it"},
        changes={
            """
            residual += gradient
            places = largest(residual, k)
            values = residual[places]
            """: """
            due = residual + gradient
            places = largest(due, k)
            residual[:] = gradient
            """,
            """
            residual[places] = 0
            return places, values
            """: """
            residual[places] = 0
            return places, due[places]
            """,
        },
    ),
    Mutant(
        name="keeps_the_velocity",
        says="Leaves the velocity of what has been sent.",
        fails={"momentum": "clear it there, too"},
        changes={"velocity[places] = 0": ""},
    ),
    Mutant(
        name="keeps_what_was_sent",
        says="Does not clear what is sent, so that it is sent again and again.",
        fails={"feedback": "will be sent again and again", "training": "away from where it"},
        changes={
            """
            values = residual[places]
            residual[places] = 0
            return places, values
            """: "return places, residual[places]",
        },
    ),
    Mutant(
        name="keeps_what_was_sent_with_momentum",
        says="Clears the velocity of what is sent, but not its residual.",
        fails={"momentum": "what is owed is not the residual and the velocity together"},
        changes={
            """
            residual[places] = 0
            velocity[places] = 0
            """: "velocity[places] = 0",
        },
    ),
    Mutant(
        name="largest_values",
        says="Selects the largest values, although large negative ones are as important.",
        fails={
            "largest": "the magnitude counts",
            "feedback": "is chosen, though",
            "training": "away from where it",
            "momentum": "the magnitude counts",
        },
        changes={
            'return np.sort(np.argsort(-np.abs(vector), kind="stable")[:k]).astype(np.int32)': """
            return np.sort(np.argsort(-vector, kind="stable")[:k]).astype(np.int32)
            """,
        },
    ),
    Mutant(
        name="makes_a_new_residual",
        says="Puts the residual into a new array.",
        fails={"feedback": "not in a new array", "training": "away from where it"},
        changes={"residual += gradient": "residual = residual + gradient"},
    ),
    Mutant(
        name="makes_a_new_velocity",
        says="Puts the velocity into a new array.",
        fails={"momentum": "the velocity was left as it was: change the array"},
        changes={
            """
            velocity *= momentum
            velocity += gradient
            """: "velocity = momentum * velocity + gradient",
        },
    ),
    Mutant(
        name="momentum_after_the_choice",
        says="Keeps a velocity of what is sent: momentum with entries that come late.",
        fails={"momentum": "the velocity is not momentum·velocity + gradient"},
        changes={
            """
            velocity *= momentum
            velocity += gradient
            residual += velocity
            places = largest(residual, k)
            values = residual[places]
            residual[places] = 0
            velocity[places] = 0
            return places, values
            """: """
            places, sent = compress(gradient, residual, k)
            velocity *= momentum
            velocity[places] += sent
            return places, velocity[places]
            """,
        },
    ),
    Mutant(
        name="owes_the_gradient_alone",
        says="Keeps a velocity, but adds the plain gradient to the residual.",
        fails={"momentum": "not the residual and the velocity together"},
        changes={"residual += velocity": "residual += gradient"},
    ),
    Mutant(
        name="own_entries_alone",
        says="Sends nothing.",
        fails={"sum": "is anything sent", "bytes": "is everything sent through comm", "training": "away from where it"},
        changes={
            """
            payloads = {comm.rank: pack(places, values)}
            for distance in range(1, comm.size):
                to, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
                payloads[source] = np.empty_like(payloads[comm.rank])
                comm.exchange(payloads[comm.rank], to, payloads[source], source)
            """: "",
            """
            for rank in range(comm.size):
                own_places, own_values = unpack(payloads[rank])
                total[own_places] += own_values
            """: "total[places] = values",
        },
    ),
    Mutant(
        name="payload_of_floats",
        says="Packs everything into a vector of float32: the right bytes, of another type.",
        fails={"payload": "pack returns float32; a message of bytes is uint8"},
        changes={
            "places.astype(np.int32).view(np.uint8)": "places.astype(np.int32).view(np.float32)",
            "values.astype(np.float32).view(np.uint8)": "values.astype(np.float32)",
        },
    ),
    Mutant(
        name="places_and_values_apart",
        says="Sends places and values in separate messages.",
        fails={"bytes": "places and values travel together"},
        changes={
            "payloads = {comm.rank: pack(places, values)}": "everybodys = {comm.rank: (places, values)}",
            """
            payloads[source] = np.empty_like(payloads[comm.rank])
            comm.exchange(payloads[comm.rank], to, payloads[source], source)
            """: """
            theirs = np.empty_like(places), np.empty_like(values)
            comm.exchange(places, to, theirs[0], source)
            comm.exchange(values, to, theirs[1], source)
            everybodys[source] = theirs
            """,
            """
            own_places, own_values = unpack(payloads[rank])
            total[own_places] += own_values
            """: "total[everybodys[rank][0]] += everybodys[rank][1]",
        },
    ),
    Mutant(
        name="places_as_floats",
        says="Packs the places as float32, which from 2²⁴ on does not hold every whole number.",
        fails={"payload": "place 2147483647 came back as -2147483648: keep the 4 bytes of the int32"},
        changes={
            "places.astype(np.int32).view(np.uint8)": "places.astype(np.float32).view(np.uint8)",
            "payload[:half].view(np.int32)": "payload[:half].view(np.float32).astype(np.int64).astype(np.int32)",
        },
    ),
    Mutant(
        name="places_converted",
        says="Converts the places to float32 where their bytes are asked for.",
        fails={
            "payload": "place 9 came back as 1091567616: keep the 4 bytes of the int32",
            "sum": "IndexError",
            "bytes": "IndexError",
            "training": "IndexError",
        },
        changes={"places.astype(np.int32).view(np.uint8)": "places.astype(np.float32).view(np.uint8)"},
    ),
    Mutant(
        name="lacks_its_own",
        says="Adds up what arrives, and leaves out its own entries.",
        fails={"sum": "result lacks what rank 0 itself has sent", "training": "away from where it"},
        changes={
            "payloads = {comm.rank: pack(places, values)}": """
            own = pack(places, values)
            payloads = {}
            """,
            """
            payloads[source] = np.empty_like(payloads[comm.rank])
            comm.exchange(payloads[comm.rank], to, payloads[source], source)
            """: """
            payloads[source] = np.empty_like(own)
            comm.exchange(own, to, payloads[source], source)
            """,
            "for rank in range(comm.size):": "for rank in sorted(payloads):",
        },
        ranks=4,
    ),
    Mutant(
        name="places_in_order_of_size",
        says="Returns the places with the largest entry first.",
        fails={"largest": "do not ascend", "feedback": "do not ascend", "momentum": "do not ascend"},
        changes={
            'return np.sort(np.argsort(-np.abs(vector), kind="stable")[:k]).astype(np.int32)': """
            return np.argsort(-np.abs(vector), kind="stable")[:k].astype(np.int32)
            """,
        },
    ),
    Mutant(
        name="places_of_eight_bytes",
        says="Sends places of 8 bytes.",
        fails={"payload": "places of 4 bytes are enough", "bytes": "places take 4 bytes"},
        changes={
            """
            return np.concatenate([places.astype(np.int32).view(np.uint8), values.astype(np.float32).view(np.uint8)])
            """: """
            return np.concatenate([places.astype(np.int64).view(np.uint8), values.astype(np.float32).view(np.uint8)])
            """,
            """
            half = len(payload) // 2
            return payload[:half].view(np.int32), payload[half:].view(np.float32)
            """: """
            split = len(payload) // 3 * 2
            return payload[:split].view(np.int64).astype(np.int32), payload[split:].view(np.float32)
            """,
        },
    ),
    Mutant(
        name="returns_places_of_eight_bytes",
        says="Returns the places as argsort does, with 8 bytes each.",
        fails=dict.fromkeys(("largest", "feedback", "momentum"), "they must be int32, 4 bytes each"),
        changes={"[:k]).astype(np.int32)": "[:k])"},
    ),
    Mutant(
        name="sends_the_gradient_alone",
        says="Sends the gradient at the selected places, without the residual there.",
        fails={"feedback": "the values sent are not what is owed there", "training": "away from where it"},
        changes={
            """
            residual += gradient
            places = largest(residual, k)
            values = residual[places]
            """: """
            residual += gradient
            places = largest(residual, k)
            """,
            """
            residual[places] = 0
            return places, values
            """: """
            residual[places] = 0
            return places, gradient[places]
            """,
        },
    ),
    Mutant(
        name="smallest_of_all",
        says="Sends the smallest entries.",
        fails={
            "largest": "others are larger in magnitude",
            "feedback": "others are larger in magnitude",
            "training": "away from where it",
            "momentum": "others are larger in magnitude",
        },
        changes={
            'return np.sort(np.argsort(-np.abs(vector), kind="stable")[:k]).astype(np.int32)': """
            return np.sort(np.argsort(np.abs(vector), kind="stable")[:k]).astype(np.int32)
            """,
        },
    ),
    Mutant(
        name="sum_of_64_bits",
        says="Adds up and returns float64.",
        fails={"sum": "sum_of_all returns float64, not float32"},
        changes={"total = np.zeros(length, np.float32)": "total = np.zeros(length)"},
    ),
    Mutant(
        name="the_last_one_counts",
        says="Where several ranks have sent an entry, uses only the last one's.",
        fails={"sum": "does the last one take the place of the others", "training": "away from where it"},
        changes={"total[own_places] += own_values": "total[own_places] = own_values"},
    ),
    Mutant(
        name="values_before_places",
        says="Unpacks in another order than it has packed.",
        fails={"payload": "In which order does pack put places and values"},
        changes={
            "return payload[:half].view(np.int32), payload[half:].view(np.float32)": """
            return payload[half:].view(np.int32), payload[:half].view(np.float32)
            """,
            """
            own_places, own_values = unpack(payloads[rank])
            total[own_places] += own_values
            """: """
            half = len(payloads[rank]) // 2
            total[payloads[rank][:half].view(np.int32)] += payloads[rank][half:].view(np.float32)
            """,
        },
    ),
    Mutant(
        name="values_of_eight_bytes",
        says="Returns values of float64.",
        fails={"feedback": "values of float64, not of float32"},
        changes={
            """
            values = residual[places]
            residual[places] = 0
            return places, values
            """: """
            values = residual[places].astype(np.float64)
            residual[places] = 0
            return places, values
            """,
        },
    ),
    Mutant(
        name="values_of_two_bytes",
        says="Packs the values as float16, with three digits.",
        fails={"payload": "keep the 4 bytes of the float32", "sum": "the sum"},
        changes={
            "values.astype(np.float32).view(np.uint8)": "np.repeat(values.astype(np.float16), 2).view(np.uint8)",
            "payload[half:].view(np.float32)": "payload[half:].view(np.float16)[::2].astype(np.float32)",
        },
    ),
    Mutant(
        name="whole_vector_around",
        says="Sends whole vectors around, zeros and all.",
        fails={"bytes": "zeros and all"},
        changes={
            "payloads = {comm.rank: pack(places, values)}": """
            own = np.zeros(length, np.float32)
            own[places] = values
            vectors = {comm.rank: own}
            """,
            """
            payloads[source] = np.empty_like(payloads[comm.rank])
            comm.exchange(payloads[comm.rank], to, payloads[source], source)
            """: """
            vectors[source] = np.empty_like(own)
            comm.exchange(own, to, vectors[source], source)
            """,
            """
            own_places, own_values = unpack(payloads[rank])
            total[own_places] += own_values
            """: "total += vectors[rank]",
        },
    ),
]

SENTENCES: Sentences = {
    "largest": {
        "Return the indices of the k entries of largest magnitude": ["largest_values", "smallest_of_all"],
        "k: from 0 to the length of the vector": ["all_of_them_for_none"],
        "The indices, int32": ["returns_places_of_eight_bytes"],
        "ascending": ["places_in_order_of_size"],
        "Ties may be broken in any way": "says what is allowed",
    },
    "compress": {
        "from the gradient plus the residual of earlier calls": ["chooses_by_the_gradient"],
        "gradient: float32; not changed": ["changes_the_gradient"],
        "everything that has not been sent so far": ["keeps_the_last_rest_only"],
        "It is updated in place": ["makes_a_new_residual"],
        "to what remains unsent after this call": ["forgets_the_rest", "keeps_what_was_sent"],
        "The indices of the k entries to send": ["sends_the_gradient_alone"],
        "and their values, float32": ["values_of_eight_bytes"],
    },
    "pack": {
        "k places (indices) and k values as one message": ["places_as_floats", "values_of_two_bytes"],
        "8k bytes": ["places_of_eight_bytes"],
        "a vector of uint8": ["payload_of_floats"],
    },
    "unpack": {"Return the places, int32, and the values, float32": ["values_before_places", "places_converted"]},
    "sum_of_all": {
        "Return the sum of all ranks' sparse vectors": ["divides_by_the_ranks", "lacks_its_own"],
        "Every rank calls this at the same time": "says what the caller keeps to",
        "All ranks end with the same bits": ["everybodys_in_its_own_order"],
        "comm: this rank's communicator": "describes an argument",
        "float32, of `length` entries": ["sum_of_64_bits"],
        "the sum where several have": ["the_last_one_counts"],
        "Cost: each rank sends P − 1 messages of 8k bytes": ["places_and_values_apart", "whole_vector_around"],
    },
    "compress_with_momentum": {
        "Choose the entries to send, as `compress` does": ["momentum_after_the_choice"],
        "residual ← residual + velocity": ["owes_the_gradient_alone"],
        "The entries sent are set to 0 in both arrays": ["keeps_the_velocity", "keeps_what_was_sent_with_momentum"],
        "Both are updated in place": ["makes_a_new_velocity"],
    },
}
