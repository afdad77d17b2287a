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
# # 14 · Matrices in blocks
#
# **Question:** notebook `12_layer_split` cuts a model between its layers. What if *one layer* is too large for a
# device, or too slow on it?
#
# Then its matrix has to be cut. Document 004 says that cutting a network is, from the computation's side, processing
# the **matrix in blocks** (矩阵做了分块处理). These are two methods (erratum 004.3): a layer split leaves every
# matrix whole, and the ranks work one after another; with blocks *all ranks work on every layer at the same time*.
# The second is called **tensor parallel** (张量并行) today, and became common with Megatron-LM (Shoeybi et al. 2019).

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from farandole import launch
from farandole.report import timeline
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 Two ways to cut a product
#
# A linear layer is a product Y = X A. X has a row for each sample, A a row for each input and a column for each output.
# A can be cut by columns or by rows. All ranks have the grey parts; blue belongs to rank 0 and orange to rank 1.


# %%
def equation(ax, title, *terms):
    """Draw symbols, and matrices (name, height, width, how it is cut or which rank has it)."""
    x = 0.0
    for term in terms:
        if isinstance(term, str):
            ax.text(x + 0.4, 0, term, ha="center", va="center", fontsize=14)
            x += 0.8
            continue
        name, height, width, cut = term
        parts = zip(np.arange(2) / 2, (BLUE, ORANGE), strict=True) if cut in ("columns", "rows") else [(0, cut)]
        w, h = (width / 2 if cut == "columns" else width), (height / 2 if cut == "rows" else height)
        for start, colour in parts:
            corner = (x + start * width, -height / 2) if cut == "columns" else (x, height / 2 - h - start * height)
            ax.add_patch(Rectangle(corner, w, h, facecolor=colour, edgecolor="white", linewidth=2))
        ax.text(x + width / 2, height / 2 + 0.1, name, ha="center", fontsize=12)
        x += width
    ax.set(xlim=(-0.2, 14.2), ylim=(-1.4, 1.9), aspect="equal")
    ax.set_title(title, loc="left")
    ax.set_axis_off()


figure, axes = plt.subplots(2, 1, figsize=(8.5, 4.2), layout="constrained")
left, right = ("", 2, 3, BLUE), ("", 2, 3, ORANGE)
equation(axes[0], "A by columns: every rank needs all of X, and computes some columns of Y",
         ("X", 2, 2.4, GREY), "·", ("A", 2.4, 3, "columns"), "=", ("Y", 2, 3, "columns"))  # fmt: skip
equation(axes[1], "A by rows: a rank needs some columns of X, and computes only one summand of Y",
         ("X", 2, 2.4, "columns"), "·", ("A", 2.4, 3, "rows"), "=", left, "+", right)  # fmt: skip

# %% [markdown]
# **Predict:** which of the two needs a message before every rank has all of Y, and which before *any* rank has a single
# element of Y?

# %%
my_cut = predict("the cut that needs a message before any rank has an element", ..., "by columns", "by rows")

# %% tags=["nbval-check-output"]
rng = np.random.default_rng(0)
X, A = rng.standard_normal((6, 8)), rng.standard_normal((8, 10))

by_columns = [X @ block for block in np.split(A, 2, axis=1)]
by_rows = [x @ block for x, block in zip(np.split(X, 2, axis=1), np.split(A, 2, axis=0), strict=True)]
print("by columns, the parts are", [part.shape for part in by_columns], "and side by side they are Y:",
      np.allclose(np.hstack(by_columns), X @ A))  # fmt: skip
print("by rows, the parts are   ", [part.shape for part in by_rows], "and added up they are Y: ",
      np.allclose(sum(by_rows), X @ A))  # fmt: skip
complete = {"by columns": np.isclose(by_columns[0], (X @ A)[:, :5]), "by rows": np.isclose(by_rows[0], X @ A)}
my_cut.compare(min(complete, key=lambda cut: complete[cut].sum()))  # the cut with the fewest elements of Y on rank 0

# %% [markdown]
# Both need messages: columns a gather, rows a sum. But the halves of Y after a cut by columns are *finished*, and
# each rank can continue with its half. Layers come in pairs, with an elementwise non-linear function between them,
# here called bend: Y = X A, then H = bend(Y), then Z = H B.
#
# **Predict:** A by columns or by rows? B by columns or by rows? Find the pair of cuts with the fewest messages. Why not
# A by rows?

# %%
my_A = predict("A", ..., "by columns", "by rows")
my_B = predict("B", ..., "by columns", "by rows")


# %% tags=["nbval-check-output"]
def bend(numbers):
    return np.maximum(numbers, 0)


B = rng.standard_normal((10, 8))
Z = bend(X @ A) @ B
parts = [bend(X @ a) @ b for a, b in zip(np.split(A, 2, axis=1), np.split(B, 2, axis=0), strict=True)]
print("A by columns, B by rows, one sum at the end; it is Z:", np.allclose(sum(parts), Z))
print("A by rows, each summand bent for itself; their sum is H:", np.allclose(sum(map(bend, by_rows)), bend(X @ A)))
# H from halves of X A that are bent apart: right without a message in between?
bent = {"by columns": np.hstack([bend(X @ a) for a in np.split(A, 2, axis=1)]), "by rows": sum(map(bend, by_rows))}
my_A.compare(next(cut for cut in bent if np.allclose(bent[cut], bend(X @ A))))
half_of_H = bend(by_columns[0])  # a rank's; its half of B must have as many rows as this has columns
halves_of_B = {"by columns": np.split(B, 2, axis=1)[0], "by rows": np.split(B, 2, axis=0)[0]}
my_B.compare(next(cut for cut in halves_of_B if len(halves_of_B[cut]) == half_of_H.shape[1]))

# %% [markdown]
# **Columns, then rows.** The first layer's output on a rank is just what the second layer needs there. The rank can
# apply the bend without messages, and the pair costs a single all-reduce. With A by rows the sum must be complete
# *before* the bend, because the bend of a sum is not the sum of the bends. With B by columns every rank would need
# all of H.
#
# ## 2 The way back: f and g
#
# Torch knows nothing of a sum by messages, so it must be told how to go backward through it. Z is the sum of all
# parts, so the gradient of each part is the gradient of Z, which every rank has. *Backward of the sum is the
# identity.* And X, which all ranks have used, gets a gradient from each of them:
#
# $$ Z = \sum_r \mathrm{bend}(X A_r)\,B_r \qquad\Rightarrow\qquad
# \frac{\partial L}{\partial X} = \sum_r \frac{\partial L}{\partial Y_r}\,A_r^\top $$
#
# *Backward of the identity is a sum.* Megatron calls the two operators f (where X goes in) and g (where Z comes out).
# They are each other's conjugates:
#
# | | forward | backward |
# |---|---|---|
# | f, a copy to the parts | nothing | all-reduce |
# | g, a sum of the parts | all-reduce | nothing |
#
# Here they are on two ranks, in the linear layers that the scenario uses. For comparison each rank also computes with
# the whole layers. Finally f is left out of the column layer (`entered=True` says that X has already passed f).
#
# **Predict:** how many bytes does a rank send forward, and how many backward, if X has n bytes? And what will be wrong
# without f: the outputs, the gradients of the two layers, or the gradient of X?

# %%
my_forward = predict("bytes sent forward, in n", ...)
my_backward = predict("bytes sent backward, in n", ...)
my_wrong = predict("what is wrong without f", ..., "the outputs", "the gradients of the layers", "the gradient of X")

# %% tags=["nbval-check-output"]
# %%mpi -n 2 --keep sent,equals
import torch
from mpi4py import MPI
from torch import nn

from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.model_parallel.tensor.linear import ColumnLinear, RowLinear
from farandole.runtime.communicator import Communicator

torch.set_num_threads(1)
torch.manual_seed(0)  # the same layers, and the same X, on all ranks
torch.set_default_dtype(torch.float64)
comm = Communicator(MPI.COMM_WORLD)
group = TensorGroup(comm)
expand, contract = nn.Linear(64, 256), nn.Linear(256, 64)
X, coming_back = torch.randn(32, 64), torch.randn(32, 64)


def both_ways(first, second):
    """Return Z, the gradients of X and of the first weights; bytes sent forward and backward, as shares of X's."""
    x, start = X.clone().requires_grad_(), comm.bytes_sent
    Z = second(nn.functional.gelu(first(x)))
    middle = comm.bytes_sent
    Z.backward(coming_back)
    sent = (middle - start) / X.nbytes, (comm.bytes_sent - middle) / X.nbytes
    return (Z.detach(), x.grad, first.weight.grad), sent


(Z, of_X, of_A), _ = both_ways(expand, contract)
mine = of_A.chunk(2)[comm.rank]  # torch keeps Aᵀ: these are the columns of A
sent, equals = {}, {}
for name, leave_out_f in {"with f and g": False, "without f": True}.items():
    first, second = ColumnLinear(expand, group, entered=leave_out_f), RowLinear(contract, group)
    found, (forward, backward) = both_ways(first, second)
    equal = [(a - b).abs().max().item() < 1e-12 for a, b in zip(found, (Z, of_X, mine), strict=True)]
    sent[name], equals[name] = (forward, backward), equal
    print(f"rank {comm.rank}, {name:12}: equal to the whole layers to 1e-12: Z {equal[0]}, gradient of X {equal[1]},",
          f"of A {equal[2]}; sends {forward:g} n forward, {backward:g} n backward")  # fmt: skip
print(f"rank {comm.rank} has {tuple(first.weight.shape)} of {tuple(expand.weight.shape)},",
      f"then {tuple(second.weight.shape)} of {tuple(contract.weight.shape)}")  # fmt: skip

# %% tags=["nbval-check-output"]
forward, backward = sent[0]["with f and g"]
my_forward.compare(forward)
my_backward.compare(backward)
compared = "the outputs", "the gradient of X", "the gradients of the layers"
my_wrong.compare(compared[equals[0]["without f"].index(False)])

# %% [markdown]
# Without f everything looks right, and the pair itself does learn. Only the layers *before* it get half a gradient,
# each rank another half: only there can a missing f be detected.
#
# An all-reduce of n bytes costs 2(P−1)/P n per rank with the ring, that is n for two ranks. The bias of the second
# layer is added after the sum. In each part it would be counted P times.
#
# ## 3 Attention by heads
#
# The transformer's other half, **attention**, has four matrices: queries, keys, values and output. Between them every
# position attends to all positions before it, which is not an elementwise function. But attention works *head by
# head*, and no head uses another one. So a rank gets some heads: their columns of the first three matrices, and their
# rows of the fourth.
#
# **Predict:** four heads of 16 numbers, three ranks. Which shapes do the queries' weights have? How many all-reduces
# does it take, forward and backward?

# %%
my_rows = predict("rows of the queries' weights on ranks 0, 1 and 2, as a list", ...)
my_all_reduces = predict("all-reduces forward and backward, as a list", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 3 --keep rows,all_reduces
import torch
from mpi4py import MPI

from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.model_parallel.tensor.transformer import ParallelAttention
from farandole.models.transformer import Attention
from farandole.runtime.communicator import Communicator

torch.set_num_threads(1)
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
comm = Communicator(MPI.COMM_WORLD)
whole = Attention(width=64, heads=4)
split = ParallelAttention(whole, TensorGroup(comm))
X = torch.randn(6, 10, 64)  # samples, places, width
outputs, gradients, all_reduces = [], [], []
for attention in (whole, split):
    x, before = X.clone().requires_grad_(), comm.messages_sent
    outputs.append(attention(x))
    middle = comm.messages_sent
    outputs[-1].square().sum().backward()
    gradients.append(x.grad)
    ring = 2 * (comm.size - 1)  # messages of one all-reduce
    all_reduces = [(middle - before) // ring, (comm.messages_sent - middle) // ring]
rows = len(split.query.weight)
same = all((a - b).abs().max() < 1e-12 for a, b in (outputs, gradients))
print(f"rank {comm.rank}: weights of the queries {tuple(split.query.weight.shape)}, of the output"
      f" {tuple(split.output.weight.shape)}; all-reduces forward and backward {all_reduces};"
      f" same output and gradient to 1e-12: {same}")  # fmt: skip

# %% tags=["nbval-check-output"]
my_rows.compare(rows)
my_all_reduces.compare(all_reduces[0])

# %% [markdown]
# f comes before all three, so their gradients of X are added first on the rank, and then once between the ranks.
# Document 004's law of the barrel holds here, too: rank 0 has two heads, and the others wait for it. Heads that
# divide evenly are better.
#
# ## 4 By vocabulary: the embedding and the loss
#
# Two more matrices are large in a language model: the **embedding** has a vector for each symbol, and the head
# computes a score for each symbol. Both are cut by vocabulary. A rank looks up the symbols that it has, and
# contributes zero for all others; the sum is right.
#
# The scores (logits) are then divided between the ranks, and the cross-entropy needs all of a row: its loss is
# $\log \sum_c e^{z_c} - z_\text{target}$. One could gather the rows, but with 50,000 symbols the logits are most of a
# model's activations. Three numbers per rank and row are enough: the largest score m, the sum s of $e^{z - m}$, and
# the target's score, or 0 where another rank has it.
#
# **Predict:** how do you combine the m and s of two ranks?

# %% tags=["nbval-check-output"]
row, target = np.array([1000.0, 998.0, 3.0, 1001.0, 999.5, -7.0]), 4
halves = [row[:3], row[3:]]
m = [half.max() for half in halves]
s = [np.exp(half - largest).sum() for half, largest in zip(halves, m, strict=True)]
wanted = [0.0, halves[1][target - 3]]

largest = max(m)
total = sum(part * np.exp(its - largest) for part, its in zip(s, m, strict=True))
print(f"from three numbers of each half: {np.log(total) + largest - sum(wanted):.6f}")
print(f"from the whole row:              {np.log(np.exp(row - row.max()).sum()) + row.max() - row[target]:.6f}")

# %% [markdown]
# Everything is relative to the largest score, so no exponential can overflow, as $e^{1000}$ would. Now with the real
# layers. One rank has symbols 0 to 48, the other 49 to 96.
#
# **Predict:** a row of logits has 97 numbers. How many does a rank send for each row?

# %%
my_numbers = predict("numbers that a rank sends for a row", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 2 --keep numbers
import torch
from mpi4py import MPI
from torch import nn
from torch.nn import functional

from farandole.model_parallel.tensor.cross_entropy import cross_entropy
from farandole.model_parallel.tensor.embedding import VocabularyEmbedding
from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.model_parallel.tensor.linear import ColumnLinear
from farandole.runtime.communicator import Communicator

torch.set_num_threads(1)
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
comm = Communicator(MPI.COMM_WORLD)
group = TensorGroup(comm)
embedding, head = nn.Embedding(97, 64), nn.Linear(64, 97, bias=False)
symbols, targets = torch.randint(97, (200,)), torch.randint(97, (200,))

parts = VocabularyEmbedding(embedding, group), ColumnLinear(head, group)
vectors = parts[0](symbols)
logits = parts[1](vectors)
before = comm.bytes_sent
loss = cross_entropy(logits, targets, 97, group)
numbers = (comm.bytes_sent - before) / 8 / len(symbols)
loss.backward()

alone = functional.cross_entropy(head(embedding(symbols)), targets)
alone.backward()
own = slice(0, 49) if comm.rank == 0 else slice(49, 97)
same = [(loss - alone).abs() < 1e-12, (vectors - embedding(symbols)).abs().max() < 1e-12,
        (parts[0].weight.grad - embedding.weight.grad[own]).abs().max() < 1e-12,
        (parts[1].weight.grad - head.weight.grad[own]).abs().max() < 1e-12]  # fmt: skip
print(f"rank {comm.rank}: loss, vectors, both gradients equal to 1e-12: {[bool(one) for one in same]};",
      f"logits {tuple(logits.shape)}; sent for the loss: {numbers:g} numbers per row")  # fmt: skip

# %% tags=["nbval-check-output"]
my_numbers.compare(numbers[0])

# %% [markdown]
# ## 5 The whole transformer
#
# Now everything together: the scenario `tensor_split` with a character-level transformer of two blocks, 64 wide, on
# the text that comes with Python. It runs on one, two and four ranks: its four heads allow no more.

# %%
recipe = {"data": "pydoc", "model": "transformer", "hidden": 64, "batch": 16, "steps": 3, "precision": "float64"}
runs = {ranks: launch("tensor_split", ranks=ranks, **recipe, out=folder / str(ranks)) for ranks in (1, 2, 4)}

# %% [markdown]
# **Predict:** in float64, to how many digits are the losses of all steps equal? And the bytes: each all-reduce is of n
# = 8 · 16 · 64 · 64 bytes of activations (samples, places, width). How many are there in a step? Count attention and
# the feed-forward network of both blocks, forward and backward; then the embedding (forward only: no layer needs the
# gradient of a character) and the head (backward only: its logits stay where they are).

# %%
my_step = predict("all-reduces in a step", ...)

# %% tags=["nbval-check-output"]
losses = {ranks: np.array([line["loss"] for line in run.metrics]) for ranks, run in runs.items()}
rows, blocks = 16 * 64, 2
n = 8 * rows * 64
for P in (2, 4):
    print(f"{P} ranks: the same losses as one rank, to 1e-10: {abs(losses[P] - losses[1]).max() < 1e-10}")
    all_reduces = 4 * blocks + 1 + 1
    per_step = all_reduces * 2 * (P - 1) * n // P + (P - 1) * 3 * 8 * rows  # the last is the cross-entropy
    print(f"   bytes sent by each rank, counted:    {runs[P].summary.bytes_sent}")
    print(f"   3 steps of {all_reduces} all-reduces and a loss: {3 * per_step}")
    print(f"   messages per step: {runs[P].summary.messages_sent[0] // 3}")
my_step.compare(all_reduces)

# %% [markdown]
# **Four all-reduces per block**, two each way, whatever the number of ranks. The timeline shows when they happen:

# %%
figure, axes = plt.subplots(2, 1, figsize=(9.5, 4.2))
for ax, P in zip(axes, (2, 4), strict=True):
    timeline.plot(runs[P], ax, steps=1, title=f"{P} ranks")
figure.tight_layout()

# %% [markdown]
# The pattern has stripes, not stairs as in a layer split: all ranks compute at the same time, and the same amount.
# But they stop to communicate several times *within* each layer, and can do nothing else meanwhile, because the next
# product needs the sum. (Where there are more ranks than cores, some of the grey is waiting for a core.)
#
# ## 6 What is divided, and what is not
#
# **Predict:** on four ranks, does each hold a quarter of the parameters? Of the activations?

# %%
my_parameters = predict("the part of the parameters that a rank of four holds (0 to 1)", ...)
my_activations = predict("the part of the activations (0 to 1)", ...)

# %% tags=["nbval-check-output"]
KINDS = ("parameters", "gradients", "activations")
alone = runs[1].summary.memory["measured"]
for kind in KINDS:
    shares = {P: max(runs[P].summary.memory["measured"][kind]) / alone[kind][0] for P in runs}
    print(f"{kind:12}" + "".join(f"{P} ranks: {share:7.1%}   " for P, share in shares.items()))
for P, run in runs.items():
    memory = run.summary.memory
    exact = [memory["measured"][kind] == memory["formula"][kind] for kind in ("parameters", "gradients")]
    pairs = zip(memory["measured"]["activations"], memory["formula"]["activations"], strict=True)
    close = all(abs(measured / formula - 1) < 0.01 for measured, formula in pairs)
    print(f"{P} ranks: parameters and gradients as by formula: {all(exact)}; activations within 1 %: {close}")
quarter = runs[4].summary.memory["measured"]
my_parameters.compare(max(quarter["parameters"]) / alone["parameters"][0], within=0.05)
my_activations.compare(max(quarter["activations"]) / alone["activations"][0], within=0.05)

# %%
figure, ax = plt.subplots(figsize=(9.5, 2.8))
names, place = [], 0
for P, run in runs.items():
    held = run.summary.memory["measured"]
    for rank in range(P):
        bottom = 0
        for kind, colour in zip(KINDS, (BLUE, ORANGE, GREY), strict=True):
            ax.bar(place, held[kind][rank] / 2**20, bottom=bottom, color=colour, label=None if place else kind)
            bottom += held[kind][rank] / 2**20
        names.append(f"{P} rank{'s' * (P > 1)}:\nrank 0" if rank == 0 else f"rank {rank}")
        place += 1
ax.axhline(sum(alone[kind][0] for kind in KINDS) / 4 / 2**20, color=GREEN, linestyle=":", label="a quarter")
ax.set(xticks=range(len(names)), xticklabels=names, ylabel="MiB held")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()

# %% [markdown]
# The large matrices are divided. The small parameters are not: layer norms, the biases of row layers, the position
# embeddings. Every rank has all of them, and because f has added up their gradients, every rank updates them by the
# same bits. No comparison is needed.
#
# Activations are divided only *between* f and g. In a block of width w, with h heads and t tensor ranks, each
# character's activations, kept from forward to backward, are
#
# $$ 4w + \frac{12w}{t} + \frac{h}{t} + 4 \quad\text{numbers.} $$
#
# 4w are the inputs of both branches and the outputs of the norms: whole, on each rank. 12w are queries, keys, values,
# the output of attention, and both sides of the four times wider bend: divided. So with many ranks a quarter stays on
# every rank. (Korthikanti et al. 2022 divide that, too, by positions: sequence parallel, here `--sequence-parallel`.)
#
# ## 7 When it pays
#
# A block's six matrices have 12 w² elements, so a forward pass takes 24 w² operations per character (and some for
# attention's own products), a P-th of them on each rank. Two all-reduces send 4(P−1)/P · w numbers. The number of
# characters cancels: **a larger batch does not help**, unlike in data parallel, where the gradient keeps its length.
# Only width helps:
#
# **Predict:** a device that makes $10^{14}$ operations a second, numbers of 2 bytes, eight ranks. How fast must the
# link be so that sending takes no longer than computing: for w = 64, 1,024 and 12,288 (GPT-3)?

# %%
my_links = predict("GB/s for w = 64, 1,024 and 12,288, as a list", ...)

# %% tags=["nbval-check-output"]
P, speed = 8, 1e14
for w in (64, 1024, 12288):
    operations, nbytes = 24 * w * w / P, 4 * (P - 1) / P * w * 2
    needed = speed * nbytes / operations / 1e9
    print(f"width {w:6,}: {operations / nbytes:7,.0f} operations per byte, so {needed:7,.0f} GB/s")
my_links.compare([speed * 4 * (P - 1) * 2 / (24 * w) / 1e9 for w in (64, 1024, 12288)], within=0.1)

# %% [markdown]
# The links between the GPUs of one machine carry some hundreds of gigabytes a second; a network of 10 Gbit/s carries
# 1.25. And these are only the bytes: each of the four all-reduces per block is also a *wait* for 2(P−1) messages, one
# after another, in every layer and for every micro-batch.
#
# That is why a tensor split stays within one machine, on fast links. For a model of width 64 it does not pay off, but
# any size shows that its result is *right*.
#
# ## What you have seen
#
# - By columns the parts of Y are finished; by rows they are summands. Columns, then rows: one all-reduce for both.
# - f and g: backward of a copy is a sum, backward of a sum is a copy. A missing f does not show in its own layer.
# - Attention is cut by heads, embedding and head by vocabulary, and the loss needs three numbers per row and rank.
# - The transformer is the unsplit one, to rounding. Four all-reduces per block, with the bytes of the formula.
# - Parameters shrink to nearly 1/t, activations to (4 + 12/t)/16 per block. The batch size does not change the cost
#   per character.
#
# Layers on different ranks, batches on different ranks, matrices on different ranks: `15_hybrid` puts them together.
#
# ## What to try
#
# 1. In section 1 try A by columns and B by columns in numpy. What has to be gathered, and how many numbers is that?
# 2. In section 2 leave out g instead: `nn.functional.linear(…, second.weight)` in place of `second(…)`, and no bias in
#    either layer. Which of the three comparisons fail now?
# 3. In section 2 use a matrix of 250 columns on three ranks. How many does each rank have?
# 4. `launch("tensor_split", ranks=3, …)` for the transformer: which ranks wait longer, and why? And with `ranks=5`?
# 5. `hidden=128` in section 5: which of bytes, parameters and operations grow twofold, which fourfold?
# 6. `launch("tensor_split", ranks=4, data="digits", depth=3)`: the perceptron has an odd number of hidden layers.
#    What does the table of units in `model_parallel/tensor/units.py` say about the remaining layer?
