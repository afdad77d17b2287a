"""Mixed precision under mpirun: the same as in one process, all ranks skip the same steps, and it learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import UsageError, launch
from farandole.runtime.launcher import run_ranks


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_step_equals_one_process_and_overflows_are_skipped_on_all_ranks(
    under_mpirun: Callable[..., Any], ranks: int
) -> None:
    found = under_mpirun("mixed.py", ranks)
    assert found["difference"] < 2e-2, "a bit of bfloat16 at most, where a sum in another order crosses it"
    assert found["skipped"] == [1, 512.0, True], "one step left out, the scale halved, nothing moved"
    assert found["goes_on"]
    assert found["kept"]


DIGITS: dict[str, Any] = {"steps": 160, "hidden": 32}
TEXT: dict[str, Any] = {"steps": 60, "hidden": 16, "depth": 1, "batch": 8, "optimizer": "adam", "lr": 0.01}
TEXT |= {"data": "pydoc", "model": "transformer"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("precision", "options", "least"),
    [
        ("float16", DIGITS, 0.8),
        ("bfloat16", DIGITS, 0.8),
        ("float16", TEXT, 0.23),  # the most frequent character is a fifth of all
        ("bfloat16", TEXT, 0.23),
        ("bfloat16", TEXT | {"float32_layers": ["norms"]}, 0.23),
    ],
    ids=["float16-digits", "bfloat16-digits", "float16-text", "bfloat16-text", "bfloat16-text-norms"],
)
def test_mixed_precision_learns_as_well_as_float32(
    precision: str, options: dict[str, Any], least: float, tmp_path: Path
) -> None:
    half = launch("sync_sgd", 2, **options, precision=precision, out=tmp_path / "half")
    plain = {name: value for name, value in options.items() if name != "float32_layers"}
    full = launch("sync_sgd", 2, **plain, out=tmp_path / "full")
    assert len(set(half.summary.params_sha256)) == 1
    assert half.summary.params_sha256 != full.summary.params_sha256
    assert half.summary.test_accuracy == pytest.approx(full.summary.test_accuracy, abs=0.03)
    assert half.summary.test_accuracy > least
    assert half.summary.bytes_sent == full.summary.bytes_sent, "gradients are sent in float32"


def test_shared_memory_gives_the_same_parameters_bit_by_bit(tmp_path: Path) -> None:
    """The sum of two numbers has one order."""
    options = {"steps": 10, "hidden": 32, "precision": "float16"}
    ring, window = (
        launch("sync_sgd", 2, **options, collective=collective, out=tmp_path / collective).summary
        for collective in ("ring", "window")
    )
    assert window.params_sha256 == ring.params_sha256
    assert window.bytes_sent == [0, 0], "nothing is copied"


def test_incompatible_options_are_refused() -> None:
    with pytest.raises(UsageError, match="--precision float16 goes without --overlap"):
        run_ranks(["-m", "farandole.scenarios.sync_sgd", "--precision", "float16", "--overlap"], 1)
    with pytest.raises(UsageError, match="--float32-layers is for --precision float16 or bfloat16"):
        run_ranks(["-m", "farandole.scenarios.sync_sgd", "--float32-layers", "norms"], 1)
    with pytest.raises(UsageError, match="--float32-layers norm: there is no such layer; choose from norms, softmax"):
        run_ranks(["-m", "farandole.scenarios.sync_sgd", "--precision", "bfloat16", "--float32-layers", "norm"], 1)
    with pytest.raises(UsageError, match="--precision bfloat16 goes without --shard-optimizer"):
        run_ranks(["-m", "farandole.scenarios.backup", "--precision", "bfloat16", "--shard-optimizer"], 1)
