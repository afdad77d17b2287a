"""DiLoCo is a loop over models that drift, with an outer Nesterov step; its bytes are those of one step in H."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import launch
from farandole.cost.outer_rounds import OuterRounds
from farandole.cost.setting import Setting
from farandole.data_parallel.outer_step import Outer
from farandole.errors import UsageError

IN_FLOAT32 = 2e-6  # from the loop in float64, of parameters that move by 0.05 and more


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_step_equals_the_loop_in_one_process(under_mpirun: Callable[..., Any], ranks: int) -> None:
    found = under_mpirun("diloco_steps.py", ranks)
    assert found.pop("float32") < IN_FLOAT32
    assert all(case["moved"] > 0.05 for case in found.values())
    if ranks == 1:
        return
    # In 11 steps of period 3: after 3, 6, 9 and 11. Of three fragments with period 4, one is due after 4 and 8, one
    # after 3, 7 and 11, one after 2, 6 and 10; at the end follow the first and the last.
    assert [case["messages"] for case in found.values()] == [4, 11, 3 + 3 + 4, 3 + 3 + 4, 4]
    assert [case["messages"] for case in found.values()] == [sums(3), sums(1), sums(4, 3), sums(4, 3, 2), sums(3, 1, 2)]
    assert [case["vectors"] for case in found.values()] == pytest.approx([4, 11, 10 / 3, 10 / 3, 4], rel=0.03)


def sums(period: int, fragments: int = 1, delay: int = 0) -> int:
    """The number of fragments that the ranks add up in 11 steps; the simulator counts the same."""
    outer = Outer(period, 0.7, 0.9, fragments, delay)
    simulated = OuterRounds(Setting(4, 11), outer, reduce_s=1.0).run()
    sent = sum(outer.sends(fragment, step) for fragment in range(fragments) for step in range(1, 12))
    if not delay:
        assert simulated.comm_s == 4 * (sent + len(outer.left(11)))
    return sent + len(outer.left(11))


def test_it_learns_with_one_all_reduce_per_period(tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 125, "hidden": 32}
    run = launch("diloco", 3, period=25, **options, out=tmp_path / "diloco").summary
    whole = launch("sync_sgd", 3, **options, out=tmp_path / "sync").summary
    assert [sent / every for sent, every in zip(run.bytes_sent, whole.bytes_sent, strict=True)] == [1 / 25] * 3
    assert [sent / every for sent, every in zip(run.messages_sent, whole.messages_sent, strict=True)] == [1 / 25] * 3
    assert len(set(run.params_sha256 or [])) == 1
    assert run.test_accuracy is not None
    assert run.test_accuracy > 0.85


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"period": 4, "fragments": 5}, "--fragments 5 in a --period of 4 steps: give at most 4"),
        ({"mixing": 0.9}, "--mixing 0.9 is for a --delay"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        launch("diloco", 1, steps=2, out=tmp_path / "run", **options)
