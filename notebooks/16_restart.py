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
# # 16 · Restart
#
# **Question:** a process is killed in the middle of training. What must have been saved so that the final model does
# not show it?
#
# The oldest answer is **restart recovery** (重启恢复). Document 000: if a node fails, training resumes from the last
# **checkpoint** (检查点), and that node's process is started again. Two things are missing there (erratum 000.25):
#
# - *All* ranks must go back to the same checkpoint, not only the one that died. Otherwise the copies differ from then
#   on. Under MPI this happens anyway: a job's processes belong together from start to end, and the other ranks wait
#   in the next all-reduce for a rank that will not arrive. So the whole job ends, and the whole job starts again.
# - The last checkpoint must be one that was written *completely*. A process may die at any moment, also while it
#   writes.
#
# We begin with what has to be saved, then make it safe on disk, and then kill a rank.

# %%
# %load_ext farandole
import inspect
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from copy import deepcopy
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import psutil
import torch
from matplotlib.ticker import LogLocator, NullFormatter
from torch import nn

from farandole import launch
from farandole.data import datasets
from farandole.data.elastic_sampler import ElasticSampler, divide
from farandole.data.sampler import EpochSampler, steps_per_epoch
from farandole.data.shares import equal_shares
from farandole.launching import supervised_launch
from farandole.recovery import checkpoint
from farandole.recovery.event_log import EventLog
from farandole.recovery.interval import expected_s, young
from farandole.recovery.replica import Replica
from farandole.recovery.snapshot import Snapshot
from farandole.recovery.state import TrainingState
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from farandole.report.curves import smooth
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 All that decides how a training continues
#
# Here is a small training program in plain torch, in one process: a network with dropout, an optimizer with a state
# (Adam), batches in a shuffled order. `save` copies four things; `restore` restores whatever it is given.

# %%
torch.set_num_threads(1)
train = datasets.split(datasets.load("digits"), seed=0).train
pixels, labels = torch.from_numpy(train.inputs).flatten(1), torch.from_numpy(train.targets)


class Training:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.005)
        self.batches = EpochSampler(len(train), steps_per_epoch(len(train), 64), seed=0, rank=0)

    def step(self):
        """Take one step, and return a copy of all parameters."""
        rows = next(self.batches)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(pixels[rows]), labels[rows]).backward()
        self.optimizer.step()
        return nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()

    def save(self):
        saved = {"parameters": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return deepcopy(saved | {"random": torch.get_rng_state(), "position": self.batches.state()})

    def restore(self, saved):
        put_back = {
            "parameters": self.model.load_state_dict,
            "optimizer": self.optimizer.load_state_dict,
            "random": torch.set_rng_state,
            "position": self.batches.restore,
        }
        for name, value in deepcopy(saved).items():
            put_back[name](value)


training = Training()
for _ in range(60):
    training.step()
saved = training.save()
expected = [training.step() for _ in range(100)]

# %% [markdown]
# Suppose that the process dies after step 60, and a new one begins with the same program and the saved state.
#
# **Predict:** which of the four can be left out if the parameters are to be the same 100 steps later, *to the bit*?

# %%
my_needless = predict("how many of the four can be left out", ...)

# %% tags=["nbval-check-output"]
went_on = {}
for missing in ("nothing", *saved):
    training = Training()
    training.restore({name: value for name, value in saved.items() if name != missing})
    went_on[missing] = [training.step() for _ in range(100)]
    same = torch.equal(went_on[missing][-1], expected[-1])
    print(f"left out: {missing:12}same parameters after 100 steps: {same}")
my_needless.compare(sum(torch.equal(went_on[missing][-1], expected[-1]) for missing in saved))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.2))
for (missing, found), colour in zip(went_on.items(), (BLUE, PURPLE, ORANGE, GREEN, SKY), strict=True):
    if missing != "nothing":  # zero is not on a logarithmic axis
        apart = [((a - b).norm() / b.norm()).item() for a, b in zip(found, expected, strict=True)]
        left.semilogy(range(61, 161), apart, color=colour, label=missing)
    if missing in ("nothing", "optimizer"):
        losses = []
        for parameters in found:
            nn.utils.vector_to_parameters(parameters, training.model.parameters())
            with torch.no_grad():
                losses.append(nn.functional.cross_entropy(training.model.eval()(pixels), labels).item())
        right.plot(range(61, 161), losses, color=colour, label=missing)
left.set(xlabel="step", ylabel="distance from the uninterrupted\nparameters / their length")
right.set(xlabel="step", ylabel="loss over the training set", ylim=(0, None))
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, title="left out:", title_fontsize=9)
figure.tight_layout()

# %% [markdown]
# None of them. Without the parameters all progress is lost. Without the random numbers' state dropout leaves out
# other units, and without the position the batches are others: the result is *another* training run, about as good.
# Then it is impossible to tell whether a difference comes from the failure or from something else. Without the
# optimizer's state training is worse for a while: Adam starts with empty averages, and its first steps are too large
# (the orange line on the right).
#
# In the code these are a `TrainingState`. Under data parallelism the parameters and the optimizer's state are the
# same on all ranks and need to be saved once: `shared`. The random numbers' state is each rank's own. This is
# everything for the scenario `restart`; the position in the data follows from the step. With float16 there is one
# thing more, the loss scale of notebook 07: without it a new start would skip other steps.

# %%
print(inspect.getsource(TrainingState))
print(inspect.getsource(Replica.state))

# %% [markdown]
# ## 2 Two slots
#
# Writing a file takes time. If the next checkpoint overwrites the last one, there is none in between. So there are
# two **slots**, written in turn. Here two ranks write checkpoints whose ten parameters are all equal to the step, so
# that we can see which checkpoint is restored. Each rank saves half of the shared state.


# %% tags=["nbval-check-output"]
def save(step, slot, ranks=2, writing=(0, 1)):
    """Write a checkpoint of `ranks` ranks, of which only those in `writing` get to it."""
    for rank in writing:
        state = TrainingState(step, shared={"parameters": torch.full((10,), step)}, own={"random": torch.arange(4)})
        part = checkpoint.part(state, {rank: state.own}, rank, ranks)
        checkpoint.write(slots, slot, Snapshot(part), checkpoint.describe(state, ranks, rank, ranks))


def show():
    """Print which checkpoint would be used, and what is wrong with the others; return its step."""
    found, troubles = checkpoint.newest(slots)
    for trouble in troubles:
        print(trouble.replace(str(slots), "…"))
    print(f"continues from step {found.step}, parameters {found.shared['parameters'].tolist()}" if found else "nothing")
    return found.step if found else None


slots = folder / "slots"
save(step=20, slot=0)
save(step=40, slot=1)
for file in sorted(slots.rglob("*.*")):
    print(file.relative_to(slots))
described = json.loads((slots / "slot-1" / "rank-0.json").read_text())
print({name: value for name, value in described.items() if name not in ("sha256", "tensors_crc32")})
_ = show()

# %% [markdown]
# The tensors are in files of the safetensors format, which holds numbers and no code. The JSON file beside each is
# written last, and holds a checksum of the tensors and one of itself. So every part can be verified.
#
# **Predict:** which step does the next start resume from (a) if a bit has flipped in slot 1, (b) if its file was cut
# short, (c) if rank 0 has already written step 60 into slot 0, and rank 1 died before it did?

# %%
my_steps = predict("the steps it continues from in (a), (b) and (c), as a list", ...)

# %% tags=["nbval-check-output"]
victim = slots / "slot-1" / "rank-1.safetensors"
whole = victim.read_bytes()

print("(a) a flipped bit:")
victim.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
steps = [show()]
print("\n(b) cut short:")
victim.write_bytes(whole[: len(whole) // 2])
steps.append(show())
victim.write_bytes(whole)
print("\n(c) one rank has written step 60, the other has not:")
save(step=60, slot=0, writing=(0,))
steps.append(show())
print("\n(c) and (b), both slots at once:")
victim.write_bytes(whole[: len(whole) // 2])
_ = show()
my_steps.compare(steps)

# %% [markdown]
# In (c) only slot 0 is lost, because slot 1 has not been touched. That is the purpose of the second slot. It only
# works if no rank begins to write a slot before the other slot is complete on *all* ranks, so the ranks wait for each
# other there. Whichever rank dies, one complete checkpoint is left. (The last case has two failures, one of them the
# disk's. Then training starts from the beginning.)
#
# That was one flipped bit. Is there a byte that may change without being noticed?

# %% tags=["nbval-check-output"]
save(step=60, slot=0)
save(step=80, slot=1)
flipped, cut, found_out = 0, 0, 0
for file in sorted((slots / "slot-1").iterdir()):
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        flipped, found_out = flipped + 1, found_out + (checkpoint.newest(slots)[0].step == 60)
        file.write_bytes(whole[:place])
        cut, found_out = cut + 1, found_out + (checkpoint.newest(slots)[0].step == 60)
    file.write_bytes(whole)
print("a bit flipped in every byte, and cut at every byte: always found out:", found_out == flipped + cut > 1000)
_ = show()

# %% [markdown]
# ## 3 The real thing
#
# The scenario `restart` trains a perceptron on four ranks, by synchronous SGD with momentum and dropout, and saves
# every 20 steps. First without any trouble:

# %%
recipe = {"data": "digits", "hidden": 320, "steps": 120, "checkpoint_every": 20}
runs = {"uninterrupted": launch("restart", ranks=4, **recipe, out=folder / "uninterrupted")}

# %% [markdown]
# And now with a real SIGKILL for rank 2 when step 70 begins. The job has to be started again: `supervised_launch` does
# this, a limited number of times and after a pause. (On the command line `farandole supervise -- run restart -n 4
# --fail rank=2,step=70`.) All starts have the same folder, so that each finds the checkpoints of the one before. An
# injected failure happens only once, although every start has the same options.
#
# **Predict:** (a) How many steps are lost? There are two possible answers. (b) For how long does no rank work?

# %%
my_lost = predict("(a) steps that are lost", ...)
my_pause = predict("(b) seconds without work", ...)


# %% tags=["nbval-check-output"]
def announce(line):
    """Called before each restart, while no rank runs."""
    print(line)
    shutil.copytree(folder / "killed", folder / "three ranks")  # section 4 continues from here, too


runs["killed"] = supervised_launch(
    "restart", ranks=4, **recipe, fail="rank=2,step=70", out=folder / "killed", announce=announce
)

# %% tags=["nbval-check-output"]
healthy, killed = runs["uninterrupted"].summary, runs["killed"].summary
fault = killed.faults[0]
print(f"failures: {len(killed.faults)}; rank {fault['rank']} at step {fault['step']}, {fault['kind']}")
print("steps lost are 10, or 30 if the newest checkpoint was not finished:", fault["steps_lost"] in (10, 30))
losses = {name: np.array([line["loss"] for line in run.metrics]) for name, run in runs.items()}
print("each step once in the record:", [line["step"] for line in runs["killed"].metrics] == list(range(120)))
print("the same loss in every step, to the bit:", np.array_equal(losses["killed"], losses["uninterrupted"]))
print("the same parameters, to the bit:", killed.params_sha256 == healthy.params_sha256)
my_lost.compare(fault["steps_lost"])
my_pause.compare(fault["resumed_s"], within=0.3)

# %% [markdown]
# The model does not show that rank 2 has died. The clock does. The ranks keep an **event log** through all starts,
# with one line per event. A killed rank cannot write a line (this one wrote it just before, because its failure was
# planned); the ranks that wait for it detect the failure.

# %%
lines = EventLog(runs["killed"].folder / "logbook.jsonl").lines()
begin = lines[0].when
for line in lines:
    print(f"{line.when - begin:7.2f} s   {line.what:11} {line.kind:5} rank {line.rank}   step {line.step}")

# %%
again = [line for line in lines if line.what == "first step"][1].when - begin
failed = next(line for line in lines if line.what == "failure").when - begin
last_saved = next(line for line in lines if line.what == "checkpoint" and line.step == 70 - fault["steps_lost"])

figure, ax = plt.subplots(figsize=(9.5, 3.2))
for name, colour in (("uninterrupted", ORANGE), ("killed", BLUE)):
    at = np.array([line["wall_s"] for line in runs[name].metrics])
    loss = smooth(losses[name])
    if name == "killed":  # no line where no rank worked
        place = 70 - fault["steps_lost"]
        at, loss = np.insert(at, place, np.nan), np.insert(loss, place, np.nan)
    ax.plot(at, loss, color=colour, label=name)
ax.axvspan(last_saved.when - begin, failed, color=RED, alpha=0.5, linewidth=0, label="killed: work lost")
ax.axvspan(failed, again, color=GREY, alpha=0.3, linewidth=0, label="killed: no rank works")
checkpoints = [line.when - begin for line in lines if line.what == "checkpoint"]
bottom = ax.get_xaxis_transform()  # seconds, and parts of the axis
ax.plot(checkpoints, [0.04] * len(checkpoints), "|", color=GREEN, markersize=12, transform=bottom, label="checkpoint")
ax.set(xlabel="seconds since the first start", ylabel="training loss", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1), fontsize=9)
figure.tight_layout()

print(f"{fault['steps_lost']} steps were done again, {failed - (last_saved.when - begin):.2f} s of work")
print(f"detected after {fault['detected_s']:.2f} s; no rank worked for {fault['resumed_s']:.1f} s")

# %% [markdown]
# The lost steps are the smaller part. Most of the time goes into starting: a pause of a second, starting Python and
# MPI four times, and reading both slots. Outside a notebook, which keeps torch loaded for its ranks, each rank also
# imports torch, which takes seconds. For a job of a thousand machines a start takes minutes. That is the price of
# restart recovery. In return, it needs no surviving process. A power cut is just another restart.
#
# ## 4 With three ranks
#
# Suppose that the machine of rank 2 does not come back. Must the training wait for another one? A checkpoint in four
# parts can be joined and cut again, and so can the data. But it must remain true that **each sample is used exactly
# once per epoch**, even if the change comes in the middle of one. So the batches must not depend on the ranks: the
# samples are in four *shards*, as many as there were ranks at first, and each shard gives its part to every batch,
# whichever ranks work on it. Here with 16 samples:

# %% tags=["nbval-check-output"]
shares, batch = [4, 4, 4, 4], 6
before, after = ElasticSampler(shares, batch, seed=0), ElasticSampler(shares, batch, seed=0)
after.go_to(1)  # the new start has a new sampler, and goes to where the old one was
used = []
for step, (sampler, ranks) in enumerate([(before, 4), (after, 3), (after, 3)]):
    rows = [part.tolist() for part in divide(next(sampler), ranks)]
    used += [sample for part in rows for sample in part]
    print(f"step {step}, {ranks} ranks: {rows}")
print("each of the 16 exactly once:", sorted(used) == list(range(16)))

# %% [markdown]
# While `supervised_launch` was waiting, we made a copy of the killed run's folder. The same command now resumes from
# it with three ranks.
#
# **Predict:** are the parameters equal to those of the uninterrupted run, to the bit? From which step on does the
# loss differ?

# %%
my_equal = predict("the same parameters as uninterrupted, to the bit", ..., "yes", "no")
my_first = predict("the first step whose loss differs", ...)

# %%
runs["three ranks"] = launch("restart", ranks=3, **recipe, out=folder / "three ranks")
print(runs["three ranks"].output.splitlines()[-1].replace(str(folder), "…"))

# %% tags=["nbval-check-output"]
three = runs["three ranks"]
went_on_at = 70 - three.summary.faults[0]["steps_lost"]
epoch = steps_per_epoch(len(train), 64)
before, after = (ElasticSampler(equal_shares(len(train), 4), 64, seed=0) for _ in range(2))
after.go_to(went_on_at)
counts = np.zeros((-(-120 // epoch), len(train)), int)
for step in range(120):
    sampler, ranks = (before, 4) if step < went_on_at else (after, 3)
    for rows in divide(next(sampler), ranks):
        counts[step // epoch, rows] += 1
print(f"{len(train)} samples, {epoch} steps per epoch; the change is within an epoch:", went_on_at % epoch > 0)
print("in each full epoch every sample is used exactly once:", bool((counts[: 120 // epoch] == 1).all()))

equal = three.summary.params_sha256[0] == healthy.params_sha256[0]
apart = np.array([line["loss"] for line in three.metrics]) - losses["uninterrupted"]
print("the same number of samples in each step:", [line["samples"] for line in three.metrics]
      == [line["samples"] for line in runs["uninterrupted"].metrics])  # fmt: skip
print("the same parameters on all three ranks:", len(set(three.summary.params_sha256)) == 1)
print("the same parameters as of the uninterrupted run:", equal)
print("the loss differs from the first step after the restart on:", np.flatnonzero(apart)[0] == went_on_at)
print("accuracies differ by less than 0.05:", abs(three.summary.test_accuracy - healthy.test_accuracy) < 0.05)
my_equal.compare(equal)
my_first.compare(np.flatnonzero(apart)[0])

# %%
figure, ax = plt.subplots(figsize=(9.5, 2.6))
ax.plot(losses["uninterrupted"], color=ORANGE, label="uninterrupted")
ax.plot(apart, color=BLUE, label="difference, three ranks")
ax.axvline(went_on_at, color=GREY, linewidth=1, zorder=0)
ax.set(xlabel="step", ylabel="training loss")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# The batches are the same, and the model is as good; but it is not the same one. There are two reasons. Three ranks
# have three streams of random numbers for dropout, and none of the old four streams fits any of them: they begin
# anew. And a sum of three parts is rounded differently from a sum of four. The first reason could be removed, but not
# the second, as long as each rank adds up its own part.
#
# ## 5 How often?
#
# If a program saves rarely, a failure costs much work; if it saves often, it spends much time on saving. First: what
# does saving cost? We compare two ways. A rank can stop until everything is on the disk, or copy the state in memory
# and write it in a **thread** while training continues (`checkpoint_async`, as in the runs above).
#
# **Predict:** how many times longer does the first way hold up training?

# %%
my_longer = predict("times longer that standing still takes", ...)

# %%
often = recipe | {"steps": 41, "checkpoint_every": 5}
runs["standing still"] = launch("restart", ranks=4, **often, checkpoint_async=False, out=folder / "standing still")

held_up_s = {}
for way, name in (("with a thread", "uninterrupted"), ("standing still", "standing still")):
    held_up_s[way] = [event["dur"] / 1e6 for event in runs[name].trace if event["name"] == "checkpoint"]
cost_s = {way: float(np.median(each)) for way, each in held_up_s.items()}
step_s = healthy.wall_s / 120
bytes_saved = sum(file.stat().st_size for file in (runs["standing still"].folder / "checkpoints" / "slot-0").iterdir())
print(f"a checkpoint has {bytes_saved / 1e6:.1f} MB; a step takes {step_s * 1e3:.1f} ms")
print(f"standing still, it holds training up for {cost_s['standing still'] * 1e3:.1f} ms")
print(f"with a thread for {cost_s['with a thread'] * 1e3:.1f} ms")
my_longer.compare(cost_s["standing still"] / cost_s["with a thread"], within=0.3)

# %% tags=["nbval-check-output"]
print("checkpoints in the traces:", {way: len(each) // 4 for way, each in held_up_s.items()})

# %% [markdown]
# These are the times from the arrival of the last rank until training continues. (A thread is not free either: it
# takes time from a core. With few cores, part of the cost is in the other steps.)
#
# Now let a checkpoint cost C seconds, and let a failure happen every μ seconds on average. Saving after every T
# seconds wastes C out of T. On average a failure happens in the middle of an interval, so T/2 out of μ are lost:
#
# $$ \text{waste} \approx \frac{C}{T} + \frac{T}{2\mu} \qquad\Rightarrow\qquad T = \sqrt{2 C \mu} $$
#
# That is Young's formula (1974). Daly (2006) gives the whole expected time, including restarts that fail; it is
# `expected_s` in the code. We have to assume μ: one failure an hour. We have measured what a checkpoint costs, and
# what a failure costs apart from the lost work.
#
# The next cell also tests the formula: it draws failures at random and adds up the time.
#
# **Predict:** what if we are wrong, and save twice as often as would be best, or half as often?

# %%
my_waste = predict("times as much for saving and lost work, with half or twice the interval", ...)

# %%
MTBF_S = 3600.0  # μ, assumed
restart_s = fault["resumed_s"]


def waste(interval_s, cost, start_s):
    """Return the time that is not work, as a share of the work, by Daly's formula."""
    return expected_s(1.0, interval_s, cost, start_s, MTBF_S) - 1


def simulated(interval_s, cost, start_s, failures=100_000):
    """Return the same for random failures: after each come the restart, and as many whole intervals as fit."""
    lasted = np.random.default_rng(0).exponential(MTBF_S, failures)
    intervals = np.maximum(0, (lasted - start_s) // (interval_s + cost))
    return lasted.sum() / (intervals.sum() * interval_s) - 1


figure, ax = plt.subplots(figsize=(9.5, 3.6))
intervals = np.geomspace(0.1, 1000, 200)
for (way, cost), colour in zip(cost_s.items(), (BLUE, RED), strict=True):
    best = young(cost, MTBF_S)
    ax.loglog(intervals, [waste(T, cost, restart_s) for T in intervals], color=colour, label=way)
    some = np.geomspace(0.3, 500, 7)
    drawn = [simulated(T, cost, restart_s) for T in some]
    ax.plot(some, drawn, "o", color=colour, markersize=5, markerfacecolor="white")
    least = waste(best, cost, restart_s)
    ax.plot(best, least, "*", color=colour, markersize=13)
    ax.axvspan(best / 2, best * 2, color=colour, alpha=0.1, linewidth=0)
    print(f"{way + ':':16}best to save every {best:5.1f} s, {best / step_s:5.0f} steps; waste {least:.2%}")
ax.axhline(restart_s / MTBF_S, color=GREY, linestyle="--", label="the restarts alone")
ax.plot([], [], "o", color=GREY, markerfacecolor="white", label="failures at random")
ax.set(xlabel="seconds between two checkpoints", ylabel="waste, as a share of the work")
ax.yaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:.2%}", minor_formatter=NullFormatter())
ax.xaxis.set_major_formatter("{x:g}")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1), fontsize=9)
figure.tight_layout()

# %% [markdown]
# Is the star at the lowest point for other costs, too? We check checkpoints from a millisecond to a second, with a
# restart of two seconds:

# %% tags=["nbval-check-output"]
START_S = 2.0
at_start = START_S / MTBF_S  # what no interval can change
for cost in (0.001, 0.01, 0.1, 1.0):
    best = young(cost, MTBF_S)
    found = intervals[np.argmin([waste(T, cost, START_S) for T in intervals])]
    least = waste(best, cost, START_S)
    ratio = max(waste(T, cost, START_S) - at_start for T in (best / 2, best * 2)) / (least - at_start)
    drawn = max(abs(simulated(T, cost, START_S) / waste(T, cost, START_S) - 1) for T in (best / 2, best, best * 2))
    print(f"{cost:5} s  the lowest point is where Young says, within 10 %: {abs(found / best - 1) < 0.1}")
    print(f"{'':9}half or twice that interval: saving and lost work below 1.3 times as much: {ratio < 1.3}")
    print(f"{'':9}failures at random say the same, within 5 %: {drawn < 0.05}")
my_waste.compare(ratio, within=0.1)

# %% [markdown]
# A star marks Young's interval, and the shaded strip reaches from half to twice that. The curve is **flat** there: an
# error by a factor of two increases a small cost by a quarter. So a rough value of μ is enough, which is fortunate,
# because μ is never known well. Far to the left and to the right the waste is much larger.
#
# A cheaper checkpoint moves the star to the left and down. What remains is the dashed line: the restarts themselves,
# which no interval makes shorter.
#
# (With `mtbf=3600` the scenario does this automatically: after each checkpoint it sets the interval by that
# checkpoint's cost.)
#
# ## 6 Being told to stop
#
# Not every end is unexpected. A batch system gives a job a time limit, and can send a signal some time before it is
# reached. With Slurm's `#SBATCH --signal=B:USR1@60` the batch script gets SIGUSR1 sixty seconds before; ours
# (`slurm/restart.sbatch`) passes it on to mpirun, and mpirun to the ranks. They receive it at different moments, in
# the middle of different steps. So each rank only records the signal. After every step they agree whether any rank
# has received one, save if so, and end with **exit code 75**. In `sysexits.h` it is called EX_TEMPFAIL: a temporary
# failure, to be tried again later.
#
# We start a training in the background, wait for its first step, and send the signal to a single rank. (Rank 0 is slow
# this time, by sleeping, or the training might be over before the signal is sent.)

# %%
out = folder / "told to stop"
command = [sys.executable, "-m", "farandole", "run", "restart", "-n", "4", "--out", str(out), "--checkpoint-every", "0"]
command += ["--slow", "rank=0,factor=40"]
for name in ("data", "hidden", "steps"):
    command += [f"--{name}", str(recipe[name])]
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
event_log, deadline = EventLog(out / "logbook.jsonl"), time.monotonic() + 60
try:
    while not any(line.what == "first step" for line in event_log.lines()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("it has not begun")
        time.sleep(0.02)
    children = psutil.Process(process.pid).children(recursive=True)
    ranks = [child for child in children if child.cmdline()[:1] == [sys.executable]]  # not mpirun
    ranks[2].send_signal(signal.SIGUSR1)
    _, said = process.communicate(timeout=50)
finally:
    process.kill()
print(said, end="")

# %% [markdown]
# `checkpoint_every` was 0, so this is the only checkpoint. The next start resumes from it:

# %%
runs["told to stop"] = launch("restart", ranks=4, **recipe, out=out)

# %% tags=["nbval-check-output"]
told = runs["told to stop"]
starts = [line.step for line in event_log.lines() if line.what == "start"]
print("ranks that could be signalled:", len(ranks))
print("exit code:", process.returncode)
print("stopped before the last step, and continued from there:", len(starts) == 2 and 0 < starts[1] < 120)
print("its message names that step:", f"saved before step {starts[1]}:" in said)
print("failures in the record:", len(told.summary.faults))
print("each step once in the record:", [line["step"] for line in told.metrics] == list(range(120)))
print(
    "the same parameters, to the bit, as without the stop:",
    told.summary.params_sha256 == healthy.params_sha256,
)

# %% [markdown]
# No step was lost, and a stop is no failure. `farandole supervise` does not restart a job with exit code 75, because
# its end was requested. The batch script requeues the job, and Slurm starts it again later.
#
# ## What you have seen
#
# - To resume without a difference, a program must save everything that the next step depends on: parameters, the
#   optimizer's state, random numbers, the position in the data.
# - Two slots, written in turn, with checksums: whenever a process dies, one complete checkpoint is left, and a
#   damaged one is never used.
# - With as many ranks as before the result is the same to the bit. With another number each sample still counts
#   once per epoch, and the model is as good, but different.
# - Save about every $\sqrt{2 C \mu}$ seconds. Being wrong by a factor of two does not matter; the restart itself does.
#
# ## What to try
#
# 1. Section 4 gives two reasons why three ranks get other parameters. Remove one with `dropout=0.0`, in an
#    uninterrupted run and in one that resumes with three ranks. How large is the difference in the loss now?
# 2. In section 2 let there be one slot only (`save(…, slot=0)` always). At which moments of writing may a rank die
#    without harm?
# 3. `fail=["rank=2,step=70", "rank=0,step=90"]` with `restarts=1`. What does `supervised_launch` print, and what
#    does `launch` with the same `out`, and without `fail`, do afterwards?
# 4. `fail="rank=2,step=70,how=hang", wait_timeout=5`: no rank is dead. Which rank detects the hang, and when, by the
#    event log?
# 5. Write it yourself: `farandole lab start 10` is about a checkpoint that survives an interruption at any byte.
