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
# # 03 · Synchronous SGD
#
# **Question:** four ranks train one model together. Do they get the same model that one process would get alone?
# *Exactly* the same?
#
# **Synchronous SGD** (同步SGD) is the plainest method of distributed training, and the one all others are
# measured against. Document 002 gives it in five steps, for K nodes, parameters θ and learning rate η:
#
# 1. **Initialise** (初始化): divide the training data over the nodes, and give all of them the same θ.
# 2. **Compute** (局部计算): each node finds the local gradient (局部梯度) $g_k$ of its part of the batch.
# 3. **Synchronise** (同步梯度): all wait for each other, and take the mean, the global gradient (全局梯度)
#    $\bar g = \frac1K \sum_k g_k$.
# 4. **Update** (更新参数): all do the same, $\theta \leftarrow \theta - \eta\,\bar g$.
# 5. Repeat 2 to 4 **until it converges** (直到模型收敛).
#
# We first implement these steps literally, then as a program for real use, and measure both.

# %%
# %load_ext farandole
import inspect
import tempfile
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt

from farandole import launch
from farandole.data_parallel.synchronous import SynchronousSGD
from farandole.report import table, timeline
from farandole.report.colours import BLUE, GREEN, ORANGE
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 Five steps in plain numpy
#
# The model is as small as possible: one matrix that turns the 64 pixels of a digit into ten scores. Its gradient fits
# into four lines, so that nothing is hidden. Beside it every rank trains a *second* model alone, on the **union** of
# all ranks' batches, as a single process would.
#
# **Predict:** how large is the largest difference between the two models, over all parameters and steps: zero,
# about $10^{-15}$, or about $10^{-3}$? And between the copies of two ranks?

# %%
my_alone = predict("the largest difference from the single process", ..., "zero", "about 1e-15", "about 1e-3")
my_ranks = predict("the largest difference between two ranks", ..., "zero", "about 1e-15", "about 1e-3")

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep from_alone,between_ranks
import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data import datasets
from farandole.runtime.communicator import Communicator

BATCH, RATE = 64, 0.5
comm = Communicator(MPI.COMM_WORLD)
train = datasets.split(datasets.load("digits"), seed=0).train
inputs, targets = train.inputs.reshape(len(train), 64).astype(np.float64), train.targets


def gradient(theta, rows):
    """Return the gradient of the mean cross-entropy over `rows`."""
    scores = np.exp(inputs[rows] @ theta)
    chances = scores / scores.sum(axis=1, keepdims=True)
    chances[np.arange(len(rows)), targets[rows]] -= 1
    return inputs[rows].T @ chances / len(rows)


theta = np.zeros((64, 10))  # step 1: equal everywhere
alone = theta.copy()  # the single process's model
from_alone = between_ranks = 0.0
steps = len(train) // BATCH
for step in range(steps):  # step 5: repeat
    batch = np.arange(step * BATCH, (step + 1) * BATCH)
    mine = np.split(batch, comm.size)[comm.rank]

    g = gradient(theta, mine)  # step 2: the local gradient
    ALL_REDUCES["ring"](comm, g.reshape(-1))  # step 3: the sum over all ranks …
    g /= comm.size  # … and so the mean
    theta -= RATE * g  # step 4: the same update everywhere

    alone -= RATE * gradient(alone, batch)
    from_alone = max(from_alone, abs(theta - alone).max())
    highest, lowest = np.empty_like(theta), np.empty_like(theta)
    comm.mpi.Allreduce(theta, highest, MPI.MAX)
    comm.mpi.Allreduce(theta, lowest, MPI.MIN)
    between_ranks = max(between_ranks, (highest - lowest).max())

if comm.rank == 0:
    right = ((inputs @ theta).argmax(axis=1) == targets).mean()
    print(f"{steps} steps; more than 8 of 10 training images right: {right > 0.8}")
    print("largest difference from the single process below 1e-12:", bool(from_alone < 1e-12))
    print("largest difference between ranks:", between_ranks)


# %% tags=["nbval-check-output"]
def size(difference):
    return "zero" if difference == 0 else "about 1e-15" if difference < 1e-12 else "about 1e-3"


my_alone.compare(size(max(from_alone)))
my_ranks.compare(size(max(between_ranks)))

# %% [markdown]
# The distributed training *is* training in one process, on a batch K times as large. So document 002 is right that
# synchronous SGD converges: it converges as well as SGD with the larger batch, and no better.
#
# The two differ in the last digits, because a sum in another order is rounded differently. The copies of the ranks do
# **not** differ at all: they add the same bits to the same bits, because the all-reduce leaves the same bits
# everywhere (`02_ring_all_reduce`, section 7).
#
# The ranks must send their *gradients*. In document 003 each device sends its loss and differentiates the mean loss
# that comes back; but a number received in a message has no derivative (erratum 003.1).
#
# ## 2 Document 002's loop in torch.distributed
#
# This is the program that the document prints, with torch's own all-reduce. It leaves three gaps, which we have to
# fill (errata 002.9 and 002.10): each rank needs *its own* part of the data; `criterion` and the number of epochs are
# missing; and nothing makes the models equal at the start. The last gap is the most interesting. Does it matter? The
# gradients are averaged in every step, after all.
#
# Two ranks are enough to see it.
#
# **Predict:** two models with different random starts, the same averaged gradient for both. Do the copies come
# closer to each other over 100 steps?

# %%
my_closer = predict("the copies come closer", ..., "yes", "no")

# %% tags=["nbval-check-output"]
# %%mpi -n 2 --keep apart
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn, optim

rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
store = dist.TCPStore("127.0.0.1", 0, is_master=True) if rank == 0 else None
port = MPI.COMM_WORLD.bcast(store.port if store else None)  # where to meet
dist.init_process_group("gloo", store=store or dist.TCPStore("127.0.0.1", port), rank=rank, world_size=size)

torch.set_num_threads(1)
torch.manual_seed(7)
all_inputs = torch.randn(64, 10)
all_targets = all_inputs @ torch.arange(10.0).reshape(10, 1)
inputs, targets = all_inputs[rank::size], all_targets[rank::size]  # to each its own part
criterion = nn.MSELoss()


def train(seed):
    torch.manual_seed(seed)
    model = nn.Linear(10, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    before = spread(model)
    for _epoch in range(100):
        # local computation
        loss = criterion(model(inputs), targets)
        loss.backward()

        # synchronise the gradients
        dist.all_reduce(model.weight.grad, op=dist.ReduceOp.SUM)
        dist.all_reduce(model.bias.grad, op=dist.ReduceOp.SUM)
        model.weight.grad /= size
        model.bias.grad /= size

        # update the parameters
        optimizer.step()
        optimizer.zero_grad()
    return before, spread(model)


def spread(model):
    """The largest difference between the ranks' copies, over all weights."""
    highest, lowest = model.weight.detach().clone(), model.weight.detach().clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    return (highest - lowest).max().item()


apart = {}  # before and after the training
for name, seed in {"different starts": rank, "equal starts": 0}.items():
    apart[name] = train(seed)
    if rank == 0:
        print(f"{name}: the copies differ by {apart[name][0]:.3f} before, by {apart[name][1]:.3f} after 100 steps")
dist.destroy_process_group()

# %% tags=["nbval-check-output"]
before, after = apart[0]["different starts"]
my_closer.compare(before - after > 1e-3)

# %% [markdown]
# They do not come closer at all. Both copies take the same steps, so the distance between them stays what it was at
# the start. That is why DDP and Horovod users broadcast the parameters of rank 0 first, and why our ranks all begin
# with the same seed. Equal initialisation in step 1 is no formality: the method depends on it.
#
# ## 3 The real thing
#
# The scenario `sync_sgd` does the same with a real network. All its parameters are views into *one* flat
# vector, and all gradients into another, so that a step needs a single all-reduce instead of one for every
# tensor: fewer messages (减少通信的次数), each of them longer. This is its step; compare it with the five above.

# %%
print(inspect.getsource(SynchronousSGD.step))

# %% [markdown]
# `self.backward` computes the loss of this rank's part and adds its gradient. One thing is new: the gradient is
# multiplied by `share`, this rank's share of the batch, and the all-reduce is a sum. With equal shares that is the
# mean over K. Section 6 shows its other use.
#
# All runs of this notebook have the same recipe, so that a difference between two runs has one cause only.

# %%
recipe = {"data": "digits", "model": "mlp", "hidden": 256, "steps": 60, "batch": 720, "lr": 0.3, "seed": 0}
runs = {"ours": launch("sync_sgd", ranks=4, **recipe, out=folder / "ours")}


def compare(*names):
    table.show([table.comparison({name: runs[name].summary for name in names})])


compare("ours")
table.show([table.per_rank(runs["ours"].summary)])

# %% [markdown]
# The network has $64 \cdot 256 + 256 + 256 \cdot 256 + 256 + 256 \cdot 10 + 10 = 85{,}002$ parameters.
#
# **Predict:** how many bytes does a rank send in the 60 steps?

# %%
my_bytes = predict("bytes that a rank sends in 60 steps", ...)

# %% tags=["nbval-check-output"]
summary = runs["ours"].summary
print("bytes sent by each rank:", summary.bytes_sent)
print("60 steps of 2(P-1)/P n: ", 60 * 2 * (4 - 1) * (4 * 85_002) // 4)
print("different checksums among the ranks' parameters:", len(set(summary.params_sha256)))
print("more than 8 of 10 test images right:", summary.test_accuracy > 0.8)
my_bytes.compare(summary.bytes_sent[0])

# %% [markdown]
# ## 4 The twins: Horovod and DDP
#
# In practice people use **Horovod** and torch's **DistributedDataParallel** (DDP). Both do what our program does, and
# more: they begin to communicate while the backward pass is still running. The scenarios `horovod_sgd` and `ddp_sgd`
# take the same recipe, the same batches and the same start, and leave the communication to the library.
#
# **Predict:** are the three losses equal at the first step? And at the last?

# %%
my_first = predict("the losses agree to 1e-5 at the first step", ..., "yes", "no")
my_last = predict("the losses agree to 1e-5 at the last step", ..., "yes", "no")

# %%
twins = {"torch DDP": "ddp_sgd"}
if find_spec("horovod"):
    twins["Horovod"] = "horovod_sgd"
else:
    print("Horovod is not installed here, so we continue without it; farandole doctor says how to get it.")
for name, scenario in twins.items():
    runs[name] = launch(scenario, ranks=4, **recipe, out=folder / scenario)
compare(*runs)

# %% tags=["nbval-check-output"]
import numpy as np

losses = {name: np.array([line["loss"] for line in run.metrics]) for name, run in runs.items()}
accuracies = [run.summary.test_accuracy for run in runs.values()]
differences = {name: abs(losses[name] - losses["ours"]) for name in twins}
print("steps 0 to 9, largest difference in loss below 1e-5:", all(d[:10].max() < 1e-5 for d in differences.values()))
print("accuracies differ by less than 0.05:", max(accuracies) - min(accuracies) < 0.05)
my_first.compare(all(d[0] < 1e-5 for d in differences.values()))
my_last.compare(all(d[-1] < 1e-5 for d in differences.values()))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
for (name, loss), style, colour in zip(losses.items(), ("-", "--", ":"), (BLUE, ORANGE, GREEN), strict=False):
    left.plot(loss, style, color=colour, label=name, linewidth=2)
    if name in differences:
        right.semilogy(np.maximum(differences[name], 1e-9), style, color=colour, label=name, linewidth=2)
left.set(xlabel="step", ylabel="loss")
right.set(xlabel="step", ylabel="|loss − ours|")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# On the left the three curves cannot be told apart: they show one method. On the right is the difference from ours,
# on a logarithmic scale (points at the bottom are zero). The difference begins at the last digit of a float32 and
# *grows*. No implementation is wrong. Our ring adds the four gradients in another order than the libraries do, the
# sums differ in the last bit, and training amplifies small differences.
#
# How then can a test show that two implementations agree? It compares early, before the difference has grown, or in
# float64, as in section 1, where the difference starts a billion times smaller.
#
# ## 5 A straggler
#
# One slow rank is called a **straggler** (掉队者). In a cluster it may be a hot processor, a shared machine or
# a bad cable; here it is an option. With `slow="rank=3,factor=3"` rank 3 takes three times as long to compute:
# it sleeps after each computation, so it does not take the core from others.
#
# **Predict:** (a) How much slower does the whole run get? (b) Whose waiting time goes up? (c) Is the trained
# model different?

# %%
my_factor = predict("(a) how many times as long the run takes", ...)
my_waiting = predict("(b) ranks that wait longer, as a list", ...)
my_different = predict("(c) the trained model is different", ..., "yes", "no")

# %%
runs["a straggler"] = launch("sync_sgd", ranks=4, **recipe, slow="rank=3,factor=3", out=folder / "straggler")
figure, axes = plt.subplots(2, 1, figsize=(9, 5))
for ax, name in zip(axes, ("ours", "a straggler"), strict=True):
    timeline.plot(runs[name], ax, steps=5)
    ax.set_title(name, loc="left")
figure.tight_layout()

# %% [markdown]
# (White is book-keeping: every ten steps the ranks exchange their losses for the record.)

# %% tags=["nbval-check-output"]
print("the same parameters, to the bit, as without a straggler:",
      runs["a straggler"].summary.params_sha256 == runs["ours"].summary.params_sha256)  # fmt: skip
my_different.compare(runs["a straggler"].summary.params_sha256 != runs["ours"].summary.params_sha256)

# %%
compare("ours", "a straggler")
table.show([table.per_rank(runs["a straggler"].summary)])
with_it, without = runs["a straggler"].summary, runs["ours"].summary
my_factor.compare(with_it.wall_s / without.wall_s, within=0.25)
my_waiting.compare(np.flatnonzero(np.array(with_it.wait_s) > without.wait_s))

# %% [markdown]
# Only the straggler never waits. All other ranks wait for it: every row but the last has grey in it. A chain is as
# fast as its slowest dancer. Document 004 calls it the law of the barrel (木桶理论): the shortest stave decides how
# much water it holds.
#
# But the *model* is the same to the last bit. Synchronous SGD pays for slowness with time, never with accuracy.
# (The comparison also shows that runs are reproducible: the same seed, ranks and method give the same result.)
#
# ## 6 Unequal shares, and how to weight them
#
# If rank 3 is three times slower, why give it as many samples as the others? With shares of 3 : 3 : 3 : 1 all
# would finish at the same time. Yet there is a trap. Document 002's mean gives every *rank* the same weight;
# what SGD needs is the same weight for every *sample* (erratum 002.6). With $n_r$ samples on rank *r* and N in all:
#
# $$ \bar g = \sum_r \frac{n_r}{N}\, g_r $$
#
# **Predict:** for a batch of 160 in parts of 48, 48, 48 and 16, which of the two means is the gradient of the
# whole batch?

# %%
my_mean = predict("the gradient of the whole batch", ..., "the plain mean", "the weighted mean")

# %% tags=["nbval-check-output"]
rng = np.random.default_rng(0)
inputs, targets, theta = rng.standard_normal((160, 10)), rng.standard_normal(160), rng.standard_normal(10)


def gradient(rows):
    """Return the gradient of the mean squared error over `rows`."""
    return 2 * inputs[rows].T @ (inputs[rows] @ theta - targets[rows]) / len(rows)


parts = np.split(np.arange(160), [48, 96, 144])
whole = gradient(np.arange(160))
plain = sum(gradient(part) for part in parts) / 4
weighted = sum(len(part) / 160 * gradient(part) for part in parts)
print("shares:", [len(part) for part in parts])
print("the plain mean is wrong by up to", round(abs(plain - whole).max(), 2))
print("the weighted mean is wrong by less than 1e-12:", abs(weighted - whole).max() < 1e-12)
my_mean.compare("the weighted mean" if abs(weighted - whole).max() < abs(plain - whole).max() else "the plain mean")

# %% [markdown]
# With `capabilities=(3, 3, 3, 1)` the scenario cuts the shares accordingly, and `share` in its step is
# $n_r/N$. Same straggler, same recipe:

# %%
runs["straggler, fair shares"] = launch(
    "sync_sgd", ranks=4, **recipe, slow="rank=3,factor=3", capabilities=(3, 3, 3, 1), out=folder / "fair"
)
compare("ours", "a straggler", "straggler, fair shares")

# %%
figure, ax = plt.subplots(figsize=(9, 2.6))
timeline.plot(runs["straggler, fair shares"], ax, steps=5)
ax.set_title("a straggler with a smaller share", loc="left")
figure.tight_layout()

# %% [markdown]
# Rank 3 has less to do, and the grey has become shorter. It cannot vanish: part of a computation costs the same for
# any number of samples, and that part is still three times slower. (The model differs this time, because other shares
# give other batches.)
#
# ## 7 What does it cost?
#
# Document 002 puts the **cost of synchronisation** (同步代价) of a step at $C = T_\text{comm} + T_\text{comp}$.
# You have seen what is missing (erratum 002.1): the **waiting**, which can be more than both. The time of a rank's
# step is
#
# $$ T = T_\text{compute} + T_\text{communicate} + T_\text{wait} $$
#
# and the record has all three for each rank. As a share of all ranks' time:

# %%
print(f"{'':24}compute  communicate     wait")
for name, run in runs.items():
    seconds = [sum(part) for part in (run.summary.compute_s, run.summary.comm_s, run.summary.wait_s)]
    print(f"{name:24}{seconds[0] / sum(seconds):7.0%}{seconds[1] / sum(seconds):13.0%}{seconds[2] / sum(seconds):9.0%}")

# %% [markdown]
# Each later notebook reduces one of these columns: compression and better collectives the second, overlap the second
# and third, and asynchronous and stale synchronous methods the third, at the price of another model.
#
# ## What you have seen
#
# - Synchronous SGD on K ranks is SGD in one process on the union of the batches, step by step, up to rounding.
# - Averaged gradients keep equal copies equal. They do not *make* them equal.
# - The ring, Horovod and DDP are one method; their sums are rounded differently, and the difference grows.
# - A straggler costs time, not accuracy. Shares by capability win most of it back, if the gradients are
#   weighted by $n_r/N$.
#
# ## What to try
#
# 1. In section 1 forget to divide by the number of ranks. Does it still learn? Which learning rate would make
#    it right again?
# 2. In section 1 make `mine` unequal, for instance with `np.split(batch, [40, 56, 60])`. How large is the
#    difference from the single process now? Repair it.
# 3. Run ours with `collective="mpi"` and add it to the right-hand picture of section 4. Whose sums does it agree
#    with, and what does that tell you about the libraries?
# 4. Make the straggler ten times slower, then make *two* ranks slow:
#    `slow=["rank=2,factor=3", "rank=3,factor=3"]`. What does the second one cost?
# 5. With `batch=64` each rank has 16 images a step. Which column of section 7 grows, and why is a large batch
#    so tempting? Then look at the accuracy.
# 6. `launch("sync_sgd", ranks=4, fail="rank=2,step=30,how=hang", wait_timeout=5)`: synchronous training waits for every
#    rank. What if a rank never arrives?
