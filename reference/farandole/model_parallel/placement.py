"""Placement: which pieces of a model the stages of a pipeline hold, and which way a micro-batch takes through them.

The pieces are numbered along the model as *virtual stages*; those of one stage are its *chunks*. With 3 stages:

    loop, 1 chunk     stage 0: 0       stage 1: 1       stage 2: 2
    loop, 2 chunks    stage 0: 0, 3    stage 1: 1, 4    stage 2: 2, 5
    V                 stage 0: 0, 5    stage 1: 1, 4    stage 2: 2, 3
    bidirectional     stage 0: 0, 2    stage 1: 1, 1    stage 2: 2, 0

A loop's micro-batches go from the last stage back to the first one. In a V they turn round, so the first stage holds
both ends of the model. Bidirectional are two copies of the model: a micro-batch goes through the first chunks, from the
first stage to the last, or through the second ones, from the last to the first. Sources: Narayanan et al., "Efficient
large-scale language model training on GPU clusters using Megatron-LM", 2021 (loop); Qi et al., "Zero bubble pipeline
parallelism", 2023 (V); Li & Hoefler, "Chimera: efficiently training large-scale neural networks with bidirectional
pipelines", 2021.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """A loop.

    Attributes:
        chunks: pieces of the model on each stage.
    """

    chunks: int = 1

    @property
    def routes(self) -> list[range]:
        """Return each way through the model, as the chunks that a micro-batch goes through on every stage."""
        return [range(self.chunks)]

    @property
    def passes(self) -> int:
        """Return through how many chunks of a stage a micro-batch goes."""
        return len(self.routes[0])

    def pieces(self, stages: int) -> int:
        """Return into how many virtual stages the model is cut."""
        return self.passes * stages

    def virtual_stage(self, stage: int, chunk: int, stages: int) -> int:
        """Return which piece of the model a stage's chunk is."""
        return chunk * stages + stage

    def holder(self, virtual_stage: int, chunk: int, stages: int) -> int:
        """Return the stage to which a micro-batch goes for a virtual stage.

        Args:
            chunk: one of the chunks that it goes through, on any stage.
        """
        return virtual_stage % stages

    def stages_with(self, virtual_stage: int, stages: int) -> list[int]:
        """Return the stages that hold a virtual stage."""
        chunks = range(self.chunks)
        return [
            stage
            for stage in range(stages)
            if any(self.virtual_stage(stage, chunk, stages) == virtual_stage for chunk in chunks)
        ]


class VShape(Placement):
    """A V: every other chunk is numbered from the last stage to the first one."""

    def virtual_stage(self, stage: int, chunk: int, stages: int) -> int:
        return chunk * stages + (stages - 1 - stage if chunk % 2 else stage)

    def holder(self, virtual_stage: int, chunk: int, stages: int) -> int:
        lap, place = divmod(virtual_stage, stages)
        return stages - 1 - place if lap % 2 else place


class Bidirectional(Placement):
    """Two copies of the model, in opposite directions; with an even number of stages each holds two pieces."""

    @property
    def routes(self) -> list[range]:
        return [range(1), range(1, 2)]

    def virtual_stage(self, stage: int, chunk: int, stages: int) -> int:
        return stages - 1 - stage if chunk else stage

    def holder(self, virtual_stage: int, chunk: int, stages: int) -> int:
        return stages - 1 - virtual_stage if chunk else virtual_stage


ONE_PIECE = Placement()
