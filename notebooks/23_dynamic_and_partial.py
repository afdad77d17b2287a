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
# # 23 · Partial and dynamic synchronisation
#
# **Question:** for which ranks should the others wait, how often, and what decides when conditions change?
#
# Synchronous SGD waits for all ranks, in every step. Document 002 loosens both: **partial synchronisation** (部分同步)
# waits for some, and **dynamic scheduling** (动态调度) changes the strategy during training. Notebook
# `09_update_modes` has both behind a parameter server; here we look at what they gain, and build a controller.

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.data_parallel.controller import Controller
from farandole.report.colours import SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 For how many?
#
# Let each rank's step take a random time, exponentially distributed with mean 1: mostly short, sometimes long. To
# wait for all *n* ranks means to wait for the largest of *n* draws, on average $H_n = 1 + \frac12 + \dots + \frac1n$.
# To wait for the first *k* means to wait for the *k*-th smallest: $H_n - H_{n-k}$.
#
# **Predict:** the server waits for 7 of 8 ranks instead of all. How much shorter is the step, and how many gradients
# are lost?

# %%
my_step = predict("the step with 7, as a part of the step with 8 (0 to 1)", ...)
my_lost = predict("the part of the gradients that is lost (0 to 1)", ...)

# %% tags=["nbval-check-output"]
draws = np.sort(np.random.default_rng(0).exponential(size=(200_000, 8)), axis=1)


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


print("wait for   formula   drawn   gradients per unit of time")
for k in range(8, 3, -1):
    formula = harmonic(8) - harmonic(8 - k)
    print(f"{k:8}{formula:10.3f}{draws[:, k - 1].mean():8.3f}{k / formula:15.2f}")
my_step.compare(draws[:, 7 - 1].mean() / draws[:, 8 - 1].mean(), within=0.05)
my_lost.compare((draws > draws[:, [7 - 1]]).mean())  # the draws that come after the seventh

# %% [markdown]
# The wait for the last rank is longer than the time until the first five have arrived. To leave out one of eight
# makes steps a third shorter, and even with one gradient less there are more gradients per second. That holds for
# *random* times. If the same rank is always late, to leave it out means never to learn from its data.
#
# ## 2 The same for real
#
# A parameter server and five workers, each of which is six times slower in a quarter of its computations, at random.
#
# **Predict:** what part of the time do the workers wait with k = 5 (all), and with k = 4?

# %%
my_all = predict("the part of the time that is waiting with k = 5 (0 to 1)", ...)
my_four = predict("the part with k = 4 (0 to 1)", ...)

# %%
stragglers = [f"rank={rank},factor=6,share=0.25" for rank in range(2, 7)]
recipe = {"data": "mnist5k", "hidden": 128, "batch": 320, "steps": 30, "lr": 0.3, "slow": stragglers}
runs = {}
for k in (5, 4, 3):
    runs[k] = launch("parameter_server", 7, **recipe, sync="partial", enough=k, out=folder / f"partial-{k}")
    s = runs[k].summary
    waited, computed = sum(s.wait_s[2:]), sum(s.compute_s[2:])
    print(f"k = {k}: {s.wall_s:5.2f} s, workers wait {waited / (waited + computed):.0%} of it,",
          f"accuracy {s.test_accuracy:.1%}")  # fmt: skip
waiting = {k: sum(run.summary.wait_s[2:]) for k, run in runs.items()}
computing = {k: sum(run.summary.compute_s[2:]) for k, run in runs.items()}
my_all.compare(waiting[5] / (waiting[5] + computing[5]), within=0.2)
my_four.compare(waiting[4] / (waiting[4] + computing[4]), within=0.2)

# %% [markdown]
# ## 3 Every rank takes as many steps as it can
#
# If one rank is *always* slow, it can take fewer steps instead of being left out: the others do more in the same time,
# and no rank waits. That is document 001's **synchronisation-agnostic SGD** (不同步长的更新). How should unequal
# numbers of steps be combined? Let rank *r* have its minimum at the parameter $a_r$ and take $\tau_r$ steps towards
# it; then all ranks take the mean.
#
# **Predict:** the ranks' minima are 0, 1, 2 and 3; the last rank is slow and takes one step where the others take
# four. Where does the plain mean converge? The right value is 1.5.

# %%
my_rest = predict("where the plain mean comes to rest", ...)

# %% tags=["nbval-check-output"]
wants, steps, rate = np.arange(4.0), np.array([4, 4, 4, 1]), 0.01
for rule in ("plain", "normalised"):
    w = 0.0
    for _ in range(3000):
        moved = (1 - (1 - rate) ** steps) * (wants - w)  # what each comes to from the common w
        w += np.mean(moved) if rule == "plain" else np.mean(moved / steps) * np.mean(steps)
    print(f"{rule:>10}: {w:.2f}")
pull = 1 - (1 - rate) ** steps
my_rest.compare(pull @ wants / pull.sum(), within=0.05)

# %% [markdown]
# The plain mean converges near the fast ranks' minima. In the normalised rule each rank contributes the *direction*
# of its mean step, and all move by the mean number of steps (Wang et al. 2020). Now the data of a faster machine no
# longer count more.
#
# ## 4 A controller
#
# The slow rank may change, and so may the network. `dynamic_sync` measures both in every round, and a controller plans
# the next one:
#
# - **which rank:** if rank *r*'s step takes $c_r$, the rank gets the part $(1/c_r)/\sum 1/c$ of the round's steps;
# - **when:** if the all-reduce takes *m* and a step takes *c*, a round has $\kappa\sqrt{m/c}$ steps on average, or a
#   number near it that can be divided with less waiting, for instance 4 instead of 5.
#
# Why the root? A period of *H* steps makes each step cost $c + m/H$, but lets the copies drift apart, which costs
# something in proportion to *H*. The sum of $m/H$ and a constant times *H* is smallest at an *H* in proportion to
# $\sqrt m$ (Wang & Joshi 2019 derive it for local SGD).
#
# The controller is a pure function of the measurements, the same on all ranks. Let us play the ranks.
#
# **Predict:** all are equally fast, and the all-reduce takes 16 times as long as a step: how many steps does a round
# have, with κ = 4? And when rank 3 then becomes four times slower?

# %%
my_period = predict("steps of a round", ...)
my_steps = predict("steps of each rank when rank 3 is slower, as a list", ...)

# %% tags=["nbval-check-output"]
controller = Controller(ranks=4, kappa=4)


def live(title, step_s, exchange_s, rounds=20):
    """Run a number of rounds in which nothing changes; return the plan after them."""
    for _ in range(rounds):
        controller.observe(step_s, [exchange_s] * 4)
    print(f"{title:32} period {controller.plan.period:2}, steps {controller.plan.steps}")
    return controller.plan


equal = live("a slow network", [1, 1, 1, 1], exchange_s=16)
unequal = live("and a straggler", [1, 1, 1, 4], exchange_s=16)
live("a fast network", [1, 1, 1, 4], exchange_s=0.25)
live("no rank is slow", [1, 1, 1, 1], exchange_s=0.25)
_ = live("one slow round", [1, 1, 1, 4], exchange_s=0.25, rounds=1)
my_period.compare(equal.period)
my_steps.compare(list(unequal.steps))

# %% [markdown]
# ## 5 A straggler that moves
#
# Four ranks; the last one is four times slower in the first half, the first one in the second. The others sleep too, so
# that two cores are enough for four ranks. We compare the controller with three fixed choices: one step each
# (synchronous SGD), rounds of eight steps, the same for all ranks, and rounds of four, divided by measured speed.
#
# Longer rounds, and more unequal parts of a round, learn less in the same number of steps. So we compare neither the
# time of all steps nor the loss after them, but **the time to the same loss**: that of the common parameters over all
# training samples, without the time that measuring it takes.
#
# **Predict:** which of the three comes closest to the controller, and what does its user have to know beforehand?

# %%
my_rival = predict("the closest rival", ..., "period 1, equal", "period 8, equal", "period 4, by speed")

# %%
pace = [f"rank={rank},factor=4" for rank in range(4)]  # all ranks sleep, so that the number of cores does not matter
moving = [*pace, "rank=3,factor=16,until=130", "rank=0,factor=16,from=130"]
task = {"hidden": 32, "steps": 260, "lr": 0.12, "slow": moving}
moved = {"controller": launch("dynamic_sync", 4, **task, out=folder / "moving")}
for period, division in ((1, "equal"), (8, "equal"), (4, "by speed")):
    options = {"period": period} | ({"equal_steps": True} if division == "equal" else {})
    name = f"period {period}, {division}"
    moved[name] = launch("dynamic_sync", 4, **task, **options, out=folder / name)


def reached(run, loss):
    """Return when the loss was this small, also in the next line."""
    lines = run.metrics
    for line, following in zip(lines, [*lines[1:], lines[-1]], strict=True):
        if max(line["loss"], following["loss"]) <= loss:
            return f"{line['wall_s']:.1f} s"
    return "never"


def show(runs, losses, marks=()):
    _, (by_time, plans) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
    for (name, run), colour in zip(runs.items(), SERIES, strict=False):
        lines = run.metrics
        by_time.semilogy([line["wall_s"] for line in lines], [line["loss"] for line in lines], color=colour, label=name)
        s = run.summary
        waiting = sum(s.wait_s) / (4 * s.wall_s)
        print(f"{name:>18}:", ", ".join(f"to {loss} {reached(run, loss):>5}" for loss in losses),
              f"| at the end {s.final_loss:.3f}; {waiting:3.0%} of the ranks' time is waiting")  # fmt: skip
    lines = runs["controller"].metrics
    at = [line["step"] for line in lines]
    least, most = ([line[which] for line in lines] for which in ("fewest_steps", "most_steps"))
    plans.fill_between(at, least, most, step="post", alpha=0.25, color=SERIES[0], label="slowest to fastest rank")
    plans.step(at, [line["period"] for line in lines], where="post", color=SERIES[0], label="on average")
    for mark in marks:
        plans.axvline(mark, color="grey", lw=0.8, ls=":")
    by_time.set(xlabel="seconds", ylabel="loss of the common parameters")
    plans.set(xlabel="step", ylabel="steps of a rank in a round", ylim=(0, None))
    for ax in (by_time, plans):
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False)


show(moved, losses=(1.0, 0.6), marks=[130])


def soonest(named, loss):
    """Return the name of the run that reaches the loss first."""
    seconds = {name: reached(run, loss) for name, run in named.items()}
    return min(seconds, key=lambda name: np.inf if seconds[name] == "never" else float(seconds[name].split()[0]))


my_rival.compare(soonest({name: run for name, run in moved.items() if name != "controller"}, 0.6))

# %% [markdown]
# Most of the gain here comes from dividing the steps by speed. With a good period that needs no controller. All runs
# have begun from the same parameters:

# %% tags=["nbval-check-output"]
first = {run.metrics[0]["loss"] for run in moved.values()}
print(f"{len(moved)} trainings, {len(first)} loss before the first step")

# %% [markdown]
# ## 6 A network that changes
#
# The links have 4 Mbit/s at first and 1000 from step 150 on (`--link-mbps` turns a computer's memory into a slow
# network, see the page on networks). Each rank has only a few of the ten digits, so a long period does harm.
#
# **Predict:** which fixed period reaches a loss of 0.3 first? And 0.15?

# %%
my_early = predict("the fastest to 0.3", ..., "period 4", "period 16", "period 64")
my_late = predict("the fastest to 0.15", ..., "period 4", "period 16", "period 64")

# %%
network = {"link_mbps": 4, "link_change": "step=150,mbps=1000", "concentration": 0.05}
task = {"hidden": 32, "steps": 500, "lr": 0.3, "slow": pace, **network}
changed = {"controller": launch("dynamic_sync", 4, **task, out=folder / "network")}
for period in (4, 16, 64):
    changed[f"period {period}"] = launch("dynamic_sync", 4, **task, period=period, out=folder / f"network-{period}")
show(changed, losses=(0.5, 0.3, 0.15), marks=[150])
fixed = {name: run for name, run in changed.items() if name != "controller"}
my_early.compare(soonest(fixed, 0.3))
my_late.compare(soonest(fixed, 0.15))

# %% [markdown]
# A round has a ring all-reduce of the parameters, 2(P − 1) messages, and one of the measurements, lg P messages.
#
# **Predict:** how many messages does a rank send with each fixed period?

# %%
my_messages = predict("messages with a period of 4, 16 and 64, as a list", ...)

# %% tags=["nbval-check-output"]
for period in (4, 16, 64):
    sent = changed[f"period {period}"].summary.messages_sent
    rounds = -(-500 // period)
    print(f"period {period:2}: {rounds:3} rounds, {sent[0]:4} messages;",
          f"each rank 8 a round: {sent == [8 * rounds] * 4}")  # fmt: skip
my_messages.compare([changed[f"period {period}"].summary.messages_sent[0] for period in (4, 16, 64)])

# %% [markdown]
# While the network is slow a long period is right, because at the beginning any direction is good enough. Later the
# network is fast, and a long period keeps the loss from falling. Each fixed choice is wrong half of the time. The
# page on data parallel has the measurements of `farandole bench dynamic`.
#
# The controller does not know κ, which says how much drift costs on *these* data. With similar data on all ranks a
# larger κ is better, with sorted data a smaller one; the controller does not look at the loss. And it reacts to a
# change only after it has measured it.
#
# ## Try
#
# - `kappa=1` and `kappa=16` in section 6. Which is better before the change, which after it?
# - Section 6 with `concentration="inf"`.
# - A rank that is slow at random times (`share=0.25`) instead of always: should a controller follow that?
# - `farandole run parameter_server -n 6 --sync dssp` has another controller, for the staleness (notebook
#   `09_update_modes`). What does it measure, and what does it decide?
