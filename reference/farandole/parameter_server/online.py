"""Online incremental training: each sample arrives once, is predicted first, and then trained on.

The workers share a stream; position p belongs to worker p mod n, so all see the same drift. An iteration is a pull,
*one* forward pass, and a push, under any policy and update rule. The predictions of the forward pass count as the test,
since the parameters have not been trained on these samples, and its loss gives the gradient. The share of right
predictions so far is the prequential accuracy (Dawid 1984; Gama, Sebastião & Rodrigues 2013). It needs no held-out set,
uses no sample twice, and follows the drift.

For comparison each worker keeps a copy of the model from the end of the first part of the stream, which is not trained
further and is tested on the same samples. `serving` has the reader that serves predictions at the same time. Document
000's online incremental training promises response times (erratum 000.27); it provides a model that is up to date.

Cost per iteration of a worker: a pull and a push of the parameters' n bytes, and one more forward pass, for the copy.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor, nn

from farandole import tasks
from farandole.data.batch import Batch
from farandole.data.datasets import Dataset
from farandole.data.streams import RotatingDigits
from farandole.errors import UsageError
from farandole.parameter_server import choices, cluster
from farandole.parameter_server.classification import Trainee
from farandole.parameter_server.contributions import Contribution
from farandole.parameter_server.groups import place
from farandole.parameter_server.header import Header
from farandole.parameter_server.kv_worker import KVWorker
from farandole.parameter_server.online_options import OnlineOptions
from farandole.parameter_server.report_lines import ByCount
from farandole.parameter_server.reports import Reports
from farandole.parameter_server.serving import Reader
from farandole.parameter_server.training import application, pull
from farandole.runtime.communicator import gather_text
from farandole.runtime.files import json_text
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World
from farandole.tasks import Task, criterion_of, is_right

LAST_PART = 0.1  # of the stream: what the summary's test accuracy is about


def train(scenario: str, options: OnlineOptions) -> Summary | None:
    """Learn from the stream, serve, and write the record; the summary on rank 0, None elsewhere."""
    choices.check(options)
    with World.start(options) as world:
        placement = place(world, options, has_readers=True)
        workers = placement.workers
        task = tasks.built_in(options)
        splits = task.data(options.seed)
        streams = make_streams(options, workers, splits.train)
        recorder = Recorder(world, scenario, options)
        learner = Learner(world, recorder, options, task, splits.train, streams)
        reader = Reader(
            world,
            recorder,
            learner.model,
            learner.flat,
            splits.test,
            samples=options.samples,
            degrees=options.degrees,
            publish_every_s=options.publish_every,
        )
        reports = StreamReports(recorder, streams)
        outcome = cluster.run(
            world,
            recorder,
            options,
            placement,
            [replace(application(options, workers, workers, learner.table), limit=None)],  # the stream has an end
            work=learner.work,
            reported=reports.add,
            read=reader.work,
        )
        reports.close()
        write_served(world, recorder, reader)
        return recorder.finish(
            steps=max(outcome.updates, default=0),
            samples=reports.samples,
            final_loss=reports.loss,
            test_metrics={"accuracy": reports.accuracy_at_the_end},
            params_sha256=sha256(outcome.tables[0].tobytes()).hexdigest(),
            ring_bytes=learner.plain_bytes,
            **outcome.figures(),
        )


def make_streams(options: OnlineOptions, workers: Sequence[int], dataset: Dataset) -> dict[int, RotatingDigits]:
    """Return each worker's part of the stream, by rank.

    Raises:
        UsageError: a stream or a batch too short for the workers, or batches that come too rarely.
    """
    batch = options.batch // len(workers)
    if batch < 1:
        raise UsageError(f"--batch {options.batch}: give each of {len(workers)} workers at least 1 sample")
    if options.samples < len(workers):
        raise UsageError(f"--samples {options.samples}: give each of {len(workers)} workers at least 1 sample")
    if not math.isfinite(options.degrees):
        raise UsageError(f"--degrees {options.degrees}: must be a finite number")
    if options.rate and options.batch / options.rate >= options.hang_after:
        apart = f"batches of {options.batch} would come {options.batch / options.rate:g} s apart"
        raise UsageError(
            f"--rate {options.rate:g}: {apart}; it must be less than --hang-after, {options.hang_after:g} s"
        )
    return {
        rank: RotatingDigits(
            dataset, options.samples, options.degrees, options.seed, worker=number, workers=len(workers), batch=batch
        )
        for number, rank in enumerate(workers)
    }


class Learner(Trainee):
    """One worker: test, then train, on its part of the stream.

    Args:
        streams: every worker's part, by rank; on a rank that is no worker only the model is used.
    """

    options: OnlineOptions

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        options: OnlineOptions,
        task: Task,
        dataset: Dataset,
        streams: Mapping[int, RotatingDigits],
    ) -> None:
        super().__init__(world, options, task, dataset, {}, group=0)
        self.recorder, self.streams = recorder, streams
        self._frozen: nn.Module = self.model
        self._right = 0

    def _iterate(self, kv: KVWorker, contribution: Contribution) -> None:
        """Iterations, until the stream has ended."""
        stream = self.streams[self.world.rank]
        freeze_at = math.ceil(self.options.freeze_after * stream.steps)
        policy = choices.make_policy(self.options, list(self.streams))
        while (number := stream.step) < stream.steps:
            share = len(stream.positions(number)) / (stream.batch * stream.workers)
            self._await(stream)
            inputs, targets = (torch.from_numpy(part).to(self.world.device) for part in next(stream))
            if not (start := pull(self.world, kv, contribution.into)):
                return  # this worker was declared dead
            self.world.begin_step(start.clock)
            with self.world.compute("test, then train"):
                contribution.pulled(share, start.parameters)
                if number == freeze_at:
                    self._frozen = copy.deepcopy(self.model)
                frozen_right = self._frozen_right(inputs, targets)
                loss = self._gradient((inputs, targets))
                pushed = contribution.to_push()
            time.sleep(policy.pause(self.world.rank, start.clock))
            self._push(kv, pushed, start, share)
            kv.report(number, loss, len(targets), self._right, frozen_right)

    def _await(self, stream: RotatingDigits) -> None:
        """Wait until the samples of the next batch have come."""
        if self.options.rate:
            due_s = (stream.positions(stream.step)[-1] + 1) / self.options.rate
            with self.world.trace.span("wait for samples", "wait"):
                time.sleep(max(0.0, due_s - self.recorder.elapsed_s))

    def _gradient(self, batch: Batch) -> float:
        """As always; and from the same logits, how many samples were predicted right before they are learned."""
        self.flat.zero_gradients()
        inputs, targets = batch
        logits = self.model(inputs)
        self._right = int((logits.argmax(dim=-1) == targets).sum())
        loss = criterion_of(self.task)(logits, targets)
        loss.backward()
        return loss.item()

    def _frozen_right(self, inputs: Tensor, targets: Tensor) -> int:
        with torch.no_grad():
            return int(is_right(self._frozen, (inputs, targets)).sum())


class StreamReports(Reports):
    """Reports whose `clock` is the number of the batch in the worker's part of the stream.

    Args:
        streams: every worker's part, by rank.
    """

    def __init__(self, recorder: Recorder, streams: Mapping[int, RotatingDigits]) -> None:
        batches = sum(stream.steps for stream in streams.values())
        super().__init__(recorder, ByCount(len(streams)), steps=math.ceil(batches / len(streams)))
        self.streams = streams
        self._at_the_end: list[Header] = []

    def add(self, report: Header) -> None:
        stream = self.streams[report.source]
        if stream.positions(report.clock)[-1] >= (1 - LAST_PART) * stream.samples_total:
            self._at_the_end.append(report)
        super().add(report)

    @property
    def accuracy_at_the_end(self) -> float | None:
        """Test-then-train over the batches that end in the stream's last part; None if none has come."""
        samples = sum(report.samples for report in self._at_the_end)
        return sum(report.right for report in self._at_the_end) / samples if samples else None

    def _more(self, reports: Sequence[Header]) -> dict[str, float]:
        samples = sum(report.samples for report in reports)
        positions = np.concatenate([self.streams[report.source].positions(report.clock) for report in reports])
        return {
            "test_then_train": sum(report.right for report in reports) / samples,
            "frozen": sum(report.baseline for report in reports) / samples,
            "angle": float(self.streams[reports[0].source].angles(positions).mean()),
        }


def write_served(world: World, recorder: Recorder, reader: Reader) -> None:
    """Bring what all readers have answered into serving.jsonl, in order of time. Collective."""
    lines = [line for text in gather_text(world.control, json.dumps(reader.served)) for line in json.loads(text)]
    lines.sort(key=lambda line: line["wall_s"])
    recorder.write_beside("serving.jsonl", "".join(json_text(line) + "\n" for line in lines))
