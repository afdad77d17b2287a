"""The options of ``farandole simulate``."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from farandole.decentralised.options import TopologyName
from farandole.errors import UsageError
from farandole.runtime.numbers import AtLeastOne, NotNegative, NotNegativeReal, Part, Positive, PositiveOrInf, Seed

if TYPE_CHECKING:  # which import numpy and scipy, where --help needs neither
    from farandole.cost.comparison import Choice
    from farandole.cost.setting import Setting
    from farandole.cost.stragglers import Straggler

SEVERAL = Parameter(consume_multiple=True, negative="")
Flag = Annotated[bool, Parameter(negative="")]
BYTES = 4  # of a parameter
MAP_GBPS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """What is simulated, or which finished work is read, and what is printed."""

    workers: Annotated[tuple[AtLeastOne, ...], SEVERAL] = (4,)
    """How many, one number or several: --workers 1 10 100 1000 10000."""

    steps: AtLeastOne = 200
    """Gradients of each worker, on average."""

    straggler: str = "constant"
    """How computing times scatter: constant, exponential, shifted-exponential:shift=0.5, lognormal:sigma=0.5,
    pareto:shape=2.5, transient:factor=3,share=0.1 or slow:worker=3,factor=3."""

    compute_ms: Positive = 100.0
    """Mean computing time of an unhindered worker's step."""

    parameters: AtLeastOne = 10_000_000
    """How many, of 4 bytes each."""

    link_gbps: PositiveOrInf = 10.0
    """What each worker's and each server's link carries; inf: no limit."""

    latency_us: NotNegativeReal = 50.0
    """How long a message of no bytes takes."""

    servers: AtLeastOne = 1
    """Parameter servers that share the parameters."""

    duplex: Flag = False
    """Reads and pushes pass each other at the servers; otherwise they queue for one link."""

    staleness: NotNegative = 4
    """Of ssp, half, dssp: iterations that a worker may be ahead."""

    least_staleness: NotNegative = 1
    """Of dssp: the lower bound, beyond which only the furthest worker continues, if worthwhile."""

    longest_wait_ms: NotNegativeReal = 20.0
    """Of half: how long a worker waits at most, at random, before it pushes."""

    enough: Part = 0.9
    """Of partial, history: which share of the workers makes a step."""

    patience: NotNegativeReal = 0.5
    """Of history: how much longer to wait for the late, as a multiple of the time the others took."""

    period: AtLeastOne = 8
    """Of local-sgd: steps apart."""

    per_node: AtLeastOne | None = None
    """Of hierarchical: workers of a node, where a message costs a tenth. [default: as many, up to 8, as divide the
    workers]"""

    kappa: Positive = 4.0
    """Of dynamic-rounds: a round has this times the root of (all-reduce's time / a step's) steps."""

    longest: AtLeastOne = 64
    """Of dynamic-rounds: the most steps of a round."""

    equal_steps: Flag = False
    """Of dynamic-rounds: all workers take the same number of steps, however fast they are."""

    topology: TopologyName = "ring"
    """Of gossip, ad-psgd: the graph of neighbours; ad-psgd takes the edges both ways, whatever the round."""

    mixing_every: AtLeastOne = 1
    """Of gossip, ad-psgd: steps from one mixing to the next."""

    mix_after_update: Flag = False
    """Of gossip: mix what the update has led to, instead of what it begins from."""

    lr: Positive = 0.2
    """Learning rate on the noisy quadratic that stands for the training."""

    noise: NotNegativeReal = 0.3
    """Standard deviation of the entries of one worker's gradient; at the start they are 0.1 to 1."""

    target: Part = 0.05
    """Which part of the first loss is to be reached."""

    seed: Seed = 0
    """What times and noise are drawn from."""

    fail_every: Positive | None = None
    """Seconds between two failures of one worker, on average; it loses its step, and begins it again. [default: no
    worker fails]"""

    recover_s: NotNegativeReal = 60.0
    """Seconds from a failure until the worker computes again."""

    map: Flag = False
    """Which of the methods comes to the loss first, over bandwidth and scatter (lognormal), as a picture, for one
    number of workers."""

    map_gbps: Annotated[tuple[Positive, ...], SEVERAL] = MAP_GBPS
    """Of the map, what links carry; each takes a few seconds with few workers, and minutes with many."""

    collect: Annotated[tuple[Path, ...], SEVERAL] = ()
    """Parts of a map, as --map --json has printed them: put them together."""

    record: Path | None = None
    """A finished run of parameter_server: predict it from its own computing times, and compare."""

    fit: Annotated[tuple[Path, ...], SEVERAL] = ()
    """A finished run: print how its computing times scatter, as --straggler and --compute-ms take it; with further runs
    over the same network, whose messages have other lengths, --latency-us and --link-gbps too."""

    sides: Path | None = None
    """A finished run: print what it has measured of communication, computing, convergence and scalability."""

    alone: Path | None = None
    """Of sides: the same training by one rank, also finished, to tell how many times as fast it is."""

    goal: Positive = 0.5
    """Of sides: the training loss that is to be reached."""

    out: Path | None = None
    """A picture of the scaling or of the map, a .png, .svg or .pdf. [default of the map: map.png, without --json]"""

    json: Flag = False
    """Print the figures as JSON."""

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {field.name: values[field.name] for field in fields(self) if values[field.name] != field.default}

    def setting(self) -> "Setting":
        """Return what is simulated, with the first number of workers.

        Raises:
            UsageError: no such straggler, or workers fail so often that no step ends.
        """
        from farandole.collectives.costs import Link
        from farandole.cost import stragglers
        from farandole.cost.failures import failing
        from farandole.cost.setting import Setting

        scatter, compute_s = stragglers.parse(self.straggler), self.compute_ms / 1e3
        self._check_slow_worker(scatter)
        return Setting(
            workers=self.workers[0], steps=self.steps, compute_s=compute_s,
            straggler=failing(scatter, self.fail_every, self.recover_s, compute_s), nbytes=BYTES * self.parameters,
            link=Link(self.latency_us / 1e6, 8 / (self.link_gbps * 1e9)), servers=self.servers, duplex=self.duplex,
            lr=self.lr, noise=self.noise, target=self.target, seed=self.seed,
        )  # fmt: skip

    def choice(self) -> "Choice":
        """Return the methods' own options."""
        from farandole.cost.comparison import Choice

        return Choice(
            self.staleness, self.least_staleness, self.longest_wait_ms / 1e3, self.enough, self.patience, self.period,
            self.per_node, self.topology, self.mixing_every, self.mix_after_update, self.kappa, self.longest,
            self.equal_steps,
        )  # fmt: skip

    def _check_slow_worker(self, straggler: "Straggler") -> None:
        from farandole.cost.stragglers import Slow

        least = min(self.workers)
        if isinstance(straggler, Slow) and straggler.worker >= least:
            raise UsageError(
                f"--straggler slow:worker={straggler.worker}: with --workers {least} there is none: give one from 0 to "
                f"{least - 1}"
            )
