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
# # Lab 15 · Predict, then measure
#
# How long will a step take, on how many ranks, with which method? You predict it from two numbers of the network and a
# sample of one rank's computing times, and your prediction is compared with the measurement.
#
# The task and what is judged are in `README.md`. Here you try the ideas out. The code itself goes into
# `predict.py`, beside this notebook.

# %%
# %load_ext farandole

# %% [markdown]
# ## 1 The slowest of many
#
# A rank usually needs 14 ms for a step. In one step of six it needs 50. No rank is slow for long:

# %%
import random

samples = [14, 14, 50, 14, 14, 14]
dice = random.Random(0)
for ranks in (1, 2, 4, 16, 64):
    steps = [max(dice.choices(samples, k=ranks)) for _ in range(10_000)]
    print(f"{ranks:2} ranks: a step takes {sum(steps) / len(steps):4.1f} ms")

# %% [markdown]
# The mean of one rank is 20 ms. With 16 ranks nearly every step has a slow rank, and takes nearly 50. You can compute
# these numbers, without any dice: with which probability are *all* ranks fast?
#
# ## 2 Communicating less often
#
# Now let four ranks wait for one another only after every H steps. They wait for the rank that is slowest in H steps
# together:

# %%
for every in (1, 2, 4, 8, 32):
    rounds = [max(sum(dice.choices(samples, k=every)) for _ in range(4)) for _ in range(5_000)]
    print(f"every {every:2} steps: a step takes {sum(rounds) / len(rounds) / every:4.1f} ms")

# %% [markdown]
# It falls towards the mean of 20 ms: slow and fast steps of a rank even out. And H steps share the cost of one
# communication.
#
# ## 3 Predict
#
# A message takes 5 ms, and 0.1 µs for each of its bytes. Four ranks have a gradient of 200,000 bytes. Fill in the empty
# cells before you go on:
#
# | | messages one after the other | bytes one after the other | seconds |
# |---|---|---|---|
# | one message of 200,000 bytes | 1 | 200,000 | 0.025 |
# | a ring all-reduce of four ranks | ? | ? | ? |
# | a push and a pull of four workers at one server | ? | ? | ? |
#
# (The ring: 6 messages of 50,000 bytes, 300,000 bytes, 0.06 s. The server: 8 messages, 1,600,000 bytes, 0.2 s.)
#
# ## 4 Now write it, and measure
#
# Complete `predict.py`, then run it here on four real ranks, over links that are slow by sleeping. First `measure`
# them; you know what should come out. Then each rank predicts a ring all-reduce, and takes part in one.

# %% tags=["yours"]
# %%mpi -n 4
import time

import numpy as np
from predict import all_reduce_seconds, measure

from farandole.collectives.executor import run
from farandole.collectives.ring import RING
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.slow_link import SlowLink

comm = LabCommunicator.world()
comm.link = SlowLink(alpha=5e-3, beta=1e-7)
alpha, beta = comm.everybodys(np.array(measure(comm)))[0]  # rank 0's
vector = np.ones(25_000)
predicted = all_reduce_seconds("ring", comm.size, vector.nbytes, alpha, beta)
comm.barrier()
start = time.perf_counter()
run(RING, comm, vector)
took = time.perf_counter() - start
links = f"{1e3 * alpha:.1f} ms and {1e6 * beta:.3f} µs per byte"
print(f"rank {comm.rank}: {links}; predicted {1e3 * predicted:.0f} ms, took {1e3 * took:.0f} ms")

# %% [markdown]
# Does the prediction stay right for a vector of 25 elements, and for one of 250,000? With `-n 2`?
#
# ## 5 Have it checked
#
# Four of the six checks need one process, the others two and four. The same in a terminal: `farandole lab check 15`.

# %% tags=["yours"]
# !farandole lab check 15

# %% [markdown]
# ## 6 What to try next
#
# 1. Draw 1,000 steps from the samples instead of computing the expected slowest. How far is the mean of so few from
#    the right one?
# 2. In 4, let each rank sleep before the all-reduce, each for a different time. Which rank's time does `step_seconds`
#    need?
# 3. Without the line that sets `comm.link` messages go through this machine's memory. Which α and β does it have, and
#    are they the same when you measure again?
# 4. The project's implementation: `reference/farandole/collectives/costs.py` computes what your `all_reduce_seconds`
#    does from the schedules' steps. What does it need no formula for?
