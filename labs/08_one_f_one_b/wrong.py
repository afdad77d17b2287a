"""Known wrong answers of lab 8, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
from farandole.model_parallel.steps import Backward, Forward, Update


def computations(stage, stages, micro_batches):
    warm_up = min(stages - stage - 1, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
    for micro_batch in range(micro_batches - warm_up, micro_batches):
        yield Backward(micro_batch)
    yield Update()
"""

MUTANTS = [
    Mutant(
        name="backward_before_forward",
        says="Begins each repetition with the backward pass: at the last stage before any forward pass.",
        fails=dict.fromkeys(
            ("order", "bubble", "few micro batches", "real ranks"),
            "micro-batch 0 backward before it has taken it forward",
        ),
        changes={
            "yield Forward(warm_up + micro_batch)": """
            yield Backward(micro_batch)
            yield Forward(warm_up + micro_batch)
            """,
            """
            yield Forward(warm_up + micro_batch)
            yield Backward(micro_batch)
            """: "yield Forward(warm_up + micro_batch)",
        },
    ),
    Mutant(
        name="cools_down_backwards",
        says="Runs the remaining backward passes in the opposite order.",
        fails={
            "bubble": "stage 0 ends with Backward(1) at 17, and could at 15",
            "few micro batches": "do the micro-batches go backward in the order",
        },
        changes={
            "for micro_batch in range(micro_batches - warm_up, micro_batches):": """
            for micro_batch in reversed(range(micro_batches - warm_up, micro_batches)):
            """,
        },
    ),
    Mutant(
        name="counts_from_the_wrong_end",
        says="Lets the last stage begin with the longest warm-up, and the first with none.",
        fails={
            "order": (
                "deadlock: stage 0 waits for the gradient of micro-batch 0 from stage 1; stage 1 waits for the outputs"
            ),
            "memory": "stage 1 holds 2 micro-batches",
            "bubble": "deadlock",
            "few micro batches": "stage 2 holds 2 micro-batches",
            "real ranks": "deadlock",
        },
        changes={"warm_up = min(stages - stage - 1, micro_batches)": "warm_up = min(stage, micro_batches)"},
    ),
    Mutant(
        name="expects_enough_micro_batches",
        says="Warms up with micro-batches that do not exist when there are fewer than stages.",
        fails={"few micro batches": "micro-batch is 0: is the warm-up longer than there are micro-batches?"},
        changes={"warm_up = min(stages - stage - 1, micro_batches)": "warm_up = stages - stage - 1"},
    ),
    Mutant(
        name="forgets_the_cool_down",
        says="Ends with the steady state: the warm-up's micro-batches never go backward.",
        fails={
            "complete": "stage 0 never takes micro-batch 1 backward",
            "order": "stage 0 never takes micro-batch 1 backward",
            "bubble": "stage 0 never takes micro-batch 1 backward",
            "few micro batches": "stage 0 never takes micro-batch 0 backward",
            "real ranks": "stage 0 never takes micro-batch 1 backward",
        },
        changes={
            """
            for micro_batch in range(micro_batches - warm_up, micro_batches):
                yield Backward(micro_batch)
            """: "",
        },
    ),
    Mutant(
        name="never_updates",
        says="Computes all gradients and does nothing with them.",
        fails={
            "one update": "never updates its parameters",
            "few micro batches": "never updates its parameters",
            "real ranks": "the weights that it began with",
        },
        changes={
            "from farandole.model_parallel.steps import Backward, Forward, Update": """
            from farandole.model_parallel.steps import Backward, Forward
            """,
            """
            for micro_batch in range(micro_batches - warm_up):
                yield Forward(warm_up + micro_batch)
            """: """
            for micro_batch in range(micro_batches):
                if warm_up + micro_batch < micro_batches:
                    yield Forward(warm_up + micro_batch)
            """,
            """
            for micro_batch in range(micro_batches - warm_up, micro_batches):
                yield Backward(micro_batch)
            yield Update()
            """: "",
        },
    ),
    Mutant(
        name="one_at_a_time",
        says="Runs each micro-batch forward and at once backward, so one stage works and the others wait.",
        fails={
            "bubble": "the stages are idle for 50.0% of the total time",
            "few micro batches": "the last stage waits from 5 to 11 for Forward(1)",
        },
        changes={
            """
            warm_up = min(stages - stage - 1, micro_batches)
            for micro_batch in range(warm_up):
            """: "for micro_batch in range(micro_batches):",
            """
            for micro_batch in range(micro_batches - warm_up):
                yield Forward(warm_up + micro_batch)
                yield Backward(micro_batch)
            for micro_batch in range(micro_batches - warm_up, micro_batches):
            """: "",
        },
    ),
    Mutant(
        name="order_of_gpipe",
        says=(
            "Runs all forward passes first, as GPipe does: right, and as fast, but every stage holds all micro-batches."
        ),
        fails={
            "memory": "with Forward(1) stage 0 holds 2 micro-batches",
            "few micro batches": "with Forward(1) stage 2 holds 2 micro-batches",
        },
        changes={
            """
            warm_up = min(stages - stage - 1, micro_batches)
            for micro_batch in range(warm_up):
            """: "for micro_batch in range(micro_batches):",
            """
            for micro_batch in range(micro_batches - warm_up):
                yield Forward(warm_up + micro_batch)
                yield Backward(micro_batch)
            for micro_batch in range(micro_batches - warm_up, micro_batches):
            """: "for micro_batch in range(micro_batches):",
        },
    ),
    Mutant(
        name="same_warm_up_everywhere",
        says="Gives every stage the warm-up of the first.",
        fails={
            "memory": "with Forward(1) stage 1 holds 2 micro-batches",
            "bubble": "is every stage's warm-up as long as it should be?",
            "few micro batches": "with Forward(1) stage 2 holds 2 micro-batches",
        },
        changes={"warm_up = min(stages - stage - 1, micro_batches)": "warm_up = min(stages - 1, micro_batches)"},
    ),
    Mutant(
        name="sends_by_itself",
        says="Yields a message after each pass, although a pass sends its own result.",
        fails=dict.fromkeys(
            ("complete", "order", "memory", "bubble", "one update", "few micro batches", "real ranks"),
            "where Forward(k), Backward(k) or Update() is needed",
        ),
        changes={
            "from farandole.model_parallel.steps import Backward, Forward, Update": """
            from farandole.model_parallel.steps import Backward, Forward, SendActivation, Update
            """,
            "yield Forward(micro_batch)": """
            yield Forward(micro_batch)
            yield SendActivation(micro_batch, stage + 1, stage + 1)
            """,
        },
    ),
    Mutant(
        name="takes_the_newest_back",
        says="Runs the backward pass of the newest micro-batch, instead of the oldest.",
        fails={
            "bubble": "stage 0 ends with Backward(0) at 11, and could at 9",
            "few micro batches": "stage 1 ends with Backward(0) at 12",
        },
        changes={
            """
            for micro_batch in range(micro_batches - warm_up):
                yield Forward(warm_up + micro_batch)
            """: """
            for micro_batch in range(warm_up, micro_batches):
                yield Forward(micro_batch)
            """,
            "for micro_batch in range(micro_batches - warm_up, micro_batches):": """
            for micro_batch in range(warm_up):
            """,
        },
    ),
    Mutant(
        name="updates_after_every_backward_pass",
        says="Updates after every backward pass, as PipeDream does, which keeps old parameters for that.",
        fails={
            "one update": "stage 0 updates its parameters before Backward(1)",
            "few micro batches": "stage 0 updates its parameters before Backward(1)",
            "real ranks": "does it update once?",
        },
        changes={
            ORIGINAL: """
            from farandole.model_parallel.steps import Backward, Forward, Update



            def computations(stage, stages, micro_batches):
                warm_up = min(stages - stage - 1, micro_batches)
                for micro_batch in range(warm_up):
                    yield Forward(micro_batch)
                for micro_batch in range(micro_batches):
                    if warm_up + micro_batch < micro_batches:
                        yield Forward(warm_up + micro_batch)
                    yield Backward(micro_batch)
                    yield Update()
            """,
        },
    ),
    Mutant(
        name="updates_before_the_cool_down",
        says="Updates after the steady state, before the cool-down has computed the last gradients.",
        fails={
            "one update": "stage 0 updates its parameters before Backward(1)",
            "few micro batches": "stage 0 updates its parameters before Backward(0)",
            "real ranks": "is every gradient there when it updates",
        },
        changes={
            "for micro_batch in range(micro_batches - warm_up, micro_batches):": """
            yield Update()
            for micro_batch in range(micro_batches - warm_up, micro_batches):
            """,
            """
            for micro_batch in range(micro_batches - warm_up, micro_batches):
                yield Backward(micro_batch)
            yield Update()
            """: """
            for micro_batch in range(micro_batches - warm_up, micro_batches):
                yield Backward(micro_batch)
            """,
        },
    ),
    Mutant(
        name="warm_up_one_too_long",
        says="Warms up with stages − stage forward passes, one too many before the steady state.",
        fails={
            "memory": "where stages − stage = 1 will do: should Backward(0) not come first?",
            "few micro batches": "where stages − stage = 1 will do",
        },
        changes={"warm_up = min(stages - stage - 1, micro_batches)": "warm_up = min(stages - stage, micro_batches)"},
    ),
    Mutant(
        name="warm_up_one_too_short",
        says="Warms up with one forward pass too few: the stages behind have to wait.",
        fails={
            "bubble": "It waits for stage 0's outputs: does stage 0 warm up long enough?",
            "few micro batches": "the last stage waits from 5 to 8 for Forward(1)",
        },
        changes={
            "warm_up = min(stages - stage - 1, micro_batches)": """
            warm_up = min(max(stages - stage - 2, 0), micro_batches)
            """,
        },
    ),
]

SENTENCES: Sentences = {
    "computations": {
        "Yield the computations of one pipeline stage": ["forgets_the_cool_down"],
        "in order, by the schedule 1F1B": ["one_at_a_time", "takes_the_newest_back", "warm_up_one_too_short"],
        "This is a generator": "a list of the same computations is used in the same way",
        "It sends and receives nothing": ["sends_by_itself"],
        "Forward(k)": ["order_of_gpipe", "same_warm_up_everywhere"],
        "Backward(k)": ["backward_before_forward"],
        "by the gradients of all micro-batches": ["updates_before_the_cool_down", "never_updates"],
        "once, at the end": ["updates_after_every_backward_pass"],
        "0 to stages − 1": ["warm_up_one_too_long"],
        "The data enter at stage 0": ["counts_from_the_wrong_end"],
        "stages: the number of stages": "describes an argument",
        "it may be smaller than the number of stages": ["expects_enough_micro_batches"],
    },
}
