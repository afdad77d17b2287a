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
# # Lab 10 · Atomic checkpoint
#
# A checkpoint is saved so that the training survives when the machine stops. But it may also stop while the checkpoint
# is being written. You write `save` and `load` such that there is an intact checkpoint at every moment, and that a
# damaged one is never loaded.
#
# The task and what is judged are in `README.md`. Here you see what a disk may hold after a stop. The code
# itself goes into `atomic_checkpoint.py`, beside this notebook.

# %%
# %load_ext farandole
# %load_ext autoreload
# %autoreload 2
import zlib
from collections import Counter

from farandole_tools.lab.disk import Disk, moments

# %% [markdown]
# ## 1 One file, written over
#
# The disk is simulated, and follows the rules of a real one: written data are in memory first. `after_crash` returns
# every state that the disk may have after a stop at this moment.


# %%
def show(disk):
    for crash in disk.after_crash():
        print(f"{crash.files!s:45} {crash.told}")


disk = Disk({"checkpoint": b"10:aa"})
disk.write("checkpoint", b"20:bb")
show(disk)

# %% [markdown]
# In one of seven cases nothing is lost, in one everything is as before; in the others there is neither the old
# checkpoint nor the new one. A `sync` ends that, but the machine may also stop before it returns.
#
# ## 2 A new file, and a rename
#
# A rename is never half done: so write a new file first, then let it take the place of the old one. Is that enough?

# %%
disk = Disk({"checkpoint": b"10:aa"})
disk.write("new", b"20:bb")
disk.rename("new", "checkpoint")
disk.sync_folder()
show(disk)

# %% [markdown]
# The rename has happened, but the content is not on the disk: the only checkpoint is an empty file. What has to be done
# before the rename?
#
# ## 3 Names are not contents
#
# Now the content is synced, but not the folder.

# %%
disk = Disk({"checkpoint": b"10:aa"})
disk.write("new", b"20:bb")
disk.sync("new")
disk.rename("new", "checkpoint")
show(disk)

# %% [markdown]
# In each case there is a whole checkpoint. But the program believes that step 20 is safe, and in two of the three it
# is not. What is missing?
#
# ## 4 Damage
#
# Disks seldom return other bytes than were written, but they are large. A checksum detects it. Which of these two would
# you use?

# %%
for data in (b"20:bb", b"20:bc", b"02:bb"):
    print(data, "sum:", sum(data), "CRC:", zlib.crc32(data))

# %% [markdown]
# And if the checkpoint is damaged, where is another one? (One file is not enough. Which of two files should the next
# save replace, if one of them is damaged?)
#
# ## 5 Now write it
#
# Complete `atomic_checkpoint.py`. Here step 10 has been saved, and the machine stops after each call of the next save.
# A line has the call, the number of states that the disk may have then, and what is loaded from them. The notebook
# reads the file anew whenever you change it.

# %% tags=["yours"]
from atomic_checkpoint import load, save

disk = Disk()
save(disk, 10, b"ten")
for call, moment in moments(disk, lambda disk: save(disk, 20, b"twenty")):
    loaded = Counter(load(Disk(crash.files)) for crash in moment.after_crash())
    print(f"{call:32}", ", ".join(f"{times} × {checkpoint}" for checkpoint, times in loaded.items()))

# %% [markdown]
# Step 20 should appear at some call, and step 10 be gone from the last one. `None` must not appear at all.
#
# ## 6 Have it checked
#
# It takes a few seconds. The same in a terminal: `farandole lab check 10`.

# %% tags=["yours"]
# !farandole lab check 10

# %% [markdown]
# ## 7 What to try next
#
# 1. Take out the `sync`, then the `sync_folder()` instead. What does the last line of section 5 say then, and why?
# 2. Save on a real disk: `write` is `open(…, "wb")`, `sync` is `os.fsync`, `rename` is `os.replace`. How do you sync a
#    folder? The project's own is `_replace` in `reference/farandole/recovery/checkpoint_part.py`.
# 3. How long does a save take then, with and without the two syncs? How often would you save, if a machine fails
#    once a day? The answer of Young and Daly is in `reference/farandole/recovery/interval.py`.
