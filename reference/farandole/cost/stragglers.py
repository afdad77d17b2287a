"""The time of one step of one worker: distributions, and the slowest of n.

    constant                       every step takes the same
    exponential                    memoryless: half of the steps take less than 0.69 of the mean
    shifted-exponential:shift=0.5  never less than `shift` of the mean; the rest is exponential
    lognormal:sigma=0.5            many small influences that multiply
    pareto:shape=2.5               rare, very long steps; the smaller the shape, the heavier the tail
    transient:factor=3,share=0.1   factor times as long, in that share of the steps
    slow:worker=3,factor=3         one worker is always factor times slower

A single parameter may stand without its name: lognormal:0.5. Times are multiples of the mean step of an unhindered
worker, so the mean is 1, and more for the last two. A synchronous step lasts as long as the slowest of n, one that
needs the first k as long as the k-th of n:

    E[X₍k₎] = ∫ P(X₍k₎ > t) dt,    P(X₍k₎ > t) = I_{S(t)}(n − k + 1, k)

S is the chance that one step lasts longer than t, I the regularised incomplete beta function. For the exponential it
is H_n − H_{n−k} with H_n = 1 + 1/2 + … + 1/n. Source of both: David & Nagaraja, "Order statistics", 2003.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UsageError
from farandole.runtime.faults import named_values
from farandole.runtime.numbers import parse_integer, parse_real

Times = NDArray[np.float64]
FORM = (
    "constant, exponential, shifted-exponential:shift=0.5, lognormal:sigma=0.5, pareto:shape=2.5, "
    "transient:factor=3,share=0.1 or slow:worker=3,factor=3"
)
SURE = 1e-12  # rarer times do not change an integral here

# scipy is imported where it is used: drawing times does not need it, and importing it takes 0.4 seconds.


class Straggler:
    """A distribution of the time that a step takes, in multiples of an unhindered worker's mean."""

    mean = 1.0
    recorded: Sequence[Sequence[float]] = ()  # of a recording: each worker's times, one after the other

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Draw times, of shape (steps, workers)."""
        raise NotImplementedError

    def exceeds(self, time: float) -> float:
        """Return S(t), the chance that a step lasts longer than `time`."""
        raise NotImplementedError

    def quantile(self, rare: float) -> float:
        """Return the time that a step exceeds with the chance `rare`."""
        raise NotImplementedError

    def expected(self, k: int, n: int) -> float:
        """Return the mean time until k of n workers are done: by formula where there is one, else by quadrature."""
        from scipy.integrate import quad
        from scipy.special import betainc, betaincinv

        a, b = n - k + 1, k
        borders = [self.quantile(float(betaincinv(a, b, chance))) for chance in (1 - SURE, 0.999, 0.5, 0.001, SURE)]
        parts = [quad(lambda t: betainc(a, b, self.exceeds(t)), low, high, limit=200)[0]
                 for low, high in pairwise(borders)]  # fmt: skip
        return borders[0] + math.fsum(parts)

    def expected_maximum(self, n: int) -> float:
        """Return the mean time until the slowest of n is done."""
        return self.expected(n, n)


@dataclass(frozen=True)
class Constant(Straggler):
    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        return np.ones((steps, workers))

    def expected(self, k: int, n: int) -> float:
        return 1.0


@dataclass(frozen=True)
class ShiftedExponential(Straggler):
    """`shift` + (1 − `shift`)·X, X exponential; a shift of 0 is the exponential itself."""

    shift: float = 0.0

    def __post_init__(self) -> None:
        _demand(0 <= self.shift < 1, "the shift is 0 or more and less than 1")

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        return self.shift + (1 - self.shift) * rng.exponential(size=(steps, workers))

    def exceeds(self, time: float) -> float:
        return math.exp(-max(0.0, time - self.shift) / (1 - self.shift))

    def quantile(self, rare: float) -> float:
        return self.shift - (1 - self.shift) * math.log(rare)

    def expected(self, k: int, n: int) -> float:
        return self.shift + (1 - self.shift) * (harmonic(n) - harmonic(n - k))


@dataclass(frozen=True)
class LogNormal(Straggler):
    """exp(σZ − σ²/2), Z standard normal."""

    sigma: float

    def __post_init__(self) -> None:
        _demand(0 < self.sigma <= 3, "sigma is above 0 and at most 3")

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        return rng.lognormal(-(self.sigma**2) / 2, self.sigma, (steps, workers))

    def exceeds(self, time: float) -> float:
        from scipy.special import ndtr

        return float(ndtr(-math.log(time) / self.sigma - self.sigma / 2)) if time > 0 else 1.0

    def quantile(self, rare: float) -> float:
        from scipy.special import ndtri

        return math.exp(-self.sigma * float(ndtri(rare)) - self.sigma**2 / 2)


@dataclass(frozen=True)
class Pareto(Straggler):
    """P(X > t) = (m/t)^shape from m = (shape − 1)/shape on."""

    shape: float

    def __post_init__(self) -> None:
        _demand(1 < self.shape < math.inf, "the shape is above 1: up to 1 there is no mean")

    @property
    def least(self) -> float:
        return (self.shape - 1) / self.shape

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        return self.least * (1 + rng.pareto(self.shape, (steps, workers)))

    def exceeds(self, time: float) -> float:
        return float((self.least / time) ** self.shape) if time > self.least else 1.0

    def quantile(self, rare: float) -> float:
        return float(self.least * rare ** (-1 / self.shape))

    def expected(self, k: int, n: int) -> float:
        from scipy.special import gammaln

        r = 1 / self.shape
        return self.least * math.exp(gammaln(n + 1) - gammaln(n - k + 1) + gammaln(n - k + 1 - r) - gammaln(n + 1 - r))


@dataclass(frozen=True)
class Transient(Straggler):
    """Every worker is slow in some of its steps."""

    factor: float
    share: float

    def __post_init__(self) -> None:
        _demand(1 <= self.factor < math.inf and 0 < self.share <= 1, "factor is 1 or more, share above 0 and at most 1")

    @property
    def mean(self) -> float:  # type: ignore[override]  # elsewhere it is 1
        return 1 + (self.factor - 1) * self.share

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        return np.where(rng.random((steps, workers)) < self.share, self.factor, 1.0)

    def expected(self, k: int, n: int) -> float:
        from scipy.special import betainc

        return 1 + (self.factor - 1) * float(betainc(n - k + 1, k, self.share))


@dataclass(frozen=True)
class Slow(Straggler):
    """One worker, always; `mean` is an unhindered worker's."""

    worker: int
    factor: float

    def __post_init__(self) -> None:
        _demand(self.worker >= 0 and 1 <= self.factor < math.inf, "worker is 0 or more, factor 1 or more")

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        times = np.ones((steps, workers))
        times[:, self.worker : self.worker + 1] = self.factor
        return times

    def expected(self, k: int, n: int) -> float:
        return self.factor if k == n and self.worker < n else 1.0


KINDS: dict[str, tuple[Callable[..., Straggler], tuple[str, ...]]] = {
    "constant": (Constant, ()),
    "exponential": (ShiftedExponential, ()),
    "shifted-exponential": (ShiftedExponential, ("shift",)),
    "lognormal": (LogNormal, ("sigma",)),
    "pareto": (Pareto, ("shape",)),
    "transient": (Transient, ("factor", "share")),
    "slow": (Slow, ("worker", "factor")),
}


def parse(text: str) -> Straggler:
    """Return the distribution that a text like lognormal:0.5 names.

    Raises:
        UsageError: it names none, with what would.
    """
    kind, colon, rest = text.partition(":")
    wrong = f"--straggler {text} does not fit: write it as {FORM}"
    if kind not in KINDS or bool(colon) != bool(KINDS[kind][1]):
        raise UsageError(wrong)
    make, parameters = KINDS[kind]
    if len(parameters) == 1 and "=" not in rest:
        rest = f"{parameters[0]}={rest}"
    try:
        pairs = named_values(rest, FORM, set(parameters)) if parameters else {}
        values = {name: (parse_integer if name == "worker" else parse_real)(pairs[name]) for name in parameters}
    except (KeyError, ValueError, UsageError) as error:
        raise UsageError(wrong) from error
    try:
        return make(**values)
    except ValueError as error:
        raise UsageError(f"--straggler {text}: {error}") from error


def written(straggler: Straggler) -> str:
    """Return the text that `parse` reads as this distribution, its numbers to four digits."""
    values = vars(straggler)
    [kind] = [kind for kind, (make, names) in KINDS.items() if make is type(straggler) and names == tuple(values)]
    pairs = (f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items())
    return f"{kind}:{','.join(pairs)}" if values else kind


def harmonic(n: int) -> float:
    """Return H_n = 1 + 1/2 + … + 1/n."""
    return math.fsum(1 / i for i in range(1, n + 1))


def _demand(right: bool, what: str) -> None:
    if not right:
        raise ValueError(what)
