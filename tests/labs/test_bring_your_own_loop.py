"""Lab 16: a correct answer may look different, an error gets a plain message, and the script does what it says."""

from __future__ import annotations

from pathlib import Path

import torch

from farandole_tools.lab import labs, mutants, single_process
from farandole_tools.lab.grading import grade_together
from farandole_tools.lab.loop.expected import course, uneven
from farandole_tools.lab.single_process import RARE, SAMPLES, Job
from tests.labs.labs_for_tests import LIMIT_S, on

LAB = labs.find("16")
KILLS = ("kill", "unfinished save")
ON_SEVERAL = [check.name for check in LAB.checks if 3 in check.ranks]

# Bytes are shared, rank 0 alone reads, the state is saved before a step, in two files in turn, and so on.
ANOTHER = """
import io
import math
import os

import numpy as np
import torch

from farandole_tools.lab import single_process as given


def share(model, comm):
    there = {each.data_ptr(): each for each in model.state_dict().values()}
    sent = np.concatenate([each.numpy().reshape(-1).view(np.uint8) for each in there.values()])
    comm.broadcast(sent)
    at = 0
    with torch.no_grad():
        for each in there.values():
            values = np.frombuffer(sent[at : at + each.nbytes].tobytes(), each.numpy().dtype)
            each.copy_(torch.tensor(values).reshape(each.shape))
            at += each.nbytes


def parts(order, batch, rank, size):
    found = []
    for number in range(math.ceil(len(order) / batch)):
        whole = np.array(order)[number * batch : (number + 1) * batch]
        found += [given.Part(np.array_split(whole, size)[size - 1 - rank], len(whole))]
    return tuple(found)


def mean_gradient(model, parts, comm):
    wanted = [each for each in model.parameters() if each.requires_grad]
    total = np.zeros(sum(each.numel() + 1 for each in wanted))
    for part in parts:
        loss = given.mean_loss(model, part.rows)
        at = 0
        for each, own in zip(wanted, torch.autograd.grad(loss, wanted, allow_unused=True)):
            if own is not None and len(part.rows):
                total[at] += 1
                total[at + 1 : at + 1 + each.numel()] += own.numpy().ravel() * len(part.rows) / part.of
            at += 1 + each.numel()
    if comm.size > 1:
        comm.all_reduce(total)
    at = 0
    for each in wanted:
        each.grad = None
        if total[at]:
            each.grad = torch.from_numpy(total[at + 1 : at + 1 + each.numel()] / len(parts)).reshape(each.shape)
        at += 1 + each.numel()


def take_step(model, optimizer, parts, comm, max_norm):
    mean_gradient(model, parts, comm)
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    norm = math.sqrt(sum((each**2).sum().item() for each in gradients))
    for each in gradients if norm > max_norm else ():
        each *= max_norm / norm
    optimizer.step()
    for each in model.parameters():
        each.grad = None


def train(job, comm, folder, every):
    done, together = 0, []
    for epoch in range(given.EPOCHS):
        ours = parts(given.shuffled(epoch), given.BATCH, comm.rank, comm.size)
        while ours:
            together.append(ours[: given.ACCUMULATE])
            ours = ours[given.ACCUMULATE :]
    state = newest(folder) if comm.rank == 0 else b""
    length = np.array([len(state)])
    comm.broadcast(length, 0)
    if length[0]:
        sent = np.frombuffer(state, np.uint8).copy() if comm.rank == 0 else np.zeros(length[0], np.uint8)
        comm.broadcast(sent, 0)
        done, *states = torch.load(io.BytesIO(sent.tobytes()))
        for each, its in zip((job.model, job.optimizer, job.schedule), states):
            each.load_state_dict(its)
    else:
        share(job.model, comm)
    while done < len(together):
        if comm.rank == 0 and done % every == 0:
            with open(folder / f"state-{done // every % 2}", "wb") as file:
                torch.save((done, *(each.state_dict() for each in (job.model, job.optimizer, job.schedule))), file)
                os.fsync(file.fileno())
        take_step(job.model, job.optimizer, together[done], comm, given.MAX_NORM)
        job.schedule.step()
        done += 1


def newest(folder):
    found = []
    for path in folder.iterdir():
        try:
            found.append((torch.load(path)[0], path.read_bytes()))
        except Exception:
            print("not whole:", path.name)
    return max(found)[1] if found else b""
"""


def test_a_right_answer_need_not_look_like_ours(tmp_path: Path) -> None:
    for name, text in (("another", ANOTHER), ("original", mutants.original(LAB))):
        (tmp_path / f"{name}.py").write_text(text)
    judged = grade_together(
        [
            (on(LAB, 3, checks=ON_SEVERAL), tmp_path / "another.py"),
            (on(LAB, 1, checks=("batches", *KILLS)), tmp_path / "another.py"),
            (on(LAB, 3, checks=ON_SEVERAL), tmp_path / "original.py"),
        ],
        limit_s=LIMIT_S,
    )
    assert [check.message for results in judged for check in results if not check.passed] == []


# For each: the function to replace, where `right` is the correct one; the check; the number of ranks; the message.
NO_ANSWERS = [
    ("share", "share", 2, "def share(model, comm): pass", "on rank 1 nothing of the model is as on rank 0"),
    (
        "share",
        "share",
        2,
        "def share(model, comm): comm.broadcast(model.words.weight.detach(), 0)",
        "broadcast takes a numpy array, not Tensor: tensor.numpy() is the same memory",
    ),
    (
        "share",
        "share",
        2,
        "def share(model, comm): comm.broadcast(torch.zeros(3 + comm.rank).numpy(), 0)",
        "rank 0 calls broadcast with 3 numbers from rank 0; rank 1 calls broadcast with 4 numbers from rank 0: all",
    ),
    (
        "share",
        "share",
        2,
        "def share(model, comm): (comm.broadcast if comm.rank else comm.all_reduce)(torch.zeros(3).numpy())",
        "rank 0 calls all_reduce with 3 numbers; rank 1 calls broadcast with 3 numbers from rank 0: all ranks",
    ),
    (
        "share",
        "share",
        2,
        "def share(model, comm):\n"
        "    right(model, comm)\n"
        "    model.hidden.bias = torch.nn.Parameter(model.hidden.bias.detach())",
        "hidden.bias is another object afterwards, and the optimizer holds the old one: copy into it",
    ),
    ("parts", "batches", 1, "def parts(*given): pass", "parts returns None: is there a return?"),
    ("parts", "batches", 1, "def parts(*given): return [[1]]", "parts returns [[1]], where a list of Part(rows, of)"),
    (
        "parts",
        "batches",
        1,
        "def parts(order, batch, rank, size):\n"
        "    return [part._replace(of=batch) for part in right(order, batch, rank, size)]",
        "8 rows, batches of 3, 1 rank: batch 2 has 2 rows, and rank 0 says it has 3",
    ),
    (
        "parts",
        "batches",
        1,
        "def parts(order, batch, rank, size): return right(order[rank:] + order[:rank], batch, rank, size)",
        "8 rows, batches of 3, 2 ranks: batch 0 is of the rows",
    ),
    (
        "mean_gradient",
        "mean gradient",
        2,
        "def mean_gradient(model, parts, comm):\n    if comm.rank: right(model, parts, comm)",
        "rank 0 has returned; rank 1 calls all_reduce with 101 numbers: all ranks have to make the same calls",
    ),
    (
        "mean_gradient",
        "mean gradient",
        2,
        "def mean_gradient(model, parts, comm): add_gradients(model, parts)",
        "the gradient on rank 0 is this rank's own: is it added up over the ranks?",
    ),
    (
        "train",
        "train",
        2,
        "def train(job, *given):\n    right(job, *given)\n    job.optimizer.step()",
        "takes a step after the last one, of 6",
    ),
    ("train", "train", 2, "def train(*given): raise SystemExit", "the code ends the whole process (sys.exit or"),
    ("train", "train", 2, "def train(*given): pass", "rank 0 returns after 0 of 6 steps"),
    (
        "train",
        "kill",
        1,
        "def train(job, comm, folder, every): right(job, comm, folder, 3)",
        "then started again: rank 0 continues after 3 steps, and should after 4: the state is to be saved after every",
    ),
    (
        "train",
        "unfinished save",
        1,
        "def train(job, comm, folder, every): right(job, comm, folder, 100)",
        "torch.save(state, file) is not called after 4 steps, a multiple of 2",
    ),
    (
        "train",
        "kill",
        1,
        "def train(job, comm, *given):\n    if comm.size == 2 and comm.rank: return\n    right(job, comm, *given)",
        "SIGKILL to rank 1 after 4 steps; then started again with 2: rank 0: DifferentCalls: rank 0 calls broadcast",
    ),
    (
        "train",
        "kill",
        1,
        "def train(job, comm, *given):\n    if comm.size == 3: raise KeyError('mine')\n    right(job, comm, *given)",
        "3 processes, SIGKILL to rank 1 after 4 steps: rank 0: KeyError: 'mine', at line",
    ),
]


def test_what_is_no_answer_is_told(tmp_path: Path) -> None:
    judged = []
    for number, (function, check, ranks, body, _) in enumerate(NO_ANSWERS):
        path = tmp_path / f"{number}.py"
        path.write_text(f"{mutants.original(LAB)}\n\nright = {function}\n\n\n{body}\n")
        judged.append((on(LAB, ranks, checks=(check,)), path))
    for (*_, body, message), results in zip(NO_ANSWERS, grade_together(judged, limit_s=LIMIT_S), strict=True):
        assert message in results[0].message, body


def test_the_script_has_what_its_distribution_has_to_treat_with_care() -> None:
    """Otherwise a mistake would do no harm, and pass."""
    job = Job()
    used, norms = [], []

    def look(*_: object) -> None:
        gradients = [each.grad for each in job.model.parameters() if each.grad is not None]
        used.append(job.model.rare.weight.grad is not None)
        norms.append(float(torch.cat([each.flatten() for each in gradients]).norm()))

    job.optimizer.register_step_pre_hook(look)
    single_process.train(job)
    assert len(used) == single_process.STEPS == len(course().states) - 1
    assert used[0], "the branch has a state in AdamW"
    assert not used[1], "before a step in which no sample takes it"
    bounded = [norm > single_process.MAX_NORM - 1e-5 for norm in norms]
    assert {True, False} == set(bounded)
    assert SAMPLES % single_process.BATCH
    assert job.model.output.weight is job.model.words.weight
    assert 1 < sum(int(pair[0]) == RARE for pair in single_process.PAIRS) < 7, "on 7 ranks some have none"


def test_parts_for_the_checks_are_uneven_and_whole() -> None:
    rows = list(range(14))
    for size in range(1, 8):
        for turn in range(3):
            parts = uneven(rows, size, turn)
            assert sorted(row for part in parts for row in part) == rows
            assert size == 1 or len(set(map(len, parts))) > 1
            assert size < 3 or [] in parts
