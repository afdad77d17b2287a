"""Known wrong answers of lab 6, as changes of reference.py."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

MUTANTS = [
    Mutant(
        name="acknowledges_before_applying",
        says="Acknowledges at once and applies at the end of the worker's turn: its pull comes before its push.",
        fails={
            "acknowledged": "does the server apply a push before it acknowledges it?",
            "two servers": "lacks the worker's own push",
        },
        changes={
            "while True:": """
            put_off = []
            while True:
            """,
            """
            if kind == DONE:
                break
            """: """
            if kind == DONE:
                for push in put_off:
                    store.push(*push)
                break
            """,
            """
            applied = store.push(number, worker, clock, gradient)
            comm.send(np.array([applied], dtype=np.int64), worker)
            """: """
            comm.send(np.array([1]), worker)
            put_off.append((number, worker, clock, gradient))
            """,
        },
    ),
    Mutant(
        name="adds_to_the_servers",
        says="Adds the new server to the list that it is given.",
        fails={"moving": "changes the list of servers that it is given"},
        changes={
            "after = before.with_server(new)": """
            servers.append(new)
            after = HashRing(servers)
            """,
        },
    ),
    Mutant(
        name="always_says_applied",
        says="Does not apply a duplicate, and says that it has.",
        fails={"duplicates": "the same push once more, returns True", "acknowledged": "once more returned 3"},
        changes={"return False": "return True"},
    ),
    Mutant(
        name="applies_duplicates",
        says="Keeps no clocks: a push that is sent again is applied again.",
        fails={
            "duplicates": "the same push once more, is applied, and must not be",
            "acknowledged": "the worker's own push twice",
        },
        changes={
            """
            if self.clocks.seen(number, worker, clock):
                return False
            """: "",
            "self.clocks.note(number, worker, clock)": "",
        },
    ),
    Mutant(
        name="asks_the_servers_in_turn",
        says="Assumes that the servers hold the ranges in turn, whatever `holders` says.",
        fails={"two servers": "KeyError: "},
        changes={
            "self.ranges, self.holders, self.comm = ranges, holders, comm": """
            servers = sorted(set(holders))
            self.holders = [servers[number % len(servers)] for number in range(len(ranges))]
            self.ranges, self.comm = ranges, comm
            """,
        },
    ),
    Mutant(
        name="clears_what_it_does_not_pull",
        says="Sets all parameters to 0 before it fetches some: those of the other ranges are gone.",
        fails={"acknowledged": "a pull of range 1, range(3, 6), changes the parameter of key 0"},
        changes={
            """
            def pull(self, numbers: Sequence[int], parameters: np.ndarray) -> None:
                for number in numbers:
            """: """
            def pull(self, numbers, parameters):
                parameters[:] = 0
                for number in numbers:
            """,
        },
    ),
    Mutant(
        name="clock_before_the_range",
        says="Sends the numbers of a request in an order that no other server would understand.",
        fails={"bytes": "a push of range 1 with clock 7 begins with [0, 7, 1], and should with [0, 1, 7]"},
        changes={
            "self.comm.send(np.array([kind, number, clock], dtype=np.int64), server)": """
            self.comm.send(np.array([kind, clock, number], dtype=np.int64), server)
            """,
            "kind, number, clock = request.tolist()": "kind, clock, number = request.tolist()",
        },
    ),
    Mutant(
        name="clocks_begin_at_one",
        says="Treats clock 0 as a duplicate, because its stored clocks begin with 0.",
        fails={
            "store": "the first push of all, with clock 0, changes nothing",
            "duplicates": "the first push of all, is not applied",
            "acknowledged": "lacks the worker's own push",
            "two servers": "lacks the worker's own push",
        },
        changes={
            "if self.clocks.seen(number, worker, clock):": "if clock == 0 or self.clocks.seen(number, worker, clock):",
        },
    ),
    Mutant(
        name="compares_with_the_last_clock_only",
        says="Treats a push as a duplicate only if its clock equals the last one: an older push is applied again.",
        fails={"duplicates": "an old push, after a newer one, is applied, and must not be"},
        changes={
            "self.clocks = VectorClocks()": "self.last = {}",
            "if self.clocks.seen(number, worker, clock):": "if self.last.get((number, worker)) == clock:",
            "self.clocks.note(number, worker, clock)": "self.last[number, worker] = clock",
        },
    ),
    Mutant(
        name="counts_what_it_pushes",
        says="Counts the ranges that it pushes, whatever the acknowledgements say.",
        fails={"acknowledged": "once more returned 3"},
        changes={"total += int(applied[0])": "total += 1"},
    ),
    Mutant(
        name="does_not_close_the_circle",
        says="Gives the keys after the last point to the last server, instead of the first one around the circle.",
        fails={"joining": "does the circle close, with the first point after the last?"},
        changes={
            "import numpy as np": """
            from bisect import bisect
            from hashlib import blake2b

            import numpy as np
            """,
            "def cut(number_of_keys: int, ranges: int) -> list[range]:": """
class HashRing:
    def __init__(self, servers, virtual_nodes=64):
        nodes = range(virtual_nodes)
        self.nodes = sorted((hashed(f"server {server} {i}"), server) for server in servers for i in nodes)

    def server_of(self, key):
        return self.nodes[min(bisect(self.nodes, (hashed(f"key {key}"), 0)), len(self.nodes) - 1)][1]


def hashed(text):
    return blake2b(text.encode(), digest_size=8).digest()


def cut(number_of_keys: int, ranges: int) -> list[range]:
""",
            "after = before.with_server(new)": "after = HashRing([*servers, new])",
        },
    ),
    Mutant(
        name="drops_the_remainder",
        says="Cuts ranges of keys // ranges: the last keys belong to no range.",
        fails={"ranges": "is in no range, nor any after it"},
        changes={
            "return [range(part.start, part.stop) for part in keys.cut(number_of_keys, ranges)]": """
            length = number_of_keys // ranges
            return [range(i * length, (i + 1) * length) for i in range(ranges)]
            """,
        },
    ),
    Mutant(
        name="ends_a_turn_with_the_first_pull",
        says="Serves the next worker when this one has pulled a range, although it has not sent DONE.",
        fails={
            **dict.fromkeys(("acknowledged", "two servers"), "deadlock: rank"),
            "bytes": "is each request served until DONE",
        },
        changes={
            "comm.send(store.pull(number), worker)": """
            comm.send(store.pull(number), worker)
            break
            """,
        },
    ),
    Mutant(
        name="first_keys_for_numbers",
        says="Returns the first keys of the ranges that move, not their numbers.",
        fails={"moving": "these are first keys: a range's number is its index in `ranges`"},
        changes={"return [number for number, part in enumerate(ranges) if": "return [part.start for part in ranges if"},
    ),
    Mutant(
        name="forgets_the_rate",
        says="Moves the parameters by the gradient itself.",
        fails={"store": "the rate is missing"},
        changes={"self.parts[number] -= self.rate * gradient": "self.parts[number] -= gradient"},
    ),
    Mutant(
        name="goes_by_the_number_of_the_range",
        says="Looks up the range's number on the ring, instead of its first key.",
        fails={"moving": "your own ring has other servers for the first keys"},
        changes={
            """
    return [number for number, part in enumerate(ranges) if before.server_of(part.start) != after.server_of(part.start)]
    """: """
            return [number for number in range(len(ranges)) if before.server_of(number) != after.server_of(number)]
            """,
        },
    ),
    Mutant(
        name="gradients_of_32_bits",
        says="Sends gradients as float32, which no other server would understand.",
        fails={"bytes": "and are gradients and parameters float64?"},
        changes={
            "gradient = np.empty(len(ranges[number]))": "gradient = np.empty(len(ranges[number]), np.float32)",
            "self.comm.send(gradient[part.start : part.stop], server)": """
            self.comm.send(gradient[part.start : part.stop].astype(np.float32), server)
            """,
        },
    ),
    Mutant(
        name="hash_of_this_process",
        says="Uses Python's hash(), which for strings differs in every process.",
        fails={"same everywhere": "the ranks do not agree"},
        changes={
            "import numpy as np": """
            from bisect import bisect

            import numpy as np
            """,
            "def cut(number_of_keys: int, ranges: int) -> list[range]:": """
class HashRing:
    def __init__(self, servers, virtual_nodes=64):
        self.nodes = sorted((hash(f"server {server} {i}"), server) for server in servers for i in range(virtual_nodes))

    def server_of(self, key):
        return self.nodes[bisect(self.nodes, (hash(f"key {key}"), 0)) % len(self.nodes)][1]


def cut(number_of_keys: int, ranges: int) -> list[range]:
""",
            "after = before.with_server(new)": "after = HashRing([*servers, new])",
        },
    ),
    Mutant(
        name="ignores_virtual_nodes",
        says="Puts each server on the circle 64 times, whatever the number of virtual nodes.",
        fails={"balance": "is virtual_nodes used?"},
        changes={
            "def cut(number_of_keys: int, ranges: int) -> list[range]:": """
            class HashRing(HashRing):
                def __init__(self, servers, virtual_nodes=64):
                    super().__init__(servers, virtual_nodes=64)


            def cut(number_of_keys: int, ranges: int) -> list[range]:
            """,
            "after = before.with_server(new)": "after = HashRing([*servers, new])",
        },
    ),
    Mutant(
        name="largest_number_first",
        says="Returns the ranges that move in descending order.",
        fails={"moving": "these are the right ranges, and not in ascending order"},
        changes={
            "return [number for number, part in enumerate(ranges) if": """
            return [number for number, part in reversed([*enumerate(ranges)]) if
            """,
        },
    ),
    Mutant(
        name="last_keys_first",
        says="Returns the ranges in descending order of the keys.",
        fails={"ranges": "the ranges are in the order of their keys"},
        changes={
            "return [range(part.start, part.stop) for part in keys.cut(number_of_keys, ranges)]": """
            return [range(part.start, part.stop) for part in keys.cut(number_of_keys, ranges)][::-1]
            """,
        },
    ),
    Mutant(
        name="modulo_the_servers",
        says="Takes the key modulo the number of servers: balanced, but nearly every key moves when one joins.",
        fails={"joining": "Is it key % servers?", "balance": "is virtual_nodes used?"},
        changes={
            "def cut(number_of_keys: int, ranges: int) -> list[range]:": """
            class HashRing:
                def __init__(self, servers, virtual_nodes=64):
                    self.servers = sorted(servers)

                def server_of(self, key):
                    return self.servers[key % len(self.servers)]


            def cut(number_of_keys: int, ranges: int) -> list[range]:
            """,
            "after = before.with_server(new)": "after = HashRing([*servers, new])",
        },
    ),
    Mutant(
        name="moves_with_any_key",
        says="Moves a range if any of its keys has another server, where its first key counts.",
        fails={"moving": "your own ring has other servers for the first keys"},
        changes={
            "if before.server_of(part.start) != after.server_of(part.start)]": """
            if any(before.server_of(key) != after.server_of(key) for key in part)]
            """,
        },
    ),
    Mutant(
        name="named_by_place_in_the_list",
        says="Hashes a server's place in the list, not its number: when one leaves, the others change their names.",
        fails={
            "same everywhere": "by its number, and not by its place in the list?",
            "joining": "only the keys of server 0 need a new place",
        },
        changes={
            "def cut(number_of_keys: int, ranges: int) -> list[range]:": """
            class HashRing(HashRing):
                def __init__(self, servers, virtual_nodes=64):
                    self.numbers = list(servers)
                    super().__init__(range(len(self.numbers)), virtual_nodes)

                def server_of(self, key):
                    return self.numbers[super().server_of(key)]


            def cut(number_of_keys: int, ranges: int) -> list[range]:
            """,
            "after = before.with_server(new)": "after = HashRing([*servers, new])",
        },
    ),
    Mutant(
        name="one_clock_per_range",
        says="Keeps one clock per range for all workers: only the first one's push of an iteration counts.",
        fails={
            "duplicates": "another worker's push with the same clock, is not applied",
            "acknowledged": "with all pushes of earlier rounds",
        },
        changes={
            "if self.clocks.seen(number, worker, clock):": "if self.clocks.seen(number, 0, clock):",
            "self.clocks.note(number, worker, clock)": "self.clocks.note(number, 0, clock)",
        },
    ),
    Mutant(
        name="one_clock_per_worker",
        says="Keeps one clock per worker for all ranges: of a gradient in three ranges, it applies the first.",
        fails={
            "duplicates": "a push with the same clock for another range, is not applied",
            "acknowledged": "after the pull the parameter of key 3 is 0",
        },
        changes={
            "if self.clocks.seen(number, worker, clock):": "if self.clocks.seen(0, worker, clock):",
            "self.clocks.note(number, worker, clock)": "self.clocks.note(0, worker, clock)",
        },
    ),
    Mutant(
        name="one_point_per_server",
        says="Puts each server on the circle only once, whatever the number of virtual nodes.",
        fails={"balance": "does each server stand at 64 places"},
        changes={
            "def cut(number_of_keys: int, ranges: int) -> list[range]:": """
            class HashRing(HashRing):
                def __init__(self, servers, virtual_nodes=64):
                    super().__init__(servers, virtual_nodes=1)


            def cut(number_of_keys: int, ranges: int) -> list[range]:
            """,
            "after = before.with_server(new)": "after = HashRing([*servers, new])",
        },
    ),
    Mutant(
        name="pull_is_no_copy",
        says="Returns its own array: what a worker has pulled keeps changing.",
        fails={"store": "a pull is a copy"},
        changes={"return self.parts[number].copy()": "return self.parts[number]"},
    ),
    Mutant(
        name="pulls_every_range",
        says="Pulls all ranges, not only the requested ones: the others are sent and overwritten, too.",
        fails={
            "acknowledged": "a pull of range 1, range(3, 6), changes the parameter of key 0",
            "bytes": "are only the requested ranges sent?",
        },
        changes={
            """
            def pull(self, numbers: Sequence[int], parameters: np.ndarray) -> None:
                for number in numbers:
            """: """
            def pull(self, numbers, parameters):
                for number in range(len(self.ranges)):
            """,
        },
    ),
    Mutant(
        name="pulls_from_a_cache",
        says="Copies a range at its first pull, and returns this copy from then on.",
        fails={
            "store": "a pull returns the current ones",
            "duplicates": "is not applied, and must be",
            "acknowledged": "after the pull the parameter of key",
            "two servers": "lacks the worker's own push",
        },
        changes={
            "self.clocks = VectorClocks()": """
            self.clocks = VectorClocks()
            self.copies = {}
            """,
            "return self.parts[number].copy()": "return self.copies.setdefault(number, self.parts[number].copy())",
        },
    ),
    Mutant(
        name="pulls_the_whole_vector",
        says="Answers a pull with a vector of all keys; the client takes the part that it needs.",
        fails={"bytes": "are only the requested ranges sent?"},
        changes={
            "comm.send(store.pull(number), worker)": """
            whole = np.zeros(ranges[-1].stop)
            whole[ranges[number].start : ranges[number].stop] = store.pull(number)
            comm.send(whole, worker)
            """,
            "self.comm.receive(parameters[part.start : part.stop], server)": """
            whole = np.empty(self.ranges[-1].stop)
            self.comm.receive(whole, server)
            parameters[part.start : part.stop] = whole[part.start : part.stop]
            """,
        },
    ),
    Mutant(
        name="pushes_the_beginning",
        says="Sends as many values as the range has, but from the beginning of the gradient.",
        fails={
            "acknowledged": "after the pull the parameter of key 3",
            "two servers": "after the pull the parameter of key",
        },
        changes={
            "self.comm.send(gradient[part.start : part.stop], server)": """
            self.comm.send(gradient[: len(part)], server)
            """,
        },
    ),
    Mutant(
        name="removes_the_ranges_that_move",
        says="Removes the ranges that move from the list that it is given.",
        fails={"moving": "changes the list of ranges that it is given"},
        changes={
            """
    return [number for number, part in enumerate(ranges) if before.server_of(part.start) != after.server_of(part.start)]
    """: """
            moved = [i for i, part in enumerate(ranges) if before.server_of(part.start) != after.server_of(part.start)]
            ranges[:] = [part for i, part in enumerate(ranges) if i not in moved]
            return moved
            """,
        },
    ),
    Mutant(
        name="remainder_to_the_last",
        says="Gives the last range the whole remainder of keys / ranges.",
        fails={"ranges": "the longest range has"},
        changes={
            "return [range(part.start, part.stop) for part in keys.cut(number_of_keys, ranges)]": """
            length = number_of_keys // ranges
            return [range(i * length, number_of_keys if i == ranges - 1 else (i + 1) * length) for i in range(ranges)]
            """,
        },
    ),
    Mutant(
        name="requests_of_floats",
        says="Sends its requests as floats, which no other server would understand.",
        fails={"bytes": "all int64"},
        changes={
            "self.comm.send(np.array([kind, number, clock], dtype=np.int64), server)": """
            self.comm.send(np.array([kind, number, clock], dtype=np.float64), server)
            """,
            "request = np.empty(3, dtype=np.int64)": "request = np.empty(3)",
            "kind, number, clock = request.tolist()": "kind, number, clock = map(int, request)",
        },
    ),
    Mutant(
        name="scales_the_gradient_itself",
        says="Multiplies the gradient that it is given by the rate, in place.",
        fails={"store": "a push changes the gradient that it is given"},
        changes={
            "self.parts[number] -= self.rate * gradient": """
            gradient *= self.rate
            self.parts[number] -= gradient
            """,
        },
    ),
    Mutant(
        name="serves_in_an_order_of_its_own",
        says=(
            "Every other server begins with the last worker: each worker waits for a server that waits for another one."
        ),
        fails={"two servers": "deadlock: "},
        changes={
            "for worker in list(workers) * rounds:": """
            order = workers[::-1] if comm.rank % 2 else workers
            for worker in list(order) * rounds:
            """,
        },
    ),
    Mutant(
        name="serves_one_round",
        says="Serves each worker once, whatever the number of rounds.",
        fails={
            **dict.fromkeys(("acknowledged", "two servers"), "returned; rank"),
            "bytes": "is each request served until DONE",
        },
        changes={"for worker in list(workers) * rounds:": "for worker in workers:"},
    ),
    Mutant(
        name="tells_only_the_servers_it_used",
        says="Ends the round only at the servers to which it has pushed: the others wait for ever.",
        fails={"two servers": "deadlock: "},
        changes={
            "applied = np.empty(1, dtype=np.int64)": """
            self.used = {self.holders[number] for number in numbers}
            applied = np.empty(1, dtype=np.int64)
            """,
            "for server in sorted(set(self.holders)):": "for server in self.used:",
        },
    ),
    Mutant(
        name="up_the_gradient",
        says="Adds the gradient to the parameters, where it has to be subtracted.",
        fails={
            "store": "they go down, against the gradient",
            "acknowledged": "everything with the wrong sign",
            "two servers": "everything with the wrong sign",
        },
        changes={"self.parts[number] -= self.rate * gradient": "self.parts[number] += self.rate * gradient"},
    ),
    Mutant(
        name="waits_for_the_last_acknowledgement",
        says="Sends all pushes first, while the server waits with the first acknowledgement.",
        fails=dict.fromkeys(("acknowledged", "bytes"), "all wait in send: no rank receives"),
        changes={
            """
            self.comm.receive(applied, server)
            total += int(applied[0])
            """: "",
            "return total": """
            self.comm.receive(applied, server)
            return int(applied[0]) * len(numbers)
            """,
        },
    ),
    Mutant(
        name="whole_gradient_with_every_range",
        says="Sends the whole gradient with every range; the server takes the part that it needs.",
        fails={
            "bytes": "are only the requested ranges sent?",
        },
        changes={
            "gradient = np.empty(len(ranges[number]))": "gradient = np.empty(ranges[-1].stop)",
            "applied = store.push(number, worker, clock, gradient)": """
            part = ranges[number]
            applied = store.push(number, worker, clock, gradient[part.start : part.stop])
            """,
            "self.comm.send(gradient[part.start : part.stop], server)": "self.comm.send(gradient, server)",
        },
    ),
]

SENTENCES: Sentences = {
    "comments": {
        "The requests of a worker to a server": "names what follows",
        "Each begins with three integers": ["clock_before_the_range"],
        "PUSH sends the gradient of that range": ["whole_gradient_with_every_range"],
        "np.array([0]) if it was a duplicate": ["always_says_applied"],
        "PULL receives the parameters of that range": ["pulls_the_whole_vector"],
        "DONE ends the worker's round": ["ends_a_turn_with_the_first_pull"],
        "All numbers in messages are int64": ["requests_of_floats"],
        "all gradients and parameters float64": ["gradients_of_32_bits"],
    },
    "cut": {
        "Return the keys 0 … keys − 1 as contiguous ranges": ["drops_the_remainder"],
        "in order": ["last_keys_first"],
        "differ by at most one": ["remainder_to_the_last"],
        "keys, ranges": "says what the caller keeps to",
    },
    "HashRing": {
        "a key belongs to the next server clockwise": ["modulo_the_servers", "does_not_close_the_circle"],
        "the order makes no difference": ["named_by_place_in_the_list"],
        "the number of points of each server": ["ignores_virtual_nodes", "one_point_per_server"],
    },
    "HashRing.server_of": {
        "Return the server that holds `key`": ["does_not_close_the_circle"],
        "Every process computes the same result": ["hash_of_this_process"],
    },
    "moving": {
        "Return the numbers of the ranges that change their server": ["goes_by_the_number_of_the_range"],
        "A range moves as a whole": ["moves_with_any_key"],
        "A range's number is its index": ["first_keys_for_numbers"],
        "in ascending order": ["largest_number_first"],
        "The arguments are not changed": ["adds_to_the_servers", "removes_the_ranges_that_move"],
    },
    "Store": {
        "The parameters that one server holds": "names what the class is",
        "parts: range number": "describes an argument",
        "The store owns the arrays": "says what is allowed",
        "rate: the learning rate": ["forgets_the_rate"],
    },
    "Store.push": {
        "Move the parameters of range `number` by −rate · gradient": ["up_the_gradient", "scales_the_gradient_itself"],
        "unless this is a duplicate": ["applies_duplicates"],
        "have increasing clocks": "says what the caller keeps to",
        "if its clock is not above the highest one": ["compares_with_the_last_clock_only", "clocks_begin_at_one"],
        "from this worker": ["one_clock_per_range"],
        "for this range": ["one_clock_per_worker"],
        "Whether the gradient has been applied": ["always_says_applied"],
    },
    "Store.pull": {
        "Return the current parameters": ["pulls_from_a_cache"],
        "Later pushes do not change the result": ["pull_is_no_copy"],
    },
    "serve": {
        "in each round": ["serves_one_round"],
        "each until it sends DONE": ["ends_a_turn_with_the_first_pull"],
        "ranges: all ranges": "describes an argument",
        "in the order in which they are served": ["serves_in_an_order_of_its_own"],
        "comm: this rank's communicator": "describes an argument",
    },
    "Client": {
        "A worker's client of the parameter servers": "names what the class is",
        "ranges: all ranges": "describes an argument",
        "holders: for each range": ["asks_the_servers_in_turn"],
        "Every server holds at least one": "says what the caller keeps to",
        "comm: as in": "describes an argument",
    },
    "Client.push": {
        "Push some ranges of a gradient": ["pushes_the_beginning"],
        "return once each has been acknowledged": [
            "waits_for_the_last_acknowledgement",
            "acknowledges_before_applying",
        ],
        "numbers: the numbers of the ranges": "describes an argument",
        "gradient: one value for every key": ["pushes_the_beginning"],
        "The number of ranges that were applied": ["counts_what_it_pushes"],
    },
    "Client.pull": {
        "Pull some ranges": ["pulls_every_range"],
        "and write them into `parameters`": ["clears_what_it_does_not_pull"],
    },
    "Client.end_round": {
        "Send DONE to every server": ["tells_only_the_servers_it_used"],
    },
}
