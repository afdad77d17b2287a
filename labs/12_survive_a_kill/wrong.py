"""Known wrong answers of lab 12, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
import numpy as np

from farandole_tools.lab.ulfm_communicator import PeerLost


def divide(samples, rank, size):
    return samples[rank::size]


def recover(comm, done):
    if not done:
        comm.revoke()
    return None if comm.agree(done) else comm.shrink()


def catch_up(comm, worker):
    steps = comm.all_gather(worker.step)
    newest = max(steps)
    if min(steps) < newest:
        state = np.concatenate([worker.parameters, worker.momentum])
        comm.broadcast(state, steps.index(newest))
        worker.parameters[:], worker.momentum[:] = np.split(state, 2)
        worker.step = newest
    worker.gradient[:] = 0
    begun, random = getattr(worker, "begun", (None, None))
    if begun == worker.step:
        worker.random.setstate(random)


def train(comm, worker, steps):
    while comm:
        try:
            catch_up(comm, worker)
            while worker.step < steps:
                worker.begun = worker.step, worker.random.getstate()
                worker.compute(divide(worker.batch(), comm.rank, comm.size))
                comm.all_reduce(worker.gradient)
                worker.update()
            done = True
        except PeerLost:
            done = False
        comm = recover(comm, done)
"""

MUTANTS = [
    Mutant(
        name="always_rewinds",
        says="Rewinds the random numbers of a step, too, that the others have done with its help.",
        fails={
            "random numbers": "rank 2 takes step 1 with other random numbers than before: those of step 0",
            "one kill": "rank 1 takes step 1 with other random numbers than before: those of step 0",
            "two kills": "rank 2 takes step 1 with other random numbers than before: those of step 0",
        },
        changes={
            """
            begun, random = getattr(worker, "begun", (None, None))
            if begun == worker.step:
                worker.random.setstate(random)
            """: """
            if hasattr(worker, "random_before"):
                worker.random.setstate(worker.random_before)
            """,
            "worker.begun = worker.step, worker.random.getstate()": """
            worker.random_before = worker.random.getstate()
            """,
        },
    ),
    Mutant(
        name="always_sends_the_state",
        says="Sends the state after every recovery and at the start, though no worker may be behind.",
        fails={"no death": "a state is broadcast although no rank is behind"},
        changes={"if min(steps) < newest:": "if True:"},
    ),
    Mutant(
        name="does_not_revoke",
        says="Does not interrupt the workers that have not detected the death.",
        fails={
            "recover": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_reduce",
            "a death": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_gather",
            "half a step": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_reduce",
            "last step": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_reduce",
            "random numbers": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_gather",
            "second death": "deadlock: ranks 0 and 3 wait in all_reduce; rank 1 is dead; rank 2 waits in agree",
            "one kill": "deadlock: ranks 0 and 1 wait in all_gather; rank 2 is dead; rank 3 waits in agree",
            "two kills": "deadlock: ranks 0, 3 and 4 wait in all_gather; rank 1 is dead; rank 2 waits in agree",
        },
        changes={
            """
            if not done:
                comm.revoke()
            """: "",
        },
    ),
    Mutant(
        name="draws_new_random_numbers",
        says="Repeats an interrupted step with the next random numbers.",
        fails={
            "random numbers": "rank 1 takes step 0 with other random numbers than before: those of step 1",
            "one kill": "rank 0 takes step 0 with other random numbers than before: those of step 1",
            "two kills": "rank 0 takes step 0 with other random numbers than before: those of step 1",
        },
        changes={
            """
            begun, random = getattr(worker, "begun", (None, None))
            if begun == worker.step:
                worker.random.setstate(random)
            """: "",
            "worker.begun = worker.step, worker.random.getstate()": "",
        },
    ),
    Mutant(
        name="drops_the_dead_ones_samples",
        says="Every worker keeps its first part, and none takes over the dead worker's.",
        fails={
            "a death": "on step 0 rank 1 works, and no rank on its samples [0, 2, 4, 6, 8, 10]",
            "half a step": "on step 0 ranks 1 and 2 work, and no rank on its samples [0, 3, 6, 9]",
            "last step": "on step 3 rank 1 works, and no rank on its samples [36, 38, 40, 42, 44, 46]",
            "random numbers": "on step 0 ranks 1 and 2 work, and no rank on its samples [0, 3, 6, 9]",
            "second death": "on step 1 ranks 0, 2 and 3 work, and no rank on its samples [13, 17, 21]",
            "one kill": "on step 0 ranks 0, 1 and 3 work, and no rank on its samples [2, 6, 10]",
            "two kills": "on step 0 ranks 0, 2, 3 and 4 work, and no rank on its samples [1, 6, 11]",
        },
        changes={
            "while comm:": """
            rank, size = comm.rank, comm.size
            while comm:
            """,
            "worker.compute(divide(worker.batch(), comm.rank, comm.size))": """
            worker.compute(divide(worker.batch(), rank, size))
            """,
        },
    ),
    Mutant(
        name="forgets_the_momentum",
        says="Sends the parameters to a worker that is behind, and not the momentum.",
        fails={
            "half a step": "with the momentum of step 0, not of step 1",
            "last step": "with the momentum of step 3, not of step 4",
            "random numbers": "with another state than the others",
            "second death": "with the momentum of step",
            "one kill": "with the momentum of step 0, not of step 1",
            "two kills": "with the momentum of step 0, not of step 1",
        },
        changes={
            "worker.parameters[:], worker.momentum[:] = np.split(state, 2)": """
            worker.parameters[:], _ = np.split(state, 2)
            """,
        },
    ),
    Mutant(
        name="forgets_the_state",
        says="A worker that is behind takes the number of the step, but not the state.",
        fails={
            "half a step": "rank 2 takes step 1 with the parameters of step 0, not of step 1",
            "last step": "rank 2 has returned with the parameters of step 3, not of step 4",
            "random numbers": "rank 2 has returned with another state than the others",
            "second death": "rank 3 takes step 2 with the parameters of step 1, not of step 2",
            "one kill": "rank 1 takes step 1 with the parameters of step 0, not of step 1",
            "two kills": "rank 2 takes step 1 with the parameters of step 0, not of step 1",
        },
        changes={
            "import numpy as np": "",
            """
            steps = comm.all_gather(worker.step)
            newest = max(steps)
            if min(steps) < newest:
                state = np.concatenate([worker.parameters, worker.momentum])
                comm.broadcast(state, steps.index(newest))
                worker.parameters[:], worker.momentum[:] = np.split(state, 2)
                worker.step = newest
            """: "worker.step = max(comm.all_gather(worker.step))",
        },
    ),
    Mutant(
        name="goes_back_to_the_slowest",
        says="Every worker continues from the step of the slowest.",
        fails={
            "half a step": "rank 1 has done step 0 and does it again: the rank with the most steps decides",
            "last step": "rank 1 has done step 3 and does it again: the rank with the most steps decides",
            "random numbers": "rank 1 takes step 0 with other random numbers than before: those of step 2",
            "second death": "rank 2 has done step 1 and does it again: the rank with the most steps decides",
            "one kill": "rank 0 has done step 0 and does it again: the rank with the most steps decides",
            "two kills": "rank 0 has done step 0 and does it again: the rank with the most steps decides",
        },
        changes={
            """
            newest = max(steps)
            if min(steps) < newest:
            """: """
            slowest = min(steps)
            if slowest < max(steps):
            """,
            "comm.broadcast(state, steps.index(newest))": "comm.broadcast(state, steps.index(slowest))",
            "worker.step = newest": "worker.step = slowest",
        },
    ),
    Mutant(
        name="goes_on_from_its_own_step",
        says="Every worker continues from its own step.",
        fails={
            "half a step": "gradients of different steps are added up: rank 1 at step 1, rank 2 at step 0",
            "last step": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_reduce",
            "random numbers": "gradients of different steps are added up: rank 1 at step 1, rank 2 at step 0",
            "second death": "gradients of different steps are added up: rank 2 at step 2, rank 3 at step 1",
            "one kill": "gradients of different steps are added up: rank 0 at step 1, rank 1 at step 0",
            "two kills": "gradients of different steps are added up: rank 0 at step 1, rank 2 at step 0",
        },
        changes={
            "import numpy as np": "",
            """
            steps = comm.all_gather(worker.step)
            newest = max(steps)
            if min(steps) < newest:
                state = np.concatenate([worker.parameters, worker.momentum])
                comm.broadcast(state, steps.index(newest))
                worker.parameters[:], worker.momentum[:] = np.split(state, 2)
                worker.step = newest
            """: "",
        },
    ),
    Mutant(
        name="keeps_the_gradient",
        says="Repeats an interrupted step on top of the gradient that it has already computed.",
        fails={
            "a death": "rank 1 takes step 0 again with what the first attempt has left in its gradient",
            "half a step": "rank 1 takes step 0 again with what the first attempt has left in its gradient",
            "last step": "rank 1 takes step 3 again with what the first attempt has left in its gradient",
            "random numbers": "rank 1 takes step 0 again with what the first attempt has left in its gradient",
            "second death": "rank 0 takes step 1 again with what the first attempt has left in its gradient",
            "one kill": "rank 0 takes step 0 again with what the first attempt has left in its gradient",
            "two kills": "rank 0 takes step 0 again with what the first attempt has left in its gradient",
        },
        changes={"worker.gradient[:] = 0": ""},
    ),
    Mutant(
        name="leaves_out_the_remainder",
        says="Gives every rank equally many samples: no rank has the remainder.",
        fails={
            "divide": "1 sample, 2 ranks: the parts are [[], []]: not each sample exactly once",
            "no death": "on step 0 ranks 0, 1, 2, 3 and 4 work, and no rank on its samples [10, 11]",
            "two kills": "on step 0 ranks 0, 1, 2, 3 and 4 work, and no rank on its samples [10, 11]",
        },
        changes={
            "return samples[rank::size]": """
            each = len(samples) // size
            return samples[rank * each : (rank + 1) * each]
            """,
        },
    ),
    Mutant(
        name="leaves_when_it_is_done",
        says="A worker that is done returns, though another may still need its state.",
        fails={
            "recover": "deadlock: rank 0 is dead; rank 1 has returned; rank 2 waits in shrink",
            "last step": "deadlock: rank 0 is dead; rank 1 has returned; rank 2 waits in shrink",
            "random numbers": "deadlock: rank 0 is dead; rank 1 has returned; rank 2 waits in shrink",
            "second death": "deadlock: ranks 0 and 1 are dead; rank 2 has returned; rank 3 waits in shrink",
            "one kill": "deadlock: rank 0 has returned; ranks 1 and 3 wait in shrink; rank 2 is dead",
            "two kills": "deadlock: rank 0 has returned; rank 1 is dead; ranks 2, 3 and 4 wait in shrink",
        },
        changes={
            """
            if not done:
                comm.revoke()
            return None if comm.agree(done) else comm.shrink()
            """: """
            if done:
                return None
            comm.revoke()
            return comm.shrink()
            """,
        },
    ),
    Mutant(
        name="ranks_of_the_first_communicator",
        says="Uses its rank in the first communicator as its rank in the new one.",
        fails={
            "a death": "on step 0 rank 1 works, and no rank on its samples [0]",
            "half a step": "on step 0 ranks 1 and 2 work, and no rank on its samples [0]",
            "last step": "on step 3 rank 1 works, and no rank on its samples [36]",
            "random numbers": "on step 0 ranks 1 and 2 work, and no rank on its samples [0]",
            "second death": "on step 1 ranks 0, 2 and 3 work, and no rank on its samples [13, 16, 19, 22]",
            "one kill": "on step 0 ranks 0, 1 and 3 work, and no rank on its samples [2, 5, 8, 11]",
            "two kills": "on step 0 ranks 0, 2, 3 and 4 work, and no rank on its samples [1, 5, 9]",
        },
        changes={
            "worker.compute(divide(worker.batch(), comm.rank, comm.size))": """
            worker.compute(divide(worker.batch(), worker.number, comm.size))
            """,
        },
    ),
    Mutant(
        name="receives_in_place",
        says="Receives the state into the model: if that is interrupted, half a state is left.",
        fails={"second death": "rank 0 takes step 1 with the parameters of step 2, not of step 1"},
        changes={
            "import numpy as np": "",
            """
            state = np.concatenate([worker.parameters, worker.momentum])
            comm.broadcast(state, steps.index(newest))
            worker.parameters[:], worker.momentum[:] = np.split(state, 2)
            """: """
            comm.broadcast(worker.parameters, steps.index(newest))
            comm.broadcast(worker.momentum, steps.index(newest))
            """,
        },
    ),
    Mutant(
        name="recovers_only_once",
        says="Handles one death: another one during the catch-up ends it.",
        fails={
            "second death": "the death is not survived: PeerLost: found rank 0 dead, in all_gather",
            "two kills": "the death is not survived: PeerLost: found rank 3 dead, in all_gather",
        },
        changes={
            """
            def train(comm, worker, steps):
                while comm:
                    try:
                        catch_up(comm, worker)
                        while worker.step < steps:
                            worker.begun = worker.step, worker.random.getstate()
                            worker.compute(divide(worker.batch(), comm.rank, comm.size))
                            comm.all_reduce(worker.gradient)
                            worker.update()
                        done = True
                    except PeerLost:
                        done = False
                    comm = recover(comm, done)
            """: """
            def train(comm, worker, steps):
                try:
                    take_steps(comm, worker, steps)
                    done = True
                except PeerLost:
                    done = False
                left = recover(comm, done)
                if left:
                    catch_up(left, worker)
                    take_steps(left, worker, steps)
                    recover(left, True)


            def take_steps(comm, worker, steps):
                while worker.step < steps:
                    worker.begun = worker.step, worker.random.getstate()
                    worker.compute(divide(worker.batch(), comm.rank, comm.size))
                    comm.all_reduce(worker.gradient)
                    worker.update()
            """,
        },
    ),
    Mutant(
        name="remainder_to_the_last",
        says="Gives the last rank the whole remainder.",
        fails={"divide": "the lengths differ by more than one"},
        changes={
            "return samples[rank::size]": """
            share = len(samples) // size
            return samples[rank * share : (rank + 1) * share if rank < size - 1 else None]
            """,
        },
    ),
    Mutant(
        name="remembers_in_a_global_variable",
        says="Keeps the random numbers of the step in a global variable, which belongs to no worker.",
        fails={
            "random numbers": "takes step 0 with other random numbers than before",
            "one kill": "takes step 0 with other random numbers than before",
            "two kills": "takes step 0 with other random numbers than before",
        },
        changes={
            "def divide(samples, rank, size):": """
            BEGUN = None, None


            def divide(samples, rank, size):
            """,
            'begun, random = getattr(worker, "begun", (None, None))': "begun, random = BEGUN",
            "worker.begun = worker.step, worker.random.getstate()": """
            global BEGUN
            BEGUN = worker.step, worker.random.getstate()
            """,
        },
    ),
    Mutant(
        name="revokes_what_is_whole",
        says="Revokes the communicator even when its work is done and no rank has died.",
        fails={"no death": "a communicator is revoked although no rank has died"},
        changes={
            """
            if not done:
                comm.revoke()
            """: "comm.revoke()",
        },
    ),
]

SENTENCES: Sentences = {
    "divide": {
        "Return the part of `samples`": ["ranks_of_the_first_communicator"],
        "Each sample is in exactly one rank's part": ["leaves_out_the_remainder"],
        "differ by one sample at most": ["remainder_to_the_last"],
        "Some parts are empty": "says what is allowed",
    },
    "recover": {
        "Agree with all living ranks": ["does_not_revoke"],
        "Every rank calls it, whether or not": ["revokes_what_is_whole"],
        "done: whether this rank has finished": ["leaves_when_it_is_done"],
        "None, on all ranks, if all are done": ["leaves_when_it_is_done"],
    },
    "catch_up": {
        "Bring all workers to the same step": ["goes_on_from_its_own_step"],
        "with the same parameters": ["forgets_the_state"],
        "the same momentum": ["forgets_the_momentum"],
        "no step that any worker has completed is repeated": ["goes_back_to_the_slowest"],
        "A worker that is behind receives the state": ["forgets_the_state", "always_sends_the_state"],
        "with a zero gradient": ["keeps_the_gradient"],
        "with the random numbers that it had before": ["draws_new_random_numbers", "always_rewinds"],
        "the call raises `PeerLost`": ["recovers_only_once"],
        "either its old state or the new one": ["receives_in_place"],
    },
    "train": {
        "however many workers die meanwhile": ["recovers_only_once"],
        "of its own part of `worker.batch()`": ["drops_the_dead_ones_samples"],
        "Do not keep state in global variables": ["remembers_in_a_global_variable"],
        "comm: the communicator of all ranks at the start": ["ranks_of_the_first_communicator"],
    },
}
