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
# # 07 · Mixed precision, and the craft of training
#
# **Question:** the ranks have their gradients, and the sum. What else does training need?
#
# Document 001 lists it: half precision, weight decay, an adapted learning rate, metrics gathered during training,
# evaluation on all ranks, a model saved for use, and hyper-parameters found by search. Each is a small subject.
# Nearly all of them work differently on several ranks, and most of these differences the document does not get quite
# right (errata 001.13 to 001.16).

# %%
# %load_ext farandole
import copy
import functools
import inspect
import json
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from farandole import launch
from farandole.data import datasets
from farandole.data.sampler import EpochSampler, steps_per_epoch
from farandole.data.shares import equal_shares, slices
from farandole.data_parallel import accumulation, export, loss_scale
from farandole.data_parallel.bold_driver import BoldDriver
from farandole.data_parallel.evaluation import accuracy
from farandole.data_parallel.gradient_agreement import GradientAgreement
from farandole.data_parallel.learning_rate import LearningRate
from farandole.data_parallel.mixed_precision import HalfCopy, MixedPrecisionSGD
from farandole.data_parallel.search import rounds
from farandole.model_parallel.memory import ActivationMeter
from farandole.models import layerwise, optimizers
from farandole.models.classifiers import cnn, mlp
from farandole.models.transformer import transformer
from farandole.report import table, timeline
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from farandole.report.curves import smooth
from farandole.report.predictions import predict
from farandole.runtime.buffers import FlatBuffers
from farandole.tasks import classification, mean_cross_entropy

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100
torch.set_num_threads(1)


def tidy(*axes):
    """Remove what is not needed to read a picture."""
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=9)
    axes[0].figure.tight_layout()


# %% [markdown]
# ## 1 What 16 bits can hold
#
# **Mixed precision** (混合精度训练) means to compute in 16 bits where that is good enough, and in 32 where it is not.
# Half the bytes, and on hardware made for it twice as fast or more. There are two kinds of 16 bits. **float16** has 5
# bits for the exponent and 10 for the digits after the first; **bfloat16** has 8 and 7: the exponents of float32, and
# the fewest digits of all.
#
# **Predict:** what do 70,000, 10⁻⁸, 1 + 2⁻¹² and 2,049 become in each of them?

# %%
my_large = predict("70,000 in float16", ..., "finite", "infinite")
my_tiny = predict("1e-8 in float16", ...)
my_odd = predict("2,049 in bfloat16", ...)

# %% tags=["nbval-check-output"]
KINDS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
print("            largest    smallest normal   least above 0    1 and the next number are apart by")
for name, kind in KINDS.items():
    limits = torch.finfo(kind)
    least = limits.smallest_normal * limits.eps
    print(f"{name:9}{limits.max:10.3g}{limits.smallest_normal:17.2g}{least:17.2g}{limits.eps:20.2g}")
print("\n                  70,000           1e-8       1 + 2^-12          2,049")
for name, kind in KINDS.items():
    became = torch.tensor([70_000, 1e-8, 1 + 2**-12, 2049], dtype=torch.float64).to(kind).double()
    print(f"{name:9}" + "".join(f"{value:15.8g}" for value in became.tolist()))
my_large.compare("infinite" if torch.tensor(70_000.0).half().isinf() else "finite")
my_tiny.compare(torch.tensor(1e-8).half().item())
my_odd.compare(torch.tensor(2049.0).bfloat16().item())

# %% [markdown]
# Three kinds of error occur. A number that is too large becomes infinite (**overflow**, 溢出), one that is too small
# becomes 0 (**underflow**, 下溢), and one in between loses digits. float16 suffers from the first two, bfloat16 from
# the third. The picture shows how far, at worst, a number is from the nearest one that the type can hold.

# %%
exponents = np.linspace(-45, 40, 1200)
figure, ax = plt.subplots(figsize=(8, 3.2))
for (name, kind), colour in zip(KINDS.items(), (BLUE, ORANGE, GREEN), strict=True):
    limits = torch.finfo(kind)
    spacing = limits.eps * 2.0 ** np.maximum(np.floor(exponents), np.log2(limits.smallest_normal))
    error = np.minimum(spacing / 2 / 2.0**exponents, 1)
    error[2.0**exponents > limits.max] = np.nan  # infinite
    ax.semilogy(exponents, error, color=colour, label=name)
ax.set(xlabel="the number is 2 to the power of …", ylabel="relative error, at worst")
tidy(ax)

# %% [markdown]
# float16 is precise in a window and holds nothing outside it: at the left everything is rounded to 0 (an error of 1),
# at the right the line ends, at 65,504. Is a gradient in the window?
#
# ## 2 Gradients that are too small
#
# We take two real models that have learned for a while: a perceptron on digits and a small transformer on English
# text, the two workloads of all notebooks. `gradient` does what a step of mixed precision does: cast the parameters,
# run forward and backward in 16 bits on a loss multiplied by `scale`, and divide the gradient by `scale` in float32.


# %%
@functools.cache
def training(data):
    """Return the training samples of a data set, which is read once."""
    return datasets.split(datasets.load(data), seed=0).train


def batches(data, batch):
    """Yield the batches of one process without end: inputs and targets."""
    train = training(data)
    for rows in EpochSampler(len(train), steps_per_epoch(len(train), batch), seed=0, rank=0):
        yield torch.from_numpy(train[rows].inputs), torch.from_numpy(train[rows].targets)


@functools.cache
def copy_of(model, kind):
    """Return a copy of `model` in another type, made once."""
    return copy.deepcopy(model).to(kind)


def gradient(model, kind, scale, batch):
    """Return the gradient of the mean loss over `batch`, as one vector of float32, and the loss."""
    inputs, targets = batch
    half = copy_of(model, kind)
    vector_to_parameters(parameters_to_vector(model.parameters()).to(kind), half.parameters())
    half.zero_grad()
    loss = mean_cross_entropy(half(inputs.to(kind) if inputs.is_floating_point() else inputs).float(), targets)
    (loss * scale).backward()
    return parameters_to_vector(each.grad for each in half.parameters()).float() / scale, loss.item()


def trained(model, steps, lr, data, batch):
    """Return `model` after `steps` steps in float32, and the next batch."""
    flat, stream = FlatBuffers(model), batches(data, batch)
    for _ in range(steps):
        flat.zero_gradients()
        inputs, targets = next(stream)
        mean_cross_entropy(model(inputs), targets).backward()
        flat.values.add_(flat.gradients, alpha=-lr)
    return model, next(stream)


torch.manual_seed(0)
workloads = {
    "perceptron": trained(mlp(datasets.shape("digits"), 10, 128, 2), 1500, 0.3, "digits", 64),
    "transformer": trained(
        transformer(datasets.shape("pydoc"), datasets.classes("pydoc"), hidden=32, depth=2), 40, 0.1, "pydoc", 16
    ),
}
exact = {name: gradient(model, torch.float32, 1, batch)[0] for name, (model, batch) in workloads.items()}

# %% [markdown]
# **Predict:** which part of each gradient lies below float16's least number? And how far can the histogram be moved to
# the right before its upper end leaves float16's range?

# %%
scales = 2.0 ** np.arange(0, 29, 4)
figure, axes = plt.subplots(2, 2, figsize=(10, 5.6))
for (left, right), (name, (model, batch)) in zip(axes, workloads.items(), strict=True):
    whole = exact[name][exact[name] != 0]
    sizes, bins = np.log2(whole.abs().numpy()), np.arange(-52, 20)
    left.hist(sizes, bins, color=BLUE, label="as it is")
    left.hist(sizes + 16, bins, color=ORANGE, alpha=0.6, label="times 2¹⁶")
    left.axvspan(-52, -25, color=GREY, alpha=0.5, linewidth=0, label="0 in float16")
    left.axvspan(-25, -14, color=GREY, alpha=0.2, linewidth=0, label="fewer digits")
    left.axvspan(16, 20, color=RED, alpha=0.4, linewidth=0, label="infinite")
    left.set(ylabel=f"elements of the\n{name}'s gradient", yscale="log", xlim=(-52, 20))
    found = [gradient(model, torch.float16, scale, batch)[0] for scale in scales]
    lost = [((half == 0) & (exact[name] != 0)).sum().item() / len(whole) for half in found]
    infinite = [(~half.isfinite()).float().mean().item() for half in found]
    right.plot(np.log2(scales), 100 * np.array(lost), "o-", color=BLUE, label="became 0")
    right.plot(np.log2(scales), 100 * np.array(infinite), "o-", color=RED, label="became infinite or no number")
    right.set(ylabel="% of the elements", yscale="log", ylim=(5e-4, 200))
axes[1, 0].set(xlabel="log₂ of an element's size")
axes[1, 1].set(xlabel="log₂ of the scale")
tidy(*axes.flat)
for ax in axes[:, 0]:
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, 1.02))

# %% [markdown]
# A gradient spreads over thirty powers of two and more, and its lower end is outside the window. Multiplied by 2¹⁶
# nearly all of it is inside. That is the purpose of a **scaled loss**: if the loss is multiplied by a factor, the
# chain rule multiplies every gradient by the same factor. With too large a scale the upper end becomes infinite,
# which is much worse.
#
# Only the smallest elements were lost here, a few in a hundred at most, and the largest ones decide the direction of
# a step. But that is luck. The size of a gradient depends on the unit of the loss. Count the loss in units of 2²⁰,
# and use a learning rate 2²⁰ times as large: that is *the same training*.
#
# **Predict:** is it the same in float32, to the bit? And in float16?

# %%
my_float32 = predict("the same in float32, to the bit", ..., "yes", "no")
my_float16 = predict("float16 learns as well in that unit", ..., "yes", "no")


# %%
def train(kind, unit=1.0, scale=1.0, steps=120, lr=0.3, remembered=torch.float32, batch=64):
    """A perceptron trained with its loss times `unit`, computing in `kind`, its parameters kept in `remembered`.

    Returns the parameters, the losses, and in which share of the steps a parameter moved.
    """
    torch.manual_seed(0)
    model, stream, losses, moved = mlp(datasets.shape("digits"), 10, 128, 2), batches("digits", batch), [], 0.0
    values = FlatBuffers(model).values
    values.copy_(values.to(remembered))
    for _ in range(steps):
        found, loss = gradient(model, kind, unit * scale, next(stream))
        after = (values - lr / unit * (found * unit)).to(remembered).float()
        moved += (after != values).float().mean().item() / steps
        values.copy_(after)
        losses.append(loss)
    return values, losses, moved


# The gradient that is divided by `unit * scale` and multiplied by `unit` is the one of the loss in that unit.
unit = 2.0**-20
ways = {
    "float32": train(torch.float32),
    "float32, another unit": train(torch.float32, unit),
    "float16, another unit": train(torch.float16, unit),
    "float16, another unit, scaled": train(torch.float16, unit, 2.0**16),
    "bfloat16, another unit": train(torch.bfloat16, unit),
}

# %% tags=["nbval-check-output"]
final = {name: np.mean(losses[-30:]) for name, (_, losses, _) in ways.items()}
print("float32: the unit changes no bit:", torch.equal(ways["float32"][0], ways["float32, another unit"][0]))
print("float16 in that unit has learned little:", final["float16, another unit"] > 1.5)
for name in ("float16, another unit, scaled", "bfloat16, another unit"):
    print(f"{name}: as good as float32:", abs(final[name] - final["float32"]) < 0.1)
my_float32.compare(torch.equal(ways["float32"][0], ways["float32, another unit"][0]))
my_float16.compare(abs(final["float16, another unit"] - final["float32"]) < 0.1)

# %%
figure, ax = plt.subplots(figsize=(8, 3.2))
styles = ("-", "--", "-", ":", "-.")
for (name, (_, losses, _)), colour, style in zip(ways.items(), (BLUE, SKY, RED, ORANGE, GREEN), styles, strict=True):
    ax.plot(smooth(np.array(losses)), style, color=colour, label=name)
ax.set(xlabel="step", ylabel="training loss", ylim=(0, 5))
tidy(ax)

# %% [markdown]
# A power of two changes the exponent and no digit, so in float32 nothing changes at all. float16 has only its window:
# without a scale nearly nothing of the gradient is left. bfloat16 has the exponents of float32 and needs no scale.
#
# **Try:** other units, for all three. At which does float16 begin to suffer?
#
# ## 3 Updates that are too small
#
# The second danger is in the update. It is the gradient times a small learning rate, added to a parameter that is
# much larger. And section 1 has shown that 1 + 2⁻¹² can be 1.
#
# **Predict:** 4,096 times 2⁻¹² is 1. What do you get if you add these numbers to 1 one after another, in each of the
# three types?

# %%
my_sums = predict("the sums in float32, float16 and bfloat16, as a list", ...)

# %% tags=["nbval-check-output"]
sums = []
for name, kind in KINDS.items():
    total = torch.ones((), dtype=kind)
    for _ in range(4096):
        total += torch.tensor(2.0**-12, dtype=kind)
    sums.append(total.item())
    print(f"{name:9} 1 + 4096 times 2^-12 = {sums[-1]:g}")
my_sums.compare(sums)

# %% [markdown]
# So the parameters are kept in float32, the **master copy** (主副本), and cast before each step. The next cell trains
# a perceptron with a small learning rate, as at the end of a schedule:

# %%
kept = {
    (name, remembered): train(KINDS[name], 1.0, 2.0**10, 1200, 0.008, KINDS[remembered], batch=32)
    for name in KINDS
    for remembered in dict.fromkeys(("float32", name))
}

# %%
figure, ax = plt.subplots(figsize=(8, 3.2))
looks = dict(zip(KINDS, ((BLUE, 6), (ORANGE, 3.5), (GREEN, 1.5)), strict=True))  # one lies on the other
for (name, remembered), (_, losses, _) in kept.items():
    colour, width = looks[name]
    style = "-" if remembered == "float32" else "--"
    label = f"computed in {name}, remembered in {remembered}"
    ax.plot(smooth(np.array(losses), 50), style, color=colour, linewidth=width, label=label)
ax.set(xlabel="step", ylabel="training loss", ylim=(0, None))
tidy(ax)
for (name, remembered), (_, _, moved) in kept.items():
    print(f"computed in {name:9}remembered in {remembered:9}a parameter moves in {moved:.1%} of the steps")

# %% tags=["nbval-check-output"]
final = {key: np.mean(losses[-200:]) for key, (_, losses, _) in kept.items()}
oracle = final["float32", "float32"]
for name in ("float16", "bfloat16"):
    print(f"{name}: with a master copy as good as float32:", abs(final[name, "float32"] - oracle) < 0.05)
    print(f"{name}: without it behind by more than 0.1:", final[name, name] > oracle + 0.1)
    print(f"{name}: a parameter stays where it is in most steps:", kept[name, name][2] < 0.5)

# %% [markdown]
# bfloat16 suffers more, because it has fewer digits. Without a master copy nothing crashes and no number looks wrong;
# the model just learns more slowly, or stops. Document 001 says that mixed precision *raises* the accuracy. It saves
# memory and time, and with a scale and a master copy it *keeps* the accuracy (erratum 001.13).
#
# ## 4 On several ranks
#
# This is the step of `--precision`, with the methods of the 16-bit copy that it calls. What is new, compared with
# `03_synchronous_sgd`? And in what type are the gradients when they are added up over the ranks?

# %%
for part in (MixedPrecisionSGD.step, HalfCopy.gradient, HalfCopy.accept):
    print(inspect.getsource(part))

# %% [markdown]
# In float32, and divided by the scale already: a sum of 16-bit numbers would lose digits once for each rank, and
# could overflow where no single rank's part did. The price is twice the bytes. (Libraries offer both. Some send 16
# bits and add in 32.)
#
# The language model, on two ranks, in all three precisions:

# %%
text = {"data": "pydoc", "model": "transformer", "hidden": 32, "depth": 1, "batch": 16, "steps": 15, "lr": 0.1}
runs = {name: launch("sync_sgd", ranks=2, **text, precision=name, out=folder / f"text-{name}") for name in KINDS}
table.show([table.comparison({name: run.summary for name, run in runs.items()})])

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.2))
losses = {name: np.array([line["loss"] for line in run.metrics]) for name, run in runs.items()}
for (name, loss), colour, style in zip(losses.items(), (BLUE, ORANGE, GREEN), ("-", "--", ":"), strict=True):
    left.plot(loss, style, color=colour, label=name)
    if name != "float32":
        right.semilogy(np.maximum(abs(loss - losses["float32"]), 1e-7), color=colour, label=name)
left.set(xlabel="step", ylabel="training loss")
right.set(xlabel="step", ylabel="|loss − float32's|")
tidy(left, right)

# %% tags=["nbval-check-output"]
for name, run in runs.items():
    apart = abs(losses[name] - losses["float32"]).max()
    print(f"{name:9} loss within 0.1 of float32's in every step: {apart < 0.1};", end=" ")
    print("equal copies:", len(set(run.summary.params_sha256)) == 1)
print("the same bytes sent by all three:", len({tuple(run.summary.bytes_sent) for run in runs.values()}) == 1)

# %% [markdown]
# Document 001 has *part* of the layers in half precision. Which should not be? A layer norm divides by a deviation,
# which it computes from squares; a softmax divides by a sum of exponentials. `--float32-layers norms` leaves all
# norms in float32 and converts at their borders, as torch's autocast does.
#
# **Predict:** how many more bytes does the 16-bit copy of our transformer take then?

# %%
my_bytes = predict("bytes more for norms in float32", ...)

# %%
model, batch = workloads["transformer"]
copies = {}
for layers in ((), ("norms",)):
    own = copy.deepcopy(model)
    copies[layers] = HalfCopy(own, classification, FlatBuffers(own), "bfloat16", float32_layers=layers)
    copies[layers].gradient(batch, share=1.0)
    error = (copies[layers].master.gradients - exact["transformer"]).norm() / exact["transformer"].norm()
    print(f"in float32: {', '.join(layers) or 'none':6} the gradient is wrong by {error:.2%}")

# %% tags=["nbval-check-output"]
for layers, half in copies.items():
    kept = sum(each.numel() for each in half.module.parameters() if each.dtype == torch.float32)
    print(f"in float32: {', '.join(layers) or 'none':6}{kept:6,} parameters; the copy takes {half.nbytes():,} bytes")
print("what travels is float32 for both:", {half.master.gradients_np.dtype.name for half in copies.values()})
my_bytes.compare(copies[("norms",)].nbytes() - copies[()].nbytes())

# %% [markdown]
# Whether it is *faster* depends on the processor. One without 16-bit units converts back and forth, and the column of
# samples per second shows it. On a GPU with such units, and with a large enough model, 16 bits are faster.
#
# ## 5 Too large, on one rank
#
# A scale that is too large makes gradients infinite. Then the step must be skipped, and the scale halved. But which
# rank detects it? Each has other samples. If three ranks took the step and one did not, their copies would differ
# from then on. Do they need an extra message?
#
# **Predict:** rank 2 alone is given an image that overflows. Which ranks skip the step, and how many messages does it
# cost?

# %%
my_skipping = predict("ranks that skip the step, as a list", ...)
my_messages = predict("messages that it costs", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep skipped,messages_sent
import numpy as np
import torch

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data import datasets
from farandole.data_parallel.loss_scale import LossScale
from farandole.data_parallel.mixed_precision import MixedPrecisionSGD
from farandole.models.classifiers import mlp
from farandole.models.optimizers import maker
from farandole.runtime.buffers import sha256
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import classification

with World.start(RunOptions(wait_timeout=30)) as world:
    torch.manual_seed(0)
    model = mlp(datasets.shape("digits"), 10, 32, 1)
    mixed = MixedPrecisionSGD(
        world, model, classification, maker("sgd", 0.3), ALL_REDUCES["ring"], "float16", LossScale(2.0**10)
    )
    train = datasets.split(datasets.load("digits"), seed=0).train
    said, skipped, messages_sent = [], [], []
    for step in range(3):
        rows = np.arange(64 * step + 16 * world.rank, 64 * step + 16 * (world.rank + 1))
        images = torch.from_numpy(train[rows].inputs)
        if step == 1 and world.rank == 2:
            images[0, 0] = 1e6
        before, messages = sha256(model), world.comm.messages_sent
        mixed.step((images, torch.from_numpy(train[rows].targets)), share=1 / world.size)
        equal = len(set(world.control.allgather(sha256(model)))) == 1
        moved, sent = sha256(model) != before, world.comm.messages_sent - messages
        skipped.append(not moved)
        messages_sent.append(sent)
        said.append(f"moved {moved!s:5}  scale {mixed.scale.value:4.0f}  messages {sent}  copies equal {equal}")
    everybodys = world.control.gather(said)
    if world.rank == 0:
        for step in range(3):
            for rank in range(world.size):
                print(f"step {step}, rank {rank}: {everybodys[rank][step]}")

# %% tags=["nbval-check-output"]
my_skipping.compare([rank for rank in range(4) if skipped[rank][1]])
my_messages.compare(messages_sent[0][1] - messages_sent[0][0])

# %% [markdown]
# All ranks skip it, without any extra message. Infinity plus anything is infinite or not a number, so every rank sees
# it in the *sum*. That works because each rank tests for finite values after the all-reduce. If it tested its own
# part before, three ranks would take the step.
#
# And how is the right scale found? It need not be known. `LossScale` begins too high, halves at each overflow, and
# doubles after a while without one: 2000 steps, as in the paper. Here the interval is shorter, so that something
# happens, and the scale begins far too high.

# %%
scale, model, stream = (
    loss_scale.LossScale(2.0**30, patience=30),
    mlp(datasets.shape("digits"), 10, 128, 2),
    batches("digits", 64),
)
flat, used, overflowed = FlatBuffers(model), [], []
for step in range(240):
    used.append(scale.value)
    found, _ = gradient(model, torch.float16, scale.value, next(stream))
    finite = bool(found.isfinite().all())
    scale.observe(finite)
    if finite:
        flat.values.sub_(0.3 * found)
    else:
        overflowed.append(step)
figure, ax = plt.subplots(figsize=(8, 2.8))
ax.step(range(240), np.log2(used), color=BLUE, where="post", label="scale")
ax.plot(overflowed, np.log2(np.array(used)[overflowed]), "x", color=RED, label="overflow: no update")
ax.set(xlabel="step", ylabel="log₂ of the scale")
tidy(ax)
print(f"{scale.skipped} of 240 steps were left out")

# %% [markdown]
# The scale stays just below its upper limit, and the limit moves, because gradients become smaller as the model
# learns. An overflow here is no error: it is how the scale is found.
#
# ## 6 Weight decay, of two kinds
#
# Document 001 adds to the loss "the product of the squared norm of the weights". It is a *sum* (erratum 001.15): the
# penalty $\frac\lambda2\lVert w\rVert^2$ is added to the loss, so λw is added to the gradient. That is **L2**. The
# other kind, **decoupled weight decay** (权重衰减), leaves the gradient alone and shrinks the parameters, by ηλ of
# themselves in each step.
#
# To see both alone, we take 200 parameters, all 1 at first, and gradients that are pure noise, with nothing to learn.
# The first parameters have tiny gradients, the last ones large gradients.
#
# **Predict:** what is left of each after 1,000 steps, by plain SGD and by Adam, with each kind?


# %%
def decayed(optimizer, lr, sizes, *, l2=0.0, decay=0.0, steps=1000):
    """Return what is left of parameters that were 1 after steps with gradients of these sizes and alternating signs."""
    values, gradients = torch.ones(len(sizes)), torch.zeros(len(sizes))
    moves = optimizers.maker(optimizer, lr, l2, decay)(values, gradients)
    noise = torch.Generator().manual_seed(0)
    for _ in range(steps // 2):
        kick = sizes * torch.randn(len(sizes), generator=noise)
        for gradient_now in (kick, -kick):  # their mean is 0: nothing but decay moves a parameter in the long run
            gradients.copy_(gradient_now)
            moves.step()
    return values


sizes, lam = torch.logspace(-4, 2, 200), 0.1
left = {
    (optimizer, kind): decayed(optimizer, lr, sizes if optimizer == "adam" else sizes / 100, **{kind: lam})
    for optimizer, lr in (("sgd", 0.01), ("adam", 0.01))
    for kind in ("l2", "decay")
}

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.2), sharey=True)
for ax, optimizer in zip(axes, ("sgd", "adam"), strict=True):
    at = sizes if optimizer == "adam" else sizes / 100
    ax.semilogx(at, left[optimizer, "l2"], color=ORANGE, linewidth=4, alpha=0.6, label="L2")
    ax.semilogx(at, left[optimizer, "decay"], color=BLUE, label="decoupled")
    ax.axhline((1 - 0.01 * lam) ** 1000, color=GREY, linestyle=":", label="(1 − ηλ)¹⁰⁰⁰")
    ax.set(title=optimizer, xlabel="size of the parameter's gradient", ylim=(-0.1, 1.15))
axes[0].set(ylabel="left of the parameter")
tidy(*axes)

# %% tags=["nbval-check-output"]
apart = {optimizer: (left[optimizer, "l2"] - left[optimizer, "decay"]).abs() for optimizer in ("sgd", "adam")}
print("SGD:  the two kinds differ by less than 1e-4:", apart["sgd"].max().item() < 1e-4)
print("Adam: they differ by more than 0.2:", apart["adam"].max().item() > 0.2)
small, large = left["adam", "l2"][sizes < 1e-3], left["adam", "l2"][sizes > 10]
print("Adam, L2: those with small gradients are gone:", small.abs().max().item() < 0.1)
print("Adam, L2: those with large ones have hardly decayed:", large.mean().item() > 0.8)
expected = (1 - 0.01 * lam) ** 1000
print("Adam, decoupled: all have decayed alike:", (left["adam", "decay"] - expected).abs().max().item() < 0.1)

# %% [markdown]
# For plain SGD the two kinds are the same method. Adam divides every gradient by its usual size. With L2 the
# penalty's gradient is divided, too: the parameters with the smallest gradients decay most, and those with the
# largest hardly at all. With decoupled decay all parameters decay equally (Loshchilov & Hutter 2019;
# `--weight-decay`, and L2 is `--l2`).
#
# On several ranks there is one more trap: both belong *after* the all-reduce. A penalty that each rank adds to its
# own gradient is counted P times in the sum.
#
# ## 7 A batch eight times as large
#
# Eight ranks, each with the batch that one process had: a step now uses 512 samples instead of 64, and there are eight
# times fewer steps for the same samples. With the old learning rate each step is as long as before. So the rate is
# made eight times as large (**linear scaling**). At the start such steps are too long, so the rate begins small
# (**warm-up**, 预热). Goyal et al. (2017) trained ImageNet in an hour in this way.
#
# All four settings use the same 32,768 images of handwritten digits, from two random starts each. (On 8 ranks it
# would be the same training, as `03_synchronous_sgd` shows; here one process is enough.)
#
# **Predict:** which order do the four have, by their loss at the end?

# %%
my_order = predict(
    "the order by the loss, the lowest first",
    ...,
    order=["batch 64", "batch 512, the same rate", "batch 512, 8 times the rate", "batch 512, 8 times, warmed up"],
)

# %%
plans = {
    "batch 64": (64, 0.05, 0),
    "batch 512, the same rate": (512, 0.05, 0),
    "batch 512, 8 times the rate": (512, 0.4, 0),
    "batch 512, 8 times, warmed up": (512, 0.4, 16),
}


def trained_by_plan(batch, peak, warm_up, seed):
    """The loss of each batch."""
    torch.manual_seed(seed)
    model, stream = mlp(datasets.shape("mnist5k"), 10, 64, 2), batches("mnist5k", batch)
    flat, steps, losses = FlatBuffers(model), 32_768 // batch, []
    rate, moves = LearningRate(peak, steps, warm_up), optimizers.SGD(flat.values, flat.gradients, peak)
    for step in range(steps):
        inputs, targets = next(stream)
        flat.zero_gradients()
        loss = mean_cross_entropy(model(inputs), targets)
        loss.backward()
        moves.lr = rate.at(step)
        moves.step()
        losses.append(loss.item())
    return np.array(losses)


curves = {name: [trained_by_plan(*plan, seed) for seed in range(2)] for name, plan in plans.items()}

# %%
figure, axes = plt.subplots(1, 4, figsize=(11, 3), sharey=True)
for ax, (name, found), colour in zip(axes, curves.items(), (BLUE, GREY, ORANGE, GREEN), strict=True):
    for losses in found:
        ax.plot(np.arange(1, len(losses) + 1) * plans[name][0] / 1000, losses, color=colour, linewidth=1)
    ax.set(title=name, xlabel="thousand samples", ylim=(0, 4))
    ax.title.set_fontsize(9)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set(ylabel="training loss")
figure.tight_layout()
at_the_end = {name: [losses[-len(losses) // 10 :].mean() for losses in found] for name, found in curves.items()}
for name, means in at_the_end.items():
    print(f"{name:32} at the end {', '.join(f'{mean:.2f}' for mean in means)}")

# %% tags=["nbval-check-output"]
means = {name: np.mean(found) for name, found in at_the_end.items()}
print("the same rate is far behind:", means["batch 512, the same rate"] > 1)
scaled = [name for name in plans if "8 times" in name]
print("either way of scaling has caught up most of it:", all(means[name] < 0.8 for name in scaled))
my_order.compare(sorted(means, key=means.get))

# %% [markdown]
# Scaling repairs most of it. The warm-up does not help here: it costs 16 short steps, and the peaks only come later.
# It was found for deep networks, whose gradient changes most at the very start. Two hidden layers hardly have such a
# phase, but a transformer under Adam has. Adam's first steps all have full length, before it has an estimate of a
# gradient's usual size. The next cell trains the language model with a rate meant for batches of 8, scaled to batches
# of 64:

# %%
text |= {"batch": 64, "steps": 25, "lr_batch": 8, "lr": 0.005, "optimizer": "adam"}
figure, ax = plt.subplots(figsize=(8, 3))
at_the_end = {}
for warm_up, colour in ((0, ORANGE), (12, GREEN)):
    run = launch("sync_sgd", ranks=1, **text, warm_up=warm_up, out=folder / f"warm-up-{warm_up}")
    losses = np.array([line["loss"] for line in run.metrics])
    at_the_end[warm_up] = losses[-10:].mean()
    ax.plot(smooth(losses), color=colour, linewidth=1, label=f"warm-up of {warm_up} steps")
ax.set(xlabel="step", ylabel="training loss")
tidy(ax)
print(f"loss at the end: {at_the_end[0]:.2f} without a warm-up, {at_the_end[12]:.2f} with one")

# %% [markdown]
# Some layers have gradients that are large compared with their parameters. **LARS** (You et al. 2017) gives each
# layer a separate rate, 0.001·‖w‖/‖g‖ times the global one, which is therefore large. **LAMB** (2020) does so after
# Adam's averages; the ε beside Adam's root has the unit of a gradient, so for tiny gradients the unit still matters.
#
# **Predict:** count the loss in another unit, 1,024 times as large. Which optimizers take the same steps?

# %%
my_unaffected = predict("the one that takes the same steps", ..., "sgd", "momentum", "lars", "lamb")

# %%
large_batch = {"sgd": 0.4, "momentum": 0.05, "lars": 10.0, "lamb": 0.03}


def moved_by(name, unit=1.0, steps=60):
    """The parameters and losses of a perceptron after some steps with batches of 512, its loss counted in `unit`."""
    torch.manual_seed(0)
    model, stream, losses = mlp(datasets.shape("mnist5k"), 10, 64, 2), batches("mnist5k", 512), []
    flat = FlatBuffers(model)
    moves = layerwise.maker_for(model, name, large_batch[name])(flat.values, flat.gradients)
    for _ in range(steps):
        inputs, targets = next(stream)
        flat.zero_gradients()
        loss = mean_cross_entropy(model(inputs), targets)
        (loss * unit).backward()
        moves.step()
        losses.append(loss.item())
    return flat.values.clone(), losses


for name in large_batch:
    print(f"{name:9} loss after 60 batches of 512: {np.mean(moved_by(name)[1][-5:]):.2f}")

# %% tags=["nbval-check-output"]
unaffected = []
for name in large_batch:
    same = torch.allclose(moved_by(name, steps=5)[0], moved_by(name, 1024.0, steps=5)[0], atol=1e-3)
    print(f"{name:9} takes the same steps in another unit: {same}")
    if same:
        unaffected.append(name)
my_unaffected.compare(unaffected[0])

# %% [markdown]
# So measure whether you need it. And scaling has a limit: a step must not go farther than the gradient is a good
# approximation, however precise the gradient of a huge batch is (section "What to try", 6).
#
# `--lr-batch 64` gives the batch for which `--lr` was meant, and `--warm-up 16` the steps of the warm-up. After the
# warm-up the rate may follow a **schedule**. Document 001 calls it an adaptive learning rate to "start large and
# lower it gradually"; adaptive is what Adam does, a rate for each parameter (erratum 001.16). "plateau" lowers the
# rate to a tenth when the loss no longer falls. All ranks must decide the same, or their copies diverge. So the
# schedule uses the mean loss over all ranks, which they exchange every ten steps.

# %%
high = {"data": "digits", "hidden": 64, "steps": 320, "lr": 0.6}
runs = {
    name: launch("sync_sgd", ranks=3, **high, lr_schedule=name, out=folder / name) for name in ("constant", "plateau")
}
figure, (left_ax, right_ax) = plt.subplots(1, 2, figsize=(9.5, 3))
for (name, run), colour in zip(runs.items(), (GREY, BLUE), strict=True):
    left_ax.semilogy([line["lr"] for line in run.metrics], color=colour, label=name)
    right_ax.plot(smooth(np.array([line["loss"] for line in run.metrics])), color=colour, label=name)
left_ax.set(xlabel="step", ylabel="learning rate")
right_ax.set(xlabel="step", ylabel="training loss", yscale="log")
tidy(left_ax, right_ax)

# %% tags=["nbval-check-output"]
rates = [line["lr"] for line in runs["plateau"].metrics]
changes = [step for step in range(1, len(rates)) if rates[step] != rates[step - 1]]
print("the rate has been lowered, and never raised:", len(changes) > 0 and rates == sorted(rates, reverse=True))
print("always right after an exchange of losses:", all(step % 10 == 0 for step in changes))
print("the copies of all ranks are equal:", len(set(runs["plateau"].summary.params_sha256)) == 1)

# %% [markdown]
# ### A batch that does not fit
#
# A step with 512 samples needs the activations of 512 samples, and a GPU may not have the memory. **Gradient
# accumulation** (梯度累积) computes them in k **micro-batches**, one after another: each backward pass adds to the
# gradient and frees its activations, and the ranks communicate after the last one. `--accumulate k` does so for every
# data-parallel method.
#
# **Predict:** for k = 1, 2, 4, 8: how many bytes does autograd keep, and how far is the gradient from that of the
# undivided batch?

# %%
my_memory = predict("times as many bytes with k = 1 as with k = 8", ...)
my_gradient = predict("the gradient is the same, to rounding", ..., "yes", "no")

# %%
torch.manual_seed(0)
network, (inputs, targets) = cnn(datasets.shape("mnist5k"), 10, 16, 2), next(batches("mnist5k", 512))
kept, gradients = {}, {}
for count in (1, 2, 4, 8):
    meter = ActivationMeter([*network.parameters(), inputs, targets])  # counts what autograd saves, but for these

    def watched(part, meter=meter):
        with meter.watching():
            return classification(network, part)

    network.zero_grad()
    accumulation.backward(watched, (inputs, targets), weight=1.0, count=count)
    gradients[count] = torch.cat([each.grad.reshape(-1) for each in network.parameters()])
    kept[count] = meter.most
figure, ax = plt.subplots(figsize=(5, 2.5))
ax.bar([str(count) for count in kept], [nbytes / 1e6 for nbytes in kept.values()], color=BLUE)
ax.set(xlabel="micro-batches", ylabel="activations (MB)")
ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()

# %% tags=["nbval-check-output"]
for count, nbytes in kept.items():
    same = torch.allclose(gradients[count], gradients[1], atol=1e-6)
    print(f"{count} micro-batches: {nbytes / 1e6:.1f} MB kept, the same gradient: {same}")
my_memory.compare(kept[1] / kept[8], within=0.05)
my_gradient.compare(torch.allclose(gradients[8], gradients[1], atol=1e-6))

# %% [markdown]
# An eighth of the memory, for the same gradient. The ranks also send the same bytes:

# %% tags=["nbval-check-output"]
large = {"data": "digits", "batch": 512, "steps": 6, "optimizer": "momentum", "lr": 0.05}
whole, divided = (
    launch("sync_sgd", ranks=2, **large, accumulate=count, out=folder / f"accumulated-{count}") for count in (1, 8)
)
print("bytes of each rank:", whole.summary.bytes_sent, divided.summary.bytes_sent)
close = np.allclose([line["loss"] for line in whole.metrics], [line["loss"] for line in divided.metrics], rtol=1e-4)
print("the same loss in each step:", close)

# %% [markdown]
# It is not the same for a model with BatchNorm, which normalises each micro-batch separately. And ZeRO's stages 2 and
# 3 do send more: a rank that keeps only its part of the gradient has to reduce after every pass (notebook 27).
#
# ### A rate that is adapted
#
# Document 001 has a second rule: collect the gradients of past rounds, and lower the rate where the error is high
# (动态调整学习率). What does a gradient tell? Its length depends on the unit of the loss (section 2). But if
# successive mean gradients point the *same* way, steps could be longer; if they point back, steps overshoot.
# `--adapt-lr-by gradients` decides by that. It needs no message, because after the all-reduce every rank has the mean
# gradient. `--adapt-lr` alone is Battiti's **bold driver**: up while the loss falls; where it rises, the steps are
# undone, and the rate is halved.
#
# **Predict:** each begins once with a rate that is ten times too low, and once with a rate at which nothing is
# learned. Which of the training runs succeed?

# %%
my_learned = predict("trainings that come to a good end, of 6", ...)


# %%
def adapted(rule, rate, steps=400):
    """Return the loss and the rate of each step of a perceptron on digits, its rate adapted every ten steps."""
    torch.manual_seed(0)
    model, stream, losses, rates = mlp(datasets.shape("digits"), 10, 64, 2), batches("digits", 64), [], []
    flat = FlatBuffers(model)
    driver, agreement, accepted = BoldDriver(rate), GradientAgreement(flat.values), flat.values.clone()
    for step in range(1, steps + 1):
        inputs, targets = next(stream)
        flat.zero_gradients()
        loss = mean_cross_entropy(model(inputs), targets)
        loss.backward()
        agreement.note(flat.gradients)
        flat.values.sub_(rate * flat.gradients)
        losses.append(loss.item())
        rates.append(rate)
        if step % 10 == 0 and rule == "gradients":
            rate = agreement.conclude(rate)
        elif step % 10 == 0 and rule == "loss":
            rate = driver.observe(float(np.mean(losses[-10:])))
            (flat.values if driver.undo else accepted).copy_(accepted if driver.undo else flat.values)
    return losses, rates


adapted_runs = {(rule, rate): adapted(rule, rate) for rule in ("none", "loss", "gradients") for rate in (0.02, 1.5)}
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3))
for (rule, rate), (losses, rates) in adapted_runs.items():
    colour, style = {"none": GREY, "loss": ORANGE, "gradients": BLUE}[rule], "-" if rate < 1 else "--"
    left.plot(smooth(np.minimum(losses, 4)), style, color=colour, label=f"{rule}, from {rate}")
    right.semilogy(rates, style, color=colour, label=f"{rule}, from {rate}")
left.set(xlabel="step", ylabel="training loss")
right.set(xlabel="step", ylabel="rate")
tidy(left, right)
left.legend_.remove()
right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))

# %% tags=["nbval-check-output"]
for (rule, rate), (losses, rates) in adapted_runs.items():
    learned = float(np.mean(losses[-20:])) < 1.0
    print(f"by {rule:10} from a rate of {rate}: has learned: {learned}; the rate has changed: {rates[-1] != rate}")
my_learned.compare(sum(float(np.mean(losses[-20:])) < 1.0 for losses, _ in adapted_runs.values()))

# %% [markdown]
# Both rules find a rate from either side. By gradients the rate keeps falling near the end, where the gradients are
# mostly noise: half of them then point back, and each of these halves the rate. A schedule does that on purpose.
#
# ## 8 To measure without stopping
#
# Those exchanges cost something. In the picture of a training run there is a small gap every ten steps: all ranks
# meet, add up their losses and record them. Document 001 has a thread do this, and calls it asynchronous update.
# Nothing is updated asynchronously, only read (erratum 001.14); here the option is called `--background-metrics`.
#
# **Predict:** which of these change: the losses in the record, the model, the time?

# %%
my_losses = predict("the losses in the record change", ..., "yes", "no")
my_model = predict("the model changes", ..., "yes", "no")

# %%
small = {"data": "digits", "hidden": 64, "steps": 120}
ways = {"between the steps": {}, "beside them": {"background_metrics": True}}
tried = {name: launch("sync_sgd", ranks=2, **small, **option, out=folder / name) for name, option in ways.items()}
figure, axes = plt.subplots(2, 1, figsize=(9.5, 4.4))
for ax, (name, run) in zip(axes, tried.items(), strict=True):
    timeline.plot(run, ax, steps=22, title=name)
figure.tight_layout()

# %%
for name, run in tried.items():
    passed = 1e3 * np.diff([line["wall_s"] for line in run.metrics])  # until the next step was done
    after = np.arange(1, len(run.metrics)) % 10 == 0  # those that follow an exchange
    print(f"{name:18} a step {np.median(passed[~after]):.2f} ms, after an exchange {np.median(passed[after]):.2f} ms;",
          f"all of it {run.summary.wall_s:.2f} s")  # fmt: skip

# %% tags=["nbval-check-output"]
lines = [[(line["step"], line["loss"], line["samples"]) for line in run.metrics] for run in tried.values()]
print("the same losses, to the bit:", lines[0] == lines[1])
digests = {digest for run in tried.values() for digest in run.summary.params_sha256}
print("the same model, to the bit:", len(digests) == 1)
my_losses.compare(lines[0] != lines[1])
my_model.compare(len(digests) > 1)

# %% [markdown]
# The gap becomes smaller but does not vanish: the thread needs a core, and with as many ranks as cores it takes its
# time from the computing ranks. The seconds show whether it was worth it here. On a cluster the two small all-reduces
# wait for a network, and a waiting thread needs no core.
#
# The numbers are the same, but they come later, and on each rank at another moment. So no decision that must be the
# same on all ranks may depend on them. That is why this option refuses to run with "plateau".
#
# **Try:** `launch("sync_sgd", ranks=2, background_metrics=True, lr_schedule="plateau")`.
#
# ## 9 How good is it? All ranks count
#
# A large test set takes time as well, and while one rank evaluates it the others wait. In **sharded evaluation**
# (分布式评估) each rank evaluates its share. What should they add up then: the accuracies, or the counts?
#
# **Predict:** 180 test images on 1 to 16 ranks. For which numbers is the mean of the ranks' accuracies the right
# accuracy?

# %%
my_numbers = predict("numbers of ranks, of 1, 2, 3, 4, 7, 8, 11 and 16, for which it is, as a list", ...)

# %% tags=["nbval-check-output"]
splits = datasets.split(datasets.load("digits"), seed=0)
model, cpu = workloads["perceptron"][0], torch.device("cpu")
alone = accuracy(model, splits.test, cpu)
means = {}
for ranks in (1, 2, 3, 4, 7, 8, 11, 16):
    shares = slices(equal_shares(len(splits.test), ranks))
    lengths = [share.stop - share.start for share in shares]
    accuracies = [accuracy(model, splits.test[share], cpu) for share in shares]
    means[ranks] = np.mean(accuracies)
    counts = [round(share * length) for share, length in zip(accuracies, lengths, strict=True)]
    same = sum(counts) / sum(lengths) == alone
    print(f"{ranks} ranks, shares of {min(lengths)} to {max(lengths)} images: by counts the same accuracy: {same}")
my_numbers.compare([ranks for ranks, mean in means.items() if abs(mean - alone) < 1e-12])

# %%
for ranks, mean in means.items():
    print(f"{ranks} ranks: the mean of their accuracies {mean:.6f}, right is {alone:.6f}")

# %% [markdown]
# A mean of means gives the samples of a small share more weight. Here the difference is negligible. With shares by
# capability, or a last rank that has only the remainder, it is large enough to look like a mistake in the model.
# Counts are whole numbers, whose sum is the same in every order. The next cell does it on real ranks, which read the
# model from a file:

# %%
torch.save(model.state_dict(), folder / "perceptron.pt")
(folder / "alone.json").write_text(json.dumps(alone))
os.environ["HANDED_OVER"] = str(folder)

# %% tags=["nbval-check-output"]
# %%mpi -n 4
import json
import os
from pathlib import Path

import torch

from farandole.data import datasets
from farandole.data_parallel.evaluation import judged_together
from farandole.models.classifiers import mlp
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import Task, is_right

folder = Path(os.environ["HANDED_OVER"])
with World.start(RunOptions(wait_timeout=30)) as world:
    model = mlp(datasets.shape("digits"), 10, 128, 2)
    model.load_state_dict(torch.load(folder / "perceptron.pt"))
    splits = datasets.split(datasets.load("digits"), seed=0)
    task = Task(lambda: model, splits.train, splits.test, metrics={"accuracy": is_right})
    found = judged_together(model, splits.test, world, task)["accuracy"]
    print(
        f"rank {world.rank}: the accuracy that one process found:",
        found == json.loads((folder / "alone.json").read_text()),
    )

# %% [markdown]
# ## 10 On a board
#
# Many engineers use **TensorBoard**. With `--tensorboard boards` a run writes its numbers into event files, as well
# as into its own record, and `tensorboard --logdir boards` shows all runs of that folder. We read the file back
# without a server.

# %%
craft = {"data": "digits", "hidden": 64, "steps": 60, "optimizer": "adam", "lr": 0.003, "weight_decay": 0.1}
more = {"batch": 128, "lr_batch": 64, "warm_up": 10, "lr_schedule": "cosine", "precision": "bfloat16"}
run = launch("sync_sgd", ranks=2, **craft, **more, export=True, tensorboard=folder / "boards", out=folder / "craft")
events = EventAccumulator(str(folder / "boards" / "craft"))
_ = events.Reload()

# %% tags=["nbval-check-output"]
print("scalars:", ", ".join(sorted(events.Tags()["scalars"])))
for name in ("loss", "lr"):
    shown, recorded = events.Scalars(name), run.metrics
    print(f"{name}: as many as steps: {len(shown) == len(recorded) == 60};", end=" ")
    same = all(event.value == np.float32(line[name]) for event, line in zip(shown, recorded, strict=True))
    print("as in the record, in float32:", same)
print("the accuracy at the end:", events.Scalars("test_accuracy")[0].value == np.float32(run.summary.test_accuracy))

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.5, 2.8))
for ax, name, colour in zip(axes, ("lr", "loss"), (ORANGE, BLUE), strict=True):
    ax.plot(
        [event.step for event in events.Scalars(name)], [event.value for event in events.Scalars(name)], color=colour
    )
    ax.set(xlabel="step", ylabel=name, ylim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()

# %% [markdown]
# That run used nearly all of this notebook at once: bfloat16, Adam with decoupled decay, a scaled rate with a warm-up
# and a cosine schedule. And it has exported its model.
#
# ## 11 To be used elsewhere
#
# A checkpoint is for resuming the training with the program that wrote it. A model in *use* should need neither the
# optimizer's state nor our code. Document 001 saves a TensorFlow SavedModel; here it is `--export`, by
# `torch.export`: the graph of operations and the parameters in one file.
#
# **Predict:** reloaded, does the model give the same predictions? The same logits, to the bit? For a batch of another
# size, too?

# %%
my_guesses = predict("the same guesses", ..., "yes", "no")
my_logits = predict("the same logits, to the bit", ..., "yes", "no")

# %%
model, batch = workloads["transformer"]
export.write(model, batch[0][:2].numpy(), folder)
reloaded = export.read(folder)
with torch.no_grad():
    compared = [(reloaded(batch[0][:count]), model(batch[0][:count])) for count in (1, 5, 16)]

# %% tags=["nbval-check-output"]
same_guesses = all(torch.equal(ours.argmax(-1), its.argmax(-1)) for ours, its in compared)
print("the transformer, reloaded: the same guesses for 1, 5 and 16 texts:", same_guesses)
print("the same logits, to the bit:", all(torch.equal(ours, its) for ours, its in compared))
with torch.no_grad():
    guesses = export.read(run.folder)(torch.from_numpy(splits.test.inputs)).argmax(dim=-1).numpy()
same = bool((guesses == splits.test.targets).mean() == run.summary.test_accuracy)
print("the model of section 10, trained on 2 ranks: as accurate as its record says:", same)
my_guesses.compare(same_guesses)
my_logits.compare(all(torch.equal(ours, its) for ours, its in compared))

# %% [markdown]
# ## 12 Which numbers, then?
#
# Learning rate, width, decay, warm-up have to be chosen. Document 000 lets each machine train with different
# hyper-parameters. That is wrong if they train *one* model: copies with different rates do not stay equal (erratum
# 000.13). But it is right for a *search* (超参数搜索), which trains many models that are independent until they are
# compared.
#
# **Successive halving** does not train all of them to the end. All begin; the better half continues to twice the
# steps; and so on.
#
# **Predict:** 16 trials, the longest of 160 steps. How many steps is that in all, where training each to the end would
# be 2,560?

# %%
my_steps = predict("steps of the search", ...)

# %% tags=["nbval-check-output"]
plan = rounds(trials=16, steps=160)
done = 0
for number, (size, steps) in enumerate(plan):
    new = size * (steps - (plan[number - 1][1] if number else 0))
    done += new
    busiest = -(-size // 4)
    print(
        f"round {number}: {size:2} trials, each up to step {steps:3}; {new} steps; on 4 ranks {busiest} at most on each"
    )
print(f"{done} steps in all")
my_steps.compare(done)

# %%
tries = {"data": "digits", "trials": 16, "steps": 160, "hidden": 64, "widths": (16, 64), "lr": 0.1, "spread": 30}
searches = {ranks: launch("search", ranks=ranks, **tries, out=folder / f"search-{ranks}") for ranks in (4, 1)}
found = {ranks: json.loads((search.folder / "trials.json").read_text()) for ranks, search in searches.items()}
print(searches[4].output)

# %%
figure, ax = plt.subplots(figsize=(8, 3.4))
for (_, steps), colour in zip(plan, (GREY, SKY, PURPLE, RED), strict=True):
    ended = [trial for trial in found[4] if trial["steps"] == steps]
    for width, marker in ((16, "o"), (64, "s")):
        these = [trial for trial in ended if trial["hidden"] == width]
        ax.loglog([each["lr"] for each in these], [each["loss"] for each in these], marker, color=colour)
    ax.plot([], [], "o", color=colour, label=f"ended at step {steps}")
ax.set(xlabel="learning rate (squares: 64 wide, circles: 16)", ylabel="validation loss when it ended")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, fontsize=8)
figure.tight_layout()

# %%
figure, ax = plt.subplots(figsize=(9.5, 2.6))
timeline.plot(searches[4], ax, steps=160, title="the search")
figure.tight_layout()

# %% tags=["nbval-check-output"]
chosen = [[(trial["number"], trial["hidden"], trial["steps"]) for trial in found[ranks]] for ranks in (4, 1)]
print("how many ended at which step:", [sum(trial["steps"] == steps for trial in found[4]) for _, steps in plan])
print("on 1 rank the same trials continue:", chosen[0] == chosen[1])
print("all ranks end with the best one's model:", len(set(searches[4].summary.params_sha256)) == 1)
print("more than 8 of 10 test images right:", searches[4].summary.test_accuracy > 0.8)

# %% [markdown]
# Half of the trials are stopped after an eighth of the steps. It may be the wrong half: a small learning rate looks
# worse early than it is. And look at the last picture: a round lasts until its slowest rank is done, and in the last
# round two trials are left for four ranks. Halving saves more steps than time.
#
# ## What you have seen
#
# - float16 is a window: a scale moves the gradients into it. bfloat16 is wide and coarse and needs none.
# - Updates are smaller than the last digit of 16 bits, so the parameters are kept in float32.
# - The sum of all ranks is infinite if one rank's part is. So all ranks skip the same step, without an extra message.
# - L2 and decoupled decay are the same under SGD, and differ under Adam.
# - A larger batch needs a larger rate, and sometimes a warm-up. All ranks must know at the same step what decides the
#   rate.
# - A batch that does not fit is computed in micro-batches: the same gradient and the same bytes, in less memory.
# - Metrics can be gathered during training, evaluation can be divided (add the counts), and a model can be exported.
# - Hyper-parameters that differ from rank to rank are a search, not data parallelism.
#
# ## What to try
#
# 1. Section 2: a loss scale that is *not* a power of two, 50,000 for instance. In which digit of the gradient do you
#    see it, and why does `LossScale` only double and halve?
# 2. Section 3 with `lr=0.3`. Is a master copy still needed? Then think of the last steps of a cosine schedule.
# 3. Section 5: what if each rank had a separate scale? Follow the overflow of rank 2 through the next step.
# 4. Section 5 with a `Bcast` of "rank 0 saw no overflow" instead of the sum. Which overflows would it miss?
# 5. Section 6 with `"momentum"`. Which of the two optimizers does it resemble, and do the kinds differ?
# 6. Section 7 with a batch of 2,048 and 32 times the rate. Find any warm-up for which it works.
# 7. Section 12 with `--steps 40`: are the same two trials left? What does that say about the first round?
# 8. `farandole run search -n 2 --data pydoc --model transformer --hidden 32 --trials 4 --steps 60 --lr 0.1`: the same
#    for the language model.
# 9. Write it yourself: `farandole lab start 5`, mixed precision. The checks include a loss too small for float16, and
#    an overflow on one rank only.
