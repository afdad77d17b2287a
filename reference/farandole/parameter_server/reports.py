"""The workers' reports, on the manager: each line of metrics.jsonl stands for several of them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from farandole.parameter_server import choices
from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.failure_log import FailureLog
from farandole.parameter_server.header import Header
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.report_lines import ByCount, ByStep, ReportLines
from farandole.runtime.progress import bar
from farandole.runtime.recorder import Recorder


class Reports:
    """Turns the workers' reports into metrics.jsonl; `report_lines` determines which of them make a line.

    A rank that may succeed the manager collects the lines, too. When it does, it writes those that the manager has not
    written: it may have received more reports, or fewer.
    """

    def __init__(
        self, recorder: Recorder, grouped: ReportLines, steps: int, failure_log: FailureLog | None = None
    ) -> None:
        self.recorder, self.failure_log = recorder, failure_log
        self._grouped = grouped
        self.samples = 0
        self.loss: float | None = None
        self._lines: list[dict[str, float]] = []
        self._written = 0  # lines that another manager has written before this one
        self._bar = bar(steps, recorder.world.rank)

    def add(self, report: Header) -> None:
        if self.failure_log:
            self.failure_log.reported(report)
        self.recorder.watch(report.clock, report.loss, report.worker)
        self._write(self._grouped.add(report))

    def left(self, worker: int) -> None:
        """This worker will send no more reports."""
        self._write(self._grouped.leave(worker))

    def on_failure(self, replication: ChainReplication) -> None:
        """Ranks have died; perhaps the manager, so that this rank writes from now on."""
        assert self.failure_log is not None
        if not self.recorder.writes:
            self._written = self.recorder.take_over(self.failure_log.folder)
            self.recorder.go_on_from(self._written)
            for line in self._lines[self._written :]:
                self.recorder.log(**line)
        self.failure_log.on_failure(replication)

    def on_hang(self, rank: int, step: int) -> None:
        """A rank hangs, and is about to be killed."""
        assert self.failure_log is not None
        self.failure_log.on_hang(rank, step)

    def close(self) -> None:
        """Write what is left, and end the progress bar."""
        self._write(self._grouped.end())
        self._bar.close()
        if self.failure_log and self.recorder.writes:
            self.failure_log.close()

    def _write(self, lines: Sequence[Sequence[Header]]) -> None:
        for reports in (sorted(line, key=attrgetter("worker")) for line in lines):  # a sum depends on their order
            samples = sum(report.samples for report in reports)
            self.loss = sum(report.loss * report.samples for report in reports) / samples if samples else 0.0
            step, more = len(self._lines), self._more(reports)
            line = {"step": step, "wall_s": self.recorder.elapsed_s, "loss": self.loss, "samples": samples, **more}
            self._lines.append(line)
            if step >= self._written:
                self.recorder.log(**line)
            self.samples += samples
            self._bar.update()
            if self.recorder.writes:
                self.recorder.world.begin_step(step + 1)

    def _more(self, reports: Sequence[Header]) -> dict[str, float]:
        """Return further entries of the line of these reports."""
        return {}


def report_lines(options: PolicyOptions, workers: Sequence[int]) -> ReportLines:
    """Return the rule by which the workers' reports make lines under the policy of the options."""
    if not choices.make_policy(options, workers).in_rounds:
        return ByCount(len(workers))
    return ByStep(workers, waits=options.sync == "bsp" or options.applications > 1)
