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
# # 27 · Sharded data parallel
#
# **Question:** in data parallel every rank holds the whole model, its gradient, and the optimizer's state. All ranks
# hold the same. Can each rank keep only a part, and the training still be that of one process?
#
# The answer is **ZeRO**, the zero redundancy optimizer (零冗余优化器), in three stages; the third is known as **FSDP**.
# Document 004 says why it is needed: a model may be too large for one GPU's memory.

# %%
# %load_ext farandole
import inspect
import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle
from torch.nn.functional import cross_entropy

from farandole import Checkpoint, launch
from farandole.cost.memory import Numbers, by_stage
from farandole.cost.paper_tables import MIXED
from farandole.cost.published import KORTHIKANTI, MODELS
from farandole.model_parallel.activation_offload import ActivationOffload
from farandole.model_parallel.footprint import footprint
from farandole.model_parallel.memory import ActivationMeter
from farandole.models.classifiers import mlp
from farandole.models.recomputation import recompute, unfuse
from farandole.models.transformer import transformer
from farandole.report import timeline
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE
from farandole.report.predictions import predict
from farandole.runtime.buffers import sha256
from farandole.sharded.hooks import Hooks
from farandole.sharded.plan import units
from farandole.sharded.training import ShardedSGD

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100
KINDS = {"parameters": BLUE, "gradients": ORANGE, "optimizer_state": GREEN}

# %% [markdown]
# ## 1 What a rank holds
#
# Let Ψ be the bytes of the parameters. The gradient is as large. Adam keeps two numbers for each parameter, so its
# state takes 2Ψ: together 4Ψ, on every rank. In mixed precision it is worse: parameters and gradients have 2 bytes,
# and Adam's two numbers and a copy of the parameters have 4 bytes each. The ZeRO paper therefore counts 2 + 2 + 12
# bytes for each parameter.
#
# **Predict:** a model of 7.5 billion parameters, on 64 GPUs of 32 GB. Does it fit if only the optimizer's state is
# divided? If the gradients are divided too?

# %%
my_state = predict("it fits with the optimizer's state divided", ..., "yes", "no")
my_gigabytes = predict("GB on each card, if the gradients are divided too", ...)

# %% tags=["nbval-check-output"]
parameters, N, K = 7.5e9, 64, 12
held = {
    "data parallel": 2 + 2 + K,
    "stage 1: optimizer state divided": 2 + 2 + K / N,
    "stage 2: gradients too": 2 + 2 / N + K / N,
    "stage 3: parameters too": 2 / N + 2 / N + K / N,
}
for name, bytes_per_parameter in held.items():
    print(f"{name:33} {bytes_per_parameter * parameters / 1e9:6.1f} GB on each of {N} cards")
my_state.compare(held["stage 1: optimizer state divided"] * parameters < 32e9)
my_gigabytes.compare(held["stage 2: gradients too"] * parameters / 1e9, within=0.05)

# %% [markdown]
# These are the numbers of the paper's first figure. In stage 3 each GPU holds a 64th of everything.
#
# Training needs more memory than that, for activations, and tensor ranks and a pipeline may divide the model, too.
# The calculator `farandole memory` combines all of them, with the formulas and schedules that run here.
#
# **Predict:** GPT-3 (175 billion parameters) on GPUs of 80 GB, as Megatron-LM's authors trained it: 8 stages of 8
# tensor ranks. Does it fit? Which of the four kinds takes the most memory, if nothing is computed again in the
# backward pass? And if 16 such pipelines divide the optimizer's state?

# %%
my_fits = predict("it fits without computing again", ..., "yes", "no")
my_kind = predict("what takes most then", ..., "parameters", "gradients", "optimizer_state", "activations")

# %% tags=["nbval-check-output"]
shape, plan = MODELS["gpt3-175b"], KORTHIKANTI["gpt3-175b"]
for pipelines, stage, again in ((1, 0, "none"), (1, 0, "selective"), (16, 1, "selective"), (16, 1, "full")):
    several = replace(plan, ranks=64 * pipelines, batch=64 * pipelines, zero=stage, recompute=again)
    first = by_stage(shape, several, Numbers(MIXED))[0]
    kinds = {kind: getattr(first, kind) / 1e9 for kind in (*KINDS, "activations")}
    print(f"{64 * pipelines:4} cards, recompute {again:9}",
          ", ".join(f"{gb:4.1f} GB of {kind.replace('_', ' ')}" for kind, gb in kinds.items()))  # fmt: skip
without = by_stage(shape, replace(plan, ranks=64, batch=64, zero=0, recompute="none"), Numbers(MIXED))[0]
kinds = {kind: getattr(without, kind) for kind in (*KINDS, "activations")}
my_fits.compare(sum(kinds.values()) < 80e9)
my_kind.compare(max(kinds, key=kinds.get))

# %% [markdown]
# Without recomputation it does not fit, and activations take the most: the first stage holds those of many
# micro-batches, and most of them are attention's square matrices over positions. To compute these again takes 1 %
# more operations, and to compute all layers again a third more. `docs/calculators.md` has the tables of the papers.
#
# ## 2 The three stages, measured
#
# The scenario `sharded` does this for any model. Here a perceptron of 13 layers learns the digits, with Adam, on four
# ranks. Each rank counts the bytes that it holds during training, and the record has the maxima.

# %%
recipe = {"hidden": 64, "depth": 12, "steps": 8}
alone = launch("sharded", ranks=1, stage=1, **recipe, out=folder / "alone")
runs = {stage: launch("sharded", ranks=4, stage=stage, **recipe, out=folder / str(stage)) for stage in (1, 2, 3)}

# %%
figure, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
bars = {"one rank": alone, **{f"stage {stage}": run for stage, run in runs.items()}}
for number, run in enumerate(bars.values()):
    below = 0.0
    for kind, colour in KINDS.items():
        height = run.summary.memory["measured"][kind][0] / 1024
        label = kind.replace("_", " ") if number == 0 else None
        ax.bar(number, height, bottom=below, color=colour, width=0.6, label=label)
        below += height
ax.set_xticks(range(len(bars)), bars)
ax.set(ylabel="KiB held at most")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# **Predict:** by the formula, stage 3 on four ranks should hold a quarter of what one rank holds. Why is it more here?

# %% tags=["nbval-check-output"]
whole = alone.summary.memory["measured"]["parameters"][0]
paper = {1: whole * (2 + 2 / 4), 2: whole * (1 + 1 / 4 + 2 / 4), 3: whole * (1 / 4 + 1 / 4 + 2 / 4)}
sizes = {
    each.name: sum(one.numel() * one.itemsize for one in each.parameters) for each in units(mlp((1, 8, 8), 10, 64, 12))
}
largest = max(sizes.values())
print(f"{len(sizes)} units, the largest of {largest:,} bytes; all together {whole:,}")
for stage, run in runs.items():
    measured = [sum(run.summary.memory["measured"][kind][rank] for kind in KINDS) for rank in range(4)]
    formula = [sum(run.summary.memory["formula"][kind][rank] for kind in KINDS) for rank in range(4)]
    extra = max(measured) - paper[stage]
    print(f"stage {stage}: {max(measured):9,} bytes, as by our formula: {measured == formula};",
          f"beyond the paper's: {extra / largest:.2f} times the largest unit")  # fmt: skip

# %% [markdown]
# A rank needs the whole layer that it computes with. So in addition to its part of everything it temporarily holds
# one **unit**: in stage 2 the gradient of one layer, in stage 3 also its parameters. With more units this matters
# less. That is why a model is cut into its blocks.
#
# ## 3 Is it the same training?
#
# For comparison we run plain data parallel on the same batches: `sync_sgd`, whose ranks hold everything.
#
# **Predict:** which of the three stages end with the same parameters, to the bit? And which sends the most?

# %%
my_bits = predict("all three end with the same parameters, to the bit", ..., "yes", "no")
my_stage = predict("the stage that sends the most: 1, 2 or 3", ...)

# %% tags=["nbval-check-output"]
plain = launch("sync_sgd", ranks=4, optimizer="adam", lr=0.003, **recipe, out=folder / "plain")
digests = {run.summary.params_sha256[rank] for run in runs.values() for rank in range(4)}
print("all ranks of all stages have the same bits:", len(digests) == 1)
apart = [a["loss"] - b["loss"] for a, b in zip(runs[3].metrics, plain.metrics, strict=True)]
print("for 8 steps the losses are those of plain data parallel, to 1e-4:", max(map(abs, apart)) < 1e-4)
steps, N = recipe["steps"], 4
in_plain = sum(plain.summary.bytes_sent) / steps
print(f"plain:   all ranks together send {in_plain / ((N - 1) * whole):.2f} times (N − 1)Ψ in a step")
for stage, run in runs.items():
    at_last = whole * (N - 1) if stage == 3 else 0  # the model is gathered, to be judged
    sent = (sum(run.summary.bytes_sent) - at_last) / steps
    print(f"stage {stage}: all ranks together send {sent / ((N - 1) * whole):.2f} times (N − 1)Ψ in a step")
my_bits.compare(len(digests) == 1)
my_stage.compare(max(runs, key=lambda stage: sum(runs[stage].summary.bytes_sent)))

# %% [markdown]
# Plain data parallel adds the same numbers in another order, because its ring goes around the whole vector and not
# around each unit. Such rounding differences grow during any training.
#
# Stages 1 and 2 send what an all-reduce sends, because they consist of its two halves: a **reduce-scatter**, after
# which each rank has the sum of one part of the gradient, and an **all-gather** of the updated parameters. Between
# the two each rank updates its part. So dividing optimizer state and gradients costs no extra byte. Stage 3 gathers
# the parameters twice, because they are freed after the forward pass: half as much again.
#
# ## 4 A step of stage 3
#
# Blue: the unit's parameters are whole on this rank. Orange: so is its gradient. Forward goes through the units from
# the first to the last, backward from the last to the first. The quarter of each unit that a rank always keeps is not
# drawn.

# %%
names = list(sizes)[:6]
figure, ax = plt.subplots(figsize=(9, 2.9), layout="constrained")
for row, _ in enumerate(names):
    ax.add_patch(Rectangle((row, -row - 0.8), 1, 0.8, facecolor=BLUE))
    back = 2 * len(names) - 1 - row
    ax.add_patch(Rectangle((back + 0.3, -row - 0.8), 1, 0.8, facecolor=BLUE))
    ax.add_patch(Rectangle((back + 0.3, -row - 0.8), 1, 0.35, facecolor=ORANGE))
    ax.annotate("gather", (row + 0.02, -row - 0.9), va="top", fontsize=7, color=GREY)
    ax.annotate("gather", (back + 0.32, -row - 0.9), va="top", fontsize=7, color=GREY)
    ax.annotate("reduce", (back + 1.3, -row + 0.02), va="bottom", ha="right", fontsize=7, color=GREY)
    ax.text(-0.2, -row - 0.4, f"layer {row}", ha="right", va="center")
ax.text(3, 0.25, "forward", ha="center")
ax.text(9.3, 0.25, "backward", ha="center")
ax.set(xlim=(-1.3, 12.6), ylim=(-6.2, 0.6))
ax.set_axis_off()

# %% [markdown]
# The next picture shows a real step of ranks 0 and 1, over a link of 200 Mbit/s: computing in pieces, with a gather
# or a reduction between any two. The processor waits for the network, then the network for the processor.
#
# **Prefetch** (预取): from the step before, a rank knows which unit comes next. A second thread gathers it while the
# first one computes, and also reduces the gradients.
#
# **Predict:** what does it cost in memory? Can it save more than half of the time?

# %%
my_units = predict("units more that a rank holds", ...)

# %%
busy = {"hidden": 256, "depth": 4, "batch": 512, "steps": 6, "link_mbps": 200}
busy["slow"] = [f"rank={rank},factor=4" for rank in (0, 1)]
waiting = launch("sharded", ranks=2, **busy, out=folder / "waiting")
ahead = launch("sharded", ranks=2, prefetch=True, **busy, out=folder / "ahead")
figure, axes = plt.subplots(2, 1, figsize=(9.5, 5.2), layout="constrained")
timeline.plot(waiting, axes[0], steps=1, title="stage 3, each unit gathered when it is needed")
timeline.plot(ahead, axes[1], steps=1, title="with prefetch: the thread's messages below each rank's own line")

# %% tags=["nbval-check-output"]
print("the same bits:", ahead.summary.params_sha256 == waiting.summary.params_sha256)
print("the same bytes:", ahead.summary.bytes_sent == waiting.summary.bytes_sent)
one, two = (run.summary.memory["measured"]["parameters"][0] for run in (waiting, ahead))
sizes_here = {
    each.name: sum(one.numel() * one.itemsize for one in each.parameters) for each in units(mlp((1, 8, 8), 10, 256, 4))
}
print(f"more parameters held: {(two - one) / max(sizes_here.values()):.2f} times the largest unit")
my_units.compare((two - one) / max(sizes_here.values()))

# %% [markdown]
# Prefetch hides messages that are shorter than the computation beside them: at best a step takes as long as the
# longer of the two, so it saves at most half the time.
#
# ## 5 What else FSDP does
#
# FSDP gathers numbers in **bfloat16**, two bytes instead of four; each rank keeps its own part in float32, and updates
# that. **Hybrid sharding** (混合分片) divides the model only over the ranks of a node, and each node has a copy: only
# an all-reduce of each rank's part crosses the network between nodes. And the optimizer's state, which only the
# update needs, can be stored in a file (**offload**).
#
# **Predict:** how many bytes does a rank send, compared with stage 3, in bfloat16, if the sums of gradients stay in
# float32? And with four ranks in groups of two?

# %%
my_bfloat16 = predict("bytes sent in bfloat16, in Ψ (stage 3: 2.25)", ...)
my_groups = predict("bytes sent in groups of two, in Ψ", ...)

# %% tags=["nbval-check-output"]
variants = {
    "bfloat16": {"precision": "bfloat16"},
    "groups of two": {"shard_over": 2},
    "state in a file": {"offload": "disk"},
}
few = {**recipe, "steps": 3}  # a step is like another
found = {name: launch("sharded", ranks=4, **few, **options, out=folder / name) for name, options in variants.items()}
for name, run in {"stage 3": runs[3], **found}.items():
    held = [run.summary.memory["measured"][kind][0] / whole for kind in KINDS]
    at_last = whole * (1 / 2 if name == "groups of two" else 3 / 4)  # the model is gathered, to be judged
    sent = (run.summary.bytes_sent[0] - at_last) / run.summary.steps / whole
    kinds = [f"{share:.2f} Ψ of {kind.replace('_', ' ')}" for kind, share in zip(KINDS, held, strict=True)]
    print(f"{name:15} sends {sent:.2f} Ψ in a step; holds {', '.join(kinds)}")
last = {"bfloat16": 3 / 4, "groups of two": 1 / 2}  # what the gathered model takes, at the end
psi = {name: (found[name].summary.bytes_sent[0] / whole - each) / few["steps"] for name, each in last.items()}
my_bfloat16.compare(psi["bfloat16"], within=0.02)
my_groups.compare(psi["groups of two"], within=0.02)

# %% [markdown]
# In bfloat16 the float32 parts count as optimizer state, as in the paper, because only the update needs them. The
# gradients include one copy in float32, of the unit that is being reduced.
#
# ## 6 What no stage divides: activations
#
# Each rank still keeps the activations of its own samples in all layers, from the forward to the backward pass.
# Section 1 has shown that they may take the most memory. They can be **computed again** (激活重计算) in the backward
# pass, from what is kept:
#
# - **selective:** attention keeps only its queries, keys and values; the softmax of all pairs of positions is
#   computed again.
# - **full:** each block of the transformer keeps only its inputs.
#
# Or they are **offloaded** (激活卸载): copied to the host's memory or to a file while the next layer computes, and
# fetched one layer ahead of its backward pass.
#
# Here torch reports every tensor that it keeps and frees, in one training step of a small language model with six
# blocks. The attention of this project's models is fused and keeps no square matrix; here an option makes it keep
# one.
#
# **Predict:** what do the four curves look like? When is the most kept? How often does the third one rise? How many
# layers are on the device at a time in the fourth?

# %%
my_order = predict("the order by what is kept, the most first", ..., order=["none", "selective", "full", "offloaded"])


# %%
class Watched(ActivationMeter):
    """Record how much is kept after each change."""

    def add(self, address, nbytes, holders):
        super().add(address, nbytes, holders)
        curve.append(self.now)


def kept_in_a_step(what):
    """Return the bytes kept in the course of a step, and the gradients."""
    torch.manual_seed(0)
    model = transformer((64,), 64, hidden=64, depth=6)
    characters = torch.randint(64, (4, 64))
    meter = Watched(model.parameters())
    unfuse(model)
    recompute(model, what, meter.watching)
    curve.clear()
    offload = ActivationOffload("host", model, meter) if what == "offloaded" else None
    with (offload or meter).watching():
        loss = cross_entropy(model(characters).flatten(0, 1), characters.flatten())
    loss.backward()
    if offload:
        print(f"out {offload.bytes_out:,} bytes, in {offload.bytes_in:,}")
        offload.close()
    return [0, *curve], [each.grad for each in model.parameters()]


curve = []
steps = {what: kept_in_a_step(what) for what in ("none", "selective", "full", "offloaded")}

# %%
figure, axes = plt.subplots(1, 4, figsize=(9.5, 2.6), sharey=True, layout="constrained")
axes[0].set(ylabel="MB of activations")
for ax, (what, (values, _)), colour in zip(axes, steps.items(), (BLUE, ORANGE, GREEN, GREY), strict=True):
    ax.fill_between(range(len(values)), [each / 1e6 for each in values], color=colour, alpha=0.3, step="post")
    ax.plot([each / 1e6 for each in values], color=colour, drawstyle="steps-post")
    ax.set(title=what, xlabel="tensors kept and let go", xticks=[])
    ax.spines[["top", "right"]].set_visible(False)

# %% tags=["nbval-check-output"]
with torch.device("meta"):
    layers, inputs = transformer((64,), 64, hidden=64, depth=6), torch.empty((4, 64), dtype=torch.int64)
for what, (values, gradients) in steps.items():
    formula = footprint(layers, inputs, loss=True, recompute=what, fused=False)
    most = formula.in_flight if what == "offloaded" else formula.activations + formula.again
    same = all(torch.equal(*pair) for pair in zip(gradients, steps["none"][1], strict=True))
    print(f"{what:9} keeps {max(values) / 1e6:5.2f} MB at most, {most / 1e6:5.2f} by",
          f"formula; the same gradients, to the bit: {same}")  # fmt: skip
my_order.compare(sorted(steps, key=lambda what: max(steps[what][0]), reverse=True))

# %% [markdown]
# Without recomputation everything accumulates until the forward pass ends. Selective recomputation saves the softmax,
# which grows with the square of the sequence, for a few per cent more operations. Full recomputation keeps one tensor
# for each block, and rises once per block in the backward pass: it holds one block's activations at a time, for a
# third more operations. With offloading, two layers are on the device at a time, the one that computes and the one
# that is copied out or in. Every byte goes out and comes in once, and no operation is repeated; between the two
# passes the device holds none of them.
#
# `farandole run sharded --data pydoc --model transformer --recompute full` does this on every rank, and
# `--offload-activations disk`, too; the record counts it. `pipeline`, `hybrid`, `tensor_split` and `grid` have the same
# options.
#
# ## 7 Another optimizer, and another layout
#
# **Muon** moves a matrix in a direction that depends on all of its elements, and keeps one number for each of them. A
# rank has only the momentum of its part. So the ranks gather it, unit by unit, as they gather parameters.
#
# **Predict:** how much more does a rank send than in stage 3 with Adam? Which kind of memory grows, although the
# state is smaller?

# %%
my_muon = predict("what it sends more in a step, in Ψ", ...)

# %% tags=["nbval-check-output"]
adam = launch("sharded", ranks=4, **few, save=folder / "trained", out=folder / "adam")
muon = launch("sharded", ranks=4, optimizer="muon", **few, out=folder / "muon")
for name, run in {"Adam": adam, "Muon": muon}.items():
    held = run.summary.memory["measured"]["optimizer_state"][0] / whole
    sent = (run.summary.bytes_sent[0] - whole * 3 / 4) / run.summary.steps / whole
    same = run.summary.memory["measured"] == run.summary.memory["formula"]
    print(f"{name}: sends {sent:.2f} Ψ in a step; optimizer state and update hold {held:.2f} Ψ; as by formula: {same}")
my_muon.compare((muon.summary.bytes_sent[0] - adam.summary.bytes_sent[0]) / few["steps"] / whole, within=0.05)

# %% [markdown]
# The momentum is a quarter of Ψ. In addition a rank temporarily holds one gathered unit, and the memory for the
# Newton-Schulz steps of one matrix: in a model of 13 small units 0.4 Ψ. A large model has many units, and this
# matters less.
#
# The first run has **saved** its state: each rank its part, and a manifest that says which part of which tensor that
# is. So another layout can load it, here two tensor ranks, each with half of every matrix.
#
# **Predict:** which elements of a layer's matrix does each of the four ranks have? And each of the two?

# %%
goes_on = {**few, "steps": 1, "optimizer": "adam", "lr": 0.003}
launch("tensor_split", ranks=2, **goes_on, load=folder / "trained", save=folder / "again", out=folder / "tensor")
layouts = {"saved by ZeRO-3 on 4 ranks": "trained", "saved again by 2 tensor ranks": "again"}
figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
for ax, (title, name) in zip(axes, layouts.items(), strict=True):
    owner = torch.zeros(64, 64)
    for file, part in Checkpoint(folder / name).parts("3.weight"):
        rank = int(file.removeprefix("rank-").split(".")[0])
        part.put(torch.full((part.run[1] - part.run[0],), float(rank)), owner)
    ax.imshow(owner, cmap=ListedColormap([BLUE, ORANGE, GREEN, GREY]), vmin=-0.5, vmax=3.5)
    ax.set(title=title, xticks=[], yticks=[], xlabel="columns", ylabel="rows of layer 1's matrix")
for rank, colour in enumerate((BLUE, ORANGE, GREEN, GREY)):
    axes[1].plot([], [], "s", color=colour, label=f"rank {rank}")
axes[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))

# %% tags=["nbval-check-output"]
model = mlp((1, 8, 8), 10, 64, 12)
model.load_state_dict(Checkpoint(folder / "trained").state_dict())
print("the whole model out of the files, to the bit:", sha256(model) in adam.summary.params_sha256)

# %% [markdown]
# ZeRO cuts a unit's elements into contiguous ranges; tensor ranks have rows or columns. `farandole checkpoint FOLDER`
# lists this for every tensor, and `--export model.safetensors` writes the whole model into one file.
#
# ## 8 How it is written
#
# A step is the same for all stages. Torch's hooks do what differs: they gather a unit before its forward pass and
# free it afterwards, gather it again when backward reaches its outputs, and reduce its gradient when the last part is
# there. `backward` calls `_forward` once, or with `--accumulate` for each micro-batch, and surrounds each pass by
# `_around`.

# %% tags=["nbval-check-output"]
for part in (ShardedSGD.step, ShardedSGD._forward, ShardedSGD._around, Hooks._hooked):
    print(inspect.getsource(part))

# %% [markdown]
# One thing is hidden in `watching`, which uses torch's `saved_tensors_hooks`. A layer's backward needs its weights, so
# autograd saves them, and would keep the whole vector from forward to backward, so no memory would be saved. Instead
# autograd saves the *position* of the weights, and reads them there when the unit has been gathered again.
#
# ## What you have seen
#
# - Data parallel holds everything N times. ZeRO keeps one copy, divided: first the optimizer's state, then gradients,
#   then parameters.
# - The training is the same, to the bit in all stages.
# - Stages 1 and 2 send no more bytes than an all-reduce. Stage 3 sends half as much again, and holds one layer whole.
# - Prefetch hides the messages behind the computation, at the cost of one more layer in memory.
# - Activations are not divided by any of them. They can be computed again or offloaded; and pipelines, tensor and
#   sequence parallel divide them (notebooks `13_pipelines`, `14_tensor_split`, `28_long_sequences`).
#
# **Try:** `farandole run sharded -n 4 --data pydoc --model transformer --hidden 64 --batch 32` and look at `memory` in
# its summary.json · the same training by torch's own FSDP, `farandole compare sharded fsdp_sgd -n 4` · your own model:
# `--task my_task.py` (notebook `26_your_own_model`) · `sharded/minimal.py`, stage 3 in one file, with the messages
# written out · lab `17_zero`, in which you write them.
