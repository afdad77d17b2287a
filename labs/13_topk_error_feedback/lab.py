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
# # Lab 13 · Top-k with error feedback
#
# Only the largest entries of a gradient are sent, and none of the others is lost. You write the selection, the memory,
# and the sum.
#
# The task and what is judged are in `README.md`. Here you predict the result, measure it, and try it out,
# first in one process, then on real ranks. The code itself goes into `topk_error_feedback.py`, beside this notebook.

# %%
# %load_ext farandole
import matplotlib.pyplot as plt
import numpy as np

from farandole.report.predictions import predict

plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 What is lost without memory
#
# Two directions: one steep, one flat. Of the gradient only the larger entry is sent.
#
# **Predict:** the minimum is at (0, 0), and we begin at (1, 1) with curvatures 1 and 0.05. How far from
# it are we after 300 steps?

# %%
my_distance = predict("distance from the minimum", ...)

# %%
CURVATURE = np.array([1.0, 0.05])


def descend(remember, steps=300, rate=0.5):
    point, owed, way = np.array([1.0, 1.0]), np.zeros(2), []
    noise = np.random.default_rng(0)
    for _ in range(steps):
        way.append(np.abs(point).max())
        gradient = CURVATURE * point + noise.normal(scale=[0.2, 0.0])
        owed = owed + gradient if remember else gradient
        sent = np.where(np.abs(owed) == np.abs(owed).max(), owed, 0)
        owed = owed - sent
        point = point - rate * sent
    return way


for name, remember in (("thrown away", False), ("kept", True)):
    print(f"the rest is {name}: after 300 steps {descend(remember)[-1]:.3f} away")
my_distance.compare(round(descend(remember=False)[-1], 3))

# %% [markdown]
# The steep direction's noise is nearly always the larger entry, so the flat one is hardly ever sent. With a memory it
# is sent once it has grown large enough.

# %%
figure, axes = plt.subplots(figsize=(8, 3.4))
for name, remember in (("thrown away", False), ("kept", True)):
    axes.plot(descend(remember), label=f"the rest is {name}")
axes.set_xlabel("steps")
axes.set_ylabel("distance from the minimum")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## 2 The bytes
#
# **Predict:** a million parameters, one in a hundred sent with its place. How many bytes does a rank send if 4 ranks
# gather the entries of all ranks, and how many in a ring all-reduce of the whole gradient? And with 64 ranks?

# %%
my_gathered = predict("bytes gathered, with 4 and with 64 ranks", ...)
my_ring = predict("bytes in a ring, with 4 and with 64 ranks", ...)

# %%
gathered = [8 * 10_000 * (ranks - 1) for ranks in (4, 64)]
ring = [2 * (ranks - 1) / ranks * 4_000_000 for ranks in (4, 64)]
for ranks, few, whole in zip((4, 64), gathered, ring, strict=True):
    print(f"{ranks:2} ranks: {few / 1e6:.2f} MB gathered, {whole / 1e6:.2f} MB in a ring, 1 to {whole / few:.1f}")
my_gathered.compare(gathered)
my_ring.compare(ring)

# %% [markdown]
# What has to be gathered grows with the ranks, and the ring does not. With 100 ranks there is nothing left of the
# hundredth.
#
# ## 3 Now write it
#
# Begin with `largest` and `compress`. Three calls with k = 1; what will be sent in each, and what is owed at the end?

# %% tags=["yours"]
from topk_error_feedback import compress

residual = np.zeros(3, np.float32)
for gradient in ([3, -5, 1], [3, 0, 1], [0, 0, 1]):
    places, values = compress(np.array(gradient, np.float32), residual, 1)
    print(f"sent {values} at {places}, owed {residual}")

# %% [markdown]
# (−5 at 1; then 6 at 0; then 3 at 2. Nothing is owed any more: each entry's gradients have been sent in full.)
#
# Then `sum_of_all`, on four real ranks. A `%%mpi` cell runs in fresh processes, which see nothing of this notebook.
# Every rank sends its number at place 0 and at its own place; what is the sum, and how many bytes does each send?

# %% tags=["yours"]
# %%mpi -n 4
import numpy as np
from topk_error_feedback import sum_of_all

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
places = np.array([0, comm.rank + 1], np.int32)
values = np.full(2, comm.rank, np.float32)
total = sum_of_all(places, values, 6, comm)
print(f"rank {comm.rank}: {total}, {comm.bytes_sent} bytes in {comm.messages_sent} messages")

# %% [markdown]
# ## 4 Have it checked
#
# The same in a terminal: `farandole lab check 13`.

# %% tags=["yours"]
# !farandole lab check 13

# %% [markdown]
# ## 5 What to try next
#
# 1. Set the noise of the first section to 0. Which entry needs the memory now, and why?
# 2. Round instead of choosing: keep the sign of every entry and one magnitude for all. Does your `compress` work with
#    it, and what remains unsent then?
# 3. Train with it: `farandole run compressed_sgd -n 4 --compressor top-k --no-feedback`.
