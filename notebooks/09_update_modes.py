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
# # 09 · When does an update count?
#
# **Question:** a parameter server has three workers, and one of them is four times slower than the others. Should the
# others wait?
#
# A worker that waits computes exact gradients and loses time; a worker that continues saves time and computes with
# parameters that are out of date. Between the two lies every way of **updating parameters** (参数更新) that the
# documents name. Document 000 has four:
#
# - **mini-batch synchronous** (`bsp`, 小批量同步更新): all gradients of a step move the parameters at once;
# - **stale synchronous** (`ssp`, 冲洗更新): a worker may run ahead, but at most s iterations ahead of the slowest;
# - **asynchronous** (`async`, 异步更新): every gradient counts as it arrives, and no worker waits;
# - **half-synchronous** (`half`, 半同步更新): stale synchronous, with a random wait at each worker before it pushes.
#
# Documents 002 and 004 add three. **Partially synchronous** (`partial`, 部分同步SGD) uses the first k gradients of a
# step. **Dynamically synchronous** (`dssp`, 动态同步SGD) chooses s during the training. Document 004's server replaces
# the gradient of a late worker by this worker's last one (`history`, historical data, 历史数据).
#
# The names in code type are the program's: bulk, stale and dynamic stale synchronous parallel are `bsp`, `ssp` and
# `dssp`.
#
# In the code each is a **policy** of about thirty lines that answers two questions: *may this worker start?* and
# *which gradients move the parameters now?* Here is the second of the four, complete:

# %%
# %load_ext farandole
import inspect
import tempfile
from collections import Counter
from functools import partial
from heapq import heappop, heappush
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.cost.setting import Setting
from farandole.cost.simulator import Simulation
from farandole.cost.stragglers import Slow
from farandole.parameter_server.core.policies import BSP, DSSP, SSP, Asynchronous, Half, Partial, Push
from farandole.parameter_server.core.update_rules import Blend, Twice
from farandole.report import comparison, curves, table
from farandole.report.colours import BLUE, GREY, ORANGE
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

print(inspect.getsource(SSP))

# %% [markdown]
# ## 1 The policies in an imagined world
#
# A policy knows no clock and no network, so we can run it in a simulation where time is a number. In this one an
# iteration takes one second, or four on worker 2, and a message takes no time at all.

# %%
WORKERS = (0, 1, 2)


def simulate(policy, seconds, steps):
    """Return the bars (worker, "wait" or "compute", begin, end) of a training of `steps` steps.

    seconds(worker, i): how long the worker's iteration number i takes.
    """
    limit = steps if policy.in_rounds else steps * len(WORKERS)  # … steps, or as many gradients
    waiting, running, begun, bars, now = dict.fromkeys(WORKERS, 0.0), [], Counter(), [], 0.0
    while True:
        for worker, since in list(waiting.items()):
            done = policy.next_clock(worker) if policy.in_rounds else begun.total()
            if done >= limit:
                policy.leave(worker)
            elif policy.may_start(worker):
                clock = policy.next_clock(worker)
                policy.started(worker, now)
                ready = now + seconds(worker, begun[worker]) + policy.pause(worker, clock)
                begun[worker] += 1
                bars += [(worker, "wait", since, now), (worker, "compute", now, ready)]
                heappush(running, (ready, worker, clock))
            else:
                continue
            del waiting[worker]
        if not running:
            return bars
        now, worker, clock = heappop(running)  # the next one to be ready
        policy.push(Push(worker, clock, share=1 / len(WORKERS)), now)
        waiting[worker] = now


def duration(bars):
    return max(end for *_, end in bars)


def one_slow(worker, iteration):
    return 4.0 if worker == 2 else 1.0


POLICIES = {
    "bsp": BSP,
    "ssp": partial(SSP, staleness=4),
    "async": Asynchronous,
    "half": partial(Half, staleness=4, longest_wait=0.5),
    "partial": partial(Partial, enough=2),
    "dssp": partial(DSSP, low=1, high=4),
}

# %% [markdown]
# <details><summary><b>Predict first.</b> How long do 40 steps take (for policies without steps: 120 gradients)?
# Mini-batch synchronous, asynchronous, and stale synchronous with s = 4? Open this when you have three numbers.
# </summary>
#
# - *Mini-batch synchronous:* every step takes as long as its slowest worker: 40 · 4 = 160 seconds.
# - *Asynchronous:* three workers make 1 + 1 + ¼ = 2.25 gradients a second, so 120 take 53.3 seconds,
#   and a little more if the slow worker brings the last one.
# - *Stale synchronous:* it is tempting to say "somewhere in the middle". But after its first few iterations a fast
#   worker is s ahead, and from then on it waits for each iteration of the slow one. In the long run no worker is faster
#   than the slowest: 149 seconds. A *bound* on the lead also bounds what running ahead can gain.
#
# </details>

# %% tags=["nbval-check-output"]
STEPS = 40
for name, make in POLICIES.items():
    bars = simulate(make(WORKERS), one_slow, STEPS)
    waited = sum(end - begin for _, what, begin, end in bars if what == "wait")
    print(f"{name:10}{duration(bars):6.1f} s,{4 * STEPS / duration(bars):6.2f} times as fast as bsp; "
          f"waited {waited:5.1f} s")  # fmt: skip

# %%
figure, axes = plt.subplots(len(POLICIES), 1, figsize=(9, 7), sharex=True)
for ax, (name, make) in zip(axes, POLICIES.items(), strict=True):
    for worker, what, begin, end in simulate(make(WORKERS), one_slow, STEPS):
        if begin < 40:
            ax.barh(worker, end - begin, left=begin, height=0.8, color={"compute": BLUE, "wait": GREY}[what],
                    edgecolor="white", linewidth=0.5)  # fmt: skip
    ax.set(xlim=(0, 40), yticks=WORKERS, ylabel=name)
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)
axes[-1].set_xlabel("seconds, the first 40")
figure.tight_layout()

# %% [markdown]
# Blue is computing, grey waiting; worker 2 is the slow one. Look at `ssp`: at first the fast workers run freely,
# then the grey begins, and it is as much as above. Document 004 calls it the theory of the bucket (木桶理论): a
# bucket holds as much water as its shortest stave allows. `partial` is the fastest: it ignores the slow worker, and
# so the samples that only this worker has. `half` is `ssp` with additional waits. (Document 000 has them so that the
# workers do not all push at once. With messages that take no time, that gains nothing: erratum 000.23.)
#
# `dssp` lies between `ssp` with its lower and with its upper bound. When the furthest worker passes the lower
# bound, a controller predicts from the last iterations when the furthest and the slowest worker will push next. It
# grants the number of further iterations that will end together with one of the slowest worker's (Zhao et al. 2019).
#
# **Predict:** with bounds 1 and 8, how far ahead does a fast worker start when worker 2 is 2, 4 or 16 times slower?

# %%
my_leads = predict("leads for 2, 4 and 16 times slower, as a list", ...)

# %% tags=["nbval-check-output"]
BOUNDED = {"ssp, s = 1": partial(SSP, staleness=1), "dssp, 1 to 8": partial(DSSP, low=1, high=8),
           "ssp, s = 8": partial(SSP, staleness=8)}  # fmt: skip
for factor in (2, 4, 16):
    for name, make in BOUNDED.items():
        outcome = Simulation(make(WORKERS), Setting(3, 200, 1.0, Slow(worker=2, factor=factor))).run()
        print(f"{factor:2} times slower, {name:16} leads up to {max(outcome.lead)}, waited {outcome.wait_s:5.0f} s")
slow = [Setting(3, 200, 1.0, Slow(worker=2, factor=factor)) for factor in (2, 4, 16)]
my_leads.compare([max(Simulation(BOUNDED["dssp, 1 to 8"](WORKERS), setting).run().lead) for setting in slow])

# %% [markdown]
# The lead equals worker 2's slowness, within the bounds: one iteration passes the lower bound, and the others fill
# the time until worker 2's next push. The seconds hardly differ. If a worker is *always* slow, no bound gains more
# than its first few iterations; section 4 has stragglers of another kind.
#
# ## 2 The real thing
#
# Five ranks: manager, server, three workers, of which rank 4 computes four times slower. The command
#
# ```
# farandole compare bsp ssp async half --slow rank=4,factor=4
# ```
#
# compares four of them; here we run all seven.
#
# **Predict,** before you run it: (a) in which order do they finish? (b) Which modes will have waited least?
# (c) Which one has learned most after the same number of *samples*, and which after the same number of *seconds*?

# %%
my_first = predict("(a) the first to finish", ..., "bsp", "ssp", "async", "half", "partial", "dssp", "history")
my_waited = predict("(b) the mode that waits least", ..., "bsp", "ssp", "async", "half", "partial", "dssp", "history")

# %%
TRAINED = 24  # steps
recipe = {"data": "mnist5k", "batch": 768, "steps": TRAINED, "lr": 0.5, "seed": 0, "staleness": 4}
modes = ("bsp", "ssp", "async", "half", "partial", "dssp", "history")
runs = {
    mode: launch("parameter_server", ranks=5, sync=mode, slow="rank=4,factor=4", **recipe, out=folder / mode)
    for mode in modes
}
summaries = {name: run.summary for name, run in runs.items()}
table.show([table.comparison(summaries), table.updating(summaries)])

# %%
figure, (by_time, by_step) = plt.subplots(1, 2, figsize=(9.5, 3.6), sharey=True)
curves.plot(runs, by_step, by_time)
by_time.set_ylabel("training loss")
by_step.set(xlabel="step (as many samples as one batch)", ylabel="")
figure.tight_layout()

# %% [markdown]
# The left picture shows what a second is worth, the right one what a sample is worth. (With `ssp`, `async` and `half`
# an update is one gradient, with a third of the weight; three of them are a step here.) Where the curves on the right
# coincide, staleness has cost nothing visible.
#
# How much faster than mini-batch synchronous was each mode, compared with the simulation? The times are this
# computer's. They differ from run to run, most of all when other programs are running.

# %%
for name, run in runs.items():
    measured = runs["bsp"].summary.wall_s / run.summary.wall_s
    expected = ""
    if name in POLICIES:
        expected = 4 * TRAINED / duration(simulate(POLICIES[name](WORKERS), one_slow, TRAINED))
        expected = f", imagined {expected:.2f}"
    print(f"{name:10}{run.summary.wall_s:6.2f} s: {measured:.2f} times as fast{expected}")
my_first.compare(min(runs, key=lambda mode: runs[mode].summary.wall_s))
my_waited.compare(min(runs, key=lambda mode: sum(runs[mode].summary.wait_s)))

# %% [markdown]
# On an idle computer the order is much like the simulated one, and the large ratios are smaller: messages take time,
# three workers and a server share two or four cores, and the server's updates are part of every iteration. And `half`
# waits up to 20 ms before a push, which is longer than an iteration on a fast computer. Other running programs also
# act as stragglers, and then even the order can change.
#
# ## 3 How stale, and how far ahead?
#
# Each record has two histograms. The **lead** of a worker is its clock minus the slowest clock, measured whenever it
# starts an iteration. The **staleness** of a gradient is how many updates by *others* came between its pull and its
# application.
#
# **Predict:** which values of the lead occur with `ssp` and s = 4? And how large can the *staleness* become there: is
# 4 its bound, too?

# %%
my_lead = predict("the largest lead with ssp and s = 4", ...)
my_bound = predict("the staleness is never above 4", ..., "yes", "no")

# %% tags=["nbval-check-output"]
lead = {name: [int(value) for value in run.summary.lead] for name, run in runs.items()}
staleness = {name: [int(value) for value in run.summary.staleness] for name, run in runs.items()}
print("bsp:   leads", lead["bsp"], "staleness", staleness["bsp"])
print("ssp:   no lead above 4:", max(lead["ssp"]) <= 4)
print("half:  no lead above 4:", max(lead["half"]) <= 4)
print("dssp:  no lead above 4:", max(lead["dssp"]) <= 4)
print("ssp:   no staleness above (3 - 1)(2 s + 1) = 18:", max(staleness["ssp"]) <= 2 * (2 * 4 + 1))
counts = {name: run.summary.steps for name, run in runs.items()}
print("updates:", {name: counts[name] for name in ("bsp", "ssp", "async", "half", "partial")})
gradients = {name: sum(run.summary.staleness.values()) for name, run in runs.items()}
print("gradients that counted:", {name: gradients[name] for name in ("bsp", "ssp", "async", "half", "partial")})
my_lead.compare(max(lead["ssp"]))
my_bound.compare(max(staleness["ssp"]) <= 4)

# %%
chosen = {name: runs[name] for name in ("bsp", "ssp", "async", "half", "dssp")}
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4))
comparison.plot_staleness(chosen, left)
comparison.plot_lead(chosen, right)
right.axvline(4.5, color="black", linestyle="--", linewidth=1)
right.annotate("s = 4", (4.6, right.get_ylim()[1] * 0.9))
right.legend(frameon=False)
figure.tight_layout()
print("largest lead:     ", {name: max(lead[name]) for name in chosen})
print("largest staleness:", {name: max(staleness[name]) for name in chosen})

# %% [markdown]
# Real processes that know nothing of each other keep the bound exactly. The staleness is a different number, because
# it counts the updates of *all* others: while the slow worker computes one gradient, each of the two fast workers can
# push several. In the asynchronous mode there is no bound.
#
# Which ranks have waited? Rank 0 is the manager, rank 1 the server, rank 4 the slow worker.

# %%
figure, ax = plt.subplots(figsize=(9.5, 3))
comparison.plot_waiting(runs, ax)
ax.legend(frameon=False, ncols=2)
figure.tight_layout()

# %% [markdown]
# The slow worker hardly waits: the others wait for it. With `partial` the fast workers wait only for each other,
# because two gradients make a step. The slow worker's gradients arrive after their step and are dropped: its
# computing is wasted, and the model learns nothing from its images.
#
# ## 4 A straggler now and then
#
# So far stale synchronous has gained little. It was not made for this. A worker that is *always* slow should get a
# smaller share (`capabilities`, notebook 03), or leave. Shares do not help against a **transient** straggler
# (掉队者): a processor that throttles, another process that compiles, a lost packet, each time on another worker. So
# let *every* worker be four times slower in a quarter of its iterations.
#
# <details><summary><b>Predict first.</b> What is the expected time of a mini-batch synchronous step? And which policy
# gains more from running ahead now?</summary>
#
# A synchronous step is slow as soon as *one* of the three is slow: 1 − 0.75³ = 58 % of all steps. It takes
# 0.42 · 1 + 0.58 · 4 = 2.7 seconds on average, while a worker alone needs only 0.75 · 1 + 0.25 · 4 = 1.75. A worker
# that may be 4 ahead uses its fast periods as a reserve for its slow ones, and so do the others: nearly all of the
# difference can be gained. </details>

# %% tags=["nbval-check-output"]
rng = np.random.default_rng(0)
dice = rng.random((len(WORKERS), 3 * 400)) < 0.25


def now_and_then(worker, iteration):
    return 4.0 if dice[worker, iteration] else 1.0


times = {"bsp": duration(simulate(BSP(WORKERS), now_and_then, 400))}
for s in (0, 1, 2, 4, 8, 16):
    times[f"ssp, s = {s}"] = duration(simulate(SSP(WORKERS, s), now_and_then, 400))
times["async"] = duration(simulate(Asynchronous(WORKERS), now_and_then, 400))
for name, seconds in times.items():
    print(f"{name:14}{seconds / 400:.2f} s a step")

# %% [markdown]
# With s = 0 stale synchronous *is* mini-batch synchronous, to the second. The first few iterations of slack gain most
# of what can be gained, and a large s hardly more. That is the point of the method (Ho et al. 2013): nearly the speed
# of the asynchronous mode, *and* a bound. Now with real processes: `share=0.25` makes a rank slow in a quarter of its
# computations, which the seed selects.

# %%
transient = [f"rank={rank},factor=4,share=0.25" for rank in (2, 3, 4)]
spells = {
    mode: launch("parameter_server", ranks=5, sync=mode, slow=transient, **recipe, out=folder / f"transient-{mode}")
    for mode in ("bsp", "ssp", "async")
}
summaries = {name: run.summary for name, run in spells.items()}
table.show([table.comparison(summaries), table.updating(summaries)])
print(f"{'times as fast as bsp':28}always slow   now and then")
for name in ("ssp", "async"):
    ratios = [some["bsp"].summary.wall_s / some[name].summary.wall_s for some in (runs, spells)]
    print(f"{name:28}{ratios[0]:11.2f}{ratios[1]:15.2f}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4))
steps = np.array([0, 1, 2, 4, 8, 16])
left.plot(steps, [times[f"ssp, s = {s}"] / 400 for s in steps], "o-", color=BLUE, label="ssp")
left.axhline(times["async"] / 400, color=ORANGE, label="async")
left.set(xlabel="s", ylabel="seconds a step, imagined", ylim=(0, None))
left.legend(frameon=False)
left.spines[["top", "right"]].set_visible(False)
comparison.plot_waiting(spells, right)
right.legend(frameon=False)
figure.tight_layout()

# %% tags=["nbval-check-output"]
print("ssp, now and then: no lead above 4:", max(map(int, spells["ssp"].summary.lead)) <= 4)
print("gradients that counted:", {name: sum(run.summary.staleness.values()) for name, run in spells.items()})

# %% [markdown]
# ## 5 Document 000's formula
#
# For stale synchronous updates document 000 gives a formula. With $h_i$ the gradients and $g = \sum_i h_i$ their sum,
#
# $$ w' = \frac{1-\alpha}{n}\, g + \alpha w, \qquad \text{where } \alpha \text{ is a learning rate.} $$
#
# **Predict:** at a minimum all gradients are zero. What does the formula do to $w$ there? What should it do?

# %%
my_formula = predict("w, by the formula", ..., "stays", "goes to 0")

# %% tags=["nbval-check-output"]
alpha, n = 0.9, 3
w = np.array([1.0, -2.0])
for _ in range(50):
    gradients = np.zeros((n, 2))  # we are at the minimum
    w = (1 - alpha) / n * gradients.sum(axis=0) + alpha * w
print("after 50 updates at the minimum (1, -2) the formula has moved w to", w.round(2))
by_formula = w

w = np.array([5.0, 5.0])
blend = Blend(alpha)
for _ in range(50):
    own = [w - 0.5 * (w - np.array([1.0, -2.0])) for _ in range(n)]  # each worker's parameters, after a step of its own
    blend.begin()
    blend.apply(w, slice(0, 2), sum(x / n for x in own), weight=1.0)
print("with pushed parameters instead of gradients, from (5, 5):    ", w.round(2))
print("steps of 0.5 blended by 1 - 0.9 are steps of 0.05:           ",
      (np.array([1.0, -2.0]) + (1 - 0.05) ** 50 * np.array([4.0, 7.0])).round(2))  # fmt: skip
my_formula.compare("goes to 0" if abs(by_formula).max() < 0.1 else "stays")

# %% [markdown]
# Gradients and parameters have been mixed up (erratum 000.21). With gradients the formula shrinks $w$ and does not
# follow the slope. If the workers push their *parameters* it makes sense, as a cautious average, and `--update blend`
# does that. That section of the document has more errors, and you have now seen all of them:
#
# - What it describes as stale synchronous, where workers wait for the server after each gradient, is plain
#   synchronous (000.19); and it is not the default of any system (000.20). The term 冲洗 means to rinse; *stale* is
#   陈旧 (000.18).
# - Its asynchronous mode updates "when all have reached the same level": that would be a barrier, and so the
#   opposite (000.22). Document 002's asynchronous SGD (异步SGD) is the one that we have run.
# - The random wait of the half-synchronous mode bounds nothing and gains nothing here (000.23).
# - *Mini-batch* says how many samples a gradient is computed from; *synchronous* says that all workers wait. Neither
#   saves bandwidth (000.24).
# - Nor *must* the parameters be up to date before the next batch, as document 004 says (004.4): in six of our
#   seven modes they need not be.
#
# ### Elastic averaging
#
# There is a published method in which each worker has different parameters: **elastic averaging SGD** (Zhang,
# Choromanska & LeCun 2015). A worker's $x_i$ and the server's $\tilde x$ are tied by a spring. Every $\tau$ iterations
#
# $$ x_i \leftarrow x_i - \eta g_i(x_i) - \alpha (x_i - \tilde x), \qquad
#    \tilde x \leftarrow \tilde x + \alpha \sum_i (x_i - \tilde x), $$
#
# and in between each worker trains alone. `--elasticity` is $\beta$, the sum of the $\alpha$.
#
# **Predict:** with $\tau = 16$ instead of 1, what is left of the bytes that a worker sends?

# %%
my_part = predict("the part of the bytes that is left (0 to 1)", ...)

# %% tags=["nbval-check-output"]
sent = {}
for period in (1, 16):
    run = launch("parameter_server", ranks=4, sync="bsp", update="elastic", period=period, steps=96, lr=0.3,
                 out=folder / f"elastic-{period}")  # fmt: skip
    sent[period] = run.summary.bytes_sent[-1]
    print(f"tau = {period:2}: {run.summary.steps:3} exchanges, {sent[period] / 96 / 1e3:3.0f} kB an iteration, "
          f"most test samples right: {run.summary.test_accuracy > 0.5}")  # fmt: skip
my_part.compare(sent[16] / sent[1], within=0.1)

# %% [markdown]
# ### Its round aggregates twice
#
# Document 000 describes the parameter server's round as follows: the centre aggregates the gradients, each node
# descends along the result and sends its new parameters, the centre aggregates these, and starts the descent once
# more. `--update twice` does exactly that.
#
# **Predict:** $f(w) = w^2/2$, two nodes, from $w = 1$ with the rate $\eta$. Where is $w$ after one such round, and from
# which $\eta$ on does it diverge? (One descent per gradient diverges from 2 on.)

# %%
my_rate = predict("the rate from which on it diverges", ...)


# %% tags=["nbval-check-output"]
def rounds(eta, again):
    """Return w after ten of document 000's rounds; again: with the second descent."""
    w = np.array([1.0])
    rule = Twice(w, eta, again=again)  # the server's table: w, then the aggregated gradient, then w …
    for _ in range(10):
        before = w.copy()
        for second in (False, True):
            sent = before - eta * w if second else before  # a node's new parameters, or its gradient, which is w here
            rule.begin()
            rule.apply(w, slice(0, 1), 0.5 * sent + 0.5 * sent, weight=1.0)
    return w[0]


for eta in (0.1, 0.9, 1.5):
    print(f"eta {eta}: once {(1 - eta) ** 10:10.2g}, as written {rounds(eta, again=True):10.2g}, "
          f"without the second descent {rounds(eta, again=False):10.2g}")  # fmt: skip
rates = np.arange(1, 21) / 10
my_rate.compare(min(eta for eta in rates if abs(rounds(eta, again=True)) >= 1))  # w no longer shrinks

# %% [markdown]
# All nodes send the same parameters, so the second mean changes nothing; what changes the result is the second descent.
# It is SGD at twice the rate, and diverges from 1 on, at twice the bytes (erratum 000.17).
#
# ## What you have seen
#
# - One server, seven policies; each decides which worker may start, and which gradients count now.
# - If a worker is always slow, only a policy without a bound, or one that leaves this worker behind, is faster. If
#   workers are slow now and then, a small bound is enough for nearly all of the gain.
# - The lead is bounded by s, exactly; the staleness is a different number, and it is measured.
# - Seconds and samples are two axes, and a mode that wins on one may lose on the other. Look at both.
#
# ## What to try
#
# 1. In section 1 make worker 2 ten times slower. Which ratios grow, and which stay?
# 2. Write a policy yourself: `Patient`, which is `Asynchronous` for all but the slowest worker … or any rule you
#    like; `simulate` will drive it. Lab 07 has you write it, and checks it.
# 3. In section 2 raise the learning rate to 1. Which mode breaks first? Then give it `update="staleness-aware"` or
#    `update="delay-compensated"`.
# 4. `enough=1` with `sync="partial"`: what is that, and why is it so fast and so bad?
# 5. In section 4 give only *one* worker spells of `factor=20,share=0.05`. Which s absorbs a spell?
# 6. Run section 2 with `capabilities=(4, 4, 1)`. Is there anything left that `ssp` or `async` could win?
