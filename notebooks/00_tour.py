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
# # 00 · A first tour
#
# A farandole is danced in a chain, hand in hand: what passes along it passes from neighbour to neighbour.
# Here four processes on your computer will hold hands and learn to read handwritten digits together. That
# is **distributed training** (分布式训练) on the smallest stage there is, and nothing about it is simulated: the
# processes run under `mpirun`, share no variables, and can only send each other messages.
#
# This notebook takes about a minute and answers five questions:
#
# 1. What works on this machine?
# 2. What is a rank?
# 3. What does a training look like, and what does it leave behind?
# 4. What happens when a rank dies?
# 5. What is where, and what comes next?
#
# Every notebook follows the same order: a question, a picture, code that runs on several processes, a measurement,
# and things to try. Where you read **Predict**, guess before you run the cell: it is the quickest way to find out
# what you really understand. In the line `predict(…, ...)` below the question, replace the three dots by your answer
# (a number, one of the words that are listed, or a list of them) and run that cell. The cell that measures then
# prints your answer beside the result, or reports that none was entered.

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

from IPython.display import Image

from farandole import LaunchError, launch
from farandole.report import curves, table, timeline
from farandole.report.predictions import predict
from farandole_tools.doctor.checks import examine

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)

# %% [markdown]
# ## 1 What works on this machine?
#
# `farandole doctor` in a terminal reports more: versions, and a one-line fix for whatever is missing. For these first
# notebooks only Python, torch and MPI are needed. If something else says *missing*, carry on.

# %%
for finding in examine():
    print(f"{finding.name:22}{'works' if finding.works else 'missing'}")

# %% [markdown]
# ## 2 What is a rank?
#
# `mpirun -n 4 python program.py` starts the *same* program four times. Each process is told its number, its
# **rank** (进程编号), from 0 to 3, and everything that differs between them follows from that number.
#
# In a notebook the first line `%%mpi -n 4` does the same with the cell below it. The cell is a separate program: it
# sees no variable of this notebook, and when it ends, all four processes are gone. The output is shown in rank order,
# whichever process was first. The option `--keep secret` saves one variable: afterwards `secret` in this notebook is
# the list of the four ranks' values, in rank order.
#
# **Predict:** how many lines will this print, and are the four values of `secret` equal?

# %%
my_lines = predict("lines that are printed", ...)
my_equal = predict("the four secrets are equal", ..., "yes", "no")

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep secret
from mpi4py import MPI

world = MPI.COMM_WORLD
secret = 10 * world.rank
print(f"I am rank {world.rank} of {world.size}, and my secret is {secret}")

# %% tags=["nbval-check-output"]
my_lines.compare(len(secret))
my_equal.compare(len(set(secret)) == 1)

# %% [markdown]
# Four lines, four secrets: the same line of code made a different variable in each process. Rank 2 cannot look at the
# secret of rank 1; rank 1 would have to *send* it. So let us dance the farandole once: rank 0 gives its secret to its
# right-hand neighbour, which adds its own and passes the sum on, and so around the ring until it comes back to rank 0.
#
# **Predict:** what does each rank receive?

# %%
my_received = predict("what ranks 0, 1, 2 and 3 receive, as a list", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep received
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
secret = np.array([10 * world.rank])
received = np.zeros_like(secret)

if world.rank == 0:
    world.Send(secret, right)
    world.Recv(received, left)
    print(f"rank 0: it comes back from rank {left} as {received[0]}, the sum of all secrets")
else:
    world.Recv(received, left)
    world.Send(received + secret, right)
    print(f"rank {world.rank}: {received[0]} from rank {left}, {received[0] + secret[0]} on to rank {right}")

# %% tags=["nbval-check-output"]
my_received.compare([numbers[0] for numbers in received])

# %% [markdown]
# A sum over all ranks is the one thing that most of distributed training needs. Notebook `02_ring_all_reduce` does it
# for millions of numbers at once, and no rank waits as long as rank 0 has just waited.
#
# ## 3 A training run
#
# A **scenario** is a recipe: `sync_sgd` trains a small network on real handwritten digits (8×8 pixels). Each
# of the four ranks holds a quarter of the images and a whole copy of the network: **data parallel** training
# (数据并行). In every step each rank computes a gradient on its own images, the ranks add up their
# gradients around the ring, and all of them take the same step. Notebook `03_synchronous_sgd` explains each part;
# here we only watch.
#
# In a terminal the same run is `farandole run sync_sgd -n 4 --steps 210`.

# %%
run = launch("sync_sgd", ranks=4, data="digits", model="mlp", hidden=128, steps=210, batch=64, lr=0.3,
             out=folder / "first_run")  # fmt: skip
table.show([table.comparison({"first run": run.summary}), table.per_rank(run.summary)])

# %% [markdown]
# The first table describes the run as a whole. The accuracy is the share of the 180 test images, never seen in
# training, that the network classifies correctly. The second table shows how each rank spent its time:
#
# - **compute**: forward, backward, update;
# - **communicate**: exchanging gradients, once every rank has arrived;
# - **wait**: in the exchange already, but some other rank had not arrived yet.
#
# The times were measured on one computer, and yours will differ. Other figures in the record must be the same
# everywhere. The network has 26,122 parameters of 4 bytes each.
#
# **Predict:** how many *different* networks have the four ranks at the end? Did rank 0 send more than the
# others?

# %%
my_networks = predict("different networks at the end", ...)
my_more = predict("rank 0 sent more than the others", ..., "yes", "no")

# %% tags=["nbval-check-output"]
summary = run.summary
print("ranks, steps:                 ", summary.ranks, summary.steps)
print("different networks at the end:", len(set(summary.params_sha256)))
print("bytes sent by each rank:      ", summary.bytes_sent)
print("messages sent by each rank:   ", summary.messages_sent)
print("more than 9 of 10 test images right:", summary.test_accuracy > 0.9)
my_networks.compare(len(set(summary.params_sha256)))
my_more.compare(summary.bytes_sent[0] > max(summary.bytes_sent[1:]))

# %% [markdown]
# One network: the checksums (sha256) of all parameters are the same on all ranks, to the last bit. And in a ring every
# rank does the same work: 6 messages in each of 210 steps, together 1.5 times the size of the gradient each time. Why
# 1.5? That is the question of notebook `02_ring_all_reduce`.
#
# ### The eight steps of any such training
#
# Document 000 gives a **standard flow** (标准流程). You have just seen all of it but the last step:
#
# | step | in this run |
# |---|---|
# | 1 prepare the data (数据准备) | 1,797 digits, shuffled, cut into training, validation and test set, shared out |
# | 2 define the model (模型定义) | three layers, 64 → 128 → 128 → 10 |
# | 3 prepare the training (训练前准备) | four processes find each other; one seed gives them equal parameters |
# | 4 choose the mode (训练模式) | data parallel |
# | 5 train (训练过程) | a gradient on each rank, their sum around the ring, the same update everywhere |
# | 6 repeat (重复训练) | 210 times |
# | 7 test (测试) | on 180 images that the training has not seen |
# | 8 tune (调优) | that is you: change `lr` or `batch` above, and see what it does to the accuracy |
#
# ### What the run leaves behind
#
# Every run, whatever its method, writes one **record**: a folder with the same four files. So any two methods can be
# compared.

# %% tags=["nbval-check-output"]
for file in sorted(run.folder.iterdir()):
    print(file.name)

# %% [markdown]
# | file | what is in it |
# |---|---|
# | `config.json` | the scenario's options: enough to run it again |
# | `metrics.jsonl` | one line a step: the loss, and when it was reached |
# | `summary.json` | the run in figures: accuracy, speed, bytes, seconds per rank, checksums, versions |
# | `trace.json` | what each rank did when; `farandole show RUN --trace` opens it to zoom in, without a network |
#
# A `Run` reads them for you: `run.config`, `run.metrics`, `run.summary`, `run.trace`.

# %%
print(run.config["seed"], run.config["batch"], run.config["collective"])
print(run.metrics[0])
print(run.metrics[-1])
print(run.trace[0])

# %% [markdown]
# The **learning curve** (学习曲线) is drawn twice. Over steps it shows what a step is worth, over seconds
# what a second is worth. A method can win on one axis and lose on the other, so we always look at both.

# %%
Image(filename=str(curves.draw({"first run": run}, folder / "curves.png")))

# %% [markdown]
# And this is the **timeline** (时间线) of the ranks, six steps from the middle of the run. Each row is a
# rank. Blue is computing, orange communicating, grey waiting.

# %%
Image(filename=str(timeline.draw(run, folder / "timeline.png")))

# %% [markdown]
# If your computer has fewer cores than ranks, the ranks take turns: one is slow because another has the core, and the
# picture becomes irregular. Remember this when you read times measured on a laptop: they show how methods *compare*,
# not how fast a cluster would be.
#
# ## 4 What happens when a rank dies?
#
# The failure of one rank stops all of them. Failures are inputs here, like the batch size: `fail=` makes rank 2 send
# itself the signal SIGKILL at the start of step 30.
#
# **Predict:** the other three wait for a message that will never come. What will you see, and after how long?

# %% tags=["nbval-check-output"]
try:
    launch("sync_sgd", ranks=4, steps=100, fail="rank=2,step=30,how=kill", out=folder / "unlucky_run")
except LaunchError as error:
    print(error)

# %% [markdown]
# One sentence that names the rank and the step, within seconds, and no process is left behind. A job that
# *hangs* is the worst way to fail, so every wait in this project has a time-out. Later notebooks continue without
# rank 2, or with a replacement.
#
# ## 5 What is where
#
# | you want to | go to |
# |---|---|
# | learn, step by step | the next notebooks: `01_sharded_data`, `02_ring_all_reduce`, `03_synchronous_sgd` |
# | write a method yourself and have it checked | `labs/`, and `farandole lab list` |
# | run something | `farandole list`, then `farandole run SCENARIO --help` |
# | see 15 ways to train side by side | `farandole tour` |
# | look up a concept, in English or Chinese | `docs/concept_map.md` |
# | read how a method really works | `reference/farandole/`, one folder per subject |
# | send it to a cluster | `slurm/` |
#
# The folders of `reference/farandole/` in reading order: `collectives` (which rank sends what to which), `data`
# (which rank holds what), `data_parallel` (the training methods), `scenarios` (the recipes), and `runtime` (how
# processes, traces and records are made). Any file is short enough to read from top to bottom.
#
# ## What to try
#
# 1. Run section 2 with `-n 7`. What does rank 0 receive at the end? Find a formula for *n* ranks.
# 2. In the ring of section 2, remove the `Send` of rank 1, and put `--timeout 5` behind `%%mpi -n 4`. Read the
#    output. Which rank is at fault, and which ranks *report* an error?
# 3. Run the training with `ranks=1` and with `ranks=2`. What changes in `bytes_sent`? Does the accuracy
#    change, and should it?
# 4. Use `collective="central"`: gradients through rank 0 instead of around the ring. Compare the two runs with
#    `table.comparison({"ring": run, …})`, and look at `bytes_sent` of rank 0.
# 5. Let the rank fail with `how=raise`, then with `how=hang` and `wait_timeout=5`. What does the message tell
#    you, and how does the launcher know?
