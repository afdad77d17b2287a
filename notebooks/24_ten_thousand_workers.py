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
# # 24 · Ten thousand workers
#
# **Question:** how does a method behave with more machines than we will ever own?
#
# We do not have 10,000 computers for this lesson. But the part of a parameter server that *decides* – may this worker
# continue, does this gradient count – is an object without network or clock. The server of notebook `09_update_modes`
# drives it with messages; here a **discrete-event simulator** (离散事件仿真) drives the very same object with events.
#
# The simulations draw from a seed and give the same result on every computer. Section 2 does not: it measures your
# computer.

# %%
# %load_ext farandole
import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import Run, launch
from farandole.collectives.costs import Link
from farandole.cost.comparison import Choice, compared
from farandole.cost.networks.named import parse as parse_network
from farandole.cost.setting import NO_NETWORK, Setting
from farandole.cost.stragglers import LogNormal, parse
from farandole.cost.validation import against
from farandole.parameter_server.core.policies import SSP, Push
from farandole.report.colours import SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 A policy in the hand
#
# Stale synchronous with a staleness of 1, and three workers. A worker asks before each iteration, and pushes after it.
#
# **Predict:** worker 0 is fast and pushes twice; the others have not pushed yet. May it begin a third time?

# %%
my_third = predict("it may begin a third time", ..., "yes", "no")

# %% tags=["nbval-check-output"]
policy = SSP(range(3), staleness=1)
for iteration in range(3):
    allowed = policy.may_start(0)
    print(f"worker 0, iteration {iteration}: may start {allowed}, lead {policy.lead(0)}")
    if allowed:
        push = Push(0, policy.next_clock(0), share=1 / 3)
        policy.started(0, now=float(iteration))
        actions = policy.push(push, now=float(iteration))
        print("   its push is", "applied" if actions else "held back")
for worker in (1, 2):
    push = Push(worker, policy.next_clock(worker), share=1 / 3)
    policy.started(worker, now=9.0)
    policy.push(push, now=9.0)
    print(f"worker {worker} has pushed; worker 0 may start: {policy.may_start(0)}")
my_third.compare(allowed)

# %% [markdown]
# The slowest worker's clock decides, so both others have to push first. And a gradient that would be too new for the
# slower workers is held until theirs have arrived. The policy knows nothing of messages; only the code that drives it
# does.
#
# ## 2 Is the simulator right?
#
# Before we trust it for 10,000 workers, it has to be right for three. We train with real processes, with sleeps that
# make workers slow at random. Then the simulator gets each worker's computing times from the record, and the policy,
# and has to predict how long the run took: which worker waited for which, and for how long.

# %%
slow = ["rank=2,factor=40", "rank=3,factor=40,share=0.9", "rank=4,factor=100,share=0.7"]
for sync in ("bsp", "ssp", "async"):
    run = launch("parameter_server", 5, steps=15, sync=sync, slow=slow, out=folder / sync)
    verdict = against(Run.open(run.folder))
    print(f"{sync:10} a round took {1e3 * verdict.measured_s:5.0f} ms, the simulator says "
          f"{1e3 * verdict.predicted_s:5.0f} ms: {verdict.error:+.0%}")  # fmt: skip

# %% [markdown]
# It predicts a little less than was measured, because messages and updates also take time on a real machine. The page
# "The cost of synchronising" has a table of all policies.
#
# ## 3 Waiting for the slowest of many
#
# Let computing times have a lognormal distribution with σ = 0.5: half of the steps are between 0.6 and 1.2 of the
# mean. No network for now.
#
# **Predict:** synchronous training with 10,000 workers: how many times the mean does a step take? And with a staleness
# of 4?

# %%
my_slowest = predict("times the mean, in step", ...)
my_stale = predict("times the mean, with a staleness of 4", ...)

# %% tags=["nbval-check-output"]
scatter = parse("lognormal:0.5")
free = Setting(workers=1, steps=40, compute_s=0.1, straggler=scatter, link=NO_NETWORK)
steps_of = {1: 200, 10: 200, 100: 100, 1000: 20, 10_000: 6}
rows = {}
print("workers   slowest by formula         bsp     ssp, 4   asynchronous")
for workers, steps in steps_of.items():
    rows[workers] = {sync: compared(sync, replace(free, workers=workers, steps=steps), Choice(staleness=4))
                     for sync in ("bsp", "ssp", "async")}  # fmt: skip
    times = "".join(f"{row.step_s / 0.1:12.2f}" for row in rows[workers].values())
    print(f"{workers:7}{scatter.expected_maximum(workers):21.2f}{times}")
my_slowest.compare(rows[10_000]["bsp"].step_s / 0.1, within=0.1)
my_stale.compare(rows[10_000]["ssp"].step_s / 0.1, within=0.1)

# %% [markdown]
# The slowest of 10,000 takes over six times the mean, and every worker waits for it, in every step. Stale synchronous
# waits only for workers that are slow five times in a row, and these are rare: a worker that is slow now is usually
# fast in the next step. (The last row has only 6 steps, so the end of a run, where all wait once for the slowest
# worker, has more weight.)
#
# ## 4 What the staleness costs
#
# More gradients a second, but older ones. The simulator applies them to a small noisy quadratic with the delay that
# the policy really causes, so that we see *both* axes: how fast are steps, and what are they worth?
#
# **Predict:** with 100 workers, asynchronously, how many updates do others make between a worker's reading and its own
# update?

# %%
my_late = predict("updates of others in between", ...)

# %% tags=["nbval-check-output"]
print("100 workers    gradients/s   staleness   time to the loss")
for sync in ("bsp", "ssp", "half", "partial", "dssp", "async"):
    row = compared(sync, replace(free, workers=100, steps=150), Choice(staleness=4, enough=0.9))
    histogram = row.outcome.staleness
    mean = sum(value * count for value, count in histogram.items()) / sum(histogram.values())
    print(f"{sync:12}{row.gradients_per_s:14.0f}{mean:12.1f}{row.outcome.to_loss_s:16.1f} s")
my_late.compare(mean, within=0.02)

# %% [markdown]
# Each asynchronous gradient is 99 updates late on average: while one worker computes, each of the others makes one.
# But each update has a hundredth of the weight, so in total a gradient is one step late. At this learning rate that
# does no harm. What happens at larger ones?
#
# **Predict:** without delay, training is stable up to a learning rate of 2 here (the largest curvature is 1). Up to
# which rate if each gradient is one step late? And if the delays differ?

# %%
my_rate = predict("the largest rate if each is one step late", ...)

# %%
rates = (0.4, 0.8, 1.2, 1.5, 1.7, 1.9, 2.2)
figure, both = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
for axes, kind in zip(both, ("constant", "lognormal:0.5"), strict=True):
    for number, sync in enumerate(("bsp", "ssp", "async")):
        losses = []
        for rate in rates:
            setting = replace(free, workers=25, steps=60, lr=rate, noise=0.1, straggler=parse(kind))
            losses.append(compared(sync, setting, Choice(staleness=4)).outcome.final_loss)
        axes.plot(rates, losses, marker="o", color=SERIES[number], label=sync, ls=("-", "-", "--")[number])
    axes.set_yscale("log")
    axes.set_ylim(3e-5, 1e4)
    axes.set_xlabel("learning rate")
    axes.set_title(f"computing times: {kind}")
    axes.spines[["top", "right"]].set_visible(False)
both[0].set_ylabel("loss after 60 steps of each")
both[0].legend(frameon=False)
plt.show()
my_rate.compare(np.pi / 2, within=0.05)

# %% [markdown]
# If all gradients have the same delay, the limit is π/2: there the oscillations of $x'(t) = -\eta\,x(t-1)$ begin to
# grow. With different delays the oscillations do not add up, and asynchronous updates tolerate a *larger* rate than
# synchronous ones, because each update is so small. Do not rely on that: here all workers have the same loss, and
# only four parameters.
#
# ## 5 The server's link
#
# Now with a network: 10 million parameters, 10 Gbit/s, 50 µs. All workers read from the servers and push to them, 40 MB
# each way, and a link carries one message at a time: one server's is busy for 2Pnβ a round.
#
# **Predict:** how long is that for 10 workers, and for 1,000? How many servers do 1,000 workers need so that the link
# is not the bottleneck?

# %%
my_ten = predict("seconds for 10 workers", ...)
my_thousand = predict("seconds for 1,000 workers", ...)
my_servers = predict("servers for 1,000 workers", ...)

# %% tags=["nbval-check-output"]
network = replace(free, nbytes=4e7, link=Link(50e-6, 8 / 10e9))
print("workers  servers   busy by formula   a step, simulated")
for workers, servers in ((10, 1), (100, 1), (1000, 1), (1000, 10), (1000, 100), (1000, 1000)):
    setting = replace(network, workers=workers, servers=servers, steps=10)
    row = compared("async", setting, Choice())
    busy = 2 * workers * network.nbytes * network.link.beta / servers
    print(f"{workers:7}{servers:9}{busy:16.2f} s{row.step_s:18.2f} s")
per_worker_s = 2 * network.nbytes * network.link.beta
my_ten.compare(10 * per_worker_s, within=0.05)
my_thousand.compare(1000 * per_worker_s, within=0.05)
my_servers.compare(1000 * per_worker_s / network.compute_s, within=0.5)

# %% [markdown]
# Where the formula is above the time of a step, the link is the bottleneck, and no policy helps: with one server and
# 1,000 workers a step takes over a minute. So the number of servers must grow with the number of workers. By default
# `farandole simulate` has one for every four workers, as Li et al. (2014) had 200 for 800, and states it above its
# table, where *busy* is the share of the time for which the servers' links carry messages. A ring all-reduce has no
# such bottleneck: each rank's link carries 2nβ for any number of ranks, but now α counts 2(P − 1) times:

# %% tags=["nbval-check-output"]
print("workers      ring   halving-doubling   hierarchical   local SGD, every 8")
for workers in (8, 64, 512, 4096):
    setting = replace(network, workers=workers, steps=16)
    methods = ("ring", "halving-doubling", "hierarchical", "local-sgd")
    times = [1e3 * compared(method, setting, Choice(period=8, per_node=8)).step_s for method in methods]
    print(f"{workers:7}{times[0]:7.0f} ms{times[1]:16.0f} ms{times[2]:12.0f} ms{times[3]:16.0f} ms")

# %% [markdown]
# Halving-doubling looks best: the bytes of the ring in few messages. But so far all workers are connected to one
# switch. In real clusters their messages share links: those of racks, whose uplinks carry a quarter of what their
# hosts can send (oversubscription, 收敛比), or those of a torus, or of a fat tree, which is as wide at the top as at
# the bottom.
#
# **Predict:** which of the two all-reduces becomes slower on which network? And if the ring's ranks are placed at
# random?

# %%
my_torus = predict("the one that suffers on a torus", ..., "ring", "halving-doubling")
my_random = predict("times as long for a ring that is placed at random", ...)

# %% tags=["nbval-check-output"]
print("one all-reduce, 64 workers                        ring   halving-doubling")
for text in ("single-switch", "fat-tree", "two-level:rack=8,over=4", "torus", "torus:placement=random"):
    setting = replace(network, workers=64, steps=1, network=parse_network(text))
    uses = [compared(method, setting, Choice()).network for method in ("ring", "halving-doubling")]
    print(f"{text:40}" + "".join(f"{1e3 * use.seconds:8.1f} ms ({use.slower:.2f}×)" for use in uses))
on_torus = replace(network, workers=64, steps=1, network=parse_network("torus"))
slower = {method: compared(method, on_torus, Choice()).network.slower for method in ("ring", "halving-doubling")}
my_torus.compare(max(slower, key=slower.get))
my_random.compare(uses[0].slower, within=0.2)

# %% [markdown]
# The ring has only messages between neighbours, so it is hardly slower on any of these networks if its ranks are
# placed in order. With random placement on the torus it takes almost four times as long. On racks and on the torus
# the messages of halving-doubling to far partners all pass the same few links. The fat tree is as fast as one switch
# for both, at the price of many switches. `docs/cost.md` has more networks, and a comparison with SimGrid.
#
# ## 6 Which method wins where?
#
# Two things decide: the speed of the network, and the variation of the workers' times. Which of five methods reaches
# the loss first, for each pair of values? There are 64 workers and 8 servers, and a step takes 100 ms.
#
# **Predict:** where will the parameter server win, and where local SGD?

# %%
each_method = ("ring", "halving-doubling", "local-sgd", "ssp", "async")
my_slow_network = predict("the winner at 0.3 Gbit/s and sigma 0.5", ..., *each_method)
my_fast_network = predict("the winner at 100 Gbit/s and sigma 0.5", ..., *each_method)

# %% tags=["nbval-check-output"]
methods = ("ring", "halving-doubling", "local-sgd", "ssp", "async")
speeds, sigmas = (0.3, 1, 3, 10, 30, 100), (0.1, 0.25, 0.5, 0.75, 1.0)
winners = np.empty((len(sigmas), len(speeds)), dtype=int)
for y, sigma in enumerate(sigmas):
    for x, gbps in enumerate(speeds):
        setting = replace(network, workers=64, servers=8, steps=40, straggler=LogNormal(sigma),
                          link=Link(50e-6, 8 / (gbps * 1e9)))  # fmt: skip
        times = [compared(method, setting, Choice()).outcome.to_loss_s or np.inf for method in methods]
        winners[y, x] = int(np.argmin(times))
print("sigma     " + "".join(f"{gbps:>12g}" for gbps in speeds), "Gbit/s")
for y, sigma in reversed(list(enumerate(sigmas))):
    print(f"{sigma:5}     " + "".join(f"{methods[each]:>12}" for each in winners[y]))
my_slow_network.compare(methods[winners[sigmas.index(0.5), 0]])
my_fast_network.compare(methods[winners[sigmas.index(0.5), -1]])

# %%
figure, axes = plt.subplots(figsize=(8, 3.4))
for number, method in enumerate(methods):
    y, x = np.nonzero(winners == number)
    axes.scatter(x, y, s=700, marker="s", color=SERIES[number], label=method)
axes.set_xticks(range(len(speeds)), speeds)
axes.set_yticks(range(len(sigmas)), sigmas)
axes.set_xlim(-0.6, len(speeds) - 0.4)
axes.set_ylim(-0.6, len(sigmas) - 0.4)
axes.set_xlabel("link, Gbit/s")
axes.set_ylabel("scatter, σ")
axes.set_title("First at the loss: 64 workers, 40 MB of parameters, 100 ms a step")
axes.legend(frameon=False, bbox_to_anchor=(1, 1), loc="upper left", markerscale=0.4)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# On a slow network the methods that communicate least win; on a fast one, those that wait least. The quadratic
# favours local SGD, because all workers have the same curvatures: notebook `06_local_sgd_and_averaging` shows the
# cost of unlike data.
#
# `farandole simulate ring ssp local-sgd --workers 64 --map` draws such a map for your own cluster, and
# `slurm/simulate_map.sbatch` a large one, a column (one bandwidth) in each element of an array job.
#
# ## 7 Ten thousand
#
# **Predict:** 10,000 asynchronous workers, and the same number of gradients for each: is the final loss of
# synchronous training reached at all?

# %%
my_reached = predict("the loss is reached", ..., "yes", "no")

# %% tags=["nbval-check-output"]
for sync, row in rows[10_000].items():  # section 3 has simulated them
    outcome = row.outcome
    late = sum(value * count for value, count in outcome.staleness.items()) / outcome.gradients
    print(f"{sync:6}{outcome.gradients:8,} gradients in {outcome.wall_s:4.1f} s; waiting "
          f"{outcome.wait_share:3.0%}; largest lead {max(outcome.lead):2}; {late:5,.0f} updates late; "
          f"loss {outcome.final_loss:.4f}")  # fmt: skip
my_reached.compare(rows[10_000]["async"].outcome.final_loss <= rows[10_000]["bsp"].outcome.final_loss)

# %% [markdown]
# It is reached, and more than reached, in less than a third of the time. A gradient is about 9,200 updates late, but
# each of these has a ten-thousandth of the weight: in total it is one step late, as with 100 workers. No worker
# waits; the fastest is up to nine steps ahead of the slowest.
#
# These are the same objects as in the first section, with ten thousand times the events.
#
# ## What to remember
#
# - Decisions can be separated from messages. Then the same code can be run, tested and simulated.
# - A simulator is as good as its validation: begin with what you can measure.
# - With many workers the slowest is much slower than the mean. Waiting for all is the first thing that does not
#   scale; one server's link is the second; 2(P − 1)·α of a ring the third. Shared links can be the fourth.
# - Time to a loss = steps to it × time of a step; a map for *your* cluster says more than any rule.
#
# **Do it yourself:** `farandole simulate all --workers 1 10 100 --straggler pareto:2.5`: what do rare, very long
# steps change? And `farandole simulate ssp --workers 10000 --straggler pareto:2.5`: two million gradients, with a
# progress bar.
