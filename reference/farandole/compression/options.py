"""The options of compression."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from farandole.compression.table import COMPRESSORS, FEEDBACK, MEANT_FOR
from farandole.errors import UsageError
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import AtLeastOne, NotNegative, Part, Positive, Probability, whole

if TYPE_CHECKING:
    Name = str
else:
    Name = one_of(COMPRESSORS)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RoundingOptions:
    """The precision to which entries are rounded."""

    levels: Annotated[int, whole(gte=1, lte=32767)] = 7
    """qsgd: number of levels of the norm to which each magnitude is rounded; 7 need 4 bits with the sign."""

    bucket: AtLeastOne = 512
    """qsgd, terngrad: number of entries that share a scale."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EncodingOptions(RoundingOptions):
    """The number of entries that are sent."""

    fraction: Part = 0.01
    """top-k, random-k, dgc: the part of the entries that is sent in a step."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CompressionOptions(EncodingOptions):
    """The encoding of gradients."""

    compressor: Name = "top-k"
    """The encoding of the gradients; none: they are sent as they are."""

    matrix_rank: AtLeastOne = 2
    """powersgd: the rank of the approximation of each matrix."""

    feedback: bool | None = None
    """Add what was lost to the next gradient; terngrad, and qsgd with few levels, are then scaled down so that the
    residual stays bounded. [default: with sign, top-k, random-k and powersgd]"""

    dgc_momentum: Probability = 0.9
    """dgc: the momentum, which replaces the optimizer's."""

    sparsity_warm_up: NotNegative = 0
    """dgc: number of steps in which the part that is sent falls from near 1 to --fraction."""

    clip: Positive | None = None
    """dgc: scale each rank's gradient down to this length over the root of the number of ranks, if it is longer."""

    terngrad_clip: Positive | None = None
    """terngrad: first clip entries at this many standard deviations of their bucket; the paper uses 2.5."""

    share_scales: Annotated[bool, Parameter(negative="")] = False
    """terngrad: the ranks first exchange their scales, and all of them use the largest."""

    @property
    def with_feedback(self) -> bool:
        return self.compressor in FEEDBACK if self.feedback is None else self.feedback


def check(options: CompressionOptions, optimizer: str) -> None:
    """
    Raises:
        UsageError: the options do not go together.
    """
    name = options.compressor
    check_meaning(options, name)
    if name == "none" and options.feedback is not None:
        raise UsageError("--compressor none loses nothing: leave out --feedback and --no-feedback")
    if name == "majority-vote" and options.feedback is not None:
        raise UsageError("--compressor majority-vote has no residual: leave out --feedback and --no-feedback")
    if options.share_scales and options.feedback:
        raise UsageError("--share-scales does not go with --feedback: the scales are those of the gradient alone")
    if name == "dgc" and optimizer != "sgd":
        raise UsageError(
            f"--compressor dgc holds the momentum itself, so not with --optimizer {optimizer}: leave it sgd"
        )
    if name == "dgc" and options.feedback is not None:
        raise UsageError("--compressor dgc keeps what it does not send, always: leave out --feedback and --no-feedback")


def check_meaning(options: RoundingOptions, name: Name, offered: Collection[str] = tuple(COMPRESSORS)) -> None:
    """Refuse options that say nothing to the compressor chosen.

    Args:
        offered: the names that could have been chosen.

    Raises:
        UsageError: there is one.
    """
    for field in fields(options):
        meant = MEANT_FOR.get(field.name, (name,))
        if name not in meant and getattr(options, field.name) != field.default:
            option, others = field.name.replace("_", "-"), [other for other in meant if other in offered]
            raise UsageError(f"--{option} is for --compressor {' or '.join(others)}, not for {name}: leave it out")


def error_below_one(levels: int, bucket: int) -> bool:
    """Return whether QSGD's bound on the relative squared error is below 1, as CHOCO-SGD needs it."""
    return levels**2 > bucket  # the same as min(d/s², √d/s) < 1
