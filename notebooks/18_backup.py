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
# # 18 · Backup
#
# **Question:** a process dies, and state that only it had is lost. How do the other ranks continue as if it were
# still alive, without a disk and without a restart?
#
# In `16_restart` all ranks had to end because one had died, and most of the time went into starting again. Document 000
# has another way, **backup recovery** (备份恢复): parameters and intermediate results are kept on several nodes, and
# when one fails, its work continues from the backup. The document leaves four things open:
#
# - *What* has to be kept twice? Under data parallelism almost everything is on all nodes anyway.
# - *Which rank* keeps which rank's copy? The keeper can die, too.
# - *Which step* is kept? A copy of step 60 is of no use to ranks that are at step 65.
# - *What if* a rank dies while the copies are being made?
#
# We answer them one after another, then kill ranks, then measure the cost.

# %%
# %load_ext farandole
import os
import tempfile
import time
from collections import Counter
from itertools import combinations, pairwise
from math import comb
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter

from farandole import Run, launch
from farandole.recovery.buddies import choose
from farandole.recovery.event_log import EventLog
from farandole.recovery.interval import expected_s, young
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, RED
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
os.environ["RESULTS"] = str(folder)  # a cell under %%mpi inherits the environment, but no variables
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 What only one of them knows
#
# A `TrainingState` (`16_restart`) says what is *shared*, the same on all ranks, and what is a rank's *own*. Four
# ranks train a small perceptron with Adam for twenty steps, and compare each tensor of their states. Then they do so
# with a *divided* optimizer (ZeRO-1, `15_hybrid`), where each rank keeps Adam's state for its part of the parameters.
#
# After that rank 2 "dies": a new process replaces it, receives the parameters from the others, and has a new
# process's values for everything that was lost. They train twenty steps more.
#
# **Predict:** (a) Which tensors differ from rank to rank? (b) Something of rank 2's own has been lost. Will the four
# copies of the parameters still agree with each other? Will they agree with those of a run without a death?

# %%
my_agree = predict("the four copies still agree", ..., "yes", "no")
my_undisturbed = predict("they agree with a training without a death", ..., "yes", "no")

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep agree,same
from copy import deepcopy
from hashlib import sha256

import torch

from farandole.data import datasets
from farandole.recovery.checkpoint import Checkpoint
from farandole.recovery.options import BackupOptions
from farandole.recovery.replica import Replica
from farandole.runtime.world import World

train = datasets.split(datasets.load("digits"), seed=0).train
inputs, targets = torch.from_numpy(train.inputs), torch.from_numpy(train.targets)
options = BackupOptions(optimizer="adam", lr=0.002, hidden=64)


def go_on(replica, first, last):
    for step in range(first, last):
        start = 64 * (step % 20) + 16 * world.rank
        replica.step((inputs[start : start + 16], targets[start : start + 16]), share=1 / 4)
    return replica.flat.values.clone()


def different(tensor):
    """Return how many different ones there are on all ranks."""
    return len(set(world.control.allgather(sha256(tensor.numpy().tobytes()).digest())))


with World.start(options) as world:
    for divided in (False, True):
        replica = Replica(world, options, sharded=divided)
        go_on(replica, 0, 20)
        state = deepcopy(replica.state(20))
        rows = [(kind, name, tensor) for kind in ("shared", "own") for name, tensor in getattr(state, kind).items()]
        for kind, name, tensor in rows:
            count = different(tensor)
            if world.rank == 0:
                print(f"{kind:8}{name:24}{tensor.nbytes:8,} bytes on rank 0; different ones on 4 ranks: {count}")
        if world.rank == 0:
            print()
    expected = go_on(replica, 20, 40)
    own = dict(enumerate(world.control.allgather(state.own)))
    new = world.control.bcast(Replica(world, options, sharded=True).state(0).own, root=2)  # of a process just begun
    for lost in ("nothing", "random", "optimizer"):
        has = deepcopy(own)
        has[2] |= {name: tensor for name, tensor in new.items() if name.startswith(lost)}
        replica.restore(Checkpoint(-1, 20, 4, state.shared, has, state.values))
        found = go_on(replica, 20, 40)
        agree, same = different(found) == 1, torch.equal(found, expected)
        if world.rank == 0:
            print(f"lost of rank 2: {lost:10} the four agree: {agree};  as without a death: {same}")

# %% tags=["nbval-check-output"]
my_agree.compare(all(agree))  # after the last of the three, in which the optimizer's state is lost
my_undisturbed.compare(all(same))

# %% [markdown]
# With the optimizer on all ranks, 5,056 bytes are a rank's own: the state of its random generator, which decides what
# its dropout leaves out. With the optimizer divided, its part of Adam's means is its own as well, and no other rank
# can compute these numbers again. (Each rank counts Adam's steps, and the count is the same everywhere.)
#
# The last lines are important. If something is lost, *the four still agree*: the ranks exchange the parameters in
# every step, so nothing looks wrong. But it is another training run. (A picture in `16_restart` shows Adam without
# its state.)
#
# ## 2 Which rank keeps which copy
#
# So every k steps each worker sends a copy of its own state to another worker: its **buddy**. Here the ranks form a
# ring, and the buddy is the next rank. (Zheng, Shi & Kalé 2004 did this for whole programs.) Each worker also keeps a
# copy of its own state, because after a death all have to go back to the step of the copies. The shared state is cut
# into n parts, and each worker copies two of them, its own and its ward's. That needs no message, and still each part
# is in two memories.
#
# A ring is not the only plan. The picture shows three plans for six workers; an arrow goes from a worker to the
# keeper of its copy:


# %%
def ring(n):
    """Return whose parts each of n workers keeps: its own first, then its ward's."""
    return [[worker, (worker - 1) % n] for worker in range(n)]


def couples(n):
    """Pairs of workers keep each other's."""
    return [[worker, worker ^ 1] for worker in range(n)]


def keeper(n):
    """Worker 0 keeps the parts of all, and worker 1 that of worker 0."""
    return [list(range(n)), [1, 0], *([worker] for worker in range(2, n))]


plans = {"ring": ring, "couples": couples, "one keeper": keeper}
figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.1))
angles = np.pi / 2 - 2 * np.pi * np.arange(6) / 6
places = np.column_stack([np.cos(angles), np.sin(angles)])
for ax, (name, plan) in zip(axes, plans.items(), strict=True):
    for worker, parts in enumerate(plan(6)):
        for ward in parts[1:]:
            arrow = {"arrowstyle": "-|>", "color": BLUE, "linewidth": 1.5, "shrinkA": 13, "shrinkB": 13,
                     "connectionstyle": "arc3,rad=-0.2"}  # fmt: skip
            ax.annotate("", places[worker], places[ward], arrowprops=arrow)
    ax.scatter(*places.T, s=420, color="white", edgecolor="black", zorder=2)
    for worker, (x, y) in enumerate(places):
        ax.text(x, y, worker, ha="center", va="center", zorder=3)
    ax.set(xlim=(-1.4, 1.4), ylim=(-1.3, 1.3), aspect="equal", title=name)
    ax.set_axis_off()
figure.tight_layout()

# %% [markdown]
# One death never loses anything. Two at the same time may. The remaining workers exchange lists of the parts that
# they have, and `buddies.choose` finds the newest backup whose parts are all there. We call it for four workers in a
# ring, for all pairs of deaths.
#
# **Predict:** how many of the six pairs are fatal? And of n(n−1)/2 pairs among n workers, in each of the three plans?

# %%
my_pairs = predict("fatal pairs of six, in a ring of four", ...)
my_plans = predict("fatal pairs of 16 workers: ring, couples, one keeper, as a list", ...)


# %% tags=["nbval-check-output"]
def told(kept, dead, step=60):
    """Return what the remaining workers report: for each backup its step, its number of workers, and whose parts."""
    return [[(step, len(kept), parts)] for worker, parts in enumerate(kept) if worker not in dead]


def fatal(plan, n, deaths):
    """Return the sets of that many workers whose death loses the only copies of something."""
    return [dead for dead in combinations(range(n), deaths) if choose(told(plan(n), dead)) is None]


for dead in combinations(range(4), 2):
    found = choose(told(ring(4), dead))
    parts = f"the parts of 0 to 3 are with {list(found[2].values())} of those left" if found else "something is lost"
    print(f"workers {dead} die: {parts}")
my_pairs.compare(len(fatal(ring, 4, deaths=2)))

# %% tags=["nbval-check-output"]
print("fatal pairs      " + "".join(f"{name:>12}" for name in plans) + "    of")
for n in range(4, 17, 2):
    counts = [len(fatal(plan, n, 2)) for plan in plans.values()]
    assert counts == [n, n // 2, n - 1]
    print(f"{n:3} workers      " + "".join(f"{count:12}" for count in counts) + f"{comb(n, 2):6}")

triples = {n: [len(fatal(plan, n, 3)) for plan in plans.values()] for n in range(4, 17, 2)}
print("\nfatal triples are all but those in which no dead worker's keeper is dead, too:")
print("ring:       n(n−4)(n−5)/6 of them", all(
    comb(n, 3) - t[0] == n * (n - 4) * (n - 5) // 6 for n, t in triples.items()))  # fmt: skip
print("couples:    8 · (n/2 over 3)     ", all(comb(n, 3) - t[1] == 8 * comb(n // 2, 3) for n, t in triples.items()))
print("one keeper: those without it     ", all(comb(n, 3) - t[2] == comb(n - 1, 3) for n, t in triples.items()))
my_plans.compare([len(fatal(plan, 16, deaths=2)) for plan in plans.values()])

# %% [markdown]
# In a ring a pair is fatal if its two workers are neighbours, and there are n such pairs: n of n(n−1)/2, a share of
# **2/(n−1)**. With more workers it becomes smaller. Couples have half as many fatal pairs, but need an even number,
# and after a death the partner needs another buddy.
#
# By this count the single keeper is no worse than the ring. But look at what it has to receive:

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.2))
n = 12
for (name, plan), colour in zip(plans.items(), (BLUE, GREEN, RED), strict=True):
    share = [len(fatal(plan, n, deaths)) / comb(n, deaths) for deaths in range(1, n + 1)]
    left.plot(range(1, n + 1), share, "o-", color=colour, label=name)
    sizes = range(4, 25, 2)
    busiest = [max(len(parts) - 1 for parts in plan(size)) for size in sizes]
    right.plot(sizes, busiest, "--" if name == "couples" else "-", color=colour, label=name, linewidth=2.5)
left.set(xlabel=f"workers that die at the same time, of {n}", ylabel="share of the cases\nin which something is lost")
left.set_xticks(range(1, n + 1))
right.set(xlabel="workers", ylabel="copies that the busiest worker\nreceives per backup", ylim=(0, None))
right.set_xticks(range(4, 25, 4))
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# The keeper gets n−1 messages in every backup while the others wait, and its memory must hold all parts of the
# optimizer, which had been divided because they did not fit. In a ring and among couples each worker receives one
# message, whatever their number, and all send at the same time. (With three or more deaths of twelve, the single
# keeper even loses something less often than the other plans. But when that many die at once, the cause is a common
# one, and it also affects the keeper.)
#
# All this assumes that deaths are independent. Those of two ranks on *one machine* are not. Then the buddy must be on
# another machine: neighbours in the ring should not be neighbours in the rack (exercise 2).
#
# ## 3 Two generations
#
# At step 65 the workers make a new backup; they have the one of step 60. Each worker sends its part to its buddy,
# receives its ward's, and only *then* has the new backup. At this moment a worker dies. Some of the others may have
# finished, others not, and which ones cannot be known beforehand. We try all cases. If only one generation is kept,
# the new backup replaces the old one as soon as it is complete.
#
# **Predict:** one worker of four dies, and each of the others has either finished or not. In how many of the 4 · 2³
# cases is something lost, with one generation and with two?

# %%
my_single = predict("cases with a loss, one generation", ...)
my_double = predict("cases with a loss, two generations", ...)


# %% tags=["nbval-check-output"]
def in_the_middle(n, generations):
    """Count where the others go back to, over all cases: which worker dies, and which others already have step 65."""
    back_to = Counter()
    for dead in range(n):
        others = [worker for worker in range(n) if worker != dead]
        for finished in (set(some) for count in range(n) for some in combinations(others, count)):
            held = []
            for worker in others:
                parts = ring(n)[worker]
                steps = [60, 65] if worker in finished else [60]
                held.append([(step, n, parts) for step in steps[-generations:]])
            found = choose(held)
            back_to[f"to step {found[0]}" if found else "nothing is complete"] += 1
    return dict(sorted(back_to.items()))


for n in (4, 6, 8):
    for generations in (1, 2):
        print(f"{n} workers, {generations} generation(s) kept:", in_the_middle(n, generations))
my_single.compare(in_the_middle(4, generations=1).get("nothing is complete", 0))
my_double.compare(in_the_middle(4, generations=2).get("nothing is complete", 0))

# %% [markdown]
# With one generation one worker has step 65, another has step 60, and neither backup is complete. With two, step 60
# is complete in all cases: it was finished everywhere before any worker began step 65, because between them are five
# all-reduces, which no worker finishes alone. The two slots on disk in `16_restart` follow the same idea.
#
# Where the result is 65, the new backup was complete after all: what one worker lacks, its buddy has. The newest
# *complete* backup counts, not the newest one that some rank holds. (The code also discards an unfinished 65 after
# the recovery. Otherwise it would later displace a good generation.)
#
# ## 4 The real thing
#
# The scenario `backup` trains by synchronous SGD, here with a divided Adam and with dropout, and makes a backup every
# k = 5 steps. First without any trouble, on four ranks:

# %%
STEPS = 90
recipe = {"optimizer": "adam", "lr": 0.002, "hidden": 256, "steps": STEPS, "shard_optimizer": True}
asked = time.time()
runs = {"uninterrupted": launch("backup", ranks=4, **recipe, out=folder / "uninterrupted")}

# %% [markdown]
# Now there is a fifth rank that waits, a **spare**, and a real SIGKILL for rank 2 at the start of step 64, just
# before the next backup. The spare takes the slot, and receives the copy from the buddy.
#
# **Predict:** how many steps are lost? Are the final parameters equal to those of the uninterrupted run, to the bit,
# although another process has done half of rank 2's work?

# %%
my_lost = predict("steps that are lost", ...)
my_equal = predict("the same parameters as uninterrupted, to the bit", ..., "yes", "no")

# %%
runs["with a spare"] = launch("backup", ranks=5, spares=1, **recipe, fail="rank=2,step=64", out=folder / "with a spare")

# %% tags=["nbval-check-output"]
healthy, spared = runs["uninterrupted"].summary, runs["with a spare"].summary
losses = {name: np.array([line["loss"] for line in run.metrics]) for name, run in runs.items()}
fault = spared.faults[0]
print(f"failures: {len(spared.faults)}; rank {fault['rank']} at step {fault['step']}, {fault['kind']}")
print(f"steps lost: {fault['steps_lost']}, and k is {runs['with a spare'].config['backup_every']}")
print("ranks at the end:", spared.members)
print("each step once in the record:", [line["step"] for line in runs["with a spare"].metrics] == list(range(STEPS)))
print("the same loss in every step, to the bit:", np.array_equal(losses["with a spare"], losses["uninterrupted"]))
print("the same parameters, to the bit:", spared.params_sha256 == healthy.params_sha256)
my_lost.compare(fault["steps_lost"])
my_equal.compare(spared.params_sha256 == healthy.params_sha256)

# %% [markdown]
# Rank 4 has drawn the random numbers that rank 2 would have drawn, and has continued with its part of Adam's means.
# The event log in words:


# %%
def read_aloud(run):
    lines = EventLog(run.folder / "logbook.jsonl").lines()
    died = next(line.when for line in lines if line.what == "failure")
    for line in lines:
        who = f"rank {line.rank}"
        said = {
            "start": f"{who} leads, and all begin at step {line.step}",
            "first step": f"step {line.step} is done",
            "failure": f"{who} dies as step {line.step} begins",
            "noticed": f"the death of {who} is detected",
        }
        if line.what in said:
            print(f"{(line.when - died) * 1e3:9.1f} ms   {said[line.what]}")


read_aloud(runs["with a spare"])
print(f"detected after {fault['detected_s'] * 1e3:.0f} ms, the first step done after {fault['resumed_s'] * 1e3:.0f} ms")

# %% [markdown]
# The log may report rank 2's death more than once, because each of the others may detect it before it is informed.
# How they then agree on the remaining ranks is the subject of `17_membership_and_election`.
#
# Now two runs without spares, each with two deaths at once. In one the dead ranks are **opposite** each other in the
# ring (1 and 3), in the other they are **neighbours** (1 and 2, so the copy of rank 1's state dies with rank 2). The
# second run also has checkpoints on disk, but rarely: every 50 steps.
#
# **Predict:** both die at step 83. How many steps are lost in each case? Which ranks are left, and what part of the
# batch and of the optimizer does each have then?

# (On a busy computer one of the two may be late: the others have recovered from the first death before the second.
# Then the cell tries again.)

# %%
my_opposite = predict("steps lost if they are opposite", ...)
my_neighbours = predict("steps lost if they are neighbours", ...)


# %%
def both_at_once(name, first, second):
    """A run in which two ranks die at step 83, before the others have recovered from one death."""
    for attempt in range(10):
        fail = [f"rank={first},step=83", f"rank={second},step=83"]
        run = launch("backup", ranks=4, **recipe, fail=fail, out=folder / f"{name} {attempt}")
        if [line.what for line in EventLog(run.folder / "logbook.jsonl").lines()].count("start") == 2:
            return run
    raise RuntimeError("one of the two was late each time")


runs["opposite"] = both_at_once("opposite", 1, 3)

# %%
runs["neighbours"] = both_at_once("neighbours", 1, 2)
print(next(line for line in runs["neighbours"].output.splitlines() if "buddy" in line))

# %% tags=["nbval-check-output"]
for name in ("opposite", "neighbours"):
    summary = runs[name].summary
    losses[name] = np.array([line["loss"] for line in runs[name].metrics])
    lost = {each["rank"]: each["steps_lost"] for each in summary.faults}
    print(f"{name}: ranks {sorted(lost)} died, left are {summary.members}")
    if name == "opposite":
        print("   steps lost:", *set(lost.values()))
    else:
        print("   steps lost are 33, or 83 if the checkpoint was not finished:", set(lost.values()) in ({33}, {83}))
    apart = np.flatnonzero(losses[name] != losses["uninterrupted"])
    print("   from the step to which they went back the loss differs:", apart[0] == 83 - lost[1])
    print("   samples in each step as before:", [line["samples"] for line in runs[name].metrics]
          == [line["samples"] for line in runs["uninterrupted"].metrics])  # fmt: skip
    print("   the same parameters on both:", len(set(summary.params_sha256)) == 1)
    print("   the same parameters as without a failure:", summary.params_sha256[0] == healthy.params_sha256[0])
    print("   accuracies differ by less than 0.05:", abs(summary.test_accuracy - healthy.test_accuracy) < 0.05)
lost = {name: max(each["steps_lost"] for each in runs[name].summary.faults) for name in ("opposite", "neighbours")}
my_opposite.compare(lost["opposite"])
my_neighbours.compare(lost["neighbours"])

# %% [markdown]
# Half of all workers died each time. In the first case the other half had everything, and went back to step 80. In
# the second no rank had a copy of rank 1's state, so the ranks went back to the checkpoint of step 50. (A thread
# writes it while training continues. If it has not finished, as on a slow disk, the previous checkpoint counts: step
# 0.)
#
# There were no spares, so the batch of 64 is divided between two, and so is Adam's state: joined from four parts and
# cut into two. The two workers' random numbers are new, and sums of two parts are rounded differently from sums of
# four. So the model is another one, and as good. (`16_restart` resumed with three ranks of four, with the same
# result.)


# %%
def done(run):
    """Return rank 0's steps in the order in which it did them, and when each was done, in seconds of its trace."""
    updates = [event for event in run.trace if event["pid"] == 0 and event["name"] == "update"]
    ends = [(event["ts"] + event["dur"]) / 1e6 for event in updates]
    if not run.summary.faults:
        return list(range(STEPS)), ends
    again = len(updates) - STEPS
    back_to = run.summary.faults[0]["step"] - run.summary.faults[0]["steps_lost"]
    return [*range(back_to + again), *range(back_to, STEPS)], ends


figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4))
for name, colour in {"with a spare": BLUE, "opposite": GREEN, "neighbours": RED}.items():
    steps, ends = done(runs[name])
    last = next(number for number, (a, b) in enumerate(pairwise(steps)) if b < a)
    shown = slice(last - 20, last + 45)
    left.plot(np.array(ends[shown]) - ends[last], steps[shown], ".-", color=colour, label=name, markersize=4)
left.axvline(0, color=GREY, linewidth=1, zorder=0)
left.set(xlabel="seconds since the last step before the death", ylabel="step that is done")

steps, _ = done(runs["with a spare"])
numbers = np.arange(40, 90)
right.plot(numbers, losses["with a spare"][np.array(steps)[numbers]], ".-", color=BLUE, markersize=4)
for first, colour, label in ((60, ORANGE, "lost"), (64, GREEN, "done again")):
    right.axvspan(first - 0.5, first + 3.5, color=colour, alpha=0.4, linewidth=0, label=f"steps 60 to 63, {label}")
right.set(xlabel="steps done so far", ylabel="training loss, with a spare")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1), fontsize=9)
figure.tight_layout()

# %% tags=["nbval-check-output"]
for name in ("uninterrupted", "with a spare", "opposite", "neighbours"):
    lost = max((each["steps_lost"] for each in runs[name].summary.faults), default=0)
    print(f"{name}: rank 0 did each step once, and those that were lost once more:",
          len(done(runs[name])[0]) == STEPS + lost)  # fmt: skip

# %% [markdown]
# On the left each line rises step by step, stops while the others agree on the remaining ranks, drops back, and rises
# again. On the right the orange and the green part are the same four steps, to the bit: the lost steps are repeated
# exactly.
#
# ## 5 What it costs
#
# As long as no rank dies, a backup is pure cost: a copy in memory, and a message. How large is the message? Four
# ranks train for 21 steps, once with a backup every five steps and once with only the first one, at step 0. The
# difference in the bytes sent is four backups. We do both with the optimizer on all ranks and with a divided one.
#
# **Predict:** the perceptron has n parameters of 4 bytes; Adam keeps two more numbers for each. What does a worker
# send per backup in each case, and which share is that of what it sends in a training step anyway?

# %%
my_bytes = predict("bytes of a backup per worker, with the optimizer divided", ...)
my_share = predict("a backup as a part of what a training step sends (0 to 1)", ...)

# %%
# %%mpi -n 4
import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from farandole.scenarios.backup import Config, main

for divided in (False, True):
    for every in (5, 1000):
        out = Path(os.environ["RESULTS"]) / f"divided {divided}, every {every}"
        with redirect_stdout(StringIO()):  # without the tables: one for all comes below
            main(Config(optimizer="adam", lr=0.002, hidden=256, steps=21, checkpoint_every=0, backup_every=every,
                        shard_optimizer=divided, out=out))  # fmt: skip

# %% tags=["nbval-check-output"]
n = 64 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10
RANDOM = 5056  # the state of torch's random generator
LOSSES = 20 * 4 * 8  # its part of the last 20 losses, its share of the batch, how large that was, and when
COUNT = 8  # Adam counts its steps
largest_part = -(-n // 4)  # n is not divisible by 4
print(f"parameters: {4 * n:,} bytes; Adam's state: {8 * n:,} bytes, a fourth of it: {2 * n:,}")
for divided in (False, True):
    often, once = (Run.open(folder / f"divided {divided}, every {every}").summary.bytes_sent for every in (5, 1000))
    backup, step = max(a - b for a, b in zip(often, once, strict=True)) // 4, max(once) / 21
    expected = RANDOM + LOSSES + (2 * 4 * largest_part + COUNT if divided else 0)
    print(f"optimizer {'divided' if divided else 'on all ranks'}: a worker sends {backup:,} bytes per backup,",
          f"{backup / step:.3f} of what it sends per step")  # fmt: skip
    print("   the random generator's state, the losses" + (", its part of Adam's" if divided else "")
          + f", and nothing else: {backup == expected}")  # fmt: skip
my_bytes.compare(backup, within=0.05)
my_share.compare(backup / step, within=0.15)

# %% [markdown]
# With the optimizer on all ranks, a worker sends next to nothing. With a divided one it sends 8n/P bytes, where P is
# the number of workers, so with more workers each sends less. A step sends 2(P−1)/P · 4n. So a backup is **1/(P−1) of
# a step's bytes**, and with one every five steps the network's load grows by 7 % here, with a thousand workers by
# 0.02 %. (A copy of *everything* on another node, as in document 000, would be 12n bytes from each.)
#
# The second price is memory. Each worker keeps two generations of two P-ths of everything: 4/P of the state. With
# four workers that is the whole state once more, with forty a tenth of it.
#
# ## 6 How often?
#
# The calculation is that of `16_restart`, with another cost C, and another time until all continue. The runs of
# section 4, which made backups *and* checkpoints, give both. A restart would take at least as long as a start: the
# time from `launch` to the end of the first step.
#
# First, how many steps are lost on average if a rank may die in any step of an interval?

# %% tags=["nbval-check-output"]
k = 5
lost = {step: step - max(range(0, step + 1, k)) for step in range(60, 60 + 5 * k)}
print(f"steps lost by a death in step {min(lost)} to {max(lost)}:", *lost.values())
print(f"on average {sum(lost.values()) / len(lost):g}; (k − 1)/2 is {(k - 1) / 2:g}")
faults = [fault for name in ("with a spare", "opposite") for fault in runs[name].summary.faults]
print("as in the runs above:", all(lost[each["step"]] == each["steps_lost"] for each in faults))

# %% [markdown]
# Up to k − 1 steps are lost, and k by a death during the exchange itself (section 3). On average it is about half an
# interval, as Young has it.
#
# **Predict:** there is one failure an hour. Is k = 5 too small or too large?

# %%
my_k = predict("k = 5 is", ..., "too small", "too large")

# %%
MTBF_S = 3600.0  # assumed
trace = runs["uninterrupted"].trace
step_s = healthy.wall_s / STEPS
lines = EventLog(runs["uninterrupted"].folder / "logbook.jsonl").lines()
start_s = next(line.when for line in lines if line.what == "first step") - asked
ways = {
    "backup in memory": ("backup", fault["resumed_s"], BLUE),
    "checkpoint on disk, restart": ("checkpoint", start_s, RED),
}
cost_s = {way: float(np.median([event["dur"] / 1e6 for event in trace if event["name"] == name]))
          for way, (name, _, _) in ways.items()}  # fmt: skip


def waste(way, every):
    """Return the time that is not work, as a share of the work, for a number of steps between two copies (Daly)."""
    return expected_s(1.0, every * step_s, cost_s[way], ways[way][1], MTBF_S) - 1


figure, ax = plt.subplots(figsize=(9.5, 3.6))
every = np.geomspace(1, 1e5, 300)
best = {way: young(cost_s[way], MTBF_S) / step_s for way in ways}
for way, (_, again_s, colour) in ways.items():
    ax.loglog(every, [waste(way, k) for k in every], color=colour, label=way)
    ax.plot(best[way], waste(way, best[way]), "*", color=colour, markersize=13)
    ax.axhline(again_s / MTBF_S, color=colour, linestyle="--", linewidth=1)
    print(f"{way + ':':29}{cost_s[way] * 1e3:6.1f} ms each, {again_s:6.2f} s until all continue;",
          f"best every {best[way]:6.0f} steps; waste {waste(way, best[way]):.3%}")  # fmt: skip
ax.plot([], [], "--", color=GREY, label="the recoveries alone")
ax.axvline(5, color=GREY, linewidth=1, zorder=0)
ax.text(5.3, 0.92, "k = 5", color="dimgrey", transform=ax.get_xaxis_transform())
ax.set(xlabel="steps between two copies", ylabel="waste, as a share of the work")
ax.yaxis.set(major_formatter=lambda value, _: f"{value:.4%}".rstrip("0%").rstrip(".") + " %")
ax.yaxis.set_minor_formatter(NullFormatter())
ax.xaxis.set_major_formatter("{x:,g}")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1), fontsize=9)
figure.tight_layout()

mtbf = (5 * step_s) ** 2 / (2 * cost_s["backup in memory"])
print(f"k = 5 would be best with a failure every {mtbf:.2g} s")
my_k.compare("too small" if best["backup in memory"] > 5 else "too large")

# %% [markdown]
# The default of five suits runs of a few hundred short steps in which a rank is sure to die. For one failure an hour
# it is far too small; a star marks the optimum by Young's formula. The dashed lines matter more: the blue one lies
# far below the red one, because no process has to be started. With more GPUs there are more failures, and a start
# takes longer. On large machines that difference decides.
#
# And how often will the disk be needed? Only if a second death comes before the next backup, and the recovery ends
# with a backup. So one of the two neighbours must die within the short time of a recovery. For independent failures
# that is rare:

# %%
chance = fault["resumed_s"] / MTBF_S * 2 / (4 - 1)
print(f"one failure in {1 / chance:,.0f} is followed by a neighbour's before all continue")
print(f"at one failure an hour, once in {1 / chance / 8766:,.0f} years")

# %% [markdown]
# Do not rely on it. It only says that *independent* failures are no danger. The other failures have a common cause: a
# machine, a rack, a switch, the same bug in the same step. A buddy further away and the disk help against those.
#
# ## 7 Where no two know the same
#
# Data parallel is the easy case: every worker has the parameters. In a **pipeline** (`13_pipelines`) each rank has
# layers that no other has. When one of four dies, a part of the model is lost, and more than that: micro-batches are
# under way, activations forward and gradients back, and every stage has worked on some of them.
#
# **Predict:** (a) What does a stage have to send its buddy, and how many bytes is that per parameter, with Adam? (b)
# What happens to the micro-batches under way? (c) Could three stages continue without the fourth, as the workers of
# section 4 did?
#
# First run four stages without a failure and without protection; then with a spare, and the third stage dies at step
# 13.

# %%
my_stage = predict("(a) bytes per parameter", ...)
my_three = predict("(c) three stages can continue", ..., "yes", "no")

# %%
of_stages = {"depth": 3, "balance": "layers", "optimizer": "adam", "lr": 0.002, "steps": 24}
stages = launch("pipeline", ranks=4, **of_stages, out=folder / "stages")
restored = launch(
    "pipeline", ranks=5, spares=1, backup_every=5, **of_stages, fail="rank=2,step=13", out=folder / "restored"
)


# %% tags=["nbval-check-output"]
def by_stage(run):
    """Return the digest of each stage's parameters, whichever rank has it in the end."""
    names = [name.split(", ")[1] for name in run.rank_names]
    return dict(zip(names, run.summary.params_sha256, strict=True))


[died] = restored.summary.faults
print(f"rank {died['rank']} died at step {died['step']}; steps lost: {died['steps_lost']}")
print("in the end there are", "; ".join(restored.rank_names))
print("each stage's parameters the same, to the bit:", by_stage(restored) == by_stage(stages))
print("the same loss in every step, to the bit:",
      [line["loss"] for line in restored.metrics] == [line["loss"] for line in stages.metrics])  # fmt: skip
parameters, state = (stages.summary.memory["measured"][kind][0] for kind in ("parameters", "optimizer_state"))
my_stage.compare((parameters + state) / (parameters / 4))
digests = stages.summary.params_sha256
my_three.compare(digests.count(digests[died["rank"]]) > 1)  # only if another rank has the same parameters

# %% [markdown]
# (a) All its state: its parameters and Adam's two means of each, 12 bytes per parameter; no other rank has them. The
# spare received it from the fourth stage, which was the buddy. (b) They are discarded. All stages go back to step
# 10, and between two steps *nothing* is under way, because 1F1B drains the pipeline before each update. That is
# why the copies of different stages fit together. PipeDream never drains, so the scenario refuses it. (c) No. In
# section 4 a part of the *work* was missing, which others could do; here it is a part of the *model*.
#
# ## 8 A copy at every step
#
# Going back k steps needs a step that all ranks share. A **parameter server** (`08_parameter_server`) has none: each
# worker is at a different iteration, and a server that went back would lose gradients that it has acknowledged. So
# servers do not make periodic copies. Two servers hold each part of the parameters, and both execute every request,
# in the same order: **chain replication** (链式复制).
#
# ```
# worker ──push──▶ first ──push──▶ second ──"it counts"──▶ worker
# ```
#
# Only the second server answers. So both have everything that a worker was told.
#
# **Predict:** (a) Rank 1, a server, dies during training. What must a worker do that has pushed and received no
# answer? (b) What must the other server not do then? (c) How many more bytes does a server send than without a copy?
# Without, it sends each worker its part of the parameters once a step.

# %%
my_more = predict("(c) times as many bytes with a copy", ...)

# %%
chain = {"servers": 2, "replicas": 2, "sync": "bsp", "steps": 30, "hidden": 64}
plain = launch("parameter_server", ranks=5, **chain | {"replicas": 1}, out=folder / "plain")
doubled = launch("parameter_server", ranks=5, **chain, out=folder / "doubled")
orphaned = launch("parameter_server", ranks=5, **chain, fail="rank=1,step=15", out=folder / "orphaned")

# %% tags=["nbval-check-output"]
print("ranks that are left:", "; ".join(orphaned.rank_names))
print("steps lost:", [fault["steps_lost"] for fault in orphaned.summary.faults])
digests = {run: set(run.summary.params_sha256) for run in (plain, doubled, orphaned)}
print("the same parameters with a copy, to the bit:", digests[doubled] == digests[plain])
print("the same when a server has died, to the bit:", digests[orphaned] == digests[plain])
more = doubled.summary.bytes_sent[1] / plain.summary.bytes_sent[1]
print(f"a server with a copy to keep up to date sends {more:.1f} times as much")
my_more.compare(more, within=0.05)

# %% [markdown]
# (a) It sends the request again, to the other server. It cannot know whether its gradient has arrived, and need not.
# (b) Count the gradient twice. So every request has a number, and a server keeps its answer until the worker has
# it (`parameter_server/sessions.py`): a repeated request is answered again, but not executed again. (c) Twice as
# much: to each worker its parameters, as before, and to the other server every gradient. The workers send and
# receive the same as before.
#
# The manager can be replaced, too: with `fail="rank=0,step=30"` a server takes over its role and continues the
# record.
#
# ## 9 Three ways to continue
#
# | | restart (`16_restart`) | membership (`17_membership_and_election`) | backup |
# |---|---|---|---|
# | **needs** | a disk, and a supervisor | an MPI whose ranks outlive each other | that, and more memory |
# | **survivors** | end and start again | continue | go back at most k steps, and continue |
# | **survives** | everything | deaths of all but one | all but a worker's *and* its buddy's death at once |
# | **lost** | steps since the last checkpoint | no step; the dead rank's own state | at most k steps |
# | **divided optimizer** | can be restored | a part would be gone | can be restored |
# | **equal to the bit** | with as many ranks | with a spare, without dropout | with a spare |
# | **cost without failures** | periodic checkpoints | nothing | periodic copies and messages |
# | **cost of a failure** | a start | agreeing on the remaining ranks | the same, and k steps at most |
#
# ("To the bit" means: as without a failure. The MPI must have ULFM, User-Level Failure Mitigation.)
#
# They can be combined. A large training makes frequent backups in memory against frequent small failures, and rare
# checkpoints on disk against rare large ones. The scenario `backup` does so.
#
# ## What you have seen
#
# - Under data parallelism a rank has little state that no other has: its random numbers, and with a divided optimizer
#   its part. If that is lost there is no error, but another training run.
# - With a buddy in a ring, n of n(n−1)/2 pairs of deaths are fatal: neighbours. Ranks that may die together must not
#   be buddies.
# - Two generations: whenever a rank dies, one of them is complete everywhere.
# - With a spare the run ends, to the bit, as without a failure; at most k steps are done twice.
# - With a divided optimizer a backup sends 1/(P−1) of what a step sends; it also needs memory.
# - A stage of a pipeline shares nothing with the others. Its buddy can restore it, to a spare.
# - Servers cannot go back, so their copies are never behind: both have everything that was acknowledged.
#
# ## What to try
#
# 1. `spares=2, fail=["rank=2,step=63", "rank=3,step=64"]` on six ranks: worker and buddy, one step apart. Is it fatal?
#    Look at the event log, and at the end of section 6.
# 2. Two ranks on each machine, 0 and 1, 2 and 3, and so on, and a *machine* dies. In which of the three plans of
#    section 2 is that fatal? Write a fourth plan, in which neither the death of a machine nor of any single rank is
#    fatal, and count its fatal pairs.
# 3. In section 3, discard the old generation *before* the exchange begins. How many cases are lost then? And let two
#    workers die during the exchange, not neighbours: are two generations still enough?
# 4. `checkpoint_every=0` and neighbours that die: what does `launch` report?
# 5. `spares=1, fail="rank=0,step=64"` on five ranks: the leader dies, which writes the record. Compare the digests.
#    Which rank leads afterwards?
# 6. A machine fails once in five years. How often does one of ten thousand, and what is the best k then? (Section 6
#    with another `MTBF_S`; take a step of one second.)
# 7. Section 7 without `spares`: what does `launch` report? Then with two spares, when the second and the third stage
#    die at once; and when the second and the fourth do. Which of the two is fatal, and what does section 2 say?
# 8. Section 8 with `sync="async"`, and `fail` for a worker, the manager and a server. Which of them is `cleaned`? And
#    what does `launch` report if both servers die?
