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
# # Lab 9 · Tensor parallel
#
# A pipeline cuts a model between its layers. Here the layers themselves are cut: every rank has a block of each
# matrix, and all work on the same batch at the same time. You write the two ways to cut a linear layer, and find out
# why they come in pairs.
#
# The task and what is judged are in `README.md`. Here you try the idea out, first in one process, then on
# real ranks. The code itself goes into `parallel_linear.py`, beside this notebook.

# %%
# %load_ext farandole
import numpy as np

# %% [markdown]
# ## 1 Two ways to cut a matrix
#
# y = x·A, with 2 samples, 3 inputs and 4 outputs. By columns, for two ranks: each uses the whole x, and gets some
# columns of y.

# %%
x = np.array([[1, 2, 3], [4, 5, 6]])
A = np.arange(12).reshape(3, 4)
for part in np.array_split(A, 2, axis=1):
    print((x @ part).tolist())
print("y:", (x @ A).tolist())

# %% [markdown]
# Side by side the two are y. By rows: each uses only some columns of x, and gets something as large as y.

# %%
for columns, part in zip(np.array_split(x, 2, axis=1), np.array_split(A, 2, axis=0), strict=True):
    print((columns @ part).tolist())

# %% [markdown]
# How do these two make y? (Add them up.) That is an all-reduce, the only message of the whole forward pass.
#
# What happens to a bias if each rank adds it to its part before that?
#
# ## 2 A pair
#
# The output of a column layer is the input of a row layer: columns of a batch. Between them only elementwise functions
# are allowed, a ReLU for instance. Here is a network of two layers with 5 numbers in the middle, 3 of them on one rank
# and 2 on the other:

# %%
random = np.random.default_rng(0)
first, second = random.normal(size=(3, 5)), random.normal(size=(5, 2))
dense = np.maximum(x @ first, 0) @ second
parts = [
    np.maximum(x @ columns, 0) @ rows
    for columns, rows in zip(np.array_split(first, 2, axis=1), np.array_split(second, 2, axis=0), strict=True)
]
print("the same:", np.allclose(sum(parts), dense))

# %% [markdown]
# Two layers, one all-reduce. What would it take with two column layers, or with the row layer first?
#
# ## 3 The way back
#
# Backward, the row layer receives the gradient of y, whole on every rank, and the column layer has to return the
# gradient of x, whole on every rank. A dense layer's is g·Aᵀ. Which of the following does a rank have, and what has to
# be done with it?

# %%
g = np.array([[1, 0, 2, 0], [0, 1, 0, 2]])
for gradient, part in zip(np.array_split(g, 2, axis=1), np.array_split(A, 2, axis=1), strict=True):
    print((gradient @ part.T).tolist())
print("the gradient of x:", (g @ A.T).tolist())

# %% [markdown]
# x was used by the columns of both ranks, so both contribute to its gradient. Forward the row layer adds up, backward
# the column layer does. The gradients of A and b need no message at all: why?
#
# ## 4 Now write it
#
# Complete `parallel_linear.py`, then run it here on 4 ranks. It has an `all_reduce` for you, lab 2's ring
# without the mean. Print whatever helps: the output comes in rank order.

# %% tags=["yours"]
# %%mpi -n 4
import numpy as np
from parallel_linear import ColumnLinear, RowLinear

from farandole_tools.lab.communicator import LabCommunicator

comm = LabCommunicator.world()
random = np.random.default_rng(0)
x, first, second = random.normal(size=(2, 8)), random.normal(size=(8, 12)), random.normal(size=(12, 8))
column, row = ColumnLinear(first, np.zeros(12), comm), RowLinear(second, np.ones(8), comm)
y = row.forward(column.forward(x))
forward = comm.bytes_sent
x_gradient = column.backward(row.backward(np.ones_like(y)))
print(
    f"rank {comm.rank}: blocks of {column.weight.shape} and {row.weight.shape},",
    f"y right: {np.allclose(y, x @ first @ second + 1)},",
    f"its gradient right: {np.allclose(x_gradient, np.ones_like(y) @ second.T @ first.T)},",
    f"{forward} bytes forward, {comm.bytes_sent - forward} backward",
)

# %% [markdown]
# y is 16 numbers of 8 bytes, and so is x. How many bytes should an all-reduce on 4 ranks send?
#
# ## 5 Have it checked
#
# On 1, 2, 3 and 4 ranks; it takes some ten seconds. The same in a terminal: `farandole lab check 9`.

# %% tags=["yours"]
# !farandole lab check 9

# %% [markdown]
# ## 6 What to try next
#
# 1. Make the batch ten times as large. What grows, the messages, the bytes, or the blocks of the matrices? Do the
#    same with the matrices. When would you rather cut the batch, as in data parallel training?
# 2. Let `ColumnLinear` gather its columns, so that every rank has the whole y. What does its `backward` have to do
#    then?
# 3. In attention each head looks at its own columns of query, key and value, and a linear layer follows. Which of
#    the four matrices would you cut by columns, and which by rows?
# 4. Compare with the project's implementation: `reference/farandole/model_parallel/tensor/linear.py` writes no backward
#    pass. It has two operators instead, f and g, in `exchange.py`. Which lines of yours are they?
