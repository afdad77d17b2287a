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
# # 11 · Online training
#
# **Question:** the world changes while a model is trained, and while it is used. How does a model keep up, and how do
# its users always get a fresh one?
#
# So far a training set was fixed, was used many times, and the model was evaluated at the end. In **online
# incremental training** (在线增量训练) samples arrive one after another, each of them *once*, and they change.
# Document 000 mentions it as a way to answer within milliseconds. But the response time is a matter of serving, not
# of training (erratum 000.27). Online training gives a model that is **up to date**.
#
# Three things are new here: a stream that drifts, a test that needs no test set, and a *reader*, which fetches the
# parameters from the servers during training.

# %%
# %load_ext farandole
import tempfile
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.data import datasets
from farandole.data.streams import RotatingDigits
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, RED
from farandole.report.curves import smooth
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 A world that turns
#
# Our stream consists of real handwritten digits that turn, further and further, by 90 degrees from its first sample to
# its last. That is how **drift** is studied: we do not know when a real stream changes, but here we know it for every
# sample.
#
# The stream is dealt to the workers like cards, position *p* to worker *p* mod *n*, so that all of them see the same
# angle at the same time.

# %%
train = datasets.split(datasets.load("digits"), seed=0).train
stream = RotatingDigits(train, samples_total=9, degrees=90, seed=3, batch=9)
images, labels = next(stream)
figure, axes = plt.subplots(1, 9, figsize=(9, 1.5))
for ax, image, label, angle in zip(axes, images, labels, stream.angles(np.arange(9)), strict=True):
    ax.imshow(image[0], cmap="gray_r")
    ax.set_title(f"a {label}, {angle:.0f}°", fontsize=9)
    ax.axis("off")

# %% tags=["nbval-check-output"]
parts = [RotatingDigits(train, 20, 90, seed=0, worker=worker, workers=3, batch=4) for worker in range(3)]
for worker, part in enumerate(parts):
    positions = part.positions(0)
    print(f"worker {worker}, first batch: positions {positions}, degrees {part.angles(positions).round(1)}")
everything = np.concatenate([part.positions(step) for part in parts for step in range(part.steps)])
print("each of the 20 positions exactly once:", sorted(everything.tolist()) == list(range(20)))

# %% [markdown]
# ## 2 Test, then train
#
# How good is the model *now*? A test set put aside at the beginning shows upright digits: it measures how good the
# model would have been then. But a stream brings its own test. The model first **predicts** every sample, with
# parameters that have not seen it, and then **learns** from it. The share of correct predictions is the *prequential*
# (predictive sequential) accuracy (Dawid 1984; Gama and others 2013). Nothing has to be put aside, nothing is used
# twice, and one forward pass serves for both.
#
# Here it is in plain numpy, with one matrix as the model, and beside it a copy that stops learning after a fifth
# of the stream.
#
# **Predict:** how many of the last samples, which are turned by more than 80 degrees, will the copy get right?
# Guessing at random would be 1 in 10.

# %%
my_right = predict("samples that the copy gets right, of 10", ...)

# %% tags=["nbval-check-output"]
theta = np.zeros((64, 10))
frozen = theta
online_right, frozen_right = [], []
stream = RotatingDigits(train, samples_total=10_000, degrees=90, seed=0, batch=50)
for step, (images, labels) in enumerate(stream):
    pixels = images.reshape(len(images), 64)
    if step <= stream.steps // 5:
        frozen = theta  # from here on it stays behind

    scores = pixels @ theta
    online_right.append((scores.argmax(axis=1) == labels).mean())  # the test …
    frozen_right.append(((pixels @ frozen).argmax(axis=1) == labels).mean())

    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    theta = theta - 0.5 * pixels.T @ chances / len(labels)  # … and the training, from the same scores

last = slice(-20, None)
print("the last tenth: online more than 6 of 10 right:", bool(np.mean(online_right[last]) > 0.6))
print("the last tenth: frozen fewer than 3 of 10 right:", bool(np.mean(frozen_right[last]) < 0.3))
my_right.compare(10 * np.mean(frozen_right[last]), within=0.25)

# %% [markdown]
# The copy has become *worse than when it was learned*, though it has not changed. A model in use gets outdated
# without any change, just because the world changes.
#
# ## 3 To read what others are writing
#
# Now we use the model while it is trained. The easiest way would be to read the server's memory at any time. What
# could go wrong? An update changes 26,122 numbers one after another. A reader that reads during an update gets a
# model that never existed: half old, half new, a **torn read**.
#
# A server prevents that by handling one message at a time: while it sends an answer, it applies no update. Below,
# rank 1 pushes as fast as it can and rank 2 reads as fast as it can. Every update adds 1 to all numbers. So in
# *version* v, after v updates, all numbers must be v.
#
# **Predict:** rank 2 reads 50 times while 300 updates come in. Will it see version after version, or skip some?

# %%
my_versions = predict("the reader", ..., "sees every version", "skips some")

# %% tags=["nbval-check-output"]
# %%mpi -n 3 --keep versions
import numpy as np
from mpi4py import MPI

PUSH, READ, VALUES, END = range(4)
comm, status = MPI.COMM_WORLD, MPI.Status()
values, one = np.zeros(100_000), np.ones(100_000)
versions = []  # that the reader sees

if comm.rank == 0:  # the server
    version, present = 0, 2
    buffer = np.empty_like(values)
    while present:
        comm.Probe(status=status)
        source, tag = status.source, status.tag
        comm.Recv(buffer[: status.Get_count(MPI.DOUBLE)], source, tag)
        if tag == PUSH:
            values += buffer
            version += 1
        elif tag == READ:
            comm.Send(np.array([float(version)]), source, VALUES)
            comm.Send(values, source, VALUES)  # returns when it has left: until then no update
        else:
            present -= 1
    print(f"server: {version} updates")
elif comm.rank == 1:  # a worker
    for _ in range(300):
        comm.Send(one, 0, PUSH)
    comm.Send(one[:1], 0, END)
else:  # the reader
    torn = 0
    for _ in range(50):
        comm.Send(one[:1], 0, READ)
        version = np.empty(1)
        comm.Recv(version, 0, VALUES)
        comm.Recv(values, 0, VALUES)
        torn += bool((values != version[0]).any())
        versions.append(int(version[0]))
    comm.Send(one[:1], 0, END)
    print("reader: torn reads:", torn)
    print("reader: versions never go back:", versions == sorted(versions))

# %% tags=["nbval-check-output"]
seen = set(versions[2])
my_versions.compare("sees every version" if seen == set(range(300 + 1)) else "skips some")

# %% [markdown]
# It skips some, and reads some twice: it reads at any time, and no worker waits for it. A worker is different: it has
# a *clock*, and policies make other workers wait for it. A reader has none.
#
# With several servers each part is of one version, but the parts may be a few updates apart, exactly as for a worker
# that pulls.
#
# ## 4 All of it together
#
# The scenario `online`: rank 0 manages, rank 1 is the server, ranks 2 and 3 are workers, rank 4 reads the parameters
# twice a second and answers questions all the time: digits that no worker has ever seen, at the stream's current
# angle. The stream brings 5,000 samples a second.

# %%
recipe = {"ranks": 5, "samples": 10_000, "degrees": 90, "batch": 48, "sync": "async", "rate": 5000}
runs = {0.5: launch("online", **recipe, publish_every=0.5, out=folder / "half a second")}
run = runs[0.5]

# %%
metrics, served = sorted(run.metrics, key=lambda line: line["angle"]), run.serving
angles = [line["angle"] for line in metrics]
figure, ax = plt.subplots(figsize=(9, 3.4))
for name, label, colour in (("test_then_train", "workers, test-then-train", BLUE), ("frozen", "frozen copy", RED)):
    ax.plot(angles, smooth(np.array([line[name] for line in metrics]), 12), color=colour, label=label)
right = smooth(np.array([line["accuracy"] for line in served]), 3)
ax.plot([line["angle"] for line in served], right, ".-", color=GREEN, linewidth=1, label="what the reader answers")
readings = [new["angle"] for old, new in pairwise(served) if new["reading"] > old["reading"]]
for angle in readings:
    ax.axvline(angle, color=GREY, linewidth=0.8, zorder=0)
ax.set(xlabel="degrees by which the digits are turned", ylabel="share of right answers", ylim=(0, 1))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncol=3)
figure.tight_layout()

# %% [markdown]
# Each grey line is a reading. Between two of them the reader answers with parameters that get older, and the green
# line falls until the next reading raises it. At the very beginning it knows nothing at all: the first reading came
# before the first update.
#
# What must hold, whatever the speed of your computer:

# %% tags=["nbval-check-output"]
summary = run.summary
at_the_end = [line for line in metrics if line["angle"] > 81]
online, frozen = (np.mean([line[name] for line in at_the_end]) for name in ("test_then_train", "frozen"))
versions = [line["versions"]["1"] for line in served]
print("samples tested, each once, and then trained on:", sum(line["samples"] for line in metrics))
print("updates by the server:", summary.steps, "= pushes by two workers:", sum(summary.staleness.values()))
print("online beats frozen by more than 0.3 at the end:", bool(online - frozen > 0.3))
print("the reader's versions never go back:", versions == sorted(versions))
print("its last answers are by the final parameters:", versions[-1] == summary.steps)

# %% [markdown]
# ## 5 How often should one publish?
#
# A reading costs a copy of all parameters over the network: 104 kB here, gigabytes for a large model. So a reader
# should read rarely.
#
# **Predict:** the stream lasts 2 seconds. What does the reader lose if it reads every second, and what does it gain
# with ten readings a second?

# %%
my_seldom = predict("right answers with a reading every second (0 to 1)", ...)
my_often = predict("right answers with ten readings a second (0 to 1)", ...)

# %%
for seconds in (0.1, 1.0):
    runs[seconds] = launch("online", **recipe, publish_every=seconds, out=folder / f"{seconds} s")


def after_the_start(run):
    """Return what the reader answered once the model had learned something, by parameters of that time."""
    return [line for line in run.serving if line["angle"] > 30 and line["reading"] > 0]


def mean(lines, name):
    return float(np.mean([line[name] for line in lines]))


print("published every   readings   mean age   in updates   right answers")
for seconds in sorted(runs):
    lines, count = after_the_start(runs[seconds]), runs[seconds].serving[-1]["reading"] + 1
    age = f"{mean(lines, 'age_s'):8.2f} s{mean(lines, 'age_updates'):13.0f}"
    print(f"{seconds:13} s{count:11}{age}{mean(lines, 'accuracy'):16.2f}")
my_seldom.compare(mean(after_the_start(runs[1.0]), "accuracy"), within=0.15)
my_often.compare(mean(after_the_start(runs[0.1]), "accuracy"), within=0.15)

# %%
figure, ax = plt.subplots(figsize=(9, 3))
for seconds, colour in zip(sorted(runs), (BLUE, GREEN, ORANGE), strict=True):
    lines = after_the_start(runs[seconds])
    turned = [line["age_updates"] / runs[seconds].summary.steps * 90 for line in lines]
    ax.scatter(turned, [line["accuracy"] for line in lines], s=14, color=colour, label=f"every {seconds} s")
ax.set(xlabel="degrees that the stream has turned since the parameters were read", ylabel="right answers", ylim=(0, 1))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
figure.tight_layout()

# %% tags=["nbval-check-output"]
for seconds in sorted(runs):
    versions = [line["versions"]["1"] for line in runs[seconds].serving]
    print(f"every {seconds} s: the versions never go back: {versions == sorted(versions)};",
          f"the last answers are by the final parameters: {versions[-1] == runs[seconds].summary.steps}")  # fmt: skip

# %% [markdown]
# The points of all intervals go down together: what counts is not the interval but **how far the world has turned**
# since the reading. So the right interval depends on how fast *your* stream drifts: it is what you may lose, divided by
# the slope. The age in updates is the matching measure: while nothing is learned, old parameters are as good as new
# ones.
#
# The height at which the points begin, on the left, differs from one reading to the next. A reading gets the model of
# that moment, and with a large learning rate single steps of SGD can be bad (the dips of the blue line above). A
# reader that reads rarely uses bad parameters for a long time.
#
# ## 6 Is training held up?
#
# The reader has no clock, so no policy waits for it. But reading is not free. While the server answers the reader it
# applies no update, and on a computer with few cores the reader's computing takes time from the workers.
#
# **Predict:** did the three runs above take different times, with 1, 2 and 10 readings a second? And how much slower
# are workers that take samples as fast as they can, if a reader reads twenty times a second?

# %%
my_times = predict("the three runs differ by more than a tenth", ..., "yes", "no")
my_slower = predict("per cent by which 20 readings a second slow the workers", ...)

# %%
for seconds in sorted(runs):
    print(f"5,000 samples/s offered, read every {seconds} s: {runs[seconds].summary.samples_per_s:,.0f} samples/s")

fast = recipe | {"rate": None}
held_up = {
    "no reader": launch("online", **fast | {"ranks": 4}, readers=0, out=folder / "no reader"),
    "20 readings/s": launch("online", **fast, publish_every=0.05, out=folder / "often"),
}
for name, run in held_up.items():
    print(f"as fast as they can, {name}: {run.summary.samples_per_s:,.0f} samples/s")
rates = [runs[seconds].summary.samples_per_s for seconds in sorted(runs)]
my_times.compare(max(rates) > 1.1 * min(rates))
without, often = (run.summary.samples_per_s for run in held_up.values())
my_slower.compare(100 * (1 - often / without), within=0.3)

# %% tags=["nbval-check-output"]
for name, run in held_up.items():
    readings = len({line["reading"] for line in run.serving})
    print(f"{name}: {sum(run.summary.lead.values())} iterations, {run.summary.steps} updates; read: {readings > 0}")

# %% [markdown]
# The same iterations, the same updates: the reader does not appear in the training's counts. It costs only its share
# of the cores and of the server's time. Two runs on a busy computer differ by more than that, so do not trust a
# single pair: run the cell again. With many readers, let them read from a *copy* of the servers.
#
# ## What you have seen
#
# - A model that stops learning gets worse when its data drift; one that continues to learn follows.
# - A stream is its own test: predict first, learn then. One forward pass does both.
# - A reader without a clock gets whole parameters, never torn ones, from servers that are being updated.
# - How old parameters may be depends on the drift. Measure their age in updates, not only in seconds.
#
# ## What to try
#
# 1. Set `degrees=0`. Is the frozen copy still worse? Why does it lose even now? (`freeze_after` helps to find out.)
# 2. Set `degrees=720`. Can the workers still follow? At which drift per sample does online learning break down, and
#    what does a larger learning rate do?
# 3. Give a worker trouble: `slow="rank=3,factor=6"`, once with `sync="async"`, once with `sync="ssp"`, without
#    `rate`. In which of the two do samples of very different angles meet in one model? Look at `angle` and `staleness`.
# 4. Make the reader slow: `slow="rank=4,factor=20"`. What gets older, and what does not change?
# 5. `ranks=6, readers=2`: do two readers always answer with the same version?
# 6. A reader could average its last few readings before it answers. What happens at bad moments, and to the age?
# 7. In section 3 let the server answer with `comm.Isend` and continue at once. Which line of the output changes?
