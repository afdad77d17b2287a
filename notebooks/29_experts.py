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
# # 29 · Experts
#
# **Question:** a model with more parameters learns more. But each parameter costs time for each token, and all of them
# must fit on one device. Can a model grow at the same cost per token, with its parameters divided over the ranks?
#
# The answer is a **mixture of experts** (混合专家): many feed-forward networks, of which each token uses a few.
# **Expert parallel** (专家并行) divides them over the ranks, and sends the tokens to them. Document 004 gives the
# reason for dividing a model at all: it may be too large for one GPU's memory (显存塞不下).

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.patches import Rectangle

from farandole import launch
from farandole.model_parallel.expert.plan import Plan, capacity_of, divided
from farandole.model_parallel.expert.routing import balance_loss, choose, count
from farandole.model_parallel.expert.traffic import even_bytes, expert_size
from farandole.report import timeline
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100
RANKS = (BLUE, ORANGE, GREEN, PURPLE)

# %% [markdown]
# ## 1 More parameters at the same price
#
# In a transformer's block of width w, attention has 4w² parameters and the feed-forward network 8w². A multiplication
# with a matrix takes two operations for each of its parameters and each token. Now the block gets E networks, and each
# token uses k = 2 of them.
#
# **Predict:** E grows from 2 to 64. By which factor do the parameters of a block grow? And the operations for a
# token?

# %%
my_parameters = predict("times as many parameters", ...)
my_operations = predict("times as many operations for a token", ...)

# %% tags=["nbval-check-output"]
w, k = 64, 2
several = [2, 4, 8, 16, 32, 64]
attention = 4 * w**2 + 4 * w
parameters = [attention + E * w + E * expert_size(w) for E in several]
operations = [2 * (attention + E * w + k * expert_size(w)) for E in several]
for E, held, computed in zip(several, parameters, operations, strict=True):
    print(f"{E:2} experts: {held:9,} parameters per block, {computed:7,} operations per token")
my_parameters.compare(parameters[-1] / parameters[0], within=0.1)
my_operations.compare(operations[-1] / operations[0], within=0.05)

# %% [markdown]
# The parameters grow with E. The operations hardly do: only the router, a matrix of E × w, grows. If the tokens were
# divided evenly, 64 experts on 64 ranks would cost each rank as much as the small model.
#
# ## 2 The router
#
# A matrix W gives each token a score for each expert, and a softmax makes them probabilities. The token is sent to
# the k most probable experts; their outputs are added up with the probabilities as weights. Below are 12 tokens and 4
# experts, with k = 2.

# %%
torch.manual_seed(4)
tokens, experts = 12, 4
odds = (1.3 * torch.randn(tokens, experts) + torch.tensor([1.5, 0.0, 0.0, -0.5])).softmax(1)
choices, weights = choose(odds, k)
figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
image = ax.imshow(odds.T, cmap="Blues", vmin=0, vmax=1)
for token in range(tokens):
    for number, colour in enumerate((RED, ORANGE)):
        expert = int(choices[number, token])
        ax.add_patch(Rectangle((token - 0.44, expert - 0.44), 0.88, 0.88, fill=False, edgecolor=colour, linewidth=2.5))
        dark = odds[token, expert] > 0.5
        ax.text(token, expert, f"{weights[number, token]:.2f}", ha="center", va="center", fontsize=8,
                color="white" if dark else "black")  # fmt: skip
ax.set(xticks=range(tokens), yticks=range(experts), xlabel="token", ylabel="expert")
ax.set_title("probabilities; first choice red, second orange, with the weights of the answers", fontsize=10)
_ = figure.colorbar(image, ax=ax)

# %% [markdown]
# With k = 1 the weight is the probability itself (Switch Transformer). With k = 2 the two weights are divided by their
# sum (GShard). **Predict:** why not with k = 1? What does a token choose whose scores are all equal?

# %%
my_choices = predict("its two choices of experts 0 to 3, as a list", ...)

# %% tags=["nbval-check-output"]
equal = torch.full((1, 4), 0.25)
print("equal scores:", choose(equal, 2)[0].flatten().tolist(), "– the lower numbers, always")
one = torch.tensor([[1.0, 0.5, 0.0, -1.0]], requires_grad=True)
largest = choose(one.softmax(1), 1)[1]
for name, weight in (("p", largest), ("p / p", largest / one.softmax(1).max())):
    (gradient,) = torch.autograd.grad(weight.sum(), one, retain_graph=True)
    print(f"weight {name}: the router's gradient is 0: {bool(gradient.abs().max() < 1e-6)}")
my_choices.compare(choose(equal, 2)[0].flatten())

# %% [markdown]
# ## 3 Capacity
#
# The router decides for each token, and some experts are more popular. An expert on a real device has a buffer of
# fixed size, so it accepts at most C choices, and drops the others: such a token passes only through the residual
# connection. C is given as a factor of an even share: C = ⌈factor · k · tokens / E⌉. First choices come before second
# ones, and earlier tokens before later ones. A factor of 0 stands for no limit (**dropless**, as in MegaBlocks).
#
# **Predict:** 12 tokens, two choices each, 4 experts: what is C for a factor of 1? How many of the choices in the
# picture above are dropped, and of which tokens?

# %%
my_capacity = predict("C for a factor of 1", ...)
my_dropped = predict("choices that are dropped", ...)

# %%
chosen = count(choices, experts).numpy()[None]  # one rank has all tokens
figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.7), layout="constrained", sharey=True)
for ax, factor in zip(axes, (1.0, 1.5, 0.0), strict=True):
    limit = capacity_of(factor, tokens, k, experts)
    plan = Plan.of(divided(experts, 1), chosen, limit)
    bottom = np.zeros(experts)
    for number, colour in enumerate((RED, ORANGE)):
        ax.bar(range(experts), plan.kept[0, number], bottom=bottom, color=colour)
        bottom += plan.kept[0, number]
    ax.bar(range(experts), plan.chosen[0].sum(0) - bottom, bottom=bottom, color="white", edgecolor=GREY, hatch="///")
    if limit:
        ax.axhline(limit, color="black", linewidth=1, linestyle="--")
    ax.set_title(f"factor {factor:g}: C = {limit}, {plan.dropped} dropped" if limit else "no limit", fontsize=10)
    ax.set(xticks=range(experts), xlabel="expert")
    ax.spines[["top", "right"]].set_visible(False)
_ = axes[0].set_ylabel("choices accepted")
capacity = capacity_of(1.0, tokens, k, experts)
my_capacity.compare(capacity)
my_dropped.compare(int(chosen.sum() - Plan.of(divided(experts, 1), chosen, capacity).kept.sum()))

# %% [markdown]
# Second choices (orange) are on top and are dropped first. With a factor of 1 even a first choice is dropped, that of
# token 11: it is the seventh to choose expert 0.
#
# ## 4 Dispatch
#
# Now eight experts are divided over four ranks, two on each, and every rank has 12 tokens of its own. First the ranks
# exchange counts: how many of a rank's tokens choose each expert. From all counts each rank computes the same `Plan`,
# which says how many rows every rank sends to every other.

# %%
P, E, each = 4, 8, 12
torch.manual_seed(1)
routed = [choose((0.8 * torch.randn(each, E) + torch.linspace(0.8, 0, E)).softmax(1), 1)[0] for _ in range(P)]
plan = Plan.of(divided(E, P), torch.stack([count(one, E) for one in routed]).numpy(), None)
figure, axes = plt.subplots(1, 3, figsize=(10, 2.9), layout="constrained", width_ratios=(1, 1.6, 0.8))
for rank in range(P):
    targets = [(expert, rank) for expert in routed[rank][0].tolist()]
    arriving = [(expert, source) for expert in plan.placement[rank] for source in range(P)
                for _ in range(plan.by_expert[source, expert])]  # fmt: skip
    for ax, rows in ((axes[0], targets), (axes[1], arriving)):
        for place, (expert, source) in enumerate(rows):
            ax.add_patch(Rectangle((place, -rank), 0.9, 0.8, facecolor=RANKS[source]))
            ax.text(place + 0.45, -rank + 0.4, expert, ha="center", va="center", fontsize=9, color="white")
titles = ("each rank's tokens, with the numbers\nof their experts", "after dispatch: by expert")
for ax, title, widest in zip(axes, titles, (each, plan.rows.sum(0).max()), strict=False):
    ax.set(xlim=(-0.2, widest), ylim=(-P + 0.8, 1), xticks=[])
    ax.set_title(title, fontsize=10)
    ax.set_yticks([0.4 - rank for rank in range(P)], [f"rank {rank}" for rank in range(P)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
axes[2].imshow(plan.rows, cmap="Greys", vmin=0, vmax=2 * plan.rows.max())
for source in range(P):
    for to in range(P):
        axes[2].text(to, source, plan.rows[source, to], ha="center", va="center")
axes[2].set(xticks=range(P), yticks=range(P), xlabel="to rank", ylabel="from rank")
_ = axes[2].set_title("rows of each block", fontsize=10)

# %% [markdown]
# Colours show a token's source rank. Dispatch is an **all-to-all** with unequal blocks: the matrix has the lengths of
# all of them. A rank computes all rows that it receives, here rank 0 four times as many as rank 3, and all others
# wait for it. Combine is the same all-to-all in reverse. The backward pass goes through both again: the gradients of
# the outputs travel as the tokens did.
#
# ## 5 Does it learn the same?
#
# The scenario `expert_parallel` trains the character-level transformer with a mixture in each block. Everything but
# the experts is data parallel. Dropping and the balancing loss (below) use the whole batch, so nothing depends on the
# number of ranks.

# %%
recipe = {"batch": 16, "steps": 3, "hidden": 32, "capacity": 0, "precision": "float64"}
runs = {P: launch("expert_parallel", ranks=P, **recipe, out=folder / f"same-{P}") for P in (1, 2, 4)}

# %% [markdown]
# **Predict:** how many bytes are sent? A row has 32 numbers of 8 bytes, a rank n = 16 · 64 / P tokens, and there are
# two mixtures. With an even load, how much does a rank send per step for dispatch and combine, forward and backward?
# What else is sent?

# %%
my_bytes = predict("bytes for dispatch and combine, on 4 ranks", ...)

# %% tags=["nbval-check-output"]
losses = {P: np.array([line["loss"] for line in run.metrics]) for P, run in runs.items()}
layers, row = 2, 32 * 8
for P in (2, 4):
    memory = runs[P].summary.memory["measured"]["parameters"][0]
    experts_size = layers * 8 // P * expert_size(32) * 8
    shared = 2 * (P - 1) / P * (memory - experts_size)
    even = 2 * layers * even_bytes(16 * 64 // P, 2, P, row)
    counted = np.mean(runs[P].summary.bytes_sent) / 3
    print(f"{P} ranks: the same losses as one rank, to 1e-12: {abs(losses[P] - losses[1]).max() < 1e-12}")
    print(f"   shared gradients {shared:,.0f} bytes; tokens and answers, if the load were even, {even:,.0f}")
    print(f"   counted, mean of the ranks, within 5 % of their sum: {abs(counted / (shared + even) - 1) < 0.05}")
my_bytes.compare(even, within=0.01)

# %% [markdown]
# The load is not even, and a rank with popular experts sends more than others. Their mean is still that of an even
# load: a token may be on any rank, so (P − 1)/P of all choices are for another rank, whichever expert is popular.
#
# The experts' gradients are not sent at all: the tokens of all ranks have come to the expert, so its gradient is
# already the sum over all ranks. The gain is in memory. Each rank holds:

# %% tags=["nbval-check-output"]
for P, run in runs.items():
    memory = run.summary.memory
    held, formula = memory["measured"]["parameters"], memory["formula"]["parameters"]
    print(f"{P} ranks: {held[0]:,} bytes of parameters on each, as by the formula: {held == formula}")

# %% [markdown]
# The experts are divided, the rest of the model is not. With more experts the rest matters less.
#
# In one step on four ranks, the all-to-alls are within forward and backward, four in each, and at the end the ranks
# add up the shared gradients. Where there are more ranks than cores, much of the grey is waiting for a core.

# %%
figure, ax = plt.subplots(figsize=(9.5, 2.8), layout="constrained")
timeline.plot(runs[4], ax, steps=1, title="experts on 4 ranks, one step")

# %% [markdown]
# ## 6 Left alone, the router has favourites
#
# An expert that gets more tokens learns faster, and is chosen more often. The **balancing loss** works against it:
#
# $$ L = E \sum_e f_e \cdot P_e $$
#
# f is the share of the tokens that choose expert e, P its mean probability. It is 1 for an even load. f has no
# gradient; that of P is proportional to f, so that popular experts become less probable.
#
# Both are taken over the whole batch. **Predict:** each of two ranks computes L from its own tokens. Is the mean of
# the two the L of all tokens?

# %%
my_mean = predict("their mean is the L of all tokens", ..., "yes", "no")

# %% tags=["nbval-check-output"]
drawn = (2 * torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))).softmax(2)
shares = [part.argmax(1).bincount(minlength=4) / len(part) for part in (*drawn, drawn.flatten(0, 1))]
apart = [balance_loss(part, share, 6).item() for part, share in zip(drawn, shares[:2], strict=True)]
parts = [balance_loss(part, shares[2], 12).item() for part in drawn]
print(f"each by itself {apart[0]:.4f} and {apart[1]:.4f}, their mean {np.mean(apart):.4f}")
print(f"all tokens {balance_loss(drawn.flatten(0, 1), shares[2], 12):.4f}")
print(f"parts with the f of all tokens {parts[0]:.4f} and {parts[1]:.4f}, their sum {sum(parts):.4f}")
my_mean.compare(np.isclose(np.mean(apart), sum(parts)))

# %% [markdown]
# The mean of products is not the product of means. But f follows from the counts that all ranks exchange anyway, and
# with f given, L is a sum over tokens: each rank computes its part, and the gradients add up correctly.
#
# Now we train twice, without this loss and with it, with one expert for each token:

# %%
recipe = {"batch": 16, "steps": 60, "hidden": 32, "depth": 1, "top_k": 1, "capacity": 1.25}
both = {balance: launch("expert_parallel", ranks=2, balance=balance, **recipe, out=folder / f"balance-{balance:g}")
        for balance in (0.0, 0.1)}  # fmt: skip

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 2.9), layout="constrained", width_ratios=(1, 1, 0.9))
for ax, (balance, run) in zip(axes, both.items(), strict=False):
    loads = np.array([[line[f"load_0_{expert}"] for expert in range(8)] for line in run.metrics])
    ax.stackplot(range(len(loads)), loads.T, colors=[*SERIES, GREY])
    ax.set(xlim=(0, len(loads) - 1), ylim=(0, 1), xlabel="step")
    ax.set_title(f"share of each expert, --balance {balance:g}", fontsize=10)
for (balance, run), colour in zip(both.items(), (ORANGE, BLUE), strict=True):
    axes[2].plot([line["dropped"] for line in run.metrics], color=colour, label=f"--balance {balance:g}")
axes[2].set(ylim=(0, 1), xlabel="step")
axes[2].set_title("share of the tokens that is dropped", fontsize=10)
axes[2].legend(frameon=False)
axes[2].spines[["top", "right"]].set_visible(False)

# %% tags=["nbval-check-output"]
for balance, run in both.items():
    last = run.metrics[-20:]
    busiest = np.mean([max(line[f"load_0_{expert}"] for expert in range(8)) for line in last])
    lost = np.mean([line["dropped"] for line in last])
    print(f"--balance {balance:g}: the busiest expert has more than twice an even share: {busiest > 2 / 8};",
          f"more than a quarter of the tokens is dropped: {lost > 1 / 4}")  # fmt: skip

# %% [markdown]
# After these few steps the losses hardly differ, although one run drops more than a third of its tokens, and some of
# its experts learn next to nothing.
#
# ## What you have seen
#
# - With experts, parameters grow and a token's computation does not. Each rank holds E/P of them.
# - The counts of all ranks determine every block of the all-to-all, which tokens are accepted, and f.
# - Dispatch and combine are all-to-alls with unequal blocks, and each is the other's backward pass.
# - An expert's gradient needs no all-reduce. Everything else is data parallel.
# - Without a balancing loss the router has favourites. With it the load is nearly even, and little is dropped.
# - The training is that of one process, and so are the dropped tokens. Bytes and memory are those of the formula.
#
# ## What to try
#
# 1. `capacity=0` in the last section. What is dropped? Which rank do the others wait for? Draw the timeline.
# 2. `experts=6` on four ranks: how many does each rank have? And on seven ranks?
# 3. `launch("expert_parallel", ranks=4, experts=8, top_k=9)`: what does the error message say?
# 4. `mpirun -n 4 python -m farandole.model_parallel.expert.minimal --capacity 0.5` is a layer in one file, forward and
#    backward. How many tokens are dropped? Remove the sum over the ranks from the router's gradient: what differs?
# 5. Lab `19_expert_dispatch` has you write the dispatch.
