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
# # 31 · Six axes
#
# **Question:** there are six ways to divide training: samples, shards of the parameters (`27_sharded`), layers
# (`13_pipelines`), experts (`29_experts`), positions (`28_long_sequences`) and matrices (`14_tensor_split`). Can all
# of them be combined? And which ranks should be neighbours?
#
# `15_hybrid` had three axes. Here are all six (多维混合并行), as the training of today's largest models combines them
# (Grattafiori et al., "The Llama 3 herd of models", 2024, has four: tensor, context, pipeline, data).

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.errors import UsageError
from farandole.model_parallel.grid import AXES, Grid, factorisations, fitting
from farandole.report import timeline
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100
COLOURS = dict(zip(AXES, (GREY, GREEN, BLUE, PURPLE, ORANGE, RED), strict=True))

# %% [markdown]
# ## 1 Who stands where
#
# Six axes of two ranks each make 64 ranks. A rank's number is that of nested loops, the last axis innermost:
#
# rank = ((((data · S + shard) · P + pipeline) · E + expert) · C + context) · T + tensor
#
# **Predict:** 8 ranks are on each host, in order of their numbers. Which of rank 37's six neighbours are on its own
# host?

# %%
my_neighbours = predict("axes whose neighbour is on the same host, as a list", ..., *AXES)

# %%
grid = Grid(data=2, shard=2, pipeline=2, expert=2, context=2, tensor=2)
own = 37
partner = {axis: next(rank for rank in grid.line(own, axis) if rank != own) for axis in AXES}
figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
for host in range(8):
    ax.add_patch(plt.Rectangle((host % 4 * 5 - 0.6, -(host // 4) * 3 - 1.55), 4.2, 2.2, fill=False, edgecolor=GREY))
    ax.text(host % 4 * 5 - 0.5, -(host // 4) * 3 + 0.72, f"host {host}", fontsize=8, color=GREY)


def at(rank):
    """Return where a rank is drawn: four in a row, on its host."""
    host, seat = divmod(rank, 8)
    return host % 4 * 5 + seat % 4, -(host // 4) * 3 - seat // 4


for rank in range(64):
    axis = next((axis for axis, other in partner.items() if other == rank), None)
    colour = "black" if rank == own else COLOURS[axis] if axis else "white"
    ax.scatter(*at(rank), s=330, color=colour, edgecolor="black", linewidth=0.6, zorder=2)
    ax.text(*at(rank), rank, ha="center", va="center", fontsize=8, color="black" if colour == "white" else "white")
for axis, other in partner.items():
    ax.annotate("", at(other), at(own), arrowprops={"arrowstyle": "-", "color": COLOURS[axis], "linewidth": 1.5,
                                                    "connectionstyle": "arc3,rad=0.2"}, zorder=1)  # fmt: skip
    ax.plot([], [], color=COLOURS[axis], linewidth=3, label=axis)
ax.set(xlim=(-1, 19), ylim=(-5, 1.2))
ax.legend(frameon=False, ncols=6, loc="upper center", bbox_to_anchor=(0.5, 0))
ax.set_axis_off()

# %% tags=["nbval-check-output"]
print(f"rank {own} is at", grid.place(own))
for axis, other in reversed(partner.items()):
    print(f"{axis:8} talks to rank {other:2}: {'same host' if other // 8 == own // 8 else 'another host'}")
my_neighbours.compare([axis for axis, other in partner.items() if other // 8 == own // 8])

# %% [markdown]
# Tensor, context and expert are within the host: they communicate in every layer. A pipeline communicates at its
# borders, shard ranks between layers, data ranks once a step. Their messages can overlap with computation, over
# slower links.
#
# Any lengths are allowed whose product is the number of ranks. **Predict:** how many grids of 8 ranks are there? Each
# factor 2 belongs to one of six axes.

# %%
my_grids = predict("grids of 8 ranks", ...)

# %% tags=["nbval-check-output"]
for ranks in (2, 4, 6, 7, 8, 64):
    print(f"{ranks:2} ranks: {len(factorisations(ranks)):3} grids of six axes,",
          f"{len(factorisations(ranks, ('data', 'pipeline', 'tensor'))):2} of three")  # fmt: skip
try:
    fitting(8, {"data": None, "context": 3, "tensor": 2})
except UsageError as error:
    print(error)
my_grids.compare(len(factorisations(8)))

# %% [markdown]
# ## 2 Which ranks share what
#
# Ranks of the axes data, shard, expert and context have different **tokens**; tensor ranks have the same tokens, and
# so do the stages of a pipeline. Ranks of the axes pipeline, expert, shard and tensor hold different **parameters**.
# A parameter's gradient is added up over all ranks that hold it and have different tokens.
#
# Eight ranks as expert 2 × context 2 × tensor 2. **Predict:** with which ranks does rank 0 add up the gradient of its
# part of an attention matrix? And that of its experts? And that of a layer norm, which all ranks have whole?

# %%
my_attention = predict("ranks that add up attention and norms, as a list", ...)
my_experts = predict("ranks that add up the experts, as a list", ...)

# %% tags=["nbval-check-output"]
small = Grid(expert=2, context=2, tensor=2)
print("attention and norms:", small.line(0, "data", "expert", "context"), "– other tokens, the same parameters")
print("experts:            ", small.line(0, "data", "context"), "– the tokens of ranks 4 and 6 have come to it already")
print("never with rank 1:   the same tokens, so the gradient of a norm is the same there, bit by bit")
my_attention.compare(small.line(0, "data", "expert", "context"))
my_experts.compare(small.line(0, "data", "context"))

# %% [markdown]
# ## 3 Does it learn the same?
#
# The scenario `grid` trains the character-level transformer. The next cell runs it on four ranks, with two stages and
# two parts of each sequence, and on one rank. (The next section has three axes on eight ranks.)
#
# **Predict:** into how many shares are the samples divided here? Do both runs use the same batches?

# %%
my_shares = predict("shares of the samples", ...)
my_batches = predict("both trainings see the same batches", ..., "yes", "no")

# %%
recipe = {"batch": 8, "steps": 3, "hidden": 32, "precision": "float64"}
divided = launch("grid", ranks=4, pipeline_ranks=2, context_ranks=2, **recipe, out=folder / "divided")
whole = launch("grid", ranks=1, **recipe, out=folder / "whole")

# %% tags=["nbval-check-output"]
losses = [np.array([line["loss"] for line in run.metrics]) for run in (divided, whole)]
print("the same losses in all steps, to 1e-10:", abs(losses[0] - losses[1]).max() < 1e-10)
for name, run in (("4 ranks", divided), ("1 rank", whole)):
    memory = run.summary.memory
    held = memory["measured"]["parameters"]
    print(f"{name}: {max(held):,} bytes of parameters on the fullest rank; as by the formula:",
          held == memory["formula"]["parameters"])  # fmt: skip
axes = fitting(4, {"data": None, "pipeline": 2, "context": 2})
my_shares.compare(len(axes.line(0, "data", "shard", "expert")))  # the axes that divide the samples
my_batches.compare(abs(losses[0] - losses[1]).max() < 1e-10)

# %% [markdown]
# Neither data nor shard nor expert is longer than 1, so there is one share of the samples, and all ranks work on the
# same ones. With several shares each is shuffled separately: the batches differ but are as good (the tests compare
# with a model that gets exactly these).
#
# The timeline shows one step. Ranks 0 and 1 are the first stage, 2 and 3 the second. The two ranks of a stage
# exchange keys and values in each layer, and add up their gradients at the end. Where there are more ranks than
# cores, much of the grey is waiting for a core.

# %%
figure, ax = plt.subplots(figsize=(9.5, 2.8), layout="constrained")
timeline.plot(divided, ax, steps=1, title="pipeline 2 × context 2")

# %% [markdown]
# ## 4 What each axis sends
#
# Every axis has its own communicators, which count what they send. **Predict:** three grids of 8 ranks follow. In
# which of them does tensor send the most? Which part does not shrink with half as many samples?

# %%
my_grid = predict("the grid in which tensor sends most: 1, 2 or 3", ...)
my_part = predict("what does not become smaller with half as many samples", ..., "tensor", "context", "gradients")

# %% tags=["nbval-check-output"]
# %%mpi -n 8 --keep traffic,halves
from farandole.grid.options import GridOptions
from farandole.grid.traffic import by_formula, counted
from farandole.grid.training import GridTraining
from farandole.model_parallel.expert.model import mixtures
from farandole.runtime.world import World

GRIDS = ({"pipeline_ranks": 2, "context_ranks": 2, "tensor_ranks": 2},
         {"data_ranks": 2, "shard_ranks": 2, "tensor_ranks": 2},
         {"expert_ranks": 2, "experts": 4, "context_ranks": 2, "tensor_ranks": 2})  # fmt: skip

traffic, halves = [], []  # of each grid: bytes by axis; the same by formula, with half as many samples
with World.start(GridOptions()) as world:
    for axes in GRIDS:
        options = GridOptions(batch=16, hidden=32, **axes)
        training, plans = GridTraining(world, options, options.grid(world.size)), []
        for mixture in mixtures(training.module):
            mixture.register_forward_hook(lambda module, _, __, plans=plans: plans.append(module.plan))
        samplers = training.shard.sampler.state()
        rows = [len(part) for part in training.shard.cut(0, options.micro_batches, training.loss).parts]
        training.shard.sampler.restore(samplers)
        training.step(0)
        sent = counted(training)
        traffic.append(sent)
        halves.append(by_formula(training, [samples // 2 for samples in rows], plans))
        if world.rank == 0:
            print(training.grid)
            print("  ", ", ".join(f"{what} {nbytes:,}" for what, nbytes in sent.items() if nbytes))
            print("   as by the formula:", sent == by_formula(training, rows, plans))

# %% tags=["nbval-check-output"]
my_grid.compare(1 + np.argmax([sent["tensor"] for sent in traffic[0]]))
first, half = traffic[0][0], halves[0][0]
my_part.compare(next(what for what in ("tensor", "context", "gradients") if half[what] == first[what]))

# %% [markdown]
# "gradients" are added up over all ranks that hold the same parameters: not only along the data axis, because expert
# and context ranks have other tokens, too. "counts" are the numbers of tokens that choose each expert.
#
# Tensor sends the most in the third grid: each token passes through two experts, whose outputs the tensor ranks add
# up. With half the samples everything is halved except shards and gradients, which are as long as the parameters, and
# counts, one for each expert.
#
# ## 5 Which grid?
#
# Take a model of 32 blocks of width 4096, with a million tokens in each step, on 64 ranks. The cell evaluates the
# terms of the table in the documentation, with two bytes per number, for the busiest stage:


# %%
def sends(grid, width=4096, blocks=32, tokens=2**20, micro_batches=8):
    """Gigabytes that a rank sends in a step, by axis (no experts: the expert axis is short)."""
    D, S, P, _, C, T = grid.lengths.values()
    parameters = 2 * 12 * width**2 * blocks / (P * T)  # bytes, of its stage's blocks
    b = 2 * tokens / (D * S * C) * width
    per_rank = {
        "data": 2 * (D - 1) / D * parameters / S,
        "shard": 3 * (S - 1) / S * parameters * micro_batches,
        "pipeline": 2 * b * (P > 1),
        "context": blocks / P * (6 * C - 4) / T * b * (C > 1),
        "tensor": blocks / P * 8 * (T - 1) / T * b,
    }
    return {axis: nbytes / 1e9 for axis, nbytes in per_rank.items()}


several = [Grid(data=64), Grid(shard=64), Grid(tensor=64), Grid(context=64), Grid(data=8, tensor=8),
           Grid(shard=8, tensor=8), Grid(data=4, pipeline=4, tensor=4), Grid(data=8, pipeline=8),
           Grid(data=2, shard=2, pipeline=2, context=2, tensor=4)]  # fmt: skip
columns = ("tensor", "context", "pipeline", "shard", "data")
gigabytes = np.array([[sends(each)[axis] for axis in columns] for each in several])
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.imshow(np.log10(gigabytes + 0.1), cmap="OrRd", vmin=-1, vmax=4.5, aspect="auto")
for (row, column), number in np.ndenumerate(gigabytes):
    ax.text(column, row, f"{number:,.0f}" if number >= 10 else f"{number:.1f}" if number else "–",
            ha="center", va="center")  # fmt: skip
ax.set_xticks(range(len(columns)), columns)
ax.set_yticks(range(len(several)), map(str, several))
ax.tick_params(length=0, labeltop=True, labelbottom=False)
_ = ax.set_title("GB that a rank sends in a step", fontsize=10)

# %% [markdown]
# Of the single axes data sends the least, but then each rank holds 13 GB of parameters, as much of gradients, and
# more for the optimizer. Shards remove that for 3·8/2 times the bytes, because each micro-batch gathers again. A
# pipeline sends little, but has a bubble. Tensor sends the most, and the computation waits for it, so 64 ranks on
# eight hosts are too many. So the axes are mixed: tensor as far as a host reaches, pipeline and shard until the model
# fits, context if the sequences are long, and data for the rest.
#
# ## What you have seen
#
# - One formula gives each rank's place; the inner axes, which communicate in every layer, have neighbouring ranks.
# - Axes differ in what they divide: tokens, parameters, or both. That determines over which ranks a gradient is added
#   up.
# - Any factorisation of the ranks trains the unsplit model.
# - Bytes along each axis, and memory, follow from shapes.
#
# ## What to try
#
# 1. `launch("grid", ranks=8, shard_ranks=2, expert_ranks=2, experts=8, tensor_ranks=2)`: what is in `run.rank_names`?
# 2. `link_mbps=100` in section 3, and other grids of 8 ranks: which one slows down the least?
# 3. `schedule="interleaved"`, `micro_batches=4` with `depth=4`: what happens to the bubble in the timeline?
# 4. Section 5 with `tokens=2**16`: which grids become expensive now? And with `micro_batches=32`?
# 5. `farandole run grid -n 8 --context-ranks 2 --experts 4 --capacity 1`: why is it refused?
# 6. Save with `--save trained` on one grid, and load on another with `--load trained`.
