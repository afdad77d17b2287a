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
# # 15 · Hybrid: data × pipeline × tensor
#
# **Question:** there are three ways to spread training over ranks: divide the *data* (`03_synchronous_sgd`), the
# *layers* (`13_pipelines`), or the *matrices* (`14_tensor_split`). Which one for four ranks? And for a thousand?
#
# All three. Large models are trained with **hybrid parallel** (混合并行): the ranks form a grid with three axes.
# Along each axis they divide one of the three, independently of the other two (Narayanan et al. 2021).

# %%
# %load_ext farandole
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

from farandole import Run, launch
from farandole.collectives.costs import Link
from farandole.cost.advice import Kind, advised, verdicts
from farandole.cost.layer_costs import of_model
from farandole.cost.modes import Device, ranked
from farandole.errors import UsageError
from farandole.model_parallel.grid import factorisations, fitting
from farandole.model_parallel.options import AdaptiveOptions
from farandole.report import pipeline_picture, timeline
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, RED
from farandole.report.predictions import predict
from farandole.tasks import built_in

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
os.environ["RESULTS"] = str(folder)  # a cell under %%mpi inherits the environment, but no variables
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 The place of each rank
#
# Four ranks can form a grid in exactly six ways:

# %% tags=["nbval-check-output"]
three = ("data", "pipeline", "tensor")  # of six axes that a grid may have: 31_six_axes has them all
for grid in factorisations(4, three):
    print(f"data {grid.data} × pipeline {grid.pipeline} × tensor {grid.tensor}")
try:
    fitting(4, {"data": None, "pipeline": 3, "tensor": 1})
except UsageError as error:
    print(error)

# %% [markdown]
# Eight ranks as 2 × 2 × 2 are a cube, and each rank is a corner:


# %%
def corner(data, pipeline, tensor):
    """Return where a rank is drawn."""
    return 3.2 * pipeline + 0.9 * tensor, -1.9 * data + 0.55 * tensor


cube = np.arange(8).reshape(2, 2, 2)  # data, pipeline, tensor; the last axis varies fastest
talk = {"tensor: several times per layer": (2, RED, 6), "pipeline: twice per micro-batch": (1, BLUE, 3),
        "data: once per step": (0, GREEN, 1.2)}  # fmt: skip
figure, ax = plt.subplots(figsize=(7.5, 3.6))
for label, (axis, colour, width) in talk.items():
    for place in np.ndindex(2, 2, 2):
        if place[axis] == 0:
            other = tuple(1 if number == axis else at for number, at in enumerate(place))
            x, y = zip(corner(*place), corner(*other), strict=True)
            ax.plot(x, y, color=colour, linewidth=width, label=label if sum(place) == 0 else None, zorder=1)
for place, rank in np.ndenumerate(cube):
    ax.scatter(*corner(*place), s=520, color="white", edgecolor="black", zorder=2)
    ax.text(*corner(*place), rank, ha="center", va="center", zorder=3)
ax.set(xlim=(-0.4, 9), ylim=(-2.4, 1))
ax.legend(frameon=False, loc="center right")
ax.set_axis_off()

# %% [markdown]
# Rank = (data · 2 + pipeline) · 2 + tensor. The axis that communicates most varies fastest, so that its ranks have
# neighbouring numbers: a launcher places neighbours on one machine, where links are fast.
#
# **Predict:** with which ranks does rank 5 communicate, and what? Which rank has the same *parameters* as rank 5, and
# which works on the same *samples*?

# %%
my_same = predict("the rank with the same parameters as rank 5", ...)
my_tensor = predict("the rank on its tensor line", ...)
my_stage = predict("the rank on its pipeline", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 8 --keep others
from mpi4py import MPI

from farandole.model_parallel.axes import Axes
from farandole.model_parallel.grid import Grid
from farandole.runtime.communicator import Communicator

axes = Axes(Communicator(MPI.COMM_WORLD), Grid(data=2, pipeline=2, tensor=2))
others = {axis: axes.axis(axis).mpi.allgather(MPI.COMM_WORLD.rank) for axis in ("data", "pipeline", "tensor")}
print(f"rank {MPI.COMM_WORLD.rank} at {tuple(axes.place[axis] for axis in others)}:", others)

# %% tags=["nbval-check-output"]
partner = {axis: next(rank for rank in line if rank != 5) for axis, line in others[5].items()}
my_same.compare(partner["data"])
my_tensor.compare(partner["tensor"])
my_stage.compare(partner["pipeline"])

# %% [markdown]
# A rank has the same parameters as the ranks on its *data* line: there their gradients are added up, once per step.
# On its *pipeline* line activations go forward and gradients back. With its *tensor* line it shares each layer. Rank
# 5 and rank 4 work on the same samples with different halves of the same matrices; so do 6 and 7, with other layers.
#
# ## 2 Six grids, one model
#
# All six run the same program: find the rank's place, cut the model into stages, cut the stage's matrices, run the
# pipeline's schedule, add up the gradients along the data line, update. An axis of length 1 costs nothing.
#
# The cell trains a perceptron for three steps in each grid, with all training images in every step. It gathers the
# model on rank 0 and compares it with the model that plain torch trains in one process.
#
# **Predict:** do the six models agree? To how many digits?

# %%
my_models = predict("the six models agree", ..., "to the bit", "to rounding", "not at all")

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep differences
import torch
from torch.nn.functional import cross_entropy

from farandole.data import datasets
from farandole.model_parallel.grid import factorisations
from farandole.model_parallel.layout import Layout
from farandole.model_parallel.options import ModelParallelOptions
from farandole.model_parallel.parts import Parts
from farandole.model_parallel.schedules import choose
from farandole.models import choices
from farandole.runtime.world import World

STEPS, RATE, MICRO_BATCHES = 3, 0.3, 4
train = datasets.split(datasets.load("digits"), seed=0).train
options = ModelParallelOptions(hidden=64, depth=4, batch=len(train), lr=RATE, precision="float64")


def alone():
    """Return the model trained in one process for the same number of steps."""
    torch.manual_seed(options.seed)
    model = choices.build(options).double()
    for _step in range(STEPS):
        loss = cross_entropy(model(torch.from_numpy(train.inputs).double()), torch.from_numpy(train.targets))
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad
    return model


differences = []  # from `alone`, of each grid's model
with World.start(options) as world:
    expected = alone() if world.rank == 0 else None
    for grid in factorisations(world.size, ("data", "pipeline", "tensor")):
        data, pipeline, tensor = grid.data, grid.pipeline, grid.tensor
        torch.manual_seed(options.seed)
        layout = Layout(data, pipeline, tensor, choose("1f1b"), MICRO_BATCHES, balance="memory")
        parts = Parts(world, options, layout)
        for step in range(STEPS):
            parts.pipeline.run(MICRO_BATCHES, parts.shard.cut(step, MICRO_BATCHES, parts.loss))
        whole = parts.gather()
        if world.rank == 0:
            pairs = zip(whole.parameters(), expected.parameters(), strict=True)
            differences.append(max((mine - its).abs().max().item() for mine, its in pairs))
            equal = differences[-1] < 1e-12
            print(f"{data} × {pipeline} × {tensor}: all parameters as in one process, to 1e-12: {equal}")

# %% tags=["nbval-check-output"]
largest = max(differences[0])
my_models.compare("to the bit" if largest == 0 else "to rounding" if largest < 1e-12 else "not at all")

# %% [markdown]
# None of the three axes changes what is learned; they only add numbers in another order.
#
# One simplification remains: every step used all samples. With smaller batches each pipeline shuffles its own share
# of the data, so grids with another *data* axis see other batches: equally good, but different.
#
# ## 3 What each of them costs
#
# Now a larger perceptron with Adam, which keeps two more numbers for each parameter. Each of these runs is what
# `launch("hybrid", ranks=4, data_ranks=2, pipeline_ranks=2, …)` does, and leaves a record. But starting four ranks
# takes longer than these two steps of training, so here all runs share one start. (The last three are for sections
# 4 and 5.)

# %%
# %%mpi -n 4
import os
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

from farandole.data import datasets
from farandole.model_parallel.grid import factorisations
from farandole.scenarios.hybrid import Config, main

samples = len(datasets.split(datasets.load("digits"), seed=0).train)
recipe = Config(hidden=256, depth=4, batch=samples, micro_batches=4, steps=2, optimizer="adam", lr=0.001,
                balance="memory", precision="float64")  # fmt: skip


def run(name, grid, **options):
    data, pipeline, tensor = grid
    config = replace(recipe, data_ranks=data, pipeline_ranks=pipeline, tensor_ranks=tensor, **options)
    with redirect_stdout(StringIO()):  # without the tables: one for all comes below
        main(replace(config, out=Path(os.environ["RESULTS"]) / name))


for each in factorisations(4, ("data", "pipeline", "tensor")):
    grid = each.data, each.pipeline, each.tensor
    run(" × ".join(map(str, grid)), grid)
run("4 × 1 × 1, ZeRO-1", (4, 1, 1), shard_optimizer=True)
run("2 × 2 × 1, ZeRO-1", (2, 2, 1), shard_optimizer=True)
run("2 × 2 × 1, slowly", (2, 2, 1), pace_ms=40)

# %% [markdown]
# **Predict:** which grid sends the fewest bytes, and which one the most messages? In which grid does the rank with
# the most memory hold the least?

# %%
my_fewest = predict("the grid with the fewest bytes, as [data, pipeline, tensor]", ...)
my_busiest = predict("the grid with the most messages, as [data, pipeline, tensor]", ...)
my_least = predict("the grid whose fullest rank holds least, as [data, pipeline, tensor]", ...)

# %% tags=["nbval-check-output"]
grids = [f"{grid.data} × {grid.pipeline} × {grid.tensor}" for grid in factorisations(4, three)]
runs = {name: Run.open(folder / name) for name in grids}
KINDS = ("parameters", "gradients", "optimizer_state", "activations")


def fullest(run):
    """Return what the rank with the most memory holds, in MiB, kind by kind."""
    held = run.summary.memory["measured"]
    return max(zip(*(held[kind] for kind in KINDS), strict=True), key=sum)


def show(runs):
    print(f"{'':19}|        MiB on the fullest rank              |   per step, the busiest rank")
    print(f"{'d × p × t':19}|  params   grads   state  activ.    all      |   MB sent   messages")
    for name, run in runs.items():
        mib = [number / 2**20 for number in fullest(run)]
        sent, messages = max(run.summary.bytes_sent) / 2 / 1e6, max(run.summary.messages_sent) / 2
        columns = "".join(f"{number:8.2f}" for number in (*mib, sum(mib)))
        print(f"{name:19}|{columns}     |{sent:10.2f}{messages:11g}")


show(runs)
first = np.array([line["loss"] for line in runs["4 × 1 × 1"].metrics])
same = all(abs([line["loss"] for line in run.metrics] - first).max() < 1e-10 for run in runs.values())
print("the same loss in all steps, to 1e-10, in all of them:", same)
lengths = {name: [int(length) for length in name.split(" × ")] for name in runs}
my_fewest.compare(lengths[min(runs, key=lambda name: max(runs[name].summary.bytes_sent))])
my_busiest.compare(lengths[max(runs, key=lambda name: max(runs[name].summary.messages_sent))])
my_least.compare(lengths[min(runs, key=lambda name: sum(fullest(runs[name])))])

# %% [markdown]
# Read the columns:
#
# - **Data** divides only activations, because each rank has its share of the samples. Every rank holds all
#   parameters, gradients and Adam's whole state. It sends 2(D−1)/D of the *parameters*, in 2(D−1) messages.
# - **Pipeline** divides layers, with all that belongs to them. It sends *activations*, forward and back, in few
#   messages. But its first stages hold several micro-batches at once, where a single stage holds only one; and no cut
#   of five matrices into parts is even.
# - **Tensor** divides matrices evenly, and activations in part. It sends activations too, in every layer, and has the
#   most messages.
# - The combinations lie between, kind by kind.
#
# Which grid sends more depends on the model and the batch. This perceptron is small and every step uses all samples,
# so there are many activations and few parameters. With a large model and a small batch the data axis is the
# expensive one.

# %%
figure, ax = plt.subplots(figsize=(9.5, 3))
bottom = np.zeros(len(runs))
for kind, (name, colour) in enumerate(zip(KINDS, (BLUE, ORANGE, GREEN, GREY), strict=True)):
    height = np.array([fullest(run)[kind] / 2**20 for run in runs.values()])
    ax.bar(list(runs), height, bottom=bottom, color=colour, label=name)
    bottom += height
ax.set(ylabel="MiB on the fullest rank", xlabel="data × pipeline × tensor")
ax.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()

# %% [markdown]
# ## 4 Two pipelines of two stages, in time
#
# 2 × 2 × 1: ranks 0 and 1 are one pipeline, 2 and 3 the other. Each processes half of the samples, in four
# micro-batches. (Here every forward pass is made to take 40 milliseconds, and every backward pass 80, so that all are
# equal.) **Predict:** what part of the total time is the bubble? And where do the two pipelines have to wait for each
# other?

# %%
my_bubble = predict("the bubble, as a part of the total time", ...)

# %%
slowly = Run.open(folder / "2 × 2 × 1, slowly")
Image(filename=str(pipeline_picture.draw(folder / "2x2.png", pipeline_picture.measured(slowly, step=1))))

# %%
figure, axes = plt.subplots(2, 1, figsize=(9.5, 5))
timeline.plot(slowly, axes[0], steps=2, title="2 × 2 × 1, slowly")
timeline.plot(runs["2 × 1 × 2"], axes[1], steps=1, title="2 × 1 × 2")
figure.tight_layout()

# %% tags=["nbval-check-output"]
stages, micro_batches = 2, 4
my_bubble.compare((stages - 1) / (micro_batches + stages - 1))

# %% [markdown]
# Within a step each rank waits for its neighbour in the pipeline, and the bubble is that of one pipeline alone: (p −
# 1)/m = ¼ of the ideal, 1/5 of the total. Only after all micro-batches does rank 0 add up its gradients with rank 2,
# and rank 1 with rank 3. (White is book-keeping.) The lower picture, at full speed, has no stages: the two ranks of a
# tensor line stop in each layer, and the two lines meet only at the end of the step.
#
# ## 5 The optimizer's state, divided
#
# On a data line all ranks hold the same parameters and the same state: D copies of Adam's. **ZeRO**, stage 1
# (Rajbhandari et al. 2020), divides it. Each rank keeps the state of *its* part, and updates only that part:
#
# 1. reduce-scatter: each rank gets the sum of its part of the gradient,
# 2. each updates its part of the parameters,
# 3. all-gather: each gets all parts of the parameters.
#
# **Predict:** how many bytes more is that than an all-reduce of the gradients? (What does a ring all-reduce consist
# of?)

# %%
my_more = predict("bytes more than an all-reduce", ...)

# %% tags=["nbval-check-output"]
pairs = {name: Run.open(folder / name) for grid in ("4 × 1 × 1", "2 × 2 × 1") for name in (grid, f"{grid}, ZeRO-1")}
show(pairs)
for name, D in {"4 × 1 × 1": 4, "2 × 2 × 1": 2}.items():
    plain, divided = pairs[name].summary, pairs[f"{name}, ZeRO-1"].summary
    states = [sum(one.memory["measured"]["optimizer_state"]) for one in (plain, divided)]
    print(f"{name}: all states together are divided by {states[0] / states[1]:g}, and D is {D};",
          f"all bytes sent: {sum(plain.bytes_sent):,} and {sum(divided.bytes_sent):,};",
          f"the same parameters to the bit: {plain.params_sha256 == divided.params_sha256}")  # fmt: skip
my_more.compare(sum(divided.bytes_sent) - sum(plain.bytes_sent))

# %% [markdown]
# A ring all-reduce *is* a reduce-scatter followed by an all-gather (`02_ring_all_reduce`). ZeRO-1 updates between the
# two, and saves memory at no cost. With Adam the state is half of the memory that belongs to a parameter.
#
# ## 6 When which?
#
# | axis | divides | a rank sends per step | messages per step | for |
# |---|---|---|---|---|
# | data | samples | 2(D−1)/D of the parameters | 2(D−1) | speed, once the model fits; between machines |
# | pipeline | layers | activations, at each of its cuts | m at each cut | many layers; between machines |
# | tensor | matrices | 8(T−1)/T of a block's activations | 8(T−1) m per block | wide layers; within a machine |
#
# (m micro-batches; a block of the transformer has four all-reduces.) The data axis costs memory, because every rank
# holds the model. The pipeline axis costs its bubble. On the tensor axis the ranks wait for each other within every
# layer.
#
# The usual rule (Narayanan et al. 2021): *tensor* as far as the fast links reach, *pipeline* until a stage fits into
# memory, *data* with the remaining ranks, with a divided optimizer. The batch sets the limits: D ranks each need
# enough samples for enough micro-batches, or the bubble grows.
#
# Another method has a similar name. The hybrid of `10_downpour_and_hybrid` is about *where parameters are stored*:
# hot ones, which many workers update, on a server; each of the others with the one worker that needs it. That is for
# *sparse* models, in which a sample uses few of very many parameters (words, users, goods), so only the used ones are
# sent. The grid is for *dense* models, where every sample uses every parameter, so no parameter is rare enough to
# keep local. Document 000 gives the first as its example of hybrid, and names the second (erratum 000.12). They can
# be combined: the large embedding tables of a recommender on servers, its dense layers in a grid.
#
# ## 7 Let the devices decide
#
# The table can be computed. What a layer holds, computes and sends follows from its shape; a device's memory, speed
# and link can be measured. So a program can predict every grid's memory and step time, and choose the best: document
# 003's adaptive strategy. Here it does so for four given devices, with one property changed at a time.
# (`farandole.cost.modes` has the formulas. They take the all-reduce from the ring's steps, and the bubble from
# 1F1B's.)

# %% tags=["nbval-check-output"]
options = AdaptiveOptions(data="pydoc", model="transformer", hidden=128, depth=6, batch=32, optimizer="adam")
costs = of_model(built_in(options))
near, far = Link(alpha=2e-6, beta=1 / 50e9), Link(alpha=50e-6, beta=1 / 12e6)  # 50 GB/s; 12 MB/s
situations = {
    "much memory, a fast link": Device(1e12, memory=1e9, link=near),
    "much memory, a slow link": Device(1e12, memory=1e9, link=far),
    "12 MB, a fast link": Device(1e12, memory=12e6, link=near),
    "12 MB, a slow link": Device(1e12, memory=12e6, link=far),
}
for situation, device in situations.items():
    modes = ranked(costs, [device] * 4, options.batch, options.optimizer)
    best, fitting = modes[0], sum(mode.fits for mode in modes)
    print(f"{situation:25} {fitting} of {len(modes)} grids fit; {best.name} {best.grid} in {best.micro_batches}:",
          f"{best.memory / 1e6:.0f} MB, {1e3 * best.step_s:.0f} ms a step")  # fmt: skip

# %% [markdown]
# How many devices, and of which kind? The same formulas answer that, too. We compare a few fast devices on a slow
# network with many slow devices on a fast one (`farandole advise --device …` prints the whole table):

# %% tags=["nbval-check-output"]
kinds = [Kind.parse("name=few,tflops=4,memory-gb=16,count=8,gbps=1"),
         Kind.parse("name=many,tflops=1,memory-gb=0.02,count=32,gbps=100")]  # fmt: skip
rows = advised(costs, kinds, options.batch, options.optimizer)
print("\n".join(verdicts(rows, target_s=0.01)))

# %% [markdown]
# Now with real ranks: four ranks measure their speed, their link and their memory, choose, and train.

# %%
chosen = launch("adaptive", ranks=4, steps=3, hidden=256, depth=4, balance="layers", out=folder / "adaptive")
for mode in chosen.modes["modes"]:
    grid = "×".join(str(mode[axis]) for axis in ("data", "pipeline", "tensor"))
    print(f"{mode['name']:8} {grid} in {mode['micro_batches']:2}: {mode['memory'] / 1e6:5.2f} MB,",
          f"{1e3 * mode['compute_s']:6.1f} ms computing, {1e3 * mode['communicate_s']:6.1f} communicating,",
          f"{1e3 * mode['idle_s']:6.1f} idle")  # fmt: skip

# %% tags=["nbval-check-output"]
best = chosen.modes["modes"][0]
grid = {f"{axis}_ranks": best[axis] for axis in ("data", "pipeline", "tensor")}
asked = launch("hybrid", ranks=4, steps=3, hidden=256, depth=4, balance="layers", **grid,
               micro_batches=best["micro_batches"], out=folder / "asked")  # fmt: skip
print(
    "the same parameters as where the grid is asked for:", chosen.summary.params_sha256 == asked.summary.params_sha256
)
print("the first is the fastest:", best["step_s"] == min(mode["step_s"] for mode in chosen.modes["modes"]))

# %% [markdown]
# Which one wins here depends on how busy this machine is: processes that share two cores have a link of a few hundred
# Mbit/s and much latency. The prediction assumes that nothing overlaps, that all devices get equal parts, and that
# an idle rank's core stays idle. On shared cores the last assumption is wrong: a pipeline's bubble costs less there.
#
# ## What you have seen
#
# - Ranks form a grid; each axis has its own communicators, and the axis that communicates most has neighbouring
#   ranks.
# - All six grids of four ranks learn what one process learns.
# - They differ in what they hold and send: parameters for data, activations for pipeline and tensor.
# - ZeRO-1 divides the optimizer's state by D, at the same bytes and with the same bits.
# - Memory and time of every grid follow from shapes, speeds and links; so do the best one and the number of devices.
#
# ## What to try
#
# 1. `batch=64` in section 3: which grids become cheap, which expensive? Is the loss still the same in all of them?
# 2. `hidden=1024, batch=64`, three steps: now there are many parameters and few activations.
# 3. `launch("hybrid", ranks=4, tensor_ranks=2, slow="rank=3,factor=3")`, and other grids: where does a straggler hurt
#    most? Look at `wall_s` and at the timeline.
# 4. `recompute="stage"` and 1 × 4 × 1: what does the fullest rank hold now? And with `schedule="gpipe"`?
# 5. `launch("hybrid", ranks=8, pipeline_ranks=2, tensor_ranks=2)`: the cube. Do its bytes follow from the table above?
# 6. ZeRO-1 with `optimizer="sgd"`: what is there to divide?
# 7. `launch("adaptive", …, link_mbps=10)`: which grid is chosen now? And with `memory_mb=1`?
