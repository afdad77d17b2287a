"""Networks: routes, fair shares and times, against closed forms, the definition of max-min fairness, and bounds."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.collectives.all_to_all import PAIRWISE
from farandole.collectives.checker import rounds
from farandole.collectives.costs import Link
from farandole.collectives.halving_doubling import HALVING_DOUBLING
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.ring import ALL_GATHER, REDUCE_SCATTER, RING
from farandole.collectives.schedules import COLLECTIVES
from farandole.collectives.steps import Schedule
from farandole.collectives.tree import TREE
from farandole.cost.comparison import Choice, compared
from farandole.cost.cost_function import all_reduce_s, hierarchical_s
from farandole.cost.messages import IN_A_NODE, collective_s, schedule_of, sending_s, use_of, use_of_edges
from farandole.cost.networks import named, stages
from farandole.cost.networks.dragonfly import Dragonfly, balanced
from farandole.cost.networks.fair_sharing import Paths, loads, max_min_rates, passing_times, paths, wire_bound
from farandole.cost.networks.fat_tree import ROUTINGS, FatTree
from farandole.cost.networks.network import Network, Placed
from farandole.cost.networks.passage import passage
from farandole.cost.networks.torus import Torus, square
from farandole.cost.networks.tree_shaped import SingleSwitch, TwoLevel
from farandole.cost.setting import Setting
from farandole.errors import UsageError

LINK, HOP_S, NBYTES = Link(1e-5, 1e-9), 1e-6, 8e6
NETWORKS = [SingleSwitch(16), TwoLevel(4, 4, 4.0), *(FatTree(4, routing) for routing in ROUTINGS), balanced(2),
            Dragonfly(1, 4, 1, 4), Torus((4, 4)), Torus((2, 3, 4)), Torus((1, 17))]  # fmt: skip


def seconds(schedule: Schedule, ranks: int, network: Network, seed: int | None = None, nbytes: float = NBYTES) -> float:
    passed = passage(stages.stages(schedule, ranks), Placed(network, seed), ranks)
    return passed.seconds(nbytes, LINK, HOP_S)


def between(network: Network, pairs: list[tuple[int, int]]) -> Paths:
    return paths([network.route(*pair) for pair in pairs])


# Routes.


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_a_route_is_a_chain_of_wires_that_each_have_one_capacity(network: Network) -> None:
    hosts = range(network.hosts)
    capacities: dict[str, float] = {}
    for source in hosts:
        for target in hosts:
            if source == target:
                continue
            route = network.route(source, target)
            names = [name for name, _ in route]
            assert len(set(names)) == len(route) >= network.nearest, "no wire is passed twice"
            for name, capacity in route:
                assert capacities.setdefault(name, capacity) == capacity > 0
            ends = [name.split(" to ") for name in names if " to " in name]
            for (_, reached), (left, _) in pairwise(ends):
                assert reached == left or "group" in reached + left, f"{names} is no chain"
            if isinstance(network, Torus):
                assert ends[0][0] == f"host {source}"
                assert ends[-1][1] == f"host {target}"
            else:
                assert (names[0], names[-1]) == (f"host {source} up", f"host {target} down")


def test_routes_by_hand() -> None:
    def wires(network: Network, source: int, target: int) -> list[str]:
        return [name for name, _ in network.route(source, target)]

    dragonfly, tree = balanced(2), FatTree(4, "modulo")  # 9 groups of 4 routers with 2 hosts; 4 pods of 2 edges with 2
    assert wires(dragonfly, 0, 1) == ["host 0 up", "host 1 down"]
    assert wires(dragonfly, 0, 7) == ["host 0 up", "router 0 to router 3", "host 7 down"]
    assert wires(dragonfly, 7, 15) == ["host 7 up", "router 3 to router 0", "group 0 to group 1",
                                       "router 4 to router 7", "host 15 down"]  # fmt: skip
    assert wires(dragonfly, 66, 24) == ["host 66 up", "group 8 to group 3", "router 15 to router 12", "host 24 down"]
    assert {capacity for _, capacity in dragonfly.route(7, 15)} == {1.0}
    assert wires(tree, 0, 2) == ["host 0 up", "edge 0 to aggregation 0", "aggregation 0 to edge 1", "host 2 down"]
    assert wires(tree, 0, 15) == ["host 0 up", "edge 0 to aggregation 1", "aggregation 1 to core 3",
                                  "core 3 to aggregation 7", "aggregation 7 to edge 7", "host 15 down"]  # fmt: skip
    assert FatTree(4).route(0, 15) == [
        ("host 0 up", 1.0),
        ("edge switch 0 up", 2.0),
        ("pod 0 up", 4.0),
        ("pod 3 down", 4.0),
        ("edge switch 7 down", 2.0),
        ("host 15 down", 1.0),
    ]
    assert wires(Torus((4, 2)), 7, 0) == ["host 7 to host 4", "host 4 to host 0"]


@pytest.mark.parametrize(("sides", "farthest"), [((4, 4), 4), ((5, 3), 3), ((2, 3, 4), 4), ((8, 8, 8), 12)])
def test_in_a_torus_a_message_takes_the_shorter_way_round_each_dimension(sides: tuple[int, ...], farthest: int) -> None:
    network = Torus(sides)
    lengths = [len(network.route(0, target)) for target in range(1, network.hosts)]
    places = [np.unravel_index(target, sides[::-1])[::-1] for target in range(1, network.hosts)]
    assert lengths == [sum(min(at, side - at) for at, side in zip(place, sides, strict=True)) for place in places]
    assert max(lengths) == farthest


def test_sizes_are_those_of_the_papers() -> None:
    assert FatTree(48).hosts == 27_648, "Al-Fares et al., section 3"
    assert balanced(4).hosts == 4 * 8 * 33, "N = ap(ah + 1), Kim et al."
    wires = {name for target in range(1, 16) for source in range(16) if source != target
             for name, _ in FatTree(4, "modulo").route(source, target)}  # fmt: skip
    assert sum("core" in name for name in wires) <= 2 * 16, "each of 4 core switches has a wire to and from each pod"
    assert square(1024).sides == (32, 32)
    assert square(13).sides == (13, 1)


def test_a_dragonfly_has_one_link_between_two_groups_and_routers_share_them_evenly() -> None:
    network = balanced(2)
    out: dict[int, set[int]] = {}
    for group in range(9):
        for other in range(9):
            if group != other:
                out.setdefault(network._way_out(group, other), set()).add(other)
    assert len(out) == 36
    assert {len(groups) for groups in out.values()} == {2}, "h = 2 links of each router"


# Fair shares.


def test_messages_on_one_wire_share_it_and_take_what_others_leave() -> None:
    wire, narrow = ("wire", 6.0), ("narrow", 1.0)
    assert max_min_rates(paths([[wire]] * 4)).tolist() == [1.5] * 4
    assert max_min_rates(paths([[wire], [wire], [wire, narrow]])).tolist() == [2.5, 2.5, 1.0]
    # Bertsekas & Gallager's example: a message over all wires of a line, and one over each.
    line = [(f"{each}", 1.0) for each in range(5)]
    assert max_min_rates(paths([line, *([wire] for wire in line)])).tolist() == [0.5] * 6


def test_what_has_passed_frees_its_share() -> None:
    given_paths = paths([[("wire", 1.0)]] * 3)
    assert passing_times(given_paths, np.array([1.0, 2.0, 4.0])) == pytest.approx([3.0, 5.0, 7.0])
    assert passing_times(given_paths, np.array([0.0, 1.0, 1.0])) == pytest.approx([0.0, 2.0, 2.0])


@st.composite
def any_paths(draw: st.DrawFn) -> Paths:
    wires = [
        (f"wire {each}", draw(st.sampled_from([0.25, 0.5, 1.0, 1.5, 4.0]))) for each in range(draw(st.integers(1, 6)))
    ]
    route = st.lists(st.sampled_from(wires), min_size=1, max_size=4, unique=True)
    return paths(draw(st.lists(route, min_size=1, max_size=9)))


@settings(deadline=None, max_examples=60)
@given(any_paths())
def test_no_rate_can_be_raised_without_lowering_one_that_is_not_higher(given_paths: Paths) -> None:
    rates = max_min_rates(given_paths)
    carried = loads(given_paths, rates)
    assert (carried <= 1 + 1e-9).all(), "a wire carries more than its capacity"
    for message in range(given_paths.count):
        own = given_paths.wires[given_paths.messages == message]
        full = [wire for wire in own if carried[wire] >= 1 - 1e-9]
        assert any(
            rates[message] >= rates[given_paths.messages[given_paths.wires == wire]].max() - 1e-9 for wire in full
        )


@settings(deadline=None, max_examples=60)
@given(any_paths(), st.data())
def test_all_bytes_pass_and_never_faster_than_the_fullest_wire_allows(given_paths: Paths, data: st.DataObject) -> None:
    sizes = st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=given_paths.count, max_size=given_paths.count)
    amounts = np.array(data.draw(sizes))
    times = passing_times(given_paths, amounts)
    assert times.max() >= wire_bound(given_paths, amounts) * (1 - 1e-9)
    for wire, capacity in enumerate(given_paths.capacities):
        on_it = given_paths.messages[given_paths.wires == wire]
        by_then = [amounts[on_it[times[on_it] <= now]].sum() for now in times[on_it]]
        assert (by_then <= capacity * times[on_it] * (1 + 1e-9)).all(), "more has passed than fits through"
    alone = [amounts[each] / given_paths.capacities[given_paths.wires[given_paths.messages == each]].min()
             for each in range(given_paths.count)]  # fmt: skip
    assert (times >= np.array(alone) * (1 - 1e-9)).all()


# Stages.


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8, 12])
def test_the_stages_of_a_uniform_schedule_are_its_rounds(ranks: int) -> None:
    every = [hierarchical(per_node) for per_node in (1, 2, 3, 4, 12) if ranks % per_node == 0]
    for schedule in (RING, REDUCE_SCATTER, ALL_GATHER, *every):
        assert schedule.uniform
        assert stages.stages(schedule, ranks) == stages.stages(replace(schedule, uniform=False), ranks)


@pytest.mark.parametrize("name", [name for name, row in COLLECTIVES.items() if row.schedule])
def test_stages_have_all_messages_of_the_schedule(name: str) -> None:
    schedule = COLLECTIVES[name].schedule
    assert schedule
    chunks = schedule.chunks(7)
    sent = sorted((rank, each.to, len(each.sent) / chunks) for steps in rounds(schedule, 7) for rank, step in steps
                  for each in step.exchanges if each.to is not None)  # fmt: skip
    found = [message for stage in stages.stages(schedule, 7) for message in stage.messages * stage.times]
    assert sorted(found) == sent


# Closed forms: P ranks, n bytes.


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8, 13])
@pytest.mark.parametrize("name", ["ring", "halving-doubling", "tree", "doubling"])
def test_with_one_switch_the_times_are_those_of_the_critical_rank(name: str, ranks: int) -> None:
    schedule = COLLECTIVES[name].schedule
    assert schedule
    assert seconds(schedule, ranks, SingleSwitch(ranks)) == pytest.approx(all_reduce_s(name, ranks, NBYTES, LINK))


def test_with_one_switch_a_node_s_messages_stay_cheap() -> None:
    within = Link(LINK.alpha * IN_A_NODE, LINK.beta * IN_A_NODE)
    setting = Setting(12, 1, nbytes=NBYTES, link=LINK, network=named.parse("single-switch:placement=random"))
    nodes = hierarchical_s(12, 4, NBYTES, within, LINK)
    assert collective_s(hierarchical(4), setting, NBYTES, 4) == pytest.approx(nodes)


@pytest.mark.parametrize("schedule", [RING, HALVING_DOUBLING, TREE, PAIRWISE], ids=lambda schedule: schedule.name)
@pytest.mark.parametrize("seed", [None, 1])
def test_a_fat_tree_that_spreads_is_one_switch_but_for_hops(schedule: Schedule, seed: int | None) -> None:
    passed = passage(stages.stages(schedule, 16), Placed(FatTree(4), seed), 16)
    one = passage(stages.stages(schedule, 16), Placed(SingleSwitch(16)), 16)
    assert passed.seconds(NBYTES, LINK, 0.0) == pytest.approx(one.seconds(NBYTES, LINK, 0.0))
    assert passed.bottleneck == ""
    hops = passed.seconds(NBYTES, LINK, HOP_S) - passed.seconds(NBYTES, LINK, 0.0)
    assert 0 < hops <= 4 * HOP_S * sum(stage.times for stage in passed.stages) * (1 + 1e-9)


def test_modulo_keeps_shifts_apart_and_a_hash_does_not() -> None:
    shifts = {routing: [passing_times(between(FatTree(4, routing), [(each, (each + shift) % 16) for each in range(16)]),
                                      np.ones(16)).max() for shift in range(1, 16)]
              for routing in ROUTINGS}  # fmt: skip
    assert shifts["modulo"] == shifts["spread"] == pytest.approx([1.0] * 15)
    assert max(shifts["hash"]) >= 2.0


@pytest.mark.parametrize("sides", [(4, 4), (8, 2), (3, 5), (2, 2, 4)])
def test_a_ring_in_order_on_a_torus_never_shares_a_link(sides: tuple[int, ...]) -> None:
    ranks = math.prod(sides)
    longest = sum(side > 1 for side in sides)  # at the end of a row, the next row's first host is in both dimensions
    each = LINK.alpha + (longest - 1) * HOP_S + NBYTES / ranks * LINK.beta
    assert seconds(RING, ranks, Torus(sides)) == pytest.approx(2 * (ranks - 1) * each)


def test_on_a_torus_halving_doubling_needs_the_distance_times_as_long() -> None:
    """On a ring of 8, as a torus of one dimension: at distance d each wire that is used carries up to d messages."""
    passed = passage(stages.stages(HALVING_DOUBLING, 8), Placed(Torus((8,))), 8)
    shared = [float(stage.shared.max()) for stage in passed.stages]
    assert shared == pytest.approx([1 * 1 / 2, 2 * 1 / 4, 4 * 1 / 8])  # halves, quarters, eighths of the vector


@pytest.mark.parametrize("over", [1.0, 2.0, 4.0, 16.0])
def test_two_levels(over: float) -> None:
    """Racks of 4: a ring has one message out of each rack, halving-doubling has all 4 in its two farther steps."""
    network, ranks = TwoLevel(4, 4, over), 16
    slower = max(1.0, over / 4)
    each = LINK.alpha + 2 * HOP_S + slower * NBYTES / ranks * LINK.beta
    assert seconds(RING, ranks, network) == pytest.approx(2 * (ranks - 1) * each)
    near, far = NBYTES * (1 / 2 + 1 / 4) * LINK.beta, NBYTES * (1 / 8 + 1 / 16) * LINK.beta
    latency = 8 * LINK.alpha + 4 * 2 * HOP_S
    assert seconds(HALVING_DOUBLING, ranks, network) == pytest.approx(latency + 2 * (near + over * far))
    assert passage(stages.stages(HALVING_DOUBLING, ranks), Placed(network), ranks).bottleneck == (
        "rack 0 up" if over > 1 else ""
    )


def test_on_a_dragonfly_a_group_that_sends_to_one_group_shares_one_link() -> None:
    network = balanced(2)
    group = network.routers * network.per_router
    times = passing_times(between(network, [(each, each + group) for each in range(group)]), np.ones(group))
    assert times == pytest.approx([group] * group)


@pytest.mark.parametrize(
    ("network", "longest"), [(FatTree(4), 15), (SingleSwitch(16), 15), (TwoLevel(4, 4, 4.0), 4 * 12)]
)
def test_all_to_all_at_once_takes_what_the_narrowest_cut_needs(network: Network, longest: float) -> None:
    """A host sends 15 blocks through its link; a rack of 4 sends 12 blocks of each through one link's capacity."""
    given_paths = between(
        network, [(source, target) for source in range(16) for target in range(16) if source != target]
    )
    assert passing_times(given_paths, np.ones(given_paths.count)).max() == pytest.approx(longest)
    assert wire_bound(given_paths, np.ones(given_paths.count)) == pytest.approx(longest)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
@pytest.mark.parametrize("schedule", [RING, HALVING_DOUBLING, TREE], ids=lambda schedule: schedule.name)
def test_nothing_beats_the_busiest_wire(schedule: Schedule, network: Network) -> None:
    for seed in (None, 2):
        took, placed = seconds(schedule, 16, network, seed), Placed(network, seed).places(16)
        carried: Counter[str] = Counter()
        for stage in stages.stages(schedule, 16):
            each = between(network, [(placed[sender], placed[receiver]) for sender, receiver, _ in stage.messages])
            parts = np.array([part for _, _, part in stage.messages])
            for name, load in zip(each.names, loads(each, parts).tolist(), strict=True):
                carried[name] += stage.times * load
        assert took >= max(carried.values()) * NBYTES * LINK.beta * (1 - 1e-9)
        assert took >= all_reduce_s(schedule.name, 16, NBYTES, LINK) * (1 - 1e-9) or isinstance(network, Torus)


# Placement, methods and options.


def test_a_random_placement_is_one_and_keeps_nodes_together() -> None:
    placed = Placed(SingleSwitch(20), 3)
    assert sorted(placed.places(20)) == list(range(20)) != placed.places(20)
    nodes = np.array(placed.places(12, 4)).reshape(3, 4)
    assert (nodes == nodes[:, :1] + np.arange(4)).all()
    assert (nodes[:, 0] % 4 == 0).all()
    assert placed.places(20) == placed.places(20)
    assert placed.places(20) != Placed(SingleSwitch(20), 4).places(20)
    in_order, at_random = (seconds(RING, 64, Torus((8, 8)), seed) for seed in (None, 0))
    assert at_random > 2 * in_order


def test_every_method_that_uses_a_network_is_slower_over_a_narrow_one() -> None:
    setting = Setting(16, 16, 0.1, nbytes=NBYTES, link=LINK)
    narrow = replace(setting, network=named.parse("two-level:rack=4,over=8,placement=random"))
    for method in ("ring", "tree", "halving-doubling", "hierarchical", "local-sgd", "diloco", "streaming-diloco",
                   "dynamic-rounds", "zero-1", "zero-3", "gossip"):  # fmt: skip
        row, alone = compared(method, narrow, Choice(per_node=2)), compared(method, setting, Choice(per_node=2))
        assert row.network
        assert row.network.slower > 1.2, method
        assert row.network.bottleneck.startswith("rack"), method
        assert row.step_s > alone.step_s or method == "streaming-diloco", method
        assert "network" in row.to_dict()
        assert "network" not in alone.to_dict()
    for method in ("bsp", "ad-psgd"):
        assert compared(method, narrow, Choice()).network is None


def test_gossip_on_a_ring_has_the_network_to_itself_in_each_turn() -> None:
    setting = Setting(16, 1, nbytes=NBYTES, link=LINK)
    edges = [(each, (each + way) % 16) for each in range(16) for way in (1, -1)]
    alone = sending_s(edges, setting)
    over = {text: sending_s(edges, replace(setting, network=named.parse(f"{text},hop-us=0")))
            for text in ("two-level:rack=4,over=4", "fat-tree:routing=spread", "two-level:rack=4,over=8")}  # fmt: skip
    assert over["two-level:rack=4,over=4"] == pytest.approx(alone)
    assert over["fat-tree:routing=spread"] == pytest.approx(alone)
    slow = over["two-level:rack=4,over=8"]  # a rack's last sends out first, its first one second
    assert slow[[3, 4]] == pytest.approx([2 * LINK.alpha + 3 * NBYTES * LINK.beta] * 2)
    assert slow[[1, 2]] == pytest.approx(alone[:2])


def test_a_node_s_messages_do_not_enter_the_network_and_the_others_share_it() -> None:
    """Four nodes of 4, each a rack with one host's capacity upward: all ranks of a node send across at once."""
    setting = Setting(16, 1, nbytes=NBYTES, link=LINK, network=named.parse("two-level:rack=4,over=4,hop-us=1"))
    within = 0.1 * (LINK.alpha + NBYTES / 4 * LINK.beta)
    across, one = (LINK.alpha + further + share * NBYTES / 16 * LINK.beta for further, share in ((2e-6, 4), (0.0, 1)))
    use = use_of(hierarchical(4), setting, NBYTES, 4)
    assert use
    assert (use.seconds, use.one_switch_s) == pytest.approx((6 * (within + across), 6 * (within + one)))
    assert use.slower == pytest.approx((within + across) / (within + one))
    assert (use.bottleneck, use.alike) == ("rack 0 up", 8)
    assert schedule_of("hierarchical", 24) == (hierarchical(8), 8), "as many as divide the workers, up to 8"
    assert schedule_of("hierarchical", 9) == (hierarchical(3), 3)
    assert schedule_of("hierarchical", 4, 8) == (hierarchical(4), 4)
    with pytest.raises(UsageError, match="10 workers do not fill nodes of 4"):
        schedule_of("hierarchical", 10, 4)


def test_a_worker_with_more_neighbours_sends_for_longer_and_the_placement_counts() -> None:
    edges = [(0, 5), (0, 2), (0, 1), (4, 0)]
    setting = Setting(16, 1, nbytes=NBYTES, link=LINK, seed=1)
    one = LINK.message_s(NBYTES)
    expected = [3 * one, 0, 0, 0, one, *[0] * 11]
    assert sending_s(edges, setting) == pytest.approx(expected)
    over = replace(setting, network=named.parse("two-level:rack=4,over=4,hop-us=1"))
    crossing = np.zeros(16)  # in turn to 1, 2 and 5; of these only 5 is in another rack, as 0 is for 4
    crossing[[0, 4]] = 2e-6
    assert sending_s(edges, over) == pytest.approx(expected + crossing)
    ring = [(each, (each + 1) % 16) for each in range(16)]
    at_random = replace(setting, network=named.parse("torus:placement=random"))
    by_hand = passage([stages.Stage(tuple((*edge, 1.0) for edge in ring), 1)], Placed(Torus((4, 4)), 1), 16)
    assert sending_s(ring, at_random) == pytest.approx(by_hand.stages[0].arrivals(NBYTES, LINK, 5e-7))
    use = use_of(RING, at_random, NBYTES)
    assert use
    assert use.bottleneck == passage(stages.stages(RING, 16), Placed(Torus((4, 4)), 1), 16).bottleneck


def test_a_round_of_messages_is_the_mean_of_all_rounds() -> None:
    setting = Setting(16, 1, nbytes=NBYTES, link=LINK, network=named.parse("two-level:rack=4,over=4,hop-us=1"))
    near, far = ([(each, (each + shift) % 16) for each in range(16)] for shift in (1, 4))
    use = use_of_edges([near, far], setting)
    assert use
    assert use.seconds == pytest.approx(LINK.alpha + 2e-6 + (1 + 4) / 2 * NBYTES * LINK.beta)
    assert use.one_switch_s == pytest.approx(LINK.message_s(NBYTES))
    assert (use.bottleneck, use.alike) == ("rack 0 up", 8)
    assert use_of_edges([near], replace(setting, network=None)) is None


def test_what_is_said_of_a_method_is_of_one_of_its_collectives() -> None:
    network = named.parse("two-level:rack=4,over=8,placement=random")
    setting = Setting(16, 16, 0.1, nbytes=NBYTES, link=LINK, network=network, seed=5)
    sent = {"ring": (RING, 1), "local-sgd": (RING, 1), "diloco": (RING, 1), "dynamic-rounds": (RING, 1),
            "streaming-diloco": (RING, 4), "tree": (TREE, 1), "zero-1": (ALL_GATHER, 12),
            "zero-3": (ALL_GATHER, 12)}  # fmt: skip
    for method, (schedule, parts) in sent.items():
        use = compared(method, setting, Choice()).network
        assert use
        passed = passage(stages.stages(schedule, 16), Placed(TwoLevel(4, 4, 8.0), 5), 16)
        assert use.seconds == pytest.approx(passed.seconds(NBYTES / parts, LINK, 5e-7)), method


def test_what_a_text_names() -> None:
    named_so = {
        ("two-level", 20): TwoLevel(3, 8, 4.0), ("two-level:rack=4,over=2.5", 20): TwoLevel(5, 4, 2.5),
        ("two-level:rack=1,over=0.5", 3): TwoLevel(3, 1, 0.5), ("fat-tree", 16): FatTree(4),
        ("fat-tree", 17): FatTree(6), ("fat-tree", 1): FatTree(2), ("fat-tree:ports=2", 2): FatTree(2),
        ("fat-tree:ports=6,routing=hash", 9): FatTree(6, "hash"), ("fat-tree:routing=modulo", 16): FatTree(4, "modulo"),
        ("dragonfly", 6): Dragonfly(1, 2, 1, 3), ("dragonfly", 7): Dragonfly(2, 4, 2, 9),
        ("dragonfly:per-router=1", 6): balanced(1), ("dragonfly:per-router=3", 7): balanced(3),
        ("torus", 12): Torus((4, 3)), ("torus:sides=2x3x4", 24): Torus((2, 3, 4)),
        ("torus:sides=1x1", 1): Torus((1, 1)),
        ("single-switch", 7): SingleSwitch(7),
    }  # fmt: skip
    for (text, workers), network in named_so.items():
        assert named.parse(text).placed(workers, 3) == Placed(network), text
    choice = named.parse("torus:placement=random,hop-us=2,sides=4x4")
    assert choice.placed(16, 3) == Placed(Torus((4, 4)), 3)
    assert choice.hop_s == pytest.approx(2e-6)
    assert named.parse("torus:placement=order").hop_s == pytest.approx(5e-7)
    assert named.parse("torus:hop-us=0").hop_s == 0


def test_a_network_is_the_smallest_that_has_room_and_10_000_workers_take_no_time() -> None:
    rooms = {
        text: named.parse(text).placed(100, 0).network.hosts
        for text in ("single-switch", "two-level:rack=32", "fat-tree", "dragonfly", "torus", "torus:sides=5x5x5")
    }
    assert rooms == {"single-switch": 100, "two-level:rack=32": 128, "fat-tree": 128, "dragonfly": 342, "torus": 100,
                     "torus:sides=5x5x5": 125}  # fmt: skip
    passed = passage(stages.stages(RING, 10_000), Placed(Torus((100, 100))), 10_000)
    assert [(stage.times, len(stage.shared)) for stage in passed.stages] == [(19_998, 10_000)]


@pytest.mark.parametrize(
    "text",
    ["torrus", "torus:", "torus:side=3", "torus:sides=0x4", "torus:sides=x", "torus:sides=2,sides=3",
     "fat-tree:ports=5", "fat-tree:ports=0", "fat-tree:routing=best", "two-level:rack=0", "two-level:over=0",
     "two-level:over=nan",
     "dragonfly:per-router=0", "single-switch:rack=2", "torus:placement=near", "torus:hop-us=-1", "torus:hop-us=x"],
)  # fmt: skip
def test_what_names_no_network_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--network"):
        named.parse(text)


def test_too_few_hosts_and_too_many_messages_are_refused() -> None:
    with pytest.raises(UsageError, match="16 hosts, too few for 17 workers"):
        named.parse("fat-tree:ports=4").placed(17, 0)
    with pytest.raises(UsageError, match="1000000 workers has more than"):
        stages.stages(hierarchical(500), 1_000_000)
    edges = [(source, target) for source in range(500) for target in range(500) if source != target]
    setting = Setting(500, 1, network=named.parse("torus"))
    with pytest.raises(UsageError, match="messages between neighbours"):
        sending_s(edges, setting)
