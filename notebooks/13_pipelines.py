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
# # 13 · Pipelines
#
# **Question:** a model is cut into four parts on four ranks, and one of them works while three wait. What can the
# waiting ranks do meanwhile?
#
# Work on another batch, or on another piece of the same one. **Pipeline parallel** (流水线并行) cuts each batch into
# **micro-batches**: as soon as a stage has sent the first one on, it starts the second. A laundry works in the same
# way: the second load is washed while the first one dries.
#
# A **schedule** says which micro-batch a stage computes next, forward or backward. In the code it is a generator that
# knows no tensors, no messages and no clock. This is the complete first one, GPipe (Huang et al. 2019):

# %%
# %load_ext farandole
import inspect
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

from farandole import launch
from farandole.model_parallel.checker import ScheduleError, check
from farandole.model_parallel.schedules import choose, gpipe, pipedream
from farandole.model_parallel.steps import Backward, Forward, Times, Update, with_messages
from farandole.report import curves, pipeline_picture
from farandole.report.colours import BLUE, ORANGE, SERIES
from farandole.report.pipeline_picture import measured, scheduled
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

print(inspect.getsource(gpipe.computations))

# %% [markdown]
# ## 1 From a schedule to messages, a time line, a proof
#
# The messages follow from the computations: before a forward pass a stage receives the activations of the stage
# before, after it the stage sends its own, and backward passes reverse this. The middle one of three stages does the
# following with two micro-batches:

# %% tags=["nbval-check-output"]
for step in with_messages(gpipe.computations(1, 3, 2), stage=1, stages=3):
    print(step)

# %% [markdown]
# A **checker** runs all stages in one process, without a tensor, in simulated time. It checks that every micro-batch
# goes forward and backward once on each stage and in the right order, and it computes how long each stage waits and
# how many micro-batches a stage holds at once. It rejects a wrong schedule:


# %% tags=["nbval-check-output"]
def eager(stage, stages, micro_batches) -> Iterator[Forward | Backward | Update]:
    """GPipe, but the first stage waits for the first gradient before it has sent the second micro-batch."""
    first = 1 if stage == 0 else micro_batches
    yield from (Forward(m) for m in range(first))
    yield from (Backward(m) for m in reversed(range(micro_batches)))
    yield from (Forward(m) for m in range(first, micro_batches))
    yield Update()


try:
    check(replace(choose("gpipe"), computations=eager), 2, 2)
except ScheduleError as error:
    print(error)

# %% [markdown]
# ## 2 From naive to GPipe
#
# The runs of this notebook train a perceptron of 16 layers on four ranks. It is so small that a pass takes hardly any
# time; `pace_ms=25` makes every pass take 25 milliseconds (a backward pass has two halves, for inputs and for
# weights, and takes twice as long). So all stages take equally long, which they never quite do in practice, and the
# picture shows the schedule. Where the bubble is small, the passes are slower still, so that a millisecond for a
# message does not blur it.
#
# In each pair of pictures the upper one is drawn from the schedule, the lower one from the trace of a real run. The
# empty part is called the **bubble**.

# %%
P, M = 4, 8  # stages, micro-batches
recipe = {"data": "digits", "hidden": 64, "depth": 7, "batch": 64, "lr": 0.1, "steps": 2, "precision": "float64",
          "balance": "layers", "micro_batches": M, "pace_ms": 25}  # fmt: skip
runs = {}


def run(name, **options):
    """Train with that schedule, and draw it as planned and as measured in the last step."""
    runs[name] = launch("pipeline", ranks=P, **recipe | options, schedule=name, out=folder / name)
    times = Times(*[runs[name].config["pace_ms"]] * 3)
    lines = scheduled(choose(name), P, M, times, "milliseconds"), measured(runs[name], runs[name].summary.steps - 1)
    return Image(filename=str(pipeline_picture.draw(folder / f"{name}.png", *lines)))


run("naive", pace_ms=10)

# %% [markdown]
# That is `12_layer_split` again, eight times for each update: the bubble is (p − 1)/p, whatever the number of
# micro-batches.
#
# **Predict:** with GPipe the first stage takes all eight micro-batches forward without waiting. For how many passes'
# time will the *last* stage wait at the beginning? What does that make the bubble?

# %%
my_wait = predict("forward passes that the last stage waits for", ...)
my_bubble = predict("bubble/total with GPipe", ...)

# %%
run("gpipe")

# %% tags=["nbval-check-output"]
planned = check(choose("gpipe"), P, M)  # in it a forward pass takes 1
my_wait.compare(planned.by_stage[P - 1][0].start)
my_bubble.compare(planned.bubble_of_total, within=0.05)

# %% [markdown]
# The last stage waits for three forward passes, and again for three backward passes at the end; the other stages wait
# as long, at other times. With p stages and m micro-batches:
#
# $$ \frac{\text{bubble}}{\text{total}} = \frac{p-1}{m+p-1} \qquad\text{or}\qquad
# \frac{\text{bubble}}{\text{ideal}} = \frac{p-1}{m} $$
#
# Papers use both; one has to say which. *Ideal* is the time that a pipeline without a bubble would take.
#
# **Predict:** how many micro-batches does it take to get the bubble below 10 % of the total with four stages, and how
# many with eight?

# %%
my_four = predict("micro-batches with four stages", ...)
my_eight = predict("micro-batches with eight stages", ...)

# %% tags=["nbval-check-output"]
print("bubble/total     p = 2     p = 4     p = 8")
for m in (1, 2, 4, 8, 16, 32, 64):
    shares = [check(choose("gpipe"), p, m).bubble_of_total for p in (2, 4, 8)]
    assert np.allclose(shares, [(p - 1) / (m + p - 1) for p in (2, 4, 8)])
    print(f"m = {m:3}  " + "".join(f"{share:10.1%}" for share in shares))
my_four.compare(next(m for m in range(1, 100) if (4 - 1) / (m + 4 - 1) < 0.1), within=0.04)
my_eight.compare(next(m for m in range(1, 100) if (8 - 1) / (m + 8 - 1) < 0.1), within=0.04)

# %% [markdown]
# So many micro-batches are good. But small micro-batches mean small matrix products, which a device computes less
# efficiently. And look at "holds 8": a micro-batch's activations have to be kept until its backward pass.
#
# ## 3 1F1B: the same bubble, less memory
#
# GPipe's first backward pass could have begun long before. **1F1B** (Fan et al. 2021, Narayanan et al. 2021) starts
# each backward pass as soon as it can: *one forward, one backward*.
#
# **Predict:** which bubble is smaller, GPipe's or 1F1B's?

# %%
my_smaller = predict("the smaller bubble", ..., "gpipe", "1f1b", "they are equal")

# %%
run("1f1b")

# %% tags=["nbval-check-output"]
bubbles = {name: check(choose(name), P, M).bubble_of_total for name in ("gpipe", "1f1b")}
my_smaller.compare("they are equal" if np.isclose(*bubbles.values()) else min(bubbles, key=bubbles.get))

# %% [markdown]
# They are equal: the last stage still cannot start before three passes. The change is in the figures on the right.
# Stage s holds at most p − s micro-batches, *however many there are*, so m can grow until the bubble is small.
#
# ## 4 Interleaved: a shorter way to fill
#
# The bubble is the time to fill the pipeline and to drain it. If each rank has two thin pieces of the model instead
# of a thick one, layers 0 and 4 instead of 0 and 1, the first micro-batch reaches the last rank in half the time
# (Narayanan et al. 2021). It then passes all ranks once more. Pale boxes are the second piece.
#
# **Predict:** with v pieces, how do the bubble and the number of messages change?

# %%
my_ratio = predict("the bubble with two pieces, as a part of that with one (0 to 1)", ...)
my_messages = predict("times as many messages with two pieces", ...)

# %%
run("interleaved", pace_ms=50)

# %% tags=["nbval-check-output"]
one, two = (check(choose(name), P, M) for name in ("1f1b", "interleaved"))
my_ratio.compare(two.bubble_of_ideal / one.bubble_of_ideal)
my_messages.compare(two.messages[1] / one.messages[1])  # of a stage that has two neighbours

# %% [markdown]
# bubble/ideal is (p − 1)/(v m), here a half of 1F1B's. The ranks in the middle send twice as many messages, and the
# first rank holds more.
#
# ## 5 Zero bubble: not everything is urgent
#
# A backward pass computes two things: the gradient of the inputs, for which the stage before is waiting, and the
# gradient of the weights, for which no stage is waiting. **Zero-bubble** (Qi et al. 2023) computes the first at once,
# and the second at times when the stage would otherwise be idle.

# %%
run("zero-bubble", pace_ms=50)

# %% [markdown]
# The yellow boxes fill the empty part at the end. Only the bubble at the start is left. The price is memory: a
# micro-batch is held until its yellow box is done.
#
# ## 6 No bubble at all, and its price
#
# Three schedules fill the start, too. **ZB-H2** (the same paper) computes more forward passes, until the first
# gradient is back. **ZB-V** gives each rank two thin pieces of the model, placed in a V: rank 0 has the first one and
# the last one, so its first gradient is back early. **DualPipe** (DeepSeek-AI 2024) holds the model twice. Half of
# the micro-batches enter at rank 0 and half at rank 3, and a rank that would wait for one half computes for the
# other.
#
# **Predict:** which of them holds the fewest micro-batches, and which one the most?

# %%
my_fewest = predict("the one that holds the fewest", ..., "zb-h2", "zb-v", "dualpipe")
my_most = predict("the one that holds the most", ..., "zb-h2", "zb-v", "dualpipe")

# %%
further = ("zb-h2", "zb-v", "dualpipe")
lines = [scheduled(choose(name), P, M) for name in ("zero-bubble", *further)]
Image(filename=str(pipeline_picture.draw(folder / "further.png", *lines)))

# %% [markdown]
# In ZB-H2 and ZB-V each stage begins a little later than the one before, and also ends later. For a single batch these
# slanted sides are still a bubble. But nothing synchronises the stages at an update: stage 0 begins the next batch
# while the others are in this one. So in training only a stage's own time counts, from its first box to its last, and
# that has no gap. The checker calls the longest of these times the *period*.
#
# In DualPipe the pale boxes belong to the micro-batches from rank 3. Only the first and the last backward passes are
# split in halves, where another stage would have to wait for both.

# %% tags=["nbval-check-output"]
print(f"{'':14}idle of 24   holds at most   pieces of 1/{P} of the model on each rank")
for name in ("1f1b", "zero-bubble", *further):
    schedule, execution = choose(name), check(choose(name), P, M)
    passes = schedule.placement.passes  # the pieces on each rank that a micro-batch goes through
    idle, most = execution.period - M * Times().both, max(execution.stash) / passes
    print(f"{name:14}{idle:10g}{most:16g}{schedule.chunks // passes:10}")
stashed = {name: max(check(choose(name), P, M).stash) / choose(name).placement.passes for name in further}
my_fewest.compare(min(stashed, key=stashed.get))
my_most.compare(max(stashed, key=stashed.get))

# %% [markdown]
# So more activations remove the bubble (ZB-H2), or more parameters nearly remove it (DualPipe); ZB-V only needs more
# messages. DualPipe has another purpose, too: on a GPU, a forward pass of one direction computes while a backward
# pass of the other communicates. Our models do not communicate inside a pass, so this does not show here.
#
# ZB-V, measured in two batches that follow each other:

# %%
in_a_row = launch("pipeline", ranks=P, **recipe | {"pace_ms": 50, "steps": 2}, schedule="zb-v", out=folder / "zb-v")
lines = scheduled(choose("zb-v"), P, M, Times(50, 50, 50), "milliseconds"), measured(in_a_row, step=0, steps=2)
Image(filename=str(pipeline_picture.draw(folder / "zb-v.png", *lines)))

# %% [markdown]
# The batches interlock: there is a slanted side only before the first one and after the last. (Thin gaps are
# messages, and other work of this computer.)
#
# **Predict:** after training with DualPipe, which ranks have the same parameters?

# %%
my_twin = predict("the rank with the same parameters as rank 0", ...)

# %% tags=["nbval-check-output"]
both = launch("pipeline", ranks=P, **recipe | {"pace_ms": 0}, schedule="dualpipe", out=folder / "dualpipe").summary
for first in (0, 1):
    same = [rank for rank, digest in enumerate(both.params_sha256) if digest == both.params_sha256[first]]
    print(f"ranks with the same parameters as rank {first}, to the bit: {same}")
sizes = [sum(one.memory["measured"]["parameters"]) for one in (both, runs["1f1b"].summary)]
print(f"parameters on all ranks, 1f1b's = 1: {sizes[0] / sizes[1]:g}")
print("the same loss as 1f1b, to 1e-12:", abs(both.final_loss - runs["1f1b"].summary.final_loss) < 1e-12)
my_twin.compare(both.params_sha256.index(both.params_sha256[0], 1))

# %% [markdown]
# Before each update the two ranks that hold the same pieces add up their gradients: each has computed half of the
# micro-batches. This is data parallel training with two ranks.
#
# ## 7 Measured against the formula
#
# The table has each bubble as a share of the total time. *By formula* is the papers' figure for passes of equal
# length: with GPipe and 1F1B each rank is idle for the time of p − 1 micro-batches, with interleaving for half of
# that, with zero-bubble for a third. *The schedule* is the checker's count. *The whole run* is the record's
# `idle_share`: all time in which a rank does not compute, from the start of the first step to the end of the last.
# Other work on the computer nearly always adds to it, so the last column has the less disturbed of the two steps.

# %%
formulas = {"naive": (P - 1) / P, "gpipe": (P - 1) / (M + P - 1), "1f1b": (P - 1) / (M + P - 1),
            "interleaved": (P - 1) / (2 * M + P - 1), "zero-bubble": (P - 1) / (3 * M + P - 1)}  # fmt: skip
best = {}
print(f"{'':14}by formula   the schedule   the whole run   its best step")
for name, one in runs.items():
    best[name] = min(measured(one, step).idle_share for step in range(one.summary.steps))
    shares = formulas[name], check(choose(name), P, M).bubble_of_total, one.summary.idle_share, best[name]
    print(f"{name:14}{shares[0]:10.1%}{shares[1]:15.1%}{shares[2]:16.1%}{shares[3]:16.1%}")

# %% tags=["nbval-check-output"]
for name, formula in formulas.items():
    bubble = check(choose(name), P, M).bubble_of_total
    print(f"{name:14}the schedule's bubble is the formula's: {abs(bubble / formula - 1) < 1e-12}")

# %% [markdown]
# ## 8 The same model, whatever the order
#
# None of these schedules changes *what* is computed. Each micro-batch's loss is weighted by its share of the batch,
# the gradients are added up, and the parameters are updated once, when all gradients are there. It is the unsplit
# model's step.
#
# **Predict:** are the trained parameters of two schedules equal *to the bit*?

# %%
my_split = predict("1f1b and zero-bubble leave the same parameters, to the bit", ..., "yes", "no")
my_order = predict("1f1b and gpipe leave the same parameters, to the bit", ..., "yes", "no")

# %% tags=["nbval-check-output"]
losses = {name: np.array([line["loss"] for line in run.metrics]) for name, run in runs.items()}
digests = {name: run.summary.params_sha256 for name, run in runs.items()}
for name in runs:
    difference = abs(losses[name] - losses["naive"]).max()
    print(f"{name:14}the same loss as naive in each step, to 1e-12: {difference < 1e-12}")
print("1f1b and zero-bubble leave the same parameters, to the bit:", digests["1f1b"] == digests["zero-bubble"])
print("1f1b and gpipe leave the same parameters, to the bit:", digests["1f1b"] == digests["gpipe"])
my_split.compare(digests["1f1b"] == digests["zero-bubble"])
my_order.compare(digests["1f1b"] == digests["gpipe"])

# %% [markdown]
# GPipe goes backward from the last micro-batch to the first, so its gradients are added in another order, and rounded
# differently: the last digit of a float64. (Interleaved divides the layers differently, so the ranks' digests cannot
# be compared at all.)
#
# ## 9 Memory, and how to buy it with time
#
# The record has the most bytes of activations that each rank held, as torch itself reports them. **Predict** from the
# "holds …" of the pictures: how many times as much as 1F1B does GPipe hold on each stage?
#
# Any schedule can hold less: a stage keeps only its *inputs*, and computes everything else again before the backward
# pass (**recomputation**, Chen et al. 2016). It costs one more forward pass for each backward pass.

# %%
my_times = predict("times more that GPipe holds on stages 0 to 3, as a list", ...)

# %%
again = launch(
    "pipeline", ranks=P, **recipe | {"pace_ms": 0}, schedule="gpipe", recompute="stage", out=folder / "again"
)
held = {name: np.array(run.summary.memory["measured"]["activations"]) for name, run in runs.items()}
held["gpipe, recomputing"] = np.array(again.summary.memory["measured"]["activations"])
figure, ax = plt.subplots(figsize=(9.5, 3))
for place, (name, values) in enumerate(held.items()):
    ax.bar(np.arange(P) + (place - 2.5) * 0.14, values / 1024, 0.13, color=SERIES[place], label=name)
ax.set(xticks=range(P), xticklabels=[f"stage {stage}" for stage in range(P)], ylabel="KiB of activations")
ax.legend(frameon=False, ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1), fontsize=9)
ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()

# %% tags=["nbval-check-output"]
for stage in range(P):
    ratio = held["gpipe"][stage] / held["1f1b"][stage]
    schedules = M / (P - stage)
    print(f"stage {stage}: GPipe holds {ratio:.1f} times what 1F1B holds; by the schedules {schedules:.1f}")
print("recomputing holds, of that:", [f"{share:.0%}" for share in held["gpipe, recomputing"] / held["gpipe"]])
print("and leaves the same parameters, to the bit:", again.summary.params_sha256 == digests["gpipe"])
my_times.compare(held["gpipe"] / held["1f1b"], within=0.05)

# %% [markdown]
# ## 10 PipeDream: never empty
#
# The bubble comes from waiting for all gradients of a batch before the next batch may begin. **PipeDream** (Narayanan
# et al. 2019) does not wait. It does not cut the batches either: they follow each other through the pipeline, and
# every stage updates after each backward pass. The picture shows the plan for eight batches, and the measured first
# eight of twelve:

# %%
slowly = recipe | {"pace_ms": 50, "steps": 12}
never_empty = launch("pipeline", ranks=P, **slowly, schedule="pipedream", out=folder / "pipedream")
drawn = scheduled(choose("pipedream"), P, M, Times(50, 50, 50), "milliseconds")
lines = drawn, measured(never_empty, step=0, steps=M)
Image(filename=str(pipeline_picture.draw(folder / "pipedream.png", *lines)))

# %% [markdown]
# The pipeline is filled once, and then all stages work all the time: where the upper picture drains, the lower one
# already has the next batches. (A black line is an update.)
#
# But there is a problem in these pictures. Batch 4 goes *forward* on stage 0 after the update of batch 0; when it
# comes *back*, batches 1, 2 and 3 have changed the parameters, too. A backward pass with other parameters than those
# of the forward pass computes the gradient of no function.
#
# PipeDream's answer is **weight stashing**: each stage keeps the version of the parameters that a batch used in its
# forward pass, and uses the same version in the backward pass.
#
# **Predict:** which versions (how many updates) does batch 10 use on stages 0, 1, 2 and 3?

# %%
my_versions = predict("versions on stages 0 to 3, as a list", ...)

# %% tags=["nbval-check-output"]
print("batch   versions on stages 0 to 3    updates that are missing")
for batch in (0, 1, 2, 3, 4, 10):
    versions = [pipedream.version(stage, P, batch) for stage in range(P)]
    print(f"{batch:5}   {versions!s:29}{[batch - version for version in versions]}")
my_versions.compare([pipedream.version(stage, P, 10) for stage in range(P)])

# %% tags=["nbval-check-output"]
parameters = [np.array(one.summary.memory["measured"]["parameters"]) for one in (never_empty, runs["1f1b"])]
print("parameters held, 1f1b's = 1:", [f"{ratio:g}" for ratio in parameters[0] / parameters[1]])
few, many = ((P - 1) / (batches + P - 1) for batches in (12, 1000))
print(f"bubble/total, filled and emptied once: {few:.1%} in 12 batches, {many:.1%} in 1000")

# %%
print(f"measured in 12: {never_empty.summary.idle_share:.1%}")

# %% [markdown]
# So within one stage each gradient is consistent. But between stages the versions differ, and all but the last stage
# learn from gradients that are up to three updates old. This is no longer SGD but *delayed* SGD.
#
# **Predict:** does it still converge, as quickly as 1F1B? With a small learning rate, and with a large one?

# %%
my_small = predict("it learns with a rate of 0.1", ..., "yes", "no")
my_large = predict("it learns with a rate of 0.7", ..., "yes", "no")

# %%
longer = {"data": "digits", "hidden": 64, "depth": 2, "batch": 64, "steps": 150, "balance": "layers",
          "micro_batches": 4}  # fmt: skip
learned = {}
for name in ("1f1b", "pipedream"):
    learned[name, 0.1] = launch("pipeline", ranks=P, **longer, lr=0.1, schedule=name, out=folder / f"{name} small")

# %%
fast = longer | {"lr": 0.7, "steps": 80}
for name in ("1f1b", "pipedream"):
    learned[name, 0.7] = launch("pipeline", ranks=P, **fast, schedule=name, out=folder / f"{name} large")

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.2), sharey=True)
for ax, rate in zip(axes, (0.1, 0.7), strict=True):
    for name, colour in (("1f1b", BLUE), ("pipedream", ORANGE)):
        losses = np.array([line["loss"] for line in learned[name, rate].metrics])
        ax.plot(curves.smooth(losses), color=colour, label=name)
    ax.set(xlabel="batch", title=f"learning rate {rate}", ylim=(0, 4))
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("training loss")
axes[0].legend(frameon=False)
figure.tight_layout()

# %% tags=["nbval-check-output"]
for name, rate in [("1f1b", 0.1), ("pipedream", 0.1), ("1f1b", 0.7)]:
    right = learned[name, rate].summary.test_accuracy
    print(f"{name:10}learning rate {rate}: more than 7 of 10 test images right: {right > 0.7}")

# %%
print(f"pipedream learning rate 0.7: {learned['pipedream', 0.7].summary.test_accuracy:.0%} of the test images right")
my_small.compare(learned["pipedream", 0.1].summary.test_accuracy > 0.7)
my_large.compare(learned["pipedream", 0.7].summary.test_accuracy > 0.7)

# %% [markdown]
# With a small rate the parameters hardly move in three updates, and PipeDream is a little behind. With a large rate
# an old gradient no longer fits the current parameters. 1F1B learns faster then; PipeDream fails. So the gain of the
# full pipeline has to be weighed against the smaller steps. (Asynchronous updates pay the same price: see
# `09_update_modes`. There the delay is random, here it is the same for every batch.)
#
# The paper has one option more. With **vertical sync** the number of the version that stage 0 has used travels with
# the batch, and all stages use that version. Then the gradient is that of *one* model, which is p − 1 updates old on
# every stage: w ← w − η∇f(w⁽ᵗ⁻ᵖ⁺¹⁾).
#
# **Predict:** which stages have to keep more versions for that?

# %%
my_stages = predict("stages that keep more versions, as a list", ...)

# %%
at_once = recipe | {"pace_ms": 0, "steps": 12}
together = launch("pipeline", ranks=P, **at_once, schedule="pipedream", vertical_sync=True, out=folder / "together")

# %% tags=["nbval-check-output"]
print("batch 10, vertical sync:", [pipedream.version(stage, P, 10, vertical=True) for stage in range(P)])
plain = np.array(runs["1f1b"].summary.memory["measured"]["parameters"])
for name, one in (("stashing alone", never_empty), ("vertical sync", together)):
    held = [np.array(one.summary.memory[how]["parameters"]) for how in ("measured", "formula")]
    print(f"{name}: versions held on stages 0 to 3: {[int(ratio) - 1 for ratio in held[0] / plain]},",
          f"as by formula: {np.array_equal(*held)}")  # fmt: skip
kept = [np.array(one.summary.memory["measured"]["parameters"]) for one in (never_empty, together)]
my_stages.compare(np.flatnonzero(kept[1] > kept[0]))

# %% [markdown]
# For stage 0 nothing changes: its version was the oldest anyway. The last stage needed a single version, and now keeps
# as many as the first. In return the gradient is that of one function at one point. PipeDream leaves vertical sync
# off by default, because it costs memory on every stage but the first.
#
# ## What you have seen
#
# | schedule | bubble | micro-batches held at stage s | the unsplit model? |
# |---|---|---|---|
# | naive | (p − 1)/p of the total | 1 | yes |
# | GPipe | (p − 1)/m of the ideal | m | yes |
# | 1F1B | (p − 1)/m of the ideal | p − s | yes |
# | interleaved | (p − 1)/(v m) of the ideal | more than 1F1B | yes |
# | zero-bubble | a third of 1F1B's, if the three kinds of passes take equally long | p | yes |
# | ZB-H2 | none, if they take equally long and batches follow each other | 2p − 1 | yes |
# | ZB-V | none, as ZB-H2 | p, in two pieces | yes |
# | DualPipe | p/2 − 1 forward passes, if they take equally long | p + 1, and two copies of the model | yes |
# | PipeDream | only at the beginning and the end | p − s, and as many versions of the parameters | no: delayed SGD |
# | PipeDream, vertical sync | only at the beginning and the end | p − s, and p versions | no: SGD, p − 1 updates late |
#
# - A schedule is a list of passes; messages, timeline, bubble and memory follow from it.
# - The measured bubble agrees with the formula. The formula holds only for *equal* stages: that is why
#   `12_layer_split` cuts where the costliest part costs least.
# - Only PipeDream changes the result; the order in which gradients are added changes the last digit.
#
# ## What to try
#
# 1. `farandole draw 1f1b --stages 8 --micro-batches 32`: for how long are all stages busy? And with 4 micro-batches?
# 2. In section 1 repair `eager` so that the checker accepts it, and compare its bubble with GPipe's.
# 3. Draw zero-bubble with `Times(30, 30, 10)` and `Times(30, 10, 30)`. Which helps it more?
# 4. `farandole draw dualpipe --stages 8 --micro-batches 20` is the figure of DeepSeek's report. Draw ZB-V with the
#    times of question 3: is it still without a bubble?
# 5. `run("interleaved", chunks=4, depth=10)`: how many messages, by `runs["interleaved"].summary.messages_sent`?
# 6. Make a stage slow: `slow="rank=2,factor=2"`. What do the boxes of the *other* stages look like?
# 7. PipeDream with learning rates between 0.1 and 1. Where does the delay begin to hurt? And with two stages?
# 8. `recompute="stage"` with 1F1B and a `pace_ms` of 0: what does it cost in `wall_s`, and what does it save?
