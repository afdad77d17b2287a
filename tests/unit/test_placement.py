"""The roles of the ranks, and refused placements."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.errors import UsageError
from farandole.parameter_server import choices
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.placement import Placement


def test_the_usual_placement() -> None:
    placement = Placement.usual(6, servers=2)
    assert (placement.servers, placement.workers, placement.cleaner) == ((1, 2), (3, 4, 5), 0)
    assert placement.roles(0) == ["manager", "cleaner"]
    assert placement.roles(2) == ["server"]


@given(st.integers(1, 40), st.integers(1, 5), st.none() | st.integers(2, 6))
def test_every_rank_has_a_role_and_every_worker_a_way_to_the_servers(
    ranks: int, servers: int, fan_in: int | None
) -> None:
    try:
        placement = Placement.usual(ranks, servers, fan_in)
    except UsageError:
        assert ranks < 1 + servers + (2 if fan_in else 1)
        return
    assert all(len(placement.roles(rank)) >= 1 for rank in range(ranks))
    assert len(placement.workers) >= 1
    if fan_in:
        groups = [placement.members(node) for node in placement.aggregators]
        assert sorted(worker for group in groups for worker in group) == list(placement.workers)
        assert all(1 <= len(group) <= fan_in for group in groups)
        assert all(placement.aggregator_of(worker) is not None for worker in placement.workers)
    else:
        assert placement.aggregator_of(placement.workers[0]) is None


def test_a_placement_in_words() -> None:
    placement = Placement.parse("servers=0+2,cleaner=1,workers=3-5", 6)
    assert (placement.servers, placement.cleaner, placement.workers) == ((0, 2), 1, (3, 4, 5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servers=1,workers=2", "rank 3 has no role"),
        ("servers=1,workers=1-3", "and nothing else, or a server once"),
        ("servers=1,workers=0+2+3", "and nothing else, or a server once"),
        ("servers=1+1,workers=2+3", "and nothing else, or a server once"),
        ("server=1,workers=2+3", "'server=1' does not fit"),
        ("servers=1,servers=2,workers=3", "'servers=2' does not fit"),
        ("servers=1,workers=2-9", "there is no rank 9"),
        ("servers=one,workers=2+3", "'one' is not a list of ranks"),
        ("servers=,workers=2+3", "'' is not a list of ranks"),
        ("servers=1,workers=", "'' is not a list of ranks"),
        ("workers=1-3", "at least one server and one worker"),
        ("servers=1,cleaner=1+2,workers=3", "there is one cleaner"),
        ("servers=1,aggregators=2,workers=3,", "'' does not fit"),
    ],
)
def test_words_that_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        Placement.parse(text, 4)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"update": "sgd", "period": 4}, "--period is for --update elastic"),
        ({"update": "elastic", "period": 4, "server_change": ("step=2,servers=1",)}, "leave out one of them"),
        ({"update": "twice"}, "give --sync bsp, without --sync ssp"),
        ({"update": "twice", "sync": "bsp", "tree": 2}, "leave out --tree"),
        ({"update": "elastic", "sync": "partial"}, "--update elastic needs every push applied once"),
        ({"update": "blend", "topk": 0.1}, "leave out --topk"),
        ({"update": "elastic", "tree": 2}, "leave out --tree"),
        ({"topk": 0.1, "tree": 2}, "leave out one of them"),
        ({"topk": 0.1, "sync": "history"}, "--sync history"),
        ({"update": "delay-compensated", "sync": "history"}, "needs what a gradient was computed at"),
        ({"compressor": "sign", "topk": 0.1}, "--compressor sign does not go with --topk"),
        ({"compressor": "qsgd", "tree": 2}, "--compressor qsgd does not go with --tree"),
        ({"compressor": "qsgd", "update": "blend"}, "does not go with --update blend"),
        ({"compressor": "float16", "transport": "window"}, "does not go with --transport window"),
        ({"compressor": "sign", "sync": "history"}, "does not go with --sync history"),
        ({"levels": 3}, "--levels is for --compressor qsgd, not for none: leave it out"),
        ({"compressor": "sign", "bucket": 40}, "--bucket is for --compressor qsgd or terngrad, not for sign"),
        ({"transport": "window", "tree": 2}, "use --transport messages"),
        ({"transport": "window", "sync": "history"}, "use --transport messages"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choices.check(PolicyOptions(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sync": "partial", "enough": 4}, "--enough 4: a step has at most 3 gradients"),
        ({"sync": "dssp", "least_staleness": 5}, "--least-staleness 5 is more than --staleness 4"),
    ],
)
def test_policies_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choices.make_policy(PolicyOptions(**options), [2, 3, 4])
