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
# # Lab 3 · Halving-doubling
#
# A ring sends few bytes in many rounds, recursive doubling many bytes in few rounds. You write the all-reduce that
# has the bytes of the one and nearly the rounds of the other: Rabenseifner's halving-doubling.
#
# The task and what is judged are in `README.md`. Here you predict what it should cost, measure it, and try
# it out, first in one process, then on real ranks. The code itself goes into `halving_doubling.py`, beside this
# notebook.

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

from IPython.display import Image

from farandole.collectives.costs import coefficients
from farandole.collectives.doubling import DOUBLING
from farandole.collectives.halving_doubling import HALVING_DOUBLING
from farandole.collectives.ring import RING
from farandole.report import schedule_picture

# %% [markdown]
# ## 1 The two extremes
#
# How many rounds does an all-reduce take, and how much does each rank send in them, counted in vectors? Here it is
# computed from the steps themselves:

# %%
for ranks in (4, 8, 64):
    for schedule in (RING, DOUBLING):
        rounds, sent, _ = coefficients(schedule, ranks)
        print(f"{ranks:2} ranks, {schedule.name}: {rounds:.0f} rounds, {sent:.2f} vectors")

# %% [markdown]
# Each round costs the latency of a message, and each vector the time of its bytes. For short vectors few rounds are
# best, for long ones few bytes.
#
# ## 2 The picture
#
# This is halving-doubling with 4 ranks. A column is a rank, and what is in it is its vector, in 4 chunks. A stripe is
# one rank's contribution, in that rank's colour; grey is what is still missing. An arrow is a message; between two
# chunks it carries both.

# %%
with tempfile.TemporaryDirectory() as folder:
    file = schedule_picture.draw(HALVING_DOUBLING, 4, Path(folder) / "halving_doubling.png")
    picture = Image(data=file.read_bytes())
picture

# %% [markdown]
# Look at rank 0. With which ranks does it exchange on the way there, and with which on the way back? How much does it
# send in each step?
#
# **Now predict.** Fill in the empty cells before you go on, for a vector of n bytes:
#
# | ranks | rounds on the way there | rounds in all | bytes a rank sends on the way there | bytes in all |
# |---|---|---|---|---|
# | 2 | 1 | 2 | n/2 | n |
# | 4 | ? | ? | n/2 + n/4 | ? |
# | 8 | ? | ? | ? | ? |
# | 64 | ? | ? | ? | ? |
#
# (With 4: 2 rounds, 4 in all; 3/4 n, 3/2 n in all. In general lg P rounds and 2 lg P; (P − 1)/P · n and twice that.
# So with 64 ranks it is 12 rounds, where the ring takes 126, and 1.97 n, where doubling takes 6 n.)
#
# ## 3 In one process: which partner keeps which half?
#
# `play` acts out the way there. It writes a chunk as the ranks whose contributions are in it: `2` is rank 2's own,
# `0123` a finished one, and a dot is a chunk that the rank has sent away. Rank *r* exchanges with *r* XOR 1, then with
# *r* XOR 2. You decide only which ranks keep the upper half of their part. That no rank does is wrong; look at the
# result, then do better.


# %%
def keeps_upper_half(rank, distance):
    return False


def play(keeps_upper_half, size=4):
    held = [[str(rank)] * size for rank in range(size)]
    own = [range(size)] * size  # the chunks that each rank is responsible for
    distance = 1
    while distance < size:
        before = [list(chunks) for chunks in held]
        for rank in range(size):
            half = len(own[rank]) // 2
            kept = own[rank][half:] if keeps_upper_half(rank, distance) else own[rank][:half]
            for chunk in kept:
                held[rank][chunk] = "".join(sorted(before[rank][chunk] + before[rank ^ distance][chunk]))
            own[rank] = kept
        distance *= 2
    for rank in range(size):
        chunks = (held[rank][chunk] if chunk in own[rank] else "." for chunk in range(size))
        print(f"rank {rank}:", "  ".join(f"{chunk:>{size}}" for chunk in chunks))


play(keeps_upper_half)

# %% [markdown]
# All ranks have finished the same chunk, and none the others. At the end each rank should have one, each a different
# one. Then play it with `size=8`: rank *r* XOR 4 comes third.
#
# **The way back** needs no such decision. Each rank sends its partners, the last one first, all that it has finished.
#
# ## 4 Now write it
#
# Complete `halving_doubling.py`, then run it here, on four real ranks. A `%%mpi` cell runs in fresh processes, which
# see nothing of this notebook. First say what you expect: how many messages will each rank send, and how many bytes?
# The vector has 1,000 elements of float32, 4 bytes each. Every rank's is its number plus one, so the sum is 10.

# %% tags=["yours"]
# %%mpi -n 4
import numpy as np
from halving_doubling import halving_doubling_all_reduce

from farandole_tools.lab.communicator import LabCommunicator

messages, nbytes = 0, 0  # what you expect

comm = LabCommunicator.world()
vector = np.full(1000, comm.rank + 1, np.float32)
halving_doubling_all_reduce(vector, comm)
sent = f"{comm.messages_sent} messages, {comm.bytes_sent:,} bytes"
print(f"rank {comm.rank}: sums from {vector.min():g} to {vector.max():g}; {sent}; expected {messages}, {nbytes:,}")

# %% [markdown]
# Now with `-n 2`, and when you have folded in the ranks beyond the power of two, with `-n 3` and `-n 5`. Which ranks
# send more than the others, and how much?
#
# ## 5 Have it checked
#
# On 1, 2, 4 and 8 ranks, and on 3, 5 and 7. The same in a terminal: `farandole lab check 3`.

# %% tags=["yours"]
# !farandole lab check 3

# %% [markdown]
# ## 6 What to try next
#
# 1. Write the way there with the farthest partner first. Which chunk does each rank finish now? In the picture above
#    it is the one whose number is the rank's own with its bits reversed.
# 2. Put your ring of lab 2 into this lab's function, without the division, and have it checked. Which points do you
#    lose? And with recursive doubling?
# 3. Give `halving_doubling_all_reduce` a vector of 3 elements on 4 ranks. Which rank sends nothing in which round, and
#    why must the message be sent all the same?
# 4. The project's implementation, `reference/farandole/collectives/halving_doubling.py`, folds by itself in
#    `folding.py`, for every algorithm that needs it. There rank 0 goes with rank 1, 2 with 3, and so on. What is better
#    about that on a cluster, and what has to be computed for it?
# 5. Draw it for 8 ranks, in motion: `farandole draw halving-doubling -n 8 --out halving_doubling.gif`.
