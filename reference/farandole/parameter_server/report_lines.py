"""The workers' reports, grouped into lines of metrics.jsonl.

A report describes one iteration of a worker. If all workers run in step, a line is a step, so the number of lines
equals the summary's steps, also after deaths. Otherwise a line has as many reports as there were workers at first,
since the remaining workers do a dead one's work: it covers about as many samples as a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from farandole.parameter_server.header import Header


class ReportLines(Protocol):
    """Collects reports; every method returns the lines that are complete now, each as its reports."""

    def add(self, report: Header) -> list[list[Header]]:
        """Add a worker's completed iteration; return the lines that it completes."""
        ...

    def leave(self, worker: int) -> list[list[Header]]:
        """This worker reports no more: it has finished, or died."""
        ...

    def end(self) -> list[list[Header]]:
        """No worker reports any more."""
        ...


class ByCount:
    """A line is as many reports as there were workers at first."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._reports: list[Header] = []

    def add(self, report: Header) -> list[list[Header]]:
        self._reports.append(report)
        return self.end() if len(self._reports) == self.workers else []

    def leave(self, worker: int) -> list[list[Header]]:
        return []

    def end(self) -> list[list[Header]]:
        reports, self._reports = self._reports, []
        return [reports] if reports else []


class ByStep:
    """A line is the reports of one step.

    It is complete once every worker that is left has come to that step, or, where steps do not wait for the late, once
    one has gone beyond it; a late report then counts with the line that is next.

    Args:
        workers: their ranks.
        waits: each step waits for all workers.
    """

    def __init__(self, workers: Iterable[int], waits: bool = True) -> None:
        self.waits = waits
        self._reached = dict.fromkeys(workers, -1)  # worker → the last step that it has reported
        self._reports: dict[int, list[Header]] = {}  # step → those that are in no line yet
        self._next = 0  # no line is of an earlier step any more

    def add(self, report: Header) -> list[list[Header]]:
        if report.source in self._reached:
            self._reached[report.source] = report.clock
        elif report.clock < self._next:  # of a dead worker, after the line of its step
            return []
        self._reports.setdefault(max(report.clock, self._next), []).append(report)
        return self._complete()

    def leave(self, worker: int) -> list[list[Header]]:
        self._reached.pop(worker, None)
        return self._complete()

    def end(self) -> list[list[Header]]:
        self._reached.clear()
        return self._complete()

    def _complete(self) -> list[list[Header]]:
        lines = []
        while self._reports and self._is_over(step := min(self._reports)):
            lines.append(self._reports.pop(step))
            self._next = step + 1
        return lines

    def _is_over(self, step: int) -> bool:
        furthest, slowest = max(self._reached.values(), default=step), min(self._reached.values(), default=step)
        return slowest >= step or (not self.waits and furthest > step)
