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
# # Lab 14 · Gossip and mixing
#
# Ranks that communicate only with their neighbours reach the mean of all ranks, if they mix with the right weights. You
# write the weights, the measure of how fast they converge, and the messages.
#
# The task and what is judged are in `README.md`. Here you predict the result, measure it, and try it out,
# first in one process, then on real ranks. The code itself goes into `gossip_mixing.py`, beside this notebook.

# %%
# %load_ext farandole
import matplotlib.pyplot as plt
import numpy as np

from farandole.decentralised.mixing import consensus_error, mixing_matrix, spectral_gap
from farandole.decentralised.topologies import topology
from farandole.report.predictions import predict

plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 What weights do
#
# Four ranks in a row have the numbers 0, 0, 0 and 12. Each takes the mean of itself and those beside it, again and
# again.
#
# **Predict:** where will all end up? The mean is 3.

# %%
my_end = predict("the number at which all end up", ...)

# %%
numbers = np.array([0.0, 0.0, 0.0, 12.0])
by_own_degree = np.array(
    [[1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0, 1 / 3, 1 / 3, 1 / 3], [0, 0, 1 / 2, 1 / 2]]
)
for number in range(60):
    if number in (0, 1, 2, 5, 20, 59):
        print(f"after {number:2} rounds:", *(f"{each:6.2f}" for each in numbers), f"   mean {numbers.mean():.2f}")
    numbers = by_own_degree @ numbers
my_end.compare(round(float(numbers[0]), 2))

# %% [markdown]
# Not at 3. The ranks at the ends send to fewer ranks, so they count for less. The columns of the matrix show by how
# much. In a training it is their *data* that count for less.
#
# ## 2 How fast
#
# The project's own weights, on 16 ranks, and how far apart random vectors are after each round:

# %%
figure, axes = plt.subplots(figsize=(8, 3.6))
for name in ("ring", "torus", "exponential", "complete"):
    weights = mixing_matrix(topology(name, 16))
    vectors = np.random.default_rng(0).normal(size=(16, 1000))
    apart = []
    for _ in range(30):
        apart.append(consensus_error(vectors))
        vectors = weights @ vectors
    axes.semilogy(np.maximum(apart, 1e-8), label=f"{name}, gap {spectral_gap(weights):.2f}")
axes.set_xlabel("rounds")
axes.set_ylabel("consensus error")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# A straight line in this picture falls by the factor 1 − gap in each round. **Now predict:** how many rounds does the
# ring take until the copies are a hundred times nearer, and how many messages has each rank sent by then? And the
# complete graph?
#
# (The ring's gap is 0.05: ln 100 / 0.05 is about 90 rounds, of 2 messages each. The complete graph: one round, and 15
# messages.)
#
# ## 3 Now write it
#
# Begin with `metropolis` and look at what it makes of a star: rank 0 has three neighbours, the others one. What should
# be on the diagonal?

# %% tags=["yours"]
from gossip_mixing import metropolis

star = [{1, 2, 3}, {0}, {0}, {0}]
print(metropolis(star))

# %% [markdown]
# Then `mix`, on four real ranks. A `%%mpi` cell runs in fresh processes, which see nothing of this notebook. Each
# rank's vector is its number; what do you expect on rank 0, and how many messages does it send?

# %% tags=["yours"]
# %%mpi -n 4
import numpy as np
from gossip_mixing import mix

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
star = [{1, 2, 3}, {0}, {0}, {0}]
vector = np.full(3, float(comm.rank))
mix(vector, star, comm)
print(f"rank {comm.rank}: {vector}, {comm.messages_sent} message(s)")

# %% [markdown]
# ## 4 Have it checked
#
# The same in a terminal: `farandole lab check 14`.

# %% tags=["yours"]
# !farandole lab check 14

# %% [markdown]
# ## 5 What to try next
#
# 1. Put your weights into the first picture of notebook `22_decentralised`, for your own graph.
# 2. Let every rank mix twice in a step. When is that better than a graph with twice the neighbours?
# 3. Train with it: `farandole run dpsgd -n 4 --graph my_graph.txt` takes any graph, a line for each edge.
