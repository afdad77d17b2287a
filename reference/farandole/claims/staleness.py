"""Claims about bounded staleness: SSP against synchronous and asynchronous updates, and DSSP."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.cost.comparison import Choice, Row, compared
from farandole.cost.setting import Setting
from farandole.cost.stragglers import Straggler, parse

SEEDS = 20
RANDOM, ONE_SLOW = parse("lognormal:sigma=0.5"), parse("slow:worker=0,factor=1.7")
CLUSTER = Setting(16, 60, noise=0.5, lr=0.4, target=0.02)
STALENESS = (0, 1, 2, 4, 8, 16)


def _to_loss(
    method: str, staleness: int = 4, least: int = 1, straggler: Straggler = RANDOM, cluster: Setting = CLUSTER
) -> float:
    """Return the simulated seconds until the loss is reached, the mean of several seeds; infinite if one never is."""
    times = [_simulated(method, seed, staleness, least, straggler, cluster).outcome.to_loss_s for seed in range(SEEDS)]
    return fmean(float("inf") if each is None else each for each in times)


def _simulated(
    method: str,
    seed: int,
    staleness: int = 4,
    least: int = 1,
    straggler: Straggler = RANDOM,
    cluster: Setting = CLUSTER,
) -> Row:
    setting = replace(cluster, seed=seed, straggler=straggler)
    return compared(method, setting, Choice(staleness=staleness, least_staleness=least))


def ssp() -> Measured:
    """Simulate SSP for each bound, mini-batch synchronous and asynchronous, until the same loss."""
    times = {staleness: _to_loss("ssp", staleness) for staleness in STALENESS}
    waits = {staleness: _simulated("ssp", 0, staleness).outcome.wait_share for staleness in STALENESS}
    asynchronous, best = _to_loss("async"), min(times, key=lambda each: times[each])
    figures = {
        "time to the loss, best bound / bsp": times[best] / times[0],
        "the best bound": float(best),
        "time to the loss, async / best bound": asynchronous / times[best],
        "share of waiting, bound 0": waits[0],
        "share of waiting, bound 8": waits[8],
    }
    line = [(float(each), seconds) for each, seconds in times.items()]
    lines = {"ssp": line, "async": [(0.0, asynchronous), (float(STALENESS[-1]), asynchronous)]}
    return Measured(figures, Picture("staleness bound", "simulated seconds to the loss", lines))


LOW, HIGH = 3, 15


def dssp() -> Measured:
    """Simulate DSSP with a range of bounds, and SSP with bounds of that range, on two kinds of clusters."""
    figures: dict[str, float | None] = {}
    lines: dict[str, list[tuple[float, float]]] = {}
    for cluster, straggler in (("one worker 1.7 times slower", ONE_SLOW), ("random times", RANDOM)):
        fixed = {bound: _to_loss("ssp", bound, straggler=straggler) for bound in (LOW, 9, HIGH)}
        dynamic = _to_loss("dssp", HIGH, LOW, straggler)
        figures[f"{cluster}: dssp / mean of ssp"] = dynamic / fmean(fixed.values())
        figures[f"{cluster}: dssp / bsp"] = dynamic / _to_loss("bsp", straggler=straggler)
        lines[f"ssp, {cluster}"] = [(float(bound), seconds) for bound, seconds in fixed.items()]
        lines[f"dssp, {cluster}"] = [(float(LOW), dynamic), (float(HIGH), dynamic)]
    two = replace(CLUSTER, workers=2, noise=0.2)
    fixed = {bound: _to_loss("ssp", bound, straggler=ONE_SLOW, cluster=two) for bound in (LOW, 9, HIGH)}
    dynamic = _to_loss("dssp", HIGH, LOW, ONE_SLOW, two)
    figures["of two workers one 1.7 times slower: dssp / mean of ssp"] = dynamic / fmean(fixed.values())
    return Measured(figures, Picture("staleness bound", "simulated seconds to the loss", lines))


CLAIMS = (
    Claim(
        "ssp-time-to-quality",
        Source("Ho et al.", 2013, "More effective distributed ML via a stale synchronous parallel parameter server",
               "experiments"),
        "A bound above 0 reaches the same quality sooner than bulk synchronous, since less time is spent on waiting; "
        "too large a bound, or none, makes each iteration worth less: the best one lies between.",
        "simulated",
        "16 workers, lognormal step times (0.5), no network; a quadratic with noise stands for learning, 20 seeds. The "
        "paper trains topic models, matrix factorisation and the lasso on 32 machines",
        15,
        ssp,
        (
            Bound("time to the loss, best bound / bsp", "the best bound saves at least 10 %", most=0.9, core=True),
            Bound("share of waiting, bound 8", "with a bound of 8 at most a tenth of the time is waiting", most=0.1,
                  core=True),
            Bound("the best bound", "it lies between: 1 to 8", 1, 8,
                  otherwise="a quadratic with this learning rate bears all the staleness that 16 equal workers make, "
                  "so the speed alone decides"),
            Bound("time to the loss, async / best bound", "without a bound it takes at least 2 % longer", least=1.02,
                  otherwise="16 workers of equal mean speed are seldom far apart, so no bound is hardly worse than a "
                  "large one"),
        ),
        "parameter_server/core/policies/ssp.py",
        revised="the setting, and one bound: the best slack may be 8 at most in place of 16",
    ),
    Claim(
        "dssp",
        Source("Zhao et al.", 2019, "Dynamic stale synchronous parallel distributed training for deep learning",
               "abstract and experiments"),
        "A bound chosen while training from a range does as well as SSP with the bounds of the range, without a search "
        "for the best one.",
        "simulated",
        "16 workers, a quadratic with noise, bounds of 3 to 15, 20 seeds; one worker always 1.7 times slower, as in "
        "the paper's cluster of two kinds of GPUs, and lognormal times (0.5). The paper trains image classifiers",
        20,
        dssp,
        (
            Bound("one worker 1.7 times slower: dssp / mean of ssp", "at most 3 % slower than SSP on average",
                  most=1.03, core=True,
                  otherwise="its controller grants further iterations to the furthest worker alone, and only as many "
                  "as let it push together with the slowest one, so nearly all iterations begin within the lowest "
                  "bound. A larger fixed bound lets all fast workers run ahead, and this quadratic bears it"),
            Bound("one worker 1.7 times slower: dssp / bsp", "faster than bulk synchronous", most=1, core=True),
            Bound("random times: dssp / mean of ssp", "and where times are random", most=1.03,
                  otherwise="its controller predicts a worker's next step from its last ones, and these times are "
                  "drawn independently"),
        ),
        "parameter_server/core/policies/dssp.py",
        revised="the setting, and the rule, whose conditions are on two clusters in place of one",
    ),
)  # fmt: skip
