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
# # 12 · A model in parts
#
# **Question:** what if a model does not fit on one device?
#
# Until now every rank had the whole model, and the *data* were divided. **Model parallel** (模型并行) divides the
# model. The plainest way is to cut it between its layers: each rank gets some of them, activations pass from rank
# to rank on the way forward, and their gradients on the way back.
#
# Document 000 gives the steps: the **model is uploaded** (上传模型) to a root, **cut** (切分模型) into sub-models,
# all nodes learn where each part is stored, each part is sent to its node, all train, and in the end the whole model
# is gathered again. But it also says that "every node runs the complete network". That would be data parallel
# (erratum 000.5). We follow the steps, and let each node run its part.

# %%
# %load_ext farandole
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

from farandole import launch
from farandole.model_parallel.partition import largest_cost, min_max_partition
from farandole.report import pipeline_picture, timeline
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
os.environ["RESULTS"] = str(folder)  # a cell under %%mpi inherits the environment, but no variables
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 Where to cut
#
# Parts must be *contiguous*: the second layer needs what the first one has computed. So there are not many cuts, and
# there is a best one: a chain of parts is as slow as its slowest part, so **the costliest part should cost as
# little as possible**.
#
# **Predict:** nine layers cost 1, 2, 3, 4, 5, 6, 7, 8 and 9. How would you cut them into three parts? How much does
# the costliest part cost if each part has three layers?

# %%
my_parts = predict("layers in the three parts, as a list", ...)
my_thirds = predict("the costliest part, of three layers each", ...)

# %% tags=["nbval-check-output"]
costs = [1, 2, 3, 4, 5, 6, 7, 8, 9]
thirds = [slice(0, 3), slice(3, 6), slice(6, 9)]
for name, parts in {"three layers each": thirds, "the best": min_max_partition(costs, 3)}.items():
    print(f"{name:18} {[costs[part] for part in parts]}  the costliest: {largest_cost(costs, parts)}")
print("a third of all would be", sum(costs) / 3)
my_parts.compare([len(costs[part]) for part in min_max_partition(costs, 3)])
my_thirds.compare(largest_cost(costs, thirds))

# %% [markdown]
# Exactly a third each is impossible, because layers are not divided here. Dynamic programming finds the best cut in
# twenty lines (`model_parallel/partition.py`): the best cut of n layers into k parts ends with *some* last part, and
# the layers before it are cut best into k − 1 parts.
#
# But what does a layer cost? Its time, if speed matters; its memory, if memory is short. Both can be measured. Here
# is a small convolutional network for images of 28 × 28 pixels, on a batch of 64.
#
# **Predict:** which layers take the most time? And which hold the most parameters?

# %%
my_time = predict("the layers that take the most time", ..., "Conv2d", "Linear")
my_parameters = predict("the layers with the most parameters", ..., "Conv2d", "Linear")

# %%
# %%mpi -n 1
import json
import os
from pathlib import Path

import torch

from farandole.data import datasets
from farandole.model_parallel import layer_split
from farandole.models.classifiers import cnn

torch.set_num_threads(1)
layers = list(cnn(datasets.shape("mnist5k"), datasets.classes("mnist5k")))
samples = torch.rand(64, *datasets.shape("mnist5k"))
plans = {balance: layer_split.cut(layers, samples, 3, balance) for balance in ("time", "memory")}
print(f"{'layer':12}{'milliseconds':>14}{'KiB':>8}")
for layer, seconds, nbytes in zip(layers, plans["time"].costs, plans["memory"].costs, strict=True):
    print(f"{type(layer).__name__:12}{seconds * 1e3:14.2f}{nbytes / 1024:8.0f}")
costs = {balance: plan.costs for balance, plan in plans.items()}
costs["names"] = [type(layer).__name__ for layer in layers]
costs["parameters"] = [sum(each.numel() for each in layer.parameters()) for layer in layers]
(Path(os.environ["RESULTS"]) / "costs.json").write_text(json.dumps(costs))

# %%
import json

costs = json.loads((folder / "costs.json").read_text())
names, numbers = costs.pop("names"), costs.pop("parameters")
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.2), sharey=True)
for ax, (balance, values) in zip(axes, costs.items(), strict=True):
    shares = np.array(values) / sum(values)
    for rank, part in enumerate(min_max_partition(values, 3)):
        places = np.arange(len(values))[part]
        ax.barh(places, shares[part], color=SERIES[rank], label=f"rank {rank}: {shares[part].sum():.0%}")
    ax.set(yticks=range(len(names)), yticklabels=names, xlabel="share of all", title=f"cut by {balance}")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].invert_yaxis()
figure.tight_layout()
taken, held = {}, {}
for kind, seconds, number in zip(names, costs["time"], numbers, strict=True):
    taken[kind] = taken.get(kind, 0.0) + seconds
    held[kind] = held.get(kind, 0) + number
my_time.compare(max(("Conv2d", "Linear"), key=taken.get))
my_parameters.compare(max(("Conv2d", "Linear"), key=held.get))

# %% [markdown]
# Convolutions take the time, because each of their few parameters is used at every pixel. The memory goes to the
# large images between them, which must be kept for the backward pass, and to one linear layer with most of the
# parameters. So there are two best cuts, and they differ. (The bars of time differ from computer to computer.)
#
# ## 2 Upload, cut, tell, send, gather
#
# Now with three ranks. Rank 0 is the root. The others build their layers on torch's *meta device*, where a tensor has
# a shape but no memory: no rank but the root ever holds the whole model.
#
# **Predict:** how many parameters does the root send to the others?

# %%
my_away = predict("parameters that the root sends away", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 3 --keep sent
import torch

from farandole.data import datasets
from farandole.model_parallel import layer_split
from farandole.models.classifiers import cnn
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World


def build():
    return list(cnn(datasets.shape("mnist5k"), datasets.classes("mnist5k")))


def parameters(layers):
    return sum(parameter.numel() for layer in layers for parameter in layer.parameters())


with World.start(RunOptions()) as world:
    layers, plan = [], None
    if world.rank == 0:
        layers = build()  # upload: the whole model is at the root …
        samples = torch.rand(64, *datasets.shape("mnist5k"))
        plan = layer_split.cut(layers, samples, 3, "memory")  # … which cuts it
        print(f"the whole model: {len(layers)} layers, {parameters(layers):,} parameters")
    plan = layer_split.agree(plan, world)  # tell: all know where each part lives
    holders = {0: [0], 1: [1], 2: [2]}
    parts = layer_split.send_parts(plan, build, layers, holders, world)  # send
    part, sent = parts[world.rank], world.comm.bytes_sent
    print(
        f"rank {world.rank} has layers {plan.bounds[world.rank]} to {plan.bounds[world.rank + 1] - 1},",
        f"{parameters(part):,} parameters, is given {plan.shapes[world.rank]} per sample,",
        f"and has sent {sent:,} bytes",
    )
    whole = layer_split.gather(plan, build, parts, holders, world)  # gather
    if world.rank == 0:
        same = all(map(torch.equal, whole.state_dict().values(), torch.nn.Sequential(*layers).state_dict().values()))
        print("gathered again, it is what was uploaded:", same)

# %% tags=["nbval-check-output"]
my_away.compare(sent[0] // 4)  # of 4 bytes each

# %% [markdown]
# The root has sent 4 bytes for every parameter of the other parts, and every rank knows from the plan what its
# neighbours will send. No message will have to say how large it is.
#
# ## 3 Training: one loss, and gradients that arrive
#
# A rank that receives activations does not need to know where they came from. In the backward pass it receives the
# gradient *of its outputs*, and torch's `outputs.backward(gradient)` continues from there:
#
# $$ \frac{\partial L}{\partial w_i} = \frac{\partial L}{\partial y_i}\,\frac{\partial y_i}{\partial w_i},\qquad
# \frac{\partial L}{\partial y_{i-1}} = \frac{\partial L}{\partial y_i}\,\frac{\partial y_i}{\partial y_{i-1}} $$
#
# There is *one* loss for the batch, on the last rank. Document 003 has a sum of losses over devices
# (erratum 003.6), and an aggregator to which all send their updates (erratum 003.7). There is nothing to
# aggregate: the parts have no parameter in common.
#
# **Predict:** how many messages does each of three ranks send per step? Will the parts become exactly what the model
# would have become on one device?

# %%
my_messages = predict("messages of ranks 0, 1 and 2 per step, as a list", ...)
my_same = predict("the same model as on one device, to rounding", ..., "yes", "no")

# %% tags=["nbval-check-output"]
# %%mpi -n 3 --keep messages,difference
from copy import deepcopy

import torch
from mpi4py import MPI
from torch.nn.functional import cross_entropy

from farandole.data import datasets
from farandole.models.classifiers import mlp
from farandole.runtime.communicator import Communicator

BATCH, WIDTH, STEPS, RATE = 64, 32, 60, 0.5
torch.set_num_threads(1)
torch.manual_seed(0)
comm = Communicator(MPI.COMM_WORLD)
before, after = comm.rank - 1, comm.rank + 1
first, last = before < 0, after == comm.size
train = datasets.split(datasets.load("digits"), seed=0).train
inputs, targets = torch.from_numpy(train.inputs).double(), torch.from_numpy(train.targets)

model = mlp(datasets.shape("digits"), 10, hidden=WIDTH, depth=4).double()
alone = deepcopy(model)  # what the model would become on one device
bounds = [0, 3, 7, 10]
part = model[bounds[comm.rank] : bounds[comm.rank + 1]]
beside = alone[bounds[comm.rank] : bounds[comm.rank + 1]]


def update(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= RATE * parameter.grad
            parameter.grad = None


difference = 0.0
for step in range(STEPS):
    rows = torch.arange(step * BATCH, (step + 1) * BATCH) % len(train)
    if first:
        x = inputs[rows]
    else:
        x = torch.empty(BATCH, WIDTH, dtype=torch.float64)
        comm.receive(x.numpy(), before)  # activations from the part before
        x.requires_grad_()
    y = part(x)
    if last:
        loss = cross_entropy(y, targets[rows])
        loss.backward()
    else:
        comm.send(y.detach().numpy(), after)
        gradient = torch.empty(BATCH, WIDTH, dtype=torch.float64)
        comm.receive(gradient.numpy(), after)  # their gradient comes back
        y.backward(gradient)
    if not first:
        comm.send(x.grad.numpy(), before)
    update(part)

    cross_entropy(alone(inputs[rows]), targets[rows]).backward()
    update(alone)
    for mine, its in zip(part.parameters(), beside.parameters(), strict=True):
        difference = max(difference, (mine - its).abs().max().item())

messages = comm.messages_sent / STEPS
print(
    f"rank {comm.rank}: messages per step: {messages:g},",
    f"bytes per step: {comm.bytes_sent / STEPS:,.0f};",
    f"largest difference from one device below 1e-12: {difference < 1e-12}",
)

# %% tags=["nbval-check-output"]
my_messages.compare(messages)
my_same.compare(max(difference) < 1e-12)

# %% [markdown]
# The same model, to rounding, in every step: a layer split changes *where* each layer is computed, and nothing else.
#
# ## 4 The scenario, and what its timeline shows
#
# `layer_split` does all of that for any of our models. Here it trains a perceptron with six hidden layers on one, two
# and four ranks, with the same data, seed and batches.
#
# **Predict:** for which share of its time does each of four ranks compute? How often do two of them compute at the
# same time?

# %%
my_share = predict("the part of its time that a rank of four computes (0 to 1)", ...)

# %%
recipe = {"data": "mnist5k", "hidden": 256, "depth": 6, "batch": 256, "steps": 12, "optimizer": "adam", "lr": 0.001,
          "precision": "float64", "balance": "memory"}  # fmt: skip
runs = {
    f"{ranks} rank{'s' * (ranks > 1)}": launch("layer_split", ranks=ranks, **recipe, out=folder / str(ranks))
    for ranks in (1, 2, 4)
}

# %%
figure, ax = plt.subplots(figsize=(9.5, 2.6))
timeline.plot(runs["4 ranks"], ax, steps=3)
figure.tight_layout()

# %% tags=["nbval-check-output"]
losses = {name: np.array([line["loss"] for line in run.metrics]) for name, run in runs.items()}
for name in ("2 ranks", "4 ranks"):
    difference = abs(losses[name] - losses["1 rank"]).max()
    print(f"{name}: the same loss in all 12 steps, to 1e-12: {difference < 1e-12}")
run = runs["4 ranks"]
passes = sum(event["dur"] for event in run.trace if event["cat"] == "compute" and event["name"] != "update") / 1e6
print("all their passes, one after the other, take no longer than the run:", passes < run.summary.wall_s)

# %% [markdown]
# The blue boxes go down like stairs and up again, and everything else is grey: **one rank works, three wait**. One
# rank alone, if it had the memory, would be as fast as all four. This is inevitable, because the second part needs
# the output of the first (erratum 001.11). The next picture shows three steps with the passes in different colours:

# %%
line = pipeline_picture.measured(runs["4 ranks"], steps=3)
Image(filename=str(pipeline_picture.draw(folder / "stairs.png", line)))

# %%
measured = ", ".join(f"{name}: {run.summary.idle_share:.0%}" for name, run in runs.items())
print(f"not computing, by formula (P - 1)/P: 0%, 50%, 75%; measured, with parts that are not quite equal: {measured}")
my_share.compare(1 - runs["4 ranks"].summary.idle_share, within=0.2)

# %% [markdown]
# ## 5 What it costs, and what it is for
#
# Document 000 says of model parallel that it needs more memory, that it is usually much faster than data parallel,
# and that it solves the problem of communication. The opposite is true of all three (erratum 000.6), and the record
# has the figures. First memory: parameters, as many gradients, the state of the optimizer (Adam keeps two numbers for
# each parameter), activations. **Predict:** how much of all that does the rank with the most memory hold, of four?

# %%
my_fullest = predict("the part that the fullest of four ranks holds (0 to 1)", ...)

# %% tags=["nbval-check-output"]
KINDS = ("parameters", "gradients", "optimizer_state", "activations")
for name, run in runs.items():
    held = run.summary.memory["measured"]
    most, everything = max(map(sum, zip(*map(held.get, KINDS), strict=True))), sum(map(sum, map(held.get, KINDS)))
    print(f"{name:8}the fullest rank holds {most / 2**20:5.2f} MiB, all together {everything / 2**20:5.2f} MiB")
my_fullest.compare(most / everything, within=0.1)

# %%
figure, ax = plt.subplots(figsize=(9.5, 2.8))
names, left = [], 0
for name, run in runs.items():
    held, places = run.summary.memory["measured"], np.arange(run.summary.ranks) + left
    bottom = np.zeros(run.summary.ranks)
    for kind, colour in zip(KINDS, (BLUE, ORANGE, GREEN, GREY), strict=True):
        height = np.array(held[kind]) / 2**20
        ax.bar(places, height, bottom=bottom, color=colour, label=kind if left == 0 else None)
        bottom += height
    names += [f"{name}:\nrank {rank}" if rank == 0 else f"rank {rank}" for rank in range(run.summary.ranks)]
    left += run.summary.ranks
ax.set(xticks=range(len(names)), xticklabels=names, ylabel="MiB held")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()

# %% [markdown]
# **That** is what a layer split is for. A model too large for one device trains on four: four times too large, if the
# parts were equal, which these are not. And even a model that fits can be trained with more samples at a time
# (内存超限, running out of memory, is mostly a matter of activations).
#
# Now communication. A cut costs two messages per batch: activations one way, gradients the other way. Data parallel
# sends *parameters'* gradients instead, 2(P−1)/P times their bytes with the ring.
#
# **Predict:** which of the two sends less here? What would have to change to reverse the order?

# %%
my_less = predict("the one that sends less", ..., "layer split", "data parallel")

# %% tags=["nbval-check-output"]
summary = runs["4 ranks"].summary
samples = sum(line["samples"] for line in runs["4 ranks"].metrics)
activations = samples * 256 * 8  # a number of 8 bytes for each sample and each of 256 units
print("messages in 12 steps, of each rank:", summary.messages_sent)
print("bytes of each rank in activations: ", [sent / activations for sent in summary.bytes_sent])
model = sum(summary.memory["measured"]["parameters"])
ring = 2 * 3 / 4 * model
print(f"the ranks in the middle send {summary.bytes_sent[1] / 12 / 1e6:.2f} MB per step;",
      f"with data parallel it would be {ring / 1e6:.2f} MB")  # fmt: skip
print(f"they are equal at a batch of {ring / (2 * 256 * 8):.0f} samples")
my_less.compare("layer split" if summary.bytes_sent[1] / 12 < ring else "data parallel")

# %% [markdown]
# It depends on the batch: activations grow with it, parameters do not. And there is a difference that no byte count
# shows: an all-reduce can run while the backward pass still computes, but at a cut every rank waits *within* the
# passes, twice in each batch.
#
# ## What you have seen
#
# - A chain of parts is as slow as its costliest part; the best cut can be computed, by time or by memory.
# - Upload, cut, tell, send, train, gather: no rank but the root ever holds the whole model.
# - One loss; activations go forward, their gradients back, nothing is averaged. The result is the unsplit model's.
# - Memory per rank falls. Time does not: P − 1 of P ranks wait. Notebook `13_pipelines` keeps them busy.
#
# A *layer* that is too large for one device needs another method, which cuts its matrix. Document 004 treats the two
# as one (erratum 004.3); `14_tensor_split` separates them.
#
# ## What to try
#
# 1. In section 1 cut the nine layers into 2, 4 and 9 parts. When does another part no longer help?
# 2. Cut into 3 parts by `"layers"` instead. How much slower is the slowest part, by the measured times?
# 3. `launch("layer_split", ranks=4, balance="time", …)`: do the stairs of section 4 become more even?
# 4. In section 3 leave out `x.requires_grad_()`. What does torch say, and on which rank?
# 5. Let only the last rank update its part (`if last: update(part)`). Does the network still learn?
# 6. `batch=1024` in section 5: which kind of memory grows, and which does not? Where is the communication now?
# 7. `ranks=20`: what does the error message say, and why is it right?
