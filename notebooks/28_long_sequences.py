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
# # 28 · Long sequences
#
# **Question:** a model fits on one device, but the activations of one long text do not. How can several ranks share
# *one* sequence, when each position attends to all positions before it?
#
# Document 004 gives the reason for cutting matrices: some are so large that a GPU's memory cannot hold them
# (显存塞不下). In attention the largest matrix has a row and a column for every position. This notebook first avoids
# that matrix, and then divides the sequence in two ways: **ring attention** and **Ulysses**. A third, **sequence
# parallel**, completes a tensor split.

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.patches import Rectangle
from torch.nn.functional import scaled_dot_product_attention

from farandole import launch
from farandole.collectives.costs import coefficients
from farandole.collectives.ring import ALL_GATHER, REDUCE_SCATTER, RING
from farandole.model_parallel.context import steps
from farandole.model_parallel.context.blockwise import BlockwiseAttention
from farandole.model_parallel.context.placement import contiguous, work, zigzag
from farandole.model_parallel.context.steps import Attend
from farandole.model_parallel.context.traffic import attention_bytes
from farandole.model_parallel.memory import ActivationMeter
from farandole.models.transformer import FeedForward
from farandole.report import timeline
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, PURPLE
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100
RANKS = (BLUE, ORANGE, GREEN, PURPLE)

# %% [markdown]
# ## 1 Why attention's memory grows
#
# With T positions, attention computes a score for every query and every key: T × T numbers per head. The
# straightforward program keeps the softmax of all of them for the backward pass. `ActivationMeter` counts what autograd
# keeps.
#
# **Predict:** T doubles. How much more do attention and the feed-forward network keep?

# %%
my_attention = predict("times as much that attention keeps", ...)
my_feed_forward = predict("times as much that the feed-forward network keeps", ...)


# %% tags=["nbval-check-output"]
def kept(compute, *inputs):
    """Return the bytes that autograd keeps for the backward pass of `compute`."""
    meter = ActivationMeter([])
    with meter.watching():
        outputs = compute(*inputs)
    del outputs
    return meter.most


def naive(query, key, value):
    scores = query @ key.mT / query.shape[-1] ** 0.5
    after = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(after, -torch.inf).softmax(-1) @ value


def fused(query, key, value):
    return scaled_dot_product_attention(query, key, value, is_causal=True)


lengths = [64, 128, 256, 512, 1024]
feed_forward = FeedForward(64)
grown = {"all scores kept": [], "in blocks": [], "feed-forward": []}
for T in lengths:
    heads = [torch.randn(1, 4, T, 16, requires_grad=True) for _ in range(3)]
    grown["all scores kept"].append(kept(naive, *heads))
    grown["in blocks"].append(kept(fused, *heads))
    grown["feed-forward"].append(kept(feed_forward, torch.randn(1, T, 64, requires_grad=True)))
for name, bytes_kept in grown.items():
    print(
        f"{name:16}",
        *(f"{each / 2**20:8.2f} MiB" for each in bytes_kept),
        f"  last doubling: ×{bytes_kept[-1] / bytes_kept[-2]:.1f}",
    )
growth = {name: bytes_kept[-1] / bytes_kept[-2] for name, bytes_kept in grown.items()}
my_attention.compare(growth["all scores kept"], within=0.1)
my_feed_forward.compare(growth["feed-forward"], within=0.1)

# %%
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, bytes_kept), colour in zip(grown.items(), (ORANGE, BLUE, GREY), strict=True):
    ax.loglog(lengths, np.array(bytes_kept) / 2**20, "o-", color=colour, label=name)
ax.set(xlabel="positions T", ylabel="MiB kept", xticks=lengths, xticklabels=lengths)
ax.minorticks_off()
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# The scores grow as T², everything else as T. Torch's fused attention (`in blocks`) never stores them: it keeps
# queries, keys, values, the output, and one number per row. How can a softmax be computed without its whole row?
#
# ## 2 A softmax in blocks
#
# A softmax over all keys can be joined from softmaxes over blocks of keys. For a query and a block of keys, let L be
# the logarithm of the sum of exp(score), and o the block's output. Then for two blocks a and b
#
# $$ L = \log(e^{L_a} + e^{L_b}), \qquad o = e^{L_a - L}\,o_a + e^{L_b - L}\,o_b $$
#
# **Predict:** does the order of the blocks matter? What if the scores are as large as 1,000?

# %%
my_matters = predict("the order of the blocks matters", ..., "yes", "no")

# %% tags=["nbval-check-output"]
torch.manual_seed(0)
T = 16
query, key, value = torch.randn(3, 1, 1, T, 8, dtype=torch.float64)
query = 300 * query
largest = round((query @ key.mT).abs().max().item() / 8**0.5)
print("largest score:", largest, "– its exponential alone would overflow")
exact = fused(query, key, value)
parts = [range(4), range(4, 8), range(8, 12), range(12, 16)]
for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
    attention = BlockwiseAttention(query, parts)
    for number in order:
        rows = slice(parts[number].start, parts[number].stop)
        attention.add(key[:, :, rows], value[:, :, rows], [parts[number]])
    found, log_sum = attention.result
    print("blocks in the order", order, "equal attention to 1e-12:", bool((found - exact).abs().max() < 1e-12))
my_matters.compare(bool((found - exact).abs().max() > 1e-12))

# %% [markdown]
# The order does not matter. So a rank can attend to the blocks in any order. Ring attention needs nothing else.
#
# ## 3 Ring attention
#
# Each rank keeps its queries. The blocks of keys and values go around: in step t rank r has the block of rank r − t.
# The rank attends to this block while it sends it to its right neighbour and receives the next one from the left.
#
# **Predict:** with 4 ranks, which block does rank 1 have in step 3?

# %%
my_block = predict("the block of rank 1 in step 3", ...)

# %%
P = 4
figure, ax = plt.subplots(figsize=(7, 2.9), layout="constrained")
for rank in range(P):
    blocks = [step.block for step in steps.forward(rank, P) if isinstance(step, Attend)]
    for step, block in enumerate(blocks):
        ax.add_patch(Rectangle((1.6 * step, -rank - 0.8), 1, 0.8, facecolor=RANKS[block]))
        ax.text(1.6 * step + 0.5, -rank - 0.4, f"block {block}", ha="center", va="center", color="white")
        if step < P - 1:
            down = -1 if rank < P - 1 else P - 1
            ax.annotate("", (1.6 * step + 1.58, -rank - 0.4 + down * 0.97), (1.6 * step + 1.02, -rank - 0.4),
                        arrowprops={"arrowstyle": "->", "color": RANKS[block], "alpha": 0.8})  # fmt: skip
    ax.text(-0.15, -rank - 0.4, f"rank {rank}", ha="right", va="center")
for step in range(P):
    ax.text(1.6 * step + 0.5, 0.2, f"step {step}", ha="center")
ax.set(xlim=(-0.9, 6), ylim=(-4, 0.5))
ax.set_axis_off()
my_block.compare([each.block for each in steps.forward(1, P) if isinstance(each, Attend)][3])

# %% [markdown]
# The backward pass goes around once more. Now the gradient of a block's keys and values travels with the block, and
# every rank adds its part. With one more hop than the block itself, the gradient reaches the rank that the block came
# from.
#
# ## 4 How the work is divided
#
# The last position attends to everything, the first one only to itself. Each small square below is one part of the
# queries (row) with one part of the keys (column), coloured by the rank that computes it. The number is the step of
# the ring in which the rank does so.
#
# **Predict:** the sequence is cut into 4 parts, one per rank. In which step does rank 0 stop working? How many ranks
# work in the last step?

# %%
my_stop = predict("the last step in which rank 0 works", ...)
my_working = predict("ranks that work in the last step", ...)

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 4.3), layout="constrained")
for ax, (title, placement) in zip(axes, (("contiguous", contiguous(8, P)), ("zig-zag", zigzag(8, P))), strict=True):
    owner = {position: rank for rank, parts in enumerate(placement) for part in parts for position in part}
    for row in range(8):
        for column in range(row + 1):
            step = (owner[row] - owner[column]) % P
            ax.add_patch(Rectangle((column, -row - 1), 0.94, 0.94, facecolor=RANKS[owner[row]]))
            ax.text(column + 0.47, -row - 0.53, str(step), ha="center", va="center", color="white")
        ax.text(-0.2, -row - 0.5, f"rank {owner[row]}", ha="right", va="center", fontsize=9)
    ax.set(xlim=(-1.2, 8), ylim=(-8.1, 0.1), aspect="equal", title=f"{title}: queries down, keys to the right")
    ax.set_axis_off()

# %% tags=["nbval-check-output"]
T = 64
for title, placement in (("contiguous", contiguous(T, P)), ("zig-zag", zigzag(T, P))):
    per_rank = work(placement)
    print(f"{title}: pairs of a query and a key, by rank and step")
    for rank, pairs in enumerate(per_rank):
        print(f"   rank {rank}:", *(f"{each:4}" for each in pairs), "  together", sum(pairs))
    slowest = sum(max(of_rank[step] for of_rank in per_rank) for step in range(P))
    mean = sum(map(sum, per_rank)) / P
    print(f"   the slowest rank of each step, all steps: {slowest}, and the mean per rank is {mean:g}")
pairs = work(contiguous(T, P))
my_stop.compare(max(step for step in range(P) if pairs[0][step]))
my_working.compare(sum(of_rank[P - 1] > 0 for of_rank in pairs))

# %% [markdown]
# With contiguous parts rank 0 has nothing to do after step 0, and rank 3 computes in every step. All ranks wait for
# the slowest, which computes a whole square in each of the later steps. A **zig-zag** gives each rank an early part
# and a late one. Then every rank computes half a square in every later step, and all steps together take little more
# than half the time.
#
# ## 5 Does it learn the same?
#
# The scenario `context_parallel` trains the character-level transformer with each text of 64 characters divided over
# the ranks. Everything else in a transformer treats each position separately. Two details remain: a position's
# embedding is that of its place in the *whole* text, and each rank's loss is weighted by its share of the characters.

# %%
recipe = {"batch": 8, "steps": 2, "precision": "float64"}
runs = {P: launch("context_parallel", ranks=P, **recipe, out=folder / f"ring-{P}") for P in (1, 2, 4)}
ulysses = {P: launch("context_parallel", ranks=P, attention="ulysses", **recipe, out=folder / f"u-{P}") for P in (2, 4)}

# %% [markdown]
# **Predict:** how many bytes are sent? Let n be the bytes of the keys of all positions, 8 · 8 · 64 · 64 (samples,
# positions, width). How much does a rank send per layer, forward and backward? And for the gradients of the
# parameters?

# %%
my_forward = predict("bytes per layer forward on 4 ranks, in n", ...)
my_backward = predict("bytes per layer backward on 4 ranks, in n", ...)

# %% tags=["nbval-check-output"]
losses = {P: np.array([line["loss"] for line in run.metrics]) for P, run in runs.items()}
n, layers = 8 * 8 * 64 * 64, 2
parameters = runs[1].summary.memory["measured"]["parameters"][0]
for P in (2, 4):
    summary = runs[P].summary
    print(f"{P} ranks: the same losses as one rank, to 1e-10: {abs(losses[P] - losses[1]).max() < 1e-10};",
          f"the same parameters on all ranks: {len(set(summary.params_sha256)) == 1}")  # fmt: skip
    forward, backward = 2 * (P - 1) * n // P, 2 * (P - 1) * n // P + 2 * n
    gradients = 2 * (P - 1) * parameters / P
    per_step, counted = layers * (forward + backward) + gradients, summary.bytes_sent[0] / 2
    print(
        f"   {layers} layers: {layers * forward:,} forward, {layers * backward:,} backward; gradients {gradients:,.0f}"
    )
    print(f"   per step: {per_step:,.0f}; counted by rank 0: {counted:,.0f}")
my_forward.compare(forward / n)
my_backward.compare(backward / n)

# %% [markdown]
# Forward, P − 1 blocks of keys and values. Backward, the same again and P gradients of blocks. All ranks have all
# parameters, so their gradients are added up as in data parallel.
#
# And the memory, which was the reason for the division:

# %% tags=["nbval-check-output"]
alone = runs[1].summary.memory["measured"]["activations"][0]
for name, several in (("ring", runs), ("Ulysses", ulysses)):
    for P, run in several.items():
        memory = run.summary.memory
        shares = [each / alone for each in memory["measured"]["activations"]]
        pairs = zip(memory["measured"]["activations"], memory["formula"]["activations"], strict=True)
        close = all(abs(measured / formula - 1) < 0.01 for measured, formula in pairs)
        print(f"{name:7} on {P} ranks: activations {max(shares):.1%} of one rank's; within 1 % of the formula: {close}")

# %% [markdown]
# Each rank has a P-th, and no part stays whole. (A tensor split leaves a quarter undivided: notebook
# `14_tensor_split`.) Parameters are not divided at all. Ulysses keeps one vector more per position and layer: the
# output by head as well as by position.
#
# In the step below, the compute bars include attention's messages: forward, then backward, which sends more than
# twice as much. At the end the ranks add up all gradients. Where there are more ranks than cores, much of the grey is
# waiting for a core.

# %%
figure, ax = plt.subplots(figsize=(9.5, 2.8), layout="constrained")
timeline.plot(runs[4], ax, steps=1, title="ring attention on 4 ranks, one step")

# %% [markdown]
# ## 6 Ulysses: positions for heads
#
# Heads are independent of each other. So a rank that has *all positions of some heads* can compute their attention
# alone, in the ordinary way. Everything else needs *some positions with all heads*. An **all-to-all** changes from
# one to the other: every rank sends every other a different block.

# %%
figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.7), layout="constrained")
titles = ("before: projections, by position", "between: attention, by head", "after: by position again")
for ax, title, by_head in zip(axes, titles, (False, True, False), strict=True):
    for head in range(4):
        for part in range(4):
            colour = RANKS[head if by_head else part]
            ax.add_patch(Rectangle((part, -head), 0.94, 0.94, facecolor=colour))
    ax.set(xlim=(-0.1, 4), ylim=(-3.1, 1.1), aspect="equal")
    ax.set_title(title, fontsize=10)
    ax.set_xticks([0.47, 3.47], ["first\npositions", "last"])
    ax.set_yticks([0.47, -2.53], ["head 0", "head 3"])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)

# %% tags=["nbval-check-output"]
for P, run in ulysses.items():
    found = np.array([line["loss"] for line in run.metrics])
    blocks = 4 * (P - 1) * n // P**2
    per_step = 2 * layers * blocks + 2 * (P - 1) * parameters / P
    print(f"{P} ranks: the same losses as one rank, to 1e-12: {abs(found - losses[1]).max() < 1e-12}")
    counted = run.summary.bytes_sent[0] / 2
    print(f"   per layer {blocks:,} forward and as much backward; per step {per_step:,.0f}; counted {counted:,.0f}")

# %% [markdown]
# Queries, keys and values are sent, and the outputs come back: four times (P − 1)/P of a rank's n/P. **Predict:**
# with more ranks, which of the two sends less per rank, and what limits it?

# %%
my_less = predict("the one that sends less on 32 ranks", ..., "ring", "ulysses")

# %%
ranks = [2, 4, 8, 16, 32]
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, colour in (("ring", ORANGE), ("ulysses", BLUE)):
    sent = [sum(attention_bytes(name, zigzag(64, P), 0, 1024).values()) / 64 / 1024 for P in ranks]
    ax.plot(ranks, sent, "o-", color=colour, label=f"{name}, by formula")
for several, colour in ((runs, ORANGE), (ulysses, BLUE)):
    for P, run in several.items():
        if P > 1:
            gradients = 2 * (P - 1) * parameters / P
            ax.plot(P, (run.summary.bytes_sent[0] / 2 - gradients) / layers / n, "s", color=colour, markersize=11,
                    fillstyle="none", label="counted above" if P == 2 else None)  # fmt: skip
ax.set(xscale="log", xticks=ranks, xticklabels=ranks, xlabel="ranks", ylabel="sent per layer and rank, in n", ylim=0)
ax.minorticks_off()
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
sent_by_32 = {name: sum(attention_bytes(name, zigzag(64, 32), 0, 1024).values()) for name in ("ring", "ulysses")}
my_less.compare(min(sent_by_32, key=sent_by_32.get))

# %% [markdown]
# Ulysses: a rank's block shrinks with P, and so does what it sends. But the number of ranks must divide the number of
# heads: this model has four, so eight ranks are refused. The ring's bytes do not shrink, but it allows any number of
# ranks. And a ring's message travels while the rank computes: with T/P positions per rank, a step's attention takes
# (T/P)² operations and its message T/P numbers, so with long enough parts the message costs no time.
#
# ## 7 Megatron's sequence parallel: positions between the matrices
#
# A tensor split (notebook `14_tensor_split`) divides the matrices, and with them every activation *within* a pair of
# layers. Between the pairs, every rank computes norms and sums on whole vectors. Korthikanti et al. (2022) divide
# these by position. A pair of layers then begins with an **all-gather**, and ends with a **reduce-scatter** in place
# of an all-reduce. (序列并行)

# %%
figure, axes = plt.subplots(2, 1, figsize=(9.5, 2.8), layout="constrained", sharex=True)
STEPS = ("norm", "first matrix", "GELU", "second matrix", "sum", "norm")
for ax, (title, between, meeting) in zip(axes, (
    ("tensor split", None, ("", "all-reduce")),
    ("with sequence parallel", True, ("all-gather", "reduce-scatter")),
), strict=True):  # fmt: skip
    for place, step in enumerate(STEPS):
        divided = 0 < place < 4
        for rank in range(2):
            colour = RANKS[rank] if divided or between else GREY
            ax.add_patch(Rectangle((place + 0.06, 0.5 - 0.5 * rank), 0.88, 0.46, facecolor=colour))
        by = "by column" if divided else "by position" if between else "whole, on each rank"
        ax.text(place + 0.5, 1.06, f"{step}\n{by}", ha="center", va="bottom", fontsize=8)
    for place, name in zip((1, 4), meeting, strict=True):
        if name:
            ax.axvline(place, color="black", lw=1.5)
            ax.text(place, -0.12, name, ha="center", va="top", fontsize=9)
    ax.set(xlim=(0, 6), ylim=(-0.1, 1), yticks=(0.73, 0.23), yticklabels=("rank 0", "rank 1"), xticks=())
    ax.set_title(title, fontsize=10, pad=28, loc="left")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)

# %% [markdown]
# **Predict:** an all-reduce of n bytes is a reduce-scatter and an all-gather. Which of the two trainings sends more in
# its forward pass? And in backward, where the input of the first matrix is needed again, but has not been kept whole?

# %%
my_pass_forward = predict("more in the forward pass", ..., "tensor split", "sequence parallel", "both the same")
my_pass_backward = predict("more in the backward pass", ..., "tensor split", "sequence parallel", "both the same")

# %% tags=["nbval-check-output"]
text = {"model": "transformer", "data": "pydoc", **recipe}
split = {on: launch("tensor_split", ranks=2, sequence_parallel=on, **text, out=folder / f"tensor-{on}") for on in
         (False, True)}  # fmt: skip
found = {on: np.array([line["loss"] for line in run.metrics]) for on, run in split.items()}
print("the same losses, to 1e-12:", abs(found[True] - found[False]).max() < 1e-12)
kept_by = {on: run.summary.memory["measured"]["activations"][0] for on, run in split.items()}
sent_by = {on: run.summary.bytes_sent[0] for on, run in split.items()}
print(f"activations kept with sequence parallel: {kept_by[True] / kept_by[False]:.0%} of those without")
print(f"bytes sent: {sent_by[True] / sent_by[False]:.2f} of those without")
forward = {"tensor split": coefficients(RING, 2)[1],
           "sequence parallel": coefficients(REDUCE_SCATTER, 2)[1] + coefficients(ALL_GATHER, 2)[1]}  # fmt: skip
my_pass_forward.compare("both the same" if np.isclose(*forward.values()) else max(forward, key=forward.get))
my_pass_backward.compare("sequence parallel" if sent_by[True] > sent_by[False] else "both the same")

# %% [markdown]
# No part of a block is whole on a rank any more, so each rank has a t-th of the activations. Forward sends the same
# bytes, because the two halves replace the whole. Backward gathers the inputs of the first matrices once more, half
# as much again.
#
# The three methods can be combined. Sequence parallel belongs to a tensor split and stays within a fast node. Ring
# attention and Ulysses divide the sequence itself.
#
# ## What you have seen
#
# - The scores of attention grow as T². In blocks they are never all stored, and the result is the same.
# - Ring attention passes blocks of keys and values around; the order in which a rank gets them does not matter.
# - With a causal mask contiguous parts have unequal work; with a zig-zag the work is equal in every step.
# - Ulysses changes positions for heads and back by all-to-all; its bytes fall with P, and heads limit P.
# - Both learn what the unsplit model learns, with 1/P of its activations. Bytes and memory are those of the formulas.
# - Sequence parallel divides what a tensor split leaves whole: an all-gather and a reduce-scatter for each all-reduce.
#
# ## What to try
#
# 1. `placement="contiguous"` in section 5, and the timeline again. Which rank waits for which?
# 2. `launch("context_parallel", ranks=3, …)`: the parts are of 10 and 11 positions. Do the losses still agree?
# 3. `attention="ulysses"` on three ranks: what does the error message say? Which `hidden` would work?
# 4. `mpirun -n 4 python -m farandole.model_parallel.context.minimal` is the ring in one file. Remove the scaling of
#    the sum when a larger score comes. For which inputs is the result still right?
# 5. Lab `18_ring_attention` has you write the ring and the softmax in blocks.
