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
# # Lab 2 · Ring all-reduce
#
# After every step of training each rank has a different gradient, and all need the mean. You write the algorithm that
# made large-scale training practical: every rank communicates only with its two neighbours, and sends less than twice
# the gradient, for any number of ranks.
#
# The task and what is judged are in `README.md`. Here you try the idea out, first in one
# process, then on real ranks. The code itself goes into `ring_all_reduce.py`, beside this notebook.

# %%
# %load_ext farandole

# %% [markdown]
# ## 1 On paper: which rank holds what?
#
# Cut the vector into as many chunks as there are ranks, 4 here. In each step of the first round every rank sends
# **one** chunk to the rank on its right, and adds the one that arrives from its left to its own chunk of the same
# number. After 3 steps every rank should have one chunk that contains the contributions of all ranks.
#
# `play` acts this out in one process. It writes a chunk as the ranks whose contributions are in it: `2` is rank 2's own
# chunk, `0123` a finished one. You decide only which chunk a rank sends in which step. Sending chunk 0 every time is
# wrong; look at the result, then do better.


# %%
def chunk_to_send(rank, step, size):
    return 0


def play(chunk_to_send, size=4):
    held = [[str(rank)] * size for rank in range(size)]
    for step in range(size - 1):
        sent = [(chunk := chunk_to_send(rank, step, size), held[rank][chunk]) for rank in range(size)]
        for rank in range(size):
            chunk, arriving = sent[rank - 1]  # what the left neighbour has sent
            held[rank][chunk] = "".join(sorted(held[rank][chunk] + arriving))
    for rank in range(size):
        print(f"rank {rank}:", "  ".join(f"{chunk:>6}" for chunk in held[rank]))


play(chunk_to_send)

# %% [markdown]
# A rank may send only what it has just added to, or its own chunk in the first step: then each chunk
# travels once around the ring and collects every contribution once.
#
# **The second round** passes the finished chunks around once more. Now what arrives replaces what was
# there. Which chunk does rank *r* have finished after the first round? That is the one it sends first.

# %% [markdown]
# ## 2 On real ranks: how messages behave
#
# A `%%mpi` cell runs in fresh processes, here four, which see nothing of this notebook. `comm` is what
# your function will get. Each rank passes its number to the right.

# %%
# %%mpi -n 4
import numpy as np

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

mine, arriving = np.array([comm.rank]), np.empty(1, dtype=int)
comm.exchange(mine, right, arriving, left)
print(f"rank {comm.rank} got {arriving[0]} from rank {left}, and has sent {comm.bytes_sent} bytes")

# %% [markdown]
# `exchange` sends and receives at the same time. Why is that needed? Here every rank sends first:

# %% tags=["raises-exception"]
# %%mpi -n 4
import numpy as np

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

mine, arriving = np.array([comm.rank]), np.empty(1, dtype=int)
comm.send(mine, right)
comm.receive(arriving, left)

# %% [markdown]
# A send returns once the other side receives, and here no rank ever gets that far. With small messages many MPI
# libraries hide this mistake, because they buffer the message; with a real gradient the ranks deadlock.
#
# ## 3 Now write it
#
# Complete `ring_all_reduce.py`, then run it here. Every rank's gradient is its number plus one, so the mean
# over 4 ranks is 2.5. Print whatever helps: the output comes in rank order.

# %% tags=["yours"]
# %%mpi -n 4
import numpy as np
from ring_all_reduce import ring_all_reduce_mean

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
gradient = np.full(8, comm.rank + 1.0)
ring_all_reduce_mean(gradient, comm)
print(f"rank {comm.rank}: {gradient}, {comm.messages_sent} messages, {comm.bytes_sent} bytes")

# %% [markdown]
# How many bytes should that be? 8 numbers of 8 bytes make 64; a ring sends $2(P-1)/P$ times that.
#
# ## 4 Have it checked
#
# On 1, 2, 3, 4 and 7 ranks; it takes some ten seconds. The same in a terminal: `farandole lab check 2`.

# %% tags=["yours"]
# !farandole lab check 2

# %% [markdown]
# ## 5 What to try next
#
# 1. Run your function on a vector of 3 numbers and 4 ranks. Which rank sends nothing, and why must the message be sent
#    all the same?
# 2. Let each rank send its whole vector at every hop, and take the chunk it needs from what arrives. The
#    result is right. What does the check say? Such rings have been published.
# 3. Send to the left instead of the right. What else has to change?
# 4. Compare with the project's implementation: `reference/farandole/collectives/ring.py` knows neither buffers nor MPI.
#    What does it gain from that?
