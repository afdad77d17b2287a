"""A record as one graph of nodes per rank, which a simulator can replay on a machine of another shape.

A node is a computation with its measured duration, a message at one of its ends, or a rank's part in a collective. What
communication and waiting have taken here is left out, since a simulator is to find that. An edge says that a node can
begin only after another one:

    within a thread         each node after the one before it, but for sends: what follows does not wait for a send to
                            arrive, as ours go on at once, while a send waits for the send before it
    to a second thread      what it sends after the computations that had ended by then; one that went on meanwhile is
                            cut there, so that the bucket of an overlapped all-reduce leaves in the middle of backward
    from a second thread    what follows a wait in the main thread after all that the second one had done by its end

Every edge leads from a node that had ended here to one that had not begun, and every receive has its send. So the
graphs have no cycle, and a replay cannot deadlock, in whatever order nodes of different ranks end.

What is lost: the time between two spans (loading, metrics); a wait until a send has left; an order that was chance and
that the edges keep, such as that of a server's requests; and everything that is no counted message. This is what MPI's
own collectives move, except in an all-reduce, memory that ranks share, a rank's messages to itself, and messages that
are sent again. A receive whose message was sent outside of the clock is left out, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole.errors import UsageError
from farandole.runtime.record import AGAIN, Run
from farandole.runtime.traffic import COLLECTIVES, RECEIVE, SEND, TRACK

MAIN = 0  # the main thread; others as in trace.json
ROUNDING_US = 0.002  # of the ends of a span in trace.json
Event = dict[str, Any]


@dataclass
class Node:
    """One node of a rank's graph.

    Attributes:
        kind: "compute", or as `traffic.Operation.kind`.
        start, end: in µs of the record; a message's are equal.
        thread: that it belongs to.
        about: of a message or collective, the "args" of its event.
        after: the nodes that must have ended before, by their places in the graph.
    """

    name: str
    kind: str
    start: float
    end: float
    thread: int = MAIN
    about: Event = field(default_factory=dict)
    after: list[int] = field(default_factory=list)

    @property
    def duration_us(self) -> int:
        """Whole µs, such that the parts of a span add up to its duration."""
        return round(self.end) - round(self.start)


def graphs(run: Run) -> dict[int, list[Node]]:
    """Return each rank's graph, by its number, in order of time.

    Raises:
        UsageError: the record does not hold all messages, or names ranks that did not finish.
    """
    summary, groups = run.summary, run.groups
    if groups is None:
        raise UsageError(f"{run.folder} is of a version that recorded no messages: {AGAIN}")
    if summary.bytes_sent is None and not groups:
        raise UsageError(
            f"{run.folder}: {summary.scenario} communicates by a library, which does not tell its messages; "
            "export a run that sends its own, such as sync_sgd"
        )
    messages = _by_rank(run.messages)
    _check(run, messages, groups)
    spans = _by_rank(run.trace)
    return {rank: _graph(spans[rank], messages[rank], rank) for rank in summary.members}


def _by_rank(events: Sequence[Event]) -> dict[int, list[Event]]:
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        found[event["pid"]].append(event)
    return found


def _check(run: Run, messages: Mapping[int, Sequence[Event]], groups: Sequence[Sequence[int]]) -> None:
    """Refuse a record whose messages lead to ranks without one, or whose collectives some member has left."""
    taken: dict[tuple[int, int], list[Any]] = defaultdict(list)
    named = set(messages) | {rank for members in groups for rank in members}
    for rank, its in messages.items():
        for about in (each["args"] for each in its):
            if about["operation"] not in COLLECTIVES:
                named.add(about["peer"])
            elif 0 <= about["group"] < len(groups):
                taken[about["group"], rank].append((about["operation"], about["size"]))
            else:
                raise UsageError(f"{run.folder / 'trace.json'} is damaged (it lacks a group of ranks): {AGAIN}")
    if missing := sorted(named - set(run.summary.members)):
        raise UsageError(
            f"{run.folder} cannot be replayed: it has messages with rank {missing[0]}, which did not finish; "
            "export a run in which no rank dies"
        )
    for number, members in enumerate(groups):
        if any(taken[number, rank] != taken[number, members[0]] for rank in members):
            raise UsageError(
                f"{run.folder} cannot be replayed: its ranks took part in different collectives; "
                "export a run in which no rank dies or joins"
            )


def _graph(spans: Sequence[Event], messages: Sequence[Event], rank: int) -> list[Node]:
    """Return one rank's nodes, with their edges."""
    operations = [_operation(event) for event in messages if _is_node(event["args"], rank)]
    own = [span for span in spans if span["tid"] == MAIN]
    nodes = [*operations, *_computations(own, operations)]
    nodes.sort(key=lambda node: (node.start, node.kind == "compute"))  # one that goes on after a message follows it
    waits = sorted(span["ts"] + span["dur"] for span in own if span["cat"] != "compute")
    chains: dict[int, list[int]] = {MAIN: []}
    for place, node in enumerate(nodes):
        chains.setdefault(node.thread, []).append(place)
    for chain in chains.values():
        _link_within(nodes, chain)
    main = [place for place in chains.pop(MAIN) if nodes[place].kind != SEND]
    for chain in chains.values():
        leaving = [place for place in chain if nodes[place].kind != RECEIVE]
        _link(nodes, main, leaving, [nodes[place].start for place in leaving])
        _link(nodes, [place for place in chain if nodes[place].kind != SEND], main, _ends_of_waits(nodes, main, waits))
    return nodes


def _link_within(nodes: Sequence[Node], chain: Sequence[int]) -> None:
    """Let each node of a thread come after the one before it that is no send, and a send after the send before it."""
    before: dict[bool, int] = {}
    for place in chain:
        is_send = nodes[place].kind == SEND
        nodes[place].after += [before[kind] for kind in ((False, True) if is_send else (False,)) if kind in before]
        before[is_send] = place


def _is_node(about: Event, rank: int) -> bool:
    return about["operation"] in COLLECTIVES or (about["message"] >= 0 and about["peer"] != rank)


def _operation(event: Event) -> Node:
    about = event["args"]
    end = event["ts"] + event["dur"]
    return Node(event["name"], about["operation"], event["ts"], end, event["tid"] - TRACK, about)


def _computations(spans: Sequence[Event], operations: Sequence[Node]) -> Iterator[Node]:
    """Yield the computations, each in parts: without the thread's own operations, and cut where another one sends."""
    cuts = sorted(
        (node.start, node.end if node.thread == MAIN else node.start)
        for node in operations
        if node.thread == MAIN or node.kind != RECEIVE
    )
    place, done = 0, float("-inf")
    for span in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
        begin, end = span["ts"], span["ts"] + span["dur"]
        if span["cat"] != "compute" or end <= done + ROUNDING_US:  # the latter is a part of the one before
            continue
        done = end
        while place < len(cuts) and cuts[place][0] <= begin:
            place += 1
        while place < len(cuts) and cuts[place][0] < end:
            yield Node(span["name"], "compute", begin, cuts[place][0])
            begin = min(cuts[place][1], end)
            place += 1
        yield Node(span["name"], "compute", begin, end)


def _ends_of_waits(nodes: Sequence[Node], chain: Sequence[int], waits: Sequence[float]) -> Iterator[float]:
    """Yield for each node of the main thread when its last wait before that node ended."""
    place, last = 0, float("-inf")
    for each in chain:
        while place < len(waits) and waits[place] <= nodes[each].start + ROUNDING_US:
            last = waits[place]
            place += 1
        yield last


def _link(nodes: Sequence[Node], earlier: Sequence[int], later: Sequence[int], by: Iterable[float]) -> None:
    """Let each of `later` come after the last of `earlier` that had ended by its time, unless one before it does."""
    place = linked = 0
    for each, time in zip(later, by, strict=True):
        while place < len(earlier) and nodes[earlier[place]].end <= time and earlier[place] < each:
            place += 1
        if place > linked:
            nodes[each].after.append(earlier[place - 1])
            linked = linked if nodes[each].kind == SEND else place  # nothing comes after a send
