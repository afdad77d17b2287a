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
# # 21 · Gradient compression
#
# **Question:** must a gradient be sent whole?
#
# A step of synchronous SGD sends four bytes for each parameter, in every step, both ways. **Gradient compression**
# (梯度压缩, documents 001 and 002) sends fewer: fewer bits for each number (**quantisation**, 量化), fewer numbers
# (**sparsification**, 稀疏化), or a matrix as the product of two thin ones (low rank, 矩阵压缩). What is lost can be
# sent later. And the saving has a price: encoding takes time.

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.compression.error_feedback import ErrorFeedback
from farandole.compression.half_precision import Float16
from farandole.compression.majority_vote import MajorityVote
from farandole.compression.powersgd import PowerSGD
from farandole.compression.qsgd import QSGD
from farandole.compression.random_k import RandomK
from farandole.compression.sign import Sign
from farandole.compression.terngrad import TernGrad
from farandole.compression.top_k import TopK
from farandole.report.colours import SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 What arrives
#
# A compressor encodes a vector as bytes, whose number depends only on the vector's length, and decodes the bytes to a
# vector. Let us encode and decode eight numbers.
#
# **Predict:** which of these keep the largest number, which the sign of the smallest?

# %%
my_largest = predict(
    "those that keep the largest number, as a list", ..., "float16", "qsgd", "terngrad", "sign", "top-k"
)
my_smallest = predict(
    "those that keep the sign of the smallest, as a list", ..., "float16", "qsgd", "terngrad", "sign", "top-k"
)

# %% tags=["nbval-check-output"]
vector = np.array([0.9, -0.02, 0.3, -0.5, 0.05, 0.01, -0.3, 0.1], np.float32)
draw = np.random.default_rng(0)
compressors = {
    "float16": Float16(), "qsgd, 3 levels": QSGD(draw, 3, 8), "terngrad": TernGrad(draw, 8),
    "sign": Sign(), "top-k, a quarter": TopK(0.25),
}  # fmt: skip
print(f"{'sent':18}", *(f"{number:7.3f}" for number in vector))
largest, smallest = abs(vector).argmax(), abs(vector).argmin()
keep_largest, keep_sign = [], []
for name, compressor in compressors.items():
    payload = compressor.encode(vector)
    arrived = compressor.decode(payload, 8)
    if np.isclose(arrived[largest], vector[largest], rtol=0.001):
        keep_largest.append(name.split(",")[0])
    if np.sign(arrived[smallest]) == np.sign(vector[smallest]):
        keep_sign.append(name.split(",")[0])
    print(f"{name:18}", *(f"{number:7.3f}" for number in arrived), f"  {len(payload):2} bytes of 32")
my_largest.compare(keep_largest)
my_smallest.compare(keep_sign)

# %% [markdown]
# ## 2 Right on average
#
# QSGD and TernGrad round at random: each number goes up or down so that the **mean** of what arrives is what was
# sent. Such a compressor is called unbiased (无偏). It adds noise, which SGD tolerates.
#
# **Predict:** over 4000 draws, which of these means come near the true numbers? What about `sign`?

# %%
my_means = predict("those whose mean is right, as a list", ..., "qsgd", "terngrad", "sign")

# %% tags=["nbval-check-output"]
right = []
for name in ("qsgd, 3 levels", "terngrad", "sign"):
    compressor = compressors[name]
    arrived = np.array([compressor.decode(compressor.encode(vector), 8) for _ in range(4000)], np.float64)
    near = np.abs(arrived.mean(0) - vector) < 5 * arrived.std(0) / np.sqrt(4000) + 1e-6
    if near.all():
        right.append(name.split(",")[0])
    print(f"{name:15} right on average: {bool(near.all())}")
my_means.compare(right)

# %% [markdown]
# ## 3 What is lost comes back
#
# Top-k and sign are biased: a number that is always small is never sent, or always as ±the mean size. **Error
# feedback** (误差反馈) keeps what a compressor has left out and adds it to the next vector. So at any time
#
# $$ \sum \text{sent} + \text{kept} = \sum \text{gradients} $$
#
# We compress the same gradient again and again, and send one of its eight numbers each time.
#
# **Predict:** how much of the smallest number, 0.01, has arrived after 1000 steps, with and without feedback?

# %%
my_without = predict("what has arrived without feedback", ...)
my_with = predict("what has arrived with feedback", ...)

# %% tags=["nbval-check-output"]
plain, kept = TopK(1 / 8), ErrorFeedback(TopK(1 / 8), 8)
sums = {"without": np.zeros(8), "with": np.zeros(8)}
for _ in range(1000):
    sums["without"] += plain.decode(plain.encode(vector), 8)
    sums["with"] += kept.decode(kept.encode(vector), 8)
print("all gradients  ", *(f"{1000 * number:8.1f}" for number in vector))
for name, arrived in sums.items():
    print(f"{name:15}", *(f"{number:8.1f}" for number in arrived))
print("sent + kept = all:", bool(np.allclose(sums["with"] + kept.residual, 1000.0 * vector, atol=1e-2)))
my_without.compare(sums["without"][5])
my_with.compare(sums["with"][5], within=0.1)

# %% [markdown]
# Every number is sent at some time, large ones more often. What has not arrived yet is in the residual.
#
# Is feedback always safe? QSGD with few levels is right on average, but its error may be longer than its input: its
# variance ω is above 1. With feedback that error is added to the next input, and the next error is longer still.
# Scaled by 1/(1 + ω), the output always removes a part of the input, which is all that feedback needs (a contraction,
# 压缩映射); `ErrorFeedback` applies this factor.
#
# **Predict:** how long is the residual after 300 gradients of length 1, with the factor and without?

# %%
my_scaled = predict("its length with the factor", ..., "below 10", "10 to a million", "above a million")
my_kept = predict("its length without the factor", ..., "below 10", "10 to a million", "above a million")

# %% tags=["nbval-check-output"]
draw = np.random.default_rng(3)
coarse, scaled = QSGD(draw, levels=1, bucket=512), ErrorFeedback(QSGD(draw, levels=1, bucket=512), 512)
kept, longest = np.zeros(512, np.float32), 0.0
for step in range(1, 301):
    gradient = np.random.default_rng(step).standard_normal(512).astype(np.float32) / np.float32(np.sqrt(512))
    scaled.encode(gradient)
    longest = max(longest, float(np.linalg.norm(scaled.residual)))
    if np.linalg.norm(kept) < 1e6:
        kept += gradient
        kept -= coarse.decode(coarse.encode(kept), 512)
print(f"ω = {coarse.variance(512):.1f}")
print("without the factor, longer than a million:", bool(np.linalg.norm(kept) > 1e6))
print("with it, never longer than 10:", longest < 10)


def in_words(length):
    return "below 10" if length < 10 else "10 to a million" if length < 1e6 else "above a million"


my_scaled.compare(in_words(longest))
my_kept.compare(in_words(np.linalg.norm(kept)))

# %% [markdown]
# ## 4 A case where it goes wrong
#
# Karimireddy et al. (2019) have a problem on which the sign alone never arrives: $f(x) = \frac12|x_1+x_2| +
# |x_1-x_2|$, from (1, 1). Every gradient has two numbers of opposite signs, so sign can only send ±(1, −1), and
# $x_1+x_2$ does not change.


# %%
def descent(compressor):
    x, path = np.array([1.0, 1.0]), []
    for step in range(1, 600):
        path.append(0.5 * abs(x.sum()) + abs(x[0] - x[1]))
        along, across = np.sign(x.sum()) or 1.0, np.sign(x[0] - x[1]) or 1.0
        gradient = np.array([0.5 * along + across, 0.5 * along - across], np.float32)
        x -= 0.2 / np.sqrt(step) * compressor.decode(compressor.encode(gradient), 2)
    return path


_, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
ax.semilogy(descent(Sign()), color=SERIES[1], label="sign")
ax.semilogy(descent(ErrorFeedback(Sign(), 2)), color=SERIES[0], label="sign with feedback")
ax.set(xlabel="step", ylabel="f(x)")
ax.spines[["top", "right"]].set_visible(False)
ax.grid(alpha=0.3)
ax.legend(frameon=False)

# %% [markdown]
# Another method with signs: the ranks **vote** (Bernstein et al. 2018). Each rank sends its signs, and receives the
# sign of the majority: one bit per entry in each direction, and no magnitude at all.
#
# **Predict:** the third of three ranks sends the opposite of its gradient, 100 times as long. What happens to the
# mean, and to the vote?

# %%
my_mean = predict("the mean", ..., "keeps its direction", "is reversed")
my_vote = predict("the vote", ..., "keeps its direction", "is reversed")

# %% tags=["nbval-check-output"]
gradients = [vector, vector + np.float32(0.03), -100 * vector]
sides = [MajorityVote(8, ranks=3, generator=np.random.default_rng(rank)) for rank in range(3)]
ballots = [side.ballots(gradient) for side, gradient in zip(sides, gradients, strict=True)]
verdicts = [side.count(np.stack([rows[rank] for rows in ballots])) for rank, side in enumerate(sides)]
print("one rank's gradient ", *(f"{number:6.2f}" for number in vector))
print("mean of all three   ", *(f"{number:6.1f}" for number in np.mean(gradients, axis=0)))
print("vote                ", *(f"{number:6.0f}" for number in sides[0].decode(np.concatenate(verdicts))))
print("bytes that leave a rank with a million entries:", MajorityVote(10**6, 3, np.random.default_rng(0)).nbytes())
vote = sides[0].decode(np.concatenate(verdicts))
my_mean.compare("is reversed" if np.mean(gradients, axis=0) @ vector < 0 else "keeps its direction")
my_vote.compare("is reversed" if vote @ vector < 0 else "keeps its direction")

# %% [markdown]
# And a gradient that is **not finite**? Each message of a vote has one more byte, which reports this. The other
# compressors send such values on, or spread them over all entries that share a scale. So all ranks see them in the
# decoded sum, in the same step, and the run ends with a one-line message. No residual keeps them:

# %% tags=["nbval-check-output"]
broken = vector.copy()
broken[3] = np.nan
for name, compressor in {"sign": Sign(), "top-k": TopK(0.25), "random-k": RandomK(draw, 0.25)}.items():
    feedback = ErrorFeedback(compressor, 8)
    arrived = feedback.decode(feedback.encode(broken), 8)
    seen, clean = not np.isfinite(arrived).all(), np.isfinite(feedback.residual).all()
    print(f"{name:9} all ranks see it: {seen}; the residual is as it was: {bool(clean)}")

# %% [markdown]
# ## 5 Thin matrices
#
# A layer's gradient is a matrix, and often a few directions contain most of it. PowerSGD (Vogels et al. 2019)
# multiplies it by a thin *Q*, adds the products of all ranks, makes them orthonormal, and multiplies back: two thin
# matrices to send instead of a large one. The next step begins with the resulting *Q*, so the directions improve from
# step to step.
#
# **Predict:** a matrix of 40 × 30 whose singular values halve from one to the next, with rank 2. How far from the best
# approximation of rank 2 is the first step, and how far the tenth, if the gradient stays the same?

# %%
my_tenth = predict("the tenth step's error, in those of the best approximation", ...)

# %% tags=["nbval-check-output"]
noise = np.random.default_rng(1)
left, right = (np.linalg.qr(noise.normal(size=(n, 30)))[0] for n in (40, 30))
values = 0.5 ** np.arange(30)
matrix = ((left * values) @ right.T).astype(np.float32)
power = PowerSGD([(40, 30)], rank=2, ranks=1, generator=np.random.default_rng(2), feedback=False)
best = np.sqrt((values[2:] ** 2).sum())
for step in range(1, 11):
    arrived = power.decode(power.project_back(power.project(matrix.reshape(-1))))  # with one rank nothing is added
    if step in (1, 2, 3, 10):
        error = np.linalg.norm(arrived - matrix.reshape(-1))
        print(f"step {step:2}: error {error / best:.2f} of the best possible one")
print("numbers sent:", sum(power.nbytes()) // 4, "of", matrix.size)
my_tenth.compare(error / best, within=0.02)

# %% [markdown]
# ## 6 In training: what is sent
#
# How do payloads of four ranks become a sum? Some can be added on the way (float16, PowerSGD's factors); the others
# are sent to all ranks, and every rank decodes all of them.
#
# **Predict:** bfloat16 has half the bytes of float32 and is gathered. With four ranks, does it send less than the ring
# all-reduce of float32?

# %%
my_less = predict("it sends less than the ring of float32", ..., "yes", "no")

# %% tags=["nbval-check-output"]
recipe = {"data": "digits", "hidden": 64, "steps": 60, "batch": 64, "lr": 0.3, "seed": 0}
names = ("none", "float16", "bfloat16", "qsgd", "sign", "top-k", "powersgd")
runs = {name: launch("compressed_sgd", 4, **recipe, compressor=name, out=folder / name) for name in names}
whole = sum(runs["none"].summary.bytes_sent)
for name, run in runs.items():
    print(f"{name:>9}: {sum(run.summary.bytes_sent) / whole:6.1%} of the bytes, the same parameters on all ranks:",
          len(set(run.summary.params_sha256)) == 1)  # fmt: skip
my_less.compare(sum(runs["bfloat16"].summary.bytes_sent) < 0.99 * whole)

# %%
_, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
for (name, run), colour in zip(runs.items(), plt.cm.tab10.colors, strict=False):
    ax.plot([line["loss"] for line in run.metrics], color=colour, lw=1, label=name)
    print(f"{name:>9}: accuracy {run.summary.test_accuracy:.1%}")
ax.set(xlabel="step", ylabel="loss")
ax.spines[["top", "right"]].set_visible(False)
ax.grid(alpha=0.3)
ax.legend(frameon=False, ncols=2)

# %% [markdown]
# ## 7 Where it pays, and where it loses
#
# Bytes are not seconds. Every step has three parts: encode, transfer, decode. Here two ranks train a larger model,
# once with messages through memory, and once over links of 100 Mbit/s (`--link-mbps`).
#
# **Predict:** which compressors make a step faster through memory?

# %%
large = {"data": "digits", "hidden": 512, "steps": 4, "batch": 64, "lr": 0.1, "seed": 0}
networks = {"through memory": {}, "100 Mbit/s": {"link_mbps": 100}}
chosen = ("none", "float16", "qsgd", "sign", "top-k", "powersgd")
_, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
for ax, (network, link) in zip(axes, networks.items(), strict=True):
    parts = {}
    for name in chosen:
        run = launch("compressed_sgd", 2, **large, **link, compressor=name, out=folder / f"{name} {network}")
        took = run.summary.compression
        parts[name] = [1e3 * np.mean(took[part]) / 4 for part in ("encode_s", "transfer_s", "decode_s")]
    below = np.zeros(len(chosen))
    for number, part in enumerate(("encode", "transfer", "decode")):
        heights = [parts[name][number] for name in chosen]
        ax.bar(chosen, heights, bottom=below, color=SERIES[number], label=part)
        below += heights
    ax.set(title=network, ylabel="ms a step")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(axis="x", labelrotation=20)
axes[0].legend(frameon=False)

# %% [markdown]
# Through memory nearly every compressor **loses**: encoding takes longer than the transfer it saves. Over a slow
# network it gains: the transfer shrinks about as much as the bytes, and encoding and decoding are added. Between the
# two is a network at which both are equal: encode + decode = (bytes saved) · β. The page on compression has
# measurements of all ten.
#
# ## Try
#
# - `fraction=0.001` with `top-k`: bytes, and accuracy? And `dgc` with `sparsity_warm_up=50` and `lr=0.05`?
# - `compressor="sign", feedback=False` in section 6. And `"majority-vote"` with `lr=0.003`.
# - `compressor="terngrad"` with `terngrad_clip=2.5`, as in the paper, and `share_scales=True`: what does each cost?
# - At which `link_mbps` does `qsgd` take as long as `none`? Predict it from the left picture in section 7, then
#   measure.
# - Sixteen ranks instead of four: which of the compressors would lose their advantage? (Count the bytes of a gather.)
