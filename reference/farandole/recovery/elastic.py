"""A data-parallel training that outlives its workers: who is left catches up, and goes on.

All workers hold the same parameters, so whoever lives knows all that the dead knew, but for what was
the dead one's own. After a change of the members (`membership`) the workers compare how far each has
come. A step whose all-reduce was interrupted has changed no parameters and is taken again; where one
worker got its result and another did not, who is behind is sent the state of who is ahead. So no step
is lost and none is done twice. A spare that takes a place is sent the state, too.

    wait       for a place, as a spare
    train      step after step, until done or somebody is missed
    update     the membership
    catch up   with who has come furthest
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from mpi4py import MPI

from farandole.data_parallel.loss_log import LossLog
from farandole.data_parallel.training import accuracy, samples_used
from farandole.models import choices
from farandole.recovery.batches import Batches
from farandole.recovery.logbook import Logbook, RankWitness
from farandole.recovery.membership import Membership
from farandole.recovery.options import ElasticOptions
from farandole.recovery.replica import Replica, seed_random
from farandole.recovery.state import TrainingState
from farandole.runtime.buffers import sha256
from farandole.runtime.communicator import LOST, broadcast_text
from farandole.runtime.failure import PeerLost
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

NEWCOMER = -1  # has come to no step


class ElasticTraining:
    """One member's part in it, be it at work or waiting."""

    def __init__(self, world: World, scenario: str, options: ElasticOptions, sharded: bool = False) -> None:
        self.world, self.options = world, options
        self.recorder = Recorder(world, scenario, options)
        self.folder = Path(broadcast_text(world.control, str(self.recorder.folder)))
        self.logbook = Logbook(self.folder / "logbook.jsonl")
        world.witness = RankWitness(self.logbook, world.rank)
        self.batches = Batches(world, options, self.folder, world.size - options.spares)
        self.membership = Membership(world, options.spares)
        self.replica = Replica(world, options, sharded)
        self.losses = LossLog(world, self.recorder, options.steps)
        self.step = 0 if self.membership.place is not None else NEWCOMER

    def run(self) -> Summary | None:
        """Train to the end, and write the record; the summary on the centre, None elsewhere."""
        self.recorder.start()
        if self.membership.leads:
            self.logbook.write("start", self.world.rank, 0)
        complete = True  # nothing to catch up with
        while True:
            try:
                if self.membership.place is None:
                    if not self.membership.wait():
                        return None
                    continue
                if not complete:
                    self._catch_up()
                    complete = True
                self._train()
                self.recorder.stop()
                summary = self._finish()
                self.membership.conclude()
                return summary
            except (PeerLost, MPI.Exception) as error:
                self._note(error)
            self.membership.update()
            self.replica.regroup()
            complete = False

    def _train(self) -> None:
        first = self.step
        place, places = self.world.comm.rank, self.world.comm.size
        for step in self.world.steps(self.options.steps, first):
            self._protect(step)
            self.replica.begin(step)
            inputs, targets, whole = self.batches.take(place, places)
            share = len(inputs) / whole
            loss = self.replica.step(inputs, targets, share)
            self.step = step + 1
            if step == first and self.membership.leads:
                self.logbook.write("first step", self.world.rank, step)
            self.losses.add(step, loss, share, whole)

    def _note(self, error: PeerLost | MPI.Exception) -> None:
        """Write down who has died.

        Raises:
            MPI.Exception: it is about something else.
        """
        if isinstance(error, MPI.Exception) and error.Get_error_class() not in LOST:
            raise error
        assert self.world.witness is not None
        self.world.witness.notices(error.ranks if isinstance(error, PeerLost) else [], self.step)

    def _protect(self, step: int) -> None:
        """Before each step: keep what could be lost. Here nothing: what the dead knew the others know."""

    def _catch_up(self) -> None:
        """Go on together, with the same step."""
        with self.world.communicate("catch up"), self.world.comm.waiting("how far the others have come", -1):
            self.step = self._be_alike()
            self._take_over_the_record()
            self.batches.go_to(self.step)
        if self.membership.leads:
            self.logbook.write("start", self.world.rank, self.step)

    def _be_alike(self) -> int:
        """Have all workers be where the foremost of them is; returns the step to take next."""
        comm = self.world.comm
        steps = np.empty(comm.size, dtype=np.int64)
        comm.mpi.Allgather(np.array([self.step]), steps)
        newest = int(steps.max())
        if (steps != newest).any():
            source = int(steps.argmax())
            state = send_state(comm.mpi, self.replica.state(newest), source)
            if self.step != newest:
                self.replica.adopt(state)
            if self.step == NEWCOMER:
                seed_random(self.options.seed, self.world.rank, newest)
        self.replica.rewind(newest)
        return newest

    def _take_over_the_record(self) -> None:
        """The centre, perhaps a new one, writes on from where the one before has come to."""
        written = np.zeros(1, dtype=np.int64)
        if self.membership.leads:
            written[0] = min(self.step, self.recorder.take_over(self.folder))
            self.recorder.go_on_from(int(written[0]))
        self.world.control.Bcast(written)
        self.losses.go_on_from(self.step, int(written[0]))

    def _finish(self) -> Summary | None:
        test = self.batches.splits.test if self.membership.leads else None
        return self.recorder.finish(
            steps=self.options.steps,
            samples=samples_used(self.batches.data.shares, self.options.batch, self.options.steps),
            final_loss=self.losses.last,
            test_accuracy=accuracy(self.replica.model, test, self.world.device) if test else None,
            params_sha256=sha256(self.replica.model),
            faults=self.logbook.faults() if self.membership.leads else (),
        )


def send_state(mpi: MPI.Intracomm, state: TrainingState, source: int) -> TrainingState:
    """The state of rank `source`, on all ranks; but for what is each rank's own. Collective.

    Args:
        state: the own one, with tensors of the same names and shapes, which stay as they are.

    Cost: one broadcast of all its bytes.
    """
    values = json.loads(broadcast_text(mpi, json.dumps({"step": state.step} | state.values), source))
    shared = {}
    for name in sorted(state.shared):
        shared[name] = state.shared[name].detach().cpu().clone()
        mpi.Bcast(shared[name].numpy(), source)
    return TrainingState(values.pop("step"), shared, {}, values)


def train(scenario: str, options: ElasticOptions) -> Summary | None:
    """Train to the end, whoever dies; the summary on the rank that leads then, None elsewhere.

    Raises:
        NobodyLeft: all workers have died.
    """
    choices.check(options)
    with World.start(options) as world:
        return ElasticTraining(world, scenario, options).run()
