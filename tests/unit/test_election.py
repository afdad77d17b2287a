"""Elections: the final leader, the cost, and the behaviour when nodes die or are cut off."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.recovery.election.bully import Bully
from farandole.recovery.election.network import Network
from farandole.recovery.election.raft import Raft
from farandole.recovery.election.ring import Ring
from farandole.recovery.election.steps import Message, Node, Timer

SIZES = [1, 2, 3, 4, 7]
DELAYS = (0.2, 1.0)  # as nodes expect them: an answer within 3, a hop within 2


def bullies(size: int) -> dict[int, Bully]:
    return {number: Bully(number, range(size)) for number in range(size)}


def ring(order: Sequence[int]) -> dict[int, Ring]:
    return {number: Ring(number, order) for number in order}


def rafts(size: int, seed: int = 0) -> dict[int, Raft]:
    return {number: Raft(number, range(size), random.Random(f"{seed} {number}")) for number in range(size)}


MAKE: dict[str, Callable[[int], Mapping[int, Node]]] = {
    "bully": bullies,
    "ring": lambda size: ring(range(size)),
    "raft": rafts,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", MAKE)
def test_whoever_starts_all_agree_on_one_leader(method: str, size: int) -> None:
    for starter in range(size):
        network = Network(MAKE[method](size))
        network.start(starter)
        network.run(until=200)
        assert len(network.elected) == 1
        expected = starter if method == "raft" else size - 1
        assert set(network.leaders().values()) == {expected}


@pytest.mark.parametrize("method", MAKE)
def test_before_any_election_no_leader_is_known(method: str) -> None:
    assert {(node.leader, node.term) for node in MAKE[method](3).values()} == {(None, 0)}


def test_a_bully_does_not_follow_a_weaker_one() -> None:
    """A lower node has declared the leader dead: the leader announces itself, and the lower node follows it."""
    bully = bullies(4)[3]
    actions = bully.receive(Message("coordinator", 1, 3))
    assert bully.leader == 3
    assert Message("coordinator", 3, 1) in actions
    middle = bullies(4)[2]
    actions = middle.receive(Message("coordinator", 1, 2))
    assert middle.leader is None, "a stronger one may live"
    assert actions[0] == Message("election", 2, 3)


def test_a_ring_member_that_hears_nothing_starts_again_until_it_knows_the_leader() -> None:
    """Its message may be lost with the member that had it."""
    member = ring(range(3))[1]
    begun = member.start()
    assert begun == [Message("election", 1, 2, node=1), Timer(3 * 3 * member.hop_s)]
    assert member.timeout() == begun
    assert member.receive(Message("elected", 0, 1, node=2)) == [Message("elected", 1, 2, node=2), Timer(None)]
    assert member.timeout() == [], "it knows"


def test_a_ring_election_ends_with_its_leader_who_takes_part_in_the_next_one() -> None:
    highest = ring(range(3))[2]
    highest.start()
    assert highest.receive(Message("election", 1, 2, node=2)) == [Message("elected", 2, 0, node=2), Timer(None)]
    assert highest.leader == 2
    assert highest.receive(Message("elected", 1, 2, node=2)) == [], "it has been round"
    assert highest.receive(Message("election", 1, 2, node=0))[0] == Message("election", 2, 0, node=2), "a new election"


def test_a_bully_follows_a_stronger_one_and_waits_no_more() -> None:
    bully = bullies(4)[1]
    assert bully.receive(Message("coordinator", 2, 1)) == [Timer(None)]
    assert bully.leader == 2
    assert bully.timeout() == []


def test_a_bully_that_was_answered_waits_longer_and_asks_again_where_the_winner_stays_silent() -> None:
    bully = bullies(4)[1]
    asked = [Message("election", 1, 2), Message("election", 1, 3), Timer(bully.answer_s)]
    assert bully.start() == asked
    assert bully.receive(Message("answer", 2, 1)) == [Timer(4 * bully.answer_s)], "each of four may have to ask"
    assert bully.receive(Message("answer", 3, 1)) == [], "it has been answered"
    assert bully.timeout() == asked
    assert bully.leader is None


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize(("starter", "cost"), [(lambda n: n - 2, lambda n: n), (lambda n: 0, lambda n: n * (n - 1))])
def test_what_a_bully_election_costs(size: int, starter: Callable[[int], int], cost: Callable[[int], int]) -> None:
    network = Network(bullies(size))
    network.kill(size - 1)
    network.start(starter(size))
    network.run()
    assert network.leaders() == dict.fromkeys(range(size - 1), size - 2)
    assert network.sent.total() == cost(size)


def test_the_parts_of_the_bullys_cost() -> None:
    network = Network(bullies(7))
    network.kill(6)
    network.start(0)
    network.run()
    assert network.sent == Counter({"election": 7 * 6 // 2, "answer": 6 * 5 // 2, "coordinator": 6})


@pytest.mark.parametrize("size", SIZES)
def test_what_an_election_on_a_ring_costs(size: int) -> None:
    def cost(order: Sequence[int], *starters: int) -> int:
        network = Network(ring(order))
        network.start(*starters)
        network.run()
        assert set(network.leaders().values()) == {size - 1}
        return network.sent.total()

    rising, falling = list(range(size)), list(range(size))[::-1]
    assert cost(rising, size - 1) == 2 * size, "the highest starts"
    assert cost(rising, 0) == 3 * size - 1, "whoever is farthest from the highest starts"
    assert cost(rising, *rising) == 3 * size - 1
    assert cost(falling, *rising) == size * (size + 1) // 2 + size


@pytest.mark.parametrize("size", SIZES)
def test_what_an_undisturbed_raft_election_costs(size: int) -> None:
    network = Network(rafts(size))
    network.start(0)
    network.run(until=2.5)  # asked, answered, told; the next heartbeat is not due yet
    told = {"request vote": size - 1, "vote": size - 1, "heartbeat": size - 1}
    assert network.sent == Counter({kind: number for kind, number in told.items() if number})


@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_the_strongest_of_the_living_wins_in_every_order_of_events(data: st.DataObject, size: int, seed: int) -> None:
    dead = data.draw(st.sets(st.integers(0, size - 1), max_size=size - 1))
    living = sorted(set(range(size)) - dead)
    starters = data.draw(st.lists(st.sampled_from(living), min_size=1, unique=True))
    order = data.draw(st.permutations(living))
    for nodes in (bullies(size), ring(order)):
        network = Network(nodes, DELAYS, seed)
        for number in dead & nodes.keys():
            network.kill(number)
        network.start(*starters)
        network.run()
        assert network.leaders() == dict.fromkeys(living, living[-1])


@settings(max_examples=40, deadline=None)
@given(size=st.integers(2, 8), seed=st.integers(0, 10**6), when=st.floats(0, 12))
def test_the_strongest_may_die_in_the_middle_of_a_bully_election(size: int, seed: int, when: float) -> None:
    network = Network(bullies(size), DELAYS, seed)
    network.start(0)
    network.run(until=when)
    network.kill(size - 1)
    network.run()
    if size - 1 in network.leaders().values():  # it was elected, and its failure is detected later
        network.start(0)
        network.run()
    assert set(network.leaders().values()) == {size - 2}


@settings(max_examples=40, deadline=None)
@given(size=st.integers(2, 8), seed=st.integers(0, 10**6), when=st.floats(0, 12))
def test_a_ring_closes_over_who_dies_in_the_middle(size: int, seed: int, when: float) -> None:
    nodes = ring(range(size))
    network = Network(nodes, DELAYS, seed)
    network.start(0)
    network.run(until=when)
    network.kill(size - 1)
    for node in nodes.values():
        if node.number != size - 1:
            node.lost(size - 1)
    network.run()
    network.start(*[number for number, leader in network.leaders().items() if leader in (None, size - 1)])
    network.run()
    assert set(network.leaders().values()) == {size - 2}


def test_cut_in_two_bullies_have_two_leaders_and_one_again_when_the_stronger_is_told() -> None:
    network = Network(bullies(5))
    network.cut([{0, 1, 2}, {3, 4}])
    network.start(0, 3)
    network.run()
    assert network.leaders() == {0: 2, 1: 2, 2: 2, 3: 4, 4: 4}
    network.heal()
    network.start(0)
    network.run()
    assert set(network.leaders().values()) == {4}


def test_cut_in_two_only_the_majority_has_a_raft_leader() -> None:
    network = Network(rafts(5))
    network.start(4)
    network.run(until=8)
    assert set(network.leaders().values()) == {4}
    network.cut([{0, 1, 2}, {3, 4}])
    network.run(until=200)
    terms = {number: node.term for number, node in network.nodes.items()}
    leaders = network.leaders()
    assert len({leaders[number] for number in (0, 1, 2)}) == 1
    assert leaders[0] in (0, 1, 2)
    assert leaders[4] == 4, "the old leader does not know yet that it is none, but nobody else follows it"
    assert terms[4] < terms[0], "what it says in its old term, the others do not hear"
    network.heal()
    network.run(until=400)
    assert len(set(network.leaders().values())) == 1
    assert None not in network.leaders().values()


def test_raft_begins_the_next_term_and_waits_between_its_patience_and_twice_that() -> None:
    members = rafts(50)
    waits = []
    for number, member in members.items():
        for term in (1, 2):
            *asked, timer = member.start()
            assert asked == [Message("request vote", number, other, term) for other in members if other != number]
            assert isinstance(timer, Timer)
            waits.append(timer.seconds or 0)
    patience = members[0].patience_s
    assert patience <= min(waits) < 1.1 * patience
    assert 1.9 * patience < max(waits) <= 2 * patience


def test_without_a_majority_raft_has_no_leader() -> None:
    network = Network(rafts(4))
    for number in (2, 3):
        network.kill(number)
    network.start(0)
    network.run(until=500)
    assert network.leaders() == {0: None, 1: None}
    assert network.elected == []


@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.integers(1, 7), seed=st.integers(0, 10**6))
def test_no_raft_term_has_two_leaders_whatever_happens(data: st.DataObject, size: int, seed: int) -> None:
    """When the network is whole again, the living have one leader, if they are a majority."""
    network = Network(rafts(size, seed), (0.2, 6.0), seed)  # slow enough for candidates to conflict
    network.start(*range(size))
    members = st.integers(0, size - 1)
    for event in data.draw(st.lists(st.sampled_from(["kill", "cut", "heal", "start"]), max_size=6)):
        network.run(until=network.now + data.draw(st.floats(0, 30)))
        if event == "kill" and len(network.dead) < (size - 1) // 2:
            network.kill(data.draw(members))
        elif event == "cut":
            part = data.draw(st.sets(members))
            network.cut([part, set(range(size)) - part])
        elif event == "start":
            network.start(data.draw(members))
        else:
            network.heal()
    network.heal()
    network.run(until=network.now + 1000)
    terms = Counter(elected.term for elected in network.elected)
    assert all(leaders == 1 for leaders in terms.values())
    network.delay_s = DELAYS
    network.run(until=network.now + 500)
    [leader] = set(network.leaders().values())
    assert leader is not None


def test_a_message_to_the_dead_or_across_a_cut_is_counted_but_does_not_arrive() -> None:
    network = Network(bullies(3))
    network.kill(2)
    network.start(1)
    network.run()
    asked = [(message.kind, message.to, arrived) for _, arrived, message in network.messages]
    assert asked == [("election", 2, None), ("coordinator", 0, 4.0), ("coordinator", 2, None)]


def test_the_same_seed_is_the_same_election() -> None:
    def told(seed: int) -> list[object]:
        network = Network(bullies(6), DELAYS, seed)
        network.start(0, 1)
        network.run()
        return list(network.messages)

    assert told(3) == told(3) != told(4)
