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
# # Lab 18 · Ring attention
#
# A long text is divided over the ranks. Each keeps its queries, and the keys and values go around in a ring. You write
# attention from blocks, and the ring.
#
# The task and what is judged are in `README.md`. Here you try the idea out, first in one process, then on
# real ranks. The code itself goes into `ring_attention.py`, beside this notebook.

# %%
# %load_ext farandole
import numpy as np

# %% [markdown]
# ## 1 A softmax from two blocks
#
# One query has these scores with six keys, and each key has a value of one number. Its answer:

# %%
scores, values = np.array([1.0, 3.0, 2.0, 0.0, 4.0, 1.0]), np.array([10, 20, 30, 40, 50, 60])
print(f"{np.exp(scores) @ values / np.exp(scores).sum():.6f}")

# %% [markdown]
# Now the keys come in two blocks of three. Each block has an answer. Which mean of the two is the whole?

# %%
answers = [np.exp(s) @ v / np.exp(s).sum() for s, v in zip(np.split(scores, 2), np.split(values, 2), strict=True)]
print([f"{answer:.6f}" for answer in answers], f"their plain mean: {np.mean(answers):.6f}")
sums = [np.exp(s).sum() for s in np.split(scores, 2)]
print(f"weighted by the sums: {np.dot(sums, answers) / sum(sums):.6f}")

# %% [markdown]
# So an answer and a sum are all that has to be kept of a block. But with scores of 1,000 there is no sum:

# %%
with np.errstate(over="ignore"):
    print(np.exp(1000.0))
large = 1000 + scores
L = np.log(np.exp(large - large.max()).sum()) + large.max()
print(f"its logarithm: {L:.6f}")

# %% [markdown]
# What are the weights of the two blocks, from the logarithms alone? (exp of a difference.)
#
# ## 2 Which query sees which keys
#
# Two ranks with three positions each. A query sees the keys up to its own position. In terms of the position of the
# first query minus that of the first key, `ahead`:

# %%
for name, ahead in (("the own block", 0), ("the block before", 3), ("the block after", -3)):
    print(f"{name}, ahead = {ahead}:", (np.arange(3) <= np.arange(3)[:, None] + ahead).astype(int).tolist())

# %% [markdown]
# What should `attend` return for the block after?
#
# ## 3 Now write it
#
# Complete `ring_attention.py`, then run it here on 4 ranks. Print whatever helps: the output comes in rank order.

# %% tags=["yours"]
# %%mpi -n 4
import numpy as np
from ring_attention import attend, ring_attention

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
query, key, value = np.random.default_rng(0).normal(size=(3, 4 * 5, 8))  # the same on all ranks
own = slice(5 * comm.rank, 5 * (comm.rank + 1))
answer = ring_attention(query[own], key[own], value[own], comm)
whole, _ = attend(query, key, value, 0)
print(f"rank {comm.rank}: as on one rank: {np.allclose(answer, whole[own])}, {comm.bytes_sent} bytes sent")

# %% [markdown]
# A block is 2 · 5 · 8 numbers of 8 bytes. How many bytes should three blocks be?
#
# ## 4 Have it checked
#
# On 1, 2, 3, 4 and 7 ranks; it takes some ten seconds. The same in a terminal: `farandole lab check 18`.

# %% tags=["yours"]
# !farandole lab check 18

# %% [markdown]
# ## 5 What to try next
#
# 1. Count the pairs of a query and a key that each rank computes. How long do the others wait for the last one?
# 2. Leave out `attend` for blocks that no query sees. Does the ring become faster? Why not?
# 3. Compare with the project's implementation: `reference/farandole/model_parallel/context/blockwise.py`. Where is your
#    `join`?
