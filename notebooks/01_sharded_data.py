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
# # 01 · Sharded data
#
# **Question:** there are *N* samples and *K* ranks. Which rank works on which samples, how do they get there, and in
# which order are they used?
#
# It sounds like book-keeping, and it is. But most of the silent errors of distributed training are made here: a
# sample that two ranks hold, a few that no rank holds, a rank that runs out of batches one step before the others and
# leaves them waiting for ever. So we count.
#
# **Data parallel** training (数据并行) divides the data; every rank has a copy of the whole model. How the
# copies stay equal is the subject of `03_synchronous_sgd`.

# %%
# %load_ext farandole
import json
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import UsageError
from farandole.data import datasets
from farandole.data.sampler import EpochSampler, batch_size, steps_per_epoch
from farandole.data.shares import equal_shares, proportional_shares, slices
from farandole.report.colours import SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 The data
#
# 1,797 real handwritten digits of 8×8 pixels, which come with scikit-learn; nothing is downloaded. Before
# anything is shared out, the set is shuffled and cut into three: a **training set** (训练集) to learn from, a
# **validation set** (验证集) to choose by, and a **test set** (测试集) to judge by, which the training never
# sees. The seed decides the shuffle, so that every rank, and every run, cuts the same way.

# %% tags=["nbval-check-output"]
digits = datasets.load("digits")
train, validation, test = datasets.split(digits, seed=0)
print("all:       ", digits.inputs.shape, digits.inputs.dtype, digits.targets.dtype)
print("training:  ", len(train))
print("validation:", len(validation))
print("test:      ", len(test))

# %%
figure, axes = plt.subplots(1, 10, figsize=(9, 1.2))
for digit, ax in enumerate(axes):
    ax.imshow(train.inputs[train.targets == digit][0, 0], cmap="gray_r")
    ax.set(title=str(digit), xticks=[], yticks=[])

# %% [markdown]
# ## 2 Shards: how many for each rank?
#
# To divide the data (数据划分) is to cut them into **shards** (数据片段), one for each rank. Document 000 gives each of
# *K* nodes *N/K* samples, "and the remaining nodes *N/K* + 1". More exactly (erratum 000.3): divide with remainder.
# Every rank gets $\lfloor N/K \rfloor$, and the first $N \bmod K$ ranks get one more:
#
# $$ n_r = \lfloor N/K \rfloor + [\,r < N \bmod K\,] $$
#
# **Predict:** 10 samples, 4 ranks. And the 1,437 training images over 4 ranks?

# %%
my_shares = predict("shares of 10 samples, as a list", ...)
my_images = predict("shares of 1,437 images, as a list", ...)

# %% tags=["nbval-check-output"]
print("10 over 4:   ", equal_shares(10, 4))
print("1,437 over 4:", equal_shares(1437, 4))
my_shares.compare(equal_shares(10, 4))
my_images.compare(equal_shares(1437, 4))

# %% [markdown]
# A picture of ten samples over one to six ranks. A colour is a rank.

# %%
figure, ax = plt.subplots(figsize=(7, 2.4))
for ranks in range(1, 7):
    for rank, rows in enumerate(slices(equal_shares(10, ranks))):
        for sample in range(rows.start, rows.stop):
            ax.barh(ranks, 0.9, left=sample, height=0.8, color=SERIES[rank])
ax.set(xlabel="sample", ylabel="ranks", yticks=range(1, 7))
ax.set_xticks(np.arange(10) + 0.45, range(10))
ax.invert_yaxis()
ax.spines[["top", "right", "left"]].set_visible(False)

# %% [markdown]
# Two examples prove nothing. What must hold for *every* N and K? The shards are **disjoint** (no sample
# twice), **complete** (no sample missing), and **even** (sizes differ by at most one). The next cell checks all cases
# up to 150 samples.

# %% tags=["nbval-check-output"]
cases = 0
for samples in range(1, 151):
    for ranks in range(1, samples + 1):
        shares = equal_shares(samples, ranks)
        used = [sample for rows in slices(shares) for sample in range(rows.start, rows.stop)]
        assert used == list(range(samples)), "a sample is missing, or used twice"
        assert max(shares) - min(shares) <= 1, "not even"
        assert shares.count(samples // ranks + 1) == samples % ranks
        cases += 1
print(cases, "cases: disjoint, complete and even in each")

# %% [markdown]
# An impossible request must be refused with a clear message. A rank without a single sample would have nothing to
# compute and all others would wait for it.

# %% tags=["nbval-check-output"]
for samples, ranks in [(3, 5), (10, 0)]:
    try:
        equal_shares(samples, ranks)
    except UsageError as error:
        print(error)

# %% [markdown]
# ## 3 Scatter: one rank has the data and sends them
#
# Now the shards must get to their ranks. Every shard has a number (片段编号), every rank too, so shard *r* goes to rank
# *r*. Sending *different* pieces to all ranks is a **scatter** (数据分发). Document 000 calls it broadcasting, but in a
# **broadcast** (广播) every rank receives the *same* (erratum 000.2).
#
# A sample takes $8 \cdot 8 \cdot 4 + 8 = 264$ bytes: the pixels as float32, and the label.
#
# **Predict:** rank 0 keeps its own shard of 360 and sends away the other 1,077. How many bytes does it send?
# How many would it be if it *broadcast* the whole set to three others?

# %%
my_scatter = predict("bytes of the scatter", ...)
my_broadcast = predict("bytes of a broadcast", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep sent
import numpy as np
from mpi4py import MPI

from farandole.data import datasets
from farandole.data.shards import scatter
from farandole.data.shares import equal_shares, slices
from farandole.runtime.communicator import Communicator

comm = Communicator(MPI.COMM_WORLD)  # counts what it sends
train = datasets.split(datasets.load("digits"), seed=0).train if comm.rank == 0 else None
shares = equal_shares(1437, comm.size)
mine = scatter(train, shares, comm)
sent = comm.bytes_sent

rows = slices(shares)[comm.rank]
print(f"rank {comm.rank}: shard {comm.rank} holds rows {rows.start} to {rows.stop - 1},",
      f"{len(mine)} samples, first labels {mine.targets[:6]}, sent {sent} bytes")  # fmt: skip

# Is everything there? Pixels are sixteenths, so this sum is exact.
ink = np.array([mine.inputs.sum(dtype=np.float64)])
total = np.zeros_like(ink)
comm.mpi.Allreduce(ink, total)
if train is not None:
    print("rank 0: ink in all shards minus ink in the whole set:", total[0] - train.inputs.sum(dtype=np.float64))

# %% tags=["nbval-check-output"]
my_scatter.compare(sent[0])
my_broadcast.compare(3 * (train.inputs.nbytes + train.targets.nbytes))  # the whole set, to three ranks

# %% [markdown]
# $1077 \cdot 264 = 284{,}328$ bytes; a broadcast would have sent $3 \cdot 1437 \cdot 264$, four times as much. Notice
# that only rank 0 sends, one message after another. With a thousand ranks and a terabyte of images this would not
# work: the images would not even fit into rank 0's memory.
#
# ## 4 Each rank reads its own
#
# Where all ranks can read the same file system, the set is cut *once* into numbered files, and from then on every
# rank loads only its own part (载入一部分训练数据). The files are mapped into memory: pages are read when they are
# used.
#
# The cell below runs on one rank and writes the files. A cell under `%%mpi` sees no variable of this
# notebook, but it does inherit the **environment variables**, so we pass the folder in one of them.

# %%
os.environ["SHARDS"] = str(folder / "shards")

# %% tags=["nbval-check-output"]
# %%mpi -n 1
import os
from pathlib import Path

from farandole.data import datasets, shards
from farandole.data.shares import equal_shares

train = datasets.split(datasets.load("digits"), seed=0).train
place = Path(os.environ["SHARDS"])
shards.write(train, equal_shares(len(train), 4), place)
for file in sorted(place.glob("*.npy")):
    print(file.name, file.stat().st_size, "bytes")

# %% [markdown]
# Beside them lies `manifest.json`, written last, with the sizes and a checksum of every file. A rank checks
# its shard before it trusts it. Let us damage one byte of shard 2, as a failing disk might.
#
# **Predict:** what do the four ranks print?

# %%
my_refusing = predict("ranks that refuse their shard, as a list", ...)

# %% tags=["nbval-check-output"]
damaged = folder / "shards" / "targets-00002-of-00004.npy"
content = bytearray(damaged.read_bytes())
content[200] ^= 1
print(damaged.write_bytes(content), "bytes written, one of them wrong")

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep refused
import os
from pathlib import Path

from mpi4py import MPI

from farandole import UsageError
from farandole.data import shards

rank = MPI.COMM_WORLD.rank
place = Path(os.environ["SHARDS"])
refused = False
try:
    mine = shards.read(place, rank, 4)
    print(f"rank {rank}: {len(mine)} samples, mapped: {type(mine.inputs).__name__}, labels {mine.targets[:6]}")
except UsageError as error:
    refused = True
    print(f"rank {rank}:", str(error).replace(f"{place}/", ""))

# %% tags=["nbval-check-output"]
my_refusing.compare([rank for rank in range(4) if refused[rank]])

# %% [markdown]
# Three ranks hold exactly what `scatter` gave them. Rank 2 refuses: without the checksum it would have trained on a
# wrong label, without any error message.
#
# ## 5 An epoch: the order in which a shard is used
#
# One pass over all samples is an **epoch** (轮次). In each step all ranks together use one **mini-batch** (小批量).
# Each rank shuffles *its own* shard anew in every epoch and takes its part of each batch from it.
#
# One condition decides: in every step all ranks meet in an all-reduce. If one rank had 23 batches in its shard and the
# others 24, three ranks would wait in step 24 for a rank that has already begun the next epoch. So it is not the *batch
# size* that all ranks have in common, but the *number of steps*; a rank with more samples has larger batches.
#
# **Predict:** shares of 5, 3 and 2 samples, and 4 samples in a batch. How many steps does the epoch have, and how
# many samples does each rank use in each?

# %%
my_steps = predict("steps in the epoch", ...)
my_sizes = predict("samples of ranks 0, 1 and 2 in the first step, as a list", ...)

# %% tags=["nbval-check-output"]
shares = [5, 3, 2]
steps = steps_per_epoch(sum(shares), batch=4)
print("steps in the epoch:", steps)
for rank, share in enumerate(shares):
    sizes = [batch_size(share, steps, step) for step in range(steps)]
    sampler = EpochSampler(share, steps, seed=0, rank=rank)
    used = np.concatenate([next(sampler) for _ in range(steps)])
    print(f"rank {rank}: {sizes} samples a step; each once: {sorted(used) == list(range(share))}")
my_steps.compare(steps)
my_sizes.compare([batch_size(share, steps, 0) for share in shares])

# %% [markdown]
# ### Stop in the middle, and continue
#
# A long training run is interrupted sooner or later. If it starts again at the beginning of an epoch, some samples
# are used twice and others not at all. So the sampler's position belongs in the **checkpoint** (检查点). It is four
# numbers: from them the shuffle of any epoch can be made again.

# %% tags=["nbval-check-output"]
sampler = EpochSampler(share=360, steps=23, seed=0, rank=0)
for _ in range(30):
    next(sampler)
saved = json.dumps(sampler.state())
print("saved:", saved)
went_on = [next(sampler) for _ in range(40)]

restored = EpochSampler(share=360, steps=23, seed=0, rank=0)
restored.restore(json.loads(saved))
again = [next(restored) for _ in range(40)]
print("the next 40 batches are the same:", all(map(np.array_equal, went_on, again)))

# %% [markdown]
# ## 6 When the ranks are not equally fast
#
# Equal shares are fair only among equally fast ranks. Suppose three ranks with a **capability** (处理能力) of 3
# samples a millisecond, and one old machine with 1.
#
# **Predict:** how long does an epoch take with equal shares? How long if the shares follow the capability?

# %%
my_equal_ms = predict("milliseconds of an epoch with equal shares", ...)
my_fair_ms = predict("milliseconds with shares by capability", ...)

# %% tags=["nbval-check-output"]
capability = np.array([3, 3, 3, 1])
both = {"equal shares": equal_shares(1437, 4), "by capability": proportional_shares(1437, capability)}
for name, shares in both.items():
    finished = np.array(shares) / capability
    print(
        f"{name:14}{shares}: the first is finished after {finished.min():.0f} ms, the last after {finished.max():.0f}"
    )
my_equal_ms.compare((both["equal shares"] / capability).max(), within=0.02)
my_fair_ms.compare((both["by capability"] / capability).max(), within=0.02)

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 2.2), sharex=True, sharey=True)
for ax, (name, shares) in zip(axes, both.items(), strict=True):
    finished = np.array(shares) / capability
    ax.barh(range(4), finished.max(), color="#DDDDDD")
    ax.barh(range(4), finished, color=[SERIES[rank] for rank in range(4)])
    ax.set(title=name, xlabel="milliseconds", yticks=range(4))
axes[0].set(ylabel="rank")
axes[0].invert_yaxis()
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()

# %% [markdown]
# Grey is waiting. The work is the same and so are the machines; only the shares differ, and the epoch takes
# 144 ms instead of 359.
#
# There is a price, though. If ranks use different numbers of samples, the plain mean of their gradients is
# *no longer* the gradient of the whole batch: the old machine's few samples would count as much as the many of each
# other rank. The ranks must be weighted by $n_r/N$. Notebook `03_synchronous_sgd` measures that.
#
# ## What you have seen
#
# - Shares by division with remainder: disjoint, complete, even; checked for every case, not for one.
# - A scatter costs the root $(K-1)/K$ of the set; files by number cost no messages at all.
# - What all ranks must have in common is the number of steps.
# - A shuffle that can be made again from four numbers makes an interruption harmless.
#
# ## What to try
#
# 1. The simplest wrong formula is `N // K` for every rank. How many samples does no rank hold, at most? For which *N*
#    and *K* is it right?
# 2. Another common way is to give rank *r* the samples *r*, *r* + *K*, *r* + 2*K*, … Is it disjoint,
#    complete, even? What would the root of `scatter` then have to do that it need not do now?
# 3. In section 3 use `-n 7`, and predict the bytes that rank 0 sends before you run it.
# 4. Delete a shard's file instead of damaging it, then give `read` a wrong number of ranks. Read the
#    messages: would they have helped you at three in the morning?
# 5. Section 5 with shares of 100, 1 and 1 and `batch=4`: some ranks have batches of 0 samples in most steps.
#    Why is that right, and what must such a rank still do in every step?
# 6. Write it yourself: lab `01_sharding`.
