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
# # 20 · The cost of synchronising
#
# **Question:** how long will a step take, and how much of that is the price of synchronisation?
#
# Document 002 writes $C = T_{comm} + T_{comp}$: the **synchronisation cost function** (同步代价函数). It names four
# aspects and a list of remedies, but measures nothing. Here we do what it describes, with numbers: measure the
# network and the ranks, *predict* the effect of each remedy on a step, and then train by each method and compare.

# %%
# %load_ext farandole
import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.collectives.costs import Link
from farandole.cost.cost_function import all_reduce_s, amdahl, gustafson, noise_scale, steps_needed, synchronous
from farandole.cost.stragglers import parse
from farandole.report.colours import SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 On paper
#
# A ring all-reduce over *P* ranks takes $2(P-1)(α + nβ/P)$: α seconds a message, β seconds a byte. And a step is over
# when the *slowest* has computed: $T_{comp}$ is the expected maximum of *P* computing times, not their mean. The
# document's formula has no maximum (erratum 002.1), and that is most of the price where computing times vary.
#
# **Predict:** ten million parameters in float32, a network of 10 Gbit/s, α = 50 µs, and computing times of 100 ms
# with a lognormal distribution, σ = 0.5. From 1 rank to 32: which grows faster, $T_{comm}$ or $T_{comp}$?

# %%
my_faster = predict("the one that grows faster", ..., "T_comm", "T_comp")

# %% tags=["nbval-check-output"]
link, nbytes, scatter = Link(alpha=50e-6, beta=8 / 10e9), 4 * 10_000_000, parse("lognormal:0.5")
print("ranks   T_comp   T_comm        C   of the time is left for computing")
for ranks in (1, 2, 4, 8, 16, 32):
    cost = synchronous(scatter, 0.1, ranks, all_reduce_s("ring", ranks, nbytes, link))
    times = "".join(f"{1e3 * seconds:6.0f} ms" for seconds in (cost.compute_s, cost.comm_s, cost.total_s))
    print(f"{ranks:5}{times}{0.1 / cost.total_s:8.0%}")
my_faster.compare("T_comp" if cost.compute_s - 0.1 > cost.comm_s else "T_comm")

# %% [markdown]
# The ring soon costs no more than 2nβ, however many ranks there are. The waiting keeps growing. On a network like
# this the bytes are not the expensive part.
#
# ## 2 On this machine
#
# `sync_cost` measures these. First it measures α and β between the ranks, and for each method how long a step takes
# *without* a network. From that it predicts. Then each method trains, with the same batches, from the same
# parameters, and is timed. To make communication and waiting visible, the ranks get links of 30 Mbit/s, and rank 3
# computes ten times more slowly.
#
# **Predict:** the parameters are 104 kB. How long does a ring of 4 ranks take at 30 Mbit/s, and how long does it take
# to collect all gradients at one rank, and send the sum to all?

# %%
my_ring = predict("milliseconds of the ring", ...)
my_central = predict("milliseconds at one rank", ...)

# %% tags=["nbval-check-output"]
parameters = 64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10
slow_link = Link(alpha=0.0, beta=8 / 30e6)
print(f"{4 * parameters:,} bytes")
print(f"ring {1e3 * all_reduce_s('ring', 4, 4 * parameters, slow_link):.0f} ms, "
      f"central {1e3 * all_reduce_s('central', 4, 4 * parameters, slow_link):.0f} ms")  # fmt: skip
my_ring.compare(1e3 * all_reduce_s("ring", 4, 4 * parameters, slow_link), within=0.05)
my_central.compare(1e3 * all_reduce_s("central", 4, 4 * parameters, slow_link), within=0.05)

# %%
recipe = {"steps": 40, "lr": 0.3, "goal": 1.2, "calibration_steps": 12}
run = launch("sync_cost", 4, **recipe, link_mbps=30, slow=["rank=3,factor=10"], out=folder / "cost")
found = json.loads((run.folder / "costs.json").read_text())
methods = {row["way"]: row for row in found["ways"]}
speed = f"{8e-6 / found['beta_s']:.1f} Mbit/s" if found["beta_s"] else "too fast to be measured"
print(f"α = {1e6 * found['alpha_s']:.0f} µs, 1/β = {speed}\n")
print("method         T_comp  T_comm       C  measured  error")
for method, row in methods.items():
    times = [1e3 * row[name] for name in ("compute_s", "comm_s", "predicted_s", "measured_s")]
    print(f"{method:12}" + "".join(f"{each:8.1f}" for each in times) + f"{row['error']:9.0%}")

# %%
figure, axes = plt.subplots(figsize=(9, 3.6))
slot = np.arange(len(methods))
for number, (name, label) in enumerate([("compute_s", "T_comp, predicted"), ("comm_s", "T_comm, predicted")]):
    bottom = [0 if number == 0 else 1e3 * row["compute_s"] for row in methods.values()]
    axes.bar(slot, [1e3 * row[name] for row in methods.values()], 0.6, bottom=bottom, color=SERIES[number], label=label)
axes.plot(slot, [1e3 * row["measured_s"] for row in methods.values()], "kD", ms=5, label="measured")
axes.set_xticks(slot, methods, fontsize=8)
axes.set_ylabel("ms a batch")
axes.set_title("C = T_comm + T_comp, before the training and in it")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# The prediction uses nothing from the training. A model of two constants and some computing times is accurate enough
# to choose a method; on two shared cores, single runs sometimes differ by ten per cent and more.
#
# Look at the remedies:
#
# - **Communicate less often**: `local-sgd` and `large-batch` pay an eighth of the ring.
# - **Compress**: `float16` saves half of T_comm, and adds the time for encoding, decoding and adding in software to
#   T_comp, ten times as much on the slow rank. `top-k` sends 4 % of the bytes: 1 % of the entries, each with its
#   index.
# - **Overlap** saves the shorter of the two, and T_comp is short here.
# - **No centre**: `gossip` communicates with two neighbours only. With 4 ranks that is no less than the ring; with
#   400 it would still be the same.
#
# The bytes can be counted exactly:

# %% tags=["nbval-check-output"]
for method, row in methods.items():
    saved = methods["ring"]["bytes_sent"] / row["bytes_sent"]
    print(f"{method:12}{row['bytes_sent']:10,.0f} bytes a batch, 1 to {saved:.1f}")

# %% [markdown]
# ## 3 Does it learn as fast?
#
# Cheap steps gain nothing if training needs many more of them: the document's third aspect, **convergence**
# (模型收敛性). The time to a loss is the number of steps times the time of one, so both axes are needed.
#
# **Predict:** which method reaches a loss of 1.2 first, and which would be first if steps took no time?

# %%
my_first = predict(
    "the first to a loss of 1.2",
    ...,
    *("ring", "central", "overlapped", "large-batch", "local-sgd", "float16", "top-k", "gossip"),
)

# %%
losses = {method: [line for line in run.metrics if first <= line["step"] < first + 40]
          for first, method in zip(range(0, 40 * len(methods), 40), methods, strict=True)}  # fmt: skip
figure, (by_step, by_clock) = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True)
for number, (method, lines) in enumerate(losses.items()):
    batches = np.array([line["step"] - lines[0]["step"] + 1 for line in lines])
    loss = [line["loss"] for line in lines]
    style = {"color": SERIES[number % len(SERIES)], "ls": "-" if number < len(SERIES) else "--", "label": method}
    by_step.plot(batches, loss, **style)
    by_clock.plot(batches * methods[method]["measured_s"], loss, **style)
by_step.set_xlabel("batches")
by_clock.set_xlabel("seconds")
by_clock.set_xscale("log")
by_step.set_ylabel("training loss")
by_clock.legend(frameon=False, fontsize=8)
for each in (by_step, by_clock):
    each.spines[["top", "right"]].set_visible(False)
figure.suptitle("The same losses, by batches and by the clock")
plt.show()
batches_to = {method: next((number for number, line in enumerate(lines, 1) if line["loss"] < 1.2), np.inf)
              for method, lines in losses.items()}  # fmt: skip
my_first.compare(min(methods, key=lambda method: batches_to[method] * methods[method]["measured_s"]))

# %% [markdown]
# By batches, the methods that change only *how* the sum is formed (`ring`, `central`, `overlapped`) are one line;
# in fact they are the same to rounding:

# %% tags=["nbval-check-output"]
same = [methods[method]["final_loss"] for method in ("ring", "central", "overlapped")]
print("ring, central and overlapped end at the same loss, to 1 in 10,000:", max(same) - min(same) < 1e-4 * max(same))
print("float16 too, to 1 in 100:", abs(methods["float16"]["final_loss"] / same[0] - 1) < 0.01)
print("the large batch is behind after as many samples:", methods["large-batch"]["final_loss"] > same[0])

# %% [markdown]
# The large batch takes an eighth of the steps, but does not learn eight times as much in one. How large may a batch
# be? The **critical batch size** (McCandlish et al. 2018) is where the gradient's noise is as large as the gradient:
# far below it twice the batch halves the steps, far above it saves nothing. Data parallel training gets it at no
# cost, from the lengths of the ranks' own gradients compared with that of their mean.
#
# **Predict:** a gradient of length 1, noise of variance 50 per sample. What is the critical batch, and how many steps
# does a batch of 25, 50, 500 take, if an infinitely large one takes 100?

# %%
my_critical = predict("the critical batch", ...)
my_steps = predict("steps with a batch of 25, 50 and 500, as a list", ...)

# %% tags=["nbval-check-output"]
noise = noise_scale(small_batch=16, small_squared=1 + 50 / 16, big_batch=64, big_squared=1 + 50 / 64)
print(f"critical batch {noise.critical_batch:.0f}")
for batch in (25, 50, 500):
    print(f"a batch of {batch:3}: {steps_needed(100, noise.critical_batch, batch):3.0f} steps")
my_critical.compare(noise.critical_batch, within=0.01)
my_steps.compare([steps_needed(100, noise.critical_batch, batch) for batch in (25, 50, 500)], within=0.01)

# %%
print(
    f"of this training, at its beginning: {found['noise']['critical_batch']:.0f} (batches were 64, and large ones 512)"
)

# %% [markdown]
# ## 4 And with more workers?
#
# The fourth aspect is **scalability** (系统扩展性). Amdahl and Gustafson answer two different questions about the
# same serial share of the work:

# %% tags=["nbval-check-output"]
for workers in (4, 64, 1024):
    print(f"{workers:5} workers, 5 % serial: the same work {amdahl(0.05, workers):5.1f} times as fast, "
          f"or {gustafson(0.05, workers):6.1f} times as much work in the same time")  # fmt: skip

# %% [markdown]
# Our methods have no fixed serial share: T_comm and the waiting grow with the workers, differently for each method.
# From the measured numbers, what would be left of the speed with 8, 64 or 512 such workers?

# %%
print("speed left     " + "".join(f"{workers:>7}" for workers in methods["ring"]["efficiency"]))
for method, row in methods.items():
    print(f"{method:15}" + "".join(f"{share:7.0%}" for share in row["efficiency"].values()))

# %% [markdown]
# Two things are visible. `central` collapses: its one link carries every gradient. And `gossip` keeps its speed for
# any number of workers: with 4 the ring beats it, with 512 only `local-sgd` does. But with many workers gossip takes
# longer to agree (notebook `22_decentralised`): C is not everything.
#
# ## What to remember
#
# - Measure α, β and the computing times *before* you choose a method; two minutes of measuring predict a step well
#   enough.
# - T_comp contains a maximum. Where computing times vary, waiting is the larger part, and compression does not help.
# - Count the seconds to a loss: steps to it × time of a step. A remedy that is cheap per step may need more steps.
# - What wins on 4 workers need not win on 512. Notebook `24_ten_thousand_workers` goes further.
#
# **Do it yourself:** `farandole run sync_cost -n 4` on your own machine, with its real network; lab
# `15_predict_then_measure` has you write the predictions.
