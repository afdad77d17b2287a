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
# # 30 · DiLoCo
#
# **Question:** the ranks of one training are in two cities, connected by a slow line. Can they train one language
# model together without waiting for the line most of the time?
#
# In local SGD (notebook 06) the ranks take H steps alone and continue from the mean of their parameters. **DiLoCo**
# (低通信分布式训练; Douillard et al. 2023) uses the result of these H steps in another way. It treats the ranks' mean
# *move* as a gradient, and passes it to a second optimizer.

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.collectives.costs import coefficients
from farandole.collectives.ring import RING
from farandole.data_parallel.outer_step import Outer
from farandole.report import timeline
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, RED
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 What a slow line allows
#
# Take a model of 1 billion parameters in bfloat16 on two sites, connected by a line of 10 Gbit/s. A step takes each
# site one second: **these are assumptions**. An all-reduce moves 2(P − 1)/P times the vector over each link.
#
# **Predict:** which share of the time do the sites compute if they communicate after every step? How large must H be
# for 95 %?

# %%
my_share = predict("the part of the time that they compute with H = 1 (0 to 1)", ...)
my_period = predict("the H for 95 %", ...)

# %% tags=["nbval-check-output"]
nbytes, line, step_s = 2e9, 10e9 / 8, 1.0
_, vectors, _ = coefficients(RING, 2)
talk_s = vectors * nbytes / line
print(f"an all-reduce takes {talk_s:.2f} s")
for period in (1, 10, 30, 100, 500):
    print(f"H = {period:3}: they compute {period * step_s / (period * step_s + talk_s):6.1%} of the time")
my_share.compare(step_s / (step_s + talk_s), within=0.05)
my_period.compare(next(H for H in range(1, 1000) if H * step_s / (H * step_s + talk_s) >= 0.95), within=0.05)

# %% [markdown]
# H = 31 is enough for 95 %. The paper trains with H = 500, for which a line of 1 Gbit/s would be enough.
#
# ## 2 A move is a gradient
#
# After an outer step all ranks have the same parameters θ. Then each takes H inner steps, and gets θᵣ. The mean move
#
# $$ \Delta = \theta - \sum_r \frac{n_r}{n}\,\theta_r $$
#
# gives the direction of all ranks' moves together, with the sign of a gradient. The outer optimizer is SGD with
# Nesterov momentum μ and its own learning rate η:
#
# $$ v \leftarrow \mu v + \Delta, \qquad \theta \leftarrow \theta - \eta\,(\Delta + \mu v) $$
#
# **Predict:** which method is it with η = 1 and μ = 0? And which way does momentum help: where the ranks disagree, or
# where they agree for many periods?
#
# The example is a valley with four ranks: all have their minimum along it, to the right, but each at another distance
# to the side. The inner steps are short, so a period does not get far.

# %%
my_method = predict("with η = 1 and μ = 0", ..., "synchronous SGD", "local SGD")
my_momentum = predict("momentum helps", ..., "where the ranks disagree", "where they agree")

# %% tags=["nbval-check-output"]
goals = np.array([[10.0, side] for side in (-3.0, -1.0, 1.0, 3.0)])  # what each rank wants
steepness = np.array([0.02, 1.0])  # along the valley, and across


def trained(eta, mu, periods=12, period=10, rate=0.2):
    """Return the common parameters after each outer step."""
    common, velocity = np.array([0.0, 2.5]), np.zeros(2)
    path = [common.copy()]
    for _ in range(periods):
        copies = np.tile(common, (4, 1))
        for _ in range(period):
            copies -= rate * steepness * (copies - goals)
        delta = common - copies.mean(0)
        velocity = mu * velocity + delta
        common = common - eta * (delta + mu * velocity)
        path.append(common.copy())
    return np.array(path)


paths = {(eta, mu): trained(eta, mu) for eta, mu in ((1.0, 0.0), (0.7, 0.0), (0.7, 0.5), (0.7, 0.9))}
for (eta, mu), path in paths.items():
    along = ", ".join(f"{path[period, 0]:5.2f} after {period}" for period in (3, 6, 12))
    print(f"η = {eta}, μ = {mu}, along the valley: {along} periods")
my_method.compare("local SGD")
goal = goals.mean(0)
without, with_momentum = (abs(paths[0.7, mu][6] - goal) for mu in (0.0, 0.9))  # distances along and across, after 6
along, across = without - with_momentum  # how much closer momentum has come
my_momentum.compare("where they agree" if along > across else "where the ranks disagree")

# %%
figure, (ax, far) = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
for ((eta, mu), path), colour in zip(paths.items(), (GREY, BLUE, GREEN, RED), strict=True):
    name = f"η = {eta:g}, μ = {mu:g}"
    ax.plot(*path.T, "o-", markersize=3, color=colour, label=name)
    far.plot(np.linalg.norm(path - [10, 0], axis=1), "o-", markersize=3, color=colour, label=name)
ax.plot(*goals.T, "x", color="black")
ax.plot(10, 0, "*", color="black", markersize=10)
ax.set(xlabel="along the valley", ylabel="across", title="the common model; ×: what the ranks want")
far.set(xlabel="outer step", title="distance from the goal, the star", ylim=(0, None))
for each in (ax, far):
    each.spines[["top", "right"]].set_visible(False)
_ = far.legend(frameon=False)

# %% [markdown]
# With η = 1 and μ = 0 it is local SGD: θ becomes the mean. Across the valley the ranks disagree, and the mean of their
# moves is small. Along it they agree, period after period, and momentum accumulates this: with μ = 0.9 the model
# reaches the goal after 11 outer steps, and overshoots. Across the valley it oscillates, because there the momentum
# of the first moves is too large.
#
# ## 3 On real ranks
#
# Each rank keeps its own inner optimizer, AdamW in the paper. Four ranks train with the same samples for all three
# methods.
#
# **Predict:** what part of synchronous SGD's bytes does each of the others send, with H = 16?

# %%
my_part = predict("the part of the bytes (0 to 1)", ...)

# %% tags=["nbval-check-output"]
recipe = {"data": "digits", "model": "mlp", "hidden": 64, "steps": 128, "batch": 64, "seed": 0}
adam = {**recipe, "optimizer": "adam", "lr": 0.003, "weight_decay": 0.1}
runs = {
    "synchronous": launch("sync_sgd", 4, **adam, out=folder / "synchronous"),
    "local SGD": launch("local_sgd", 4, **adam, period=16, out=folder / "local"),
    "DiLoCo": launch("diloco", 4, **adam, period=16, outer_momentum=0.5, out=folder / "diloco"),
}
whole = runs["synchronous"].summary
for name, run in runs.items():
    s = run.summary
    nbytes = {own / every for own, every in zip(s.bytes_sent, whole.bytes_sent, strict=True)}
    messages = {own / every for own, every in zip(s.messages_sent, whole.messages_sent, strict=True)}
    same = len(set(s.params_sha256)) == 1
    print(f"{name:12} {nbytes} of the bytes, {messages} of the messages on every rank; equal copies: {same}")
my_part.compare(sum(runs["DiLoCo"].summary.bytes_sent) / sum(whole.bytes_sent))

# %%
for name, run in runs.items():
    s = run.summary
    print(f"{name:12} accuracy {s.test_accuracy:.1%}, {sum(s.bytes_sent) / 1e6:6.2f} MB")

# %% [markdown]
# Exactly one sixteenth: an all-reduce of the moves is as long as one of the gradients. The accuracies are of one run
# each, on an easy problem: they show only that all methods learn. The page on data parallel has the loss of a
# language model for several H, η and μ. There DiLoCo is ahead of local SGD with a period of 100, and synchronous SGD
# ahead of both.
#
# ## 4 A fragment at a time
#
# Every H steps the line has to carry everything at once, and is idle otherwise. **Streaming DiLoCo** (Douillard et
# al. 2025) cuts the parameters into F fragments, each with its own H steps between two outer steps, at other times.
#
# **Predict:** with H = 16 and F = 4, how many bytes are saved? And how long is the longest message?

# %%
my_fewer = predict("per cent of the bytes that are saved", ...)
my_longest = predict("the longest message, in models", ...)

# %% tags=["nbval-check-output"]
steps, period = 64, 16
sent = {F: np.array([sum(Outer(period, 0.7, 0.9, F).sends(each, step) / F for each in range(F))
                     for step in range(1, steps + 1)]) for F in (1, 4)}  # fmt: skip
for F, each in sent.items():
    print(f"F = {F}: {each.sum():g} models in {steps} steps, at most {each.max():g} at a time")
my_fewer.compare(100 * (1 - sent[4].sum() / sent[1].sum()))
my_longest.compare(sent[4].max())

# %%
figure, axes = plt.subplots(2, 1, figsize=(8, 2.8), sharex=True, sharey=True, layout="constrained")
for ax, (F, each) in zip(axes, sent.items(), strict=True):
    ax.bar(range(1, steps + 1), each, color=ORANGE)
    ax.set(ylabel="models sent", title=f"F = {F}")
    ax.spines[["top", "right"]].set_visible(False)
_ = axes[1].set_xlabel("step")

# %% [markdown]
# No byte is saved. But the line needs only a quarter of the speed, or delivers each message in a quarter of the time.
#
# ## 5 Training on while it travels
#
# The ranks still wait for each message. With a **delay** of τ steps they do not: a thread adds up the moves, while
# the ranks take τ more steps on their own parameters. Then the ranks take the outer step, with moves that are τ steps
# old, and each rank mixes the result with its own parameters: θᵣ ← mθᵣ + (1 − m)θ. With m = 0 it would lose the τ
# steps.
#
# Each rank has a line of 60 Mbit/s in each direction (`link_mbps` injects it). All ranks compute eight times as
# slowly as they could, so that a step takes as long as a larger model's. The first run sends everything at once, the
# second in four fragments, the third with a delay of 3 steps.
#
# **Predict:** how does the waiting time of the ranks change?

# %%
my_fragments = predict("waiting with four fragments", ..., "shorter", "longer")
my_delay = predict("waiting with a delay of 3", ..., "shorter", "longer")

# %%
slow = [f"rank={rank},factor=8" for rank in range(4)]
line = {**adam, "hidden": 256, "steps": 48, "slow": slow, "link_mbps": 60, "period": 16, "outer_momentum": 0.5}
ways = {
    "all at once": launch("diloco", 4, **line, out=folder / "at-once"),
    "four fragments": launch("diloco", 4, **line, fragments=4, out=folder / "fragments"),
    "and a delay of 3": launch("diloco", 4, **line, fragments=4, delay=3, out=folder / "delay"),
}
for name, run in ways.items():
    s = run.summary
    waits_s = np.mean(np.add(s.comm_s, s.wait_s))
    print(f"{name:18} {s.wall_s:5.2f} s, of which a rank waits {waits_s:5.2f} s; accuracy {s.test_accuracy:.1%}")
once_s, often_s, delayed_s = (np.add(run.summary.comm_s, run.summary.wait_s).mean() for run in ways.values())
my_fragments.compare("shorter" if often_s < once_s else "longer")
my_delay.compare("shorter" if delayed_s < once_s else "longer")

# %%
figure, axes = plt.subplots(2, 1, figsize=(10, 5), layout="constrained")
for ax, name in zip(axes, ("four fragments", "and a delay of 3"), strict=True):
    timeline.plot(ways[name], ax, title=name)

# %% tags=["nbval-check-output"]
least = min(sum(run.summary.bytes_sent) for run in ways.values())
for name, run in ways.items():
    same = len(set(run.summary.params_sha256)) == 1
    print(f"{name:18} {sum(run.summary.bytes_sent) / least:.2f} times the bytes; in the end equal copies: {same}")

# %% [markdown]
# Fragments alone do not shorten the waiting: the ranks meet four times as often, and wait for the slowest one each
# time. The delay shortens it. In the second picture the messages have a separate row beside the steps, where grey is
# waiting for a rank that has not sent yet. A rank itself waits only if the message has not arrived after its three
# steps. A longer delay hides more, but its moves are older: the paper uses one to five steps of 100. (Fragments send
# a little more here, because after the last step each fragment that has moved is sent once more.)

# %% [markdown]
# ## 6 A worker dies
#
# The ranks communicate once a round, so they detect a death at the next outer step. `elastic_diloco` leaves the dead
# rank out of it: the mean is over the living ranks, and their shares of the batch are divided by the sum of these
# shares (`recovery/elastic_diloco.py`; notebook 17 shows how the survivors agree on each other).
#
# **Predict:** rank 2 is killed at step 25, in the second round of 16 steps. How many steps do the others repeat? How
# many ranks end with the same parameters?

# %%
my_again = predict("steps that are taken again", ...)
my_alike = predict("ranks that end with the same parameters", ...)

# %% tags=["nbval-check-output"]
rounds = {**recipe, "dropout": 0.0, "steps": 48, "period": 16}
struck = launch("elastic_diloco", 4, **rounds, fail="rank=2,step=25", out=folder / "struck")
summary, [fault] = struck.summary, struck.summary.faults
print(
    f"rank {fault['rank']} died at step {fault['step']}; {summary.steps} steps were taken, {fault['steps_lost']} again"
)
print("still there:", summary.members, "- different checksums:", len(set(summary.params_sha256)))
my_again.compare(fault["steps_lost"])
my_alike.compare(len(summary.params_sha256))

# %% [markdown]
# None, and three. Each survivor had finished its round, and keeps its move. Rank 2's move in the nine steps of its
# last round is lost, and with it their samples. After a synchronous step every rank has what the dead rank had
# learned; within a round of H steps no other rank has it.
#
# ## What you have seen
#
# - DiLoCo is local SGD whose mean move goes through an outer optimizer. It sends one H-th of synchronous SGD's bytes.
# - Momentum helps along directions in which the ranks agree, and goes too far if there are few outer steps.
# - Fragments send the same bytes, a part at a time: the line can be slower by their number.
# - With a delay the ranks train while the messages travel. Each rank mixes the result with its own parameters.
# - A dead rank is left out of the mean, and its last round's move is lost.
#
# ## What to try
#
# 1. In section 1: 10 billion parameters and a line of 1 Gbit/s. Which H gives 95 %?
# 2. In section 2: μ = 0.9 with `periods=40`, and with η = 0.3. Where does the red line end?
# 3. `farandole run diloco -n 4 --data pydoc --model transformer --hidden 32 --period 20`, with `--outer-momentum` 0,
#    0.5 and 0.9; then `farandole compare`.
# 4. Section 5 with `mixing=0` and `mixing=0.9`, and with delays of 1 and 8. From which delay on does no rank wait?
# 5. Your own loop: `OwnLoop("diloco", period=25)`, as in notebook 26.
