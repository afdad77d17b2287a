# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 7 · Stale synchronous
#
# Workers are never equally fast, and a worker that waits for the slowest is as slow as it. You write the rule by which
# a parameter server lets the fast ones run ahead, up to a bound, and the book-keeping that makes sure that no gradient
# is lost or counts twice meanwhile.
#
# The task and what is judged are in `README.md`. Here you try the idea out, first on paper, then on
# real ranks. The code itself goes into `stale_synchronous.py`, beside this notebook.

# %%
# %load_ext farandole

# %% [markdown]
# ## 1 On paper: which worker waits?
#
# `play` lets a few workers go through their iterations, one character per unit of time: the number of the
# iteration while it is being computed, a dot while the worker waits. You decide by `may_start`, which is told
# how many iterations the worker has completed, and how many the slowest has.
#
# Worker 0 is slow in its iteration 1, and worker 1 in its iteration 4. Here every worker waits for all others:


# %%
def play(may_start, iterations=8):
    needs = [[1, 3, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 3, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]]
    clocks, left, rows = [0, 0, 0], [0, 0, 0], ["", "", ""]
    while min(clocks) < iterations:
        slowest = min(clocks)
        for worker, clock in enumerate(clocks):
            if not left[worker] and clock < iterations and may_start(clock, slowest):
                left[worker] = needs[worker][clock]
        for worker, clock in enumerate(clocks):
            rows[worker] += str(clock) if left[worker] else "." if clock < iterations else ""
            if left[worker]:
                left[worker] -= 1
                clocks[worker] += not left[worker]
    for worker, row in enumerate(rows):
        print(f"worker {worker}: {row}")


play(lambda clock, slowest: clock == slowest)

# %% [markdown]
# Each delay costs 2 units, and each delays all three. Now a worker may start if it is at most 2 ahead of the slowest:

# %%
play(lambda clock, slowest: clock - slowest <= 2)

# %% [markdown]
# No worker waits, and worker 2 is not delayed at all. Try the bounds 1 and 0, and `< 0`. Then let one worker need 2
# units in *every* iteration: does a bound help against that?
#
# ## 2 When does a gradient count?
#
# Running ahead has a price: a worker that starts now reads parameters without the gradients that the slow ones have not
# finished. The bound limits this: a worker that begins iteration *c* reads every gradient of the iterations up to *c* −
# *s* − 1.
#
# A second rule is needed. Worker 0 has begun and finished iteration 0, worker 1 begins it only now. If worker 0's
# gradient is in the parameters already, the two do not begin with the same parameters, and with *s* = 0 this would not
# be mini-batch training. So a gradient of iteration *c* is *held* until every worker has begun iteration *c* − *s*.
# Follow three workers through their first events. Which gradients are held after each line, with *s* = 0, and with *s*
# = 1?
#
# | | held, *s* = 0 | held, *s* = 1 |
# |---|---|---|
# | worker 0 begins iteration 0, and pushes its gradient | ? | ? |
# | worker 1 begins iteration 0, and pushes its gradient | ? | ? |
# | worker 2 begins iteration 0 | ? | ? |
# | worker 0 begins iteration 1 | may it? | may it? |
#
# (With *s* = 0: one, two, none; and it may not, worker 2 has not finished. With *s* = 1 never any; and it may.)
#
# ## 3 Now write it
#
# Complete `stale_synchronous.py`, then run it here on real ranks. Rank 0 is the server and calls your object; ranks 1
# to 3 are workers, the last of them half as fast as the others. There is one parameter, and every gradient is 1: what a
# worker reads is the number of gradients that have been applied.

# %% tags=["yours"]
# %%mpi -n 4
import itertools

import numpy as np
from stale_synchronous import StaleSynchronous

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
workers, iterations, staleness = range(1, comm.size), 4, 1
number = np.zeros(1)  # a parameter or a gradient, of one element

if comm.rank == 0:
    policy = StaleSynchronous(workers, staleness)
    clocks, computing, applied = dict.fromkeys(workers, 0), set(), []
    arrivals = itertools.cycle([1, 2, 1, 2, 3])  # in this order, as far as they compute
    while clocks:
        for worker in clocks:
            if worker not in computing and policy.may_start(worker):
                comm.send(np.array([float(len(applied))]), worker)
                computing.add(worker)
                applied += policy.started(worker)
        assert computing, f"all workers wait for ever, at the clocks {clocks}"
        worker = next(worker for worker in arrivals if worker in computing)
        comm.receive(number, worker)
        computing.remove(worker)
        clocks[worker] += 1
        applied += policy.push(worker, clocks[worker] - 1)
        if clocks[worker] == iterations:
            del clocks[worker]
            applied += policy.leave(worker)
    print("server: applied", len(applied), "gradients, of iterations", *(clock for _, clock in applied))
else:
    read = []
    for _ in range(iterations):
        comm.receive(number, 0)
        read.append(int(number[0]))
        comm.send(np.ones(1), 0)
    print(f"worker {comm.rank}: read after", *read, "gradients")

# %% [markdown]
# All 12 gradients should be applied. With `staleness = 0` every worker should read after 0, 3, 6 and 9.
#
# ## 4 Have it checked
#
# Six of the seven checks need one process, the last one two and four. The same in a terminal:
# `farandole lab check 7`.

# %% tags=["yours"]
# !farandole lab check 7

# %% [markdown]
# ## 5 What to try next
#
# 1. With `staleness = 100` no worker ever waits. What do the workers read now?
# 2. Let worker 3 leave after its second iteration, and forget to tell your object. What happens?
# 3. A worker dies without a message, between two pushes. Which process calls `leave`? The project has a separate rank
#    for it: `reference/farandole/parameter_server/cleaning.py`.
# 4. Compare with the project's own: `reference/farandole/parameter_server/core/policies/ssp.py`. The same folder has
#    six other rules in the same form. Which of them could you now write?
