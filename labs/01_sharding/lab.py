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
# # Lab 1 · Sharding
#
# Several ranks train one model, each on a share of the data. Together they should learn what one process with all the
# data would. Mistakes here give no error message: a few samples that no rank uses, some that two ranks use, a wrong
# mean, or one step too few on one rank, for which the others wait for ever. You write the four small functions on which
# it depends.
#
# The task and what is judged are in `README.md`. Here you try the ideas out. The code itself
# goes into `sharding.py`, beside this notebook.

# %%
# %load_ext farandole
import numpy as np

# %% [markdown]
# ## 1 Shares
#
# 10 samples, 4 ranks. Three ways to cut; which one lets all ranks finish at the same time, and loses
# nothing?

# %%
for name, shares in {
    "each N // K": [2, 2, 2, 2],
    "the rest to the last": [2, 2, 2, 4],
    "one more for the first N % K": [3, 3, 2, 2],
}.items():
    print(f"{name:30} together {sum(shares):2}, the slowest rank has {max(shares)}")

# %% [markdown]
# In 30 ranks the second way gives the last one up to 29 samples more than the others. All wait for it.
#
# ## 2 Steps
#
# 37 samples on 4 ranks make shares of 10, 9, 9 and 9. An epoch is to have 4 steps. With batches of $\lceil 9/4 \rceil =
# \lceil 10/4 \rceil = 3$ samples every rank seems to be busy:

# %%
for rank, share in enumerate([10, 9, 9, 9]):
    sizes = [min(3, share - begin) for begin in range(0, share, 3)]
    print(f"rank {rank}: {len(sizes)} batches, of {sizes}")

# %% [markdown]
# Rank 0 has one batch more than the others. After every batch all ranks exchange gradients, so in its
# fourth step rank 0 waits for partners that have none. What should the batches of 10 and of 9 samples in 4
# steps look like instead? (`np.array_split` cuts like that.)
#
# ## 3 The mean of means
#
# Two ranks, 3 samples and 1 sample. Each takes the mean over its own:

# %%
first, second = np.array([1.0, 1.0, 1.0]), np.array([5.0])
print("mean over all samples:  ", np.concatenate([first, second]).mean())
print("mean of the two means:  ", np.mean([first.mean(), second.mean()]))

# %% [markdown]
# Gradients are means over a batch, so the same happens to them. How must each one be weighted?
#
# ## 4 Now write it
#
# Complete `sharding.py`. This shows what it does, on four real ranks: each prints its own batches of an
# epoch of 10 samples in 2 steps.

# %% tags=["yours"]
# %%mpi -n 4
from sharding import batches, my_rows, shares

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
mine = batches(10, comm.rank, comm.size, steps=2, seed=0, epoch=0)
print(
    f"rank {comm.rank} has {shares(10, comm.size)[comm.rank]} of 10 samples,",
    f"rows {list(my_rows(10, comm.rank, comm.size))}, in batches {[batch.tolist() for batch in mine]}",
)

# %% [markdown]
# ## 5 Have it checked
#
# It takes a few seconds. The same in a terminal: `farandole lab check 1`.

# %% tags=["yours"]
# !farandole lab check 1

# %% [markdown]
# ## 6 What to try next
#
# 1. Shuffle all rows with the same seed on every rank, and cut afterwards. What does that change, and what
#    would every rank have to hold then?
# 2. Let one rank be three times as fast as the others. Which shares let all finish together? The project's
#    own answer is `proportional_shares` in `reference/farandole/data/shares.py`.
# 3. A run is saved in the middle of an epoch and goes on with 3 ranks instead of 4. What can you still
#    promise about "every sample once"?
