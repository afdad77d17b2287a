"""A graph in a file, one line per edge: `0 1` is undirected, `0 > 1` is directed from 0 to 1.

    # a star, and one directed edge
    0 1
    0 2
    1 > 2

Text after a # is a comment. Every rank must reach every other, directly or through others.
"""

from __future__ import annotations

import re
from pathlib import Path

from farandole.decentralised.topologies import Topology, check_connected, topology
from farandole.errors import UsageError

EDGE = re.compile(r"([0-9]{1,9})\s*(>|\s)\s*([0-9]{1,9})")


def read_or_build(file: Path | None, name: str, ranks: int) -> Topology:
    """Return the graph in `file`, or without a file the graph called `name`, over `ranks` ranks.

    Raises:
        UsageError: as `read`.
    """
    return read(file, ranks) if file else topology(name, ranks)


def read(file: Path, ranks: int) -> Topology:
    """Return the graph in `file`, over `ranks` ranks.

    Raises:
        UsageError: it cannot be read, a line is not an edge between two of the ranks, or a rank cannot reach all
            others.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"--graph {file} cannot be read ({why}): give a text file with an edge a line") from error
    return parse(text, ranks, f"--graph {file}")


def parse(text: str, ranks: int, name: str) -> Topology:
    """Return the graph that `text` describes; `name` is for messages."""
    edges: set[tuple[int, int]] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        found = EDGE.fullmatch(words)
        if not found:
            raise UsageError(f"{name}, line {number}: {words!r} is no edge: write 0 1 (both ways) or 0 > 1 (one way)")
        one, other = int(found[1]), int(found[3])
        if max(one, other) >= ranks:
            raise UsageError(f"{name}, line {number}: there is no rank {max(one, other)}; ranks are 0 to {ranks - 1}")
        if one == other:
            raise UsageError(f"{name}, line {number}: rank {one} needs no edge to itself: leave it out")
        edges |= {(one, other)} if found[2] == ">" else {(one, other), (other, one)}
    graph = Topology(name, ranks, (frozenset(edges),))
    check_connected(graph)
    return graph
