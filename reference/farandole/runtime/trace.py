"""The timeline of each rank: spans, and the share of communication that was waiting.

A span belongs to one of three categories: ``compute``, ``communicate``, ``wait``. A rank cannot
tell waiting from transferring while it is blocked in a collective, but all ranks together can: a
collective cannot finish before the last rank has arrived. So spans are recorded as
``communicate``, and once the traces of all ranks are together and their clocks agree,
`split_waits` cuts each collective at the last arrival: before it is waiting, after it is transfer.
A single message is cut in the same way, where its sender sent it.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from farandole.runtime import traffic
from farandole.runtime.traffic import Operation

Category = Literal["compute", "communicate", "wait"]
CATEGORIES: tuple[Category, ...] = ("compute", "communicate", "wait")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one rank's time, in seconds of its clock.

    Attributes:
        key: the same on all ranks of one collective ("" for what concerns one rank alone), or that of the
            message which a receive waits for.
        depth: 0 for a phase of the step; 1 and more for what happened inside another span.
        releases: the key of the message that is sent here, before which its receiver can only wait.
        beside: it happened in a second thread, while the rank's own spans went on; it is no part of the rank's time.
    """

    rank: int
    name: str
    category: Category
    start: float
    end: float
    key: str = ""
    depth: int = 0
    releases: str = ""
    beside: bool = False


class Trace:
    """Collects the spans of one rank; a span costs about a microsecond."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.spans: list[Span] = []
        self._depth = 0
        self._collectives: Counter[str] = Counter()
        self._regrouped = 0

    @contextmanager
    def span(self, name: str, category: Category, *, collective: bool = False, group: str = "") -> Iterator[None]:
        """Record the body as one span. `collective`: every rank of `group` has its own span of the same call."""
        key = self.collective_key(name, group) if collective else ""
        depth, self._depth = self._depth, self._depth + 1
        start = time.perf_counter()
        try:
            yield
        finally:
            self._depth = depth
            self.add(name, category, start, time.perf_counter(), key=key, depth=depth)

    @contextmanager
    def receiving(self, name: str, key: str) -> Iterator[None]:
        """Record the body as the receipt of one message; `key` is what its sender gives to `sending`."""
        start = time.perf_counter()
        yield
        self.add(name, "communicate", start, time.perf_counter(), key=key + self._change(), depth=self._depth)

    @contextmanager
    def sending(self, name: str, key: str) -> Iterator[None]:
        """Record the body as the dispatch of one message, for which its receiver may have waited."""
        start = time.perf_counter()
        yield
        end, releases = time.perf_counter(), key + self._change()
        self.spans.append(Span(self.rank, name, "communicate", start, end, "", self._depth, releases))

    @contextmanager
    def beside(self, name: str) -> Iterator[None]:
        """Record the body, in a second thread, as a collective of all ranks' second threads."""
        key = self.collective_key(name, "second threads")
        start = time.perf_counter()
        yield
        self.spans.append(Span(self.rank, name, "communicate", start, time.perf_counter(), key, beside=True))

    def collective_key(self, name: str, group: str = "") -> str:
        """Return a key that the ranks' spans of one collective call share: a group's ranks call in the same order.

        Args:
            group: a different name for each group of ranks; "": all ranks.
        """
        self._collectives[group] += 1
        return f"{name}#{self._collectives[group]}" + (f" of {group}" if group else "") + self._change()

    def regroup(self, number: int) -> None:
        """Note change `number` of the group of all ranks: its present ranks count their collectives anew."""
        self._collectives.clear()
        self._regrouped = number

    def _change(self) -> str:
        """Return a suffix that distinguishes a key from the same one before the last change of the ranks."""
        return f" after change {self._regrouped}" if self._regrouped else ""

    def add(self, name: str, category: Category, start: float, end: float, *, key: str = "", depth: int = 0) -> None:
        """Record a span whose ends were taken elsewhere, with `time.perf_counter`."""
        self.spans.append(Span(self.rank, name, category, start, end, key, depth))


def split_waits(spans: Iterable[Span]) -> list[Span]:
    """Cut every collective into waiting (until the last rank arrived) and communicating.

    Args:
        spans: of all ranks, on one clock.

    Returns:
        The same spans in order of time, each collective as up to two of them.
    """
    spans = list(spans)
    arrivals: dict[str, float] = defaultdict(float)
    for span in spans:
        for key in filter(None, (span.key, span.releases)):
            arrivals[key] = max(arrivals[key], span.start)
    parts: list[Span] = []
    for span in spans:
        cut = min(arrivals[span.key], span.end) if span.key else span.start
        if cut > span.start:
            parts.append(replace(span, name=f"wait for {span.name}", category="wait", end=cut))
        if cut < span.end:
            parts.append(replace(span, start=cut))
    return sorted(parts, key=lambda part: (part.start, part.rank, part.depth))


def seconds_by_category(spans: Iterable[Span], ranks: Sequence[int]) -> dict[Category, list[float]]:
    """Seconds per category, for each of `ranks`: its own thread's, at depth 0 (inner spans are part of outer ones)."""
    seconds: dict[Category, list[float]] = {category: [0.0] * len(ranks) for category in CATEGORIES}
    place = {rank: number for number, rank in enumerate(ranks)}
    for span in spans:
        if span.depth == 0 and not span.beside:
            seconds[span.category][place[span.rank]] += span.end - span.start
    return seconds


def chrome_trace(
    spans: Iterable[Span], ranks: Sequence[int], roles: Sequence[str] = (), operations: Sequence[Operation] = ()
) -> dict[str, Any]:
    """Return the spans as Chrome trace JSON (one process per rank, times in µs from the first span).

    Args:
        ranks: their numbers.
        roles: what each of them is, where they differ; it stands beside the rank's number.
        operations: what they have sent and received, for a track of its own. "otherData" has the members of their
            groups, in the order of the groups' numbers.

    Source: "Trace Event Format", the Chromium project; opens in ui.perfetto.dev.
    """
    spans = list(spans)
    origin = min((span.start for span in spans), default=0.0)
    events: list[dict[str, Any]] = []
    for place, rank in enumerate(ranks):
        name = f"rank {rank}, {roles[place]}" if roles else f"rank {rank}"
        events.append({"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": name}})
        events.append({"ph": "M", "pid": rank, "tid": 0, "name": "process_sort_index", "args": {"sort_index": rank}})
    for rank in sorted({span.rank for span in spans if span.beside}):
        events.append({"ph": "M", "pid": rank, "tid": 1, "name": "thread_name", "args": {"name": "beside it"}})
    for span in spans:
        events.append(
            {
                "ph": "X",
                "pid": span.rank,
                "tid": int(span.beside),
                "name": span.name,
                "cat": span.category,
                "ts": round((span.start - origin) * 1e6, 3),
                "dur": round((span.end - span.start) * 1e6, 3),
                "args": {"depth": span.depth},
            }
        )
    groups = traffic.numbers_of_groups(operations)
    events += traffic.events(traffic.numbered(operations), groups, origin)
    members = [list(members) for members, _ in groups]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"groups": members}}


def to_json(spans: Iterable[Span]) -> str:
    """Spans as JSON rows, for the way from a rank to rank 0."""
    rows = ([s.rank, s.name, s.category, s.start, s.end, s.key, s.depth, s.releases, s.beside] for s in spans)
    return json.dumps(list(rows))


def from_json(text: str) -> list[Span]:
    return [Span(*row) for row in json.loads(text)]
