"""DualPipe: micro-batches enter at both ends of the pipeline and meet, through two copies of every stage.

Stage s of p holds the pieces s and p − 1 − s of the model: half of the micro-batches go from the first stage to the
last one, the other half from the last to the first. While a stage would wait for those of one direction it computes for
the other. In the middle of the schedule a forward pass of one direction is beside a backward pass of the other:

    nearer end's micro-batches forward, until those of the other end arrive; then both forward
    the other's inputs, parameters and next forward pass
    forward near, backward far, forward far, backward near    for as long as there are micro-batches
    backward far, forward far, backward near; then backward only, the last passes in two halves
    parameters' gradients, between the last inputs' gradients and after them

    idle  = (p/2 − 1)·F    with F = B = W    1F1B: (p − 1)·3F
    stash = p + 1          micro-batches held at most, on every stage; and two pieces of 1/p of the model

with F forward, B backward for the inputs, W for the parameters. The paper has (p/2 − 1)(F&B + B' − 3W) with B' = B + W
and F&B the time of a forward and a backward pass that *overlap*: on a GPU one computes while the other communicates
(the all-to-alls of its experts), and both end together. The checker counts exactly that, 2(p/2 − 1)·F for equal times
and F&B = F + B', if the results of such a pair are sent when both are done. Here a rank computes one pass after the
other and sends each result at once, so the other stages wait half as long; what DualPipe hides, communication inside a
pass, these models do not have.

Cost: twice the parameters, gradients and optimizer states; before each update the two ranks that hold the same pieces
add up their gradients (2/p of the model, sent and received once). The number of stages is even, and so is that of
micro-batches, at least 2p. Source: DeepSeek-AI, "DeepSeek-V3 technical report", 2024; after the bidirectional pipelines
of Li & Hoefler, "Chimera: efficiently training large-scale neural networks with bidirectional pipelines", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.errors import UsageError
from farandole.model_parallel.placement import Bidirectional
from farandole.model_parallel.schedules.phases import WEIGHTS, Phases, in_phases
from farandole.model_parallel.steps import Backward, BackwardInput, Computation, Forward, Schedule


def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
    if stages % 2:
        raise UsageError(f"dualpipe takes an even number of stages, as {stages + 1}, not {stages}")
    if micro_batches % 2 or micro_batches < 2 * stages:
        fit = max(2 * stages, micro_batches + micro_batches % 2)
        raise UsageError(
            f"dualpipe takes an even number of micro-batches, at least 2 for each stage: with {stages} stages {fit}, "
            f"not {micro_batches}"
        )
    half = micro_batches // 2
    outside = min(stage, stages - 1 - stage)  # stages from this one to the nearer end
    inside = stages // 2 - 1 - outside  # stages from this one to the middle
    near, far = (0, 1) if stage < stages // 2 else (1, 0)  # the chunks, by the end at which their micro-batches enter
    both_backward = [(Backward, far), (Backward, near)] * (outside + 1)
    in_halves = [(BackwardInput, chunk) for _, chunk in both_backward[outside + 1 :]]
    phases: Phases = [
        (2 * inside, [(Forward, near)]),
        (outside + 1, [(Forward, near), (Forward, far)]),
        (inside, [(BackwardInput, far), WEIGHTS, (Forward, far)]),
        (half - stages + outside + 1, [(Forward, near), (Backward, far), (Forward, far), (Backward, near)]),
        (inside, [(Backward, far), (Forward, far), (Backward, near)]),
        (1, [*both_backward[: outside + 1], *in_halves]),
        (inside, [WEIGHTS, (BackwardInput, near)]),
        (outside + 1, [WEIGHTS]),
    ]
    return in_phases(phases, [range(half), range(half, micro_batches)])


DUALPIPE = Schedule("dualpipe", computations, Bidirectional(2), halves=True)
