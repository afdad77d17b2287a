"""Chakra traces, read without the package that writes them, and replayed by the rules of the format.

`read` decodes the wire format of protobuf by hand, where a key names a field and the form of its value. `replay` lets
each rank begin whatever its dependencies allow, as a simulator does that knows no time: a send ends at once, a receive
ends once its message has been sent, and a collective once all members of its group have begun it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARINT, LENGTH = 0, 2  # forms of a value
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7  # NodeType in et_def.proto
EVERYONE = "0"
Fields = dict[int, list[Any]]


@dataclass(frozen=True)
class Read:
    """One node: its id, name and type, the nodes that it depends on, its duration in µs, and its attributes."""

    id: int
    name: str
    type: int
    after: tuple[int, ...]
    duration_us: int
    about: Mapping[str, Any]


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the number at `place`, and the place after it."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return value, place


def fields(data: bytes) -> Fields:
    """Return the values of each field of a message, by its number."""
    found: Fields = defaultdict(list)
    place = 0
    while place < len(data):
        key, place = varint(data, place)
        value: Any
        value, place = varint(data, place)
        if key & 7 == LENGTH:
            value, place = data[place : place + value], place + value
        else:
            assert key & 7 == VARINT
        found[key >> 3].append(value)
    return found


def messages(data: bytes) -> Iterator[Fields]:
    """Yield the messages of a file, each of which follows its length."""
    place = 0
    while place < len(data):
        length, place = varint(data, place)
        yield fields(data[place : place + length])
        place += length


def attributes(encoded: Sequence[bytes]) -> dict[str, Any]:
    """Return AttributeProtos by name: int32_val is field 7, int64_val 9, bool_val 27, and string_val 29."""
    found = {}
    for name, kind, value in (
        (each[1][0], *next(item for item in each.items() if item[0] > 2)) for each in map(fields, encoded)
    ):
        found[name.decode()] = {7: int, 9: int, 27: bool, 29: lambda text: text.decode()}[kind](value[0])
    return found


def ids(packed: Sequence[bytes]) -> Iterator[int]:
    for data in packed:
        place = 0
        while place < len(data):
            value, place = varint(data, place)
            yield value


def read(file: Path) -> list[Read]:
    """Return the nodes of a trace, whose first message must be a GlobalMetadata with a version."""
    metadata, *nodes = messages(file.read_bytes())
    assert metadata[1] == [b"0.0.4"]
    return [
        Read(
            next(iter(each[1]), 0),
            each[2][0].decode(),
            each[3][0],
            tuple(ids(each[5])),
            next(iter(each[7]), 0),
            attributes(each[10]),
        )
        for each in nodes
    ]


def load(folder: Path) -> tuple[list[list[Read]], dict[str, list[int]]]:
    """Return each rank's nodes, and the members of each group, as an ASTRA-sim of as many ranks would find them."""
    (name,) = {file.name.removesuffix(".et").rpartition(".")[0] for file in folder.glob("*.et")}
    ranks = [read(folder / f"{name}.{rank}.et") for rank in range(len(list(folder.glob("*.et"))))]
    groups = folder / f"{name}.groups.json"
    named = json.loads(groups.read_text()) if groups.exists() else {}
    return ranks, {EVERYONE: list(range(len(ranks))), **named}


def replay(folder: Path, one_at_a_time: bool = False) -> list[list[Read]]:
    """Replay the traces in `folder` to their end, and return them.

    Args:
        one_at_a_time: a rank begins no communication while it is in another one.
    """
    ranks, groups = load(folder)
    done: list[set[int]] = [set() for _ in ranks]
    begun: list[set[int]] = [set() for _ in ranks]
    sent: Counter[tuple[Any, ...]] = Counter()
    taken: dict[tuple[str, int], list[Read]] = defaultdict(list)  # group and rank → its collectives
    place: list[dict[int, int]] = [{} for _ in ranks]  # node → how many collectives its rank had begun in its group

    def ends(rank: int, node: Read) -> bool:
        about = node.about
        if node.type in (SEND, RECEIVE):
            message = about["comm_src"], about["comm_dst"], about["comm_tag"], about["comm_size"]
            if node.type == SEND:
                assert about["comm_src"] == rank
                sent[message] += 1
                return True
            assert about["comm_dst"] == rank
            found = sent[message] > 0
            sent[message] -= found
            return found
        if node.type == COLLECTIVE:
            group, number = about.get("pg_name", EVERYONE), place[rank][node.id]
            others = [taken[group, each][number : number + 1] for each in groups[group]]
            if not all(others):
                return False
            kinds = {(each.about["comm_type"], each.about["comm_size"]) for (each,) in others}
            assert len(kinds) == 1, f"members of group {group} meet in different collectives: {kinds}"
            return True
        assert node.type == COMPUTE
        return True

    moved = True
    while moved:
        moved = False
        for rank, nodes in enumerate(ranks):
            for node in nodes:
                if node.id in done[rank] or not done[rank].issuperset(node.after):
                    continue
                if node.id not in begun[rank]:
                    if one_at_a_time and node.type != COMPUTE and any(each not in done[rank] for each in begun[rank]):
                        continue
                    begun[rank].add(node.id)
                    moved = True
                    if node.type == COLLECTIVE:
                        mine = taken[node.about.get("pg_name", EVERYONE), rank]
                        place[rank][node.id] = len(mine)
                        mine.append(node)
                if ends(rank, node):
                    done[rank].add(node.id)
                    moved = True
    stuck = [
        f"rank {rank}: {node.name} ({node.id})"
        for rank, nodes in enumerate(ranks)
        for node in nodes
        if node.id in begun[rank] - done[rank]
    ]
    assert all(len(nodes) == len(done[rank]) for rank, nodes in enumerate(ranks)), f"these never end: {stuck}"
    return ranks
