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
# # 22 · Decentralised training
#
# **Question:** do all ranks have to agree in every step, or is it enough to communicate with neighbours?
#
# An all-reduce gives every rank the mean of all, exactly and at once. In **decentralised SGD** (去中心化SGD) no rank
# needs it. Each rank averages its parameters with those of its neighbours in a graph, and takes its own step. A
# rank's information reaches the others over several rounds, as gossip does.
#
# (Document 001 calls a method decentralised that has a centre: erratum 001.8. The last section has it.)

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.decentralised.mixing import consensus_error, mixing_matrix, spectral_gap
from farandole.decentralised.pairing import partners
from farandole.decentralised.topologies import TOPOLOGIES, topology
from farandole.report.colours import SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 Graphs, and what they cost
#
# A rank sends its parameters to each neighbour in every round: the **degree** of the graph is the cost of a round,
# and it need not grow with the number of ranks.

# %%
_, axes = plt.subplots(1, 5, figsize=(11, 2.5), layout="constrained")
angle = 2 * np.pi * np.arange(8) / 8
x, y = np.sin(angle), np.cos(angle)
for ax, name in zip(axes, TOPOLOGIES, strict=True):
    graph = topology(name, 8)
    for number, edges in enumerate(graph.rounds):
        for one, other in edges:
            ax.annotate("", (0.9 * x[other], 0.9 * y[other]), (0.9 * x[one], 0.9 * y[one]),
                        arrowprops={"arrowstyle": "->", "color": SERIES[number], "lw": 0.8})  # fmt: skip
    ax.plot(x, y, "o", color="black", ms=5)
    degree = max(len(graph.destinations(rank, number)) for rank in range(8) for number in range(len(graph.rounds)))
    ax.set(title=f"{name}\n{degree} message{'s' if degree > 1 else ''} a rank and round", aspect="equal")
    ax.title.set_fontsize(9)
    ax.axis("off")

# %% [markdown]
# In the one-peer graph each rank sends to only one other rank, a different one in each round (each round has a
# colour); the exponential graph has all of these edges at once.
#
# ## 2 The mixing matrix
#
# With the weight $W_{ij}$ of rank *j*'s vector at rank *i*, a round is $x \leftarrow Wx$. *W* has to satisfy two
# conditions: each row sums to 1, so that equal vectors stay equal, and each column sums to 1, so that the **mean of
# all does not change**. Metropolis' weights satisfy both for any graph, and each rank needs only its neighbours'
# degrees.
#
# **Predict:** in a ring of four, how much of its own vector does a rank keep?

# %%
my_own = predict("the part of its own vector that a rank keeps (0 to 1)", ...)

# %% tags=["nbval-check-output"]
W = mixing_matrix(topology("ring", 4))
print(W)
print("rows sum to", W.sum(1), "columns to", W.sum(0))
my_own.compare(W[0, 0], within=0.02)

# %% [markdown]
# How fast do the vectors converge to their mean? The **consensus error** is the root mean square of their distances
# from it. A round multiplies it by 1 − gap or less, where the **spectral gap** (谱间隙) measures how close *W* is to
# the exact average.
#
# **Predict:** which is better for 16 ranks: a ring with two messages a round, or the exponential graph with four? And
# for 64 ranks?

# %%
my_sixteen = predict("the larger gap for 16 ranks", ..., "ring", "exponential")
my_sixty_four = predict("times as large for 64 ranks", ...)

# %% tags=["nbval-check-output"]
print("spectral gap      ", *(f"P = {ranks:<4}" for ranks in (4, 16, 64)))
for name in ("ring", "torus", "exponential", "complete"):
    print(f"{name:18}", *(f"{spectral_gap(mixing_matrix(topology(name, ranks))):<8.4f}" for ranks in (4, 16, 64)))
product = np.linalg.multi_dot([mixing_matrix(topology("one-peer-exponential", 16), number) for number in range(4)])
print("four one-peer rounds on 16 ranks are the exact average:", bool(np.allclose(product, 1 / 16)))
gaps = {(name, ranks): spectral_gap(mixing_matrix(topology(name, ranks)))
        for name in ("ring", "exponential") for ranks in (16, 64)}  # fmt: skip
my_sixteen.compare("ring" if gaps["ring", 16] > gaps["exponential", 16] else "exponential")
my_sixty_four.compare(gaps["exponential", 64] / gaps["ring", 64], within=0.5)

# %%
_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
start = np.random.default_rng(0).normal(size=(16, 1000))
for name, colour in zip(TOPOLOGIES, SERIES, strict=False):
    vectors, errors = start.copy(), []
    for number in range(24):
        errors.append(consensus_error(vectors))
        vectors = mixing_matrix(topology(name, 16), number) @ vectors
    ax.semilogy(np.maximum(errors, 1e-16), color=colour, label=name)
ax.set(xlabel="round", ylabel="consensus error", title="16 ranks, mixing alone", ylim=(1e-10, 100))
ax.spines[["top", "right"]].set_visible(False)
ax.grid(alpha=0.3)
ax.legend(frameon=False, fontsize=8)

# %% [markdown]
# The ring's gap shrinks with the square of the number of ranks; the exponential graph's hardly shrinks. And with one
# message a round the one-peer graph has the exact mean after $\log_2 16 = 4$ rounds.
#
# ## 3 Training
#
# D-PSGD (Lian et al. 2017): each rank mixes, and subtracts its own gradient.
#
# $$ x_i \leftarrow \sum_j W_{ij}\,x_j - \gamma\, \nabla f_i(x_i) $$
#
# **Predict:** how many messages does a rank send in 120 steps, on a ring of four and on the complete graph? How many
# does the ring *all-reduce* of `sync_sgd` send?

# %%
my_ring = predict("messages on a ring of four", ...)
my_complete = predict("messages on the complete graph", ...)
my_all_reduce = predict("messages of the ring all-reduce", ...)

# %% tags=["nbval-check-output"]
recipe = {"data": "digits", "hidden": 64, "steps": 120, "batch": 64, "lr": 0.2, "seed": 0}
runs = {"sync_sgd": launch("sync_sgd", 4, **recipe, out=folder / "sync")}
for name in ("ring", "one-peer-exponential", "complete"):
    runs[name] = launch("dpsgd", 4, **recipe, topology=name, out=folder / name)
for name, run in runs.items():
    mean = 0 if name == "sync_sgd" else 2 * (4 - 1)  # in the end all take the mean of all, by a ring
    print(f"{name:21} {(run.summary.messages_sent[0] - mean) / 120:g} messages a step,",
          f"{run.summary.bytes_sent[0] / runs['complete'].summary.bytes_sent[0]:.2f} of complete's bytes")  # fmt: skip
my_ring.compare(runs["ring"].summary.messages_sent[0] - 6)
my_complete.compare(runs["complete"].summary.messages_sent[0] - 6)
my_all_reduce.compare(runs["sync_sgd"].summary.messages_sent[0])

# %%
_, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
for (name, run), colour in zip(runs.items(), SERIES, strict=False):
    left.plot([line["step"] for line in run.metrics], [line["loss"] for line in run.metrics], color=colour, label=name)
    told = [line for line in run.metrics if "consensus_error" in line]
    if told:
        right.plot(
            [line["step"] for line in told], [line["consensus_error"] for line in told], "o-", ms=3, color=colour
        )
    print(f"{name:>21}: accuracy {run.summary.test_accuracy:.1%} (of the mean of all copies)")
left.set(xlabel="step", ylabel="loss of each rank's own copy, mean")
left.legend(frameon=False)
right.set(xlabel="step", ylabel="consensus error", ylim=(0, None))
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.3)

# %% [markdown]
# Even on the complete graph the copies differ: each differs from the mean by its own last gradient, and its loss is
# measured after such a step. (`--mix-after-update` mixes afterwards; on the complete graph that is synchronous SGD,
# to rounding.) The gradients increase the error, and in each round mixing removes a part of it: less on a ring than
# on the other graphs. A larger rate and less similar shards also increase the error.
#
# ## 4 One way: push-sum
#
# If edges lead one way only, simple weights fail: some ranks then count for more than others. Take three ranks, where
# 0 sends to 1 and 2, and these send back to 0.
#
# **Predict:** all begin with the numbers 0, 3 and 6, whose mean is 3. Each keeps as much as it sends to each
# receiver. Where do the numbers converge?

# %%
my_rest = predict("where they come to rest, as a list", ...)

# %% tags=["nbval-check-output"]
P = np.array([[1 / 3, 1 / 2, 1 / 2], [1 / 3, 1 / 2, 0], [1 / 3, 0, 1 / 2]])  # columns sum to 1, rows do not
x, w = np.array([0.0, 3.0, 6.0]), np.ones(3)
for _ in range(60):
    x, w = P @ x, P @ w
print("x:    ", np.round(x, 3), "   their sum is still", round(x.sum(), 6))
print("w:    ", np.round(w, 3), "   so is that of the weights,", round(w.sum(), 6))
print("x / w:", np.round(x / w, 3))
my_rest.compare(x, within=0.02)

# %% [markdown]
# If a rank has too much of *x*, it has too much of *w* by the same factor: their quotient has no bias. Training with
# it is called SGP (Assran et al. 2019): the scenario `push_sum`, here along the one-peer graph's edges, with one
# message per step.

# %%
pushed = launch("push_sum", 4, **recipe, topology="one-peer-exponential", out=folder / "push")
print(f"push-sum: accuracy {pushed.summary.test_accuracy:.1%},",
      f"consensus error at the end {pushed.metrics[-1]['consensus_error']:.3f}")  # fmt: skip

# %% [markdown]
# ## 5 Asynchronous
#
# So far neighbours wait for each other, and so in the end every rank waits for the slowest. In **AD-PSGD** (Lian et
# al. 2018) a rank that has a gradient averages with *one* neighbour and continues. Two ranks that sent each other a
# request would both wait for ever, so some ranks send requests and the others answer them.

# %% tags=["nbval-check-output"]
print("on a ring of 6, active ranks and their partners:", partners(topology("ring", 6)))
print("on a ring of 5:", partners(topology("ring", 5)))

# %% [markdown]
# **Predict:** rank 3 is four times slower. Which share of their time do the other ranks wait, in step and
# asynchronously?

# %%
my_in_step = predict("the part of their time that ranks do not compute, in step (0 to 1)", ...)

# %%
slow = {"slow": [f"rank={rank},factor=5" for rank in range(3)] + ["rank=3,factor=20"]}
for name in ("dpsgd", "ad_psgd", "sync_sgd"):
    run = launch(name, 4, **recipe, **slow, out=folder / f"slow-{name}")
    s = run.summary
    print(f"{name:>8}: {s.wall_s:5.2f} s, accuracy {s.test_accuracy:.1%},",
          f"computing {sum(s.compute_s) / (4 * s.wall_s):.0%} of the ranks' time")  # fmt: skip
my_in_step.compare(1 - sum(s.compute_s) / (4 * s.wall_s), within=0.2)

# %% [markdown]
# The slow rank does fewer of the iterations, so its shard counts for less: that is the price.
#
# ## 6 What the document describes
#
# Document 001: "the centre collects all gradients and hands each node its direction". The text leaves the rule open.
# `central_directions.py` has one: a rank's direction is the mean gradient plus a part of its own, which is larger the
# better the two agree. Without its own part it is synchronous SGD.

# %% tags=["nbval-check-output"]
directed = launch("central_directions", 4, **recipe, own_weight=0.0, out=folder / "directed")
both = zip(directed.metrics, runs["sync_sgd"].metrics, strict=True)
print("own weight 0 is synchronous SGD:", all(abs(a["loss"] - b["loss"]) < 1e-3 for a, b in list(both)[:20]))

# %% [markdown]
# ## Try
#
# - Section 3 with shards of few classes: `dynamic_sync` has `--concentration`. How would you give it to `dpsgd`?
# - `--mixing-every 4` on a ring: local SGD among neighbours.
# - `--link-mbps 20` with `sync_sgd` and with the one-peer graph: what does a step take?
# - Your own graph: a file with one edge per line, `--graph FILE`.
# - `choco_sgd --compressor sign --consensus-step 0.1`: one bit an entry between neighbours. And with a step of 1?
# - `farandole draw mixing -n 8 --topology exponential`: the weights, round by round.
