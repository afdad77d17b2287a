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
# # 25 · Federated learning
#
# **Question:** can a model learn from data that must not leave their owners?
#
# So far each rank received its samples. In **federated learning** (联邦学习, document 002's outlook) the data stay
# with their owners: telephones, hospitals, firms. There are many clients, each with few samples of few kinds. In a
# round some of them train the model locally and send the change of their parameters. A server adds these up, and with
# secure aggregation it sees nothing but the sum.

# %%
# %load_ext farandole
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from farandole import launch
from farandole.data import datasets, label_skew
from farandole.federated import secret_sharing
from farandole.federated.secure_sum import SecureClient, from_whole, to_whole, unmasked
from farandole.report.colours import SERIES
from farandole.report.predictions import predict

workplace = tempfile.TemporaryDirectory(prefix="farandole-")  # gone when this notebook's kernel ends
folder = Path(workplace.name)
plt.rcParams["figure.dpi"] = 100

# %% [markdown]
# ## 1 How the data are divided
#
# Real clients have different data. `label_skew` divides each of the ten digits among the clients in proportions drawn
# from a Dirichlet distribution: a concentration *a* of infinity deals them out evenly, a small one leaves each client
# with few digits and some clients with hardly any samples.
#
# **Predict:** how many different digits does a client have, with *a* = 0.1?

# %%
my_digits = predict("digits of a client, median", ...)

# %%
digits = datasets.split(datasets.load("digits"), seed=0).train.targets
_, axes = plt.subplots(1, 3, figsize=(10, 2.8), sharey=True, layout="constrained")
for ax, concentration in zip(axes, (float("inf"), 1.0, 0.1), strict=True):
    owned = label_skew.divide(digits, 20, concentration, seed=0)
    counts = np.array([np.bincount(digits[rows], minlength=10) for rows in owned])
    below = np.zeros(20)
    for digit in range(10):
        above = below + counts[:, digit]
        ax.stairs(above, np.arange(21) - 0.5, baseline=below, fill=True, color=plt.cm.tab10(digit), label=str(digit))
        below = above
    ax.set(title=f"a = {concentration:g}", xlabel="client")
    ax.spines[["top", "right"]].set_visible(False)
    print(f"a = {concentration:>3g}: a client has samples of {np.median((counts > 0).sum(1)):.0f} digits (median),",
          f"and from {counts.sum(1).min()} to {counts.sum(1).max()} samples")  # fmt: skip
axes[0].set(ylabel="samples")
axes[2].legend(frameon=False, fontsize=7, ncols=2, title="digit")
my_digits.compare(np.median((counts > 0).sum(1)))

# %% [markdown]
# ## 2 A round
#
# Client *k* with $n_k$ samples trains from the server's *w* to its own $w_k$. The server adds the mean of the
# changes, each weighted by the client's samples:
#
# $$ w \leftarrow w + \frac{\sum_k n_k (w_k - w)}{\sum_k n_k} $$
#
# Let there be three clients and one parameter, and let all samples of client *k* have their minimum at $w=a_k$. Each
# client takes one step of gradient descent; then the server takes the mean.
#
# **Predict:** where does the weighted mean converge, and where the plain one?

# %%
my_weighted = predict("the weighted mean", ...)
my_plain = predict("the plain mean", ...)

# %% tags=["nbval-check-output"]
wants, samples, rate = np.array([0.0, 3.0, 9.0]), np.array([10, 10, 80]), 0.1
for name, weights in {"weighted": samples / samples.sum(), "plain": np.full(3, 1 / 3)}.items():
    w = 0.0
    for _ in range(400):
        at_home = w - rate * (w - wants)  # each one's own step
        w += weights @ (at_home - w)
    print(f"{name:>8} mean comes to rest at {w:.2f}")
print(f"all samples together want {wants @ samples / samples.sum():.2f}")
my_weighted.compare(wants @ samples / samples.sum())
my_plain.compare(w, within=1e-6)

# %% [markdown]
# With weights, a round of one step on all of a client's samples **is** a step on the samples of all clients, although
# no client has sent a sample. With more local steps it is not: clients move on towards their own minima, as the ranks
# of local SGD do (notebook `06_local_sgd_and_averaging`, section 4).
#
# ## 3 Few rounds or much work
#
# There are twenty clients, five of them in each round. The ranks simulate them: client *k* is on rank *k* mod *P*, so
# a rank has several clients.
#
# **Predict:** with five times the local work (5 epochs instead of 1), how many rounds are saved? And with clients of
# few digits each?

# %%
my_alike = predict("accuracy after 12 rounds of 5 epochs, clients alike (0 to 1)", ...)
my_unlike = predict("accuracy after 12 rounds of 5 epochs, clients of few digits (0 to 1)", ...)

# %%
recipe = {"steps": 12, "clients": 20, "per_round": 5, "hidden": 64, "lr": 0.15, "seed": 0}
kinds = {
    "alike, 1 epoch": {"concentration": "inf", "epochs": 1},
    "alike, 5 epochs": {"concentration": "inf", "epochs": 5},
    "unlike, 1 epoch": {"concentration": 0.1, "epochs": 1},
    "unlike, 5 epochs": {"concentration": 0.1, "epochs": 5},
}
runs = {name: launch("federated", 4, **recipe, **kind, out=folder / name) for name, kind in kinds.items()}
_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for (name, run), colour in zip(runs.items(), SERIES, strict=False):
    ax.plot([line["loss"] for line in run.metrics], color=colour, label=name)
    print(f"{name:>16}: accuracy {run.summary.test_accuracy:.1%} after {run.summary.steps} rounds,",
          f"{sum(run.summary.bytes_sent) / 1e6:.1f} MB")  # fmt: skip
ax.set(xlabel="round", ylabel="loss of the round's clients, before it", ylim=(0, None), xticks=range(0, 13, 3))
ax.spines[["top", "right"]].set_visible(False)
ax.grid(alpha=0.3)
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
my_alike.compare(runs["alike, 5 epochs"].summary.test_accuracy, within=0.05)
my_unlike.compare(runs["unlike, 5 epochs"].summary.test_accuracy, within=0.05)

# %% [markdown]
# With similar clients, local work replaces rounds, and rounds are expensive: the model travels to each client and
# back. With unlike clients, the loss jumps with the clients that take part, and the clients of the last rounds decide
# what the model knows best. More rounds, a smaller `--server-lr` or more clients per round reduce the jumps.
#
# The result must not depend on the rank that a client is on, or the number of ranks would be part of the method:

# %% tags=["nbval-check-output"]
short = recipe | {"steps": 3, "concentration": 0.5}
anywhere = {ranks: launch("federated", ranks, **short, out=folder / f"on-{ranks}") for ranks in (2, 3, 4)}
digests = {run.summary.params_sha256[0] for run in anywhere.values()}
print("on 2, 3 and 4 ranks the same parameters, to the bit:", len(digests) == 1)

# %% [markdown]
# ## 4 Only the sum
#
# The server needs $\sum_k n_k(w_k-w)$. A single one of these vectors would reveal much about that client's samples.
# So any two clients agree on a **mask** that no other party knows: one adds it, the other subtracts it. In the sum
# all masks cancel (安全聚合).
#
# That works exactly because it is done in whole numbers modulo $2^{64}$: the vectors are rounded to 32 binary digits
# behind the point, and any number plus a uniform random one of all $2^{64}$ is itself uniformly random.
#
# **Predict:** what does the server see of client 0, and how far is the sum from the true one?

# %%
my_view = predict("what the server sees of client 0", ..., "its vector", "its mean", "noise")
my_error = predict("the error of the sum", ...)

# %% tags=["nbval-check-output"]
vectors = {client: np.full(1000, 0.25 * (client + 1)) for client in range(4)}  # 0.25, 0.5, 0.75 and 1
clients = {client: SecureClient(client, threshold=3) for client in vectors}
directory = {client: it.keys for client, it in clients.items()}  # public: the server hands them round
all_sealed = {client: it.sealed_shares(directory) for client, it in clients.items()}
for client, others in all_sealed.items():
    for other, sealed in others.items():
        clients[other].hold(client, sealed)  # what only `other` can open
masked = {client: it.masked(to_whole(vectors[client])) for client, it in clients.items()}

seen = masked[0] / 2.0**64  # as a part of all there are
evenly = abs(seen.mean() - 0.5) < 0.05, abs(seen.std() - 0.289) < 0.03
print("what client 0 has sent, if it were drawn evenly, has mean 0.5 and deviation 0.289: "
      f"{evenly[0]} and {evenly[1]}")  # fmt: skip
told = {client: it.reveal(left=masked) for client, it in clients.items()}
total = from_whole(unmasked(masked, directory, told))
print("the sum that comes out:", set(total.tolist()))
my_view.compare("noise" if all(evenly) else "its vector")
my_error.compare(abs(total - sum(vectors.values())).max())

# %%
_, (left, right) = plt.subplots(1, 2, figsize=(8, 2.6), layout="constrained")
left.hist(masked[0] / 2.0**64, bins=20, color=SERIES[0])
left.set(title="the 1000 numbers client 0 has sent", xlabel="part of 2⁶⁴")
right.hist(total, bins=20, range=(0, 3), color=SERIES[1])
right.set(title="the 1000 numbers of the sum")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## 5 If a client is lost
#
# Client 2 sends its keys and shares, and then nothing. The other clients' vectors contain masks agreed with it, and
# no client can subtract them. The **shares** solve this: every client has divided its secrets among all, so that any
# three (the threshold) can rebuild one, and two know nothing about it (Shamir 1979).

# %% tags=["nbval-check-output"]
shares = secret_sharing.share(secret=42, holders=range(4), threshold=3)
print("from three shares:", secret_sharing.recover({holder: shares[holder] for holder in (0, 1, 3)}))
print("from two it is 42:", secret_sharing.recover({holder: shares[holder] for holder in (0, 3)}) == 42)

left_over = {client: vector for client, vector in masked.items() if client != 2}
told = {client: clients[client].reveal(left=left_over) for client in left_over}
total = from_whole(unmasked(left_over, directory, told))
print("the sum without client 2, 0.25 + 0.5 + 1:", set(total.tolist()))
try:
    clients[0].reveal(left=[0, 1])
except ValueError as error:
    print("two left:", error)

# %% [markdown]
# The three clients revealed their shares of client 2's key, and of the seeds of their own second masks; never both of
# one client. Otherwise a server could claim that client 2 is lost, obtain its key, remove the masks from a vector
# that arrived late, and read it.
#
# ## 6 In training
#
# **Predict:** is the accuracy of a secure training lower? How many more bytes does it send?

# %%
my_lower = predict("the accuracy is lower by more than 0.01", ..., "yes", "no")
my_bytes = predict("times as many bytes", ...)

# %% tags=["nbval-check-output"]
secure = {"secure": {}, "secure, some lost": {"lost": 0.2}}
protected = {"plain": anywhere[4]}
for name, kind in secure.items():
    protected[name] = launch("federated", 4, **short, secure=True, **kind, out=folder / name)
plain, same, lost = (np.array([line["loss"] for line in run.metrics]) for run in protected.values())
print("the losses of plain and secure differ by less than 0.001:", bool(abs(plain - same).max() < 1e-3))
print("clients left in each round:", [int(line["clients"]) for line in protected["secure, some lost"].metrics])
open_run, secure_run = protected["plain"].summary, protected["secure"].summary
my_lower.compare(secure_run.test_accuracy < open_run.test_accuracy - 0.01)
my_bytes.compare(sum(secure_run.bytes_sent) / sum(open_run.bytes_sent), within=0.1)

# %%
for name, run in protected.items():
    print(f"{name:>18}: {sum(run.summary.bytes_sent) / 1e6:.2f} MB, {run.summary.wall_s:.2f} s")

# %% [markdown]
# Where only two clients were left, the round changed nothing. A vector takes twice the bytes, eight for each number
# instead of four, plus the keys and shares. The masks also take time: there is one for each pair of clients, as long
# as the model.
#
# The method has limits. It hides a client in a sum, but the sums of many rounds, or the finished model, may still
# reveal something about a client with unusual data. Noise protects against that (differential privacy). And no client
# here proves its identity. `federated/key_agreement.py` says what is missing for production use.
#
# ## Try
#
# - `per_round=20` with unlike clients: does the loss jump less? What does it cost?
# - `server_lr=0.3` with unlike clients and 5 epochs.
# - In section 4, let client 1 send a wrong vector. Which party could detect it?
# - Lab `06_push_pull` and this notebook both have a server that adds up vectors. What does each server know?
