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
# # Lab 12 · Survive a kill
#
# A worker is killed in the middle of a training, and the others go on: no step is lost, none is done twice, and no
# sample is forgotten. You write the recovery, such that it survives a death at any moment, also one of its own.
#
# The task, what is judged and some hints are in `README.md`. Here you see what the others are told when one dies. The
# code itself goes into `survive_a_kill.py`, beside this notebook.

# %%
# %load_ext farandole
# %load_ext autoreload
# %autoreload 2
import numpy as np

from farandole_tools.lab.simulated_ranks import Death, SimulatedRanks, Stuck
from farandole_tools.lab.small_training import Worker
from farandole_tools.lab.ulfm_communicator import PeerLost

# %% [markdown]
# ## 1 One dies, and one notices
#
# Four ranks, on paper, sum up their numbers again and again. `Death(2, call=1)` means: rank 2 dies before its second
# call. Who of the others learns of it?


# %%
def play(program, *deaths, ranks=4):
    said = {}

    def one(comm):
        said[comm.rank] = "says nothing more"
        said[comm.rank] = program(comm)

    try:
        SimulatedRanks(ranks, deaths).run(one)
    except Stuck as error:
        print(error)
    for rank, text in sorted(said.items()):
        print(f"rank {rank}: {text}")


def sums(comm):
    array = np.array([1.0])
    for call in range(3):
        try:
            comm.all_reduce(array)
        except PeerLost as error:
            return f"in call {call}: {error}"
    return array


play(sums, Death(2, call=1))

# %% [markdown]
# Nothing goes on. Rank 3 has noticed and left; 0 and 1 wait for somebody who lives, but is not there any more. ULFM
# promises no more than that. What has rank 3 to do before it leaves?


# %%
def sums_and_revoke(comm):
    said = sums(comm)
    if isinstance(said, str):
        comm.revoke()
    return said


play(sums_and_revoke, Death(2, call=1))

# %% [markdown]
# ## 2 Half a call
#
# Now rank 2 dies within its second call, after it has given its number, and only rank 0 gets the sum.

# %%
play(sums_and_revoke, Death(2, call=1, served=frozenset({0})))

# %% [markdown]
# Rank 0 is interrupted one call later than 1 and 3. If each call is a step of a training, 0 has made an update that the
# others have not made, and it can never be asked of them: the number of rank 2 is gone. Who has to follow whom?
#
# ## 3 Who is left
#
# `shrink` returns a communicator without the dead, `agree` the same answer to all. Look at the ranks.


# %%
def shrink(comm):
    said = sums_and_revoke(comm)
    agreed = comm.agree(not isinstance(said, str))
    new = comm.shrink()
    return f"agreed: {agreed}; now rank {new.rank} of {new.size}: {new.all_gather(comm.rank)}"


play(shrink, Death(2, call=1))

# %% [markdown]
# ## 4 The training
#
# This is one worker's training, alone. The gradient stays until the update; what has been computed in vain is in it.

# %%
worker = Worker(number=3, dropout=True)
for _ in range(2):
    worker.compute(worker.batch())
    print(f"step {worker.step}: samples {worker.batch()}, gradient {worker.gradient}")
    worker.update()
worker.compute(worker.batch())
once = worker.gradient.copy()
worker.compute(worker.batch())
print(f"step {worker.step}: once {once}, twice {worker.gradient}")

# %% [markdown]
# The second time other coordinates have been dropped, and the sum of both is in the gradient. What do you have to write
# down before `compute`, and to undo before you call it again?
#
# ## 5 On paper
#
# Three workers are at step 7. Rank 1 dies within the all-reduce, and only rank 0 gets the sum.
#
# | | step, before | gets the state? | step, after | random numbers |
# |---|---|---|---|---|
# | 0 | 8 | ? | ? | go on |
# | 2 | 7 | ? | ? | ? |
#
# (0 has come furthest, so 2 gets the state from it, and both take step 8. The random numbers of 2 go on, too: its
# gradient of step 7 is in the sum. If nobody had got the sum, both would take step 7 again, with its random numbers.)
#
# What if 0 dies while it sends the state? Then 2 is the only one left, takes step 7 again, with all of the batch, and
# nobody will ever know what 0 had computed.
#
# ## 6 Now write it
#
# Complete `survive_a_kill.py`. Here rank 2 dies within its third call, and only rank 0 gets the result, if there is one
# to get; then rank 3 dies before its seventh. The notebook reads the file anew whenever you change it.

# %% tags=["yours"]
from survive_a_kill import train


def training(comm):
    worker = Worker(comm.rank)
    train(comm, worker, steps=4)
    return f"{worker.step} steps, {worker.parameters}"


play(training, Death(2, call=2, served=frozenset({0})), Death(3, call=6))

# %% [markdown]
# Ranks 0 and 1 should have done 4 steps, with the same parameters. One worker alone gets these:

# %%
alone = Worker(0)
for _ in range(4):
    alone.compute(alone.batch())
    alone.update()
print(alone.parameters)

# %% [markdown]
# ## 7 Have it checked
#
# Some hundred deaths on paper, and three real ones. The same in a terminal: `farandole lab check 12`.

# %% tags=["yours"]
# !farandole lab check 12

# %% [markdown]
# ## 8 What to try next
#
# 1. Take the `revoke` out of your `recover`, and run section 6 again. Who waits where?
# 2. Let every rank notice: `SimulatedRanks(4, deaths, all_notice=True)`. Does it work without `revoke` then? Would you
#    rely on it?
# 3. How many calls does your recovery make, from the death to the next step? How many of them send more than a number?
# 4. The project's own is `reference/farandole/recovery/membership.py`. Why does it split its communicators before all
#    agree, and not after?
