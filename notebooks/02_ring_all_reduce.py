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
# # 02 · Ring all-reduce
#
# **Question:** every rank has a vector of a million numbers, and every rank needs the sum of all vectors. Which rank
# should send what to which?
#
# In data-parallel training the vectors are gradients, and the ranks must exchange them (交换信息) in every single step.
# The operation is called **all-reduce** (全归约): *reduce*, because many vectors become one, and *all*, because every
# rank gets the result. We shall build it in two ways, look at each step, count every byte, and find out how to check
# that such an algorithm is right.

# %%
# %load_ext farandole
import inspect
import os
import tempfile
from pathlib import Path

from IPython import get_ipython
from IPython.display import Image

from farandole import LaunchError
from farandole.collectives import ring
from farandole.collectives.central import CENTRAL
from farandole.collectives.checker import ScheduleError, check_all_reduce, execute
from farandole.collectives.ring import REDUCE_SCATTER, RING
from farandole.collectives.steps import Exchange, Schedule
from farandole.report import schedule_picture
from farandole.report.colours import BLUE, GREY, ORANGE
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
os.environ["RESULTS"] = str(folder)  # a cell under %%mpi inherits the environment, but no variables

# %% [markdown]
# ## 1 What it does
#
# MPI has an all-reduce built in. To see *whose* contribution is in a sum, rank *r* contributes $10^r$: a
# decimal digit for each rank. 1111 then means: all four, each exactly once.

# %% tags=["nbval-check-output"]
# %%mpi -n 4
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
vector = np.full(4, 10**world.rank)
before = vector.tolist()
world.Allreduce(MPI.IN_PLACE, vector)
print(f"rank {world.rank}: {before} becomes {vector.tolist()}")

# %% [markdown]
# How does it do that? There are many ways. We begin with the most obvious one.
#
# ## 2 Everything through one rank
#
# All ranks send their vectors to rank 0, which adds them up and sends the sum back. Document 003 calls such a rank
# the **aggregator** (聚合器).
#
# How to read the picture: a column is a rank, and what is in it is its vector. A stripe is one rank's
# contribution, in that rank's colour; grey is what is still missing.

# %%
Image(filename=str(schedule_picture.draw(CENTRAL, 4, folder / "central.png")))

# %% [markdown]
# Six steps, and in each of them *one* message travels while the other ranks are idle. Let *n* be the size of the
# vector in bytes.
#
# **Predict:** how many bytes does rank 0 send? How many does each of the others? What if there were 100 ranks?
#
# All messages of this project go through the `Communicator`, so it can count them.

# %%
my_root = predict("bytes that rank 0 sends", ...)
my_other = predict("bytes that each of the others sends", ...)
my_hundred = predict("vectors that rank 0 would send among 100 ranks", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep sent
import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.runtime.communicator import Communicator

comm = Communicator(MPI.COMM_WORLD)
vector = np.full(1_000_000, 10.0**comm.rank, dtype=np.float32)  # n = 4,000,000 bytes
ALL_REDUCES["central"](comm, vector)
sent = comm.bytes_sent
print(f"rank {comm.rank}: every number is {vector.min():.0f};",
      f"sent {sent:>10,} bytes, messages: {comm.messages_sent}")  # fmt: skip

# %% tags=["nbval-check-output"]
my_root.compare(sent[0])
my_other.compare(sent[1])
my_hundred.compare(execute(CENTRAL, 100).chunks_sent[0])  # all 100 ranks in this process, as section 6 explains

# %% [markdown]
# Rank 0 sends $(P-1)\,n$ bytes and receives as many. With 100 ranks it would be 99 times the vector in each
# direction, one partner after the other. The more ranks take part, the longer rank 0 takes: it is the bottleneck.
#
# ## 3 The ring: reduce-scatter
#
# Two ideas make it better.
#
# *Cut the vector.* With P ranks, cut it into P **chunks** (块), so that different chunks can be under way at
# the same time.
#
# *Talk to neighbours only.* In each step every rank sends one chunk to its right neighbour, receives one from its
# left neighbour, and adds it to its own. All links are busy all the time.
#
# The algorithm is a generator that yields one rank's next step. It knows nothing of MPI or of memory:

# %%
print(inspect.getsource(ring.reduce_scatter))

# %% [markdown]
# **Predict:** in step 0 rank *r* sends chunk *r*. In step 1 it sends chunk *r* − 1. Which chunk is that: one
# that it has just received, or another?

# %%
my_chunk = predict("what is sent in step 1", ..., "the chunk just received", "another")

# %%
Image(filename=str(schedule_picture.draw(REDUCE_SCATTER, 4, folder / "reduce_scatter.png")))

# %% tags=["nbval-check-output"]
step_0, step_1, _ = ring.reduce_scatter(rank=2, size=4)
my_chunk.compare("the chunk just received" if step_1.send == step_0.recv else "another")

# %% [markdown]
# It passes on exactly the chunk that has just arrived, now with its own contribution in it. Follow a single
# chunk, chunk 0 in the first row: it starts at rank 0, collects a stripe at each rank it visits, and is
# finished when it reaches rank 3. The other chunks do the same, each one rank further on. After P − 1 steps every
# rank owns one finished chunk: rank *r* has chunk *r* + 1. This half is called **reduce-scatter** (规约散播): the sum
# is there, but scattered.
#
# The same with real messages, in a dozen lines of plain mpi4py. Each chunk is a single number. Read the digits
# as above: 1011 is a sum that still lacks rank 2.

# %% tags=["nbval-check-output"]
# %%mpi -n 4
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
left, right = (rank - 1) % size, (rank + 1) % size
chunks = np.full(size, 10**rank)


def show(title):
    gathered = np.empty((size, size), dtype=chunks.dtype)
    world.Gather(chunks, gathered if rank == 0 else None)
    if rank == 0:
        print(title)
        for number, held in enumerate(gathered):
            print(f"  rank {number}: ", *(f"{value:04}" for value in held))


show("start")
for step in range(size - 1):
    leaving, arriving = (rank - step) % size, (rank - step - 1) % size
    message = np.empty(1, dtype=chunks.dtype)
    world.Sendrecv(chunks[leaving : leaving + 1], right, 0, message, left, 0)
    chunks[arriving] += message[0]
    show(f"after step {step}")

# %% [markdown]
# ## 4 The ring: all-gather
#
# Now the finished chunks go around once more, P − 1 steps again, and this time what arrives *replaces* what
# was there. That half is the **all-gather** (全收集). Both together are the ring all-reduce (环形全归约):

# %%
Image(filename=str(schedule_picture.draw(RING, 4, folder / "ring.png")))

# %% [markdown]
# Again six steps. But compare with the first picture: there one message of *n* bytes in each step, here four
# messages of *n*/4 bytes at the same time.
#
# ## 5 Count the bytes
#
# Each rank sends one chunk of *n*/P bytes in each of 2(P − 1) steps:
#
# $$ \text{bytes sent by a rank} = 2\,\frac{P-1}{P}\,n $$
#
# **Predict:** what does that become when P grows without limit? And what did rank 0 of the aggregator send?
#
# One launch of eight ranks measures all sizes from 1 to 8: the first P ranks form a group.

# %%
my_limit = predict("vectors that a rank of an endless ring sends", ...)
my_central = predict("vectors that the aggregator's rank 0 sends, of 8 ranks", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 8
import json
import os
from pathlib import Path

import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.runtime.communicator import Communicator

LENGTH = 840_000  # can be cut into 1 to 8 equal chunks
world = MPI.COMM_WORLD
most = {"ring": [], "central": []}
for size in range(1, world.size + 1):
    group = world.Split(0 if world.rank < size else MPI.UNDEFINED, world.rank)
    if group == MPI.COMM_NULL:
        continue
    for name, sent in most.items():
        comm = Communicator(group)
        vector = np.full(LENGTH, comm.rank + 1, dtype=np.float32)
        ALL_REDUCES[name](comm, vector)
        assert (vector == size * (size + 1) / 2).all(), "a wrong sum"
        bytes_sent = np.array([comm.bytes_sent])
        group.Allreduce(MPI.IN_PLACE, bytes_sent, MPI.MAX)
        sent.append(int(bytes_sent[0]))

if world.rank == 0:
    n = 4 * LENGTH
    print("ranks      ring  2(P-1)/P n     central    (P-1) n")
    for size, by_ring, by_central in zip(range(1, 9), most["ring"], most["central"], strict=True):
        print(f"{size:5}{by_ring:10,}{2 * (size - 1) * n // size:12,}{by_central:12,}{(size - 1) * n:11,}")
    (Path(os.environ["RESULTS"]) / "bytes.json").write_text(json.dumps(most))

# %%
import json

import matplotlib.pyplot as plt
import numpy as np

plt.rcParams["figure.dpi"] = 100
measured = json.loads((folder / "bytes.json").read_text())
n = 4 * 840_000
ranks = np.arange(1, 9)
figure, ax = plt.subplots(figsize=(6, 3))
ax.plot(ranks, ranks - 1, color=ORANGE)
ax.plot(ranks, 2 * (ranks - 1) / ranks, color=BLUE)
ax.axhline(2, color=GREY, linestyle="--")
ax.plot(ranks, np.array(measured["central"]) / n, "o", color=ORANGE, label="aggregator: what rank 0 sends")
ax.plot(ranks, np.array(measured["ring"]) / n, "o", color=BLUE, label="ring: what each rank sends")
ax.set(xlabel="ranks", ylabel="bytes sent / size of the vector")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
figure.tight_layout()

# %% tags=["nbval-check-output"]
endless = 10**12  # ranks
my_limit.compare(2 * (endless - 1) / endless)
my_central.compare(measured["central"][-1] / n)

# %% [markdown]
# The points are measured, the lines are the formulas. The aggregator's load grows with every rank. The ring's
# never exceeds *twice* the vector, for eight ranks or eight thousand, and it cannot be done with less:
# Patarasuk and Yuan (2009) proved it, and Baidu brought the ring to deep learning in 2017.
#
# What grows is the *number* of steps, 2(P − 1). With α for the **latency** (延迟) of a message and β for the
# time per byte, the inverse of **bandwidth** (带宽), the ring takes
#
# $$ T = 2(P-1)\,\alpha + 2\,\frac{P-1}{P}\,n\,\beta $$
#
# plus the additions. For long vectors the second term dominates, and the ring is excellent. For short vectors on many
# ranks the first one does, and other algorithms win.
#
# ## 6 Is it right, for every number of ranks?
#
# Running it with eight ranks says nothing about nine. But since the algorithm knows nothing of MPI, we can run
# *all* its ranks in this one process, with symbols in place of numbers: a chunk is the collection of
# contributions in it. At the end each chunk on each rank must hold each rank's contribution exactly once.

# %% tags=["nbval-check-output"]
for ranks in range(1, 33):
    execution = check_all_reduce(RING, ranks)
    assert execution.steps == [2 * (ranks - 1)] * ranks
print("the ring is right for 1 to 32 ranks, in 2(P-1) steps each")

# %% [markdown]
# A check that cannot fail is worth nothing, so let us make mistakes. First, one step too few:

# %% tags=["nbval-check-output"]
ranks = 4


def impatient(rank, size):
    steps = list(ring.all_reduce(rank, size))
    yield from steps[:-1]


try:
    check_all_reduce(Schedule("impatient ring", impatient, chunks=lambda size: size), ranks)
except ScheduleError as error:
    print(error)

# %% [markdown]
# Second, a common mistake. Instead of sending and receiving at the same time, each rank first sends to the right and
# *then* receives from the left.
#
# **Predict:** what happens? Does it depend on the length of the vector?

# %%
my_short = predict("a vector of 4 numbers", ..., "passes", "deadlocks")
my_long = predict("a vector of 1,000,000 numbers", ..., "passes", "deadlocks")

# %% tags=["nbval-check-output"]
ranks = 4


def send_then_receive(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Exchange(send=(rank - step) % size, to=right)
        yield Exchange(recv=(rank - step - 1) % size, source=left, reduce=True)


try:
    execute(Schedule("send, then receive", send_then_receive, chunks=lambda size: size), ranks)
except ScheduleError as error:
    print(error)

# %% [markdown]
# Every rank sends, and none receives: a **deadlock** (死锁). Now the same under mpirun, first with a short message,
# then with a long one, and with a time-out of five seconds.

# %% tags=["nbval-check-output"]
program = """
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
mine, theirs = np.ones(LENGTH), np.empty(LENGTH)
world.Send(mine, (world.rank + 1) % world.size)
world.Recv(theirs, (world.rank - 1) % world.size)
if world.rank == 0:
    print("done")
"""
outcomes = {}
for length, patience in ((4, 60), (1_000_000, 5)):
    print(f"{length} numbers: ", end="")
    try:
        get_ipython().run_cell_magic("mpi", f"-n 4 --timeout {patience}", program.replace("LENGTH", str(length)))
        outcomes[length] = "passes"
    except LaunchError as error:
        print(error)
        outcomes[length] = "deadlocks"
my_short.compare(outcomes[4])
my_long.compare(outcomes[1_000_000])

# %% [markdown]
# That is why this mistake is so common. MPI buffers short messages and lets the sender continue, so the program
# passes every small test and hangs on the first real gradient. The symbolic check buffers nothing. It finds the
# deadlock whatever the length.
#
# ## 7 Right sum, wrong algorithm
#
# One more ring that has been published more than once: each rank passes on the *whole* vector it has received,
# and adds it to its own. P − 1 steps only! On whole numbers the sum is right, too. What is wrong with it?
#
# **Predict:** for P = 4, how many bytes does a rank send, in units of *n*? And with random fractions, do all
# ranks get the *same* sum?

# %%
my_vectors = predict("vectors that a rank sends", ...)
my_same = predict("all ranks get the same sum", ..., "yes", "no")

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep vectors,apart
import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.runtime.communicator import Communicator


def ring_of_whole_vectors(comm, vector):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    travelling = vector.copy()
    for _ in range(comm.size - 1):
        arriving = np.empty_like(vector)
        comm.exchange(travelling, right, arriving, left)
        vector += arriving
        travelling = arriving


world = MPI.COMM_WORLD
for name, all_reduce in {"the ring": ALL_REDUCES["ring"], "whole vectors": ring_of_whole_vectors}.items():
    comm = Communicator(world)
    vector = np.random.default_rng(world.rank).standard_normal(100_000, dtype=np.float32)
    exact = vector.astype(np.float64)
    world.Allreduce(MPI.IN_PLACE, exact)
    all_reduce(comm, vector)

    highest, lowest = np.empty_like(vector), np.empty_like(vector)
    world.Allreduce(vector, highest, MPI.MAX)
    world.Allreduce(vector, lowest, MPI.MIN)
    vectors, apart = comm.bytes_sent / vector.nbytes, (highest - lowest).max()
    if world.rank == 0:
        print(f"{name}: {vectors} times the vector sent;",
              f"off by less than 1e-5: {bool(abs(vector - exact).max() < 1e-5)};",
              f"largest difference between two ranks: {apart:.1e}")  # fmt: skip

# %% tags=["nbval-check-output"]
# The loop ended with the ring of whole vectors.
my_vectors.compare(vectors[0])
my_same.compare(apart[0] == 0)

# %% [markdown]
# Both sums are right up to rounding. But the second ring sends twice as many bytes here, and P/2 times as many in
# general. And its ranks do not agree: floating-point addition depends on the order, and every rank adds in a different
# order, beginning with itself. The differences are tiny. Yet if copies of a model drift apart a little in every step,
# the differences add up.
#
# In our ring each chunk is added up *once*, along one path, and the finished bits are copied. All ranks hold
# the same bits. So a test of an all-reduce must look at three things: the **sum**, the **bytes**, and whether
# **all ranks agree to the bit**.
#
# ## 8 How long does it take?
#
# Times are measurements of one computer: here a few processes share a few cores and pass messages through memory,
# unlike the nodes of a cluster. But times from the same machine and the same run can be compared. We compare our two
# all-reduces with MPI's own, for vectors from 4 KB to 16 MB. Each point is the median of nine, and the slowest rank
# counts.
#
# **Predict:** which is faster for long vectors? Which for short ones?

# %%
my_long_vector = predict("the fastest for 16 MB", ..., "ring", "central", "mpi")
my_short_vector = predict("the fastest for 4 KB", ..., "ring", "central", "mpi")

# %%
# %%mpi -n 4
import json
import os
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.runtime.communicator import Communicator

world = MPI.COMM_WORLD
comm = Communicator(world)
lengths = [10**3, 10**4, 10**5, 10**6, 4 * 10**6]
compared = {name: ALL_REDUCES[name] for name in ("ring", "central", "mpi")}
medians = {name: [] for name in compared}
for length in lengths:
    vector = np.zeros(length, dtype=np.float32)
    times = {name: [] for name in compared}
    for repeat in range(10):
        for name, all_reduce in compared.items():  # in turn, so that a disturbance meets all of them
            world.Barrier()
            start = time.perf_counter()
            all_reduce(comm, vector)
            seconds = np.array([time.perf_counter() - start])
            world.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
            if repeat:  # the first one warms up
                times[name].append(float(seconds[0]))
    for name, measured in times.items():
        medians[name].append(float(np.median(measured)))
if world.rank == 0:
    (Path(os.environ["RESULTS"]) / "times.json").write_text(json.dumps({"lengths": lengths, "medians": medians}))

# %%
results = json.loads((folder / "times.json").read_text())
size_kb = 4 * np.array(results["lengths"]) / 1e3
figure, ax = plt.subplots(figsize=(6, 3))
for (name, seconds), colour in zip(results["medians"].items(), (BLUE, ORANGE, "#444444"), strict=True):
    ax.loglog(size_kb, 1e3 * np.array(seconds), "o-", color=colour, label={"mpi": "MPI's own"}.get(name, name))
ax.set_xticks(size_kb, ["4", "40", "400", "4,000", "16,000"])
ax.set(xlabel="size of the vector in KB", ylabel="milliseconds")
ax.minorticks_off()
ax.grid(alpha=0.3)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
figure.tight_layout()
my_long_vector.compare(min(results["medians"], key=lambda name: results["medians"][name][-1]))
my_short_vector.compare(min(results["medians"], key=lambda name: results["medians"][name][0]))

# %% [markdown]
# On the left a message costs about the same whatever its size, so what counts is the number of messages and how many
# ranks must act at once. The ring needs every rank in every step, which is slow on a computer with fewer cores than
# ranks. MPI's own all-reduce needs fewer steps: it chooses its algorithm by length. On the right the bytes decide,
# and the lines rise together: ten times the numbers, ten times the time. Does the ring win there on your machine, and
# by the factor of two that the byte counts suggest? Four ranks on a few cores take turns anyway, so the aggregator's
# idle ranks cost less here than on four machines.
#
# ## What you have seen
#
# - An all-reduce is a schedule: which rank sends which chunk to which, in each step.
# - Through one rank: $(P-1)\,n$ bytes at that rank. Around a ring: $2\frac{P-1}{P}\,n$ at each.
# - A schedule that knows nothing of MPI can be run, checked for every P, counted, and drawn.
# - Right sums are not enough: look at bytes, deadlocks, and the last bit.
#
# ## What to try
#
# 1. Draw the ring for 3, 5 and 8 ranks: `schedule_picture.draw(RING, 8, folder / "8.png")`. In which step is
#    the first chunk finished? And the last?
# 2. Run section 5 with a vector of length 10 instead of 840,000. The chunks are then unequal. By how much can
#    the bytes of a rank differ from the formula? What happens for a length of 3?
# 3. Write a generator for a ring that turns the other way, and have `check_all_reduce` judge it. Then one in
#    which even ranks go right and odd ranks go left.
# 4. In section 7 let all ranks add in the order 0, 1, 2, 3. You will need to keep all vectors until the end.
#    What does the agreement cost in memory?
# 5. The sum is needed for a mean. Where would you divide by P: before, after, or on the way? Think of whole
#    numbers, and of float16.
# 6. Write it yourself: lab `02_ring_all_reduce`.
