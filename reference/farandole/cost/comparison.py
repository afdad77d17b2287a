"""Twenty methods by their names, on one axis.

    parameter server    seven policies, event by event                        `simulator`
    in rounds           four all-reduces, local SGD, and dynamic rounds       `rounds`, `cost_function`
                        DiLoCo, and streaming, beside the computation         `outer_rounds`
                        ZeRO's three stages, unit by unit                     `sharding`
    decentralised       D-PSGD on a graph, all workers at once                `gossip`
                        AD-PSGD in pairs, event by event                      `pairs`

All meet the same computing times, and the same quadratic with noise stands for learning.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pkgutil import resolve_name

from farandole import methods
from farandole.collectives.schedules import COLLECTIVES, SCHEDULES
from farandole.cost import gossip, messages, rounds, sharding
from farandole.cost.messages import NetworkUse
from farandole.cost.outer_rounds import OuterRounds
from farandole.cost.pairs import Pairs
from farandole.cost.setting import Outcome, Setting
from farandole.cost.simulator import Simulation
from farandole.data_parallel.controller import Controller
from farandole.data_parallel.outer_step import Outer
from farandole.parameter_server.core.policies import POLICIES, Bounds, Policy, named

LOCAL, DYNAMIC_ROUNDS = "local-sgd", "dynamic-rounds"
DILOCO, STREAMING = "diloco", "streaming-diloco"
ZERO = ("zero-1", "zero-2", "zero-3")
GOSSIP, AD_PSGD = "gossip", "ad-psgd"
ALL_REDUCES = tuple(name for name, row in COLLECTIVES.items() if row.is_simulated)


def _using(bound: str) -> tuple[str, ...]:
    """Return the policies that a bound is for."""
    return tuple(name for name, row in POLICIES.items() if bound in row.options)


# The methods that an option is for; an option that is not here is for all.
MEANT_FOR: dict[str, tuple[str, ...]] = {
    "servers": tuple(POLICIES), "duplex": tuple(POLICIES), "staleness": _using("staleness"),
    "least_staleness": _using("least_staleness"), "longest_wait_ms": _using("longest_wait"),
    "enough": _using("enough"), "patience": _using("patience"),
    "period": (LOCAL, DILOCO, STREAMING), "per_node": ("hierarchical",), "kappa": (DYNAMIC_ROUNDS,),
    "longest": (DYNAMIC_ROUNDS,), "equal_steps": (DYNAMIC_ROUNDS,),
    "topology": (GOSSIP, AD_PSGD), "mixing_every": (GOSSIP, AD_PSGD),
    "mix_after_update": (GOSSIP,), "fragments": (STREAMING,), "delay": (STREAMING,),
    "units": ZERO, "prefetch": ZERO[2:],
    "network": (*ALL_REDUCES, LOCAL, DILOCO, STREAMING, DYNAMIC_ROUNDS, *ZERO, GOSSIP),
}  # fmt: skip
OUTER_LR, OUTER_MOMENTUM = 0.7, 0.9


@dataclass(frozen=True)
class Choice:
    """The methods' own options.

    Attributes:
        enough: of partial and history, the share of the workers that makes a step; always one worker at least.
        period: of local SGD and DiLoCo, the steps from one average to the next.
        per_node: of hierarchical, the workers of a node; None: as many, up to 8, as divide the workers.
        topology, mixing_every, mix_after_update: gossip and ad-psgd, as of the scenarios dpsgd and ad_psgd.
        kappa, longest, equal_steps: dynamic rounds, as of the scenario dynamic_sync.
        fragments, delay: of streaming DiLoCo, as of the scenario diloco.
        units: of ZeRO, into how many the parameters are cut.
        prefetch: of its stage 3.
    """

    staleness: int = 4
    least_staleness: int = 1
    longest_wait: float = 0.02
    enough: float = 0.9
    patience: float = 0.5
    period: int = 8
    per_node: int | None = None
    topology: str = "ring"
    mixing_every: int = 1
    mix_after_update: bool = False
    kappa: float = 4.0
    longest: int = 64
    equal_steps: bool = False
    fragments: int = 4
    delay: int = 1
    units: int = 12
    prefetch: bool = False


@dataclass(frozen=True)
class Row:
    """One method with one number of workers.

    Attributes:
        network: what the network makes of its messages; None without one, and for a method that does not use it.
        step_s: time in which each worker gives one gradient, on average.
        efficiency: the speed relative to a training with the same computing times, but without waiting or messages.
    """

    method: str
    setting: Setting = field(repr=False)
    outcome: Outcome = field(repr=False)
    network: NetworkUse | None = None

    @property
    def step_s(self) -> float:
        return self.outcome.wall_s / self.setting.steps

    @property
    def gradients_per_s(self) -> float:
        return self.outcome.gradients / self.outcome.wall_s

    @property
    def efficiency(self) -> float:
        return self.outcome.efficiency(self.setting.workers)

    @property
    def links_busy(self) -> float | None:
        """Return the share of the time for which the servers' links carry messages; None: there are no servers."""
        if self.method not in POLICIES or not self.outcome.wall_s:
            return None
        messages = self.outcome.computed * (1 if self.setting.duplex else 2)  # on each link: reads, or pushes, or both
        return min(1.0, messages * self.setting.link_busy_s / self.outcome.wall_s)

    def to_dict(self) -> dict[str, object]:
        outcome = self.outcome
        figures: dict[str, object] = {
            "method": self.method,
            "workers": self.setting.workers,
            "servers": self.setting.servers if self.method in POLICIES else None,
            "links_busy": self.links_busy,
            "step_s": self.step_s,
            "gradients_per_s": self.gradients_per_s,
            "efficiency": self.efficiency,
            "wait_share": outcome.wait_share,
            "staleness_mean": mean_of(outcome.staleness),
            "staleness_max": max(outcome.staleness, default=0),
            "lead_max": max(outcome.lead, default=0),
            "dropped": outcome.dropped,
            "to_loss_s": outcome.to_loss_s,
            "final_loss": outcome.final_loss,
            "consensus_error": outcome.consensus_error,
        }
        if self.network:  # otherwise the figures are those of a setting without one
            figures["network"] = asdict(self.network)
        return figures


def mean_of(histogram: dict[int, int]) -> float:
    total = sum(histogram.values())
    return sum(value * count for value, count in histogram.items()) / total if total else 0.0


def compared(method: str, setting: Setting, choice: Choice) -> Row:
    """Simulate a method by its name in `methods.METHODS`, or a policy by its alias."""
    method = named(method)
    setting, outcome = resolve_name(methods.simulated()[method])(method, setting, choice)
    return Row(method, setting, outcome, _network_use(method, setting, choice) if setting.network else None)


# Each of these simulates one family. They return the setting too, since a method may take other numbers of steps.


def served(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """A policy of the parameter server, event by event."""
    return setting, Simulation(_policy(method, setting, choice), setting).run()


def all_reduced(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """Synchronous SGD by an all-reduce."""
    return setting, rounds.simulated(setting, 1, _all_reduce_s(method, setting, setting.nbytes, choice))


def local(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """Local SGD, by a ring."""
    return setting, rounds.simulated(setting, choice.period, _all_reduce_s("ring", setting, setting.nbytes))


def outer_stepped(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """DiLoCo, by a ring, with the outer optimizer of its paper."""
    streaming = (choice.fragments, choice.delay) if method == STREAMING else ()
    outer = Outer(choice.period, OUTER_LR, OUTER_MOMENTUM, *streaming)
    reduce_s = _all_reduce_s("ring", setting, setting.nbytes / outer.fragments)
    return setting, OuterRounds(setting, outer, reduce_s).run()


def divided(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """A stage of ZeRO."""
    return setting, sharding.simulated(setting, 1 + ZERO.index(method), choice.units, choice.prefetch)


def in_dynamic_rounds(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """Rounds that a controller plans; the last one is a whole one."""
    controller = Controller(setting.workers, None, not choice.equal_steps, choice.kappa, choice.longest)
    outcome = dynamic_rounds(setting, controller)
    return replace(setting, steps=outcome.gradients // setting.workers), outcome


def gossiping(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """D-PSGD on a graph."""
    return setting, gossip.simulated(setting, choice.topology, choice.mixing_every, choice.mix_after_update)


def in_pairs(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """AD-PSGD."""
    return setting, Pairs(setting, choice.topology, choice.mixing_every).run()


def dynamic_rounds(setting: Setting, controller: Controller) -> Outcome:
    """Rounds as `controller` plans them, reduced in a ring."""
    reduce_s = _all_reduce_s("ring", setting, setting.nbytes)
    telling_s = _all_reduce_s("doubling", setting, 16 * setting.workers)  # two numbers of each
    return rounds.planned(setting, controller, reduce_s, telling_s)


def _policy(method: str, setting: Setting, choice: Choice) -> Policy:
    enough = max(1, round(choice.enough * setting.workers))
    low = min(choice.least_staleness, choice.staleness)
    bounds = Bounds(choice.staleness, low, choice.longest_wait, enough, choice.patience, setting.seed)
    return POLICIES[method].make(range(setting.workers), bounds)


def _all_reduce_s(method: str, setting: Setting, nbytes: float, choice: Choice | None = None) -> float:
    schedule, per_node = messages.schedule_of(method, setting.workers, choice.per_node if choice else None)
    return messages.collective_s(schedule, setting, nbytes, per_node)


def _network_use(method: str, setting: Setting, choice: Choice) -> NetworkUse | None:
    """Return what the network makes of one collective of this method, or of one round of gossip."""
    if method == GOSSIP:
        edges = [each.edges for each in gossip.rounds(choice.topology, setting.workers)]
        return messages.use_of_edges(edges, setting)
    if method in ALL_REDUCES:
        schedule, per_node = messages.schedule_of(method, setting.workers, choice.per_node)
        return messages.use_of(schedule, setting, setting.nbytes, per_node)
    if method in ZERO:
        return messages.use_of(sharding.COLLECTIVES["gather"], setting, setting.nbytes / choice.units)
    if method in MEANT_FOR["network"]:
        parts = choice.fragments if method == STREAMING else 1
        return messages.use_of(SCHEDULES["ring"][0], setting, setting.nbytes / parts)
    return None
