"""Known wrong answers of lab 7, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
import math


class StaleSynchronous:
    def __init__(self, workers, staleness):
        self.staleness = staleness
        self.clocks = dict.fromkeys(workers, 0)
        self.begun = dict(self.clocks)
        self.held = []

    def may_start(self, worker):
        return self.clocks[worker] - min(self.clocks.values()) <= self.staleness

    def started(self, worker):
        self.begun[worker] += 1
        return self.release()

    def push(self, worker, clock):
        self.clocks[worker] += 1
        self.held.append((worker, clock))
        return self.release()

    def leave(self, worker):
        del self.clocks[worker], self.begun[worker]
        return self.release()

    def release(self):
        begun = min(self.begun.values(), default=math.inf)
        now = [(worker, clock) for worker, clock in self.held if clock - self.staleness < begun]
        self.held = [gradient for gradient in self.held if gradient not in now]
        return now
"""

MUTANTS = [
    Mutant(
        name="applies_everything_at_once",
        says="Applies each gradient when it arrives: a slower worker then reads some that are too new.",
        fails={
            "reads": "that is to be held until worker",
            "staleness zero": "which mini-batch SGD has not applied yet",
            "real ranks": "too early or too late",
        },
        changes={
            "import math": "",
            """
            self.begun = dict(self.clocks)
            self.held = []
            """: "",
            """
            self.begun[worker] += 1
            return self.release()
            """: "return []",
            """
            self.held.append((worker, clock))
            return self.release()
            """: "return [(worker, clock)]",
            """
            def leave(self, worker):
                del self.clocks[worker], self.begun[worker]
                return self.release()

            def release(self):
                begun = min(self.begun.values(), default=math.inf)
                now = [(worker, clock) for worker, clock in self.held if clock - self.staleness < begun]
                self.held = [gradient for gradient in self.held if gradient not in now]
                return now
            """: """
            def leave(self, worker):
                del self.clocks[worker]
                return []
            """,
        },
    ),
    Mutant(
        name="applies_held_gradients_again",
        says="Leaves gradients in the list of those that are held when it has applied them.",
        fails={"every gradient once": "times: by", "real ranks": "applied twice?"},
        changes={
            """
            now = [(worker, clock) for worker, clock in self.held if clock - self.staleness < begun]
            self.held = [gradient for gradient in self.held if gradient not in now]
            return now
            """: "return [(worker, clock) for worker, clock in self.held if clock - self.staleness < begun]",
        },
    ),
    Mutant(
        name="counts_a_start_when_asked",
        says="Counts an iteration as begun when it allows it: called twice, it counts two.",
        fails={
            "bound": "if may_start was called twice before each start",
            "reads": "must have been applied by then",
            "staleness zero": "which mini-batch SGD has not applied yet",
            "leaving": "must be held no longer",
            "real ranks": "too early or too late",
        },
        changes={
            "return self.clocks[worker] - min(self.clocks.values()) <= self.staleness": """
            allowed = self.clocks[worker] - min(self.clocks.values()) <= self.staleness
            self.begun[worker] += allowed
            return allowed
            """,
            """
            self.begun[worker] += 1
            return self.release()
            """: "return self.release()",
        },
    ),
    Mutant(
        name="counts_an_iteration_when_asked",
        says="Counts an iteration as completed when it allows it: asked again, the worker is one further.",
        fails={
            "bound": "called twice in a row, may_start(0) returns [True, False]",
            "liveness": "although no worker is slower",
            "staleness zero": "may start iteration 1 before worker",
            "leaving": "still has to wait",
            "real ranks": "too early or too late",
        },
        changes={
            "return self.clocks[worker] - min(self.clocks.values()) <= self.staleness": """
            allowed = self.clocks[worker] - min(self.clocks.values()) <= self.staleness
            self.clocks[worker] += allowed
            return allowed
            """,
            """
            self.clocks[worker] += 1
            self.held.append((worker, clock))
            """: "self.held.append((worker, clock))",
        },
    ),
    Mutant(
        name="counts_what_has_only_begun",
        says="Counts an iteration as completed when the slowest worker has begun it.",
        fails={
            "bound": "ahead",
            "staleness zero": "may start iteration 1 before worker",
            "real ranks": "too early or too late",
        },
        changes={
            "return self.clocks[worker] - min(self.clocks.values()) <= self.staleness": """
            return self.clocks[worker] - min(self.begun.values()) <= self.staleness
            """,
        },
    ),
    Mutant(
        name="counts_what_is_completed",
        says="Holds a gradient of iteration c until every worker has completed iteration c − s, where begun is enough.",
        fails={"reads": "must be held no longer", "leaving": "must be held no longer"},
        changes={
            "begun = min(self.begun.values(), default=math.inf)": """
            begun = min(self.clocks.values(), default=math.inf)
            """,
        },
    ),
    Mutant(
        name="discards_what_a_leaver_has_pushed",
        says="Discards the held gradients of a worker that leaves.",
        fails={"leaving": "pushed it and then left: what it has pushed still counts", "real ranks": "is one lost"},
        changes={
            "del self.clocks[worker], self.begun[worker]": """
            del self.clocks[worker], self.begun[worker]
            self.held = [gradient for gradient in self.held if gradient[0] != worker]
            """,
        },
    ),
    Mutant(
        name="drops_what_is_early",
        says="Applies what may be applied now, and forgets the rest instead of holding it.",
        fails={
            "every gradient once": "has never been applied",
            "reads": "without worker",
            "staleness zero": "without worker",
            "leaving": "has never been applied",
            "real ranks": "is one lost",
        },
        changes={"self.held = [gradient for gradient in self.held if gradient not in now]": "self.held = []"},
    ),
    Mutant(
        name="fails_when_none_is_left",
        says="Looks for the slowest worker when the last one has left, and there is none.",
        fails=dict.fromkeys(("every gradient once", "leaving", "real ranks"), "ValueError: min()"),
        changes={"begun = min(self.begun.values(), default=math.inf)": "begun = min(self.begun.values())"},
    ),
    Mutant(
        name="forgets_that_a_worker_left",
        says="Keeps the clock of a worker that has left: sooner or later all wait for it.",
        fails={"leaving": "still has to wait", "real ranks": "all workers wait for ever"},
        changes={
            """
            del self.clocks[worker], self.begun[worker]
            return self.release()
            """: "return []",
        },
    ),
    Mutant(
        name="holds_one_iteration_too_long",
        says="Applies a gradient of iteration c only when every worker has begun c − s + 1.",
        fails={
            "reads": "must have been applied by then",
            "staleness zero": "without worker",
            "leaving": "must be held no longer",
            "real ranks": "too early or too late",
        },
        changes={
            "now = [(worker, clock) for worker, clock in self.held if clock - self.staleness < begun]": """
            now = [(worker, clock) for worker, clock in self.held if clock - self.staleness + 1 < begun]
            """,
        },
    ),
    Mutant(
        name="holds_the_first_ones",
        says="Holds the gradients of the first s iterations, too, until every worker has begun.",
        fails=dict.fromkeys(("reads", "leaving"), "it is of the first s, so it must be held no longer"),
        changes={"if clock - self.staleness < begun": "if max(clock - self.staleness, 0) < begun"},
    ),
    Mutant(
        name="iteration_before_the_worker",
        says="Returns pairs of the iteration and the worker.",
        fails=dict.fromkeys(
            ("bound", "liveness", "every gradient once", "reads", "staleness zero", "leaving", "real ranks"),
            "which has not been pushed: a gradient is the pair (worker, clock)",
        ),
        changes={"return now": "return [(clock, worker) for worker, clock in now]"},
    ),
    Mutant(
        name="measures_from_the_fastest",
        says="Compares with the fastest worker instead of the slowest: stops those that are behind.",
        fails={
            "bound": "may start after 1 iteration, while worker",
            "liveness": "although no worker is slower",
            "staleness zero": "may start iteration 1 before worker",
            "leaving": "still has to wait",
            "real ranks": "too early or too late",
        },
        changes={
            "return self.clocks[worker] - min(self.clocks.values()) <= self.staleness": """
            return max(self.clocks.values()) - self.clocks[worker] <= self.staleness
            """,
        },
    ),
    Mutant(
        name="numbers_as_places",
        says="Assumes that the workers are numbered 0, 1, 2, and so on.",
        fails=dict.fromkeys(
            ("bound", "liveness", "every gradient once", "reads", "leaving", "real ranks"), "KeyError: "
        ),
        changes={"dict.fromkeys(workers, 0)": "dict.fromkeys(range(len(workers)), 0)"},
    ),
    Mutant(
        name="one_too_far",
        says="Lets a worker be s + 1 ahead at a start: s counted after the iteration, not before it.",
        fails={
            "bound": "it is 1 ahead",
            "staleness zero": "may start iteration 1 before worker",
            "real ranks": "too early or too late",
        },
        changes={
            "return self.clocks[worker] - min(self.clocks.values()) <= self.staleness": """
            return self.clocks[worker] - min(self.clocks.values()) <= self.staleness + 1
            """,
        },
    ),
    Mutant(
        name="one_too_few",
        says="Stops a worker that is exactly s ahead; with s = 0 no worker ever starts.",
        fails={
            "liveness": "all workers wait for ever",
            "staleness zero": "although no worker is slower",
            "real ranks": "all workers wait for ever",
        },
        changes={
            "return self.clocks[worker] - min(self.clocks.values()) <= self.staleness": """
            return self.clocks[worker] - min(self.clocks.values()) < self.staleness
            """,
        },
    ),
    Mutant(
        name="releases_nothing_at_a_leave",
        says="Forgets that held gradients can become due when a worker leaves.",
        fails={"leaving": "has never been applied. It was due at leave(5), which returned nothing"},
        changes={
            """
            del self.clocks[worker], self.begun[worker]
            return self.release()
            """: """
            del self.clocks[worker], self.begun[worker]
            return []
            """,
        },
    ),
    Mutant(
        name="releases_one_iteration_early",
        says="Applies a gradient of iteration c when every worker has begun c − s − 1.",
        fails={
            "reads": "that is to be held until worker",
            "staleness zero": "which mini-batch SGD has not applied yet",
            "real ranks": "too early or too late",
        },
        changes={
            "now = [(worker, clock) for worker, clock in self.held if clock - self.staleness < begun]": """
            now = [(worker, clock) for worker, clock in self.held if clock - self.staleness <= begun]
            """,
        },
    ),
    Mutant(
        name="removes_while_it_iterates",
        says="Removes gradients from the list over which it iterates: after each one that is due it skips another.",
        fails={
            "reads": "which was applied: is it skipped?",
            "staleness zero": "which was applied: is it skipped?",
            "leaving": "must be held no longer",
        },
        changes={
            """
            now = [(worker, clock) for worker, clock in self.held if clock - self.staleness < begun]
            self.held = [gradient for gradient in self.held if gradient not in now]
            return now
            """: """
            now = []
            for gradient in self.held:
                if gradient[1] - self.staleness < begun:
                    now.append(gradient)
                    self.held.remove(gradient)
            return now
            """,
        },
    ),
    Mutant(
        name="waits_for_the_next_call_at_a_leave",
        says=(
            "Applies nothing at a leave while other workers remain: what "
            "has become due waits for the next push or start."
        ),
        fails={"leaving": "must be held no longer"},
        changes={
            """
            del self.clocks[worker], self.begun[worker]
            return self.release()
            """: """
            del self.clocks[worker], self.begun[worker]
            return [] if self.clocks else self.release()
            """,
        },
    ),
    Mutant(
        name="waits_until_all_are_level",
        says="Holds a worker that has reached the bound until the slowest has caught up with it completely.",
        fails={"liveness": "it is only 1 ahead"},
        changes={
            "self.held = []": """
            self.held = []
            self.stopped = set()
            """,
            "return self.clocks[worker] - min(self.clocks.values()) <= self.staleness": """
            lead = self.clocks[worker] - min(self.clocks.values())
            if lead > self.staleness:
                self.stopped.add(worker)
            elif lead == 0:
                self.stopped.discard(worker)
            return worker not in self.stopped
            """,
        },
    ),
]

SENTENCES: Sentences = {
    "comments": {"the worker's number, and the number of the iteration": ["iteration_before_the_worker"]},
    "StaleSynchronous": {
        "The rules of a parameter server": "names what the class is",
        "the number of iterations it has completed": ["counts_what_has_only_begun"],
        "So iteration c takes it": "follows from the sentence before",
        "The server calls these methods": "says what the caller keeps to",
        "may_start (repeated until": ["counts_a_start_when_asked"],
        "A worker may leave at any time": ["forgets_that_a_worker_left"],
        "exactly once": ["applies_held_gradients_again", "drops_what_is_early"],
    },
    "StaleSynchronous.__init__": {
        "not necessarily 0, 1, 2": ["numbers_as_places"],
        "staleness: the bound s, 0 or more": ["one_too_few"],
    },
    "StaleSynchronous.may_start": {
        "Return whether `worker` may start": ["measures_from_the_fastest"],
        "exceeds the smallest clock": ["waits_until_all_are_level"],
        "of all present workers": ["forgets_that_a_worker_left"],
        "by at most s": ["one_too_far"],
        "This call changes no state": ["counts_an_iteration_when_asked"],
    },
    "StaleSynchronous.started": {
        "begins its next iteration": ["counts_what_is_completed"],
        "The gradients to apply now": ["removes_while_it_iterates"],
        "as soon as every present worker": ["holds_one_iteration_too_long", "releases_one_iteration_early"],
        "and at once if c < s": ["holds_the_first_ones"],
        "The parameters that `worker` has just read": "says what the server does",
    },
    "StaleSynchronous.push": {
        "Record that `worker` has completed iteration": ["counts_an_iteration_when_asked"],
        "by the same rule": ["applies_everything_at_once"],
        "held back and applied later": ["drops_what_is_early"],
    },
    "StaleSynchronous.leave": {
        "no worker waits for it": ["forgets_that_a_worker_left"],
        "are still applied": ["discards_what_a_leaver_has_pushed"],
        "by the same rule": ["waits_for_the_next_call_at_a_leave"],
        "When the last worker leaves": ["fails_when_none_is_left", "releases_nothing_at_a_leave"],
    },
}
