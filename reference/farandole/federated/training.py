"""The rounds of federated learning, on ranks that are each the host of some clients.

In a round the server sends the parameters to all hosts down a tree. The clients that take part train locally, on each
host one after the other. Their contributions are sent to the server, which adds them up. No sample is sent: every host
loads the whole set, divides it as all others do, and keeps only the samples of its clients.
"""

from __future__ import annotations

from math import nan

import numpy as np
from mpi4py import MPI

from farandole import tasks
from farandole.collectives.executor import run
from farandole.collectives.tree import BROADCAST
from farandole.data.samples import Samples
from farandole.data_parallel.evaluation import judged_together, mean_of_statistics
from farandole.errors import UsageError
from farandole.federated.aggregation import Aggregation, PlainSum, Round, SecureSum
from farandole.federated.averaging import Client, LocalTraining, averaged
from farandole.federated.clients import host, participants, possessions, survivors
from farandole.federated.options import FederatedOptions
from farandole.runtime.buffers import sha256
from farandole.runtime.progress import progress
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World
from farandole.tasks import Task


class Federation:
    """This rank's part: the host of some clients, and on rank 0 the server as well.

    Attributes:
        samples: used so far by all clients, each counted as often as it was used.
        own_loss: of this rank's clients in the last round, summed over samples; nan if a client's parameters are not
            finite.
    """

    def __init__(self, world: World, options: FederatedOptions, task: Task, train: Samples) -> None:
        self.world, self.options = world, options
        classes = tasks.classes_of(task, train, options.concentration)
        owned = possessions(classes, options.clients, options.concentration, options.seed)
        self.sizes = [len(rows) for rows in owned]
        self.clients = {
            number: Client(number, train[rows].on(world.device), len(rows))
            for number, rows in enumerate(owned)
            if host(number, world.size) == world.rank
        }
        self.model = task.model().to(world.device)
        self.training = LocalTraining(self.model, task.loss, options.lr, options.epochs, options.batch, options.seed)
        self.values = self.training.flat.values_np.copy()
        self.aggregation: Aggregation = PlainSum(world.comm)
        if options.secure:
            self.aggregation = SecureSum(world.comm, threshold(options))
        self.samples = 0
        self.own_loss = 0.0

    def round(self, number: int) -> tuple[float, Round]:
        """Carry out one round. Collective.

        Returns:
            The loss before the round, over the samples of all clients that take part; and these clients.
        """
        options = self.options
        taking_part = participants(number, options.clients, options.per_round, options.seed)
        of = Round(taking_part, survivors(number, taking_part, options.lost, options.seed))
        self.hand_out()
        contributions, losses = {}, np.zeros(2)
        with self.world.compute("clients"):
            for client in taking_part:
                if client in self.clients:
                    contributions[client], loss = self.training.contribution(self.clients[client], self.values, number)
                    losses += loss * self.sizes[client], self.sizes[client]
        all_finite = all(np.isfinite(vector).all() for vector in contributions.values())
        self.own_loss = float(losses[0]) if all_finite else nan
        left = {client: vector for client, vector in contributions.items() if client in of.left}
        with self.world.communicate("secure sum" if options.secure else "sum"):
            total = self.aggregation.total(left, of, len(self.values) + 1)
        if total is not None:
            self.values = averaged(self.values, total, options.server_lr)
        self.samples += options.epochs * sum(self.sizes[client] for client in taking_part)
        with self.world.comm.waiting("sum of losses", -1):
            self.world.control.Allreduce(MPI.IN_PLACE, losses)
        return float(losses[0] / losses[1]), of

    def hand_out(self) -> None:
        """Send the server's parameters to all hosts, and into their models. Collective."""
        with self.world.communicate("broadcast"):
            run(BROADCAST, self.world.comm, self.values)
        self.training.flat.values_np[:] = self.values
        self.training.flat.values_from_host()


def check(options: FederatedOptions) -> None:
    """Refuse incompatible options.

    Raises:
        UsageError: with options that would fit.
    """
    task = tasks.of(options)
    if options.per_round > options.clients:
        raise UsageError(f"--per-round {options.per_round}: there are {options.clients} clients; give as many or fewer")
    if options.threshold and not options.secure:
        raise UsageError(f"--threshold {options.threshold} is for --secure: give both, or neither")
    if options.secure and 1 in (options.per_round, options.threshold):
        option = "--per-round" if options.per_round == 1 else "--threshold"
        raise UsageError(f"{option} 1: with --secure the sum of one client would be its vector; give 2 or more")
    if options.threshold and options.threshold > options.per_round:
        raise UsageError(
            f"--threshold {options.threshold}: a round has {options.per_round} clients; give as many or fewer"
        )
    tasks.check_classes(task, options.concentration)


def threshold(options: FederatedOptions) -> int:
    """Return the number of clients that must remain for a secure sum."""
    return options.threshold or options.per_round // 2 + 1


def train(scenario: str, options: FederatedOptions) -> Summary | None:
    """Train all rounds, evaluate, and write the record; return the summary on rank 0, None elsewhere."""
    check(options)
    task = tasks.of(options)
    with World.start(options) as world:
        recorder = Recorder(world, scenario, options)
        splits = task.data(options.seed)
        federation = Federation(world, options, task, splits.train)
        loss = 0.0
        recorder.start()
        for number in progress(world.steps(options.steps), options.steps, world.rank):
            samples = federation.samples
            loss, of = federation.round(number)
            used = federation.samples - samples
            recorder.watch(number, federation.own_loss)
            recorder.log(step=number, wall_s=recorder.elapsed_s, loss=loss, samples=used, clients=len(of.left))
        federation.hand_out()
        recorder.stop()
        mean_of_statistics(federation.model, world)
        return recorder.finish(
            steps=options.steps,
            samples=federation.samples,
            final_loss=loss,
            test_metrics=judged_together(federation.model, splits.test, world, task),
            params_sha256=sha256(federation.model),
        )
