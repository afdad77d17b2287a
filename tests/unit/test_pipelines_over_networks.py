"""Pipelines and grids over networks: the times without one, a makespan by hand, and what placement changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from farandole.collectives.costs import Link
from farandole.cost import stage_flows
from farandole.cost.choice import GRID, Choice
from farandole.cost.comparison import Row, compared
from farandole.cost.division import divided
from farandole.cost.networks import named
from farandole.cost.setting import Setting
from farandole.cost.stage_clock import Clock
from farandole.cost.stage_messages import messages
from farandole.cost.stragglers import parse
from farandole.errors import UsageError
from farandole.model_parallel.schedules import ONE_WAY
from tests.unit.fluid_pipelines import fluid_s

ALPHA, BORDER_S, PARAMETERS_S = 0.01, 0.05, 0.04  # of a message: no bytes, an activation's, all parameters'
# Two copies of two stages, two micro-batches: 0.1 s forward and 0.2 s backward for each.
SQUARE = Setting(4, 1, 0.6, link=Link(ALPHA, 1.0), nbytes=PARAMETERS_S)
CUT = Choice(stages=2, micro_batches=2, activation=BORDER_S)
NARROW = "two-level:rack=2,over=4,hop-us=0"  # two messages that leave a rack at once take four times as long
SCATTERED = Setting(16, 3, 0.1, parse("lognormal:0.5"), 4e6, Link(1e-4, 1e-8), seed=3)


def over(text: str, setting: Setting, choice: Choice = CUT, method: str = "gpipe") -> Row:
    return compared(method, replace(setting, network=named.parse(text)), choice)


def makespan(border_s: float, update_s: float) -> float:
    """GPipe on `SQUARE`, step by step."""
    sent = [0.1 + border_s, max(0.2, 0.1 + border_s) + border_s]  # the second one waits for the first one's link
    forward = sent[0] + ALPHA + 0.1
    forward = max(forward, sent[1] + ALPHA) + 0.1
    back = [forward + 0.2 + border_s, max(forward + 0.4, forward + 0.2 + border_s) + border_s]
    first = max(back[0] + ALPHA, 0.2) + 0.2
    return max(first, back[1] + ALPHA) + 0.2 + update_s


def test_a_makespan_by_hand() -> None:
    """A stage in a rack: all borders cross the racks' links. A pipeline in a rack: all rings of the update do."""
    near, far = 2 * (ALPHA + PARAMETERS_S / 4), 2 * (ALPHA + 4 * PARAMETERS_S / 4)
    assert compared("gpipe", SQUARE, CUT).outcome.wall_s == pytest.approx(makespan(BORDER_S, near))
    assert over("single-switch", SQUARE).outcome.wall_s == pytest.approx(makespan(BORDER_S, near))
    by_stage, in_order = over(f"{NARROW},placement=by-stage", SQUARE), over(NARROW, SQUARE)
    assert by_stage.outcome.wall_s == pytest.approx(makespan(4 * BORDER_S, near)) == pytest.approx(1.46)
    assert in_order.outcome.wall_s == pytest.approx(makespan(BORDER_S, far)) == pytest.approx(1.12)
    for row in (by_stage, in_order):
        assert row.network
        assert (row.network.bottleneck, row.network.alike) == ("rack 0 up", 4)
    assert by_stage.network
    assert by_stage.network.seconds == pytest.approx(2 * (4 * BORDER_S + ALPHA) + near)
    assert by_stage.network.one_switch_s == pytest.approx(2 * (BORDER_S + ALPHA) + near)


WITHOUT_CONTENTION = ["single-switch", "two-level:rack=4,over=1,hop-us=0", "fat-tree:hop-us=0"]
STAGES = [1, 4, 16]
PLACEMENTS = ["order", "random", "by-stage"]


@pytest.mark.parametrize(  # a Latin square: every two of the three occur together
    ("network", "stages", "placement"),
    [(WITHOUT_CONTENTION[i], STAGES[j], PLACEMENTS[(i + j) % 3]) for i in range(3) for j in range(3)],
)
def test_without_contention_the_times_are_those_without_a_network(network: str, stages: int, placement: str) -> None:
    text = f"{network}{',' if ':' in network else ':'}placement={placement}"
    for method, choice in (("gpipe", Choice(stages=stages)), ("naive", Choice(stages=stages))):
        alone = compared(method, SCATTERED, choice).outcome
        found = over(text, SCATTERED, choice, method)
        assert found.outcome.wall_s == pytest.approx(alone.wall_s, rel=1e-12)
        assert found.network
        assert found.network.slower == pytest.approx(1)
        assert found.network.bottleneck == ""


@pytest.mark.parametrize("schedule", ONE_WAY)
def test_a_network_is_never_faster_and_tensor_ranks_share_nothing_within_their_node(schedule: str) -> None:
    choice = Choice(stages=2, tensor=4, schedule=schedule)
    alone = compared(GRID, SCATTERED, choice).outcome.wall_s
    one_switch = over("single-switch", SCATTERED, choice, GRID).outcome.wall_s
    assert one_switch >= alone * (1 - 1e-12)
    for placement in ("order", "random", "by-stage"):
        narrow = over(f"two-level:rack=4,over=4,placement={placement}", SCATTERED, choice, GRID)
        assert narrow.outcome.wall_s > one_switch
        assert narrow.network
        assert 1 < narrow.network.slower < 4.1
    near = [messages(GRID, replace(SCATTERED, network=each), choice).exchange_s
            for each in (None, named.parse("torus"))]  # fmt: skip
    assert near[0] == near[1] > 0


def test_two_neighbours_that_send_to_a_stage_at_once_share_its_link() -> None:
    """GPipe has one direction at a time. 1F1B has both, so a message may have half of a link while it is under way."""
    choice = Choice(stages=4, micro_batches=8, activation=0.8)
    switch = Setting(4, 1, 1.0, link=Link(0.0, 0.1), network=named.parse("single-switch"))
    for schedule, least, most in (("gpipe", 1.0, 1.0), ("1f1b", 1.2, 2.0)):
        takes = messages(schedule, switch, choice)
        busy = [passing.busy / takes.border.busy for passing in takes.unlike.values()]
        assert min(busy) == pytest.approx(1.0)
        assert least * (1 - 1e-9) <= max(busy) <= most * (1 + 1e-9)


def test_copies_whose_messages_share_other_links_take_other_times() -> None:
    """Racks of three hosts: of four pipelines of two stages the second and the seventh worker's are apart."""
    setting = replace(SQUARE, workers=8, nbytes=0.0)
    takes = messages("gpipe", replace(setting, network=named.parse("two-level:rack=3,over=6,hop-us=0")), CUT)
    assert takes.by_copy
    [slowest] = {tuple(each.busy.round(6)) for each in takes.unlike.values()}
    assert slowest == (0.05, 0.1, 0.05, 0.05)


def test_what_would_take_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_flows, "MOST_RATES", 3)
    with pytest.raises(UsageError, match="too many messages share links at different times"):
        over(NARROW, replace(SQUARE, seed=1))  # which no other test has kept


@pytest.mark.parametrize("network", ["single-switch:placement=by-stage", "two-level:rack=4,over=4,placement=by-stage",
                                     "fat-tree:routing=hash,placement=random", "dragonfly:placement=order",
                                     "torus:sides=3x7,placement=random"])  # fmt: skip
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb-v"])
def test_a_step_takes_as_long_as_by_an_oracle_that_groups_nothing(network: str, schedule: str) -> None:
    for activation in (1e6, 1e8):  # of a worker's step a message takes a thousandth, and a tenth
        choice = Choice(stages=4, micro_batches=8, activation=activation)
        setting = Setting(16, 1, 0.1, link=Link(1e-3, 1e-10), network=named.parse(f"{network},hop-us=900"), seed=2)
        takes = replace(messages(schedule, setting, choice), update_s=[0.0] * 4)
        clock = Clock(divided(schedule, 16, choice), takes, 4)
        clock.step(np.full((4, 4), setting.compute_s))
        assert clock.latest == pytest.approx(fluid_s(schedule, setting, choice), rel=1e-6)
