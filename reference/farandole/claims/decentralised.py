"""Claims about training without a coordinator: graphs that average exactly, slow networks, slow workers."""

from __future__ import annotations

from dataclasses import replace
from math import log2

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.collectives.costs import Link
from farandole.cost.comparison import Choice, compared
from farandole.cost.cost_function import all_reduce_s
from farandole.cost.setting import Setting
from farandole.cost.stragglers import parse
from farandole.decentralised.mixing import gap_of_all, mixing_matrix, spectral_gap
from farandole.decentralised.topologies import topology

POWERS, OTHERS = (4, 8, 16, 32, 64), (6, 12, 24, 48)


def one_peer() -> Measured:
    """Multiply the mixing matrices of ⌈log₂P⌉ rounds of the one-peer exponential graph."""

    def rest(ranks: int) -> float:
        graph = topology("one-peer-exponential", ranks)
        return 1 - gap_of_all([mixing_matrix(graph, number) for number in range(len(graph.rounds))])

    gaps = {ranks: spectral_gap(mixing_matrix(topology("exponential", ranks))) for ranks in POWERS}
    figures = {
        "largest rest after log₂P rounds, P a power of two": max(map(rest, POWERS)),
        "smallest rest after ⌈log₂P⌉ rounds, other P": min(map(rest, OTHERS)),
        "static graph: largest distance of the gap from 2/(1 + log₂P)": max(
            abs(gap - 2 / (1 + log2(ranks))) for ranks, gap in gaps.items()
        ),
    }
    rings = {ranks: spectral_gap(mixing_matrix(topology("ring", ranks))) for ranks in POWERS}
    lines = {name: [(float(ranks), gap) for ranks, gap in own.items()]
             for name, own in (("static exponential", gaps), ("ring", rings))}  # fmt: skip
    return Measured(figures, Picture("ranks", "spectral gap", lines, log="xy"))


# ResNet-20 has 0.27 million parameters: 1.1 MB.
RESNET = Setting(16, 40, compute_s=0.05, nbytes=1.1e6)
BANDWIDTHS_MBPS = (1, 5, 10, 50, 100, 1000, 10_000)
LATENCIES_MS = (0.1, 1.0, 5.0, 25.0)


def slow_networks() -> Measured:
    """Simulate D-PSGD, a ring all-reduce and a parameter server's round, over bandwidth and over latency."""

    def steps(link: Link) -> dict[str, float]:
        setting = replace(RESNET, link=link)
        central = setting.compute_s + all_reduce_s("central", setting.workers, setting.nbytes, link)
        return {"gossip": compared("gossip", setting, Choice()).step_s,
                "ring": compared("ring", setting, Choice()).step_s, "central": central}  # fmt: skip

    by_bandwidth = {mbps: steps(Link(1e-4, 8e-6 / mbps)) for mbps in BANDWIDTHS_MBPS}
    by_latency = {latency: steps(Link(1e-3 * latency, 8e-6 / 1000)) for latency in LATENCIES_MS}
    slow, far, near = by_bandwidth[5], by_latency[25.0], by_bandwidth[10_000]
    figures = {
        "5 Mbit/s: central / D-PSGD": slow["central"] / slow["gossip"],
        "5 Mbit/s: ring all-reduce / D-PSGD": slow["ring"] / slow["gossip"],
        "latency 25 ms: ring all-reduce / D-PSGD": far["ring"] / far["gossip"],
        "latency 25 ms: central / D-PSGD": far["central"] / far["gossip"],
        "10 Gbit/s, 0.1 ms: ring all-reduce / D-PSGD": near["ring"] / near["gossip"],
    }
    lines = {name: [(float(latency), each[name]) for latency, each in by_latency.items()]
             for name in ("gossip", "ring", "central")}  # fmt: skip
    return Measured(figures, Picture("latency, ms (1 Gbit/s)", "simulated seconds of a step", lines, log="xy"))


def one_slow_worker() -> Measured:
    """Simulate a worker that is always slow, with AD-PSGD, D-PSGD and a ring all-reduce."""
    factors = (1, 2, 3, 5, 10)
    times: dict[str, list[tuple[float, float]]] = {}
    for method in ("ad-psgd", "gossip", "ring"):
        times[method] = []
        for factor in factors:
            setting = Setting(16, 400, straggler=parse(f"slow:worker=0,factor={factor}"))
            row = compared(method, setting, Choice())
            times[method].append((float(factor), setting.workers / row.gradients_per_s / setting.compute_s))
    figures = {
        f"{method}: time with a worker 10 times slower / with equal ones": points[-1][1] / points[0][1]
        for method, points in times.items()
    }
    picture = Picture("factor of the slow worker", "time of 16 gradients / a step's", times, log="xy")
    return Measured(figures, picture)


LIAN = "Can decentralized algorithms outperform centralized algorithms?"
CLAIMS = (
    Claim(
        "one-peer-exact",
        Source("Ying et al.", 2021, "Exponential graph is provably efficient for decentralized deep training",
               "on one-peer exponential graphs"),
        "The one-peer exponential graph averages exactly in log₂P rounds if P is a power of two, and only then; the "
        "static one has the spectral gap 2/(1 + log₂P).",
        "computed",
        "the product of the mixing matrices, 4 to 64 ranks",
        1,
        one_peer,
        (
            Bound("largest rest after log₂P rounds, P a power of two", "nothing is left", most=1e-12, core=True),
            Bound("smallest rest after ⌈log₂P⌉ rounds, other P", "for other P something is left", least=1e-3,
                  core=True),
            Bound("static graph: largest distance of the gap from 2/(1 + log₂P)", "the static graph's gap", most=1e-9,
                  core=True),
        ),
        "decentralised/topologies.py",
    ),
    Claim(
        "dpsgd-slow-network",
        Source("Lian et al.", 2017, LIAN, "abstract and experiments"),
        "With low bandwidth or high latency D-PSGD is up to ten times faster than well-optimised centralised training; "
        "with a fast network it is no slower.",
        "simulated",
        "16 workers on a ring, 1.1 MB of parameters (ResNet-20), 50 ms of computing; a ring all-reduce, and a centre "
        "through whose link everything passes. The paper measured CNTK and Torch on up to 112 GPUs",
        2,
        slow_networks,
        (
            Bound("latency 25 ms: ring all-reduce / D-PSGD", "high latency: at least 5 times faster than a ring",
                  least=5, core=True),
            Bound("5 Mbit/s: central / D-PSGD", "low bandwidth: at least 5 times faster than a centre", least=5,
                  core=True),
            Bound("5 Mbit/s: ring all-reduce / D-PSGD", "low bandwidth: faster than a ring all-reduce", least=1.05,
                  otherwise="D-PSGD sends the parameters to two neighbours, 2n bytes, and a ring all-reduce "
                  "2(P − 1)/P·n: bandwidth gains nothing against it, only latency does"),
            Bound("10 Gbit/s, 0.1 ms: ring all-reduce / D-PSGD", "fast network: at most 5 % slower than a ring",
                  least=0.95),
        ),
        "decentralised/dpsgd.py",
    ),
    Claim(
        "ad-psgd-slow-worker",
        Source("Lian et al.", 2018, "Asynchronous decentralized parallel stochastic gradient descent",
               "abstract and experiments"),
        "A slow worker holds up synchronous training by its factor, and AD-PSGD hardly at all.",
        "simulated",
        "16 workers on a ring, one of them 2 to 10 times slower, no network, 400 steps. The paper measured 16 to "
        "128 GPUs",
        5,
        one_slow_worker,
        (
            Bound("ad-psgd: time with a worker 10 times slower / with equal ones", "AD-PSGD loses at most 10 %",
                  most=1.10, core=True),
            Bound("ring: time with a worker 10 times slower / with equal ones", "an all-reduce loses the factor",
                  least=9, core=True),
            Bound("gossip: time with a worker 10 times slower / with equal ones", "D-PSGD too", least=9),
        ),
        "decentralised/ad_psgd.py",
        revised="a worker is 10 times slower in place of 100, since the run was shorter than one step "
                "of it, and the bounds follow: 9 in place of 90, and for D-PSGD 9 in place of 50. "
                "Before that it did not hold",
    ),
)  # fmt: skip
