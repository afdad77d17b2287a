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
# # Lab 16 · Bring your own loop
#
# A training script runs in one process. You make it run on several, such that after every step all of them hold the
# parameters of the single process, and that it continues when a process is killed.
#
# The task and what is judged are in `README.md`. Here you look at the script, and predict what goes wrong
# on several ranks. The code itself goes into `distributed_loop.py`, beside this notebook.

# %%
# %load_ext farandole
import inspect

import torch
from torch.nn.utils import clip_grad_norm_

from farandole_tools.lab import single_process
from farandole_tools.lab.single_process import BATCH, Job, mean_loss, shuffled

# %% [markdown]
# ## 1 The script

# %%
print(inspect.getsource(single_process.train))

# %% [markdown]
# And the model that it trains. `parameters()`, `buffers()` and `state_dict()` differ.
#
# **Predict:** how many numbers does each of them have? What must all ranks have alike before the first step?

# %%
model = Job().model
for name, each in [*model.named_parameters(), *model.named_buffers()]:
    kind = "buffer" if not isinstance(each, torch.nn.Parameter) else "trained" if each.requires_grad else "frozen"
    print(f"{name:14} {each.numel():3} numbers, {str(each.dtype).removeprefix('torch.')}, {kind}")
for call in ("parameters", "buffers"):
    print(f"{call}():", sum(each.numel() for each in getattr(model, call)()))
print("state_dict():", sum(each.numel() for each in model.state_dict().values()))

# %% [markdown]
# The tied weight is the difference: the `state_dict` lists it under both names.
#
# ## 2 The mean of means
#
# Two ranks divide a batch of 8 rows, 5 and 3. Each computes the mean loss of its rows, and its gradient.


# %%
def gradient(rows):
    model = Job().model
    mean_loss(model, rows).backward()
    return model.hidden.weight.grad


rows = shuffled(0)[:BATCH]
one, other = gradient(rows[:5]), gradient(rows[5:])
whole = gradient(rows)
print(f"plain mean: off by {(one / 2 + other / 2 - whole).abs().max():.4f}")
print(f"weighted:   off by {(5 / 8 * one + 3 / 8 * other - whole).abs().max():.4f}")

# %% [markdown]
# ## 3 A branch that no sample takes
#
# In which steps does the single process have a gradient for `rare`?

# %%
job = Job()
used = []
job.optimizer.register_step_pre_hook(lambda *_: used.append(job.model.rare.weight.grad is not None))
single_process.train(job)
print("rare has a gradient:", used)

# %% [markdown]
# A rank that adds zeros to a sum does no harm. But what if all have zeros, and the optimizer is given their sum?
#
# **Predict:** how far does AdamW move a parameter whose gradient is 0, in its second step? And one whose gradient is
# None?

# %%
for second in (torch.zeros(1), None):
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([parameter], lr=0.05, weight_decay=0.1)
    parameter.grad = torch.ones(1)
    optimizer.step()
    before = parameter.item()
    parameter.grad = second
    optimizer.step()
    print(f"gradient {'None' if second is None else second.item()}: moves by {parameter.item() - before:.4f}")

# %% [markdown]
# ## 4 Two bounds
#
# Each of two ranks bounds its own gradient, or all bound the mean. Here the bound is a half.


# %%
def bounded(vector):
    parameter = torch.nn.Parameter(torch.zeros_like(vector))
    parameter.grad = vector.clone()
    clip_grad_norm_([parameter], 0.5)
    return parameter.grad


one, other = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 0.4])
for name, found in (("each its own", bounded(one) / 2 + bounded(other) / 2), ("the mean", bounded((one + other) / 2))):
    print(f"{name:>12}:", [round(each, 3) for each in found.tolist()])

# %% [markdown]
# Only the second one points where the mean does. So the norm can be computed only after the sum, and each rank
# computes it by itself. Why do all get the same?
#
# ## 5 On paper
#
# A step has two batches, of 8 and of 6 rows, and there are 4 ranks. How many rows has each rank of each batch? By what
# is the mean loss of its part multiplied before backward?
#
# | rank | rows of 8 | of 6 | factor | factor |
# |---|---|---|---|---|
# | 0 | 2 | 2 | 1/4 · 1/2 | ? |
# | 1 | 2 | ? | ? | ? |
# | 2 | 2 | ? | ? | ? |
# | 3 | 2 | ? | ? | ? |
#
# (2, 1, 1, if the lower ranks have the remainder; 1/8 for the first batch on all ranks, and 1/6, 1/6, 1/12, 1/12 for
# the second one. All factors together are 1.)
#
# After three steps a process is killed. Two steps had been saved. Which batches does the next start see first, and what
# does AdamW have to know besides the parameters?
#
# ## 6 Now write it
#
# Complete `distributed_loop.py`, then run it here, on four real ranks. A `%%mpi` cell runs in fresh processes, which
# see nothing of this notebook.

# %% tags=["yours"]
# %%mpi -n 4
from pathlib import Path

import torch
from distributed_loop import train

from farandole_tools.lab import single_process
from farandole_tools.lab.collective_calls import CollectiveCommunicator
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.single_process import Job

comm = LabCommunicator.world()
calls = CollectiveCommunicator(comm)
folder = Path("saved")
folder.mkdir(exist_ok=True)
job, alone = Job(seed=comm.rank), Job()
train(job, calls, folder, every=4)
single_process.train(alone)
off = max((a - b).abs().max().item() for a, b in zip(job.model.parameters(), alone.model.parameters(), strict=True))
names = [call.name for call in calls.calls]
print(
    f"rank {comm.rank}: {names.count('broadcast')} broadcast, {names.count('all_reduce')} all_reduce, off by {off:.0e}"
)

# %% [markdown]
# All four lines should be the same, with an all_reduce for each of the 6 steps, and off by rounding only.
#
# Run the cell again: now there is a state in the folder `saved`, of step 4, and 2 steps are left. Remove the folder to
# begin anew.
#
# ## 7 Have it checked
#
# On 1, 2, 3, 4 and 7 ranks, and with two real kills. The same in a terminal: `farandole lab check 16`.

# %% tags=["yours"]
# !farandole lab check 16

# %% [markdown]
# ## 8 What to try next
#
# 1. Give `rare` zeros where no rank has used it, and run section 6. How far off are you after 6 steps? Would you have
#    seen it in a loss curve?
# 2. Run section 6 on 7 ranks. Why is it off by another rounding than on 4?
# 3. How many bytes does a step send for each parameter, and how many of them for the numbers that say what is used?
# 4. Save on every rank instead of rank 0, each to its own file. What can go wrong when a process is killed between
#    two of these saves?
# 5. The notebook `26_your_own_model` does all this in five lines, and kills a rank without a restart.
