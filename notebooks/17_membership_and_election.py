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
# # 17 · Membership and election
#
# **Question:** a process is killed in the middle of training. Can the others simply continue? And which rank
# coordinates them if the dead one was the leader?
#
# In `16_restart` one death ended the whole job, and the job had to be started again. Document 000 has a second way,
# **membership update** (成员更新): the ranks agree on a new set of members, and training continues. The document says
# that the coordinator detects which ranks join and leave, and that another one is elected if the coordinator has
# crashed. But a dead coordinator detects nothing (erratum 000.26). So the *survivors* have to do everything:
#
# 1. detect that a rank is missing,
# 2. agree on the remaining ranks,
# 3. elect a leader if the old one has died,
# 4. redistribute the work, and continue from the same step.
#
# We take these steps one after another, and then kill ranks of a real training run.

# %%
# %load_ext farandole
import inspect
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

from farandole import launch
from farandole.data import datasets
from farandole.data.elastic_sampler import ElasticSampler, divide
from farandole.data.sampler import steps_per_epoch
from farandole.data.shares import equal_shares
from farandole.recovery.election import choose
from farandole.recovery.election.bully import Bully
from farandole.recovery.election.network import Network
from farandole.recovery.election.steps import Message
from farandole.recovery.event_log import EventLog
from farandole.recovery.view import View
from farandole.report import election_picture
from farandole.report.colours import ACTIVITY, BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from farandole.report.curves import smooth
from farandole.report.predictions import predict
from farandole.runtime import mpirun

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 A death under MPI
#
# First MPI's normal behaviour. Rank 2 of the program below kills itself with a real SIGKILL. The other ranks are even
# *prepared* for it: they wait in a barrier, catch every error, and would print a line afterwards.
#
# **Predict:** how many lines are printed?

# %%
my_lines = predict("lines that are printed", ...)

# %% tags=["nbval-check-output"]
mortal = folder / "mortal.py"
mortal.write_text("""
import os, signal
from mpi4py import MPI

if MPI.COMM_WORLD.rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    MPI.COMM_WORLD.Barrier()
except MPI.Exception:
    pass
print("I continue")
""")
mpi = replace(mpirun.detect(), fault_tolerant=False)  # MPI as it is normally started
ended = subprocess.run(
    mpi.command(4, [sys.executable, str(mortal)]),
    env=mpi.environment(os.environ), capture_output=True, text=True, timeout=60,
)  # fmt: skip
print("lines printed:", ended.stdout.count("I continue"))
print("the whole job has ended as rank 2 did, by SIGKILL:", ended.returncode == 128 + signal.SIGKILL)
my_lines.compare(ended.stdout.count("I continue"))

# %% [markdown]
# None. mpirun detects that a process has ended, and kills the other three. There is a reason: MPI programs assume
# that no rank leaves, and the three would have waited in their barrier for ever.
#
# **ULFM** (User-Level Failure Mitigation; Bland et al. 2013) is an extension of MPI for programs that handle
# failures. A death does not end the job; a rank that communicates with the dead one gets an error. A program recovers
# with three operations:
#
# | operation | what it does |
# |---|---|
# | **revoke** | makes a communicator unusable, *for all ranks*: a rank that waits in it gets an error now |
# | **shrink** | makes a new communicator of the living ranks; all of them get the same one |
# | **agree** | the bitwise and of all ranks' numbers: the same result, or the same error, on all living ranks |
#
# Shrink and agree work even on a revoked communicator. No other communication does.
#
# Four ranks pass a number round a ring, as in `00_tour`, several times. Rank 2 dies when it receives it for the
# second time.
#
# **Predict:** for which rank does each of the other three wait at that moment? Which of them detect by themselves
# that rank 2 is dead?

# %%
my_waiting = predict("the ranks that 0, 1 and 3 wait for, as a list", ...)
my_learning = predict("ranks that learn of the death by themselves, as a list", ...)

# %% tags=["nbval-check-output"]
# %%mpi -n 4 --keep left,learns
import os
import signal

from mpi4py import MPI

from farandole.runtime.rank import departed

world = MPI.COMM_WORLD
left, right = (world.rank - 1) % 4, (world.rank + 1) % 4
number, learns = 0, False
try:
    for lap in range(3):
        if (world.rank, lap) != (0, 0):  # rank 0 begins
            number = world.recv(source=left)
        if (world.rank, lap) == (2, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        world.send(number + 1, right)
except MPI.Exception as error:
    if error.Get_error_class() == MPI.ERR_PROC_FAILED:
        learns = True
        print(f"rank {world.rank} waits for rank {left}, and learns that it is dead")
        world.Revoke()
    elif error.Get_error_class() == MPI.ERR_REVOKED:
        print(f"rank {world.rank} waits for rank {left}, and is woken")

living = MPI.Intracomm(world.Shrink())
print(f"  now rank {living.rank} of {living.size}; the numbers are {living.allgather(number)};", end=" ")
print("all have a number of the second lap:", bool(living.Agree(int(number > 3))))

departed([2])  # for our launcher, which would take a death for the end of the job

# %% tags=["nbval-check-output"]
my_waiting.compare([left[rank] for rank in (0, 1, 3)])
my_learning.compare([rank for rank in (0, 1, 3) if learns[rank]])

# %% [markdown]
# Only rank 3 learns of the death, because it was waiting for the dead rank. Rank 0 waits for rank 3, which is alive,
# and rank 1 waits for rank 0. If rank 3 now did something else, they would wait for ever. That is the purpose of
# revoke: *one* rank has detected the failure, and *all* must stop what they are doing.
#
# Shrink has renumbered the survivors: old rank 3 is rank 2 of three. Users know the old numbers, so our code keeps
# them, beside each rank's new one. And rank 3, the only one that has not received its second number, contributes 0,
# so agree returns 0 on all ranks.
#
# Why is there a special agree? After an all-reduce in which a rank dies, one rank may have the result and another one
# an error. Then they would disagree about exactly the step that matters. After an agree they cannot.
#
# ## 2 Which rank leads?
#
# In our training all ranks are nearly equal. Only the **coordinator** (中心节点) writes the record, and makes the
# decisions that one rank must make. If it dies, there is an **election**. `farandole.recovery.election` has three:
#
# | election | which member wins |
# |---|---|
# | bully (Garcia-Molina 1982) | the highest living number: a member asks all higher ones, and leads if none answers |
# | ring (Chang & Roberts 1979) | the highest living number: numbers travel round, and only the highest returns |
# | Raft's (Ongaro & Ousterhout 2014) | the first one with votes from a majority of *all* members, including the dead |
#
# Each is a **state machine**. Its inputs are that the leader has failed, that a message has arrived, or that its
# timer has expired. Its output is a list of actions. It knows neither network nor clock. This is most of the bully:

# %%
print(inspect.getsource(Bully.start))
print(inspect.getsource(Bully.receive))

# %% [markdown]
# So we can play the network ourselves. We run member 2 of five, and its leader, 4, has failed.
#
# **Predict:** which actions does it return, (a) first, (b) when 3 answers, (c) when, instead, no member answers in
# time?

# %%
my_elections = predict("(a) members to which it sends an election, as a list", ...)
my_told = predict("(c) members that it tells of the new leader, as a list", ...)


# %% tags=["nbval-check-output"]
def in_words(actions):
    """Return a member's actions in words."""
    return ", ".join(
        f"{each.kind} to {each.to}" if isinstance(each, Message) else f"a timer of {each.seconds:g} s"
        for each in actions
    )


member = Bully(2, range(5))
print("(a)", in_words(member.start()))
print("(b)", in_words(member.receive(Message("answer", 3, 2))), "for the winner to tell")
member = Bully(2, range(5))
member.start()
print("(c)", in_words(member.timeout()[:-1]))
print("    now it takes for the leader:", member.leader)
member = Bully(2, range(5))
my_elections.compare([each.to for each in member.start() if isinstance(each, Message)])
my_told.compare([each.to for each in member.timeout() if isinstance(each, Message)])

# %% [markdown]
# `Network` simulates this for all members: messages take some time (here one second), some members are dead, some are
# cut off from each other, and it counts messages. The time is simulated, so a whole election runs at once.


# %%
def hold(name, members, dead=(), start=(0,), cut=None, until=100.0):
    """Hold an election among `members`; those in `start` have detected that the leader failed."""
    network = Network(choose(f"{name}-election", list(members), dead))
    for number in dead:
        network.kill(number)
    if cut:
        network.cut(cut)
    network.start(*start)
    network.run(until)
    return network


def picture(network, name):
    return Image(filename=str(election_picture.draw(network, folder / f"{name}.png", name)), width=560)


picture(hold("bully", range(5), dead=[4]), "bully, the lowest one starts")

# %% [markdown]
# Time runs downwards. Member 0 asks all four; three answer and then ask their higher members, all at once. Member 3
# asks only the dead one, gets no answer, and leads (the star). Every member sends to all with a higher number, so
# there are many messages. On a ring each member sends only to its neighbour:

# %%
picture(hold("ring", range(5), dead=[4]), "ring, the lowest one starts")

# %% [markdown]
# The number 0 travels as far as member 3, which sends its own number instead. When that returns, member 3 knows that
# it is the highest, and one more round informs all members. The ring needs fewer messages and more time. (It has to
# be told which members are dead, and skips them. Bully and Raft detect them.)
#
# **Predict:** in the worst case, how do the messages grow with the number n of members, for each of the three?

# %%
my_bully = predict("messages of the bully", ..., "n", "n squared")
my_ring = predict("messages of the ring", ..., "n", "n squared")
my_raft = predict("messages of Raft", ..., "n", "n squared")

# %% tags=["nbval-check-output"]
doubled = {}
print("messages                      n =" + "".join(f"{n:6}" for n in (3, 5, 9)) + "     by the formula")
for text, formula, count, messages in (
    ("bully, second highest starts", "n", lambda n: n, lambda n: hold("bully", range(n), [n - 1], [n - 2])),
    ("bully, the lowest starts", "n(n − 1)", lambda n: n * (n - 1), lambda n: hold("bully", range(n), [n - 1])),
    ("ring, the highest starts", "2n", lambda n: 2 * n, lambda n: hold("ring", range(n), start=[n - 1])),
    ("ring, the one after it starts", "3n − 1", lambda n: 3 * n - 1, lambda n: hold("ring", range(n))),
    ("ring falling, all start", "n(n + 1)/2 + n", lambda n: n * (n + 1) // 2 + n,
     lambda n: hold("ring", range(n)[::-1], start=range(n))),
    ("Raft, until the first heartbeat", "3(n − 1)", lambda n: 3 * (n - 1), lambda n: hold("raft", range(n), until=2.5)),
):  # fmt: skip
    sent = {n: messages(n).sent.total() for n in (3, 5, 9)}
    assert sent == {n: count(n) for n in sent}
    doubled[text] = count(2000) / count(1000)  # 2 if the messages grow with n, 4 if with n squared
    print(f"{text:33}" + "".join(f"{each:6}" for each in sent.values()) + f"     {formula}")


def growth(name):
    """Return how the messages of an election grow in its worst case."""
    return "n squared" if max(times for text, times in doubled.items() if text.startswith(name)) > 3 else "n"


my_bully.compare(growth("bully"))
my_ring.compare(growth("ring"))
my_raft.compare(growth("Raft"))

# %% [markdown]
# All counts agree with the formulas. (Bully: the highest member is dead. Ring: n counts the living members.)
#
# Why then does Raft need a majority? Until now, a member that did not answer was dead. Now we cut the network: 0 and
# 1 on one side, 2, 3 and 4 on the other, *and all of them are alive*. On each side some member starts an election.
#
# **Predict:** how many leaders are there in the end?

# %%
my_two = predict("leaders by the bully", ...)
my_one = predict("leaders by Raft", ...)

# %%
cut = [[0, 1], [2, 3, 4]]
picture(hold("bully", range(5), start=(0, 3), cut=cut), "bully, cut between 1 and 2")

# %%
picture(hold("raft", range(5), start=(0, 3), cut=cut, until=14), "Raft, cut between 1 and 2")

# %% [markdown]
# A cross is a message that did not arrive. The bully has two leaders, although every member has followed the
# protocol: to member 1 the three others look dead. Two trainings continue, both write the record, and they cannot be
# merged again.
#
# With Raft member 0 asks for votes without success, and later so does member 1: two votes of five are no majority. On
# the other side member 3 leads, and reports this repeatedly, by **heartbeats**. Every message has the number of its
# election, a **term**, and each member has one vote per term.
#
# Is that always so? The next cell tries all ways of cutting four or five members in two, with all of them starting an
# election.

# %% tags=["nbval-check-output"]
for n in (4, 5):
    small = [part for size in range(1, n // 2 + 1) for part in combinations(range(n), size)]
    cuts = {frozenset([frozenset(part), frozenset(range(n)) - set(part)]) for part in small}
    for name in ("bully", "raft"):
        networks = [hold(name, range(n), start=range(n), cut=sorted(map(sorted, parts))) for parts in cuts]
        leading = [sum(who == leader for who, leader in each.leaders().items()) for each in networks]
        counted = (f"{leading.count(leaders):3} with {leaders} leaders" for leaders in (0, 1, 2))
        print(f"{n} members, {len(cuts):2} cuts, {name:6}" + ",".join(counted))
led = {name: hold(name, range(5), start=(0, 3), cut=cut, until=14).leaders() for name in ("bully", "raft")}
my_two.compare(sum(who == leader for who, leader in led["bully"].items()))
my_one.compare(sum(who == leader for who, leader in led["raft"].items()))

# %% [markdown]
# Raft never has two leaders, because two majorities would share a member, and that member has one vote. The price is
# in the second line: in the three cuts of two and two no member leads, and nothing is decided. When the network is
# cut, every such system has to choose: stop, or risk two inconsistent states.
#
# Our training still uses the bully, over real messages (`election/over_mpi.py`; the state machine is the same). That
# is safe because shrink has given every rank the same list of living ranks. Section 5 discusses the assumption behind
# this.
#
# ## 3 Continuing
#
# The code calls what all members have to agree on the **view**. Each member has a *slot*, which determines its part
# of a batch; members without a slot wait, as **spares**. This is the complete rule for a death:

# %%
print(inspect.getsource(View.without))

# %% [markdown]
# **Predict:** five ranks, one of them a spare. Which slot does each rank have after rank 2 has died? And after rank 0
# has died, too?

# %%
my_slots = predict("the workers in order of their slots, without rank 2, as a list", ...)
my_closed = predict("the workers without rank 0, too, as a list", ...)

# %% tags=["nbval-check-output"]
view = View.first(ranks=5, spares=1)
print(view)
print(view.without([2]))
print(view.without([2]).without([0]))
my_slots.compare(view.without([2]).workers)
my_closed.compare(view.without([2]).without([0]).workers)

# %% [markdown]
# The spare 4 has got slot 2. When rank 0 dies there is no spare left, and the slots close up. The view still names 0
# as coordinator: that changes only with the election.
#
# Now the scenario `membership`: a perceptron, four workers, synchronous SGD with momentum and dropout. In the first
# run no rank dies. Then rank 2 dies at the start of step 50, without and with a spare; then rank 0, the coordinator.
#
# **Predict:** which ranks are members at the end of each run, and which one leads?

# %%
my_shrunk = predict("ranks in the end after a kill of rank 2, as a list", ...)
my_spare = predict("ranks in the end with a spare, as a list", ...)
my_leader = predict("the leader after a kill of rank 0", ...)

# %%
recipe = {"data": "digits", "steps": 100}
runs = {"undisturbed": launch("membership", ranks=4, **recipe, out=folder / "undisturbed")}

# %%
runs["shrunk"] = launch("membership", ranks=4, **recipe, fail="rank=2,step=50", out=folder / "shrunk")
runs["spare"] = launch("membership", ranks=5, spares=1, **recipe, fail="rank=2,step=50", out=folder / "spare")
runs["centre"] = launch("membership", ranks=4, **recipe, fail="rank=0,step=50", out=folder / "centre")
books = {name: EventLog(run.folder / "logbook.jsonl").lines() for name, run in runs.items()}

# %% tags=["nbval-check-output"]
for name, run in runs.items():
    led = [line.rank for line in books[name] if line.what == "start"]
    print(f"{name:12}there in the end: {run.summary.members}; led by {led[0]} at first, by {led[-1]} at last")
    for fault in run.summary.faults:
        print(f"{'':12}rank {fault['rank']} failed at step {fault['step']}: {fault['kind']}")
        print(f"{'':12}at most the step that was interrupted was done again: {fault['steps_lost'] <= 1}")
    print(f"{'':12}each step once in the record: {[line['step'] for line in run.metrics] == list(range(100))}")
    print(f"{'':12}the same parameters on all of them: {len(set(run.summary.params_sha256)) == 1}")
my_shrunk.compare(runs["shrunk"].summary.members)
my_spare.compare(runs["spare"].summary.members)
my_leader.compare([line.rank for line in books["centre"] if line.what == "start"][-1])

# %% [markdown]
# The members write an **event log**, as in `16_restart`. A killed rank reports nothing (this one did just before,
# because its death was planned), and the ranks that detect the death log it. A rank that was only interrupted by a
# revoke does not know yet which rank has died, and logs nothing. When all have agreed, the coordinator, perhaps a new
# one, logs the new members.

# %%
begin = books["centre"][0].when
for line in books["centre"]:
    print(f"{(line.when - begin) * 1e3:7.1f} ms   {line.what:11} {line.kind:5} rank {line.rank}   step {line.step}")


# %%
def around_the_failure(run, lines, ax):
    """Draw what each rank did when, from shortly before the death until all work again."""
    last = {line.what: line for line in lines}
    failed, first_step = last["failure"], last["first step"]
    noticed = next(line for line in lines if line.what in ("noticed", "departed"))

    def ends(name):
        """Return when the leader's spans of that name ended, on the trace's clock, in ms."""
        spans = [event for event in run.trace if event["pid"] == first_step.rank and event["name"] == name]
        return [(span["ts"] + span["dur"]) / 1e3 for span in spans]

    caught_up = ends("catch up")[-1]
    step_done = next(end for end in ends("update") if end > caught_up)
    death = step_done - (first_step.when - failed.when) * 1e3  # "first step" is written when that step is done
    since, until = -12, step_done - death + 8
    for event in run.trace:
        start, length = event["ts"] / 1e3 - death, event["dur"] / 1e3
        if event["args"]["depth"] == 0 and start < until and start + length > since:
            ax.barh(event["pid"], length, left=start, height=0.7, color=ACTIVITY[event["cat"]], linewidth=0)
    moments = {"killed": 0, "detected": (noticed.when - failed.when) * 1e3, "continues": caught_up - death}
    for (name, at), colour in zip(moments.items(), (RED, GREEN, PURPLE), strict=True):
        ax.axvline(at, color=colour, linewidth=1.5)
        ax.text(at, -0.55, name, color=colour, ha="center", va="bottom", fontsize=9)
    ax.text(0.5, failed.rank, " its trace has died with it", va="center", fontsize=9, color=RED)
    ranks = max(failed.rank, *run.summary.members) + 1
    ax.set(xlim=(since, until), ylim=(ranks - 0.5, -0.5), xlabel="milliseconds since the death")
    ax.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    ax.spines[["top", "right"]].set_visible(False)


figure, axes = plt.subplots(2, 1, figsize=(9.5, 5.6))
for ax, name in zip(axes, ("spare", "centre"), strict=True):
    around_the_failure(runs[name], books[name], ax)
    ax.set_title({"spare": "rank 2 dies, a spare takes its place", "centre": "rank 0 dies, which was the centre"}[name],
                 loc="left", fontsize=10, pad=16)  # fmt: skip
handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in ACTIVITY.values()]
axes[0].legend(handles, ACTIVITY, ncols=3, frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1, 1.08))
figure.tight_layout()

for name in ("shrunk", "spare", "centre"):
    detected_ms, resumed_ms = (runs[name].summary.faults[0][what] * 1e3 for what in ("detected_s", "resumed_s"))
    print(f"{name:8}detected after {detected_ms:.0f} ms, the next step done after {resumed_ms:.0f} ms")

# %% [markdown]
# On the left are the last steps: compute, wait for the slowest, all-reduce. The long orange bars are an all-reduce in
# which a rank is missing. It ends when the death is detected: the system reports it to the daemon that started the
# process, and this daemon reports it to the others. Then comes a white gap: revoke, shrink, view, election, agree,
# some messages of a few bytes each. After it comes **catch up**, in orange again: all ranks compare their steps, and
# a rank that is behind, or new, receives the state from one that is ahead. Then training continues. (The spare's
# first step is slow, like every rank's first step.)
#
# Compare that with the seconds in `16_restart`. No rank reads from a disk and no process is started, because the
# remaining ranks have what the dead one had: under data parallelism they hold the same parameters.
#
# ### A new process joins
#
# A spare waits for a death that may never happen, and takes up memory. Without one, three workers continue; can there
# be four again? MPI can start a process from within a job (`MPI_Comm_spawn`). That takes time: for Python, MPI, the
# data, and torch, which alone takes a second or two unless it is already loaded, as in a notebook. With `spawn=1` the
# coordinator starts a process in a thread, while the three continue to train. When the new process is ready it
# reports this, and all ranks admit it: one more membership update, with a new member.
#
# (After the death rank 0 is slow for ten steps, by sleeping, so that training is not over before the new process is
# ready.)
#
# **Predict:** which number does the new process get, which rank sends it the state, and how long do the others stand
# still because it starts?

# %%
my_number = predict("the number of the new rank", ...)

# %%
slow = "rank=0,factor=200,from=50,until=60"
grown = launch("membership", ranks=4, **recipe, slow=slow, spawn=1, fail="rank=2,step=50", out=folder / "grown")
book = EventLog(grown.folder / "logbook.jsonl").lines()

# %% tags=["nbval-check-output"]
came = [each["rank"] for each in grown.summary.joined]
print("there in the end:", grown.summary.members, "– of those, come later:", came)
print("each step once in the record:", [line["step"] for line in grown.metrics] == list(range(100)))
print("the same parameters on all of them:", len(set(grown.summary.params_sha256)) == 1)
later = [line.what for line in book if line.what in ("failure", "sent for", "joined")]
print("in this order:", ", ".join(later))
my_number.compare(came[0])

# %%
when = {line.what: line.when for line in book}
[newcomer] = grown.summary.joined
print(f"from the call to its first step: {newcomer['joined_s']:.2f} s; the others took {newcomer['step'] - 50} steps")
print(f'from "joined" to that step: {when["first step"] - when["joined"]:.3f} s')

# %% [markdown]
# It is rank 4: no number is used twice. A rank that is ahead sends it the state, as it would to a spare. The others
# do not stand still while it starts, only for the update. If it died during its start, they would hardly be delayed.
#
# This also works without a death: while a long training runs, type `farandole join` and its folder in a terminal, and
# one more worker joins.
#
# ## 4 Data, learning rate, samples
#
# Three of four workers are left. What happens to the fourth part of each batch? There are two ways:
#
# - each of the three continues with its own 16 samples: batches of 48. Their gradients are noisier, and the learning
#   rate should be reduced by a factor of 3/4 (the linear scaling rule; Goyal et al. 2017);
# - the *same* batch of 64 is divided among the three. Nothing needs to be tuned again, but each worker has more to
#   do.
#
# `membership` does the second. The batch comes from an `ElasticSampler`, which knows nothing of workers, and `divide`
# cuts it for any number of them:

# %% tags=["nbval-check-output"]
train = datasets.split(datasets.load("digits"), seed=0).train
shares, batch = equal_shares(len(train), 4), 64
epoch = steps_per_epoch(len(train), batch)
first = next(ElasticSampler(shares, batch, seed=0))
for workers in (4, 3):
    parts = divide(first, workers)
    print(f"{workers} workers: {[len(part) for part in parts]}, together {sum(map(len, parts))}")

before, after = ElasticSampler(shares, batch, seed=0), ElasticSampler(shares, batch, seed=0)
after.go_to(50)  # as each member does after a change: the position follows from the step
counts = np.zeros((-(-100 // epoch), len(train)), int)
for step in range(100):
    sampler, workers = (before, 4) if step < 50 else (after, 3)
    for rows in divide(next(sampler), workers):
        counts[step // epoch, rows] += 1
print(f"{epoch} steps per epoch; step 50 is within an epoch:", 50 % epoch > 0)
print("in each full epoch every sample is used exactly once:", bool((counts[: 100 // epoch] == 1).all()))
samples = [[line["samples"] for line in run.metrics] for run in runs.values()]
print("as many samples in each step, in all runs:", all(each == samples[0] for each in samples))

# %% [markdown]
# Three parts of 64 cannot be equal. Is the mean of three gradients still the gradient of the batch? A linear model
# with a squared error, in plain numpy, is enough to see it.
#
# **Predict:** which is right, the plain mean of the workers' gradients, or the mean weighted by their parts?

# %%
my_mean = predict("the right mean", ..., "plain", "weighted")

# %% tags=["nbval-check-output"]
x, y = train.inputs.reshape(len(train), -1).astype(np.float64), train.targets.astype(np.float64)
w = np.random.default_rng(0).normal(size=x.shape[1])


def gradient(rows):
    """Return the gradient of the mean squared error over these samples."""
    return 2 * x[rows].T @ (x[rows] @ w - y[rows]) / len(rows)


whole = gradient(np.concatenate(first))
for workers in (4, 3):
    parts = divide(first, workers)
    weighted = sum(len(part) / sum(map(len, parts)) * gradient(part) for part in parts)
    plain = sum(gradient(part) for part in parts) / workers
    print(f"{workers} workers: weighted by their parts, right to 1e-12: {np.allclose(weighted, whole, rtol=1e-12)};",
          f"plain mean, right to 1e-4: {np.allclose(plain, whole, rtol=1e-4)}")  # fmt: skip
my_mean.compare("weighted" if np.allclose(weighted, whole, rtol=1e-12) else "plain")

# %% [markdown]
# Weighted, the same batch gives the same gradient with any number of ranks: up to the last digits, because a sum of
# three is rounded differently from a sum of four. So learning rate and momentum can stay as they are. (Document 000's
# shares, N/K and N/K + 1, have been unequal all along, `01_sharded_data`.)

# %%
losses = {name: np.array([line["loss"] for line in run.metrics]) for name, run in runs.items()}
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.2))
for name, colour, style in (("undisturbed", ORANGE, "-"), ("shrunk", BLUE, "--"), ("spare", GREEN, ":")):
    left.plot(smooth(losses[name]), style, color=colour, label=name)
    if name != "undisturbed":
        right.plot(losses[name] - losses["undisturbed"], color=colour, label=f"{name} − undisturbed")
for ax in (left, right):
    ax.axvline(50, color=GREY, linewidth=1, zorder=0)
    ax.set_xlabel("step")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9)
left.set(ylabel="training loss", ylim=(0, None))
right.set_ylabel("difference")
figure.tight_layout()

# %% tags=["nbval-check-output"]
accuracy = {name: run.summary.test_accuracy for name, run in runs.items()}
for name in ("shrunk", "spare", "centre"):
    same = losses[name] == losses["undisturbed"]
    print(f"{name:8}the loss of the first 40 steps is the undisturbed one's, to the bit: {same[:40].all()}")
    print(f"{'':8}and of all steps: {same.all()}")
    print(f"{'':8}accuracies differ by less than 0.05: {abs(accuracy[name] - accuracy['undisturbed']) < 0.05}")

# %% [markdown]
# Until the death the runs are the same; afterwards they differ, but none is worse. (Forty steps, not fifty: the
# losses for the record are added up every ten steps, and a dead worker's part of the last ones may be missing. That
# does not affect the parameters.)
#
# ## 5 What this does not do
#
# ### Other random numbers
#
# With three workers the run cannot be the same: sums are rounded differently, and a sample on another worker gets
# that worker's random numbers. But with the spare there are four again, in the same slots, with the same parts of the
# same batches. Why does the green line leave zero?
#
# The spare received everything that the workers have *in common*. What only rank 2 had is lost: the state of its
# random generator, from which dropout draws. So the spare draws other numbers.
#
# **Predict:** are the parameters equal *to the bit* if there is no dropout?

# %%
my_bits = predict("equal to the bit without dropout", ..., "yes", "no")

# %%
calm = recipe | {"dropout": 0.0}
pairs = {0.1: (runs["undisturbed"], runs["spare"]), 0.0: (
    launch("membership", ranks=4, **calm, out=folder / "calm"),
    launch("membership", ranks=5, spares=1, **calm, fail="rank=2,step=50", out=folder / "calm, spare"),
)}  # fmt: skip

# %% tags=["nbval-check-output"]
for dropout, (undisturbed, spare) in pairs.items():
    same = spare.summary.params_sha256 == undisturbed.summary.params_sha256
    print(f"dropout {dropout}: with the spare the same parameters as undisturbed, to the bit: {same}")
my_bits.compare(same)

# %% [markdown]
# To replace the dead rank *exactly*, another rank must have a copy of the state that only the dead one had. That is
# backup recovery, and the next notebook's subject.
#
# ### No rank left
#
# At least one rank with the state must be alive. A spare has no state before it has received one:

# %% tags=["nbval-check-output"]
view = View.first(ranks=3, spares=1)
after = view.without(view.workers)
print("works now:", after.workers, "– of those, has ever known the parameters:", set(after.workers) & set(view.workers))
print("all three dead:", view.without(view.members).workers)

# %% [markdown]
# If all workers die at once, as in a power cut, only what is on a disk is left: `16_restart`. The two methods can be
# combined.
#
# ### A hang is not a death
#
# A dead process has ended, and the system knows. A hung process is alive but answers nothing, and all other ranks
# wait for it. From outside it looks exactly like a slow one. So no rank can *know*; some rank has to declare it dead
# after some time. And then it must be *killed*: if it woke up later, it would act on outdated state. In `membership`
# the ranks send each other heartbeats, and a rank that has made no progress for `hang_after` seconds, without waiting
# for another, is killed by a SIGKILL. Then everything happens as in section 1.
#
# ### A cut is not a death, either
#
# ULFM assumes that a rank that has been declared dead is dead. If a network of several machines is cut, or only slow
# for too long, each side may declare the other dead. The next cell does what each side would do then:

# %% tags=["nbval-check-output"]
view = View.first(ranks=5, spares=0)
for side in ([0, 1], [2, 3, 4]):
    seen = view.without([member for member in view.members if member not in side])
    if seen.coordinator not in side:
        seen = replace(seen, coordinator=hold("bully", side, start=side).leaders()[side[0]])
    majority = 2 * len(seen.members) > len(view.members)
    print(
        f"{side} see: workers {seen.workers}, coordinator {seen.coordinator}; a majority of the view before: {majority}"
    )

# %% [markdown]
# There are two views with the same number, two coordinators and two trainings, and each side acts as if it were the
# only one: a **split brain**. The remedy is Raft's: only a majority of the previous view continues. The price is
# Raft's, too: of two workers, neither could continue alone after the other's death. The price is unnecessary on one
# machine, or on a cluster whose manager kills the processes of a node that it has declared dead.
#
# ## What you have seen
#
# - MPI ends a job at the first death. ULFM does not: revoke interrupts all ranks, shrink returns those that remain,
#   agree gives all of them the same result.
# - Bully and ring elect the highest reachable number, so one leader on each side of a cut. Raft elects at most one
#   leader per term, and sometimes none.
# - Survivors lose no step: they hold the same parameters, and they repeat the interrupted step. The recovery takes a
#   small part of a second, much of it until the death is detected.
# - The same batch is divided among the remaining workers, so learning rate and epochs do not change.
# - State that only one rank had is lost with it, unless another rank has a copy.
#
# ## What to try
#
# 1. In section 1 take out `world.Revoke()`, and put `--timeout 10` behind `%%mpi -n 4`. Which rank hangs, and in which
#    call?
# 2. Let rank 3 kill itself as well, just before `Agree`; catch `MPI.Exception` there, and print it. Do the two others
#    get the same result? Would they with `living.allreduce` instead of agree?
# 3. `hold("raft", range(5), start=(0, 3), cut=cut, until=60)`, then `network.heal()` and `network.run(120)`. The
#    leader was alive, but is replaced. Look at the terms, and explain why.
# 4. Elect with Raft *before* the cut, so that the old leader is on the smaller side. How many members consider
#    themselves the leader afterwards, and in which terms? Why does the old leader do no harm?
# 5. `fail=["rank=1,step=40", "rank=3,step=40"]` with `ranks=5, spares=1`: predict the view first, then look at
#    `members`. Then let the spare die as well: `"rank=4,step=100"`.
# 6. Give up the fourth part of the batch instead: two runs with `ranks=3, batch=48`, with `lr=0.05` and with
#    `lr=0.0375`. Does the scaling rule matter here?
# 7. `fail="rank=2,step=50,how=hang", hang_after=3`: what does the event log say, and after how long? What would
#    happen to a rank that is merely slow if `hang_after` were too short?
# 8. Write it yourself: `farandole lab start 11` is Raft's election.
