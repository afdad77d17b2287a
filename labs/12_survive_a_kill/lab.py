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
# A worker is killed in the middle of a training, and the others continue: no step is lost, none is done twice, and no
# sample is left out. You write the recovery, such that it survives a death at any moment, also one during the recovery.
#
# The task and what is judged are in `README.md`. Here you see which errors the others get when one dies.
# The code itself goes into `survive_a_kill.py`, beside this notebook.

# %%
# %load_ext farandole
# %load_ext autoreload
# %autoreload 2
import numpy as np

from farandole_tools.lab.simulated_ranks import Death, SimulatedRanks, Stuck
from farandole_tools.lab.small_training import Worker
from farandole_tools.lab.ulfm_communicator import PeerLost

# %% [markdown]
# ## 1 One rank dies, and one detects it
#
# Four simulated ranks sum up their numbers again and again. `Death(2, call=1)` means: rank 2 dies before its second
# call. Which of the others detect it?


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
# The ranks deadlock. Rank 3 has detected the death and left the call; 0 and 1 wait for a rank that is alive, but has
# left. ULFM guarantees no more than that. What does rank 3 have to do before it leaves?


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
# Now rank 2 dies within its second call, after it has contributed its number, and only rank 0 gets the sum.

# %%
play(sums_and_revoke, Death(2, call=1, served=frozenset({0})))

# %% [markdown]
# Rank 0 is interrupted one call later than 1 and 3. If each call is a step of a training, 0 has made an update that the
# others have not made, and they cannot make it any more: the number of rank 2 is lost. Which rank's state has to count?
#
# ## 3 The remaining ranks
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
# This is one worker's training, alone. The gradient stays until the update; it also contains what was computed in an
# interrupted step.

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
# The second time other coordinates have been dropped, and the sum of both is in the gradient. What do you have to store
# before `compute`, and to restore before you call it again?
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
# (0 has taken the most steps, so 2 receives its state, and both take step 8. The random numbers of 2 go on, too: its
# gradient of step 7 is in the sum. If no worker had got the sum, both would take step 7 again, with its random
# numbers.)
#
# What if 0 dies while it sends the state? Then only 2 is left. It takes step 7 again, with the whole batch, and what 0
# had computed is lost.
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
# Some hundred simulated deaths, and three real ones. The same in a terminal: `farandole lab check 12`.

# %% tags=["yours"]
# !farandole lab check 12

# %% [markdown]
# ## 8 What to try next
#
# 1. Take the `revoke` out of your `recover`, and run section 6 again. Which rank waits in which call?
# 2. Let every rank detect the death: `SimulatedRanks(4, deaths, all_notice=True)`. Does it work without `revoke` then?
#    Would you rely on it?
# 3. How many calls does your recovery make, from the death to the next step? How many of them send more than a number?
# 4. The project's implementation is `reference/farandole/recovery/membership.py`. Why does it split its communicators
#    before all agree, and not after?
