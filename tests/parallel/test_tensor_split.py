"""The tensor split under mpirun: every layer is the whole layer, and costs what the formula says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import launch
from farandole.errors import UsageError
from tests.parallel.conftest import RANKS_OF_DEAR_TESTS

RANKS = RANKS_OF_DEAR_TESTS  # of 8 heads 3 and 7 ranks get unequal shares

# After 5 steps at a learning rate of 0.2, from sums added in another order.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", RANKS)
def test_every_layer_equals_the_whole_one(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("tensor_layers.py", ranks)
    assert len(answer) == 13
    for layer, differences in answer.items():
        assert len(differences) >= 3, layer
        for what, difference in differences.items():
            assert difference <= 1e-12, (layer, what)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", RANKS)
def test_every_step_equals_the_unsplit_model(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("tensor_training.py", ranks)
    for kind, tolerance in TOLERANCE.items():
        assert set(answer[kind]) == {"transformer", "mlp", "deep"}
        for name, found in answer[kind].items():
            for what in ("difference", "loss difference", "whole model's outputs"):
                assert found[what] <= tolerance, (kind, name, what)
            assert found["moved"] > 0.05, f"{name} was trained at all"
            assert found["copies"] == 1, f"{name}: replicated parameters and the loss are the same bits on all ranks"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", RANKS)
def test_dividing_the_sequence_too_changes_nothing_but_memory(under_mpirun: Callable[..., Any], ranks: int) -> None:
    """The program asserts the bytes of a block, and that replicated parameters are the same bits on all ranks."""
    answer = under_mpirun("tensor_sequence.py", ranks)
    assert answer["block"] <= 1e-12
    for kind, tolerance in TOLERANCE.items():
        assert answer[kind]["parameters"] <= tolerance, kind
        assert answer[kind]["loss"] <= tolerance, kind
        assert answer[kind]["moved"] > 0.05, kind


def test_a_sequence_that_is_divided_leaves_a_part_of_the_activations(tmp_path: Path) -> None:
    text: dict[str, Any] = {"data": "pydoc", "model": "transformer", "hidden": 64, "batch": 8, "steps": 2}
    runs = {
        (ranks, sequence): launch(
            "tensor_split", ranks, sequence_parallel=sequence, precision="float64", out=tmp_path / f"{ranks}{sequence}",
            **text,
        )
        for ranks, sequence in ((1, False), (2, False), (2, True))
    }  # fmt: skip
    losses = {case: [line["loss"] for line in run.metrics] for case, run in runs.items()}
    assert losses[2, True] == pytest.approx(losses[1, False], abs=1e-12)
    memory = {case: run.summary.memory or {} for case, run in runs.items()}
    held = {case: max(found["measured"]["activations"]) for case, found in memory.items()}
    assert held[2, True] / held[1, False] == pytest.approx(1 / 2, abs=0.005)
    assert held[2, False] / held[1, False] > 0.6
    for found in memory.values():
        assert found["measured"]["activations"] == pytest.approx(found["formula"]["activations"], rel=0.01)


def test_only_text_has_positions_to_divide(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="divides the positions of text: give --model transformer"):
        launch("tensor_split", 2, sequence_parallel=True, out=tmp_path / "run")


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_loss_of_divided_logits_is_torchs(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("tensor_cross_entropy.py", ranks)
    assert len(answer) == 12
    for case, difference in answer.items():
        assert difference <= (1e-12 if "float64" in case else 2e-6), case


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_messages_and_bytes_are_those_of_the_formula(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("tensor_costs.py", ranks)
    rows, width, nothing = ranks * 6, 128, {"all-reduces": 0, "of bytes": [], "bytes": 0, "messages": 0}
    size = 4 * rows * width  # bytes of the activations

    def all_reduces(count: int) -> dict[str, Any]:
        if ranks == 1:
            return nothing
        ring = 2 * (ranks - 1)  # messages of size / ranks
        return {
            "all-reduces": count,
            "of bytes": [size],
            "bytes": count * ring * size // ranks,
            "messages": count * ring,
        }

    for rank, costs in enumerate(answer["ranks"]):
        assert costs["block"] == {"forward": all_reduces(2), "backward": all_reduces(2)}
        assert costs["no gradient"] == all_reduces(2)
        assert costs["embedding"] == {"forward": all_reduces(1), "backward": nothing}
        assert costs["head"] == {"forward": nothing, "backward": all_reduces(1)}
        assert costs["pair"] == {"forward": all_reduces(1), "backward": nothing}, "nobody wants the input's gradient"

        # All blocks but the right neighbour's pass through a rank in an all-gather.
        messages = {**nothing, "messages": ranks - 1}
        shares = [42 // ranks + (other < 42 % ranks) for other in range(ranks)]
        gathered = 4 * rows * (42 - shares[(rank + 1) % ranks]) if ranks > 1 else 0
        assert costs["alone"] == {"forward": {**messages, "bytes": gathered}, "backward": all_reduces(1)}
        loss = {**messages, "bytes": (ranks - 1) * 3 * 4 * rows}
        assert costs["cross-entropy"] == {"forward": loss, "backward": nothing}

        # Per block 4 matrices of attention with 3 divided biases, 2 of the feed-forward network with 1.
        columns, middle = answer["columns"], [512 // ranks + (other < 512 % ranks) for other in range(ranks)]
        parts = [
            column * (4 * width + 3) + share * (2 * width + 1) for column, share in zip(columns, middle, strict=True)
        ]
        sent = 4 * (sum(parts) - parts[(rank + 1) % ranks]) if ranks > 1 else 0
        assert costs["whole"]["forward"] == {**nothing, "bytes": sent, "messages": 10 * (ranks - 1)}
