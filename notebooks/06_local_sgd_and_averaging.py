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
# # 06 · Local SGD and averaging
#
# **Question:** how often must the ranks communicate?
#
# In synchronous SGD they communicate in every step, and their copies never differ. **Local SGD** (局部SGD) lets each
# rank take H steps alone, its **period**; only then do the ranks average their parameters (模型平均). Document 000
# has the rule, for a rank's parameters w and the mean w' over all ranks:
#
# $$ w \leftarrow (1-\alpha)\,w + \alpha\,w' $$
#
# The document takes w' as a mean of *gradients*, which cannot be meant (erratum 000.15; section 1 shows why). With
# parameters it is a good method, with two settings: H, how often, and α, how far.

# %%
# %load_ext farandole
import json
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.report import curves
from farandole.report.colours import SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
os.environ["RESULTS"] = str(folder)  # a cell under %%mpi inherits the environment, but no variables
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 The rule by hand
#
# One parameter, four ranks, and each has another goal: rank *r* has the loss $\frac12(w-a_r)^2$, with *a* = 0, 2, 4
# and 10. The sum of the losses is lowest at the mean, 4. All ranks begin at 0, take two local steps, and then move
# half the way to their mean.
#
# **Predict:** what does moving to the mean do to the mean? And what does the last line print, where the rule is taken
# literally: a mean of gradients, at a minimum where they are all 0?

# %%
my_change = predict("moving to the mean changes the mean", ..., "yes", "no")
my_letter = predict("by the letter, from 4, after three times", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep before,w,at_the_minimum
import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.runtime.communicator import Communicator

PERIOD, ALPHA, RATE = 2, 0.5, 0.25
comm = Communicator(MPI.COMM_WORLD)
wanted = [0.0, 2.0, 4.0, 10.0][comm.rank]
w = np.zeros(1)


def mean(own):
    total = own.copy()
    ALL_REDUCES["ring"](comm, total)
    return total / comm.size


def show(title):
    gathered = comm.mpi.gather(w[0])
    if comm.rank == 0:
        print(f"{title:14}", *(f"{each:7.3f}" for each in gathered), f"   mean {np.mean(gathered):.3f}")


show("start")
for step in range(1, 5):
    w -= RATE * (w - wanted)  # a step of its own
    show(f"step {step}")
    if step % PERIOD == 0:
        before = w
        w = (1 - ALPHA) * before + ALPHA * mean(before)
        show("averaged")

at_the_minimum = 4.0
for _ in range(3):
    at_the_minimum = (1 - ALPHA) * at_the_minimum + ALPHA * 0.0  # "w'" of gradients that are all zero
if comm.rank == 0:
    print("by the letter, from the minimum at 4, after three times:", at_the_minimum)

# %% tags=["nbval-check-output"]
my_change.compare(not np.isclose(np.mean(before), np.mean(w)))
my_letter.compare(at_the_minimum[0])

# %% [markdown]
# Moving to the mean keeps the mean, whatever α is; it only draws the ranks together. In between they **drift** apart
# (漂移), each to its own goal. Taken literally, the rule would shrink a perfect model to zero.
#
# ## 2 A period of one
#
# With H = 1 and α = 1 all begin a step at the same w, so the mean of $w-\eta g_r$ is $w-\eta\bar g$: synchronous SGD.
#
# **Predict:** are the bytes the same too? And the parameters, to the bit?

# %%
my_bytes = predict("the same bytes", ..., "yes", "no")
my_bits = predict("the same parameters to the bit", ..., "yes", "no")

# %% tags=["nbval-check-output"]
recipe = {"data": "digits", "model": "mlp", "hidden": 64, "steps": 64, "batch": 64, "lr": 0.25, "seed": 0}
synchronous = launch("sync_sgd", 4, **recipe, out=folder / "synchronous")
runs = {1: launch("local_sgd", 4, **recipe, period=1, out=folder / "period-1")}
losses = {name: np.array([line["loss"] for line in run.metrics])
          for name, run in {"synchronous": synchronous, "local": runs[1]}.items()}  # fmt: skip
apart = abs(losses["local"] - losses["synchronous"])
print("steps 0 to 9, losses differ by less than 1e-5:", bool(apart[:10].max() < 1e-5))
print("the same bytes:", runs[1].summary.bytes_sent == synchronous.summary.bytes_sent)
print("the same parameters to the bit:", runs[1].summary.params_sha256 == synchronous.summary.params_sha256)
my_bytes.compare(runs[1].summary.bytes_sent == synchronous.summary.bytes_sent)
my_bits.compare(runs[1].summary.params_sha256 == synchronous.summary.params_sha256)

# %% [markdown]
# The same method, up to rounding: a sum of gradients is rounded differently from a sum of parameters, and training
# amplifies that (notebook `03_synchronous_sgd`, section 4).
#
# ## 3 How far do they drift?
#
# Now a real network, and the class that the scenario uses. Just before each average we measure the distance of the
# ranks' parameters from their mean: the root of the mean over the ranks of $\lVert w_r-\bar w\rVert^2$. We do so
# twice, with the same images: once dealt out at random, so that all shards look **alike**, and once sorted by digit,
# so that they are **unlike**, and rank 0 never sees a nine.
#
# **Predict:** with four times the period, by about what factor does the drift grow? Which shards drift more?

# %%
my_factor = predict("with four times the period the drift grows by a factor of", ...)
my_shards = predict("the shards that drift more", ..., "alike", "unlike")

# %% tags=["nbval-check-output"]
# %%mpi -n 4
import json
import os
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data import datasets
from farandole.data_parallel.local_sgd import LocalSGD
from farandole.models.optimizers import maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

PERIODS, STEPS, BATCH = (1, 4, 16, 64), 64, 16
with World.start(RunOptions()) as world:
    splits = datasets.split(datasets.load("digits"), seed=0)
    train, test = splits.train, splits.test
    orders = {"alike": np.arange(len(train)), "unlike": np.argsort(train.targets, kind="stable")}
    drift, right = {}, {}
    for name, order in orders.items():
        mine = np.array_split(order, world.size)[world.rank]
        for period in PERIODS:
            torch.manual_seed(0)
            model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
            local = LocalSGD(world, model, classification, maker("sgd", 0.2), ALL_REDUCES["ring"], period=period)
            rows = np.random.default_rng([1, world.rank])
            distances = []
            average = local.average

            def measured(alpha, local=local, average=average, distances=distances):
                """Do what `average` does, and first measure how far all ranks are from their mean."""
                own = local.flat.values_np.astype(np.float64)
                mean = own.copy()
                world.control.Allreduce(MPI.IN_PLACE, mean)
                square = np.array([((own - mean / world.size) ** 2).sum()])
                world.control.Allreduce(MPI.IN_PLACE, square)
                distances.append(float(np.sqrt(square[0] / world.size)))
                average(alpha)

            local.average = measured
            for _ in range(STEPS):
                chosen = rows.choice(mine, BATCH, replace=False)
                batch = torch.from_numpy(train.inputs[chosen]), torch.from_numpy(train.targets[chosen])
                local.step(batch, share=1 / world.size)
            local.finish()
            drift.setdefault(name, []).append(float(np.mean(distances)))
            with torch.no_grad():
                answers = model(torch.from_numpy(test.inputs)).argmax(1).numpy()
            right.setdefault(name, []).append(float((answers == test.targets).mean()))
    if world.rank == 0:
        (Path(os.environ["RESULTS"]) / "drift.json").write_text(json.dumps({"drift": drift, "right": right}))
        for name, each in drift.items():
            print(f"{name}: the drift before an average grows with every period:", bool((np.diff(each) > 0).all()))
        print("unlike shards drift more at each period:",
              all(more > less for more, less in zip(drift["unlike"], drift["alike"], strict=True)))  # fmt: skip

# %%
told = json.loads((folder / "drift.json").read_text())
periods = [1, 4, 16, 64]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
for (name, drift), colour in zip(told["drift"].items(), SERIES, strict=False):
    left.loglog(periods, drift, "o-", color=colour, label=f"{name} shards")
    right.semilogx(periods, told["right"][name], "o-", color=colour, label=f"{name} shards")
left.set(ylabel="distance from the mean, before an average")
right.set(ylabel="test accuracy of the mean", ylim=(0, 1))
for ax in (left, right):
    ax.set_xticks(periods, periods)
    ax.minorticks_off()
    ax.set(xlabel="period H")
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
alike = np.array(told["drift"]["alike"])
my_factor.compare(np.mean(alike[1:] / alike[:-1]), within=0.25)
my_shards.compare(max(told["drift"], key=lambda name: told["drift"][name][-1]))

# %% [markdown]
# If all ranks moved straight in different directions, the distance would grow like H; if they moved at random, like
# $\sqrt H$. Compare the slopes. Ranks with the same kind of data move the same way and differ by the noise of their
# batches; ranks with different digits move in different directions.
#
# ## 4 Where the mean of unlike shards goes
#
# Does drift average out? In section 1 it did, because all losses were equally curved. Let rank *r* have the loss
# $\frac12 c_r(w-a_r)^2$. Then H steps multiply its distance from $a_r$ by $q_r=(1-\eta c_r)^H$, and the averages
# converge to
#
# $$ w^* = \frac{\sum_r (1-q_r)\,a_r}{\sum_r (1-q_r)} \quad\text{instead of}\quad \frac{\sum_r c_r\,a_r}{\sum_r c_r} $$
#
# **Predict:** which H makes the two equal? Where does $w^*$ go for a very long period?

# %%
my_period = predict("the H that makes the two equal", ...)
my_rest = predict("where w* goes for a very long period", ...)

# %% tags=["nbval-check-output"]
goals, curved, rate = np.array([0.0, 2.0, 4.0, 10.0]), np.array([1.0, 1.0, 1.0, 4.0]), 0.1
minimum = (curved * goals).sum() / curved.sum()
print(f"the minimum of all losses together: {minimum:.4f}")
rests = {}
for period in (1, 4, 16, 256):
    w = np.zeros(4)  # one number for each rank
    for _ in range(200):
        for _ in range(period):
            w -= rate * curved * (w - goals)
        w[:] = w.mean()
    rests[period] = w[0]
    left_over = 1 - (1 - rate * curved) ** period
    formula = (left_over * goals).sum() / left_over.sum()
    print(f"H = {period:3}: comes to rest at {w[0]:.4f}, by the formula {formula:.4f}")
my_period.compare(min(rests, key=lambda period: abs(rests[period] - minimum)))
my_rest.compare(rests[256], within=1e-4)

# %% [markdown]
# With H = 1 it is the minimum. With a long period each rank reaches its own goal, however weak its loss is: the
# result is the plain mean of the goals. So with unlike shards a long period is not only slow, it also finds *another
# point*. A smaller learning rate helps, and so do shards that are shuffled.
#
# ## 5 What is saved
#
# An average is one all-reduce of all parameters, with as many bytes as a gradient, once every H steps.
#
# **Predict:** how many all-reduces do 64 steps have with H = 16? And if the ranks communicate only once?

# %%
my_sixteen = predict("all-reduces with H = 16", ...)
my_once = predict("all-reduces if the ranks talk once", ...)

# %% tags=["nbval-check-output"]
for period in (16, 32):
    runs[period] = launch("local_sgd", 4, **recipe, period=period, out=folder / f"period-{period}")
once = launch("local_sgd", 4, **recipe, once=True, out=folder / "once")
parameters = 64 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10
print("          averages   messages of a rank   bytes of all ranks   as 2(P-1)·4·parameters each")
for name, run, averages in [*((f"H = {h}", run, 64 // h) for h, run in runs.items()), ("once", once, 1)]:
    s = run.summary
    assert s.messages_sent == [averages * 2 * (4 - 1)] * 4
    expected = averages * 2 * (4 - 1) * 4 * parameters
    print(f"{name:8}{averages:10}{s.messages_sent[0]:21}{sum(s.bytes_sent):21,}{expected:30,}")
my_sixteen.compare(runs[16].summary.messages_sent[0] // 6)
my_once.compare(once.summary.messages_sent[0] // 6)

# %% [markdown]
# Bytes and messages go down by exactly H, which divides the number of steps here. What does that cost? The next cell
# shows the same runs by step and by the clock. Each setting has one run only, so half a percent of accuracy means
# nothing:


# %%
def compare(named):
    _, (by_step, by_time) = plt.subplots(1, 2, figsize=(10, 3.4), sharey=True, layout="constrained")
    curves.plot(named, by_step, by_time)
    for name, run in named.items():
        s = run.summary
        waited = sum(s.comm_s) + sum(s.wait_s)
        print(f"{name:>16}: accuracy {s.test_accuracy:.1%}, {s.wall_s:5.2f} s;",
              f"of the ranks' time {waited / (waited + sum(s.compute_s)):.0%} communicating and waiting")  # fmt: skip


compare({f"H = {period}": run for period, run in runs.items()} | {"once": once})

# %% [markdown]
# Be careful with the left picture: the loss is that of each rank's *own* model on its own part of the batch, the mean
# over the ranks. It says nothing about the average, which is the result. The accuracies are those of the average after
# the last step.
#
# On the right the time for communicating and waiting is gone. How much that is depends on the machine: here messages
# pass through memory. Over a slow network it is most of the time, and a long period gains more.
#
# ## 6 Once, and not at first
#
# With a single average at the end local SGD is **MapReduce SGD** (document 004): the map is a whole training, the
# reduce a mean (erratum 004.6; Zinkevich et al. 2010). It is right for convex losses. For a deep network the mean of
# two good models may be a bad one; here all have the same start, and digits are easy. Look at "once" above: is it
# worse?
#
# **Post-local** SGD (Lin et al. 2020) is synchronous at first, when gradients are large and drift does most harm, and
# local afterwards.

# %%
late = launch("local_sgd", 4, **recipe, synchronous=16, period=32, out=folder / "post-local")
compare({"H = 32": runs[32], "16 first, H = 32": late})
print("averages of post-local:", late.summary.messages_sent[0] // 6)

# %% [markdown]
# ## 7 How far to the mean
#
# With α below 1 the ranks keep a part of their difference. An average does not remove the drift but multiplies it by
# 1 − α.
#
# **Predict:** is less agreement cheaper? (Count what is sent.)

# %%
my_cheaper = predict("less agreement is cheaper", ..., "yes", "no")

# %% tags=["nbval-check-output"]
alphas = {1.0: runs[16], 0.1: launch("local_sgd", 4, **recipe, period=16, alpha=0.1, out=folder / "alpha-0.1")}
for alpha, run in alphas.items():
    same = len(set(run.summary.params_sha256)) == 1
    print(f"alpha {alpha}: {run.summary.messages_sent[0] // 6} averages; in the end all have the same: {same}")
my_cheaper.compare(alphas[0.1].summary.messages_sent[0] < alphas[1.0].summary.messages_sent[0])

# %%
compare({f"alpha = {alpha}": run for alpha, run in alphas.items()})

# %% [markdown]
# Not cheaper at all: the same all-reduces, and one more at the very end, with α = 1. A small α lets the ranks explore
# apart; elastic averaging (Zhang et al. 2015) is built on that.
#
# ## 8 Unequal shares
#
# A rank with more samples has learned from more, so its parameters have more weight: $w'=\sum_r \frac{n_r}{n} w_r$,
# with $n_r$ counted since the last average. With shares of 3 : 3 : 3 : 1 and a period of 1 this must again be
# synchronous SGD, which weights its gradients in the same way (notebook 03, section 6).

# %% tags=["nbval-check-output"]
unequal = {**recipe, "steps": 10, "capabilities": (3, 3, 3, 1)}
pair = [launch("sync_sgd", 4, **unequal, out=folder / "unequal-sync"),
        launch("local_sgd", 4, **unequal, period=1, out=folder / "unequal-local")]  # fmt: skip
first, second = (np.array([line["loss"] for line in run.metrics]) for run in pair)
print("losses differ by less than 1e-5:", bool(abs(first - second).max() < 1e-5))

# %% [markdown]
# ## 9 Noise for nothing: random factors
#
# Document 001 multiplies each rank's gradient by a **random factor** (随机因子) before the all-reduce. If the factor's
# mean is 1, the sum is right on average. With $\xi_r$ uniform in 1 ± s its variance is $s^2/3$, and the sum's
#
# $$ \operatorname{Var}\sum_r \xi_r x_r = \frac{s^2}{3} \sum_r x_r^2 $$
#
# **Predict:** four ranks contribute 1, 2, 3 and 4, s = 0.6. Mean and variance of the sum?

# %%
my_mean = predict("mean of the sum", ...)
my_variance = predict("variance of the sum", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep sums
import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data_parallel.random_factors import with_random_factors
from farandole.runtime.communicator import Communicator

SPREAD, DRAWS = 0.6, 1000
comm = Communicator(MPI.COMM_WORLD)
all_reduce = with_random_factors(ALL_REDUCES["ring"], SPREAD, seed=0)
sums = np.full((DRAWS, 1), comm.rank + 1.0)
for each in sums:
    all_reduce(comm, each)
if comm.rank == 0:
    variance = SPREAD**2 / 3 * (1 + 4 + 9 + 16)
    print(f"mean     {sums.mean():6.3f}, right would be  10")
    print(f"variance {sums.var():6.3f}, by the formula {variance:.3f}, without factors 0")
    print("the mean within four standard errors:", bool(abs(sums.mean() - 10) < 4 * np.sqrt(variance / DRAWS)))

# %% tags=["nbval-check-output"]
my_mean.compare(sums[0].mean(), within=0.02)
my_variance.compare(sums[0].var(), within=0.05)

# %% [markdown]
# Nothing is gained by it (erratum 001.3). The factor is the same for all elements of a rank's gradient, so it even
# changes how much each rank's samples count. Its effect on training:

# %%
noisy = {f"s = {s}": launch("sync_sgd", 4, **recipe, random_factors=s, out=folder / f"factors-{s}") for s in (0.5, 1.0)}
compare({"s = 0": synchronous} | noisy)
print("mean distance from s = 0, over the first 50 losses:")
for name, run in noisy.items():
    noise = np.array([line["loss"] for line in run.metrics])[:50] - losses["synchronous"][:50]
    print(f"{name:>8}: {abs(noise).mean():.4f}")

# %% [markdown]
# The loss moves away from that without factors, with s = 1 about twice as far as with s = 0.5; in the end the
# accuracies are alike. So the best that can be said for random factors is that they do no great harm on an easy
# problem.
#
# ## 10 A language model
#
# The same setting on another problem: a small transformer that learns to continue English prose, character by
# character, on two ranks.

# %%
text = {"data": "pydoc", "model": "transformer", "hidden": 32, "steps": 24, "batch": 16, "lr": 0.3}
language = {f"H = {h}": launch("local_sgd", 2, **text, period=h, out=folder / f"text-{h}") for h in (1, 24)}
compare(language)

# %% [markdown]
# Here accuracy is the share of characters predicted correctly. Again there is one run each, so a difference of one
# percent means nothing. Compare H = 1 and H = 24 as above: fewer messages by a factor of 24, and at what price?
#
# ## What you have seen
#
# - Local SGD averages *parameters*, every H steps. With H = 1 and α = 1 it is synchronous SGD, to rounding.
# - Bytes and messages fall by H. α saves nothing, and costs one more all-reduce at the end.
# - Between averages the ranks drift, the more the longer the period and the less their shards have in common.
# - With unlike shards a long period converges to another point than the minimum.
# - One average at the end is MapReduce SGD; synchronous first and local later is post-local SGD.
# - Random factors keep the mean and add variance, $\frac{s^2}{3}\sum_r x_r^2$.
#
# ## What to try
#
# 1. In section 1 set `ALPHA = 1`, then `PERIOD = 4`. Where is the mean after step 4 in each case, and why?
# 2. In section 4 halve the rate and double the period. Does $w^*$ move? Which combination of the two decides?
# 3. Section 3 with a learning rate of 0.02. What happens to drift and accuracy of the unlike shards?
# 4. `slow="rank=3,factor=3"` with periods 1 and 16: which ranks wait, and how long? Does local SGD cure a straggler?
#    Then let each rank be slow now and then: `slow=["rank=0,factor=4,share=0.25", …]`.
# 5. `optimizer="momentum"` with period 16: only parameters are averaged, each rank keeps its own momentum. Does it
#    learn as well as with period 1?
# 6. Section 9 with factors from 0 to 1: what has become of the mean, and which learning rate repairs it?
