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
# **Question:** a process dies, and with it a state that only it had. How do the others continue as if it were still
# alive, without a disk and without a new start?
#
# In `16_restart` all ranks had to end because one had died, and most of the time went into starting again. Document 000
# has another way, **backup recovery** (备份恢复): parameters and intermediate results are kept on several nodes, and
# when one drops out, its work is taken up from the backup. It leaves four things open:
#
# - *What* has to be kept twice? Under data parallelism almost everything is on all nodes anyway.
# - *Which rank* keeps it for which? The keeper can die, too.
# - *Which moment* is kept? A copy of step 60 is of no use to others that are at step 65.
# - *What if* the death comes while the copies are being made?
#
# We answer them one after the other, then kill, then count what it costs.

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
# ranks train a small perceptron with Adam for twenty steps, and compare each tensor of their states. Then once more
# with a *divided* optimizer (ZeRO-1, `15_hybrid`), where each rank keeps Adam's state for its part of the parameters.
#
# After that rank 2 "dies": a new process takes its place, gets the parameters from the others, and for what was lost
# has what any new process has. They train forty steps more.
#
# **Predict:** (a) Which tensors differ from rank to rank? (b) Something of rank 2's own has been lost. Will the four
# copies of the parameters still agree with each other? Will they agree with those of a training without a death?

# %%
my_agree = predict("the four copies still agree", ..., "yes", "no")
my_undisturbed = predict("they agree with a training without a death", ..., "yes", "no")

# %% tags=["nbval-check-output"]
# %%mpi -n 4
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
    """How many different ones there are on all ranks."""
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
    expected = go_on(replica, 20, 60)
    own = dict(enumerate(world.control.allgather(state.own)))
    new = world.control.bcast(Replica(world, options, sharded=True).state(0).own, root=2)  # of a process just begun
    for lost in ("nothing", "random", "optimizer"):
        has = deepcopy(own)
        has[2] |= {name: tensor for name, tensor in new.items() if name.startswith(lost)}
        replica.restore(Checkpoint(-1, 20, 4, state.shared, has, state.values))
        found = go_on(replica, 20, 60)
        agree, same = different(found) == 1, torch.equal(found, expected)
        if world.rank == 0:
            print(f"lost of rank 2: {lost:10} the four agree: {agree};  as if nobody had died: {same}")

# %% tags=["nbval-check-output"]
my_agree.compare("yes")
my_undisturbed.compare("no")

# %% [markdown]
# With the optimizer on all ranks, 5,056 bytes are a rank's own: the state of its random generator, which decides what
# its dropout leaves out. With the optimizer divided, its part of Adam's means is, too, and these are numbers that no
# other rank can draw again. (How many steps Adam has taken is counted by each for itself, and is the same everywhere.)
#
# The last lines are the ones to remember. If something is lost, *the four still agree*: the parameters are sent round
# in every step, so that nothing looks wrong. It is another training, that is all. (How Adam fares without its memory is
# to be seen in a picture of `16_restart`.)
#
# ## 2 Which rank keeps which copy
#
# So every k steps each worker gives a copy of what is its own to another one: its **buddy**. Here the ranks form a
# ring, and the buddy is the next one. (Zheng, Shi & Kalé 2004 did this for whole programs.) Each keeps a copy of its
# own state, too, since after a death all have to go back to the moment of the copies. And what they all share? It is
# cut into n parts, and each worker copies two of them, its own and its ward's: nothing need be sent for that, and each
# part is in two memories all the same.
#
# A ring is not the only way. Three of them, for six workers; an arrow goes from a worker to the one that keeps its
# copy:


# %%
def ring(n):
    """Whose parts each of n workers keeps: its own first, then its ward's."""
    return [[worker, (worker - 1) % n] for worker in range(n)]


def couples(n):
    """Two and two keep each other's."""
    return [[worker, worker ^ 1] for worker in range(n)]


def keeper(n):
    """Worker 0 keeps everybody's, and worker 1 that of worker 0."""
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
# One death never loses anything. Two at the same time may. The workers that are left tell each other which parts they
# have, and `buddies.choose` finds the newest backup whose parts are all there. We ask it, for four workers in a ring,
# about all pairs of deaths.
#
# **Predict:** how many of the six pairs are fatal? And of n(n−1)/2 pairs among n workers, in each of the three plans?

# %%
my_pairs = predict("fatal pairs of six, in a ring of four", ...)
my_plans = predict("fatal pairs of 16 workers: ring, couples, one keeper, as a list", ...)


# %% tags=["nbval-check-output"]
def told(kept, dead, step=60):
    """What the workers left tell each other: of each backup its step, of how many workers it is, whose parts."""
    return [[(step, len(kept), parts)] for worker, parts in enumerate(kept) if worker not in dead]


def fatal(plan, n, deaths):
    """The sets of so many workers whose death takes the only copies of something."""
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
print("\nfatal triples are all but those in which nobody's keeper is dead, too:")
print("ring:       n(n−4)(n−5)/6 of them", all(
    comb(n, 3) - t[0] == n * (n - 4) * (n - 5) // 6 for n, t in triples.items()))  # fmt: skip
print("couples:    8 · (n/2 over 3)     ", all(comb(n, 3) - t[1] == 8 * comb(n // 2, 3) for n, t in triples.items()))
print("one keeper: those without it     ", all(comb(n, 3) - t[2] == comb(n - 1, 3) for n, t in triples.items()))
my_plans.compare([len(fatal(plan, 16, deaths=2)) for plan in plans.values()])

# %% [markdown]
# In a ring a pair is fatal if its two are neighbours, and there are n neighbourhoods: n of n(n−1)/2 pairs, which is a
# share of **2/(n−1)**. The more workers, the smaller it is. Couples have half as many fatal pairs, but need an even
# number; and after a death the partner has to find another.
#
# The single keeper is no worse than the ring, by this count. But look at what it has to receive:

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
# optimizer, which had been divided because they did not fit. In a ring and among couples each gets one message, however
# many there are, and all send at the same time. (With three deaths or more of twelve the keeper even loses less often
# than the others. But where so many die at once, they have a common cause, and the keeper has it, too.)
#
# All this takes deaths for independent of each other. Those of two ranks on *one machine* are not. Then the buddy must
# be on another machine: neighbours in the ring should not be neighbours in the rack (exercise 2).
#
# ## 3 Two generations
#
# At step 65 a new backup is made; the one of step 60 is there. Each worker sends its part to its buddy and gets that of
# its ward, and *then* has the new one. In this moment a worker dies. Some of the others may have finished, some may
# not, and any of them may be late: this cannot be known beforehand. We try all cases. If only one generation is kept,
# the new one takes the place of the old one as soon as it is complete.
#
# **Predict:** one worker of four dies, and each of the others has either finished or not. In how many of the 4 · 2³
# cases is something lost, with one generation and with two?

# %%
my_single = predict("cases with a loss, one generation", ...)
my_double = predict("cases with a loss, two generations", ...)


# %% tags=["nbval-check-output"]
def in_the_middle(n, generations):
    """Where the others go back to, over all cases: which worker dies, and who of the others has step 65 already."""
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
# With one generation one has step 65, another one step 60, and neither is whole. With two, step 60 is whole in all
# cases: it was finished everywhere before any worker began step 65, because between them are five all-reduces, which no
# worker finishes alone. It is the same thought as that of the two slots on disk in `16_restart`.
#
# Where it says 65, the new backup was complete after all: what one worker itself has not got, its buddy has. The newest
# backup that is *whole* counts, not the newest one that some rank holds. (The code makes sure of one thing more: an
# unfinished 65 is thrown away after the recovery, or it would push out a good generation later.)
#
# ## 4 The real thing
#
# The scenario `backup` trains by synchronous SGD, here with a divided Adam and with dropout, and makes a backup every
# k = 5 steps. First without any trouble, on four ranks:

# %%
STEPS = 120
recipe = {"optimizer": "adam", "lr": 0.002, "hidden": 256, "steps": STEPS, "shard_optimizer": True}
asked = time.time()
runs = {"uninterrupted": launch("backup", ranks=4, **recipe, out=folder / "uninterrupted")}

# %% [markdown]
# Now with a fifth rank that waits, a **spare**, and a real SIGKILL for rank 2 as step 64 begins, just before the next
# backup. The spare takes the place, and is given what the buddy has kept.
#
# **Predict:** how many steps are lost? Are the parameters in the end equal to those of the uninterrupted run, to the
# bit, though another process has done half of rank 2's work?

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
# Rank 4 has drawn the random numbers that rank 2 would have drawn, and has gone on with its part of Adam's means. The
# event log, read aloud:


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
            "noticed": f"{who} is missed",
        }
        if line.what in said:
            print(f"{(line.when - died) * 1e3:9.1f} ms   {said[line.what]}")


read_aloud(runs["with a spare"])
print(f"missed after {fault['detected_s'] * 1e3:.0f} ms, the first step done after {fault['resumed_s'] * 1e3:.0f} ms")

# %% [markdown]
# Rank 2 may be missed more than once, for each of the others may detect the death by itself before it is told of it.
# How they then agree on the remaining ranks is the subject of `17_membership_and_election`.
#
# Now without spares, and twice two deaths at once. Once they are **opposite** each other in the ring (ranks 1 and 3),
# once they are **neighbours** (1 and 2, so that rank 2 takes the copy of rank 1's state with it). For the second case
# there are checkpoints on disk, too, but seldom: every 50 steps.
#
# **Predict:** both die at step 83. How many steps are lost in either case? Which ranks are left, and what part of the
# batch and of the optimizer does each have then?

# (On a busy computer one of the two may be late: the others have recovered from the first death before the second one
# comes. That is another story, and then we try again.)

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
# Half of all workers died each time. In the first case the other half had everything, and went back to step 80. In the
# second no rank had a copy of rank 1's state, and the disk had to be used: back to step 50. (A thread writes there
# while training goes on. If it has not come to its end, as on a slow disk, the checkpoint before that counts: step 0.)
#
# There were no spares, so the batch of 64 is divided between two, and so is Adam's state: joined from four parts, cut
# into two. The new workers' random numbers are new ones, and sums of two parts are rounded otherwise than sums of four.
# So it is another model, and as good a one. (`16_restart` took three ranks where there had been four, and the same came
# of it.)


# %%
def done(run):
    """Rank 0's steps in the order in which it did them, and when it had done each, in seconds of its trace."""
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
numbers = np.arange(40, 100)
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
# On the left each line goes up step by step, stops while the others agree on the remaining ranks, drops back, and goes
# up once more. On the right the orange and the green stretch are the same four steps, to the bit: nothing is new until
# what was lost has been done again.
#
# ## 5 What it costs
#
# While nothing happens, a backup is pure loss: a copy in memory, and a message. How large is the message? We let four
# ranks train for 21 steps, with a backup every five steps, and with only the first one, at step 0. The difference in
# the bytes sent is four backups. Both with the optimizer on all ranks and with a divided one.
#
# **Predict:** the perceptron has n parameters of 4 bytes; Adam keeps two more numbers for each. What does a worker send
# per backup in either case, and what share is that of what it sends in a training step anyway?

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
# With the optimizer on all ranks, next to nothing is sent. With a divided one it is 8n/P bytes per worker, where P is
# the number of workers, and the more there are, the less it is. A step sends 2(P−1)/P · 4n. So a backup is
# **1/(P−1) of a step's bytes**, and with one every five steps the network has 7 % more to do here, with a thousand
# workers 0.02 %. (A copy of *everything*, kept by another node as document 000 has it, would be 12n bytes from each.)
#
# There is a second price, and it is memory. Each worker keeps two generations of two P-ths of everything: 4/P of the
# state. With four workers that is the whole state once more, with forty a tenth of it.
#
# ## 6 How often?
#
# The same calculation as in `16_restart`, with another cost C, and another time until all go on. Both can be read from
# the runs of section 4, which made backups *and* checkpoints. A restart would take at least as long as a start: the
# time from `launch` to the end of the first step.
#
# First, what is lost on average, if a death may come in any step of an interval?

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
    """Time that is not work, as a share of the work, with so many steps between two copies: by Daly's formula."""
    return expected_s(1.0, every * step_s, cost_s[way], ways[way][1], MTBF_S) - 1


figure, ax = plt.subplots(figsize=(9.5, 3.6))
every = np.geomspace(1, 1e5, 300)
best = {way: young(cost_s[way], MTBF_S) / step_s for way in ways}
for way, (_, again_s, colour) in ways.items():
    ax.loglog(every, [waste(way, k) for k in every], color=colour, label=way)
    ax.plot(best[way], waste(way, best[way]), "*", color=colour, markersize=13)
    ax.axhline(again_s / MTBF_S, color=colour, linestyle="--", linewidth=1)
    print(f"{way + ':':29}{cost_s[way] * 1e3:6.1f} ms each, {again_s:6.2f} s until all go on;",
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
# A default of five suits trainings of a few hundred short steps in which a rank is sure to die. For a failure an hour
# it is far too small; a star is where Young's formula has it. What counts more is the dashed lines: the blue one lies
# far below the red one, since no process has to be started. The more cards, the more failures, and the longer a start
# takes. On large machines that difference is what matters.
#
# And how often will the disk be needed? Only if the second death comes before the next backup, and the recovery ends
# with one. So it must strike one of the two neighbours within the short time that a recovery takes. For independent
# failures that is seldom:

# %%
chance = fault["resumed_s"] / MTBF_S * 2 / (4 - 1)
print(f"one failure in {1 / chance:,.0f} is followed by a neighbour's before all go on")
print(f"at one failure an hour, once in {1 / chance / 8766:,.0f} years")

# %% [markdown]
# Do not believe it. It only says that *independent* failures are no danger. Those that remain have a common cause:
# a machine, a rack, a switch, the same bug in the same step. Against those there is a buddy further away, and the disk.
#
# ## 7 Where no two know the same
#
# Data parallel is the easy case: any worker knows the parameters. In a **pipeline** (`13_pipelines`) each rank has
# layers that no other has. With one of four a part of the model dies, and more than that is lost: micro-batches
# are under way, activations forward and gradients back, and every stage has worked on some of them.
#
# **Predict:** (a) What does a stage have to give its buddy, and how many bytes is that per parameter, with Adam?
# (b) What becomes of the micro-batches under way? (c) Could three stages go on without the fourth, as the workers of
# section 4 did?
#
# First four stages without trouble and without protection; then with a spare, and the third stage dies at step 23.

# %%
my_stage = predict("(a) bytes per parameter", ...)
my_three = predict("(c) three stages can go on", ..., "yes", "no")

# %%
of_stages = {"depth": 3, "balance": "layers", "optimizer": "adam", "lr": 0.002, "steps": 40}
stages = launch("pipeline", ranks=4, **of_stages, out=folder / "stages")
restored = launch(
    "pipeline", ranks=5, spares=1, backup_every=5, **of_stages, fail="rank=2,step=23", out=folder / "restored"
)


# %% tags=["nbval-check-output"]
def by_stage(run):
    """The digest of each stage's parameters, whichever rank has it in the end."""
    names = [name.split(", ")[1] for name in run.rank_names]
    return dict(zip(names, run.summary.params_sha256, strict=True))


[died] = restored.summary.faults
print(f"rank {died['rank']} died at step {died['step']}; steps lost: {died['steps_lost']}")
print("in the end there are", "; ".join(restored.rank_names))
print("each stage's parameters the same, to the bit:", by_stage(restored) == by_stage(stages))
print("the same loss in every step, to the bit:",
      [line["loss"] for line in restored.metrics] == [line["loss"] for line in stages.metrics])  # fmt: skip
my_stage.compare(3 * 4)
my_three.compare("no")

# %% [markdown]
# (a) All that it has: its parameters and Adam's two means of each, 12 bytes per parameter; no other rank has them. The
# spare got it from the fourth stage, which was the buddy. (b) They are thrown away. All stages go back to step 20, and
# between two steps *nothing* is under way, since 1F1B drains the pipeline before each update. That is why copies which
# each has made by itself fit together. PipeDream never drains, and is refused. (c) No. There a part of the *work* was
# missing, which others could do; here it is a part of the *model*.
#
# ## 8 A copy at every step
#
# Going back k steps takes a step that all share. A **parameter server** (`08_parameter_server`) has none: each worker
# is at a different iteration, and a server that went back would lose gradients whose workers have been told that they
# count. So servers do not take copies now and then. Each part of the parameters is with two of them, and both carry out
# every request, in the same order: **chain replication** (链式复制).
#
# ```
# worker ──push──▶ first ──push──▶ second ──"it counts"──▶ worker
# ```
#
# Only the second one answers. Whatever a worker has been told is then with both.
#
# **Predict:** (a) Rank 1, a server, dies in the middle. What does a worker have to do that has pushed and received
# nothing? (b) What must the other server not do, then? (c) How many more bytes does a server send than without a copy?
# Without, it sends each worker its part of the parameters once a step.

# %%
my_more = predict("(c) times as many bytes with a copy", ...)

# %%
chain = {"servers": 2, "replicas": 2, "sync": "bsp", "steps": 60, "hidden": 64}
plain = launch("parameter_server", ranks=5, **chain | {"replicas": 1}, out=folder / "plain")
doubled = launch("parameter_server", ranks=5, **chain, out=folder / "doubled")
orphaned = launch("parameter_server", ranks=5, **chain, fail="rank=1,step=30", out=folder / "orphaned")

# %% tags=["nbval-check-output"]
print("who is left:", "; ".join(orphaned.rank_names))
print("steps lost:", [fault["steps_lost"] for fault in orphaned.summary.faults])
digests = {run: set(run.summary.params_sha256) for run in (plain, doubled, orphaned)}
print("the same parameters with a copy, to the bit:", digests[doubled] == digests[plain])
print("the same when a server has died, to the bit:", digests[orphaned] == digests[plain])
more = doubled.summary.bytes_sent[1] / plain.summary.bytes_sent[1]
print(f"a server with a copy to keep up to date sends {more:.1f} times as much")
my_more.compare(more, within=0.05)

# %% [markdown]
# (a) Ask again, the other one. It cannot know whether its gradient has arrived, nor need it. (b) Count it twice. So
# every request has a number, and a server remembers its answer until the worker has it
# (`parameter_server/sessions.py`): what comes again is answered again, and not carried out again. (c) Twice as much:
# to each worker its parameters, as before, and to the other server every gradient. The workers send and receive what
# they did.
#
# The manager has successors too: with `fail="rank=0,step=30"` a server takes its place, and writes the record on.
#
# ## 9 Three ways to go on
#
# | | restart (`16_restart`) | membership (`17_membership_and_election`) | backup |
# |---|---|---|---|
# | **needs** | a disk, and a supervisor | an MPI whose ranks outlive each other | that, and more memory |
# | **survivors** | end and start again | go on | go back at most k steps, and go on |
# | **survives** | everything | deaths of all but one | all but a worker's *and* its buddy's death at once |
# | **lost** | steps since the last checkpoint | no step; what is the dead one's own | at most k steps |
# | **divided optimizer** | can be restored | a part would be gone | can be restored |
# | **ends to the bit** | with as many ranks | with a spare, without dropout | with a spare |
# | **costs meanwhile** | a checkpoint now and then | nothing | a copy and a message now and then |
# | **costs at a failure** | a start | agreeing on the remaining ranks | the same, and k steps at most |
#
# ("To the bit" means: as without a failure. The MPI must have ULFM, User-Level Failure Mitigation.)
#
# They are not rivals. A large training has backups in memory, often, for the failures that are frequent and small; and
# checkpoints on disk, seldom, for those that are rare and large. That is what the scenario `backup` does.
#
# ## What you have seen
#
# - Under data parallelism a rank has little state that no other has: its random numbers, and with a divided optimizer
#   its part. If that is lost there is no error, but it is another training.
# - With a buddy in a ring, n of n(n−1)/2 pairs of deaths are fatal: neighbours. What dies together must not be buddies.
# - Two generations: whenever a rank dies, one of them is whole everywhere.
# - With a spare the run ends, to the bit, as if nothing had happened; at most k steps are done twice.
# - With a divided optimizer a backup sends 1/(P−1) of what a step sends; and it wants memory.
# - A stage of a pipeline shares nothing with the others. Its buddy can restore it, to a spare.
# - Servers cannot go back, so their copies are never behind: what has been acknowledged is with both.
#
# ## What to try
#
# 1. `spares=2, fail=["rank=2,step=63", "rank=3,step=64"]` on six ranks: worker and buddy, one step apart. Is it fatal?
#    Look at the event log, and at the end of section 6.
# 2. Two ranks on each machine, 0 and 1, 2 and 3, and so on, and a *machine* dies. In which of the three plans of
#    section 2 is that fatal? Write a fourth plan, for which neither one machine nor any single rank is, and count its
#    fatal pairs.
# 3. In section 3, let the old generation be thrown away *before* the exchange begins. How many cases are lost then?
#    And let two workers die in the middle, not neighbours: are two generations still enough?
# 4. `checkpoint_every=0` and neighbours that die: what does `launch` say?
# 5. `spares=1, fail="rank=0,step=64"` on five ranks: the one that leads, and writes the record. Compare the digests.
#    Which rank leads afterwards?
# 6. A machine fails once in five years. How often does one of ten thousand, and what is the best k then? (Section 6
#    with another `MTBF_S`; take a step of one second.)
# 7. Section 7 without `spares`: what does `launch` say? Then with two spares, when the second and the third stage die
#    at once; and when the second and the fourth do. Which of the two is fatal, and what does section 2 say?
# 8. Section 8 with `sync="async"`, and `fail` for a worker, the manager and a server. Which of them is `cleaned`? And
#    what does `launch` say if both servers die?
