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
# # 04 · Collectives
#
# **Question:** which rank sends what to which, if all ranks need what one has, or one needs what all have, or all need
# the sum? And which way is the fastest: for how many bytes, on how many ranks, over which links?
#
# Such an exchange, in which all ranks of a group take part, is a **collective** (集合通信). There are a handful of
# them, and each can be done in several ways. `02_ring_all_reduce` examined one way. This notebook draws and counts
# all of them, computes their cost by a model, runs and measures them, and compares the model with the measurement.
# Everything except running and measuring needs only the *schedule*, the generator that yields each rank's next step.

# %%
# %load_ext farandole
import inspect
import os
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image
from matplotlib.colors import ListedColormap
from scipy.optimize import nnls

from farandole.collectives import doubling
from farandole.collectives.checker import check_all_reduce, execute, rounds
from farandole.collectives.costs import Link, Machine, bus_factor, coefficients, predicted_s
from farandole.collectives.double_binary_tree import double_binary_tree
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.pat import pat_all_gather, transfers
from farandole.collectives.schedules import SCHEDULES
from farandole.collectives.shared_memory import SharedVectors
from farandole.report import schedule_picture
from farandole.report.colours import BLUE, GREEN, ORANGE, RED
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
os.environ["RESULTS"] = str(folder)  # a cell under %%mpi inherits the environment, but no variables
plt.rcParams["figure.dpi"] = 100

schedules = {name: schedule for name, (schedule, _) in SCHEDULES.items()}
COLOURS = {"tree": ORANGE, "doubling": GREEN, "halving-doubling": BLUE, "ring": RED}


def picture(*wanted, ranks=4):
    """The pictures of these schedules, one below the other."""
    files = [schedule_picture.draw(each, ranks, folder / f"{each.name}.png") for each in wanted]
    drawn = [plt.imread(file) for file in files]
    widest = max(one.shape[1] for one in drawn)
    filled = [np.pad(one, ((0, 0), (0, widest - one.shape[1]), (0, 0)), constant_values=1) for one in drawn]
    plt.imsave(folder / "all.png", np.concatenate(filled))
    return Image(filename=str(folder / "all.png"))


# %% [markdown]
# ## 1 What one rank has, for all; and the other way
#
# | | before | after |
# |---|---|---|
# | **broadcast** | rank 0 has a vector | all have it |
# | **reduce** (归约) | each has a vector | rank 0 has their sum |
# | **scatter** (散播) | rank 0 has a vector | rank *r* has part *r* of it |
# | **gather** (收集) | rank *r* has part *r* | rank 0 has all parts |
#
# A reduce is a broadcast with its messages reversed, and an addition where they arrive. A gather is a reversed
# scatter.
#
# **Predict:** rank 0 has something for 63 others, and a rank can send to one other rank at a time. If it serves one
# after the other, the last one is served in round 63. Can it be done in fewer rounds?
#
# A rank that has it already can help: first one rank has it, then two, four, eight. The messages form a **tree** with
# rank 0 at its root. In the pictures a column is a rank, a stripe in it one rank's contribution; contributions that are
# not needed stay where they are.

# %%
my_rounds = predict("rounds until 63 others are served", ...)

# %%
picture(*(schedules[name] for name in ("broadcast", "reduce", "scatter", "gather")))

# %% [markdown]
# The checker runs all ranks in this one process, with collections of contributions in place of numbers. All messages
# that can travel at the same time form a **round**. So we can count the rounds for any number of ranks, and see that
# the result is right:

# %% tags=["nbval-check-output"]
goals = {
    "broadcast": lambda held, ranks: all(held[rank][0] == Counter([0]) for rank in range(ranks)),
    "reduce": lambda held, ranks: held[0][0] == Counter(range(ranks)),
    "scatter": lambda held, ranks: all(held[rank][rank] == Counter([0]) for rank in range(ranks)),
    "gather": lambda held, ranks: all(held[0][rank] == Counter([rank]) for rank in range(ranks)),
}
print("vectors that rank 0 sends, or receives\nranks   rounds   messages   " + "".join(f"{name:>11}" for name in goals))
for ranks in (2, 4, 7, 8, 64):
    moved = {}
    for name, reached in goals.items():
        execution = execute(schedules[name], ranks)
        steps = [(rank, step) for each in execution.rounds for rank, step in each]
        assert reached(execution.held, ranks)
        assert len(execution.rounds) == (ranks - 1).bit_length()  # lg P, rounded up
        assert sum(step.to is not None for _, step in steps) == ranks - 1
        chunks = sum(len(step.sent) + len(step.received) for rank, step in steps if rank == 0)
        moved[name] = chunks / schedules[name].chunks(ranks)
    print(f"{ranks:5}{len(execution.rounds):9}{ranks - 1:11}   " + "".join(f"{each:11.3g}" for each in moved.values()))
my_rounds.compare(len(execute(schedules["broadcast"], 64).rounds))

# %% [markdown]
# lg P rounds, where lg is the logarithm to base 2, rounded up: six instead of 63. What differs is how much is in the
# messages: a broadcast sends the whole vector in every round, a scatter only the part for the subtree below.
#
# The remaining two have no root; all ranks do the same:
#
# | | before | after |
# |---|---|---|
# | **reduce-scatter** | each has a vector | each has one part of the sum |
# | **all-gather** | each has one part | all have all parts |
#
# They are the halves of the ring of notebook 02. In the second picture follow chunk 1, which belongs to rank 0.

# %%
picture(schedules["reduce-scatter"], schedules["all-gather"])

# %% [markdown]
# **Predict:** two collectives, one after the other, make an **all-reduce**: all have a vector, and all get the sum.
# Which two? There are two pairs.

# %%
my_pairs = predict("the first collective of each pair", ..., "reduce", "reduce-scatter", "gather", "scatter")

# %% tags=["nbval-check-output"]
ranks, pairs = 8, []
for first, second in (("reduce", "broadcast"), ("reduce-scatter", "all-gather"), ("gather", "scatter")):
    halves = [execute(schedules[first], ranks)]
    halves.append(execute(schedules[second], ranks, start=halves[0].held))
    complete = all(chunk == Counter(range(ranks)) for chunks in halves[1].held for chunk in chunks)
    count = " + ".join(str(len(half.rounds)) for half in halves)
    print(f"{first}, then {second}: {count} rounds; every rank has the sum: {complete}")
    pairs += [first] * complete
my_pairs.compare(pairs)

# %% [markdown]
# The first pair is the all-reduce by tree, the second one the ring. Other algorithms for the same two pairs give
# other all-reduces.
#
# **Try:** a broadcast of a long vector can be made of a scatter and an all-gather. Which of the two costs does it
# lower, rounds or bytes? (Our ring's all-gather begins with chunk *r* + 1 on rank *r*; what would you have to change?)
#
# ## 2 All-reduce in four ways
#
# Tree and ring are the extremes: a few rounds with the whole vector, or many rounds with small chunks. There are two
# more.
#
# In **recursive doubling** (递归倍增) each rank exchanges all it has with a partner, then with one twice as far away,
# and so on. That is the whole algorithm:

# %%
print(inspect.getsource(doubling.all_reduce))

# %% [markdown]
# **Halving-doubling** (递归减半与倍增; Rabenseifner 2004) has the same partners. But the partners do not exchange
# everything. Each sends only the half for which the other is responsible from then on: a reduce-scatter, in which
# messages get shorter and shorter. The all-gather goes through the same partners in reverse.
#
# **Predict:** four ranks, a vector of four chunks. How many chunks does rank 0 send in each of the four steps?

# %%
my_chunks = predict("chunks that rank 0 sends in the four steps, as a list", ...)

# %%
picture(schedules["halving-doubling"])

# %% tags=["nbval-check-output"]
its_steps = [step for steps in execute(schedules["halving-doubling"], 4).rounds for rank, step in steps if rank == 0]
my_chunks.compare([len(step.sent) for step in its_steps])

# %% [markdown]
# Two, one, one, two: 1.5 times the vector in all.
#
# Both algorithms need a power of two. With 7 ranks, the first six form pairs beforehand. In each pair the even rank
# sends its vector to the odd one and waits. The remaining four ranks run the algorithm and finally send the result to
# the waiting ranks. These are **folded** in:

# %%
picture(schedules["doubling"], ranks=7)

# %% [markdown]
# Now all four side by side. The cell also checks that each of them is right.
#
# **Predict:** which needs the fewest rounds, and which the fewest bytes, for 8 ranks? For 7?

# %%
my_fewest_rounds = predict("the fewest rounds for 8 ranks", ..., "tree", "doubling", "halving-doubling", "ring")
my_fewest_bytes = predict("the fewest bytes for 7 ranks", ..., "tree", "doubling", "halving-doubling", "ring")

# %% tags=["nbval-check-output"]
print("                           messages     rounds     vectors sent by the busiest rank")
for ranks in (4, 7, 8, 64):
    for name in COLOURS:
        execution = check_all_reduce(schedules[name], ranks)
        messages = sum(step.to is not None for steps in execution.rounds for _, step in steps)
        busiest = max(execution.chunks_sent) / schedules[name].chunks(ranks)
        print(f"{ranks:3} ranks  {name:17}{messages:8}{len(execution.rounds):11}{busiest:21.2f}")
    print()
my_fewest_rounds.compare(min(COLOURS, key=lambda name: len(check_all_reduce(schedules[name], 8).rounds)))
my_fewest_bytes.compare(min(COLOURS, key=lambda name: coefficients(schedules[name], 7)[1]))

# %% [markdown]
# - The tree has the fewest *messages*. But its root is in every round, with the whole vector.
# - Doubling has the fewest *rounds*, half of the tree's; every rank sends the whole vector in each.
# - Halving-doubling has the tree's rounds and the ring's bytes, where P is a power of two.
# - The ring has the fewest *bytes*, whatever P is. Its rounds grow with P, not with lg P.
# - With 7 ranks, folding costs two more rounds. The busiest rank of halving-doubling also sends one more whole
#   vector: the result, to its partner.
#
# **Try:** the same table for 5, 6, 9 and 63. For which P does folding cost most, compared with the ring?
#
# ## 3 What does it cost?
#
# Rounds and bytes cost something different on each network. The **α-β-γ model** has three costs: α seconds to start a
# message, β for every byte sent, γ for every byte added. The time of a schedule is computed from its steps: a step
# begins when all its ranks are ready, and the last rank to finish counts. For a vector of n bytes the result is a
# multiple of α, of nβ and of nγ:

# %% tags=["nbval-check-output"]
P = 64
print(f"{P} ranks           α        nβ        nγ")
for name in COLOURS:
    print(f"{name:17}" + "{:6.0f}{:10.2f}{:10.2f}".format(*coefficients(schedules[name], P)))

# %% [markdown]
# For numbers we have to assume a machine. Let us take a cluster with 10 Gbit/s Ethernet, 10 µs to start a message,
# and processors that add 10 GB/s. **These are assumptions**: they are plausible, but not measured.
#
# **Predict:** 64 ranks. Which is the fastest for a vector of 1 KB, which for 100 MB, and is the tree ever?

# %%
my_short = predict("the fastest for 1 KB", ..., "tree", "doubling", "halving-doubling", "ring")
my_long = predict("the fastest for 100 MB", ..., "tree", "doubling", "halving-doubling", "ring")
my_tree = predict("the tree is the fastest for some size", ..., "yes", "no")

# %%
alpha, beta, gamma = 10e-6, 8 / 10e9, 1 / 10e9  # seconds; seconds per byte; seconds per byte
cluster = Machine(Link(alpha, beta), gamma)


def model_s(ranks, sizes):
    """Seconds by the model: a row for each algorithm, a column for each size in bytes."""
    ways = np.array([coefficients(schedules[name], ranks) for name in COLOURS])
    return ways @ np.stack([np.full(len(sizes), alpha), beta * sizes, gamma * sizes])


sizes = 2.0 ** np.arange(6, 31)
figure, ax = plt.subplots(figsize=(7, 3.6))
for (name, colour), seconds in zip(COLOURS.items(), model_s(P, sizes), strict=True):
    ax.loglog(sizes, 1e3 * seconds, color=colour, label=name)
ax.set_xticks([2**6, 2**10, 2**15, 2**20, 2**25, 2**30], ["64 B", "1 KB", "32 KB", "1 MB", "32 MB", "1 GB"])
ax.set(xlabel="size of the vector", ylabel="milliseconds, by the model", title=f"{P} ranks")
ax.minorticks_off()
ax.grid(alpha=0.3)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
figure.tight_layout()
short, long = model_s(P, np.array([1e3, 1e8])).argmin(axis=0)
my_short.compare(list(COLOURS)[short])
my_long.compare(list(COLOURS)[long])
my_tree.compare(list(COLOURS).index("tree") in model_s(P, sizes).argmin(axis=0))

# %% [markdown]
# On the left the lines are flat: α alone decides, and the fewest rounds win. On the right they rise in parallel, and
# their multiples of nβ decide. The ring approaches halving-doubling, but never beats it.
#
# So the ring is never the fastest? With 64 ranks, on a network where all ranks are equally far from each other, it is
# not. Let us draw the winner for *every* number of ranks.
#
# **Predict:** for which numbers of ranks does the ring win?

# %%
my_power = predict("the ring wins for 8 or 64 ranks", ..., "yes", "no")
my_odd = predict("the ring wins for 7 or 63 ranks", ..., "yes", "no")

# %%
counts = range(2, 65)
winner = np.array([model_s(ranks, sizes).argmin(axis=0) for ranks in counts]).T
figure, ax = plt.subplots(figsize=(8, 4))
ax.pcolormesh(counts, sizes, winner, cmap=ListedColormap(list(COLOURS.values())), vmin=-0.5, vmax=3.5)
ax.set_yscale("log")
ax.set_yticks([2**6, 2**10, 2**15, 2**20, 2**25, 2**30], ["64 B", "1 KB", "32 KB", "1 MB", "32 MB", "1 GB"])
ax.minorticks_off()
ax.set(xlabel="ranks", ylabel="size of the vector", xticks=[2, 4, 8, 16, 24, 32, 40, 48, 56, 64])
ax.set_title("which is the fastest, by the model")
patches = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in COLOURS]
ax.legend(patches, COLOURS, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
figure.tight_layout()

# %% tags=["nbval-check-output"]
names = list(COLOURS)
for ranks in (4, 7, 8, 63, 64):
    best = [names[index] for index in winner[:, ranks - 2]]
    changes = [place for place in range(1, len(best)) if best[place] != best[place - 1]]
    ends = [f"{best[place - 1]} below {int(sizes[place]):,} bytes" for place in changes]
    print(f"{ranks:3} ranks: {', '.join(ends)}, then {best[-1]}")
at_4_mb = [predicted_s(schedules[name], 64, 4_000_000, cluster) for name in names]
print("step by step the model says the same:", np.allclose(at_4_mb, model_s(64, np.array([4e6]))[:, 0]))
my_power.compare((winner[:, [8 - 2, 64 - 2]] == names.index("ring")).any())
my_odd.compare((winner[:, [7 - 2, 63 - 2]] == names.index("ring")).any())

# %% [markdown]
# Short vectors: rounds decide, **doubling**. Longer ones: bytes decide, **halving-doubling**. Where P is a power of
# two it wins up to the longest vectors: the blue columns. Between these columns folding costs two more messages of
# the whole vector. For long vectors that is worse than many rounds: the **ring** wins. The more ranks there are, the
# longer the vector must be for the ring.
#
# Libraries choose in the same way, by size and P, with rules that were measured on some machine. MPI's own all-reduce
# does so.
#
# **Try:** make α a hundred times smaller, as between processes of one computer, or β, and draw the map again. Which
# border moves, and why does only the *ratio* of α and β matter to it (as long as γ is small)?
#
# ### Both ways round
#
# A ring sends to the right only. The other direction of every link is idle. The **bidirectional ring** (双向环) sends
# one half of the vector to the right and the other half to the left, at the same time: chunks 0 to P − 1 go one way,
# chunks P to 2P − 1 the other. A step is then two exchanges `Together`.

# %%
picture(schedules["bidirectional-ring"])

# %% [markdown]
# The messages are half as long, and there are no more steps than before.
#
# **Predict:** is it twice as fast as the ring? What does the answer depend on?

# %%
my_twice = predict("twice as fast as the ring", ..., "always", "with a link per neighbour", "never")

# %% tags=["nbval-check-output"]
print("                                             α        nβ        nγ")
volume = {}
for name in ("ring", "bidirectional-ring"):
    for multiport in (False, True):
        ports = "a link per neighbour" if multiport else "one port a rank"
        row = coefficients(schedules[name], 4, multiport)
        volume[name, multiport] = row[1]
        print(f"{name:20}{ports:20}" + "{:6.0f}{:10.2f}{:10.2f}".format(*row))
gain = {multiport: volume["ring", multiport] / volume["bidirectional-ring", multiport] for multiport in (False, True)}
my_twice.compare("always" if gain[False] >= 2 else "with a link per neighbour" if gain[True] >= 2 else "never")

# %% [markdown]
# Each rank sends as many bytes as in a ring. If both messages have to pass the rank's one network card, which sends and
# receives at full speed in a ring already, then nothing is gained. There is a gain where the link to each neighbour is
# separate: in a torus, or between directly connected accelerators.
#
# The slow network that this project injects (`--link-mbps`) behaves like such a card: one link for each rank, each
# way. We measure over it with 4 ranks, a vector of 2 MB, and 200 Mbit/s each way:

# %%
# %%mpi -n 4
import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.runtime.communicator import Communicator
from farandole.runtime.links import Link
from farandole.runtime.timing import slowest_s

comm = Communicator(MPI.COMM_WORLD, link=Link(mbps=200))
vector = np.zeros(500_000, dtype=np.float32)
for name in ("ring", "bidirectional-ring"):
    times = [slowest_s(comm.mpi, lambda all_reduce=ALL_REDUCES[name]: all_reduce(comm, vector)) for _ in range(5)]
    if comm.rank == 0:
        print(f"{name:20}{1e3 * np.median(times):6.0f} ms; by its bytes {1e3 * 1.5 * 2e6 * 8 / 200e6:.0f} ms")

# %% [markdown]
# **Try:** the same for 2 ranks, where both neighbours are the same rank. What does `multiport` say then?
#
# ### Two trees at once
#
# In a tree half of the ranks are leaves, which send and receive the vector once, and wait the rest of the time. NCCL,
# the library for NVIDIA's GPUs, uses them in a second tree: a **double binary tree** (双二叉树). A rank that is a
# leaf of one tree is an inner node of the other, and each tree carries one half of the vector.

# %%
picture(double_binary_tree(1), ranks=8)

# %% [markdown]
# Each half can be cut into segments that follow each other: while the first segment goes down the tree, the next
# comes up.
#
# **Predict:** 64 ranks. What does the second segment cost, and the thousandth?

# %%
my_segment = predict("what the second segment costs, in α", ...)

# %% tags=["nbval-check-output"]
print(f"{P} ranks                            α        nβ        nγ")
rows = {"tree": schedules["tree"], "ring": schedules["ring"]}
rows |= {f"double tree, {segments:4} segments": double_binary_tree(segments) for segments in (1, 4, 16, 64)}
for name, schedule in rows.items():
    print(f"{name:29}" + "{:6.0f}{:10.2f}{:10.2f}".format(*coefficients(schedule, P)))
my_segment.compare(coefficients(double_binary_tree(2), P)[0] - coefficients(double_binary_tree(1), P)[0])

# %% [markdown]
# Each segment adds one α, and makes all messages shorter: nβ goes from 9.5 down to 2, the ring's. Sixteen segments have
# a fifth of the ring's α. For twice as many ranks the double tree needs two α more, the ring 128. That is why NCCL has
# it for large clusters.
#
# ### The farthest first
#
# For a reduce-scatter or an all-gather alone there is **PAT**, parallel aggregated trees (并行聚合树): every chunk goes
# down a separate tree, and the trees share their messages. What does rank *r* of 8 send, and to which ranks?

# %% tags=["nbval-check-output"]
for aggregated in (8, 2):
    print(f"at most {aggregated} chunks in a message")
    for distance, away in transfers(8, aggregated):
        print(f"    to r + {distance}   chunks of " + ", ".join(f"r - {each}" if each else "r" for each in away))
print("\n           recursive doubling       PAT")
for ranks in (6, 7, 8):
    halves = [coefficients(each, ranks) for each in (schedules["all-gather-doubling"], pat_all_gather(8))]
    print(f"{ranks} ranks      " + "      ".join(f"{alphas:.0f} α + {lengths:.2f} nβ" for alphas, lengths, _ in halves))

# %% [markdown]
# The long messages go to near ranks. A limit on the chunks per message also limits the memory in which they are
# packed. And there is no folding: six or seven ranks take as many rounds as eight, and no rank receives a chunk
# twice.
#
# ## 4 Several nodes
#
# In that model any two ranks are equally far apart. In a cluster several ranks share a **node**, and the node's wire.
#
# **Predict:** 16 ranks on 4 nodes. How many vectors leave each node in a plain ring? And how many if the scheduler
# has dealt out the ranks in turn, 0 to the first node, 1 to the second, and so on?
#
# **Hierarchical all-reduce** (分层全归约) takes the nodes into account: a reduce-scatter within each node, then an
# all-reduce of every part across the nodes, each by one rank of every node, and an all-gather within.
# Ranks 0 and 1 are on one node here, 2 and 3 on the other:

# %%
my_ring = predict("vectors that leave a node in a plain ring", ...)
my_dealt = predict("vectors that leave a node if ranks are dealt out", ...)

# %%
picture(hierarchical(2))


# %% tags=["nbval-check-output"]
def leaving(schedule, ranks, node_of):
    """Return what the busiest node sends to others, in vectors, and how many rounds wait for the wire."""
    chunks, waits = Counter(), 0
    for steps in rounds(schedule, ranks):
        away = [(node_of(rank), len(step.sent))
                for rank, step in steps if step.to is not None and node_of(step.to) != node_of(rank)]  # fmt: skip
        waits += bool(away)
        for node, count in away:
            chunks[node] += count
    return max(chunks.values()) / schedule.chunks(ranks), waits


print("                                       vectors that leave a node     rounds that wait for it")
for ranks in (16, 24):
    per_node = ranks // 4
    one_after_the_other, dealt = (lambda rank, each=per_node: rank // each), (lambda rank: rank % 4)
    rows = [(name, schedules[name], one_after_the_other) for name in ("doubling", "halving-doubling", "ring")]
    rows.append(("hierarchical", hierarchical(per_node), one_after_the_other))
    rows += [(f"{name}, dealt", schedules[name], dealt) for name in ("halving-doubling", "ring")]
    for name, schedule, node_of in rows:
        bytes_away, waits = leaving(schedule, ranks, node_of)
        print(f"4 nodes of {per_node}  {name:24}{bytes_away:15.2f}{waits:27}")
    print()
my_ring.compare(leaving(schedules["ring"], 16, lambda rank: rank // 4)[0])
my_dealt.compare(leaving(schedules["ring"], 16, lambda rank: rank % 4)[0])

# %% [markdown]
# The plain ring is not bad at all in bytes, as long as neighbours are on one node: only one message a round leaves it.
# But it waits for the wire in *every* round. Hierarchical waits 2(M − 1) times for M nodes, with fewer bytes. If the
# ranks are dealt out, every message of the ring leaves its node.
#
# Halving-doubling on nodes of 4 is hierarchical by itself: its first partners, which get the long messages, are near.
# On nodes of 6 it no longer is.
#
# `Machine(…, across=…, per_node=…)` gives messages between nodes other costs. Again these are assumptions: as above
# between the nodes, and 1 µs and 10 GB/s within. The model gives each pair of ranks a separate link, but a node has
# only one. Where all four ranks of a node send at once, each gets a quarter of the link, and we have to tell the
# model.

# %% tags=["nbval-check-output"]
within = Link(alpha=1e-6, beta=1e-10)
print("16 ranks, 4 nodes; milliseconds by the model     4 KB    256 KB     16 MB")
for name, schedule, sharing in (("doubling", schedules["doubling"], 4), ("ring", schedules["ring"], 1),
                                ("halving-doubling", schedules["halving-doubling"], 4),
                                ("hierarchical", hierarchical(4), 4)):  # fmt: skip
    nodes = Machine(within, gamma, across=Link(alpha, sharing * beta), per_node=4)
    times = [1e3 * predicted_s(schedule, 16, nbytes, nodes) for nbytes in (4 << 10, 256 << 10, 16 << 20)]
    print(f"{name:43}" + "".join(f"{each:10.3f}" for each in times))

# %% [markdown]
# Waiting decides for short vectors, the wire for long ones. Hierarchical is ahead of the ring for both, and a little
# behind halving-doubling, whose rounds are fewer; but it does not need powers of two.
#
# **Try:** count `leaving` for 4 nodes of 8, and for 16 nodes of 4. What does the ring's number of waits do, and
# the others'? What would a *tree* send over the wire, and how often would it wait?
#
# ## 5 Now for real
#
# So far no message has been sent. The next cell runs the same generators with MPI, and a few other all-reduces:

# %% tags=["nbval-check-output"]
# %%mpi -n 4
import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.double_binary_tree import double_binary_tree
from farandole.collectives.ring import segmented
from farandole.collectives.schedules import SCHEDULES
from farandole.collectives.steps import chunk_slices
from farandole.runtime.communicator import Communicator

LENGTH = 400_003  # of float32, and no multiple of anything: chunks are unequal
world = MPI.COMM_WORLD
schedules = {name: schedule for name, (schedule, _) in SCHEDULES.items()}
schedules["segmented-ring"] = segmented(2)  # a chunk has 400 KB, and a message 256 KB at most
schedules["double-binary-tree"] = double_binary_tree(4)  # a half has 800 KB


def by_schedule(schedule):
    """Return how many messages and bytes this rank has to send."""
    lengths = [part.stop - part.start for part in chunk_slices(LENGTH, schedule.chunks(world.size))]
    exchanges = [each for step in schedule.steps(world.rank, world.size) for each in step.exchanges]
    sent = [each.sent for each in exchanges if each.to is not None]
    return [len(sent), 4 * sum(lengths[chunk] for chunks in sent for chunk in chunks)]


mine = np.random.default_rng(world.rank).integers(-1000, 1000, LENGTH)
exact = np.empty_like(mine)
world.Allreduce(mine, exact)  # whole numbers, which float32 holds exactly
if world.rank == 0:
    print("                    the sum   as scheduled   messages of each rank, and bytes")
for name, all_reduce in ALL_REDUCES.items():
    comm = Communicator(world)
    vector = mine.astype(np.float32)
    all_reduce(comm, vector)
    sent = [comm.messages_sent, comm.bytes_sent]
    agrees = name in schedules and sent == by_schedule(schedules[name])
    facts = np.empty((world.size, 4), dtype=int)
    world.Gather(np.array([(vector == exact).all(), agrees, *sent]), facts if world.rank == 0 else None)
    if world.rank == 0:
        right, agree, messages, nbytes = facts.T
        scheduled = bool(agree.all()) if name in schedules else "-"
        print(f"{name:20}{bool(right.all())!s:10}{scheduled!s:15}{messages.tolist()!s:17}{nbytes.tolist()}")

# %% [markdown]
# The `Communicator`, through which messages leave, has counted what the generators said, for each rank. The last four
# of the list need an explanation:
#
# - *segmented-ring* is the ring with each long chunk in several messages.
# - *hierarchical* finds out which ranks share a node. Here all do, and within a node it needs no messages.
# - *shared-memory* never needs any. That is section 7.
# - *mpi* is MPI's own. We cannot count what it sends internally.
#
# **Try:** a `LENGTH` of 3, and one of 1,000,003. Which row is no longer as scheduled, and why is that no mistake?
#
# ## 6 Does the model hold?
#
# We measure four schedules on this computer, for vectors from 4 KB to 4 MB, and the addition alone. They take turns,
# so that a disturbance affects all of them equally. A time is that of the slowest rank, and we take the median of
# ten.
#
# **Predict:** for 4 ranks, which is the fastest on the left, and which on the right?

# %%
my_left = predict("the fastest of 4 ranks for 4 KB", ..., "tree", "doubling", "halving-doubling", "ring")
my_right = predict("the fastest of 4 ranks for 4 MB", ..., "tree", "doubling", "halving-doubling", "ring")

# %%
# %%mpi -n 4
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.runtime.communicator import Communicator
from farandole.runtime.timing import slowest_s

comm = Communicator(MPI.COMM_WORLD)
schedules = ("tree", "doubling", "halving-doubling", "ring")
medians = {name: {} for name in (*schedules, "adding")}
for nbytes in (4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000):
    vector, other = np.zeros((2, nbytes // 4), dtype=np.float32)
    systems = {name: partial(ALL_REDUCES[name], comm, vector) for name in schedules}
    systems["adding"] = partial(np.add, vector, other, vector)
    times = {name: [] for name in medians}
    for _ in range(2 + 10):  # the first two warm up
        for name, seconds in times.items():
            seconds.append(slowest_s(comm.mpi, systems[name]))
    for name, seconds in times.items():
        medians[name][nbytes] = float(np.median(seconds[2:]))
if comm.rank == 0:
    (Path(os.environ["RESULTS"]) / "measured.json").write_text(json.dumps(medians))

# %% [markdown]
# Each measurement is an equation: *a*·α + *b*·nβ + *c*·nγ = t, with the schedule's own *a*, *b* and *c*. For four
# ranks, all schedules but doubling add half of what they send. From them alone β and γ could hardly be told apart. So
# we also use the addition alone: its equation is nγ = t. (Short vectors are left out there, because the call takes
# longer than the addition.)
#
# So there are 27 equations for three unknowns. We look for the α, β and γ, none below zero, that fit them best. We
# divide each equation by its t, so that an error of 10 % has the same weight for a short vector as for a long one.

# %%
import json

measured = {name: {int(nbytes): seconds for nbytes, seconds in its.items()}
            for name, its in json.loads((folder / "measured.json").read_text()).items()}  # fmt: skip
ways = {name: coefficients(schedules[name], 4) for name in COLOURS} | {"adding": (0, 0, 1)}


def fit(names, shortest=0):
    """The α, β and γ, none below zero, with the least squares of relative errors."""
    rows = [np.array([a, b * nbytes, c * nbytes]) / seconds
            for name in names for a, b, c in [ways[name]]
            for nbytes, seconds in measured[name].items() if nbytes >= max(shortest, 0 if a else 256_000)]  # fmt: skip
    found, _ = nnls(np.array(rows), np.ones(len(rows)))
    return found


here = fit(measured)
print(f"α = {1e6 * here[0]:.1f} µs,   β = {1e12 * here[1]:.0f} µs per MB,   γ = {1e12 * here[2]:.0f} µs per MB")
my_left.compare(min(COLOURS, key=lambda name: measured[name][4_000]))
my_right.compare(min(COLOURS, key=lambda name: measured[name][4_000_000]))

# %%
figure, ax = plt.subplots(figsize=(7, 3.8))
for (name, colour), marker in zip(COLOURS.items(), "osD^", strict=True):
    nbytes, seconds = (np.array(list(each)) for each in (measured[name], measured[name].values()))
    line = np.geomspace(nbytes[0], nbytes[-1])
    a, b, c = ways[name]
    ax.loglog(line, 1e3 * (a * here[0] + line * (b * here[1] + c * here[2])), color=colour, linewidth=1.2)
    ax.loglog(nbytes, 1e3 * seconds, marker, color=colour, fillstyle="none", markeredgewidth=1.6, label=name)
ax.set_xticks(nbytes, ["4 KB", "16 KB", "64 KB", "256 KB", "1 MB", "4 MB"])
ax.set(xlabel="size of the vector", ylabel="milliseconds", title="4 ranks: marks measured, lines by the fitted model")
ax.minorticks_off()
ax.grid(alpha=0.3)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# Three numbers describe all these marks: the lines are flat on the left, rise on the right, and cross somewhere. Now
# look for what the model misses. Which marks lie furthest from their line, and on which side? The model ignores
#
# - **cores.** It gives each rank a processor. If there are fewer cores than ranks, then what should happen at the same
#   time happens one after the other, and a message waits until its receiver gets a turn. A schedule in which all act
#   in every round suffers more from that than a tree, whose idle ranks cost nothing.
# - **caches.** β is the same for all bytes, but a vector that fits in a cache moves faster than one that does not.
#   Within one computer a message is a copy through memory, and all ranks share that memory.
# - **the library.** MPI buffers short messages, and agrees with the receiver before it sends a long one, so α is not
#   the same for both. And our messages are started from Python.
#
# On a real network the first two matter less, and other traffic more. A model is good if it tells you which algorithm
# to use, and from which size on. Does this one?
#
# **Try:** `fit([*COLOURS])`, without the addition: what becomes of β and γ? Then `fit(measured, shortest=256_000)`:
# by how much do the three change, and do the lines fit the long vectors better?
#
# ## 7 Memory instead of messages
#
# Ranks on one computer could look into each other's memory. Then why copy a vector into a message, and out of it
# again? MPI lets processes allocate memory together, a **window** (共享内存窗口), in which each process has a vector,
# and every process can read and write all vectors. Then rank *r* adds up part *r* of all vectors, and writes the sum
# into each of them. This is the whole code:

# %%
print(inspect.getsource(SharedVectors.all_reduce))
print(inspect.getsource(SharedVectors._add_up))
print(inspect.getsource(SharedVectors.meet))

# %% [markdown]
# (It works in blocks of 256 KiB, so that a sum is still in the cache when it is written into the other vectors.)
#
# **Predict:** what would go wrong without the first of the two `meet`, and what without the second?
#
# No schedule can describe this. A step of a schedule *is* a message: one rank sends a chunk, another receives it, and
# the message tells the receiver that the chunk is ready. Here no rank sends. Every rank only reads, and has to know by
# other means that what it reads is finished:
#
# - the *first* barrier says: all vectors are complete. Without it a sum may contain old numbers from a late rank;
# - the *second* one says: all sums are complete. Without it a rank may continue with a part that has not been added
#   up yet.
#
# A barrier (栅栏) is a collective, too, the one that moves no bytes: no rank leaves it before all have entered. So the
# checker has nothing to check: no chunk is sent, and our cost model does not apply. The cost is two barriers, and the
# memory's time to read each number once and to write the sums.
#
# The scenarios' `shared-memory` copies a vector into the window and the sum out. *In place* is for programs whose
# vectors lie in the window anyway. We compare the **bus bandwidth**: n/t, times 2(P − 1)/P. It is what each rank's
# link would have to carry if the algorithm were a ring, so runs with different numbers of ranks can be compared.

# %%
# %%mpi -n 4
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.shared_memory import SharedVectors
from farandole.runtime.communicator import Communicator
from farandole.runtime.timing import slowest_s

comm = Communicator(MPI.COMM_WORLD)
medians = {name: {} for name in ("in place", "shared-memory", "mpi", "ring")}
for megabytes in (1, 2, 4, 8, 16):
    vector = np.zeros(megabytes * 250_000, dtype=np.float32)
    vectors = SharedVectors(comm, len(vector))
    systems = {name: partial(ALL_REDUCES[name], comm, vector) for name in medians if name in ALL_REDUCES}
    systems["in place"] = vectors.all_reduce
    times = {name: [] for name in medians}
    for _ in range(2 + 10):
        for name, seconds in times.items():
            seconds.append(slowest_s(comm.mpi, systems[name]))
    for name, seconds in times.items():
        medians[name][megabytes] = float(np.median(seconds[2:]))
    vectors.free()
if comm.rank == 0:
    (Path(os.environ["RESULTS"]) / "memory.json").write_text(json.dumps(medians))

# %%
figure, ax = plt.subplots(figsize=(7, 3.6))
for name, colour in {"in place": GREEN, "shared-memory": BLUE, "mpi": "#444444", "ring": RED}.items():
    its = json.loads((folder / "memory.json").read_text())[name]
    gigabytes_per_s = [bus_factor(4) * int(megabytes) / 1e3 / seconds for megabytes, seconds in its.items()]
    label = {"in place": "shared memory, in place", "mpi": "MPI's own"}.get(name, name)
    ax.plot(np.arange(len(its)), gigabytes_per_s, "o-", color=colour, label=label)
ax.set_xticks(np.arange(len(its)), [f"{megabytes} MB" for megabytes in its])
ax.set(xlabel="size of the vector", ylabel="bus bandwidth in GB/s", ylim=(0, None))
ax.grid(alpha=0.3)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
figure.tight_layout()

# %% [markdown]
# Higher is better. How much do the two copies cost that *in place* does without? Is there a size above which it
# falls, because the vectors of all ranks together no longer fit into the cache? (MPI's own takes a vector wherever it
# lies, as the ring and `shared-memory` do.)
#
# **Try:** run the measurement twice. Whatever does not appear again had another cause on your computer. Then add 4 KB
# and 64 KB, in milliseconds. What do two barriers cost, compared with the rounds of doubling? (`shared_memory.py`
# does without the second barrier for short vectors. How can that be right?)
#
# ## What you have seen
#
# | all-reduce | rounds | bytes sent by the busiest rank | good for |
# |---|---|---|---|
# | tree | 2 lg P | lg P · n | few messages, idle ranks |
# | recursive doubling | lg P | lg P · n | short vectors |
# | halving-doubling | 2 lg P | 2(P − 1)/P · n | longer ones, P a power of two |
# | ring | 2(P − 1) | 2(P − 1)/P · n | long ones, any P |
# | double binary tree, k segments | 2 lg P + k − 1 | at most 2n | long ones, many ranks |
# | bidirectional ring | 2(P − 1) | 2(P − 1)/P · n, half of it each way | the same, with a link to each neighbour |
# | hierarchical, M nodes of L | 2(L − 1) + 2(M − 1) | 2(P − 1)/P · n | several nodes |
# | shared memory | two barriers | no messages | one node |
#
# - Broadcast, reduce, scatter and gather take lg P rounds by a tree; an all-reduce is a reduce and a broadcast, or a
#   reduce-scatter and an all-gather.
# - Which one is best depends on size, P and the wires. α, β and γ say where the borders are; only a measurement shows
#   whether they are right.
#
# ## What to try
#
# 1. `farandole draw halving-doubling -n 8`, or any of `farandole draw`; with `--out moving.gif` it moves. Its
#    last line is the cost: what would 1 MB take on the cluster of section 3? And with
#    `farandole draw hierarchical -n 8`?
# 2. `farandole bench allreduce`: all of ours beside MPI, Horovod and Gloo, up to 64 MB; with `--picture all.png` drawn
#    as in section 6. And with `-n 2`?
# 3. Train with another one: `farandole run sync_sgd -n 4 --collective doubling`, then `shared-memory` and `mpi`.
#    Then `farandole compare`. Is the same model learned, to the last bit? Why not always?
# 4. Write it yourself: `farandole lab start 3`, halving-doubling.
# 5. Write another schedule: halving-doubling with the *farthest* partner first. Is it right, what does it cost, and how
#    much leaves a node of 4?
# 6. An **all-to-all** gives every rank another chunk from every rank. Write it as a schedule: in P − 1 rounds, with
#    partner *r* XOR *k* in round *k*, for P a power of two. What can the checker's symbols tell you about it, and what
#    do they not hold?
