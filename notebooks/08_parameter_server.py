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
# # 08 · The parameter server
#
# **Question:** what if no worker had a permanent copy of the model, and the parameters lived in one place, from which
# workers fetch them and to which they send their gradients?
#
# That place is the **parameter server** (参数服务器). In a ring all ranks are equal; this is a **centralised
# architecture** (中心化架构) of **clients and servers** (client和server). Li et al. (2014) scaled it up: the *server
# group* divides the parameters among its members, a *worker group* trains one model, and workers never send messages
# to each other. Its operations are **push**, to send a gradient, and **pull**, to fetch parameters. Document 004 has
# its **training in six steps** (分布式训练流程):
#
# 1. every worker loads a part of the training data,
# 2. pulls the newest parameters from the servers,
# 3. computes a gradient from its data,
# 4. and pushes it to the servers;
# 5. the servers gather the gradients and update the model;
# 6. again from step 2, until it has converged.
#
# `parameter_server/minimal.py` is a whole training by these steps in one file, with blocking messages and nothing
# else. Read it first: it has about 100 lines, and its two rules are *stale synchronous* training, which notebook 09
# explains. Then we go through the steps one by one in a single process, where a server is an object that knows
# nothing of messages. After that we send messages.

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.data import datasets
from farandole.data.shares import equal_shares, slices
from farandole.parameter_server.core.policies import BSP, Asynchronous
from farandole.parameter_server.core.top_k import TopK
from farandole.parameter_server.core.update_rules import SGD
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.keys import HashRing, assign_by_hashing, assign_equally, cut, imbalance, moved
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.shard import Gradient, Shard
from farandole.report import table, timeline
from farandole.report.colours import BLUE, GREY, ORANGE, SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 0 All of it in one file
#
# A server and three workers, of which the last is slow. A worker may be ahead of the slowest by at most two iterations.
#
# **Predict:** by how many iterations are the two fast workers ahead, most of the time?

# %%
my_lead = predict("iterations that the fast workers are ahead", ...)

# %%
# %%mpi -n 4 --timeout 110 --keep leads
from farandole.parameter_server import minimal

leads = minimal.main(["--staleness", "2", "--slow-ms", "3"])

# %% tags=["nbval-check-output"]
my_lead.compare(max(leads[0], key=leads[0].get))

# %% [markdown]
# They run ahead as far as they may, and from then on proceed at the slow worker's pace. The slow worker starts with a
# lead of 0. The library has the same parts as separate objects, so that each can be replaced.
#
# ## 1 Six steps, in one process
#
# **Step 1: load.** There are three workers, and the digits' training images are dealt out to them. The model is one
# matrix that turns 64 pixels into ten scores, so it has 640 parameters.

# %% tags=["nbval-check-output"]
train = datasets.split(datasets.load("digits"), seed=0).train
images, labels = train.inputs.reshape(len(train), 64).astype(np.float64), train.targets
WORKERS = (0, 1, 2)
share = equal_shares(len(train), len(WORKERS))
rows = dict(zip(WORKERS, [np.arange(part.start, part.stop) for part in slices(share)], strict=True))


def gradient(parameters, rows):
    """Return the gradient of the mean cross-entropy over `rows`, flat, like the parameters."""
    scores = np.exp(images[rows] @ parameters.reshape(64, 10))
    chances = scores / scores.sum(axis=1, keepdims=True)
    chances[np.arange(len(rows)), labels[rows]] -= 1
    return (images[rows].T @ chances / len(rows)).reshape(-1)


print("images of each worker:", share)

# %% [markdown]
# Now the server. Its parameters are cut into **ranges of keys**, where a key is the number of a parameter. A message
# can then concern one range. It has a **policy** (when does a gradient count, and which worker may continue?), an
# **update rule** (what does a gradient do?), and a way to send its answers; here they go into a list. The policy is
# mini-batch synchronous; the next notebook has the others.
#
# **Step 2: pull.** A pull is also a request: *may I start my next iteration?*

# %% tags=["nbval-check-output"]
RATE = 0.5
ranges = cut(keys=640, ranges=4)
answers = []
shard = Shard(np.zeros(640), ranges, BSP(WORKERS), SGD(RATE), correction=None, limit=None, reply=answers.append)


def told():
    """Return what the server has answered since the last call."""
    said = [f"{Kind(answer.kind).name} to worker {answer.worker}" for answer in answers]
    answers.clear()
    return said or "nothing"


print("its ranges:", *[f"{part.start} to {part.stop - 1}" for part in ranges], sep="  ")
for worker in WORKERS:
    shard.pull(Header(Kind.PULL, worker=worker), now=0)
print(told())

# %% [markdown]
# The server grants all of them, because no worker is ahead of another. With a GRANT it sends the parameters.
#
# **Step 3: compute.** Each worker computes the gradient of its own part, at the parameters it has pulled.
#
# **Step 4: push.** A push contains the worker's number, the iteration (its **clock**), the gradient, and the *share*
# of all samples that it stands for.
#
# **Predict:** after which of the three pushes does the server answer, and to which workers?

# %%
my_push = predict("the push after which the server answers: 1, 2 or 3", ...)
my_workers = predict("workers that it answers, as a list", ...)


# %% tags=["nbval-check-output"]
def push(worker, clock=0, to=shard):
    """Steps 3 and 4."""
    g = gradient(to.values, rows[worker])
    header = Header(Kind.PUSH, worker=worker, clock=clock, share=len(rows[worker]) / len(train))
    to.push(header, Gradient([g[part] for part in to.slices]), now=0)


for number, worker in enumerate(WORKERS, start=1):
    push(worker)
    if answers:
        answered_push, answered = number, [answer.worker for answer in answers]
    print(f"after worker {worker}'s push the server has moved its parameters {shard.updates} times, and says", told())
my_push.compare(answered_push)
my_workers.compare(answered)

# %% [markdown]
# The first two pushes are stored and change nothing; the third completes the step. That was **step 5**, and the
# server tells all three workers that their gradients have been applied.
#
# The server has moved its parameters by the sum of share · gradient. **Predict:** is that what one process with
# all the data would have done?
#
# **Step 6: again.**

# %%
my_process = predict("the same as one process, to rounding", ..., "yes", "no")

# %% tags=["nbval-check-output"]
alone = np.zeros(640)
alone -= RATE * gradient(alone, np.arange(len(train)))
print("after one step, largest difference from one process below 1e-12:", abs(shard.values - alone).max() < 1e-12)

for clock in range(1, 100):
    for worker in WORKERS:
        shard.pull(Header(Kind.PULL, worker=worker), now=0)
    for worker in WORKERS:
        push(worker, clock)
    alone -= RATE * gradient(alone, np.arange(len(train)))
answers.clear()
right = ((images @ shard.values.reshape(64, 10)).argmax(axis=1) == labels).mean()
print("after 100 steps it is still below 1e-10:", abs(shard.values - alone).max() < 1e-10)
print(f"more than 9 of 10 training images right: {right > 0.9}")
my_process.compare(abs(shard.values - alone).max() < 1e-10)

# %% [markdown]
# So with this policy the parameter server is synchronous SGD once more (`03_synchronous_sgd`), with other messages.
# Document 004 introduces it as *the* asynchronous method (erratum 004.9), and then describes these synchronous steps.
# A parameter server says *where* the parameters are; a policy says *when* updates count. Document 000's second round
# of aggregation is not needed either (erratum 000.17): pull, compute, push is one round, and it is enough.
# (`--update twice` has both rounds, as written; notebook 09 shows the effect.)
#
# ## 2 Which server has which keys?
#
# One server for all is a bottleneck, so a group divides the keys. There are two ways. **Equal**: the first server
# gets the first run of ranges, and so on. Or by **consistent hashing** (一致性哈希): servers and ranges are hashed
# onto a circle, and each range belongs to the next server clockwise. A server has many points on the circle, its
# *virtual nodes*. With a single point its share would be left to chance.

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.8), subplot_kw={"projection": "polar"})
for ax, virtual_nodes in zip(axes, (1, 16), strict=True):
    ring = HashRing(range(4), virtual_nodes)
    ends = np.array(ring._points, dtype=np.float64) / 2**64 * 2 * np.pi
    starts = np.concatenate([[ends[-1] - 2 * np.pi], ends[:-1]])
    colours = [SERIES[owner] for owner in ring._owners]
    ax.bar(starts, 0.25, width=ends - starts, bottom=0.75, align="edge", color=colours)
    ax.scatter(ends, np.ones(len(ends)), color="black", s=12, zorder=3)
    ax.set_axis_off()
    ax.set_theta_direction(-1)
    ax.set_title(f"4 servers, {virtual_nodes} virtual node{'s' * (virtual_nodes > 1)} each")
figure.tight_layout()

# %% [markdown]
# Each dot is a virtual node, and the arc before it is the part that it takes. On the left the four colours are
# unequal; on the right the small arcs add up to nearly equal shares.
#
# **Predict:** four servers become five. How many of a million keys move to another server, if they were divided
# equally, and if they were hashed? How many *must* move at least?

# %%
my_equal = predict("per cent of the keys that move, divided equally", ...)
my_hashed = predict("per cent that move, hashed", ...)
my_least = predict("per cent that must move at least", ...)

# %% tags=["nbval-check-output"]
million = cut(keys=1_000_000, ranges=4000)
print("servers   keys that move: equal   hashing   at least    largest share / mean: equal   hashing")
for servers in (1, 2, 4, 8, 16):
    old, new = list(range(servers)), list(range(servers + 1))
    shares_moved = [
        moved(assign(million, old), assign(million, new)) / 1e6 for assign in (assign_equally, assign_by_hashing)
    ]
    balance = [imbalance(assign(million, new)) for assign in (assign_equally, assign_by_hashing)]
    print(f"{servers:2} to {servers + 1:2}{shares_moved[0]:24.1%}{shares_moved[1]:10.1%}{1 / (servers + 1):11.1%}"
          f"{balance[0]:31.2f}{balance[1]:10.2f}")  # fmt: skip
four, five = list(range(4)), list(range(5))
my_equal.compare(moved(assign_equally(million, four), assign_equally(million, five)) / 1e4, within=0.1)
my_hashed.compare(moved(assign_by_hashing(million, four), assign_by_hashing(million, five)) / 1e4, within=0.1)
my_least.compare(100 / len(five))

# %% [markdown]
# When a server joins or leaves, equal parts shift nearly every border, and about half of all keys have to move.
# Hashing moves about 1/S of them, all to the new server, which is the minimum. The price is in the last column: the
# servers' loads are equal only on average, and all workers wait for the server with the highest load.
#
# The **server manager** (document 004) does this during training. From iteration 20 on a third server takes part;
# from iteration 40 on only one is left. **Predict:** SGD with momentum remembers one number per key. How many bytes
# per moved key do the servers send each other? And do the trained parameters differ from those of a run with two
# servers all along?

# %%
my_key = predict("bytes per moved key", ...)
my_differ = predict("the trained parameters differ", ..., "yes", "no")

# %%
changing = {"servers": 2, "sync": "bsp", "update": "momentum", "lr": 0.02, "steps": 60, "assignment": "hashing"}
steady = launch("parameter_server", ranks=6, **changing, out=folder / "steady")
changes = ["step=20,servers=3", "step=40,servers=1"]
live = launch("parameter_server", ranks=7, **changing, server_change=changes, out=folder / "live")
table.show([table.server_changes(live.summary)])

# %% tags=["nbval-check-output"]
for change in live.summary.server_changes:
    print(f"from step {change['step']}: servers {change['servers']}, {change['keys']:,} of 26,122 keys moved,",
          f"about {change['bytes'] / change['keys']:.0f} bytes each")  # fmt: skip
print("the same parameters, bit by bit:", live.summary.params_sha256[0] == steady.summary.params_sha256[0])
my_key.compare(change["bytes"] / change["keys"], within=0.1)
my_differ.compare(live.summary.params_sha256[0] != steady.summary.params_sha256[0])

# %% [markdown]
# Four bytes for the parameter, four for its velocity, and a little for the headers. The second change moves the keys of
# the two servers that leave. No push was under way when the keys moved: no worker starts iteration 20 before the
# change is over. The waiting pulls were redirected to the new servers.
#
# ## 3 What push and pull promise
#
# A network may lose an acknowledgement. The worker then pushes again, but its gradient must not count twice. So the
# server keeps a **vector clock** for each range: the clock of each worker's last push.
#
# **Predict:** what does the server answer to the second of two equal pushes? And to a push from a worker that was
# declared dead and removed?

# %%
my_second = predict("the second of two equal pushes", ..., "applied", "dropped")
my_late = predict("a push of a worker that was cleaned away", ..., "applied", "dropped")

# %% tags=["nbval-check-output"]
shard = Shard(np.zeros(640), ranges, Asynchronous(WORKERS), SGD(RATE), None, None, answers.append)
push(0, to=shard)
once = shard.values.copy()
print("first: ", told())
push(0, to=shard)
second = Kind(answers[0].kind).name.lower()
print("again: ", told(), " the parameters are as before:", np.array_equal(shard.values, once))

shard.clean(1, now=0)
push(1, to=shard)
late = Kind(answers[0].kind).name.lower()
print("late:  ", told(), " the parameters are as before:", np.array_equal(shard.values, once))

g = gradient(shard.values, rows[2])
for part, keys in enumerate(shard.slices):
    header = Header(Kind.PUSH, worker=2, part=part, share=1 / 3)
    shard.push(header, Gradient([g[keys]]), now=0)
    print(f"range {part} of worker 2's gradient:", told())
my_second.compare(second)
my_late.compare(late)

# %% [markdown]
# A gradient may arrive in pieces, range by range. It counts only when it is complete, so a worker that dies in
# between has pushed nothing.
#
# Some process has to detect that a worker has died, and another to remove what it has left: its clock, for which
# other workers would wait for ever, an unanswered pull, half a push. The first is the **manager** (document 004's
# resource manager, document 001's master, 总控节点), to which all workers report; the second is document 000's
# **cleaning node** (清洗节点). The other roles are the servers (存储节点 in document 000) and the workers (工作节点).
#
# ## 4 The same with messages
#
# Six ranks: which role does each have?

# %% tags=["nbval-check-output"]
placement = Placement.usual(ranks=6, servers=2)
for rank in range(6):
    print(f"rank {rank}: {', '.join(placement.roles(rank))}")

# %% [markdown]
# Under mpirun a worker has a **`KVWorker`**. Each of its calls returns a *future* at once, and a second thread
# communicates with the servers while the first one computes (多线程机制: different threads compute and transfer).
# Here two of the three workers do nothing. The other, rank 3, pushes ones, twice each time, waits for the
# acknowledgements, and reads.
#
# **Predict:** the learning rate is 1, and a gradient of ones with a share of ½ is subtracted from zeros. What
# does it read after its first and its second iteration?

# %%
my_readings = predict("what it reads after its first and second iteration, as a list", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 6 --timeout 110 --keep readings
import numpy as np

from farandole.parameter_server import cluster
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.training import application
from farandole.runtime.world import World


class NoRecord:
    def start(self):
        pass

    def stop(self):
        pass


readings = []


def work(kv):
    values = np.empty(1000)
    while world.rank == 3 and (start := kv.wait(kv.pull(values), "pull")):
        first = kv.push(np.ones(1000), start.clock, share=0.5)
        second = kv.push(np.ones(1000), start.clock, share=0.5)
        kv.wait(first, "push")
        again = "dropped" if kv.wait(second, "push") is None else "applied"
        kv.wait(kv.read(values), "read")
        readings.append(values[0])
        print(
            f"rank 3: iteration {start.clock} is acknowledged; its duplicate was {again}; all values read:",
            set(values.tolist()),
        )


options = PolicyOptions(sync="async", steps=1, lr=1.0, servers=2)
with World.start(options) as world:
    placement = Placement.usual(world.size, servers=2)
    model = application(options, placement.workers, placement.workers, np.zeros(1000))
    outcome = cluster.run(world, NoRecord(), options, placement, [model], work, reported=lambda report: None)
    if world.rank == 0:
        print("the cleaning node has removed:", dict(outcome.cleaned))

# %% tags=["nbval-check-output"]
my_readings.compare(readings[3][:2])

# %% [markdown]
# Each half is there, and only once: a **read after an acknowledgement sees the push**. The training consists of three
# iterations, one for each worker on average. Afterwards the cleaning node has removed the clocks of rank 3, one for
# each of the 32 ranges; the others had none.
#
# Now a training run. We compare the scenario `parameter_server`, with `sync="bsp"` and three workers, and `sync_sgd`
# with three ranks: same data, same batches, same start.

# %%
recipe = {"data": "digits", "hidden": 128, "batch": 240, "steps": 60, "seed": 0}
runs = {
    "two servers": launch("parameter_server", ranks=6, sync="bsp", servers=2, **recipe, out=folder / "servers"),
    "ring": launch("sync_sgd", ranks=3, **recipe, out=folder / "ring"),
}
table.show([table.comparison({name: run.summary for name, run in runs.items()}),
            table.per_rank(runs["two servers"].summary)])  # fmt: skip

# %%
figure, ax = plt.subplots(figsize=(9, 3.2))  # rank 0 is the manager, 1 and 2 are servers, 3 to 5 workers
timeline.plot(runs["two servers"], ax, steps=4, title="two servers")
figure.tight_layout()

# %% [markdown]
# **Predict:** how far are the two losses apart, on average over all samples?
#
# **Predict:** the network has 26,122 parameters of 4 bytes. How many bytes does a server send in 60 steps, and how many
# a worker? Which is the bottleneck, and what would four servers change?

# %%
my_apart = predict("the mean losses differ by", ..., "less than 0.001", "more")
my_server = predict("models that a server sends per step", ...)
my_worker = predict("models that a worker sends per step", ...)


# %% tags=["nbval-check-output"]
def mean_loss(name):
    """Return the mean loss over all samples of a run."""
    lines = runs[name].metrics
    return sum(line["loss"] * line["samples"] for line in lines) / sum(line["samples"] for line in lines)


print("mean losses differ by less than 1e-3:", abs(mean_loss("two servers") - mean_loss("ring")) < 1e-3)
model, sent = 4 * 26_122, runs["two servers"].summary.bytes_sent
print(f"each server, in models per step: {[round(b / model / 60, 1) for b in sent[1:3]]}")
print(f"each worker, in models per step: {[round(b / model / 60, 1) for b in sent[3:]]}")
print(f"a rank of the ring:              {[round(b / model / 60, 1) for b in runs['ring'].summary.bytes_sent]}")
print("what was cleaned up:", runs["two servers"].summary.cleaned)
my_apart.compare("less than 0.001" if abs(mean_loss("two servers") - mean_loss("ring")) < 1e-3 else "more")
my_server.compare(sent[1] / model / 60, within=0.05)
my_worker.compare(sent[3] / model / 60, within=0.05)

# %% [markdown]
# A server sends half a model to each of three workers, and receives as much. With P workers and S servers that is P/S
# models each way, and it grows with P; a rank of the ring sends 2(P−1)/P, always less than 2. That is why the ring is
# better where all ranks are equally fast and need the whole model. A server has two other advantages. Its workers
# need not proceed in step. And where a worker's data touch few parameters, messages concern only these (a worker
# pulls the ranges or rows it needs, not *all* parameters: erratum 004.13).
#
# ## 5 A tree between
#
# Document 004 puts a **tree** (树状结构) between clients and server: aggregators sum the gradients of a few workers
# and forward one. The next cell has four workers and one server, directly and through two aggregators:

# %%
small = recipe | {"steps": 40, "sync": "bsp"}
runs |= {
    "direct": launch("parameter_server", ranks=6, **small, out=folder / "direct"),
    "tree": launch("parameter_server", ranks=8, tree=2, **small, out=folder / "tree"),
}

# %% [markdown]
# **Predict:** what does the server send per step now, in models? And what do all ranks together send?

# %%
my_root = predict("models that the server sends per step, with the tree", ...)
my_all = predict("models that all ranks together send per step", ...)

# %% tags=["nbval-check-output"]
print("roles with the tree:", [", ".join(Placement.usual(8, 1, fan_in=2).roles(rank)) for rank in range(8)])
for name in ("direct", "tree"):
    sent = [b / model / 40 for b in runs[name].summary.bytes_sent]
    print(f"{name:8}the server sends {sent[1]:.1f} models per step, all ranks together {sum(sent):.0f}")
print("mean losses differ by less than 1e-3:", abs(mean_loss("direct") - mean_loss("tree")) < 1e-3)
my_root.compare(sent[1], within=0.05)
my_all.compare(sum(sent), within=0.05)

# %% [markdown]
# The server's load is halved, and the total has grown: every model and every gradient makes one more hop. A tree pays
# off where the server's network card is saturated, and it costs latency. Within one computer there is nothing to
# gain.
#
# ## 6 Push only the largest
#
# What should a client push? Document 004: "the parameters with the longest step" (步长最长的参数), that is, the
# entries with the largest gradient. And the other entries? If a client drops them, they are lost for ever (erratum
# 004.11). If it keeps them and adds them to the next gradient (*error feedback*), they are sent once they have grown.

# %% tags=["nbval-check-output"]
rng = np.random.default_rng(0)
chooser = TopK(length=640, fraction=0.05, dtype=np.dtype(np.float64))
all_gradients, all_sent = np.zeros(640), np.zeros(640)
for _ in range(50):
    g = rng.integers(-100, 100, 640).astype(np.float64)  # whole numbers, so that sums are exact
    entries, values = chooser.choose(g)
    all_gradients += g
    all_sent[entries] += values
print(f"sent each time: {chooser.count} of 640 entries")
print("sent + kept = all gradients, exactly:", np.array_equal(all_sent + chooser.residual, all_gradients))

# %% [markdown]
# **Predict:** with `--topk 0.01` a worker pushes 1 % of the entries. By which factor do the bytes that *workers*
# send shrink: 100, or less? And those that *servers* send?

# %%
my_pushed = predict("the factor by which the bytes of workers shrink", ...)
my_pulled = predict("the factor for the servers", ...)

# %%
runs["top 1 %"] = launch("parameter_server", ranks=6, topk=0.01, **small, out=folder / "topk")
table.show([table.comparison({name: runs[name].summary for name in ("direct", "top 1 %")})])

# %% tags=["nbval-check-output"]
direct, top = (runs[name].summary.bytes_sent for name in ("direct", "top 1 %"))
entries = round(0.01 * 26_122)
print(f"{entries} entries, each a 4-byte number of its row and a 4-byte value: {8 * entries} bytes a push")
print("a worker sends more than 30, but less than 50 times less:", 30 < direct[2] / top[2] < 50)
print(f"the server sends the same as before: {top[1] / direct[1]:.2f}")
my_pushed.compare(direct[2] / top[2], within=0.2)
my_pulled.compare(direct[1] / top[1], within=0.05)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
for name, colour in (("direct", BLUE), ("top 1 %", ORANGE)):
    metrics = runs[name].metrics
    left.plot([line["step"] for line in metrics], [line["loss"] for line in metrics], color=colour, label=name)
left.set(xlabel="step", ylabel="loss")
left.legend(frameon=False)
names = ["direct", "tree", "top 1 %"]
right.bar(names, [runs[name].summary.bytes_sent[1] / 1e6 for name in names], color=BLUE, label="the server")
others = [(sum(runs[name].summary.bytes_sent) - runs[name].summary.bytes_sent[1]) / 1e6 for name in names]
right.bar(names, others, bottom=[runs[name].summary.bytes_sent[1] / 1e6 for name in names], color=GREY, label="others")
right.set(ylabel="MB sent")
right.legend(frameon=False)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()

# %% [markdown]
# Not 100 times: each entry needs its index, which makes it twice as long, a push has a header, and in every step a
# worker reports to the manager. And only one direction has become smaller, because the pulls still fetch the whole
# model. On the left you see what it costs in learning: gradients come late, and the loss lags behind.
#
# ## 7 Until it has converged
#
# Step 6 says: again, until the last iteration *or until the model has converged*. Which process detects that?
# Document 001 has its asynchronous update: a background thread looks at the model's latest state from time to time,
# and decides whether the updates continue (决定是否继续进行模型的更新). Here it is a second thread of the manager. It
# reads the parameters like a client that does not train, so no worker waits for it.
#
# **Predict:** three workers could take 20,000 iterations each. The thread looks every 50 ms, and ends the training when
# the validation loss is below 0.8. Are gradients lost that are under way at that moment?

# %%
my_lost = predict("gradients are lost", ..., "yes", "no")

# %%
enough = launch("parameter_server", ranks=5, sync="async", steps=20_000, stop_below=0.8, check_every=0.05,
                out=folder / "enough").summary  # fmt: skip
table.show([table.stopping(enough)])

# %% tags=["nbval-check-output"]
last = enough.stopping["checks"][-1]
print("ended long before 60,000 gradients:", enough.steps < 6_000)
print("for a loss below 0.8:", last["loss"] < 0.8)
print("each iteration begun has been applied:", sum(enough.lead.values()) == enough.steps)
my_lost.compare(sum(enough.lead.values()) != enough.steps)

# %% [markdown]
# The training ends as usual: at its next pull a worker is told that no work is left. Iterations that have begun still
# count.
#
# ## What you have seen
#
# - Document 004's six steps with the synchronous policy *are* synchronous SGD.
# - Keys in ranges; equal parts balance best, consistent hashing moves the fewest keys when servers change.
# - A duplicate push counts once, half a push not at all, and a read after the acknowledgement sees the push.
# - A server's bytes grow with the number of workers; more servers, a tree or smaller pushes each cut a part of it.
#
# ## What to try
#
# 1. In section 1 give the workers unequal parts (change `share`, keep the sum). Is the result still that of one
#    process? What if every push says `share=1/3`?
# 2. In section 2 set `assign_by_hashing(..., virtual_nodes=1)`, then 1000. What happens to the last column, and
#    what to the number of keys that move?
# 3. Launch with `servers=2, assignment="hashing"` and compare the two servers' bytes in `table.per_rank`.
# 4. Launch two applications at once on one server: `applications=2`. Which ranks train which model?
# 5. Launch with `place="servers=0+1,workers=2-5,cleaner=1"`: a server beside the manager, the cleaning node beside
#    the other. Which roles can a rank have at the same time, and which not? Try `workers=1-5`.
# 6. `topk=0.001`, then 0.1. Where does the loss begin to suffer?
# 7. In section 4 let the client push with `start.clock + 1` the second time. Why does the server not drop that push?
