"""The values that numeric options accept, on the command line and in Python.

    steps: AtLeastOne = 300
    momentum: Annotated[float, real(gte=0, lt=1)] = 0.9

An integer is written in decimal digits: 1.3 is refused, not rounded, and so are 1e3, 0x10 and 1_000. A real number is
finite, unless its option allows inf, and never nan. Counts go up to 2³¹ − 1, as in MPI; a seed may be any unsigned
64-bit integer.
"""

import math
import re
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

LARGEST_COUNT = 2**31 - 1
LARGEST_SEED = 2**64 - 1

_INTEGER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MOST_DIGITS = 20  # as many as the largest seed has; Python refuses to convert thousands of digits


def parse_integer(text: str) -> int:
    """Convert decimal digits to an integer.

    Raises:
        ValueError: `text` has another form, or more than 20 digits.
    """
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number: write it in digits, as 3")
    if len(text.lstrip("+-0")) > _MOST_DIGITS:
        raise ValueError(f"{text[:_MOST_DIGITS]}… is too large a number")
    return int(text)


def parse_real(text: str, or_inf: bool = False) -> float:
    """Convert text such as 0.3 or 3e-1 to a number; a negative zero becomes 0.

    Args:
        or_inf: whether "inf" is accepted.

    Raises:
        ValueError: `text` has another form, or is too large for double precision.
    """
    if or_inf and text == "inf":
        return math.inf
    if not _REAL.fullmatch(text):
        raise ValueError(f"{text!r} is not a {'' if or_inf else 'finite '}number: write it as 0.3 or 3e-1")
    if math.isinf(value := float(text)):
        raise ValueError(f"{text} is too large a number")
    return value + 0.0


def whole(*, gte: int | None = None, lte: int = LARGEST_COUNT) -> Parameter:
    """Return the annotation of an integer option with these limits."""

    def convert(_: Any, tokens: Any) -> int:
        return parse_integer(tokens[0].value)

    return Parameter(converter=convert, validator=Number(gte=gte, lte=lte))


def real(
    *,
    gte: float | None = None,
    gt: float | None = None,
    lte: float | None = None,
    lt: float | None = None,
    or_inf: bool = False,
) -> Parameter:
    """Return the annotation of a real-valued option with these limits."""

    def convert(_: Any, tokens: Any) -> float:
        return parse_real(tokens[0].value, or_inf)

    return Parameter(converter=convert, validator=Number(gte=gte, gt=gt, lte=lte, lt=lt))


AtLeastOne = Annotated[int, whole(gte=1)]
NotNegative = Annotated[int, whole(gte=0)]
Seed = Annotated[int, whole(gte=0, lte=LARGEST_SEED)]
Real = Annotated[float, real()]
Positive = Annotated[float, real(gt=0)]
PositiveOrInf = Annotated[float, real(gt=0, or_inf=True)]
NotNegativeReal = Annotated[float, real(gte=0)]
Part = Annotated[float, real(gt=0, lte=1)]
Probability = Annotated[float, real(gte=0, lt=1)]
UnitInterval = Annotated[float, real(gte=0, lte=1)]
