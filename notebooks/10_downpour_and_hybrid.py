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
# # 10 · Downpour, and the hybrid of servers and workers
#
# **Question:** so far every iteration pulled *all* parameters and pushed *a whole* gradient. Can a worker communicate
# less: less often, or fewer parameters? And what is lost?
#
# Two answers, both from the documents. **DistBelief** (document 001) communicates less often. The **hybrid** of
# document 000 keeps at the centre only the parameters that are used often (热门参数); the others stay with the worker
# that uses them.

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.report.colours import BLUE, GREEN, ORANGE
from farandole.report.curves import smooth
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 Fetch now and then, push now and then
#
# In Downpour SGD each worker is a *replica* of the model. It fetches the parameters every $n_\text{fetch}$
# iterations and pushes the sum of its gradients every $n_\text{push}$; in between it trains its own copy. The servers
# apply every push at once (异步更新), with Adagrad, which takes smaller steps where gradients have been large.
#
# Fetching and pushing happen in the client's second thread while the replica computes. To *count* messages we turn
# that off (`overlap=False`): one replica, 60 iterations.
#
# **Predict:** with 5/5 instead of 1/1, by what factor do the replica's bytes go down? And the server's?

# %%
my_replica = predict("the factor for the replica", ...)
my_server = predict("the factor for the server", ...)

# %% tags=["nbval-check-output"]
quiet = {"steps": 60, "overlap": False}
every, fifth = (launch("downpour", 3, n_fetch=n, n_push=n, **quiet, out=folder / f"count-{n}").summary for n in (1, 5))
print(f"the server's part:  1/{every.bytes_sent[1] / fifth.bytes_sent[1]:.1f}")
print(f"the replica's part: 1/{every.bytes_sent[2] / fifth.bytes_sent[2]:.1f}")
my_replica.compare(every.bytes_sent[2] / fifth.bytes_sent[2], within=0.1)
my_server.compare(every.bytes_sent[1] / fifth.bytes_sent[1], within=0.1)

# %% [markdown]
# A fifth, as expected: the cost is in the messages of n bytes, and there are $1/n_\text{fetch} + 1/n_\text{push}$ of
# them per iteration instead of 2. (The tests compare a single replica with 1/1 to torch's own Adagrad, parameter by
# parameter, at every step: there the two are the same.)
#
# The price is staleness: a gradient that is pushed now was computed at parameters fetched up to
# $n_\text{fetch} + n_\text{push}$ iterations ago, and three replicas push at the same time. Does it still learn?

# %%
runs = {
    f"{n} / {n}": launch("downpour", 5, steps=120, n_fetch=n, n_push=n, slow="rank=4,factor=4", out=folder / f"dp-{n}")
    for n in (1, 5, 20)
}
figure, (curve, bars) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for (name, run), colour in zip(runs.items(), (BLUE, GREEN, ORANGE), strict=True):
    losses = smooth(np.array([line["loss"] for line in run.metrics]))
    curve.plot([line["wall_s"] for line in run.metrics], losses, color=colour, label=name)
    staleness = {int(value): count for value, count in run.summary.staleness.items()}
    total = sum(staleness.values())
    bars.plot(list(staleness), [count / total for count in staleness.values()], "o-", color=colour, label=name)
curve.set(xlabel="seconds", ylabel="training loss", yscale="log")
bars.set(xlabel="staleness of a push (updates by others)", ylabel="share of pushes")
for axes in (curve, bars):
    axes.grid(alpha=0.3)
    axes.legend(title="n_fetch / n_push", frameon=False)
for name, run in runs.items():
    s = run.summary
    print(f"{name:>7}: accuracy {s.test_accuracy:.1%}, {s.wall_s:.1f} s, server sent {max(s.bytes_sent) / 1e6:.0f} MB")

# %% [markdown]
# One of the three replicas is four times slower, and no other waits for it: the others simply do more of the work.
# All three settings learn. With fewer messages, fewer updates fall between a fetch and a push, because the other
# replicas also push less often. Instead, each replica moves further from the servers' parameters.
#
# **Try:** `local_lr=0` switches the replica's own steps off; then 20/20 computes twenty gradients at the same
# parameters. What happens to the accuracy?
#
# **Which batches does a replica compute?** So far each draws batches from its own share of the data. When a replica
# dies, its samples are no longer used. In document 001 the centre submits the tasks (计算任务提交给工作节点): the
# manager assigns numbers of mini-batches to idle replicas. Here one replica is four times slower, and another is
# killed during training.
#
# **Predict:** 60 steps of three workers are 180 mini-batches, five of them a task. How many of the 36 tasks are
# computed? Which of the three computes the most?

# %%
my_tasks = predict("tasks that are computed, of 36", ...)
my_most = predict("the worker that has done most: 2, 3 or 4", ...)

# %%
accidents = {"slow": "rank=4,factor=4", "fail": "rank=3,step=4"}
tasks = launch("downpour", 5, tasks=True, steps=60, **accidents, out=folder / "tasks").summary
done_by = {int(worker): done for worker, done in tasks.tasks["done_by"].items()}
for worker, what in ((2, "neither slow nor killed"), (3, "killed as it had its fifth task"), (4, "four times slower")):
    print(f"worker {worker}, {what}: {done_by.get(worker, 0)} tasks")

# %% tags=["nbval-check-output"]
print("tasks that counted:", tasks.steps, "=", sum(done_by.values()))
print("the one that was killed has done four at most:", done_by.get(3, 0) <= 4)
my_tasks.compare(tasks.steps)
my_most.compare(max(done_by, key=done_by.get))

# %% [markdown]
# All 36, each once. The manager gave the dead replica's task to another replica. It gave the slow replica's last task
# to a second worker as well (a *backup task*), and the servers count only the first push of a task.
#
# ## 2 When workers call things by different names
#
# Document 001 says of DistBelief that the master gives the workers global *label information*, which maps different
# local labels to the same meaning (对齐标签信息; DistBelief itself is about something else, erratum 001.4). It is a
# real problem: data collected in three places comes with three numberings.

# %% tags=["nbval-check-output"]
from farandole.parameter_server.labels import align

alignment = align([["cat", "dog"], ["dog", "horse", "cat"]])
print("the common names:", alignment.names)
for worker, numbers in enumerate(alignment.to_common):
    print(f"worker {worker}: its labels {list(range(len(numbers)))} are {numbers.tolist()}")

# %% [markdown]
# In the scenario each worker has six of the ten digits, numbered in its own way. It sends the manager their names,
# and the manager answers with the common numbers. Without that, "2" is a three for one worker and an eight for
# another.
#
# **Predict:** the accuracy without alignment, if a worker reads the model's answers in its own numbering.

# %%
my_accuracy = predict("the accuracy without alignment (0 to 1)", ...)

# %% tags=["nbval-check-output"]
aligned = launch("downpour", 5, steps=400, label_sets=6, out=folder / "aligned").summary.test_accuracy
unaligned = launch("downpour", 5, steps=400, label_sets=6, align=False, out=folder / "unaligned").summary.test_accuracy
print("aligned: more than 8 of 10 right:", aligned > 0.8)
print("not aligned: fewer than half right:", unaligned < 0.5)
my_accuracy.compare(unaligned, within=0.25)

# %% [markdown]
# ## 3 Which parameters need a server at all?
#
# Text differs from pixels: of 65,536 words and pairs of words a passage contains about fifty. A *sparse* worker pulls
# the rows that its next batch needs, and pushes the gradient of these rows. But many rows are needed by one worker
# only, because the words are rare and occur only in its documents. Why send these rows at all?
#
# Here is the rule on a small scale: how often has each of two workers updated each of five rows?

# %% tags=["nbval-check-output"]
from farandole.parameter_server.frequency import UpdateCounts, divide

counts = np.array([[9, 4, 0, 1, 0], [8, 0, 7, 1, 0]])  # worker × row, in 10 batches each
division = divide(UpdateCounts(counts, batches=np.array([10, 10])))
for row, owner in enumerate(division.owner):
    place = "at the centre" if owner < 0 else f"with worker {owner}"
    print(f"row {row}, updated {counts[0, row]} and {counts[1, row]} times, lives {place}")

# %% [markdown]
# Rows that several workers update are shared and must be where all workers can read them. A row that only one worker
# updates can be stored with it, and the result is *the same*: no other worker ever reads it. Now we do this for the
# text, with three workers: we count over one epoch, divide the rows, and train in step.
#
# **Predict:** are the trained parameters of both runs equal to the last bit?

# %%
my_equal = predict("equal to the last bit", ..., "yes", "no")

# %% tags=["nbval-check-output"]
centre = launch("hybrid_parameters", 5, hot=0.0, steps=30, out=folder / "centre")
hybrid = launch("hybrid_parameters", 5, steps=30, out=folder / "hybrid")
print("same parameters to the last bit:", centre.summary.params_sha256[0] == hybrid.summary.params_sha256[0])
for name, run in {"all at the centre": centre, "hybrid": hybrid}.items():
    print(f"{name:>17}: {sum(run.summary.bytes_sent) / 1e6:.1f} MB sent")
my_equal.compare(centre.summary.params_sha256[0] == hybrid.summary.params_sha256[0])

# %%
import json

mixed = launch("hybrid_parameters", 5, steps=1, shards="shuffled", out=folder / "mixed")  # only to divide its rows
figure, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
for place, (name, run) in enumerate({"whole documents": hybrid, "shuffled passages": mixed}.items()):
    told = json.loads((run.folder / "division.json").read_text())
    left = 0
    parts = [told["at_the_centre"], *told["with_each_worker"]]
    for part, colour in zip(parts, (BLUE, GREEN, ORANGE, "0.6"), strict=True):
        axes.barh(name, part, left=left, color=colour)
        left += part
    sent = told["rows_sent_per_epoch"] / told["rows_sent_per_epoch_without"]
    axes.text(left, place, f" {sent:.0%} of the rows still travel", va="center")
axes.set(xlabel="rows: at the centre (blue), and with each of the three workers", xlim=(0, 27_000))
axes.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# Most rows are stored with a worker, and yet many messages remain: the rows at the centre are few but *hot*, and
# occur in nearly every batch. That is Zipf's law, and the reason for document 000's rule to divide by frequency. The
# distribution of the documents matters, too: with shuffled passages more words occur at several workers, and more
# rows must be sent.
#
# So far a row that *two* workers update is at the centre, even if they update it rarely. Document 000 goes further:
# only the hot parameters are at the centre, and *all* others with the clients (其他参数保存在各个客户端节点). A cold
# row that several workers update is then stored with the worker that updates it most. In every step the others
# request the row from that worker, and send it their gradients.
#
# **Predict:** rows in more than a tenth of all batches are hot. Do the trained parameters change? Which share of the
# rows at the centre moves to the clients?

# %%
my_change = predict("the trained parameters change", ..., "yes", "no")
my_moving = predict("the part of the centre's rows that moves (0 to 1)", ...)

# %% tags=["nbval-check-output"]
cold = launch("hybrid_parameters", 5, steps=30, hot=0.1, cold="clients", out=folder / "cold")
print("same parameters to the last bit:", centre.summary.params_sha256[0] == cold.summary.params_sha256[0])
for name, run in {"all at the centre": centre, "hybrid": hybrid, "cold at clients": cold}.items():
    told = json.loads((run.folder / "division.json").read_text())
    print(f"{name:>17}: {told['at_the_centre']:6,} rows at the centre, {sum(run.summary.bytes_sent) / 1e6:.1f} MB sent")
rows = [json.loads((run.folder / "division.json").read_text())["at_the_centre"] for run in (hybrid, cold)]
my_change.compare(centre.summary.params_sha256[0] != cold.summary.params_sha256[0])
my_moving.compare(1 - rows[1] / rows[0], within=0.1)

# %% [markdown]
# Most of the shared rows are cold. But rows that are rarely used are also rarely sent: the bytes fall by less than
# the number of rows at the centre. The price is that all workers now communicate with each other, and have to proceed
# in step.
#
# Document 000 calls this hybrid parallel (混合并行). Today that name usually means data and model parallel in one
# grid (erratum 000.12); this is a hybrid of *where parameters are stored*. Parallax (Kim et al. 2019) is close to it:
# sparse parameters on servers, dense ones by all-reduce.
#
# ## Try
#
# - `hot=0.05`: rows in more than a twentieth of all batches go to the centre even if only one worker updates
#   them. What changes?
# - `launch("hybrid_parameters", 5, sync="ssp", update="adagrad", lr=1.0)`: local rows are always up to date,
#   central ones may be stale.
# - Downpour with `n_fetch=1, n_push=20` and with 20 and 1: which of the two hurts?
