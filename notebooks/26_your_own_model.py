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
# # 26 · Your own model
#
# **Question:** you have a training program that runs in one process. What does it take to run it on four ranks, by
# any method of this course, and to compare the methods?
#
# There are two ways. Either you keep your loop and change five of its lines. Or you write model, data and loss into
# one small file, a *task*, and every method here trains it.
#
# The model of this notebook is not one of the project's: a recurrent network that reads a digit row by row, as it
# would read a word letter by letter.

# %%
# %load_ext farandole
import os
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from farandole import Run, UsageError, launch
from farandole.report.colours import SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
os.environ["RESULTS"] = str(folder)  # a cell under %%mpi inherits the environment, but no variables
sys.path.insert(0, str(folder))
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 What is yours
#
# The data are two files of arrays. The model is in a separate file, so that this notebook and the ranks can import
# it. Nothing in it knows of ranks.

# %%
digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
np.save(folder / "images.npy", (digits.images[order] / 16).astype(np.float32))
np.save(folder / "targets.npy", digits.target[order].astype(np.int64))

MINE = '''
import os
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Reader(nn.Module):
    """Read an image of 8 by 8 pixels row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.GRU(input_size=8, hidden_size=24, batch_first=True)
        self.digit = nn.Linear(24, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        states, _ = self.rows(images)
        return self.digit(states[:, -1])


def is_right(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    images, digits = batch
    return model(images).argmax(dim=1) == digits


here = Path(os.environ["RESULTS"])
images, targets = (np.load(here / f"{name}.npy", mmap_mode="r") for name in ("images", "targets"))
train, test = (images[:1440], targets[:1440]), (images[1440:], targets[1440:])
'''
(folder / "mine.py").write_text(MINE)
import mine

print(f"{len(mine.train[0])} images to learn from, {len(mine.test[0])} to test, "
      f"{sum(each.numel() for each in mine.Reader().parameters())} parameters")  # fmt: skip

# %% [markdown]
# ## 2 In one process
#
# This is the usual loop. The batch is the whole training set, so that there is only one right result, with which we
# can compare the ranks.

# %%
torch.manual_seed(0)
model = mine.Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
inputs, targets = (torch.from_numpy(each.copy()) for each in mine.train)
alone = []
for _ in range(5):
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    alone.append(loss.item())
parameters_alone = torch.cat([each.detach().flatten() for each in model.parameters()])
print(f"loss {alone[0]:.3f} at first, {alone[-1]:.3f} at the end")

# %% [markdown]
# ## 3 On four ranks: five lines
#
# This is the same loop, with the changed lines numbered. The last line saves what we want to compare.
#
# **Predict:** each rank has a quarter of the samples. How far will the parameters be from those of the single process?

# %%
my_distance = predict("the parameters differ", ..., "not at all", "by rounding", "by more")

# %%
# %%mpi -n 4
import os
import sys

import torch
from torch.nn.functional import cross_entropy

sys.path.insert(0, os.environ["RESULTS"])
import mine

from farandole import OwnLoop

with OwnLoop("sync_sgd", out=f"{os.environ['RESULTS']}/five_lines") as loop:  # 1 join the launch, name the method
    torch.manual_seed(0)
    model = loop.share(mine.Reader())  # 2 the same parameters on all ranks
    optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=0.01))  # 3 steps by the method
    for inputs, targets in loop.batches(mine.train, 1440, epochs=5):  # 4 this rank's part of each batch
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        loop.log(loss)  # 5 the record
if loop.world.rank == 0:
    torch.save(torch.cat([each.detach().flatten() for each in model.parameters()]), f"{os.environ['RESULTS']}/ours.pt")

# %% tags=["nbval-check-output"]
parameters = torch.load(folder / "ours.pt")
run = Run.open(folder / "five_lines")
print("the same parameters, to rounding:", bool((parameters - parameters_alone).abs().max() < 1e-4))
print("the same losses, to rounding:", bool(np.allclose([line["loss"] for line in run.metrics], alone, atol=1e-4)))
print("ranks:", run.summary.ranks, " steps:", run.summary.steps)
count, tensors = len(parameters), len(list(mine.Reader().parameters()))
print("bytes sent are a ring's, 2·(P−1)/P of the gradient and a number for each tensor from each rank:",
      sum(run.summary.bytes_sent) == 5 * 2 * 3 * 4 * (count + tensors))  # fmt: skip
apart = (parameters - parameters_alone).abs().max()
my_distance.compare("not at all" if apart == 0 else "by rounding" if apart < 1e-4 else "by more")

# %% [markdown]
# The gradient of the whole batch is the sum of the ranks' gradients, each weighted by its part of the batch. So four
# ranks that add up their gradients do what one process does, up to rounding. The extra number for each tensor tells
# all ranks whether any rank has used it, because a model may have branches.
#
# ## 4 Another method is another name
#
# The loop is a function now, and its first line names the method. Everything else is unchanged. The batches are
# small.
#
# **Predict:** which of the four sends the fewest bytes? Which loss falls fastest per step?

# %%
my_fewest = predict("the fewest bytes", ..., "all-reduce", "local SGD", "gossip on a ring", "server, stale")

# %%
# %%mpi -n 4
import os
import sys

import torch
from torch.nn.functional import cross_entropy

sys.path.insert(0, os.environ["RESULTS"])
import mine

from farandole import OwnLoop


def train(name, method, **options):
    with OwnLoop(method, out=f"{os.environ['RESULTS']}/{name}", **options) as loop:
        model = loop.share(mine.Reader())
        optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
        loop.test(mine.test, accuracy=mine.is_right)
        for inputs, targets in loop.batches(mine.train, 96, epochs=4):
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            loop.log(loss)


train("all-reduce", "sync_sgd")
train("local SGD", "local_sgd", period=10)
train("gossip on a ring", "dpsgd", topology="ring")
train("server, stale", "parameter_server", place="servers=0,workers=1-3", sync="ssp", staleness=2)

# %%
names = ["all-reduce", "local SGD", "gossip on a ring", "server, stale"]
loops = {name: Run.open(folder / name) for name in names}
_, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", width_ratios=[3, 2])
for (name, run), colour in zip(loops.items(), SERIES, strict=False):
    left.plot([line["loss"] for line in run.metrics], color=colour, label=name, linewidth=1.2)
    right.barh(name, sum(run.summary.bytes_sent) / 1e6, color=colour)
left.set(xlabel="step", ylabel="loss", ylim=(0, None))
right.set(xlabel="MB sent by all ranks")
right.invert_yaxis()
left.legend(frameon=False, fontsize=8)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
for name, run in loops.items():
    print(f"{name:>16}: accuracy {run.summary.test_accuracy:.1%}, {sum(run.summary.bytes_sent) / 1e6:.1f} MB")

# %% tags=["nbval-check-output"]
sent = {name: sum(run.summary.bytes_sent) for name, run in loops.items()}
print("local SGD sends a tenth of what the all-reduce sends, but for the numbers that say what was used:",
      bool(10.0 < sent["all-reduce"] / sent["local SGD"] < 10.1))  # fmt: skip
print("all four have learned to read digits:", all(run.summary.test_accuracy > 0.5 for run in loops.values()))
print("the records:", *[run.summary.scenario for run in loops.values()])
my_fewest.compare(min(sent, key=sent.get))

# %% [markdown]
# Per step the four losses fall about equally, and local SGD sends a tenth. The server's loss jumps: its momentum
# consists of gradients that were computed at older parameters (`09_update_modes`). `farandole show` and
# `farandole compare` accept these folders like any other.
#
# ## 5 A loop that survives a kill
#
# Under `backup` the ranks keep copies of the state, here every ten steps. Rank 1 is killed at step 25, by a real
# SIGKILL. The fifth rank is a spare: it gets no batch until it is needed.
#
# **Predict:** to which step does rank 0 go back? Which steps does the spare see?

# %%
my_back = predict("the step to which rank 0 goes back", ...)
my_first = predict("the first step that the spare sees", ...)
my_last = predict("the last step that the spare sees", ...)

# %%
SURVIVE = """
import os

import mine
import torch
from torch.nn.functional import cross_entropy

from farandole import OwnLoop


def train(name, **options):
    with OwnLoop("backup", out=f"{os.environ['RESULTS']}/{name}", backup_every=10, spares=1, **options) as loop:
        model = loop.share(mine.Reader())
        optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=0.01))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
        loop.keep(schedule)  # it has a state, too
        seen = []
        for inputs, targets in loop.batches(mine.train, 96, epochs=2):
            seen.append(loop.step)
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            schedule.step()
            loop.log(loss)
    return loop.world.rank, seen
"""
_ = (folder / "survive.py").write_text(SURVIVE)

# %% tags=["nbval-check-output"]
# %%mpi -n 5 --keep seen,back
import os
import sys

sys.path.insert(0, os.environ["RESULTS"])
from itertools import pairwise

import survive

rank, seen = survive.train("killed", fail="rank=1,step=25")
back = [step for before, step in pairwise(seen) if step <= before]
if rank in (0, 4):
    print(f"rank {rank} has begun with step {seen[0]}, gone back to {back}, and ended with step {seen[-1]}")

# %% tags=["nbval-check-output"]
my_back.compare(back[0][0])
my_first.compare(seen[4][0])
my_last.compare(seen[4][-1])

# %%
# %%mpi -n 5
import os
import sys

sys.path.insert(0, os.environ["RESULTS"])
import survive

survive.train("quiet")

# %% tags=["nbval-check-output"]
killed, quiet = (Run.open(folder / name) for name in ("killed", "quiet"))
print("survived:", [(fault["rank"], fault["step"]) for fault in killed.summary.faults])
print("ranks that hold the model at the end:", killed.summary.members)
print("the same parameters as without the kill, to the bit:",
      set(killed.summary.params_sha256) == set(quiet.summary.params_sha256))  # fmt: skip
print("steps in the record:", len(killed.metrics), "and", len(quiet.metrics))

# %% [markdown]
# In step 25 the calls that needed rank 1 did nothing. At the next batch the other ranks agreed that it was dead, gave
# its slot to the spare, and all went back to the copy of step 20: model, AdamW's averages, schedule, random numbers.
#
# The loop's own list `seen` was not restored, so it shows what really ran.
#
# ## 6 As a task: every method
#
# Your own loop can use six methods. As a *task* the model can use all of them, also those that cut it, restart it or
# sample clients. A task states what the loop stated: model, data, loss, metrics.

# %%
TASK = """
import mine
from torch.nn.functional import cross_entropy

from farandole import Task


def task() -> Task:
    return Task(
        model=mine.Reader,
        train=mine.train,
        test=mine.test,
        loss=lambda model, batch: cross_entropy(model(batch[0]), batch[1]),
        metrics={"accuracy": mine.is_right},
    )
"""
_ = (folder / "my_task.py").write_text(TASK)
task = str(folder / "my_task.py")
recipe = {"task": task, "steps": 64, "batch": 96, "lr": 1.5}
methods = {
    "ring all-reduce": ("sync_sgd", {}),
    "local SGD, 8 steps": ("local_sgd", {"period": 8}),
    "top-k, 1 %": ("compressed_sgd", {"compressor": "top-k"}),
    "gossip on a ring": ("dpsgd", {}),
    "AD-PSGD": ("ad_psgd", {}),
    "server, stale": ("parameter_server", {"place": "servers=0,workers=1-3", "sync": "ssp"}),
    "a rank killed": ("membership", {"optimizer": "sgd", "fail": "rank=2,step=30"}),
}
runs = {name: launch(method, 4, **recipe, **more, out=folder / "task" / name)
        for name, (method, more) in methods.items()}  # fmt: skip

# %% [markdown]
# **Predict:** which method sends the fewest bytes? Does that cost accuracy?

# %%
my_cheapest = predict("the cheapest in bytes", ..., *methods)

# %%
_, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for name, run in runs.items():
    megabytes, accuracy = sum(run.summary.bytes_sent) / 1e6, run.summary.test_accuracy
    left.barh(name, megabytes, color=SERIES[0])
    right.barh(name, accuracy, color=SERIES[1])
    print(f"{name:>20}: accuracy {accuracy:.1%}, {megabytes:6.2f} MB")
left.set(xlabel="MB sent by all ranks")
left.invert_yaxis()
right.set(xlabel="accuracy on the test images", xlim=(0, 1))
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)

# %% tags=["nbval-check-output"]
sent = {name: sum(run.summary.bytes_sent) for name, run in runs.items()}
print("the fewest bytes:", min(sent, key=sent.get))
print("all have learned to read digits:", all(run.summary.test_accuracy > 0.5 for run in runs.values()))
print("the one with a kill has lost rank", [fault["rank"] for fault in runs["a rank killed"].summary.faults])
my_cheapest.compare(min(sent, key=sent.get))

# %% [markdown]
# The same works on the command line, and as a page with timelines:
#
#     farandole run ad_psgd -n 4 --task my_task.py --lr 1.5
#     farandole compare sync_sgd local_sgd ssp -n 4 --task my_task.py
#     farandole tour --task my_task.py --lr 1.5
#     sbatch slurm/sync_sgd.sbatch --task my_task.py
#
# `farandole new task my_task.py` writes a commented file to begin with.
#
# ## 7 Mistakes
#
# A mistake is reported in one line, before any rank has trained.
#
# **Predict:** what is the mistake in each of these?

# %% tags=["nbval-check-output"]
MISTAKES = {
    "one": TASK.replace("def task", "def my_task"),
    "two": TASK.replace(
        "cross_entropy(model(batch[0]), batch[1])", "cross_entropy(model(batch[0]), batch[1], reduction='none')"
    ),
    "three": TASK.replace("train=mine.train", "train=(mine.train[0], mine.train[1][:100])"),
}
for name, text in MISTAKES.items():
    (folder / f"{name}.py").write_text(text)
    try:
        launch("sync_sgd", 2, task=str(folder / f"{name}.py"), steps=2, out=folder / f"mistake-{name}")
    except UsageError as error:
        print(f"{name}:", str(error).replace(str(folder), "…"))

# %% [markdown]
# ## Try
#
# - Give `Reader` a dropout between the layers. Does section 3 still hold? Why does section 5?
# - In section 4, `alpha=0.5` for local SGD, or `topology="complete"` for gossip.
# - In section 5, kill two ranks: `fail=["rank=1,step=25", "rank=2,step=35"]`. And with `spares=2` on six ranks?
# - Take your own model and data set through sections 2, 3 and 6.
# - Lab `16_bring_your_own_loop` has you make a loop distributed, and kills a rank of it.
