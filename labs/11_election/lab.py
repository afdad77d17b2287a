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
# # Lab 11 · Election
#
# The leader has died, and the other members elect one of themselves. You write what each of them does, so that they
# agree, and that there are never two leaders in the same term, even when the network is cut in two.
#
# The task and what is judged are in `README.md`. Here you see what goes wrong without a majority, and the
# interface between members and network. The code itself goes into `election.py`, beside this notebook.

# %%
# %load_ext farandole
# %load_ext autoreload
# %autoreload 2
from itertools import combinations
from random import Random

from farandole.recovery.election.bully import Bully
from farandole.recovery.election.network import Network
from farandole.recovery.election.steps import Message

# %% [markdown]
# ## 1 The highest number wins
#
# In the bully election a member sends a message to all members with a higher number. If it gets no answer, it leads.
# Here the leader, 4, has died, and 0 detects it.


# %%
def show(network):
    """Print the leader that each living member knows, and its term."""
    leaders = network.leaders()
    believed = (f"{number}→{leader}" for number, leader in leaders.items())
    print(f"{network.now:3.0f} s:", *believed, " terms", *(network.nodes[number].term for number in leaders))


network = Network({number: Bully(number, range(5)) for number in range(5)})
network.kill(4)
network.start(0)
network.run(until=10)
show(network)
print(network.sent.total(), "messages:", dict(network.sent))

# %% [markdown]
# ## 2 Cut in two
#
# Now no member has died, but messages from 0, 1 and 2 no longer reach 3 and 4. To 0, 1 and 2 that looks the same.

# %%
network = Network({number: Bully(number, range(5)) for number in range(5)})
network.cut([{0, 1, 2}, {3, 4}])
network.start(0, 3)
network.run(until=10)
show(network)

# %% [markdown]
# There are two leaders, and each member has kept to the rules. The rules only check which members are alive. They
# should check whether another member can have been elected.
#
# ## 3 Majorities meet
#
# How many pairs of groups have no member in common?

# %%
for members, size in ((5, 2), (5, 3), (4, 2), (4, 3)):
    groups = [set(group) for group in combinations(range(members), size)]
    apart = sum(not one & other for one, other in combinations(groups, 2))
    print(f"{size} of {members}: {len(groups):2} groups, {apart:2} pairs of them without a common member")

# %% [markdown]
# If the votes of 3 of 5 are needed, two winners must have received a vote from the same member. So no member may vote
# twice. And with 4 members, half of the votes is not enough.
#
# *Twice* means: in the same election. Elections are numbered, and the number is called a term. Each member has one vote
# in every term.
#
# ## 4 The interface
#
# A member's methods (`start`, `receive`, `timeout`) are called when something happens, and return a list of actions.
# This one requests no votes: it begins a new term, leads, and sends heartbeats. Two of them start at the same moment.


# %%
class Usurper:
    def __init__(self, number, members):
        self.number, self.members = number, members
        self.leader, self.term = None, 0

    def start(self):
        self.leader, self.term = self.number, self.term + 1
        return [Message("heartbeat", self.number, other, self.term) for other in self.members if other != self.number]

    def receive(self, message):
        self.leader, self.term = message.sender, message.term
        return []

    def timeout(self):
        return []


network = Network({number: Usurper(number, range(3)) for number in range(3)}, delay_s=(0.2, 1.0))
network.start(0, 1)
network.run(until=10)
for _, arrived, message in sorted(network.messages, key=lambda sent: sent[1]):
    print(f"{arrived:.2f} s: {message.kind} of {message.sender} comes to {message.to}, term {message.term}")
show(network)

# %% [markdown]
# 0 follows 1, and 1 follows 0.
#
# ## 5 On paper
#
# There are three members, and 0 and 1 become candidates at the same moment, in term 1. Every member votes once. The
# request of 0 reaches member 2 first.
#
# | | has the votes of | and then |
# |---|---|---|
# | 0 | 0, ? | ? |
# | 1 | ? | ? |
# | 2 | – | ? |
#
# (0 has 0 and 2: a majority of three, so it leads and sends heartbeats. 1 has its own only; it receives the heartbeat,
# in its own term, and follows. 2 has voted for 0 and follows it, too.)
#
# What if there are four, and 2 votes for 0, and 3 for 1? No candidate has three votes, and none will get a third one in
# this term. Which member begins the next term, and when, so that it does not end in the same way?
#
# ## 6 Now write it
#
# Complete `election.py`. Then repeat the cut of section 2, with 4 as the leader before it. The notebook reads the file
# anew whenever you change it.

# %% tags=["yours"]
from election import Member

network = Network({number: Member(number, range(5), Random(number)) for number in range(5)}, delay_s=(0.2, 1.0))
network.start(4)
network.run(until=20)
show(network)
network.cut([{0, 1, 2}, {3, 4}])
network.run(until=80)
show(network)
network.heal()
network.run(until=120)
show(network)
network.kill(network.leaders()[3])
network.run(until=180)
show(network)

# %% [markdown]
# First all follow 4, in term 1. In the second line 0, 1 and 2 should have a new leader, in a higher term; 3 and 4
# remain in term 1. After the cut has healed all follow one leader, and when that has died, another one.
#
# ## 7 Have it checked
#
# Some hundred elections, in a few seconds. The same in a terminal: `farandole lab check 11`.

# %% tags=["yours"]
# !farandole lab check 11

# %% [markdown]
# ## 8 What to try next
#
# 1. Let every member wait for 15 s, always, and start all five at the same moment. Which term have they reached after
#    300 s?
# 2. Kill three of five. The two that are left try again and again. Why is it right that neither leads? What would you
#    tell the operator of the training?
# 3. How many messages does an election take, from the first request to the last heartbeat, among n members? The
#    bully's takes n(n − 1) if the highest is dead and the lowest starts. (Count them: `network.sent`.)
# 4. The project's implementation is `reference/farandole/recovery/election/raft.py`; in `ring.py` beside it
#    numbers travel around a ring, and only the highest returns to its sender. What must the ring know that Raft need
#    not?
