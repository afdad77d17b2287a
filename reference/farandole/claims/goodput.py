"""Claims about failures at a scale that only a simulation has: what they leave of a training's time."""

from __future__ import annotations

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.cost.goodput import Recovery, goodput

HOUR_S, DAY_S = 3_600.0, 86_400.0
CHIPS, MTBF_S, REPAIR_S = 1_200_000, 365 * DAY_S, 2 * HOUR_S
MONOLITHIC = 0.27
ISLANDS = (1, 2, 4, 8, 16, 32)


def of_chips(pause_s: float, islands: int, hours: float = 24.0) -> float:
    """Simulate the chips in islands, of which each failure and each return stops one for `pause_s`."""
    found = goodput(Recovery(pause_s), CHIPS, MTBF_S, REPAIR_S, hours * HOUR_S, seed=0, islands=islands)
    return found.goodput


def islands() -> Measured:
    """Find the pause with which one island has the published goodput, and simulate more islands with it."""
    shortest_s, longest_s = 1.0, 600.0
    while longest_s - shortest_s > 0.5:
        pause_s = (shortest_s + longest_s) / 2
        shortest_s, longest_s = (pause_s, longest_s) if of_chips(pause_s, 1) > MONOLITHIC else (shortest_s, pause_s)
    by_islands = {number: of_chips(longest_s, number) for number in ISLANDS}
    figures = {
        "seconds that a failure stops all chips, found": longest_s,
        "goodput of one island": by_islands[1],
        "goodput of 8 islands": by_islands[8],
        "seconds between two failures": MTBF_S / CHIPS,
    }
    lines = {"simulated": list(by_islands.items())}
    return Measured(figures, Picture("islands", "goodput", lines, {"published": [(1, 0.27), (8, 0.88)]}, log="x"))


CLAIMS = (
    Claim(
        "decoupled-diloco-goodput",
        Source("Decoupled DiLoCo Team", 2026, "Decoupled DiLoCo for resilient distributed pre-training",
               "summary of the simulated failures"),
        "With 1.2 million chips that fail often, islands that exchange parameters now and then keep 88 % of the time "
        "for useful work, and one training on all chips 27 %.",
        "simulated",
        "1.2 million chips, each failing once a year and repaired in 2 hours; a failure or a return stops its island. "
        "For how long is fitted, so that one island has the published 27 %; the goodput of 8 islands then follows. The "
        "paper's rates and times were not at hand, its exchange between islands is left out, and so is what they learn",
        20,
        islands,
        (
            Bound("goodput of 8 islands", "within 5 points of the published 88 %", 0.83, 0.93, core=True),
            Bound("goodput of one island", "the fit has reached the published 27 %", 0.25, 0.29, core=True),
        ),
        "cost/goodput.py",
    ),
)  # fmt: skip
