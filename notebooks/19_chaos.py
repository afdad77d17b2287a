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
# # 19 · Chaos
#
# **Question:** processes die at random moments, again and again. Which method survives, what does it cost, and how
# often should it save?
#
# In `16_restart` to `18_backup` *we* chose the rank that dies, and its step: `fail="rank=2,step=130"`. That is good
# for close study, but it has a weakness. The author of a method tests the moments of failure that the author thinks
# of. Real failures happen at other moments: within a message, within a checkpoint, within the recovery from the
# previous failure. So engineers kill a method's ranks at random for hours before they rely on it; that is called
# **chaos engineering** (混沌工程). Netflix has killed its own machines at random since 2010, in working hours, when
# engineers can repair what breaks (Basiri et al. 2016).
#
# Here it is an option of every scenario: `--chaos mtbf=20s,seed=7`. We look at what it draws, train under it, and
# then compute what a *rate* of failures costs.

# %%
import tempfile
from itertools import islice, takewhile
from math import comb, exp, expm1
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import LaunchError, launch
from farandole.launching import supervised_launch
from farandole.recovery.event_log import EventLog
from farandole.recovery.interval import daly, young
from farandole.recovery.view import View
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, RED
from farandole.report.predictions import predict
from farandole.runtime.chaos import Chaos
from farandole.runtime.reliable import Channel

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 What is drawn
#
# A machine's failures are described by one number: the **MTBF**, mean time between failures (平均故障间隔时间), here μ.
# `mtbf=20s` is that of the *whole job*: somewhere among its ranks there is a death every 20 seconds on average. The
# time until the next death is drawn from an exponential distribution, and each death hits a rank drawn with equal
# probability. Here are the first deaths for four ranks. If a rank is drawn a second time, nothing happens, because it
# is already dead.
#
# This needs no message. The draw follows from the seed, μ and the number of ranks, so each rank makes the same draw,
# looks for its own number, and sets a timer.

# %% tags=["nbval-check-output"]
chaos = Chaos.parse("mtbf=20s,seed=7")
for when, rank in islice(chaos.deaths(ranks=4), 8):
    first = "" if when > chaos.death_s(rank, ranks=4) else "   dies"
    print(f"after {when:6.1f} s: rank {rank}{first}")
print("each rank knows its own hour:", [round(chaos.death_s(rank, ranks=4), 1) for rank in range(4)])
print("at its second start they are others:", [round(chaos.death_s(rank, ranks=4, start=1), 1) for rank in range(4)])

# %% [markdown]
# Why exponentially? Because machines that fail for a thousand independent reasons do not age: one that has run for a
# month without a failure is as likely to fail in the next hour as one that was started a minute ago.
#
# **Predict:** (a) A death comes every 20 s on average, and for 20 s there has been none. How long will it take from
# now, on average? (b) How long does *one* of four ranks live? (c) A machine fails once in five years. How often does
# one of ten thousand?

# %%
my_further = predict("(a) further seconds", ...)
my_life = predict("(b) seconds that one of four ranks lives", ...)
my_hours = predict("(c) hours between failures", ...)

# %% tags=["nbval-check-output"]
times = np.array([when for when, _ in islice(chaos.deaths(ranks=4), 100_000)])
between = np.diff(times, prepend=0)
left = between[between > 20] - 20
lives = np.array([chaos.death_s(2, ranks=4, start=start) for start in range(5000)])
machines = np.random.default_rng(0).exponential(5 * 365.25 * 24, (1000, 10_000))  # hours until each one's failure
first = machines.min(axis=1)
print("between two deaths:                  20 s, within 2 %:", abs(between.mean() / 20 - 1) < 0.02)
print("(a) after 20 s without one, further: 20 s, within 2 %:", abs(left.mean() / 20 - 1) < 0.02)
print("(b) one of four ranks lives:         80 s, within 5 %:", abs(lives.mean() / 80 - 1) < 0.05)
print(f"(c) one of ten thousand machines fails every {5 * 365.25 * 24 / 10_000:.1f} hours")
my_further.compare(left.mean(), within=0.03)
my_life.compare(lives.mean(), within=0.05)
my_hours.compare(first.mean(), within=0.05)

# %%
figure, (upper, lower) = plt.subplots(1, 2, figsize=(9.5, 2.9), width_ratios=(3, 2))
for when, rank in islice(chaos.deaths(ranks=4), 8):
    dies = when <= chaos.death_s(rank, ranks=4)
    upper.plot(when, rank, "X", color=RED, markersize=10, markerfacecolor=RED if dies else "white")
for rank in range(4):
    upper.plot([0, chaos.death_s(rank, ranks=4)], [rank, rank], color=BLUE, linewidth=3, zorder=0)
upper.set(xlabel="seconds", yticks=range(4), yticklabels=[f"rank {rank}" for rank in range(4)], ylim=(3.6, -0.6))
seconds = np.linspace(0, 160, 200)
for drawn, mean, colour, label in ((between, 20, RED, "no death in the job"), (lives, 80, BLUE, "one rank is alive")):
    some = np.arange(5, 160, 12)
    lower.plot(seconds, np.exp(-seconds / mean), color=colour, label=label)
    lower.plot(some, [(drawn > second).mean() for second in some], "o", color=colour, markerfacecolor="white")
lower.set(xlabel="seconds since the start", ylabel="share of the cases", ylim=(0, 1.02))
lower.legend(frameon=False, fontsize=9)
for ax in (upper, lower):
    ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()

# %% [markdown]
# A filled cross is a death, a hollow one hits a rank that is already dead. On the right, the points are the drawn
# times, and the lines are $e^{-t/\mu}$ and $e^{-t/n\mu}$ for n = 4 ranks. So each rank lives nμ on average,
# independently of the others, and **the rate belongs to a machine**: with fewer machines left there are fewer
# failures. And with more machines there are more: a job on ten thousand machines has a failure every few hours, even
# with good machines.
#
# ## 2 One training
#
# Three workers with a divided Adam, as in `18_backup`; first undisturbed, then with two spares and a death every 1.5 s
# on average. (We chose a seed with two early deaths and then none for a while. Otherwise the result would differ
# between fast and slow machines. Section 4 has the averages.)
#
# **Predict:** which ranks work in the end? Do the final parameters show that ranks have died?

# %%
my_members = predict("ranks that work in the end, as a list", ...)
my_visible = predict("the parameters differ from those of an undisturbed training", ..., "yes", "no")

# %%
recipe = {"optimizer": "adam", "lr": 0.002, "hidden": 256, "steps": 120}
divided = recipe | {"shard_optimizer": True}
runs = {"backup": launch("backup", ranks=3, **divided, out=folder / "backup")}

# %%
chaos = Chaos(1.5, seed=112412)
runs["backup, 1.5 s"] = launch("backup", ranks=5, spares=2, **divided, chaos=chaos, out=folder / "backup 1.5")
for fault in runs["backup, 1.5 s"].summary.faults:
    print(f"rank {fault['rank']} was killed at step {fault['step']}; the first step after that was done",
          f"{fault['resumed_s']:.2f} s later, {fault['steps_lost']} steps were lost")  # fmt: skip
print("at work in the end:", runs["backup, 1.5 s"].summary.members)


# %%
def drawn_lives(ax, run, ranks, spares):
    """Draw a line for each rank: when it works, waits, and dies."""
    lines = EventLog(run.folder / "logbook.jsonl").lines()
    starts = [line for line in lines if line.what == "start"]
    begin = starts[0].when
    died = {line.rank: line.when - begin for line in lines if line.what == "failure"}
    view = View.first(ranks, spares)
    for number, start in enumerate(starts):
        since = start.when - begin
        until = starts[number + 1].when - begin if start is not starts[-1] else run.summary.wall_s
        view = view.without([rank for rank in view.members if died.get(rank, until) < since])
        for rank in view.members:
            end = min(until, died.get(rank, until))
            colour = GREY if rank in view.spares else BLUE
            ax.barh(rank, end - since, left=since, height=0.5, color=colour, alpha=0.35 if colour == GREY else 1)
        if number:
            ax.text(since, -0.75 - 0.5 * (number % 2), f"from step {start.step}", fontsize=9, ha="left")
    for rank, when in died.items():
        ax.plot(when, rank, "X", color=RED, markersize=11)
    ax.set(xlabel="seconds", yticks=range(ranks), yticklabels=[f"rank {rank}" for rank in range(ranks)])
    ax.set_ylim(ranks - 0.4, -1.7)


figure, ax = plt.subplots(figsize=(9.5, 2.8))
drawn_lives(ax, runs["backup, 1.5 s"], ranks=5, spares=2)
for colour, alpha, label in ((BLUE, 1, "works"), (GREY, 0.35, "waits")):
    ax.barh(0, 0, color=colour, alpha=alpha, label=label)
ax.plot([], [], "X", color=RED, markersize=11, label="is killed")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
figure.tight_layout()

# %% tags=["nbval-check-output"]
healthy, struck = runs["backup"].summary, runs["backup, 1.5 s"].summary
log = EventLog(runs["backup, 1.5 s"].folder / "logbook.jsonl").lines()
died = {line.rank for line in log if line.what == "failure"}
print("the first to be drawn has died:", next(chaos.deaths(ranks=5))[1] in died)
print("none of the dead is at work in the end:", not died & set(struck.members))
print("each step once in the record:", [line["step"] for line in runs["backup, 1.5 s"].metrics] == list(range(120)))
print("samples in each step as undisturbed:", [line["samples"] for line in runs["backup, 1.5 s"].metrics]
      == [line["samples"] for line in runs["backup"].metrics])  # fmt: skip
places_filled = struck.ranks == 3
same = struck.params_sha256 == healthy.params_sha256
print("if all three places could be filled: the same parameters, to the bit:", same or not places_filled)
my_members.compare(struck.members)
my_visible.compare(not same)

# %% [markdown]
# Each death came at a random point of the training, and the result is that of an undisturbed run. (The repository's
# `make soak` does this with 75 training runs of four methods, and checks each time that the record is right, or that
# the run has reported why it could not continue.)
#
# ## 3 What a start costs
#
# Now `restart`, where all ranks begin again when one has died. It stops for a checkpoint every 40 steps
# (`checkpoint_async=False`, so that we measure the whole cost). Undisturbed, it tells us what a step and a checkpoint
# take:

# %%
saving = recipe | {"checkpoint_async": False}
runs["restart"] = launch("restart", ranks=3, **saving, checkpoint_every=40, out=folder / "restart")


def seconds_per_step(run):
    """Return the median, which leaves out whatever else happened between two steps."""
    return float(np.median(np.diff([line["wall_s"] for line in run.metrics])))


cost_s = float(np.median([event["dur"] / 1e6 for event in runs["restart"].trace if event["name"] == "checkpoint"]))
step_s = seconds_per_step(runs["restart"])
print(f"a step takes {step_s * 1e3:.1f} ms, a checkpoint {cost_s * 1e3:.0f} ms")

# %% [markdown]
# Now with failures, twice: a death every 4 s on average with a checkpoint every 40 steps, and a death every 1.5 s
# with a checkpoint every 20. Each start draws anew; with the same draw it would always die at the same moment.

# %%
chaos_of = {"restart, 4 s": Chaos(4.0, seed=20127), "restart, 1.5 s": Chaos(1.5, seed=94054)}
every = {"restart, 4 s": 40, "restart, 1.5 s": 20}
for name, chaos in chaos_of.items():
    runs[name] = supervised_launch(
        "restart", ranks=3, **saving, checkpoint_every=every[name], chaos=chaos, restarts=8, backoff_s=0.1,
        out=folder / name, announce=lambda line: print(line.split(";")[0]),
    )  # fmt: skip

# %%
again_s = {name: [fault["resumed_s"] for fault in runs[name].summary.faults] for name in chaos_of}
restart_s = float(np.median([seconds for found in again_s.values() for seconds in found]))
for name in ("restart", *chaos_of):
    summary = runs[name].summary
    print(f"{name + ':':16}{len(summary.faults)} deaths, finished after {summary.wall_s:5.1f} s")
print(f"from a death to the first step after it: {restart_s:.1f} s")

# %% tags=["nbval-check-output"]
for name in chaos_of:
    summary = runs[name].summary
    print(f"{name}: ranks died, and each time training continued:", len(summary.faults) > 0)
    print("   each step once in the record:", [line["step"] for line in runs[name].metrics] == list(range(120)))
    print("   the same parameters as undisturbed:", summary.params_sha256 == runs["restart"].summary.params_sha256)
print("backup and restart train the same model:", healthy.params_sha256 == runs["restart"].summary.params_sha256)


# %% [markdown]
# ## 4 Time to finish, against the rate
#
# One run says little: it may have been lucky. To know how long it takes *on average* we need hundreds of runs, which
# would take too long. But now we know what a step, a checkpoint and a start cost. So we **replay** runs in simulated
# time, with the same draws as the real ones. The program is short:


# %%
def replay(work_s, interval_s, cost_s, restart_s, chaos, ranks=3):
    """Return how long it takes to finish, in seconds, and the number of deaths.

    `interval_s` seconds of work lie between two checkpoints of `cost_s` each; a process that dies loses its work since
    the last one, and after `restart_s` the next start begins, with a draw of its own.
    """
    start, done_s, clock_s = 0, 0.0, 0.0
    while True:
        dies_s, _ = next(chaos.deaths(ranks, start))
        left_s = work_s - done_s
        needed_s = left_s + (np.ceil(left_s / interval_s) - 1) * cost_s
        if dies_s >= needed_s:
            return clock_s + needed_s, start
        done_s += dies_s // (interval_s + cost_s) * interval_s
        clock_s += dies_s + restart_s
        start += 1


# %% [markdown]
# Is the replay right? It must predict how long the two real runs took, because it has their draws. (Other programs
# may have used the machine, so for each run we use its own seconds for a step and for a start.)

# %%
for name, chaos in chaos_of.items():
    summary, own_s = runs[name].summary, seconds_per_step(runs[name])
    seconds, deaths = replay(120 * own_s, every[name] * own_s, cost_s, np.median(again_s[name]), chaos)
    print(f"{name + ':':16}{len(summary.faults)} deaths, {summary.wall_s:5.1f} s; replayed {deaths}, {seconds:5.1f} s")

# %% [markdown]
# Now we replay what would take too long to run: the same training, two hundred times at each rate, with Daly's
# interval between checkpoints. We do the same for backup: its copy is cheaper, and, more important, no process is
# started. But there a dead rank stays dead. The replay ignores that, as if there were always a spare. So the other
# picture shows when the spares are used up.
#
# **Predict:** machines live half an hour on average, and three workers have ten minutes of work. With how many spares
# are all three slots filled to the end, in nine cases of ten?

# %%
my_spares = predict("spares for nine cases of ten", ...)

# %%
WORK_S = 120 * step_s


def finished(copies_s, again_s, mtbf_s, seeds=200):
    """Return the seconds to finish of a number of runs, with Daly's interval, but one step at least."""
    interval_s = max(daly(copies_s, mtbf_s), step_s)
    return [replay(WORK_S, interval_s, copies_s, again_s, Chaos(mtbf_s, seed))[0] for seed in range(seeds)]


def all_places_filled(workers, spares, life_s, work_s=600.0, seeds=1000):
    """Return the share of runs in which no more ranks have died in the end than there were spares."""
    ranks = workers + spares
    draws = (Chaos(life_s / ranks, seed).deaths(ranks) for seed in range(seeds))
    deaths = [len({rank for _, rank in takewhile(lambda death: death[0] < work_s, draw)}) for draw in draws]
    return np.mean(np.array(deaths) <= spares)


copy_s = float(np.median([event["dur"] / 1e6 for event in runs["backup"].trace if event["name"] == "backup"]))
resume_s = float(np.median([fault["resumed_s"] for fault in struck.faults]))
mtbfs = np.array([1.5, 2, 3, 4, 6, 10, 20, 60])
times = {"restart": np.array([finished(cost_s, restart_s, mtbf) for mtbf in mtbfs]),
         "backup": np.array([finished(copy_s, resume_s, mtbf) for mtbf in mtbfs])}  # fmt: skip

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6))
for (name, found), colour in zip(times.items(), (RED, BLUE), strict=True):
    left.plot(60 / mtbfs, found.mean(axis=1), "o-", color=colour, label=f"{name}, mean of 200 replays", markersize=4)
    left.fill_between(60 / mtbfs, *np.percentile(found, (5, 95), axis=1), color=colour, alpha=0.2, linewidth=0)
    real = {run: 60 / float(run.split()[1]) if " " in run else 0 for run in runs if run.startswith(name)}
    left.plot(list(real.values()), [runs[run].summary.wall_s for run in real], "x", color=colour, markersize=10,
              markeredgewidth=2.5, label=f"{name}, real runs", clip_on=False, zorder=3)  # fmt: skip
left.set(xlabel="failures per minute, of the whole job", ylabel="seconds to finish", xlim=(0, None), ylim=(0, None))
lives = np.array([5, 10, 20, 30, 60, 120, 240])  # minutes
for spares, colour in zip((0, 1, 2, 3, 5), (RED, ORANGE, GREEN, BLUE, "black"), strict=True):
    filled = [all_places_filled(3, spares, 60.0 * life) for life in lives]
    right.semilogx(lives, filled, "o-", color=colour, markersize=4, label=f"spares: {spares}")
right.axhline(0.9, color=GREY, linestyle="--", linewidth=1)
right.set(xlabel="a machine's life in minutes, on average", ylim=(0, 1.02))
right.set(ylabel="share of runs in which all 3 places\nare filled for 10 minutes", xticks=lives, xticklabels=lives)
right.minorticks_off()
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9)
figure.tight_layout()
print(f"restart: {cost_s * 1e3:.0f} ms a checkpoint, {restart_s:.1f} s to continue;",
      f"backup: {copy_s * 1e3:.1f} ms a copy, {resume_s:.2f} s to continue")  # fmt: skip
slower = {name: found[0].mean() / WORK_S for name, found in times.items()}
print("at 40 failures a minute the replays take, as multiples of the work:",
      ", ".join(f"{name} {ratio:.2f}" for name, ratio in slower.items()))  # fmt: skip

# %% tags=["nbval-check-output"]
print("3 workers, machines that live half an hour, 10 minutes of work; all places filled to the end:")
dies = 1 - exp(-600 / 1800)  # one machine
for spares in range(6):
    ranks = 3 + spares
    binomial = sum(comb(ranks, dead) * dies**dead * (1 - dies) ** (ranks - dead) for dead in range(spares + 1))
    found, dead = all_places_filled(3, spares, 1800.0), ranks * dies
    print(f"spares {spares}: in {found:4.0%} of 1000 runs, calculated {binomial:4.0%}; deaths, on average {dead:.1f}")
filled = [sum(comb(3 + spares, dead) * dies**dead * (1 - dies) ** (3 + spares - dead) for dead in range(spares + 1))
          for spares in range(6)]  # fmt: skip
my_spares.compare(next(spares for spares, chance in enumerate(filled) if chance >= 0.9))

# %% [markdown]
# On the left the strips contain nine of ten runs, and a cross is a real one. (We chose their seeds so that some rank
# dies and this notebook finishes: they say nothing about luck.) With restart each failure costs a start, which takes
# about as long here as the whole training; with backup a failure costs hardly anything. The right picture shows the
# price: a spare must be there to take the slot, and a waiting spare dies as easily as a worker. About one death is
# expected, and one spare is enough in two cases of three. Nine cases of ten need three spares: spares insure against
# *bad luck*, not against the mean.
#
# When no spare is left, `backup` and `membership` continue with fewer workers, down to the last. `restart` needs no
# spares, only a supervisor that starts it, and machines to start it on.
#
# ## 5 How often to save, once more
#
# So far we have trusted Daly's formula. Now we can test whether its interval is the best. The work is ten minutes, μ
# = 20 s, a checkpoint takes 10 ms, and a start 2.5 s, as on a slower computer. We replay 200 runs for each interval,
# with the *same* 200 seeds for all intervals, so that they can be compared.
#
# Deaths happen only while training runs (a starting process does not die), so the expected time is
#
# $$ \frac{W}{T}\,(\mu + R)\,\bigl(e^{(T+C)/\mu} - 1\bigr) $$
#
# with work W, interval T, checkpoint C and restart R. In Daly's formula a restart may fail, too, which makes the
# factor before the bracket $\mu e^{R/\mu}$; the best T is the same.
#
# **Predict:** twice the best interval costs how much more, in per cent of all the time? And how much do two runs with
# the *same* interval differ, by luck?

# %%
my_interval = predict("per cent more with twice the best interval", ...)
my_luck = predict("per cent by which luck makes runs differ", ...)

# %%
LONG_S, MTBF_S = 600.0, 20.0
CHECKPOINT_S, START_S = 0.01, 2.5
best_s = daly(CHECKPOINT_S, MTBF_S)
intervals = best_s * 2.0 ** np.arange(-5, 6)
sweep = np.array([
    [replay(LONG_S, interval, CHECKPOINT_S, START_S, Chaos(MTBF_S, seed))[0] for seed in range(200)]
    for interval in intervals
])  # fmt: skip


def expected(interval_s):
    return LONG_S / interval_s * (MTBF_S + START_S) * expm1((interval_s + CHECKPOINT_S) / MTBF_S)


mean_s, luck_s = sweep.mean(axis=1), sweep.std(axis=1, ddof=1)
error_s = luck_s / np.sqrt(sweep.shape[1])
figure, ax = plt.subplots(figsize=(9.5, 3.6))
strip = np.percentile(sweep, (5, 95), axis=1)
ax.fill_between(intervals, *strip, color=BLUE, alpha=0.15, linewidth=0, label="nine of ten runs")
ax.errorbar(intervals, mean_s, 2 * error_s, fmt="o", color=BLUE, capsize=4, zorder=3, label="mean of 200, ± 2 SE")
fine = np.geomspace(intervals[0], intervals[-1], 200)
ax.plot(fine, [expected(interval) for interval in fine], color=GREY, zorder=1, label="the formula")
ax.plot(best_s, expected(best_s), "*", color=RED, markersize=15, zorder=4, label="Daly's interval")
ax.axhline(LONG_S, color=GREY, linestyle="--", linewidth=1)
ax.set(xscale="log", xlabel="seconds of work between two checkpoints", ylabel="seconds to finish", ylim=(550, None))
ax.xaxis.set_major_formatter("{x:g}")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, ncols=2, fontsize=9)
figure.tight_layout()

best, twice = sweep[5], sweep[6]
print(f"Daly: every {best_s:.2f} s, {best_s / step_s:.0f} steps (Young: {young(CHECKPOINT_S, MTBF_S):.2f} s)")
more_s = twice.mean() - best.mean()
print(f"at Daly's interval {best.mean():.0f} s on average; with twice as long an interval {more_s / best.mean():+.1%}")
print(f"by luck one run differs from the mean by {best.std() / best.mean():.1%}")
my_interval.compare(100 * more_s / best.mean(), within=0.5)
my_luck.compare(100 * best.std() / best.mean(), within=0.3)

# %% tags=["nbval-check-output"]
print("intervals, as multiples of Daly's:", *(f"{ratio:g}" for ratio in intervals / best_s))
apart = np.abs(mean_s / np.array([expected(interval) for interval in intervals]) - 1)
print("the means are the formula's, within 3 %:", bool(apart[:10].max() < 0.03))
least = intervals[mean_s.argmin()] / best_s
print("the least mean is at Daly's interval, or at half or twice that:", least in (0.5, 1, 2))
print("32 times too often or 32 times too seldom is worse:", bool(min(mean_s[0], mean_s[-1]) > 1.1 * mean_s[5]))
worse_s = max(mean_s[4], mean_s[6]) - mean_s[5]
print("luck makes a greater difference than half or twice the interval:", bool(luck_s[5] > worse_s))

# %% [markdown]
# The points lie on the curve, and the star is where they are lowest. But look at the strip. **Luck has a larger
# effect than the interval**, unless the interval is wrong by a factor of four: to try two intervals once each and
# take the faster one is to decide by chance. That is why the interval comes from a formula, why rough parameters are
# enough, and why this section uses no real runs. The two real runs are in section 4, and the replay agrees with their
# records.
#
# ## 6 Messages that do not arrive
#
# A rank may be alive while its messages get lost (通信可能会失败). On a real network TCP hides that; MPI over memory
# never loses a message. So we inject it: from a step on, `how=drop` loses a share of a rank's messages, `how=delay`
# delivers them late, `how=duplicate` delivers them twice. A thin layer repairs this: each message has a number and is
# sent again until it is acknowledged, and the receiver sorts messages and discards duplicates. It is a state machine
# without MPI (`runtime/reliable.py`), so we can play the network ourselves:

# %% tags=["nbval-check-output"]
sender, receiver = Channel(), Channel()
first, second = (sender.send(tag=0, payload=text, now=0.0) for text in (b"first", b"second"))
acknowledgement, delivered = receiver.receive(second, now=0.01)  # the first one is lost on the way
print("delivered:", [frame.payload for frame in delivered])
sender.receive(acknowledgement, now=0.02)
print("sent again at 0.1 s:", [frame.payload for frame in sender.again(now=0.1)])
print("sent again at 0.3 s:", [frame.payload for frame in sender.again(now=0.3)])
acknowledgement, delivered = receiver.receive(first, now=0.31)
print("delivered:", [frame.payload for frame in delivered], "- in order, though the second came first")
receiver.receive(first, now=0.32)
print("and if it comes once more:", receiver.duplicates, "copy discarded")

# %% [markdown]
# Now with real ranks: rank 2 loses a fifth of its messages, including acknowledgements, and rank 0 sends everything
# twice.

# %%
recipe = {"ranks": 4, "steps": 20, "hidden": 32}
safe = launch("sync_sgd", **recipe, out=folder / "safe").summary
faults = ["rank=2,step=5,how=drop,share=0.2", "rank=0,step=0,how=duplicate,share=1"]
struck = launch("sync_sgd", **recipe, fail=faults, out=folder / "struck").summary
print({fault["kind"]: fault["messages"] for fault in struck.faults}, "messages struck")
print("sent again:", struck.delivery["repeated"], "  copies discarded:", struck.delivery["discarded"])
print(f"{safe.wall_s:.2f} s without, {struck.wall_s:.2f} s with")

# %% tags=["nbval-check-output"]
print("the same parameters, to the bit:", struck.params_sha256 == safe.params_sha256)
more = [sent - before for sent, before in zip(struck.bytes_sent, safe.bytes_sent, strict=True)]
print("the bytes beyond the undisturbed run's are those sent again:", more == struck.delivery["repeated_bytes"])

# %% [markdown]
# The main cost is time: a lost message delays its receiver by a time-out, and in a ring all ranks wait for that
# receiver.
#
# A message may also be corrupted. `how=corrupt` flips one bit, as faulty memory does. Training continues, and nothing
# looks wrong (静默数据损坏, silent data corruption). `--checksum` detects the corrupted message and has it sent
# again; `--audit` compares the sums of gradients on all ranks, and ends the run if they differ.

# %% tags=["nbval-check-output"]
corrupt = "rank=2,step=5,how=corrupt,share=0.2"
silent = launch("sync_sgd", **recipe, fail=corrupt, out=folder / "silent").summary
print("without a check, the same parameters:", silent.params_sha256 == safe.params_sha256)
checked = launch("sync_sgd", **recipe, fail=corrupt, checksum=True, out=folder / "checked").summary
print("with checksums, the same parameters:", checked.params_sha256 == safe.params_sha256)
found, changed = sum(checked.delivery["corrupted"]), checked.faults[0]["messages"]
print("each changed message was found:", found == changed > 0)
try:
    launch("sync_sgd", **recipe, fail=corrupt, audit=True, out=folder / "audited")
except LaunchError as error:
    print("with an audit:", error.message.partition("--audit: ")[2])

# %% [markdown]
# And a rank may be alive but cut off from the others (`how=partition`). In `membership` and `backup` each side would
# declare the other dead and continue: two models (脑裂, split brain). So a rank that receives messages from less than
# half of all ranks ends itself.
#
# ## 7 What is promised
#
# | under `--chaos` | continues while | ends with a message when |
# |---|---|---|
# | `restart`, supervised | a supervisor starts it again | the restarts are used up |
# | `membership` | one worker lives | every worker has died |
# | `backup` | as `membership` | that; or a worker and its buddy die together, and nothing is on disk |
# | `sync_sgd`, and every method that survives no death | no rank dies | a rank dies |
#
# ## What you have seen
#
# - A failure rate belongs to machines: n of them fail n times as often. No failure is ever *due*.
# - Even with real deaths at random moments the parameters are the same, to the bit.
# - With restart every failure costs a start; with backup it costs almost nothing, as long as there is a spare.
# - As many spares as expected deaths are often too few: spares insure against bad luck.
# - Lost, late and duplicate messages cost time and bytes but change no parameter, thanks to numbers, acknowledgements
#   and time-outs.
# - Daly's interval is the best one, and it could hardly be found by trying: chance has a larger effect.
#
# ## What to try
#
# 1. `launch("sync_sgd", ranks=4, steps=5000, chaos="mtbf=2s,seed=1")`: a method without fault tolerance. What does it
#    report?
# 2. `launch("membership", ranks=5, steps=2000, chaos="mtbf=0.5s,seed=3")`: how many are left? Look for a seed with
#    which none is.
# 3. In section 4 start a new spare after every death (the rank that died can be drawn again, and dies again). Which
#    of the two pictures changes, and how?
# 4. Real machines age, and fail more often when new. Replace the exponential distribution in `replay` by a Weibull
#    distribution of the same mean with shape 0.7 (`random.weibullvariate`). Is Daly's interval still the best?
# 5. `restart` with `mtbf=20` (the option) sets its interval by each checkpoint's cost. How near does it come to the
#    star?
# 6. `share=1` in section 6: which rank gives up, after how many tries, and what does it report?
