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
# # Lab 5 · Mixed precision
#
# Forward and backward compute in 16 bits, and the parameters are kept in 32. You write the step between the two, and
# the loss scale, which keeps small gradients from becoming 0.
#
# The task and what is judged are in `README.md`. Here you see what gets lost in 16 bits and how to keep
# it, and try it out. The code itself goes into `mixed_precision.py`, beside this notebook.

# %%
# %load_ext farandole
import numpy as np

from farandole.report.predictions import predict
from farandole_tools.lab.half_network import HalfNetwork, start

# %% [markdown]
# ## 1 What gets lost
#
# **Predict:** what becomes of 70,000 in float16, of 1e-8, and of 1 + 2⁻¹²?

# %%
my_large = predict("70,000 becomes", ..., "70,000", "65,504", "infinite")
my_small = predict("1e-8 becomes", ...)
my_fine = predict("1 + 2⁻¹² becomes", ...)

# %%
half_of = {}
with np.errstate(over="ignore"):
    for number in (70_000, 65_504, 1e-7, 1e-8, 1 + 2**-10, 1 + 2**-12):
        half_of[number] = float(np.array(number).astype(np.float16))
        print(f"{number:<16.10g} becomes {half_of[number]:.10g}")
my_large.compare("infinite" if np.isinf(half_of[70_000]) else f"{half_of[70_000]:,.0f}")
my_small.compare(half_of[1e-8])
my_fine.compare(half_of[1 + 2**-12])

# %% [markdown]
# And what is computed with them? One of these lines is a trap that you may step into later:

# %%
ones = np.ones(2, dtype=np.float16)
print("float16 + float32:", (ones + np.ones(2, dtype=np.float32)).dtype)
print("float16 / 2.0:    ", (ones / 2.0).dtype)
with np.errstate(over="ignore"):
    print("float16 / 2.0**16:", ones / 2.0**16)
print("at first float32: ", ones.astype(np.float32) / 2.0**16)

# %% [markdown]
# A float16 and a Python number give a float16, and 2¹⁶ is infinite in it.
#
# ## 2 A gradient in float16's range
#
# The lab's network has 43 parameters; it takes float16, and returns float16. The unit of the loss is arbitrary. Here it
# is 2²⁰, and the gradients are smaller by this factor.

# %%
network, half = HalfNetwork(unit=2.0**-20), start().astype(np.float16)
true = HalfNetwork().backward(half, [0, 1, 2, 3], scale=1.0).astype(np.float64) * 2.0**-20
print("scale   zeros  infinite  largest error of the others")
for exponent in range(0, 44, 4):
    scale = 2.0**exponent
    found = network.backward(half, [0, 1, 2, 3], scale).astype(np.float32) / np.float32(scale)
    alive = (found != 0) & np.isfinite(found)
    error = (abs(found - true) / abs(true))[alive].max(initial=0)
    print(f"2^{exponent:<4}{(found == 0).sum():7}{(~np.isfinite(found)).sum():10}{error:14.1%}")

# %% [markdown]
# From which scale on is nothing lost any more, up to which one? What would you choose if you knew nothing about the
# network, and what would tell you that you have chosen wrongly?
#
# ## 3 On paper
#
# A scale begins with 1024, and its patience is 3. `g` is a good step, `x` one with an overflow. What is the scale after
# each of them?
#
# | step | g | g | x | g | g | g | g | x | x | g |
# |---|---|---|---|---|---|---|---|---|---|---|
# | scale | 1024 | 1024 | 512 | ? | ? | ? | ? | ? | ? | ? |
#
# (512, 512, 1024: three in a row; 1024, 512, 256, 256. The count begins anew after an overflow, and after a growth.)
#
# Two ranks have these gradients of three parameters. What is the sum, and which rank knows that the step is to be left
# out if it looks at its own gradient? If it looks at the sum? If it looks for `inf` in the sum?

# %%
first, second = np.array([0.5, np.inf, 2.0]), np.array([1.5, -np.inf, 1.0])
with np.errstate(invalid="ignore"):
    print("sum:", first + second)

# %% [markdown]
# ## 4 Now write it
#
# Complete `mixed_precision.py`, then run it here, on four real ranks. A `%%mpi` cell runs in fresh processes, which see
# nothing of this notebook. In step 1 the last rank is given a sample that overflows.

# %% tags=["yours"]
# %%mpi -n 4
import numpy as np
from mixed_precision import LossScale, MixedPrecision

from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.half_network import OUTLIER, HalfNetwork, start
from farandole_tools.lab.summing import SummingCommunicator

comm = LabCommunicator.world()
scale = LossScale(2.0**10, patience=2)
training = MixedPrecision(HalfNetwork(), start(), 2.0**-4, scale, SummingCommunicator(comm))
said = []
for step in range(4):
    samples = list(range(12 * step + 3 * comm.rank, 12 * step + 3 * comm.rank + 3))
    if step == 1 and comm.rank == 3:
        samples[0] = OUTLIER
    before = training.master.copy()
    training.step(samples, share=1 / 4)
    said.append(f"{'moves' if (training.master != before).any() else 'stays'}, then {scale.value:g}")
print(f"rank {comm.rank}:", "; ".join(said))

# %% [markdown]
# All four lines should be the same: moves, stays, moves, moves, and the scale 1024, 512, 512, 1024. How have the other
# three ranks learned of the overflow?
#
# ## 5 Have it checked
#
# On 1, 2, 3 and 4 ranks. The same in a terminal: `farandole lab check 5`.

# %% tags=["yours"]
# !farandole lab check 5

# %% [markdown]
# ## 6 What to try next
#
# 1. Begin with a scale of 2³⁰ in section 4, and take twenty steps. How many are lost before the first one moves
#    anything? What does that cost in a training of 100,000 steps?
# 2. Keep `master` in float16, and have it checked. Which checks fail? Would you have noticed it in a loss curve?
# 3. Give each rank a separate scale, which observes only this rank's overflows. What has to be done before the sum, and
#    what is gained?
# 4. The notebook `07_mixed_precision_and_training_craft` does all this with real models. At which unit of the loss does
#    float16 begin to suffer there?
