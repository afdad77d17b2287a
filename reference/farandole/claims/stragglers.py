"""Claims about waiting for the slowest, and about not waiting: backup workers, asynchronous updates, staleness."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.cost.comparison import Choice, compared, mean_of
from farandole.cost.setting import Setting
from farandole.cost.stragglers import Straggler, harmonic, parse

WORKERS = 100
TAILS = {
    "shifted exponential": parse("shifted-exponential:shift=0.9"),
    "lognormal 0.2": parse("lognormal:sigma=0.2"),
    "Pareto 5": parse("pareto:shape=5"),
    "1 % of steps five times slower": parse("transient:factor=5,share=0.01"),
}


def backup_workers() -> Measured:
    """Estimate the time to converge with b of 100 workers as backups: time of the (100 − b)-th over 100 − b."""

    def time(straggler: Straggler, backups: int) -> float:
        return straggler.expected(WORKERS - backups, WORKERS) / (WORKERS - backups)

    lines: dict[str, list[tuple[float, float]]] = {}
    figures: dict[str, float | None] = {}
    for name, straggler in TAILS.items():
        waiting = time(straggler, 0)
        lines[name] = [(float(backups), time(straggler, backups) / waiting) for backups in range(31)]
        figures[f"best number of backups, {name}"] = min(lines[name], key=lambda point: point[1])[0]
    figures["time with 4 backups / with none, largest"] = max(points[4][1] for points in lines.values())
    figures["time with 4 backups / with the best number, largest"] = max(
        points[4][1] / min(value for _, value in points) for points in lines.values()
    )
    return Measured(figures, Picture("backup workers of 100", "estimated time, relative to none", lines))


def k_sync() -> Measured:
    """Simulate exponential step times, and compare a synchronous update's time with an asynchronous one's."""

    def update_s(method: str, workers: int) -> float:
        setting = Setting(workers, 400, compute_s=1.0, straggler=parse("exponential"))
        outcome = compared(method, setting, Choice(enough=0.75)).outcome
        return outcome.wall_s / (outcome.gradients if method == "async" else setting.steps)

    sizes: Sequence[int] = (4, 8, 16, 32, 64)
    ratios = {workers: update_s("bsp", workers) / update_s("async", workers) for workers in sizes}
    figures = {
        "largest distance from P·H_P, relative": max(
            abs(ratio / (workers * harmonic(workers)) - 1) for workers, ratio in ratios.items()
        ),
        "K-sync, 12 of 16: time of an update / (H_16 − H_4)": update_s("partial", 16) / (harmonic(16) - harmonic(4)),
    }
    lines = {"simulated": [(float(workers), ratio) for workers, ratio in ratios.items()],
             "P·H_P": [(float(workers), workers * harmonic(workers)) for workers in sizes]}  # fmt: skip
    return Measured(figures, Picture("workers", "time of a synchronous / an asynchronous update", lines, log="xy"))


def staleness() -> Measured:
    """Simulate asynchronous SGD with 30 workers, and count how stale the applied gradients are."""
    workers = 30
    found = {}
    for sigma in (0.1, 0.3, 0.5):
        setting = Setting(workers, 400, straggler=parse(f"lognormal:sigma={sigma}"))
        histogram = compared("async", setting, Choice()).outcome.staleness
        total = sum(histogram.values())
        found[sigma] = {each: count / total for each, count in sorted(histogram.items())}
    means = {sigma: mean_of({each: round(1e9 * share) for each, share in own.items()}) for sigma, own in found.items()}
    beyond = {sigma: sum(share for each, share in own.items() if each > 2 * workers) for sigma, own in found.items()}
    figures = {
        "largest distance of the mean from n − 1, relative": max(
            abs(each / (workers - 1) - 1) for each in means.values()
        ),
        "share beyond 2n, scatter 0.1": beyond[0.1],
        "share beyond 2n, scatter 0.3": beyond[0.3],
        "share beyond 2n, scatter 0.5": beyond[0.5],
    }
    lines = {f"scatter {sigma}": [(float(each), share) for each, share in own.items()] for sigma, own in found.items()}
    return Measured(figures, Picture("others' updates before a gradient's own", "share of the gradients", lines))


CLAIMS = (
    Claim(
        "backup-workers",
        Source("Chen et al.", 2016, "Revisiting distributed synchronous SGD", "experiments"),
        "Of 100 workers 4 are best left as backups: each step takes the first 96 gradients, and converges soonest.",
        "computed",
        "the time of the k-th of 100 by order statistics, over k, since fewer gradients take more steps; for four "
        "distributions of a step's time. The paper measured its own cluster's, which it does not print as numbers",
        1,
        backup_workers,
        (
            Bound("time with 4 backups / with none, largest", "4 backups save at least 5 % with each distribution",
                  most=0.95, core=True),
            Bound("time with 4 backups / with the best number, largest", "no other number saves 5 % more", most=1.05,
                  otherwise="the best number follows from the tail of the step times: the heavier it is, the more "
                  "backups pay"),
        ),
        "parameter_server/core/policies/partial.py",
    ),
    Claim(
        "k-sync",
        Source("Dutta et al.", 2018, "Slow and stale gradients can win the race", "on runtime"),
        "With exponential step times a synchronous update of P workers takes P·H_P ≈ P·ln P times as long as an "
        "asynchronous one, and K-sync takes H_P − H_{P−K} mean steps.",
        "simulated",
        "4 to 64 workers, 400 steps each, no network",
        10,
        k_sync,
        (
            Bound("largest distance from P·H_P, relative", "within 10 % of P·H_P", most=0.10, core=True),
            Bound("K-sync, 12 of 16: time of an update / (H_16 − H_4)", "K-sync within 10 % of the formula", 0.9, 1.1,
                  otherwise="the formula cancels late workers at once; here, as with backup workers, a late worker "
                  "finishes its gradient before it begins the next step"),
        ),
        "cost/stragglers.py",
    ),
    Claim(
        "async-staleness",
        Source("Zhang et al.", 2016, "Staleness-aware async-SGD for distributed deep learning", "on n-softsync"),
        "With n gradients between a read and its update on average, staleness gathers around n, and exceeds 2n with a "
        "probability below 0.0001.",
        "simulated",
        "30 workers, each update counts, lognormal step times of three scatters, 12,000 updates. The others' updates "
        "are counted, so n − 1",
        5,
        staleness,
        (
            Bound("largest distance of the mean from n − 1, relative", "the mean is n − 1 within 5 %", most=0.05,
                  core=True),
            Bound("share beyond 2n, scatter 0.1", "at most 0.0001 beyond 2n with little scatter", most=1e-4, core=True),
            Bound("share beyond 2n, scatter 0.5", "and with much", most=1e-4,
                  otherwise="a step that takes twice the mean meets twice as many updates, and with a scatter of 0.5 "
                  "some steps do; the paper measured its figure on another cluster"),
        ),
        "parameter_server/core/policies/asynchronous.py",
    ),
)  # fmt: skip
