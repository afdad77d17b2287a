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
# # Lab 19 · Expert dispatch
#
# A mixture of experts: many networks, of which each token is computed by one. The experts are divided over the ranks,
# and the tokens travel. You write the router, the capacity, the all-to-all, and the whole layer.
#
# The task and what is judged are in `README.md`. Here you try the idea out, first in one process, then on
# real ranks. The code itself goes into `expert_dispatch.py`, beside this notebook.

# %%
# %load_ext farandole
import numpy as np

# %% [markdown]
# ## 1 Which token goes where
#
# Six tokens, four experts. Each token goes to the expert with its largest score, and that expert's answer is multiplied
# by the softmax probability:

# %%
scores = np.random.default_rng(3).normal(size=(6, 4)).round(1)
odds = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
choice = odds.argmax(axis=1)
for token in range(6):
    print(f"token {token}: {scores[token]} → expert {choice[token]}, weight {odds[token, choice[token]]:.2f}")

# %% [markdown]
# Token 1 has two equal scores and goes to the lower number. How many tokens has each expert? With a capacity of 2,
# which tokens are dropped?
#
# ## 2 What every rank has to know
#
# Tokens 0 to 2 are on rank 0, tokens 3 to 5 on rank 1. Each rank counts:

# %%
counts = np.stack([np.bincount(part, minlength=4) for part in np.split(choice, 2)])
print(counts)
print("of lower ranks, before rank 0 and before rank 1:")
print(counts.cumsum(axis=0) - counts)

# %% [markdown]
# Experts 0 and 1 are on rank 0, experts 2 and 3 on rank 1. How many tokens does each rank send to each? If an expert
# accepts only 2, how many of these counts are left? Both follow from the counts alone, so every rank knows them.
#
# ## 3 Now write it
#
# Complete `expert_dispatch.py`, then run it here on 4 ranks. Print whatever helps: the output comes in rank order.

# %% tags=["yours"]
# %%mpi -n 4
import numpy as np
from expert_dispatch import mixture

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
noise = np.random.default_rng(0)  # the same on all ranks
x, router = noise.normal(size=(4, 8, 6)), noise.normal(size=(6, 4))
y = mixture(x[comm.rank], router, [lambda rows: rows + 100 * comm.rank], 9, comm)
odds = np.exp(x[comm.rank] @ router)
odds /= odds.sum(axis=1, keepdims=True)
came = (y / odds.max(axis=1, keepdims=True) - x[comm.rank]).mean(axis=1)
print(f"rank {comm.rank}: computed on rank {(came / 100).round(2).tolist()}, {comm.bytes_sent} bytes sent")

# %% [markdown]
# Each token should have been computed on the rank of its expert: `odds.argmax(axis=1)`. What does a dropped token show?
# A row has 6 · 8 bytes. How many rows has each rank sent, and how many bytes are the counts?
#
# ## 4 Have it checked
#
# On 1, 2, 3, 4 and 7 ranks; it takes some ten seconds. The same in a terminal: `farandole lab check 19`.

# %% tags=["yours"]
# !farandole lab check 19

# %% [markdown]
# ## 5 What to try next
#
# 1. Print the rows that each rank gets in section 3. Which rank do the others wait for?
# 2. Give every token its two best experts. In which order should an expert accept first and second choices?
# 3. Compare with the project's implementation: `reference/farandole/model_parallel/expert/plan.py` has what follows
#    from the counts. Where is your `before`?
