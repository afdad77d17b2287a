"""The options of ``farandole simulate``."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from farandole.cli.simulate_layers import LayeredOptions
from farandole.decentralised.options import TopologyName
from farandole.errors import UsageError
from farandole.runtime.numbers import AtLeastOne, NotNegative, NotNegativeReal, Part, Positive, PositiveOrInf, Seed

if TYPE_CHECKING:  # which import numpy and scipy, where --help needs neither
    from farandole.cost.choice import Choice
    from farandole.cost.setting import Setting
    from farandole.cost.stragglers import Straggler

SEVERAL = Parameter(consume_multiple=True, negative="")
Flag = Annotated[bool, Parameter(negative="")]
MAP_GBPS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """The setting of a simulation: the number of workers, their speed, and their links."""

    workers: Annotated[tuple[AtLeastOne, ...], SEVERAL] = (16,)
    """Number of workers, or several numbers: --workers 1 10 100 1000 10000."""

    steps: AtLeastOne = 200
    """Number of gradients per worker, on average."""

    straggler: str = "constant"
    """How computing times scatter: constant, exponential, shifted-exponential:shift=0.5, lognormal:sigma=0.5,
    pareto:shape=2.5, transient:factor=3,share=0.1 or slow:worker=3,factor=3."""

    compute_ms: Positive = 100.0
    """Mean computing time of an unhindered worker's step."""

    link_gbps: PositiveOrInf = 100.0
    """Bandwidth of each worker's and each server's link; inf: no limit."""

    latency_us: NotNegativeReal = 10.0
    """Time that a message of no bytes takes."""

    network: str | None = None
    """The network whose links the messages share, in place of one switch: single-switch, two-level:rack=8,over=4,
    fat-tree:ports=8,routing=hash (or spread, modulo), dragonfly:per-router=2 or torus:sides=4x4x8; also
    placement=random, for pipelines placement=by-stage, and hop-us=0.5."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SimulateOptions(LayeredOptions, SettingOptions):
    """The options of a simulation: its setting, or the finished run that is read, and the output."""

    servers: AtLeastOne | None = None
    """Parameter servers that share the parameters. [default: one for every four workers]"""

    duplex: Annotated[bool, Parameter(negative="--no-duplex")] = True
    """The servers' links carry reads and pushes at the same time; otherwise they queue."""

    staleness: NotNegative = 4
    """ssp, half, dssp: the largest lead of a worker, in iterations."""

    least_staleness: NotNegative = 1
    """dssp: the lower bound, beyond which only the furthest worker continues, if worthwhile."""

    longest_wait_ms: NotNegativeReal = 20.0
    """half: the longest random wait of a worker before it pushes."""

    enough: Part = 0.9
    """partial, history: the share of the workers whose gradients make a step."""

    patience: NotNegativeReal = 0.5
    """history: how much longer to wait for late workers, as a multiple of the time the others took."""

    period: AtLeastOne = 8
    """local-sgd, diloco, streaming-diloco: steps from one average to the next."""

    fragments: AtLeastOne = 4
    """streaming-diloco: parts of the parameters, which are averaged at other times of the period."""

    delay: NotNegative = 1
    """streaming-diloco: steps while a part's messages are under way."""

    prefetch: Flag = False
    """zero-3: gather the next unit while one computes."""

    per_node: AtLeastOne | None = None
    """hierarchical: workers per node; a message within a node costs a tenth. [default: the largest divisor of the
    number of workers, up to 8]"""

    kappa: Positive = 4.0
    """dynamic-rounds: κ; a round has κ·√(time of an all-reduce / time of a step) steps."""

    longest: AtLeastOne = 64
    """dynamic-rounds: the largest number of steps in a round."""

    equal_steps: Flag = False
    """dynamic-rounds: all workers take the same number of steps, whatever their speed."""

    topology: TopologyName = "ring"
    """gossip, ad-psgd: the graph of neighbours; ad-psgd uses the edges in both directions, in every round."""

    mixing_every: AtLeastOne = 1
    """gossip, ad-psgd: steps from one mixing to the next."""

    mix_after_update: Flag = False
    """gossip: mix the parameters after the update, instead of before it."""

    lr: Positive = 0.2
    """Learning rate on the noisy quadratic, whose loss replaces that of a training."""

    noise: NotNegativeReal = 0.3
    """Standard deviation of the entries of one worker's gradient; at the start they are 0.1 to 1."""

    target: Part = 0.05
    """The loss to reach, as a part of the first loss."""

    seed: Seed = 0
    """Seed of the random times and of the noise."""

    fail_every: Positive | None = None
    """Mean seconds between two failures of one worker, which loses its step and repeats it. [default: no worker fails]
    """

    recover_s: NotNegativeReal = 60.0
    """Seconds from a failure until the worker computes again."""

    map: Flag = False
    """Draw a map of bandwidth and scatter (lognormal), for one number of workers: which method reaches the loss first.
    """

    map_gbps: Annotated[tuple[Positive, ...], SEVERAL] = MAP_GBPS
    """--map: the bandwidths; each takes a few seconds with few workers, and minutes with many."""

    collect: Annotated[tuple[Path, ...], SEVERAL] = ()
    """Combine the parts of a map that --map --json has printed."""

    record: Path | None = None
    """Predict a finished run of parameter_server from its own computing times, and compare."""

    fit: Annotated[tuple[Path, ...], SEVERAL] = ()
    """Fit the computing times of a finished run, and print them as values of --straggler and --compute-ms; with further
    runs over the same network, whose messages have other lengths, of --latency-us and --link-gbps too."""

    sides: Path | None = None
    """Print what a finished run has measured of communication, computing, convergence and scalability."""

    alone: Path | None = None
    """--sides: the same training on one rank, also finished, from which the speed-up follows."""

    goal: Positive = 0.5
    """--sides: the training loss to reach."""

    validate: Flag = False
    """Compare the simulator with real runs here, of the named methods or of all: first write all predictions, then
    measure. About five minutes."""

    folder: Path = Path("runs") / "validate"
    """--validate: folder of the predictions and of the finished runs, which are not repeated."""

    out: Path | None = None
    """File for a picture of the scaling, of the map or of --validate, a .png, .svg or .pdf. [default of the map:
    map.png, without --json]"""

    json: Flag = False
    """Print the figures as JSON."""

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {field.name: values[field.name] for field in fields(self) if values[field.name] != field.default}

    def setting(self, workers: int) -> "Setting":
        """Return what is simulated with this number of workers.

        Raises:
            UsageError: no such straggler, or workers fail so often that no step ends.
        """
        from farandole.collectives.costs import Link
        from farandole.cost import stragglers
        from farandole.cost.failures import failing
        from farandole.cost.networks import named
        from farandole.cost.setting import Setting, servers_for

        scatter, compute_s = stragglers.parse(self.straggler), self.compute_ms / 1e3
        self._check_slow_worker(scatter)
        return Setting(
            workers=workers, steps=self.steps, compute_s=compute_s,
            straggler=failing(scatter, self.fail_every, self.recover_s, compute_s), nbytes=self.nbytes,
            link=Link(self.latency_us / 1e6, 8 / (self.link_gbps * 1e9)),
            servers=self.servers or servers_for(workers), duplex=self.duplex,
            network=named.parse(self.network) if self.network else None,
            lr=self.lr, noise=self.noise, target=self.target, seed=self.seed,
        )  # fmt: skip

    def choice(self) -> "Choice":
        """Return the methods' own options."""
        from farandole.cost.choice import Choice

        return Choice(
            self.staleness, self.least_staleness, self.longest_wait_ms / 1e3, self.enough, self.patience, self.period,
            self.per_node, self.topology, self.mixing_every, self.mix_after_update, self.kappa, self.longest,
            self.equal_steps, self.fragments, self.delay, self.layers, self.prefetch, **self.layered(),
        )  # fmt: skip

    def _check_slow_worker(self, straggler: "Straggler") -> None:
        from farandole.cost.stragglers import Slow

        least = min(self.workers)
        if isinstance(straggler, Slow) and straggler.worker >= least:
            raise UsageError(
                f"--straggler slow:worker={straggler.worker}: with --workers {least} there is none: give one from 0 to "
                f"{least - 1}"
            )
