"""torch.distributed.rpc: the batch parameter server of its documentation.

    mpirun -n 4 python -m farandole_tools.bench.ps_peers.torch_rpc ELEMENTS ROUNDS

Rank 0 owns the parameters. A worker's push and pull are one ``rpc_sync`` whose answer the server
withholds until all have pushed (``rpc.functions.async_execution``; PyTorch's tutorial "Implementing
Batch RPC Processing Using Asynchronous Executions"). The transport is TensorPipe's own choice, and
answers arrive in fresh memory of the worker. MPI gives the common start and is silent while a round runs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading

import torch
from mpi4py import MPI
from torch import Tensor
from torch.distributed import rpc
from torch.futures import Future

from farandole.runtime.timing import slowest_s
from farandole_tools.bench import ps_task

TIMEOUT_S = 60.0
SERVER = 0


def name_of(rank: int) -> str:
    """Return a rank's name for RPC."""
    return f"rank{rank}"


class BatchServer:
    """Collects a gradient from each of `workers`, applies their mean, and answers all at once."""

    def __init__(self, workers: int, elements: int) -> None:
        self.workers = workers
        self.parameters = torch.zeros(elements)
        self.total = torch.zeros(elements)
        self.pushed = 0
        self.answer: Future[Tensor] = Future()
        self.lock = threading.Lock()  # requests arrive in several threads

    def push(self, gradient: Tensor) -> Future[Tensor]:
        """Add `gradient`; the future holds the parameters once all have pushed."""
        with self.lock:
            answer = self.answer
            if self.pushed == 0:
                self.total.copy_(gradient)
            else:
                self.total += gradient
            self.pushed += 1
            if self.pushed == self.workers:
                ps_task.apply_sum(self.parameters.numpy(), self.total.numpy(), self.workers)
                self.pushed, self.answer = 0, Future()
                answer.set_result(self.parameters)
        return answer


server: BatchServer  # in rank 0's process; what is called remotely finds it here


@rpc.functions.async_execution  # type: ignore[untyped-decorator]
def push_and_pull(gradient: Tensor) -> Future[Tensor]:
    """Called by the workers, runs in the server's process."""
    return server.push(gradient)


def work(workers: MPI.Intracomm, elements: int, rounds: int) -> list[float]:
    """Take all rounds of a worker; return the seconds of each."""
    gradient = torch.from_numpy(ps_task.gradient(workers.rank + 1, elements))
    pulled = torch.zeros(elements)

    def one_round() -> None:
        nonlocal pulled
        pulled = rpc.rpc_sync(name_of(SERVER), push_and_pull, (gradient,))

    seconds = []
    for done in range(1, rounds + 1):
        seconds.append(slowest_s(workers, one_round))
        ps_task.check(pulled.numpy(), workers.size, done, every=ps_task.SAMPLE)
    ps_task.check(pulled.numpy(), workers.size, rounds)
    return seconds


def main() -> None:
    elements, rounds = map(int, sys.argv[1:])
    os.environ.setdefault("TP_SOCKET_IFNAME", "lo")  # a host name that resolves to nothing would fail
    mpi = MPI.COMM_WORLD
    group = MPI.Intracomm(mpi.Split(color=int(mpi.rank != SERVER)))
    if mpi.rank == SERVER:
        global server
        server = BatchServer(mpi.size - 1, elements)
    with tempfile.TemporaryDirectory() as folder:
        meeting_place = mpi.bcast(f"file://{folder}/meeting", SERVER)
        options = rpc.TensorPipeRpcBackendOptions(init_method=meeting_place, rpc_timeout=TIMEOUT_S)
        rpc.init_rpc(name_of(mpi.rank), rank=mpi.rank, world_size=mpi.size, rpc_backend_options=options)
        if mpi.rank != SERVER:
            seconds = work(group, elements, rounds)
            if group.rank == 0:
                print(json.dumps(seconds))
        rpc.shutdown()  # here the server waits, without polling, until the workers are through
        mpi.Barrier()  # rank 0's folder goes when all have done with it


if __name__ == "__main__":
    main()
