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
# # Lab 17 · ZeRO, training in parts
#
# Every rank keeps a part of the parameters and of what the optimizer remembers, and the training is that of one rank.
# You write both halves of an all-reduce, an optimizer in parts, and a step that gathers one layer at a time.
#
# The task and what is judged are in `README.md`. Here you try the idea out, first in one process, then on
# real ranks. The code itself goes into `zero.py`, beside this notebook.

# %%
# %load_ext farandole
import numpy as np

# %% [markdown]
# ## 1 An optimizer in parts
#
# Momentum moves each parameter by itself. So three ranks with two parameters each do what one does with six:

# %%
parameters, velocity, gradient = np.arange(6.0), np.full(6, 0.5), np.array([1, -1, 2, -2, 0, 3])


def moved(parameters, velocity, gradient):
    velocity = 0.9 * velocity + gradient
    return parameters - 0.1 * velocity, velocity


whole, _ = moved(parameters, velocity, gradient)
parts = [
    moved(*part)[0] for part in zip(*(np.split(each, 3) for each in (parameters, velocity, gradient)), strict=True)
]
print(whole.round(3).tolist())
print(np.concatenate(parts).round(3).tolist())

# %% [markdown]
# What does each rank need for its part? Which numbers need never leave the rank?
#
# ## 2 A view keeps everything

# %%
everything = np.zeros(6000)
view, copy = everything[:2000], everything[:2000].copy()
print("the view's own bytes:", view.nbytes, " what it keeps alive:", view.base.nbytes)
print("the copy keeps", copy.nbytes)

# %% [markdown]
# ## 3 How much is sent
#
# A vector of n numbers in P parts. A ring's reduce-scatter has P − 1 steps of one part, an all-gather as many:

# %%
n, P = 1200, 4
half = (P - 1) * n // P * 8
print(f"one half {half:,} bytes, an all-reduce {2 * half:,}")
print(f"a layer that is gathered twice and reduced once {3 * half:,}")

# %% [markdown]
# ## 4 Now write it
#
# Complete `zero.py`, then run it here on 4 ranks. Print whatever helps: the output comes in rank order.

# %% tags=["yours"]
# %%mpi -n 4
import numpy as np
from zero import all_gather, reduce_scatter

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
vector = np.arange(8.0) * (comm.rank + 1)
part = reduce_scatter(vector, comm)
whole = all_gather(part, comm)
print(f"rank {comm.rank}: part {part.tolist()} of {whole.tolist()}, {comm.bytes_sent} bytes sent")

# %% [markdown]
# The four vectors sum to 10 times 0 to 7. How many bytes should the two halves send?
#
# ## 5 Have it checked
#
# On 1, 2, 3, 4 and 7 ranks; it takes some ten seconds. The same in a terminal: `farandole lab check 17`.

# %% tags=["yours"]
# !farandole lab check 17

# %% [markdown]
# ## 6 What to try next
#
# 1. Count what a rank holds in `train_step` by hand, layer by layer. Where is the most?
# 2. Give `ShardedMomentum` Adam's two averages. What else does a rank have to know?
# 3. Compare with the project's implementation: `reference/farandole/sharded/unit.py`. Where is your `train_step`?
