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
# # Lab 4 · Overlapped data parallel
#
# While backward still computes the first layers' gradients, the last layers' gradients are already being sent. You
# write what decides which gradients are sent when, such that the result is bitwise that of synchronous SGD.
#
# The task and what is judged are in `README.md`. Here you see in which order gradients are computed,
# predict what that gains, and try it out. The code itself goes into `overlapped_sgd.py`, beside this notebook.

# %%
# %load_ext farandole
from farandole_tools.lab.instrumented_network import Network

# %% [markdown]
# ## 1 The network, and what it reports
#
# Three branches stand side by side. Each has two layers, so four parameters, `W b W b`; 0 to 3 are the first branch's.
# Backward calls your function whenever a gradient has been computed. Here the function looks at what is in the vector.

# %%
network = Network()
print("lengths:", network.lengths)


def look(number):
    there = [each for each, place in enumerate(network.places) if network.gradients[place].any()]
    print(f"gradient {number:2} is there; so far: {there}")


network.backward(samples=[0, 1, 2, 3], is_there=look)

# %% [markdown]
# The last branch comes first, and in each branch the last layer. When 11 and 10 are computed, nothing that follows will
# change them.
#
# Now the same on a rank that computes the branches in another order, and on one that does not use the last branch at
# all:

# %%
for route in ((1, 2, 0), (1, 0)):
    network.update()
    network.events.clear()
    network.route = route
    network.backward([0, 1, 2, 3], lambda number: None)
    print(*(event.parameters[0] for event in network.events))

# %% [markdown]
# ## 2 What overlap is good for
#
# A drawing on paper: computing a gradient takes two units, reducing a bucket three, and one bucket is reduced at a
# time. In the first row a letter stands for a gradient, and says which bucket it is in; in the second one it stands
# for that bucket's reduction. A dot is time in which nothing is done, `U` the update. What is left of the reductions
# after the last gradient is *exposed*.


# %%
def draw(buckets, begun_after):
    """Draw the gradients, one after the other, and the reductions; bucket i begins after begun_after[i] gradients."""
    letters = "abcdefghijkl"
    backward = "".join(2 * letter for letter, bucket in zip(letters, buckets, strict=False) for _ in bucket)
    wire = ""
    for letter, gradients in zip(letters, begun_after, strict=False):
        wire += "." * (2 * gradients - len(wire)) + 3 * letter
    exposed = len(wire) - len(backward)
    print(f"backward   {backward}{'.' * exposed}U")
    print(f"reductions {wire}   exposed: {exposed}\n")


four = [range(9, 12), range(6, 9), range(3, 6), range(3)]
draw(four, begun_after=[12, 12, 12, 12])
draw(four, begun_after=[3, 6, 9, 12])

# %% [markdown]
# The first one waits for the end of backward, the second one begins each bucket as soon as it is complete.
#
# **Now predict**, then draw, by changing the lines above:
#
# | | exposed |
# |---|---|
# | four buckets, begun at the end | 12 |
# | four buckets, begun as soon as possible | ? |
# | one bucket of all 12 | ? |
# | twelve buckets of one, begun as soon as possible | ? |
#
# (3; 3, if a large bucket took no longer than a small one, which it does; 14. The twelve take 36 units, backward 24,
# and the first begins after 2.) So buckets should be neither too large, since then the first one is late, nor too
# small. At least the last bucket is exposed.
#
# ## 3 On paper
#
# Buckets of 11 and 10, of 9 and 8, of 7 and 6, …; on rank 1 the gradients come in the order 7 6 5 4 11 10 9 8 3 2 1 0.
# Buckets are begun in the same order on all ranks, each as soon as possible. After which gradient does rank 1 begin
# which?
#
# | bucket | 11, 10 | 9, 8 | 7, 6 | 5, 4 | 3, 2 | 1, 0 |
# |---|---|---|---|---|---|---|
# | rank 0 | 10 | 8 | 6 | 4 | 2 | 0 |
# | rank 1 | 10 | ? | ? | ? | ? | ? |
#
# (8, 8, 8, 2, 0: three at once when the second bucket is complete, for two had been ready for long.)
#
# ## 4 Now write it
#
# Complete `overlapped_sgd.py`, then run it here, on four real ranks. A `%%mpi` cell runs in fresh processes, which see
# nothing of this notebook. Each rank prints its events: the gradients by their numbers, a reduction that begins as
# `[…]`, and the update as `U`.

# %% tags=["yours"]
# %%mpi -n 4
from overlapped_sgd import Overlapped

from farandole_tools.lab.background import BackgroundCommunicator
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.instrumented_network import Network, numbers

comm = LabCommunicator.world()
network = Network()
network.route = (1, 2, 0) if comm.rank == 3 else (2, 1, 0)
training = Overlapped(network, BackgroundCommunicator(comm, network), most=20)
training.step(samples=range(5 * comm.rank, 5 * comm.rank + 5), share=1 / 4)
form = {"gradient": "{}", "begin": "[{}]", "wait": "", "update": "U"}
print(f"rank {comm.rank}:", *(form[event.name].format(numbers(event.parameters)) for event in network.events))

# %% [markdown]
# The reductions should be the same ones on all ranks, in the same order. On rank 3 the gradients come in another order.
# How far is it behind the others?
#
# ## 5 Have it checked
#
# On 1, 2, 3 and 4 ranks. The same in a terminal: `farandole lab check 4`.

# %% tags=["yours"]
# !farandole lab check 4

# %% [markdown]
# ## 6 What to try next
#
# 1. Take `most=1000` in section 4, then `most=1`. How many reductions begin before the last gradient?
# 2. Wait for each reduction right after you have begun it, and have it checked. Only one check fails. Why is the result
#    right, and what has been lost?
# 3. Let every rank begin whichever bucket is complete first, with MPI's own `Iallreduce` and buckets of the same
#    length. What would each rank add up, and would any rank report an error?
# 4. The notebook `05_overlap` measures what you have drawn. Where does it gain nothing, and why?
