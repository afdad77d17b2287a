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
# # 05 · Overlap
#
# **Question:** can the gradient travel while backward still computes?
#
# A step of synchronous SGD, as `03_synchronous_sgd` has it, does one thing after the other: forward, backward, the
# all-reduce, the update. Document 002 adds the times up, $C = T_\text{comm} + T_\text{comp}$. But the sum holds only if
# nothing is done at the same time (erratum 002.2). With perfect **overlap** (计算与通信重叠) a step takes the *larger*
# of the two, and real steps lie between. This notebook shows how much overlap gains, and what that depends on.
#
# Document 001's program has an argument, `DDP(model, delay_allreduce=True)`, that turns overlap off. Section 9 comes
# back to it.

# %%
# %load_ext farandole
import inspect
import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from farandole import launch
from farandole.collectives.costs import Link, Machine, predicted_s
from farandole.collectives.ring import RING
from farandole.data import datasets
from farandole.data_parallel.buckets import cut
from farandole.data_parallel.overlapped import OverlappedSGD
from farandole.models.classifiers import mlp
from farandole.models.transformer import transformer
from farandole.report import timeline
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 The last layer comes first
#
# Backward is the chain rule, and the chain begins at the loss. So it computes the gradient of the *last* layer, then of
# the one before, and it ends with the first layer. A hook on each parameter tells us when its gradient is there.
#
# **Predict:** in which order do four layers report? When the last one has, will anything that is still to be computed
# change its gradient?

# %%
my_order = predict("the order in which layers report", ..., order=["layer 0", "layer 1", "layer 2", "layer 3"])

# %% tags=["nbval-check-output"]
torch.manual_seed(0)
model = mlp((1, 28, 28), 10, hidden=1024, depth=3)
lengths = [parameter.numel() for parameter in model.parameters()]
layers = {name: f"layer {number // 2}" for number, (name, _) in enumerate(model.named_parameters())}
reported = []
for name, parameter in model.named_parameters():
    parameter.register_post_accumulate_grad_hook(lambda _, name=name: reported.append(name))

model(torch.rand(8, 1, 28, 28)).square().mean().backward()
print("in the model:  ", ", ".join(dict.fromkeys(layers.values())))
print("in backward:   ", ", ".join(dict.fromkeys(layers[name] for name in reported)))
print("each parameter has reported once:", sorted(reported) == sorted(layers))
my_order.compare([*dict.fromkeys(layers[name] for name in reported)])

# %% [markdown]
# Nothing will: layer 3's gradient is final while those of three layers are still to come. It could be sent now.
#
# One message for each parameter would be too many. So several parameters share a **bucket** (梯度桶), and a bucket is
# sent when it is complete. Buckets are cut from the end, in the order in which backward fills them; a parameter that
# is larger than a bucket gets a separate one.

# %% tags=["nbval-check-output"]
BUCKET_KB = 4300
buckets = cut(lengths, 1000 * BUCKET_KB // 4)
for number, bucket in enumerate(buckets):
    elements = bucket.place.stop - bucket.place.start
    print(f"bucket {number}: {4 * elements / 1e3:7,.0f} KB, parameters {[*bucket.parameters]}")

# %%
figure, ax = plt.subplots(figsize=(9.5, 1.7))
for number, bucket in enumerate(buckets):
    ax.barh(0, (bucket.place.stop - bucket.place.start) / 1e3, left=bucket.place.start / 1e3, color=SERIES[number])
    middle = (bucket.place.start + bucket.place.stop) / 2e3
    ax.text(middle, 0, f"bucket {number}", ha="center", va="center", color="white", fontweight="bold")
for layer, start in enumerate(np.cumsum([0, *lengths])[:-1:2]):
    ax.axvline(start / 1e3, ymin=0.05, color="black", linewidth=0.8)
    ax.text(start / 1e3 + 4, 0.5, f"layer {layer}", fontsize=9)
ax.annotate("", (0, -0.62), (sum(lengths) / 1e3, -0.62), arrowprops={"arrowstyle": "->"}, annotation_clip=False)
ax.text(sum(lengths) / 2e3, -0.9, "backward", ha="center", fontsize=9)
ax.set(
    yticks=[], xlim=(0, sum(lengths) / 1e3), ylim=(-1.0, 0.75), xlabel="place in the flat gradient, thousand elements"
)
ax.spines[["top", "right", "left"]].set_visible(False)
figure.tight_layout()

# %% [markdown]
# Three buckets for eight parameters. The first to be sent is the rightmost; the last layer, with its ten outputs, is
# the thin strip at the far end.
#
# ## 2 By hand
#
# All it takes is an all-reduce that is *begun* in one call and waited for in another, as MPI has it: `Iallreduce`
# returns at once, with a request. Here is a network of four layers in plain numpy, its backward written out, and the
# all-reduce begun in the middle of it. The only rule: no code may touch a gradient while it is being sent.
#
# **Predict:** which is the first line in which the result of a communication is needed?

# %% tags=["nbval-check-output"]
# %%mpi -n 4
import numpy as np
from mpi4py import MPI

SHAPES, SAMPLES, RATE = ((20, 30), (30, 30), (30, 30), (30, 5)), 32, 0.5
comm = MPI.COMM_WORLD
random = np.random.default_rng(0)
start = [random.normal(size=shape) / 5 for shape in SHAPES]
inputs, targets = random.normal(size=(SAMPLES, 20)), random.normal(size=(SAMPLES, 5))


def backward(layers, rows, is_there):
    """Half the mean squared distance; `is_there` gets each layer's gradient as soon as it is computed."""
    kept = [inputs[rows]]
    for layer in layers:
        kept.append(np.tanh(kept[-1] @ layer))
    slope = (kept[-1] - targets[rows]) / SAMPLES  # the shares of all ranks are in here already
    for number in reversed(range(len(layers))):
        slope = slope * (1 - kept[number + 1] ** 2)
        is_there(number, kept[number].T @ slope)
        slope = slope @ layers[number].T


def step(layers):
    """One step on this rank's part of the batch; says what has happened, in order."""
    gradients, requests, said = {}, [], []

    def begin(number, gradient):
        gradients[number] = gradient
        requests.append(comm.Iallreduce(MPI.IN_PLACE, gradient))  # it is on its way …
        said.append(f"layer {number} begins")

    backward(layers, np.array_split(np.arange(SAMPLES), comm.size)[comm.rank], begin)  # … while the next is computed
    said.append("backward is over")
    MPI.Request.Waitall(requests)
    said.append("all sums are there")
    for number, gradient in gradients.items():
        layers[number] -= RATE * gradient
    return said


def step_alone(layers):
    """The same in one process, on the whole batch."""
    gradients = {}
    backward(layers, np.arange(SAMPLES), gradients.__setitem__)
    for number, gradient in gradients.items():
        layers[number] -= RATE * gradient


together, alone = ([layer.copy() for layer in start] for _ in range(2))
for _ in range(10):
    said = step(together)
    step_alone(alone)
if comm.rank == 0:
    print("\n".join(said))
    difference = max(abs(here - there).max() for here, there in zip(together, alone, strict=True))
    print("after ten steps the same as in one process, to 1e-12:", bool(difference < 1e-12))

# %% [markdown]
# `Waitall` is that line. All code between the first *begins* and that line was free to do something else.
#
# This does not show that MPI really sends during those lines. A request that has begun is not complete: a network
# card or a processor has to move the bytes. MPI, as we run it, moves them mostly when it is called. That is why our
# own implementation uses a thread.
#
# ## 3 The real thing
#
# `OverlappedSGD` in `data_parallel/overlapped.py` registers a hook on each parameter. Here are its step, the hook,
# and what the hook passes to the thread. (`self.copies` moves buckets between a card and the host; on a CPU it does
# nothing.)

# %%
for part in (
    OverlappedSGD.step,
    OverlappedSGD._gradient_is_there,
    OverlappedSGD._hand_over_next,
    OverlappedSGD._reduce,
):
    print(inspect.getsource(part))

# %% [markdown]
# Four things in it are easy to get wrong:
#
# - **One order.** Two ranks that reduce different buckets at the same time add up nonsense, or wait for ever. So all
#   ranks reduce their buckets in the same order. A complete bucket waits for those before it.
# - **Missing gradients.** A parameter that was not used gets no gradient, and its hook is not called. After backward,
#   all remaining buckets are sent.
# - **A thread, and one only,** so the second all-reduce begins when the first is done, on every rank. The thread has
#   a separate communicator: its messages cannot be confused with others.
# - **The weighted mean.** A rank's share is multiplied in *before* the sum, as in notebook 03.
#
# Without `--overlap`, `--bucket-kb` alone reduces the same buckets in the same order, but only when backward is over.
# Two ranks train the model of section 1 in both ways, and with the gradient in one piece as in notebook 03.
#
# **Predict:** which of the three give the same parameters to the last bit? Which sends the most bytes, and which the
# most messages?

# %%
my_results = predict("different results of the three", ...)
my_bytes = predict("all three send the same bytes", ..., "yes", "no")
my_most = predict("the most messages", ..., "in one piece", "in buckets")

# %%
recipe = {"data": "mnist5k", "hidden": 1024, "depth": 3, "batch": 128, "lr": 0.1, "steps": 9, "seed": 0}
runs = {
    "in one piece": launch("sync_sgd", ranks=2, **recipe, out=folder / "whole"),
    "after backward": launch("sync_sgd", ranks=2, **recipe, bucket_kb=BUCKET_KB, out=folder / "after"),
    "overlapped": launch("sync_sgd", ranks=2, **recipe, bucket_kb=BUCKET_KB, overlap=True, out=folder / "overlapped"),
}

# %% tags=["nbval-check-output"]
for name, run in runs.items():
    summary = run.summary
    sent = f"{summary.bytes_sent[0]:,} bytes in {summary.messages_sent[0]} messages"
    same = summary.params_sha256 == runs["after backward"].summary.params_sha256
    print(f"{name:15} rank 0 sends {sent}; the parameters of 'after backward', to the bit: {same}")
my_results.compare(len({tuple(run.summary.params_sha256) for run in runs.values()}))
my_bytes.compare(len({run.summary.bytes_sent[0] for run in runs.values()}) == 1)
messages = {name: run.summary.messages_sent[0] for name, run in runs.items()}
my_most.compare("in buckets" if messages["overlapped"] > messages["in one piece"] else "in one piece")

# %% [markdown]
# Overlap changes *when* a bucket is added up, and nothing else. The method and its result are the same.
#
# The gradient in one piece gives the same bits, too, but only with two ranks: $a + b = b + a$. With three or more, a
# ring adds each element in an order that depends on its position in the vector, and in a bucket its position is
# another.
#
# ## 4 What it looks like
#
# The timeline has a second, thin line below each rank's: what its thread did.

# %%
figure, axes = plt.subplots(2, 1, figsize=(9.5, 4.6))
for ax, name in zip(axes, ("after backward", "overlapped"), strict=True):
    timeline.plot(runs[name], ax, steps=3, title=name)
figure.tight_layout()

# %% [markdown]
# Above, the thin line is empty as long as the thick one is blue: compute, then communicate. Below, buckets 0 and 1 are
# under way while backward computes, and what sticks out to the right of the blue is the last bucket, which cannot begin
# before the last gradient is there. (Grey in a thin line: this rank's bucket was ready, the other rank's was not.)
#
# In numbers: in how many steps does the first all-reduce begin before backward ends?


# %%
def steps_that_overlap(run):
    """For each rank, in how many of its steps a bucket's all-reduce begins before the last gradient is there."""
    found = []
    for rank in range(run.summary.ranks):
        own = [event for event in run.trace if event["pid"] == rank]
        begun = np.array([event["ts"] for event in own if event["tid"]])
        backward = [(event["ts"], event["ts"] + event["dur"]) for event in own
                    if event["name"] == "forward and backward"]  # fmt: skip
        found.append(sum(bool(((start <= begun) & (begun < end)).any()) for start, end in backward))
    return found


for name in ("after backward", "overlapped"):
    print(f"{name:15} of {recipe['steps']} steps: {steps_that_overlap(runs[name])}")

# %% tags=["nbval-check-output"]
print("after backward, steps that overlap:", sum(steps_that_overlap(runs["after backward"])))

# %% [markdown]
# ## 5 What is exposed
#
# A step pays only for the communication that is left after backward: the **exposed communication** (暴露的通信). The
# record's `comm_s` and `wait_s` hold this part, because only this part takes the rank's own time. The trace has what
# the thread did meanwhile, step by step. The part of it that is not exposed was hidden.
#
# We take the median of all steps and ranks, so that a moment in which the computer was busy with something else does
# not count. (If it was busy all the time, the rows cannot be compared. Then run the notebook again.)


# %%
def milliseconds(run):
    """Medians of a step: computing, what is exposed, what the thread did beside it, and all of the step."""
    found = []
    for rank in range(run.summary.ranks):
        own = [event for event in run.trace if event["pid"] == rank and not event["args"]["depth"]]
        starts = [event["ts"] for event in own if event["name"] == "forward and backward"]
        for start, end in pairwise(starts):
            its = [event for event in own if start <= event["ts"] < end]
            compute = sum(event["dur"] for event in its if event["cat"] == "compute")
            exposed = sum(event["dur"] for event in its if event["cat"] != "compute" and not event["tid"])
            thread = sum(event["dur"] for event in its if event["tid"])
            found.append([compute, exposed, thread, end - start])
    return np.median(found, axis=0) / 1e3


def show(runs):
    print(f"{'ms of a step':28}compute   exposed    thread      step")
    for name, run in runs.items():
        print(f"{name:25}" + "".join(f"{each:10.2f}" for each in milliseconds(run)))


show(runs)

# %% [markdown]
# (`in one piece` has no thread; all of its communication is exposed.) Compare the columns *exposed* and *thread* of the
# last row: that is what overlap has hidden. Then compare its *compute* with that of the row above. If it has grown, you
# see the price, and the last column says what is left of the gain.
#
# On a computer whose cores all compute, this is inevitable. Moving bytes and adding them up is *work*, and the thread
# needs a core for it. Backward and the thread then take turns, and each becomes slower. What can be hidden is
# *waiting*, not work. So let us free the cores. With `slow` a rank sleeps after each computation, as if the computing
# were done elsewhere, say on a GPU, and its core were idle meanwhile. Here all ranks sleep twice as long as they
# compute.
#
# **Predict:** how much less is exposed with overlap now? And is the step shorter by as much?

# %%
my_exposed = predict("less is exposed with overlap", ..., "yes", "no")
my_step = predict("the step is as much shorter", ..., "yes", "no")

# %%
idle = {"slow": ["rank=0,factor=3", "rank=1,factor=3"], "bucket_kb": BUCKET_KB}
free = {
    "after backward, cores free": launch("sync_sgd", ranks=2, **recipe, **idle, out=folder / "free"),
    "overlapped, cores free": launch("sync_sgd", ranks=2, **recipe, **idle, overlap=True, out=folder / "beside"),
}
show(free)
after_ms, overlapped_ms = (milliseconds(run) for run in free.values())
my_exposed.compare(overlapped_ms[1] < after_ms[1])
my_step.compare(after_ms[3] - overlapped_ms[3] >= after_ms[1] - overlapped_ms[1] > 0)

# %%
figure, axes = plt.subplots(2, 1, figsize=(9.5, 4.6))
for ax, (name, run) in zip(axes, free.items(), strict=True):
    timeline.plot(run, ax, steps=3, title=name)
figure.tight_layout()
for name, run in free.items():
    print(f"{name:26} steps that overlap, of {recipe['steps']}: {steps_that_overlap(run)}")

# %% tags=["nbval-check-output"]
same = {tuple(run.summary.params_sha256) for run in (*runs.values(), *free.values())}
print("different results in all five runs:", len(same))
print("cores free, after backward, steps that overlap:", sum(steps_that_overlap(free["after backward, cores free"])))

# %% [markdown]
# Less is *exposed*: the two buckets that are complete early have been sent by the time backward ends. What is left is
# the last bucket, and the wait for the rank that wakes up later. Whether the *step* is shorter, too, is another
# question. What the thread takes from backward is still computing time, and each such millisecond counts three times
# here, because a rank sleeps twice as long as it has computed. All hidden time is also gained only where moving bytes
# takes nothing from the thread that computes, as with a GPU and a network that does its own copying. Section 8 ends
# with a similar case.
#
# ## 6 How large a bucket?
#
# Large buckets mean few messages, but the first one starts late, and the last one, which is always exposed, is long.
# Small buckets start early and leave little at the end, but there are many of them, and each costs its α. We take a
# network of eleven layers and four sizes, from one bucket per parameter to one bucket for all.
#
# **Predict:** how many messages does each rank send in a step? Which size exposes the least?

# %%
my_whole = predict("messages of a rank in a step, with buckets of 12 MB", ...)
my_four = predict("messages of a rank in a step, with buckets of 4 MB", ...)
my_least = predict("the least exposed", ..., "1 KB", "1.1 MB", "4 MB", "12 MB")

# %%
deep = {"data": "mnist5k", "hidden": 512, "depth": 10, "batch": 64, "lr": 0.1, "steps": 6, "seed": 0}
sizes = {"1 KB": 1, "1.1 MB": 1100, "4 MB": 4000, "12 MB": 12_000}
by_size = {
    name: launch("sync_sgd", ranks=2, **deep, bucket_kb=kb, overlap=True, out=folder / f"bucket{kb}")
    for name, kb in sizes.items()
}

# %% tags=["nbval-check-output"]
deep_lengths = [parameter.numel() for parameter in mlp((1, 28, 28), 10, 512, 10).parameters()]
for name, run in by_size.items():
    count = len(cut(deep_lengths, 1000 * sizes[name] // 4))
    messages = run.summary.messages_sent[0] // run.summary.steps
    same = run.summary.params_sha256 == by_size["1 KB"].summary.params_sha256
    print(f"{name:>7}: {count} in all, {messages} messages of each rank in a step; the same parameters: {same}")
per_step = {name: run.summary.messages_sent[0] // run.summary.steps for name, run in by_size.items()}
my_whole.compare(per_step["12 MB"])
my_four.compare(per_step["4 MB"])

# %%
show(by_size)
figure, ax = plt.subplots(figsize=(6.5, 3))
places = np.arange(len(by_size))
exposed, thread = (np.array([milliseconds(run)[column] for run in by_size.values()]) for column in (1, 2))
ax.bar(places - 0.2, thread, width=0.38, color=GREY, label="the thread at work, or waiting")
ax.bar(places + 0.2, exposed, width=0.38, color=ORANGE, label="exposed")
ax.set(xlabel="bucket", ylabel="milliseconds of a step")
ax.set_xticks(places, by_size)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
figure.tight_layout()
my_least.compare(list(by_size)[exposed.argmin()])

# %% [markdown]
# The bytes are the same in all four. On the left the thread is busy with many small all-reduces, and Python has to
# start each of them. On the right everything is exposed again, because the only bucket is complete when backward is
# over.
#
# `link_mbps` gives each rank a slow link, by sleeping (`runtime/links.py`), but it cannot provide sixteen nodes with
# separate cores. For these we use a model: the time for a parameter is proportional to its length, a bucket's
# all-reduce takes what the α-β-γ model of `04_collectives` says for a ring, and one bucket is reduced at a time.
# **All numbers are assumptions**: 16 nodes, 50 layers of half a million parameters, 100 MB in all, 100 ms for
# backward, 10 µs to start a message.
#
# **Predict:** how long does the all-reduce of 100 MB take at 10 Gbit/s, and at 100? Can it be hidden behind 100 ms?

# %%
my_slow = predict("milliseconds at 10 Gbit/s", ...)
my_fast = predict("milliseconds at 100 Gbit/s", ...)
my_hidden = predict("it can be hidden at 10 Gbit/s", ..., "yes", "no")

# %% tags=["nbval-check-output"]
NODES, LAYERS, LAYER, BACKWARD_S = 16, 50, 500_000, 0.1
layers = [LAYER] * LAYERS


@cache
def ring_s(nbytes, gigabits_per_s):
    """Return the seconds of an all-reduce of `nbytes` by the model."""
    return predicted_s(RING, NODES, nbytes, Machine(Link(10e-6, 8e-9 / gigabits_per_s), 1 / 10e9))


def exposed_ms(bucket_bytes, gigabits_per_s, overlap=True):
    """Return the milliseconds that the buckets' all-reduces, one after the other, take after backward."""
    complete = wire = 0.0
    total = sum(layers)
    for bucket in cut(layers, bucket_bytes // 4):
        elements = bucket.place.stop - bucket.place.start
        complete += BACKWARD_S * elements / total
        wire = max(wire, complete if overlap else BACKWARD_S) + ring_s(4 * elements, gigabits_per_s)
    return 1e3 * (wire - BACKWARD_S)


print("ms exposed          one piece   buckets of 25 MB   of 10 MB   of 2 MB   one piece, less backward")
for gigabits in (10, 25, 100):
    whole = exposed_ms(4 * sum(layers), gigabits, overlap=False)
    row = [exposed_ms(nbytes, gigabits) for nbytes in (25_000_000, 10_000_000, 2_000_000)]
    least = max(0.0, whole - 1e3 * BACKWARD_S)
    print(f"{gigabits:4} Gbit/s  {whole:15.1f}{row[0]:19.1f}{row[1]:11.1f}{row[2]:10.1f}{least:27.1f}")
slow_ms, fast_ms = (1e3 * ring_s(4 * sum(layers), gigabits) for gigabits in (10, 100))
my_slow.compare(slow_ms, within=0.1)
my_fast.compare(fast_ms, within=0.1)
my_hidden.compare(slow_ms < 1e3 * BACKWARD_S)

# %%
figure, ax = plt.subplots(figsize=(7, 3.4))
layers = [LAYER // 100] * LAYERS * 100  # finer, so that every size can be had
megabytes = np.geomspace(0.02, 100, 25)
for gigabits, colour in ((10, ORANGE), (25, GREEN), (100, BLUE)):
    its = [exposed_ms(int(1e6 * size), gigabits) for size in megabytes]
    ax.semilogx(megabytes, its, color=colour, label=f"{gigabits} Gbit/s")
    ax.axhline(exposed_ms(4 * sum(layers), gigabits, overlap=False), color=colour, linestyle=":", linewidth=1)
ax.set_xticks([0.02, 0.1, 1, 10, 100], ["20 KB", "100 KB", "1 MB", "10 MB", "100 MB"])
ax.minorticks_off()
ax.set(xlabel="bucket", ylabel="milliseconds exposed, by the model", ylim=(0, 200))
ax.set_title("solid: overlapped; dotted: in one piece, after backward")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# Three regimes. On the fast network nearly everything can be hidden, if the buckets are neither so small that α counts
# nor so large that the last one does. On the slow one communication takes longer than backward: overlap hides
# backward's 100 ms behind it, at best, and only fewer bytes, or fewer all-reduces, help with the rest. And on the far
# left there are many messages, and α alone takes longer than anything else.
#
# ## 7 Gradients that need no message
#
# With `--collective window` gradients lie where all ranks of the computer can address them (`04_collectives`, section
# 7). Then a bucket's all-reduce is two barriers, and between them each rank adds up its part. It overlaps just as
# well.

# %%
window = {
    "window, after backward": {"bucket_kb": BUCKET_KB},
    "window, overlapped": {"bucket_kb": BUCKET_KB, "overlap": True},
}
for number, (name, options) in enumerate(window.items()):
    runs[name] = launch("sync_sgd", ranks=2, **recipe, **options, collective="window", out=folder / f"window{number}")
show({name: runs[name] for name in ("after backward", "overlapped", *window)})

# %% tags=["nbval-check-output"]
for name in window:
    same = runs[name].summary.params_sha256 == runs["overlapped"].summary.params_sha256
    print(f"{name:23} sends {runs[name].summary.bytes_sent} bytes; the same parameters as by messages: {same}")

# %% [markdown]
# There is less to hide, for there is less work. But a barrier is pure waiting, and waiting is what overlap can hide.
#
# ## 8 A language model
#
# A transformer is cut in the same way. Its parameters are many and of very different sizes, and its first layer is a
# table with a row for each character.
#
# **Predict:** which parameters are in the first bucket, and which in the last?

# %%
my_last = predict("the last bucket holds", ..., "the embedding", "the head")

# %% tags=["nbval-check-output"]
language = transformer(datasets.shape("pydoc"), datasets.classes("pydoc"), hidden=64, depth=2)
names = ["the embedding", "block 0", "block 1", "the head"]
part_of = [names[int(name.split(".")[0])] for name, _ in language.named_parameters()]
its_lengths = [parameter.numel() for parameter in language.parameters()]
for number, bucket in enumerate(cut(its_lengths, 1000 * 100 // 4)):
    parts = ", ".join(dict.fromkeys(part_of[index] for index in reversed(bucket.parameters)))
    elements = bucket.place.stop - bucket.place.start
    print(f"bucket {number}: {4 * elements / 1e3:4.0f} KB, {len(bucket.parameters):2} parameters of {parts}")
my_last.compare("the embedding" if "the embedding" in parts else "the head")

# %%
text = {"data": "pydoc", "model": "transformer", "hidden": 64, "depth": 2, "batch": 32, "steps": 9, "bucket_kb": 100}
runs["text, after backward"] = launch("sync_sgd", ranks=2, **text, out=folder / "text-after")
runs["text, overlapped"] = launch("sync_sgd", ranks=2, **text, overlap=True, out=folder / "text-overlapped")
show({name: runs[name] for name in ("text, after backward", "text, overlapped")})

# %%
figure, axes = plt.subplots(2, 1, figsize=(9.5, 4.6))
for ax, name in zip(axes, ("text, after backward", "text, overlapped"), strict=True):
    timeline.plot(runs[name], ax, steps=3, title=name)
figure.tight_layout()
for name in ("text, after backward", "text, overlapped"):
    print(f"{name:20} steps that overlap, of {text['steps']}: {steps_that_overlap(runs[name])}")

# %% tags=["nbval-check-output"]
after, overlapped = (runs[f"text, {name}"] for name in ("after backward", "overlapped"))
print("the same parameters, to the bit:", after.summary.params_sha256 == overlapped.summary.params_sha256)
print("after backward, steps that overlap:", sum(steps_that_overlap(after)))

# %% [markdown]
# A transformer computes for a long time per byte of its gradient: each parameter is used once for every character.
# There is little to gain, because there was little to pay. Overlap is worth most where the gradient is long and
# computing it is short: perceptrons, small batches, fast cards, slow networks.
#
# A slow network can be injected: `link_mbps` gives each rank its own link, by sleeping. A thread that sleeps takes no
# core from backward, so this is waiting, not work. And the layer whose gradient comes last, the table, is small, so
# that nearly all of the gradient may leave before it. The same model, twice as deep, at 400 Mbit/s:
#
# **Predict:** is the *step* shorter with overlap now? How long must it be at least?

# %%
my_shorter = predict("the step is shorter with overlap", ..., "yes", "no")

# %%
far = text | {"depth": 4, "steps": 6, "bucket_kb": 200, "link_mbps": 400}
slowly = {
    "slow link, after backward": launch("sync_sgd", ranks=2, **far, out=folder / "far-after"),
    "slow link, overlapped": launch("sync_sgd", ranks=2, **far, overlap=True, out=folder / "far-overlapped"),
}
show(slowly)

# %%
figure, axes = plt.subplots(2, 1, figsize=(9.5, 4.6))
for ax, (name, run) in zip(axes, slowly.items(), strict=True):
    timeline.plot(run, ax, steps=3, title=name)
figure.tight_layout()
_, exposed, thread, _ = milliseconds(slowly["slow link, overlapped"])
print(f"overlapped: of {thread:.1f} ms that the thread works or waits in a step, {1 - exposed / thread:.0%} are hidden")
my_shorter.compare(
    milliseconds(slowly["slow link, overlapped"])[3] < milliseconds(slowly["slow link, after backward"])[3]
)

# %% tags=["nbval-check-output"]
print("different results with a slow link:", len({tuple(run.summary.params_sha256) for run in slowly.values()}))

# %% [markdown]
# Now it is: only the last buckets are exposed, and computing takes little longer. Yet no step is shorter than the
# longer of the two. At 40 Mbit/s the links alone would take ten times as long, and overlap could hide no more than
# the time of backward.
#
# ## 9 delay_allreduce
#
# Document 001's program wraps its model as `DDP(model, delay_allreduce=True)`. The name is taken from apex, an older
# library of NVIDIA's, and means: wait until backward is over, then reduce everything. It is our `--bucket-kb` without
# `--overlap`. The program imports its DDP from apex; today people use torch's own. Does torch's DDP accept the
# argument?

# %% tags=["nbval-check-output"]
from torch.nn.parallel import DistributedDataParallel

known = inspect.signature(DistributedDataParallel).parameters
for argument in ("delay_allreduce", "bucket_cap_mb", "find_unused_parameters"):
    print(f"{argument:24}{'an argument of torch DDP' if argument in known else 'unknown to it'}")

# %% [markdown]
# It would raise a TypeError (erratum 001.20). Torch's DDP always overlaps; `bucket_cap_mb` sets the size of its
# buckets, and `find_unused_parameters` handles gradients that never come.
#
# Why delay at all, then? Because it is simple. A gradient that is reduced during backward must not change afterwards:
# no second backward pass may add to it, as with micro-batches or with a layer used twice by separate passes, and no
# clipping may need the whole gradient's norm before the sum is there. With a delay none of this needs care, and on a
# computer like the one that ran these cells it costs little.
#
# ## What you have seen
#
# - Backward has the last layer's gradient first, and it is final long before the first layer's. It can be sent.
# - Buckets, in one order on all ranks, each sent as soon as it is complete; the rest after backward; then wait, and
#   update. The result is that of reducing after backward, to the bit.
# - A step pays for what is exposed: the last bucket at least, and more if communication takes longer than backward.
# - Buckets too small cost α each; too large, they are exposed.
# - What is hidden is waiting. Where every core computes already, moving bytes takes from backward what overlap gives;
#   over a slow link the step is shorter by most of what is hidden.
#
# ## What to try
#
# 1. Section 3 with `ranks=3`, and `batch=66`. Which of the three runs now has other bits, and by how much do its losses
#    differ after 40 steps?
# 2. Section 5 with only rank 0 slow. Which ranks wait, and can overlap help with *that*?
# 3. On paper, give the first bucket another size, as torch does: 1 MB, then 25 MB each. At which speed of the network
#    does that help?
# 4. `farandole bench step`: our ring, our window, both overlapped, beside torch DDP and Horovod, for a model of 10
#    million parameters and for one of 0.1 million. Which wins where?
# 5. `farandole run ddp_sgd -n 2 --hidden 1024 --depth 3`, then `farandole show` its record. What does a library show of
#    its overlap, and what not?
# 6. Write it yourself: `farandole lab start 4`, overlapped data parallel. There the order of events is judged, and
#    gradients come in another order on some ranks.
# 7. The next forward pass needs the *first* layer first, whose bucket is the last. Which bucket would you send first on
#    a slow network, and what would have to change in the update?
