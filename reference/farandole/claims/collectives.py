"""Claims about all-reduces: the ring's bytes, and the length from which halving-doubling beats doubling."""

from __future__ import annotations

from itertools import pairwise

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.collectives.costs import Link, coefficients
from farandole.collectives.schedules import SCHEDULES
from farandole.cost.cost_function import all_reduce_s

RANKS = [2**power for power in range(1, 11)]
NON_POWERS = (3, 5, 6, 7, 12, 100, 1000)
LENGTHS = [2.0**power for power in range(3, 25)]  # bytes: 8 to 16 MiB
MYRINET = Link(10e-6, 1 / 250e6)  # a network of that time: 10 µs, 250 MB/s


def ring_bandwidth() -> Measured:
    """Count what the busiest rank sends, in multiples of the vector."""
    sent = {method: {ranks: coefficients(SCHEDULES[method][0], ranks)[1] for ranks in (*RANKS, *NON_POWERS)}
            for method in ("ring", "doubling", "central")}  # fmt: skip
    ring = sent["ring"]
    figures = {
        "bytes of a rank over n, most of all P": max(ring.values()),
        "largest distance from 2(P − 1)/P": max(abs(value - 2 * (ranks - 1) / ranks) for ranks, value in ring.items()),
        "bytes with 1,024 ranks over those with 8": ring[1024] / ring[8],
        "the same of a central aggregator": sent["central"][1024] / sent["central"][8],
    }
    lines = {method: [(ranks, sent[method][ranks]) for ranks in RANKS] for method in sent}
    return Measured(figures, Picture("ranks", "bytes of the busiest rank / n", lines, log="xy"))


def crossover() -> Measured:
    """Cost both algorithms for each length, and find where one overtakes the other."""

    def ratio(ranks: int, nbytes: float) -> float:
        doubling, halving = (all_reduce_s(each, ranks, nbytes, MYRINET) for each in ("doubling", "halving-doubling"))
        return doubling / halving

    crossings: dict[int, list[float]] = {}
    for ranks in RANKS[1:]:
        ratios = [(nbytes, ratio(ranks, nbytes)) for nbytes in LENGTHS]
        crossings[ranks] = [(before * after) ** 0.5 for (before, one), (after, other) in pairwise(ratios)
                            if (one < 1) != (other < 1)]  # fmt: skip
    at_32 = crossings[32][0] if crossings[32] else None
    figures = {
        "fewest crossings of the two, over P": min(map(len, crossings.values())),
        "most crossings": max(map(len, crossings.values())),
        "doubling / halving-doubling at 64 bytes, 32 ranks": ratio(32, 64),
        "doubling / halving-doubling at 1 MB, 32 ranks": ratio(32, 1e6),
        "bytes where they cross, 32 ranks": at_32,
    }
    lines = {f"{ranks} ranks": [(nbytes, ratio(ranks, nbytes)) for nbytes in LENGTHS] for ranks in (4, 32, 256)}
    return Measured(
        figures,
        Picture("bytes", "time of doubling / time of halving-doubling", lines, {"MPICH's switch": [(2048, 1)]}, "xy"),
    )


CLAIMS = (
    Claim(
        "ring-bandwidth",
        Source("Patarasuk & Yuan", 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
               "abstract"),
        "A ring all-reduce sends 2(P − 1)/P·n bytes from each process, the least possible, so its bandwidth term does "
        "not grow with the number of processes.",
        "computed",
        "the ring's own steps, counted for 17 numbers of ranks from 2 to 1,024, powers of two and others",
        1,
        ring_bandwidth,
        (
            Bound("largest distance from 2(P − 1)/P", "the lower bound is met for each P", most=1e-9, core=True),
            Bound("bytes of a rank over n, most of all P", "never more than 2n", most=2, core=True),
            Bound("bytes with 1,024 ranks over those with 8", "128 times the ranks add at most 15 %", most=1.15),
        ),
        "collectives/ring.py",
    ),
    Claim(
        "rabenseifner-crossover",
        Source("Thakur, Rabenseifner & Gropp", 2005, "Optimization of collective communication operations in MPICH",
               "on all-reduce"),
        "Recursive doubling is faster for short vectors and Rabenseifner's halving-doubling for long ones; MPICH "
        "switches at 2 kB.",
        "computed",
        "both schedules costed by α-β for 4 to 1,024 ranks and 8 bytes to 8 MiB, with a link of that time: 10 µs and "
        "250 MB/s. The paper's own link parameters are not used, so the place of the crossing is only compared within "
        "a factor of two",
        1,
        crossover,
        (
            Bound("fewest crossings of the two, over P", "they cross for each P …", least=1, core=True),
            Bound("most crossings", "… and only once", most=1, core=True),
            Bound("doubling / halving-doubling at 64 bytes, 32 ranks", "doubling wins at 64 bytes", most=1, core=True),
            Bound("doubling / halving-doubling at 1 MB, 32 ranks", "it loses at 1 MB", least=1, core=True),
            Bound("bytes where they cross, 32 ranks", "the crossing is between 1 and 4 kB", 1000, 4100,
                  otherwise="it is at 1.6·α/β for 32 ranks, so it follows the network's latency and bandwidth"),
        ),
        "collectives/halving_doubling.py",
    ),
)  # fmt: skip
