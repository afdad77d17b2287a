"""Lets MPI do it."""

from __future__ import annotations

FAILS = {
    "messages": "is everything sent through comm?",
    "bytes": "is everything sent through comm?",
    "folding": "is everything sent through comm?",
}


def halving_doubling_all_reduce(vector, comm):
    comm.mpi_all_reduce(vector)
