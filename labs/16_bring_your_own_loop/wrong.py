"""Known wrong answers of lab 16, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
import torch
from torch.nn.utils import clip_grad_norm_

from farandole_tools.lab.single_process import (
    ACCUMULATE,
    BATCH,
    MAX_NORM,
    STEPS,
    STEPS_PER_EPOCH,
    Part,
    mean_loss,
    shuffled,
)


def share(model, comm):
    state = [each.detach() for each in (*model.parameters(), *model.buffers())]
    vector = torch.cat([each.flatten().double() for each in state])
    comm.broadcast(vector.numpy(), 0)
    for each, values in zip(state, vector.split([each.numel() for each in state])):
        each.copy_(values.view_as(each))


def parts(order, batch, rank, size):
    batches = [order[start : start + batch] for start in range(0, len(order), batch)]
    return [Part(rows[rank::size], len(rows)) for rows in batches]


def mean_gradient(model, parts, comm):
    add_gradients(model, parts)
    sum_gradients([each for each in model.parameters() if each.requires_grad], comm)


def add_gradients(model, parts):
    for rows, of in parts:
        if rows:
            (mean_loss(model, rows) * (len(rows) / of / len(parts))).backward()


def sum_gradients(trained, comm):
    used = torch.tensor([float(each.grad is not None) for each in trained], dtype=torch.float64)
    own = [torch.zeros_like(each) if each.grad is None else each.grad for each in trained]
    vector = torch.cat([*(each.flatten() for each in own), used])
    comm.all_reduce(vector.numpy())
    *means, used = vector.split([*(each.numel() for each in trained), len(trained)])
    for each, mean, by_some_rank in zip(trained, means, used.tolist()):
        each.grad = mean.view_as(each) if by_some_rank else None


def take_step(model, optimizer, parts, comm, max_norm):
    optimizer.zero_grad()
    mean_gradient(model, parts, comm)
    clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()


def train(job, comm, folder, every):
    file, first = folder / "state.pt", 0
    kept = {"model": job.model, "optimizer": job.optimizer, "schedule": job.schedule}
    share(job.model, comm)
    if file.exists():
        state = torch.load(file)
        first = state["step"]
        for name, each in kept.items():
            each.load_state_dict(state[name])
    for step in range(first, STEPS):
        epoch, place = divmod(step, STEPS_PER_EPOCH)
        ours = parts(shuffled(epoch), BATCH, comm.rank, comm.size)
        take_step(job.model, job.optimizer, ours[place * ACCUMULATE :][:ACCUMULATE], comm, MAX_NORM)
        job.schedule.step()
        if comm.rank == 0 and (step + 1) % every == 0:
            state = {"step": step + 1} | {name: each.state_dict() for name, each in kept.items()}
            torch.save(state, folder / "new")
            (folder / "new").replace(file)
"""

# What `mean_gradient` does wrong shows on several ranks, and there the checks with real kills are not run.
SEVERAL = 3

MUTANTS = [
    Mutant(
        name="adds_up_in_32_bits",
        says="Adds the gradient up in float32.",
        fails={"one message": "adds up float32, and the gradient is float64"},
        changes={
            "comm.all_reduce(vector.numpy())": """
            vector = vector.float()
            comm.all_reduce(vector.numpy())
            vector = vector.double()
            """,
        },
        ranks=3,
    ),
    Mutant(
        name="adds_up_the_batches",
        says="Adds the batches' gradients up for a step, and does not divide by their number.",
        fails={
            "accumulate": "the sum over the batches: divide by the number of batches that are added up",
            "train": "after 4 steps words.weight",
        },
        changes={"len(rows) / of / len(parts)": "len(rows) / of"},
        ranks=SEVERAL,
    ),
    Mutant(
        name="averages_each_batch",
        says="Sums over the ranks after each batch, though nothing needs to be sent before the step.",
        fails={"accumulate": "all_reduce is called 3 times for a step of 3 batches"},
        changes={
            """
            add_gradients(model, parts)
            sum_gradients([each for each in model.parameters() if each.requires_grad], comm)
            """: """
            trained = [each for each in model.parameters() if each.requires_grad]
            total = [None for _ in trained]
            for part in parts:
                add_gradients(model, [part])
                sum_gradients(trained, comm)
                for number, each in enumerate(trained):
                    if each.grad is not None:
                        before = total[number]
                        mean = each.grad.clone() / len(parts)
                        total[number] = mean if before is None else before + mean
                    each.grad = None
            for each, mean in zip(trained, total):
                each.grad = mean
            """,
        },
        ranks=SEVERAL,
    ),
    Mutant(
        name="batches_by_stride",
        says="Deals the rows of the epoch out to its batches, one by one.",
        fails={
            "batches": "and the ranks' parts of it also have rows",
            "train": "after 1 step words.weight on rank 0 is off by",
            **dict.fromkeys(("kill", "unfinished save"), "interrupted after 4 steps"),
        },
        changes={
            "batches = [order[start : start + batch] for start in range(0, len(order), batch)]": """
            number = -(-len(order) // batch)
            batches = [order[start::number] for start in range(number)]
            """,
        },
    ),
    Mutant(
        name="broadcasts_each_parameter",
        says="Broadcasts every parameter and buffer in a separate message.",
        fails={"share": "share calls broadcast 8 times: put everything into one array"},
        changes={
            """
            vector = torch.cat([each.flatten().double() for each in state])
            comm.broadcast(vector.numpy(), 0)
            for each, values in zip(state, vector.split([each.numel() for each in state])):
                each.copy_(values.view_as(each))
            """: """
            for each in state:
                comm.broadcast(each.numpy(), 0)
            """,
        },
        ranks=SEVERAL,
    ),
    Mutant(
        name="clips_before_the_sum",
        says="Clips each rank's own gradient, before it is added up.",
        fails={
            "clip": "is clipped before it is added up: the bound is for the mean gradient",
            "train": "after 2 steps words.weight",
        },
        changes={
            """
            mean_gradient(model, parts, comm)
            clip_grad_norm_(model.parameters(), max_norm)
            """: """
            add_gradients(model, parts)
            clip_grad_norm_(model.parameters(), max_norm)
            sum_gradients([each for each in model.parameters() if each.requires_grad], comm)
            """,
        },
        ranks=SEVERAL,
    ),
    Mutant(
        name="clips_each_parameter",
        says="Clips each parameter's gradient separately, instead of all together.",
        fails={"clip": "clipped for each parameter alone", "train": "is off by"},
        changes={
            "clip_grad_norm_(model.parameters(), max_norm)": """
            for each in model.parameters():
                clip_grad_norm_([each], max_norm)
            """,
        },
        ranks=3,
    ),
    Mutant(
        name="decides_alone_what_is_used",
        says="Leaves a gradient None if this rank has not used the parameter, although others have.",
        fails={
            "mean gradient": "the gradient on rank 2 is 0: is it added up over the ranks?",
            "branch": "rare.weight has no gradient on rank 1, and rank 0 has used it: all ranks have to move alike",
            "clip": "the gradient of rank 2's step is 0",
            "train": "after 1 step rare.weight on rank",
        },
        changes={
            "each.grad = mean.view_as(each) if by_some_rank else None": """
            each.grad = mean.view_as(each) if each.grad is not None else None
            """,
        },
        ranks=SEVERAL,
    ),
    Mutant(
        name="drops_the_last_batch",
        says="Leaves out the last batch of an epoch, because it is smaller than the others.",
        fails={
            "batches": "rank 0 has 2 parts, where one process has 3 batches: the last, smaller batch counts, too",
            "train": "after 3 steps words.weight",
            "kill": "interrupted after 4 steps: after 3 steps words.weight",
            "unfinished save": "interrupted after 4 steps, while it saves: after 3 steps words.weight",
        },
        changes={"range(0, len(order), batch)": "range(0, len(order) - batch + 1, batch)"},
    ),
    Mutant(
        name="each_rank_saves_its_own",
        says="Saves a file on each rank, and loads it there: a rank that was not there before finds none.",
        fails={"unfinished save": "rank 1 continues with other parameters than those after 2 steps"},
        changes={
            'file, first = folder / "state.pt", 0': 'file, first = folder / f"state-{comm.rank}.pt", 0',
            "if comm.rank == 0 and (step + 1) % every == 0:": "if (step + 1) % every == 0:",
            """
            torch.save(state, folder / "new")
            (folder / "new").replace(file)
            """: """
            torch.save(state, folder / f"new-{comm.rank}")
            (folder / f"new-{comm.rank}").replace(file)
            """,
        },
    ),
    Mutant(
        name="every_batch_is_whole",
        says="Gives every batch the number of rows of a full one, also the last.",
        fails={
            "batches": "batch 2 has 2 rows, and rank 0 says it has 3",
            "train": "is off by",
            "kill": "is off by",
            "unfinished save": "is off by",
        },
        changes={
            "return [Part(rows[rank::size], len(rows)) for rows in batches]": """
            return [Part(rows[rank::size], batch) for rows in batches]
            """
        },
    ),
    Mutant(
        name="forgets_the_buffers",
        says="Shares the parameters, but leaves each rank its own random buffers.",
        fails={
            "share": "on rank 1 order and strength are not as on rank 0: buffers are not among the parameters",
            "train": "rank 1 begins with another order than rank 0 had",
        },
        changes={"(*model.parameters(), *model.buffers())": "model.parameters()"},
        ranks=SEVERAL,
    ),
    Mutant(
        name="forgets_the_frozen",
        says="Shares the trained parameters, but leaves each rank its own random frozen layer.",
        fails={
            "share": "on rank 1 frozen.weight is not as on rank 0: a frozen parameter has to be the same",
            "train": "rank 1 begins with another frozen.weight than rank 0 had",
        },
        changes={
            "(*model.parameters(), *model.buffers())": """
            (*filter(lambda each: each.requires_grad, model.parameters()), *model.buffers())
            """,
        },
        ranks=SEVERAL,
    ),
    Mutant(
        name="forgets_the_optimizers_state",
        says="Saves the parameters and the schedule, and begins with new averages of the gradient.",
        fails={
            "kill": "then started again: after 5 steps words.weight on rank 0 is off by",
            "unfinished save": "then started again: after 3 steps words.weight on rank 0 is off by",
        },
        changes={
            '"optimizer": job.optimizer, ': "",
            'first = state["step"]': """
            first = state["step"]
            job.optimizer.param_groups[0]["lr"] = state["schedule"]["_last_lr"][0]
            """,
        },
    ),
    Mutant(
        name="forgets_the_schedule",
        says="Saves the model and the optimizer, but restarts the schedule.",
        fails={
            "kill": "after 5 steps the learning rate on rank 0 is",
            "unfinished save": "after 3 steps the learning rate on rank 0 is",
        },
        changes={', "schedule": job.schedule': ""},
    ),
    Mutant(
        name="forgets_to_share",
        says="Trains from each rank's own random model.",
        fails={"train": "rank 1 begins with another words.weight than rank 0 had"},
        ranks=3,
        changes={"share(job.model, comm)": ""},
    ),
    Mutant(
        name="forgets_zero_grad",
        says="Adds each step's gradient to that of the step before.",
        fails={
            "accumulate": "what it should be and that of the step before: begin each step with zero_grad",
            "train": "after 2 steps words.weight",
        },
        changes={"optimizer.zero_grad()": ""},
        ranks=SEVERAL,
    ),
    Mutant(
        name="leaves_out_the_remainder",
        says="Gives all ranks the same number of rows of a batch: the remaining rows are in no part.",
        fails={"batches": "and no rank has row 0", "kill": "after 1 step words.weight on rank 0 is off by"},
        changes={
            "return [Part(rows[rank::size], len(rows)) for rows in batches]": """
            return [Part(rows[rank::size][: len(rows) // size], len(rows)) for rows in batches]
            """,
        },
    ),
    Mutant(
        name="loads_on_rank_0",
        says="Loads the state on rank 0 and shares the model: the others have neither the step nor AdamW's averages.",
        fails={
            "kill": "then started again with 2: after 4 steps the learning rate on rank 1",
            "unfinished save": "then started again with 2: after 2 steps the learning rate on rank 1",
        },
        changes={
            "share(job.model, comm)": "",
            "if file.exists():": "if comm.rank == 0 and file.exists():",
            "for step in range(first, STEPS):": """
            share(job.model, comm)
            for step in range(first, STEPS):
            """,
        },
    ),
    Mutant(
        name="mean_over_all_rows",
        says="Takes the mean over the rows of all batches of a step, where one process takes that of each batch first.",
        fails={"accumulate": "is the mean over all rows", "train": "is off by"},
        changes={
            "(mean_loss(model, rows) * (len(rows) / of / len(parts))).backward()": """
            (mean_loss(model, rows) * (len(rows) / sum(part.of for part in parts))).backward()
            """,
        },
        ranks=3,
    ),
    Mutant(
        name="overwrites_the_only_state",
        says="Writes the new state over the old one: a process that is killed meanwhile leaves neither.",
        fails={"unfinished save": "while it saves, half of the file is there; then started again"},
        changes={
            'torch.save(state, folder / "new")': "torch.save(state, file)",
            '(folder / "new").replace(file)': "",
        },
    ),
    Mutant(
        name="plain_mean",
        says="Gives every rank the same weight, however many rows it has.",
        fails={
            "mean gradient": "is the plain mean over the ranks: a rank with fewer rows has to count less",
            "branch": "is the plain mean over the ranks",
            "clip": "the gradient of rank 0's step is bounded, but that of a wrong mean",
            "accumulate": "is the plain mean over the ranks",
            "train": "after 1 step words.weight",
        },
        changes={
            "(len(rows) / of / len(parts))": "(1 / len(parts))",
            "comm.all_reduce(vector.numpy())": """
            comm.all_reduce(vector.numpy())
            vector /= comm.size
            """,
        },
        ranks=SEVERAL,
    ),
    Mutant(
        name="puts_in_new_parameters",
        says="Puts new parameters into the model, which the optimizer does not know.",
        fails={
            "share": "is another object afterwards, and the optimizer holds the old one",
            "train": "after 1 step words.weight",
        },
        ranks=3,
        changes={
            "each.copy_(values.view_as(each))": """
            each.copy_(values.view_as(each))
            for module in model.modules():
                for name, each in module.named_parameters(recurse=False):
                    setattr(module, name, torch.nn.Parameter(each.detach(), each.requires_grad))
            """,
        },
    ),
    Mutant(
        name="reduces_each_parameter",
        says="Sums each parameter's gradient in a separate message.",
        fails={"one message": "rank 0 calls all_reduce 6 times: put everything into one vector"},
        changes={
            "comm.all_reduce(vector.numpy())": """
            for values in vector.split([*(each.numel() for each in trained), len(trained)]):
                comm.all_reduce(values.numpy())
            """,
        },
        ranks=SEVERAL,
    ),
    Mutant(
        name="remainder_to_the_last_rank",
        says="Gives all remaining rows of a batch to the last rank.",
        fails={"batches": "the ranks' parts of batch 2 have [0, 0, 2] rows"},
        changes={
            "return [Part(rows[rank::size], len(rows)) for rows in batches]": """
            def own(rows):
                each = len(rows) // size
                return rows[rank * each : (rank + 1) * each if rank < size - 1 else None]

            return [Part(own(rows), len(rows)) for rows in batches]
            """,
        },
    ),
    Mutant(
        name="saves_after_every_step",
        says="Saves after each step, whatever the interval.",
        fails={"unfinished save": "continues after 3 steps, and should after 2"},
        changes={"if comm.rank == 0 and (step + 1) % every == 0:": "if comm.rank == 0:"},
    ),
    Mutant(
        name="schedule_once_an_epoch",
        says="Steps the schedule once in an epoch.",
        fails={"train": "where one process has 0.0467", "kill": "0.0467", "unfinished save": "0.0467"},
        changes={
            "job.schedule.step()": """
            if place == STEPS_PER_EPOCH - 1:
                job.schedule.step()
            """,
        },
    ),
    Mutant(
        name="sends_the_frozen",
        says="Sums up a gradient of 0 for the frozen layer, too.",
        fails={"one message": "118 numbers are added up. The gradient has 96"},
        changes={
            "sum_gradients([each for each in model.parameters() if each.requires_grad], comm)": """
            sum_gradients(list(model.parameters()), comm)
            """,
        },
        ranks=SEVERAL,
    ),
    Mutant(
        name="sends_what_it_has_used",
        says="Sends the gradients that this rank has: on ranks that took the branch the vector is longer.",
        fails={
            "mean gradient": "ranks 0 and 1 call all_reduce with 79 numbers; rank 2 calls all_reduce with 0 numbers",
            "branch": "rank 0 calls all_reduce with 101 numbers; ranks 1 and 2 call all_reduce with 79 numbers",
            "one message": "all ranks have to make the same calls in the same order",
            "clip": "all ranks have to make the same calls in the same order",
            "accumulate": "all ranks have to make the same calls in the same order",
            "train": "all ranks have to make the same calls in the same order",
        },
        changes={
            "sum_gradients([each for each in model.parameters() if each.requires_grad], comm)": """
            sum_gradients([each for each in model.parameters() if each.grad is not None], comm)
            """,
        },
        ranks=SEVERAL,
    ),
    Mutant(
        name="shares_32_bits",
        says="Broadcasts everything as float32, although the model has float64.",
        fails={"share": "512 bytes are broadcast, where the model has 1,024"},
        changes={"each.flatten().double()": "each.flatten().float()"},
        ranks=3,
    ),
    Mutant(
        name="shares_the_tied_twice",
        says="Broadcasts the state_dict, in which a tied parameter has two entries.",
        fails={"share": "1,344 bytes are broadcast, where the model has 1,024: words.weight and output.weight"},
        changes={"(*model.parameters(), *model.buffers())": "model.state_dict().values()"},
        ranks=SEVERAL,
    ),
    Mutant(
        name="zeros_for_what_is_unused",
        says="Gives every parameter a gradient, 0 where no rank has used it, and AdamW moves it.",
        fails={
            "branch": "rare.weight has a gradient on rank 0, and no rank has used it: it has to be None",
            "train": "after 2 steps rare.weight",
        },
        changes={"mean.view_as(each) if by_some_rank else None": "mean.view_as(each)"},
        ranks=SEVERAL,
    ),
]

SENTENCES: Sentences = {
    "share": {
        "the parameters": ["forgets_the_frozen"],
        "and buffers": ["forgets_the_buffers"],
        "by one broadcast": ["broadcasts_each_parameter", "shares_32_bits", "shares_the_tied_twice"],
        "Collective.": "says that all ranks call it",
        "The parameters stay the same objects": ["puts_in_new_parameters"],
        "model: this rank's model": "describes an argument",
        "The values differ between ranks": "describes an argument",
        "comm: this rank's communicator": "describes an argument",
    },
    "parts": {
        "Divide an epoch among the ranks": ["drops_the_last_batch"],
        "`batch` rows each, in the given order": ["batches_by_stride"],
        "the last one may have fewer": ["drops_the_last_batch"],
        "in exactly one rank's part": ["leaves_out_the_remainder"],
        "differ by one row at most": ["remainder_to_the_last_rank"],
        "order: all rows": "describes an argument",
        "batch: the number of rows of a batch": "describes an argument",
        "and the number of rows of the whole batch": ["every_batch_is_whole"],
    },
    "mean_gradient": {
        "Compute, on all ranks, the gradient": ["plain_mean", "adds_up_in_32_bits"],
        "Collective.": "says that all ranks call it",
        "and the mean of these over the batches": ["adds_up_the_batches", "mean_over_all_rows"],
        "Afterwards the `grad` of every parameter equals": ["decides_alone_what_is_used"],
        "It is None where it is None in one process": ["zeros_for_what_is_unused"],
        "Send only one vector, in one all_reduce": [
            "reduces_each_parameter",
            "averages_each_batch",
            "sends_the_frozen",
            "sends_what_it_has_used",
        ],
        "model: the same on all ranks": "describes an argument",
        "parts: this rank's part": "describes an argument",
    },
    "take_step": {
        "Take the same step as one process": ["forgets_zero_grad"],
        "Collective.": "says that all ranks call it",
        "parts: this rank's part": "describes an argument",
        "max_norm: the bound on the gradient's norm": ["clips_before_the_sum", "clips_each_parameter"],
    },
    "train": {
        "Train as `single_process.train` does": ["schedule_once_an_epoch"],
        "continue from the last saved state": ["loads_on_rank_0"],
        "Collective.": "says that all ranks call it",
        "After every `every` steps": ["saves_after_every_step"],
        "the whole state that is needed": ["forgets_the_optimizers_state", "forgets_the_schedule"],
        "on any number of ranks": ["each_rank_saves_its_own"],
        "also while it saves": ["overwrites_the_only_state"],
        "Then all ranks are restarted": "says what the checks do",
        "job: this rank's job.model": "describes an argument",
        "The model's initial values are random": "says what the checks do",
        "Training starts from rank 0's model": ["forgets_to_share"],
        "folder: where to save the state": "describes an argument",
        "It exists, is empty at first": "describes an argument",
    },
}
