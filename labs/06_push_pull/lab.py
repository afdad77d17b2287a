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
# # Lab 6 · Push and pull
#
# A few ranks hold the parameters; the others push gradients to them and pull parameters from them. You write both
# sides: which server holds which parameters, what a push does, and the messages in between.
#
# The task and what is judged are in `README.md`. Here you try the ideas out. The code itself
# goes into `push_pull.py`, beside this notebook.

# %%
# %load_ext farandole
import hashlib

# %% [markdown]
# ## 1 Which server holds what, and what a new server changes
#
# 1,000 keys, four servers, and a fifth joins. The first two ways that come to mind are the remainder, and
# equal parts one after the other. How many keys have to be sent to another server?


# %%
def moved(before, after):
    return sum(before(key) != after(key) for key in range(1000))


print("remainder, key % servers:  ", moved(lambda key: key % 4, lambda key: key % 5), "keys move")
print("equal parts, in order:     ", moved(lambda key: key // 250, lambda key: key // 200), "keys move")
print("what the new server is due:", 1000 // 5)

# %% [markdown]
# At least 200 keys have to move, since that is what the fifth server is to hold. Everything above that is wasted.
# Consistent hashing comes close to it: a hash function maps servers and keys to points on a circle, and a key belongs
# to the next server clockwise. Here is a circle of 100 points, cut open and laid flat; a letter is the server that
# holds that point, and a capital letter is the server's own point.


# %%
def place(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") % 100


def draw(servers, virtual_nodes):
    stands = {place(f"server {server}, node {i}"): server for server in servers for i in range(virtual_nodes)}
    circle = ""
    for here in range(100):
        steps = 0
        while (here + steps) % 100 not in stands:  # walk clockwise to the next server
            steps += 1
        server = stands[(here + steps) % 100]
        circle += server.lower() if steps else server
    held = [circle.lower().count(server.lower()) for server in servers]
    print(circle)
    print("held:", ", ".join(f"{server} {places}" for server, places in zip(servers, held, strict=True)))


draw("ABCD", virtual_nodes=1)
draw("ABCDE", virtual_nodes=1)

# %% [markdown]
# The new server E has taken over the arc that ends at its point. Nothing else has changed: compare letter by letter.
# But the arcs are very unequal, and all keys of E come from one server, B, which is left with a single point. So each
# server has several points on the circle:

# %%
draw("ABCD", virtual_nodes=10)
draw("ABCDE", virtual_nodes=10)

# %% [markdown]
# The shares are more even now, and E takes keys from every server. With 64 points each, which is what you will use,
# they are more even still. What happens to the keys of A when A leaves?
#
# ## 2 Every rank must compute the same answer
#
# No rank asks another which server holds a key: each computes it. That needs a hash function which is the same in every
# process.

# %%
# %%mpi -n 4
from hashlib import blake2b

import numpy as np

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
pythons = comm.everybodys(np.array([hash("server 0")]))
blakes = comm.everybodys(np.array([int.from_bytes(blake2b(b"server 0", digest_size=7).digest(), "big")]))
if comm.rank == 0:
    print("different values on 4 ranks:", len(np.unique(pythons)), "by hash(),", len(np.unique(blakes)), "by blake2b")

# %% [markdown]
# ## 3 A server that serves in order
#
# `receive` needs the sender's rank. So the server serves the workers in a fixed order, and the others wait. Here rank 0
# serves ranks 1, 2 and 3: each pushes its number, receives an acknowledgement, and pulls the sum. What each of them
# reads depends only on the order.

# %%
# %%mpi -n 4
import numpy as np

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
arriving, acknowledgement = np.empty(1), np.array([1])
if comm.rank == 0:
    total = np.zeros(1)
    for worker in (1, 2, 3):
        comm.receive(arriving, worker)
        total += arriving  # first apply,
        comm.send(acknowledgement, worker)  # then acknowledge
        comm.send(total, worker)
    print(f"server: {total[0]:g}, {comm.bytes_sent} bytes sent")
else:
    comm.send(np.array([float(comm.rank)]), 0)
    comm.receive(acknowledgement, 0)
    comm.receive(arriving, 0)
    print(f"worker {comm.rank} pulled {arriving[0]:g}")

# %% [markdown]
# Here each worker sends only one kind of request. In your server a message of three numbers says what is requested, and
# `DONE` ends this worker's requests.
#
# Suppose now that an acknowledgement is lost. The worker cannot know whether its push has arrived, so it pushes again;
# and a server without a record of pushes adds it again. What must the push contain, and what must the server store, to
# detect this?
#
# ## 4 Now write it
#
# Complete `push_pull.py`. This runs it on four ranks, two of them servers. Each of the two workers pushes a
# gradient of ones, one range of it twice; the parameters begin at 0 and the rate is 0.5. So the first worker
# should pull −0.5 everywhere, and the second one −1.

# %% tags=["yours"]
# %%mpi -n 4
import numpy as np
from push_pull import Client, Store, cut, serve

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
ranges, holders, workers = cut(8, 3), [0, 1, 0], [2, 3]
if comm.rank in workers:
    client = Client(ranges, holders, comm)
    applied = client.push([0, 1, 2], 0, np.ones(8))
    again = client.push([1], 0, np.ones(8))
    parameters = np.empty(8)
    client.pull([0, 1, 2], parameters)
    client.end_round()
    print(f"worker {comm.rank}: {applied} ranges applied, then {again}; pulled {parameters}")
else:
    parts = {i: np.zeros(len(part)) for i, part in enumerate(ranges) if holders[i] == comm.rank}
    serve(Store(parts, 0.5), ranges, workers, 1, comm)
    print(f"server {comm.rank}: {comm.messages_sent} messages, {comm.bytes_sent} bytes sent")

# %% [markdown]
# ## 5 Have it checked
#
# On 1, 2, 3 and 4 ranks; it takes some seconds. The same in a terminal: `farandole lab check 6`.

# %% tags=["yours"]
# !farandole lab check 6

# %% [markdown]
# ## 6 What to try next
#
# 1. Here the workers wait for one another: the second one is served when the first has sent `DONE`. What would a server
#    need to serve requests as they arrive? (`MPI.ANY_SOURCE` is the project's answer.) What would then no longer be the
#    same in every run?
# 2. One clock for each range and worker: how much memory is that with 1,000 ranges and 100 workers? And one
#    for each key and worker, with 100 million keys?
# 3. A server dies without a message. Which ranges are lost, and which server would have had to hold a copy? On the
#    circle there is a simple answer: the next servers clockwise.
# 4. Read the project's implementation: `reference/farandole/parameter_server/keys.py` and `core/clocks.py`. What does
#    `moved` count when the ranges themselves are cut anew?
