"""What part of the cores' time a pipeline can fill: against the checker, and by hand."""

from __future__ import annotations

import pytest

from farandole.model_parallel.checker import execute
from farandole.model_parallel.schedules import choose
from farandole.model_parallel.steps import Times
from farandole_tools.bench.pipeline_bound import filled
from farandole_tools.bench.pipeline_task import SCHEDULES as BENCHED


@pytest.mark.parametrize("name", BENCHED)
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (2, 4), (4, 8), (7, 14)])
def test_with_a_core_for_each_stage_it_is_the_checkers_timeline(name: str, stages: int, micro_batches: int) -> None:
    times = Times(1.0, 1.25, 0.75)
    idle = execute(choose(name), stages, micro_batches, times).bubble_of_total
    assert filled(choose(name), stages, micro_batches, stages, times) == pytest.approx(1 - idle)


@pytest.mark.parametrize("name", BENCHED)
def test_a_single_core_is_never_idle(name: str) -> None:
    assert filled(choose(name), 4, 8, cores=1) == pytest.approx(1)


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_four_stages_on_two_cores_take_a_micro_batchs_time_longer_than_two_busy_cores(name: str) -> None:
    for micro_batches in (8, 16, 32):
        busy = 4 * micro_batches / 2  # in units of a stage's time for a micro-batch, forward and backward
        assert filled(choose(name), 4, micro_batches, cores=2) == pytest.approx(busy / (busy + 1))
