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
# # Lab 8 · 1F1B
#
# A model too large for one device is cut into stages, one per rank, and a batch into micro-batches that pass through
# them one after the other. You write the order in which a stage computes their forward and backward passes. Two orders
# can be equally fast, and one of them may need many times the memory.
#
# The task and what is judged are in `README.md`. Here you see the schedule that an order leads to, before
# and after you have written it. The code itself goes into `one_f_one_b.py`, beside this notebook.

# %%
# %load_ext farandole
# %load_ext autoreload
# %autoreload 2
from dataclasses import replace

from farandole.model_parallel.checker import execute
from farandole.model_parallel.schedules.gpipe import GPIPE
from farandole.model_parallel.steps import Backward, Forward, Update

# %% [markdown]
# ## 1 One micro-batch at a time
#
# `draw` runs all stages by `computations`, and prints a row for each: the number of the micro-batch during its forward
# pass, the letter during its backward pass (`aa` is micro-batch 0, `bb` is 1), which takes twice as long, and a dot
# while the stage waits. The end of the row says how many micro-batches it held at most.


# %%
def draw(computations, stages=4, micro_batches=6):
    execution = execute(replace(GPIPE, computations=computations), stages, micro_batches)
    for stage in range(stages):
        row = ["."] * round(execution.total)
        for own in execution.intervals:
            if own.stage == stage and not isinstance(own.step, Update):
                letters = "0123456789" if isinstance(own.step, Forward) else "abcdefghij"
                row[round(own.start) : round(own.end)] = letters[own.step.micro_batch] * round(own.end - own.start)
        print(f"stage {stage}  {''.join(row)}  holds {execution.stash[stage]}")


def one_at_a_time(stage, stages, micro_batches):
    for micro_batch in range(micro_batches):
        yield Forward(micro_batch)
        yield Backward(micro_batch)
    yield Update()


draw(one_at_a_time, micro_batches=2)

# %% [markdown]
# One stage works, three wait. `computations` does not say when: a `Forward` waits by itself for the outputs of the
# stage before, a `Backward` for the gradient from the stage behind. You decide only the order.
#
# ## 2 All forward, then all backward
#
# That is GPipe. While one stage works on micro-batch 1, the one before works on 2:


# %%
def all_forward_first(stage, stages, micro_batches):
    for micro_batch in range(micro_batches):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches):
        yield Backward(micro_batch)
    yield Update()


draw(all_forward_first)

# %% [markdown]
# The dots are called the bubble. With p stages and m micro-batches it is (p − 1)/(m + p − 1) of the
# total time. Count them: 9 dots of 27 in each row, and 3/9 is the same.
#
# More micro-batches make it smaller. But every stage holds them all, until the first backward pass. Look at stage 3:
# when is the first moment at which it could run the backward pass of micro-batch 0? And the last stage is the one that
# all others wait for.
#
# ## 3 On paper
#
# Fill in what each stage does, with 3 stages and 4 micro-batches, if it goes backward as early as it can, and forward
# only when it has to:
#
# | | warm-up | steady state: one forward, one backward | at the end |
# |---|---|---|---|
# | stage 2 | nothing | F0 B0, F1 B1, F2 B2, F3 B3 | nothing |
# | stage 1 | F0 | ? | ? |
# | stage 0 | ? | ? | ? |
#
# (Stage 1: F1 B0, F2 B1, F3 B2; at the end B3. Stage 0: F0, F1 first, then F2 B0, F3 B1; at the end B2, B3.)
#
# How many micro-batches does each stage hold, at the most?
#
# ## 4 Now write it
#
# Complete `one_f_one_b.py`, then draw it here. It should be as long as GPipe's, 27 units, and hold 4, 3, 2 and 1.
# The notebook reads the file anew whenever you change it.

# %% tags=["yours"]
from one_f_one_b import computations

draw(computations)

# %% [markdown]
# ## 5 Have it checked
#
# For 1 to 8 stages and 1 to 16 micro-batches without any message, then on 2 and 4 real ranks. The same in a
# terminal: `farandole lab check 8`.

# %% tags=["yours"]
# !farandole lab check 8

# %% [markdown]
# ## 6 What to try next
#
# 1. Draw it with 12 micro-batches instead of 6. What happens to the bubble, and what to the memory? Do the same with
#    `all_forward_first`.
# 2. Let every stage warm up with one forward pass more. And with one less. Which of the two do you see in the
#    drawing, and which only in the number behind it?
# 3. Draw it with 2 micro-batches. Which stages still have a steady state?
# 4. The project's implementation is `reference/farandole/model_parallel/schedules/one_f_one_b.py`; its neighbours in
#    that folder make the bubble smaller. Draw `zero_bubble.computations` (import it, and give a `BackwardInput` and a
#    `BackwardWeight` different letters). Where have the dots gone?
