"""Known wrong answers of lab 6, as changes of reference.py."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant

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
