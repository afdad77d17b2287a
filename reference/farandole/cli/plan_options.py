"""The options that ``farandole memory`` and ``farandole flops`` share: the model, and how its training is divided."""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from farandole.cost.published import MODELS
from farandole.errors import UsageError
from farandole.model_parallel.options import FlushedScheduleName
from farandole.models.shape import Shape
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import AtLeastOne, Positive

if TYPE_CHECKING:
    from farandole.cost.training_plan import TrainingPlan

    ModelName = str
else:
    ModelName = one_of(MODELS)

Flag = Annotated[bool, Parameter(negative="")]
SEQUENCE, VOCABULARY, HEAD_WIDTH = 2048, 51_200, 128
SIZES = ("layers", "hidden", "heads", "sequence", "vocabulary", "untied")
PLAN = (
    *("ranks", "tensor", "pipeline", "context", "micro_batch", "batch", "schedule", "chunks", "zero"),
    *("sequence_parallel", "recompute"),
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """A model, by name, by sizes or by its number of parameters; and its division over ranks."""

    model: ModelName | None = None
    """A published model, whose sizes are known."""

    params: Positive | None = None
    """Number of parameters, as 70e9, where nothing else is known of the model."""

    layers: AtLeastOne | None = None
    """Transformer blocks."""

    hidden: AtLeastOne | None = None
    """Width of the model."""

    heads: AtLeastOne | None = None
    """Heads of attention. [default: one for 128 of the width]"""

    sequence: AtLeastOne | None = None
    """Positions of a sequence. [default: 2048]"""

    vocabulary: AtLeastOne | None = None
    """Words. [default: 51200]"""

    untied: Flag = False
    """The head does not share the embedding's matrix."""

    ranks: Annotated[AtLeastOne, Parameter(alias="-n")] = 1
    """Number of ranks: data × context × pipeline × tensor."""

    tensor: AtLeastOne = 1
    """Ranks that divide each layer."""

    pipeline: AtLeastOne = 1
    """Stages of the pipeline."""

    context: AtLeastOne = 1
    """Ranks that divide each sequence."""

    batch: AtLeastOne | None = None
    """Sequences of a step, of all ranks. [default: as many micro-batches as the pipeline has stages]"""

    micro_batch: AtLeastOne = 1
    """Sequences that pass the model together."""

    schedule: FlushedScheduleName = "1f1b"
    """Order in which the pipeline's stages work."""

    chunks: AtLeastOne = 2
    """Pieces of the model on each rank, for the interleaved schedule."""

    zero: Literal[0, 1, 2, 3] = 0
    """The state that data ranks divide. 1: the optimizer's state. 2: gradients too. 3: parameters too (FSDP)."""

    sequence_parallel: Flag = False
    """The tensor ranks divide norms and dropout by positions."""

    recompute: Literal["none", "selective", "full", "stage"] = "none"
    """The computations repeated for the backward pass: attention's square, each layer, or all layers of a stage."""

    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print only the figures, as JSON."""

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    def shape(self) -> Shape | None:
        """Return the model's sizes; None where only its number of parameters is given.

        Raises:
            UsageError: the options name no model, or more than one.
        """
        given = self.given()
        own = [name for name in SIZES if name in given]
        if self.params is not None:
            if beside := [name for name in ("model", *SIZES) if name in given]:
                raise UsageError(f"--params and --{beside[0]} both say what the model is: leave out one of them")
            return None
        if self.model is not None:
            if beside := [name for name in own if name not in ("sequence", "vocabulary")]:
                raise UsageError(f"--model {self.model} has its own sizes: leave out --{beside[0]}")
            known = MODELS[self.model]
            return replace(
                known,
                sequence=self.sequence or known.sequence,
                vocabulary=self.vocabulary or known.vocabulary,
            )
        if self.layers is None or self.hidden is None:
            raise UsageError("which model? Give --layers and --hidden, or --params as 70e9, or --model gpt3-175b")
        if self.heads is None and self.hidden % HEAD_WIDTH:
            raise UsageError(f"--hidden {self.hidden} is no multiple of {HEAD_WIDTH}: give --heads, too")
        heads = self.heads or self.hidden // HEAD_WIDTH
        if self.hidden % heads:
            raise UsageError(f"--heads {heads} does not divide --hidden {self.hidden}: give a divisor")
        return Shape(
            self.layers,
            self.hidden,
            heads,
            self.sequence or SEQUENCE,
            self.vocabulary or VOCABULARY,
            not self.untied,
        )

    def plan(self) -> "TrainingPlan":
        """Return the division of the training.

        Raises:
            UsageError: it does not fit the number of ranks, or the batch.
        """
        from farandole.cost.training_plan import TrainingPlan

        return TrainingPlan(**{name: getattr(self, name) for name in PLAN})

    def check_shape(self, *names: str) -> None:
        """Refuse options that say nothing where only the number of parameters is known.

        Raises:
            UsageError: naming one of them.
        """
        given = self.given()
        if useless := [name for name in names if name in given]:
            option = useless[0].replace("_", "-")
            raise UsageError(f"--{option} says nothing with --params alone: give --layers and --hidden in its place")

    @property
    def name(self) -> str:
        """Return what a table's title begins with."""
        return f"{self.model}: " if self.model else ""
