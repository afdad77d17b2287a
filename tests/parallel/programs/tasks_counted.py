"""Downpour's tasks, whose "gradient" counts samples: the trained table says how often each sample was computed.

Has the options of the scenario downpour. The last rank is slow. Rank 0's answer: the number of training samples, and
the different counts that they have at the end.
"""

import json
import sys
import time

import numpy as np

from farandole.parameter_server import replicas
from farandole.parameter_server.core.update_rules import Add
from farandole.parameter_server.task_replica import TaskReplica
from farandole.runtime.command_line import parse
from farandole.scenarios import load


class Counting(TaskReplica):
    """Its model is a vector of zeros; the first entries are the samples'."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.flat.values_np[:] = 0

    def _iterate(self):
        number = self._to_do.pop()
        rows = self.batches.rows(number)
        self._sum[rows] += 1
        self._oldest_read = self._read
        time.sleep(0.1 if self.world.rank == self.world.size - 1 else 0.02)
        return 0.0, len(rows)


def told(world, replica, material, options):
    if world.control.rank == 0:
        counts = np.unique(replica.flat.values_np[: len(material.shard)]).tolist()
        print(json.dumps({"samples": len(material.shard), "counts": counts}))


replicas.TaskReplica, replicas.Adagrad, replicas._judged = Counting, lambda values, lr: Add(), told
module = load("downpour")
module.main(parse(module.Config, [*sys.argv[1:]]))
