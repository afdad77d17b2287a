"""Ray: the synchronous parameter server of its documentation (example "Parameter Server").

    python -m farandole_tools.bench.ps_peers.ray_server WORKERS ELEMENTS ROUNDS FOLDER

The server is an actor whose ``apply_gradients`` takes all workers' gradients and returns the
parameters; the workers are actors, and between actors arrays go through the object store in shared
memory. As there, a worker copies the parameters into its own. The server sums the gradients one
by one where the example stacks them first, which is in Ray's favour. A round is timed by the driver,
which waits for nothing but its end.

FOLDER is Ray's for logs and sockets; nothing is written elsewhere.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

import numpy as np
import ray

from farandole_tools.bench import ps_task
from farandole_tools.bench.ps_peers.launching import object_store_bytes
from farandole_tools.bench.ps_task import Floats

TIMEOUT_S = 60.0


class Server:
    """Holds the parameters."""

    def __init__(self, elements: int) -> None:
        self.parameters = np.zeros(elements, dtype=np.float32)
        self.total = np.zeros_like(self.parameters)

    def apply_gradients(self, *gradients: Floats) -> Floats:
        np.copyto(self.total, gradients[0])
        for gradient in gradients[1:]:
            self.total += gradient
        ps_task.apply_sum(self.parameters, self.total, len(gradients))
        return self.parameters


class Worker:
    """Holds a gradient and a copy of the parameters; counted from 1."""

    def __init__(self, number: int, elements: int) -> None:
        self.gradient = ps_task.gradient(number, elements)
        self.parameters = np.zeros(elements, dtype=np.float32)

    def compute_gradient(self) -> Floats:
        return self.gradient

    def set_parameters(self, parameters: Floats) -> None:
        np.copyto(self.parameters, parameters)

    def check(self, workers: int, rounds: int, every: int) -> None:
        ps_task.check(self.parameters, workers, rounds, every)


def measure(count: int, elements: int, rounds: int) -> list[float]:
    """Measure the seconds of each round with `count` workers."""
    server: Any = ray.remote(Server).remote(elements)
    worker_actor: Any = ray.remote(Worker)
    workers = [worker_actor.remote(number, elements) for number in range(1, count + 1)]

    def check(done: int, every: int) -> None:
        ray.get([worker.check.remote(count, done, every) for worker in workers], timeout=TIMEOUT_S)

    check(0, every=1)  # returns when all actors are there
    seconds = []
    for done in range(1, rounds + 1):
        start = time.perf_counter()
        parameters = server.apply_gradients.remote(*[worker.compute_gradient.remote() for worker in workers])
        ray.get([worker.set_parameters.remote(parameters) for worker in workers], timeout=TIMEOUT_S)
        seconds.append(time.perf_counter() - start)
        check(done, ps_task.SAMPLE)
    check(rounds, every=1)
    return seconds


def main() -> None:
    workers, elements, rounds = map(int, sys.argv[1:4])
    ray.init(
        address="local",
        num_cpus=workers + 1,
        object_store_memory=object_store_bytes(workers, elements),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=sys.argv[4],
    )
    seconds = measure(workers, elements, rounds)
    ray.shutdown()
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
