"""Compressed gradients between real ranks: the formula's bytes, the same bits everywhere, and learning."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, Run, UsageError, launch

PARAMETERS = 64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10  # 3466
MATRICES = [(32, 64), (32, 32), (10, 32)]
# Bytes of one gathered payload, by hand: 7 buckets of 512; 1 % of the entries; TernGrad's 2 bits, QSGD's 4.
GATHERED = {
    "bfloat16": 2 * PARAMETERS, "qsgd": 7 * 4 + PARAMETERS // 2, "terngrad": 7 * 4 + 867, "sign": 4 + 434,
    "top-k": 8 * 35, "dgc": 8 * 35,
}  # fmt: skip
# … and of one that is added on the way; PowerSGD's two, with the 74 biases.
ADDED = {
    "none": 4 * PARAMETERS, "float16": 2 * PARAMETERS, "random-k": 4 * 35,
    "powersgd": 4 * (2 * sum(rows + columns for rows, columns in MATRICES) + 74),
}  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_all_ranks_decode_the_same_sum_from_the_formulas_bytes(under_mpirun: Callable[..., Any], ranks: int) -> None:
    assert under_mpirun("compressed_exchange.py", ranks)["checked"] == 9 * 5 * 3


@pytest.mark.parametrize("ranks", [1, 3])
def test_all_ranks_detect_a_non_finite_gradient_in_the_same_step(under_mpirun: Callable[..., Any], ranks: int) -> None:
    found = under_mpirun("compressed_not_finite.py", ranks)
    assert len(found) == 24
    for message in found.values():
        assert message.startswith(f"the gradient of rank {ranks - 1} has a NaN or an infinity in 5 of 785 entries: ")


def test_a_training_whose_gradients_overflow_ends_with_one_line(tmp_path: Path) -> None:
    """After such a long step the network's outputs are infinite."""
    for scenario, ranks, options in (
        ("compressed_sgd", 2, {"compressor": "sign"}),
        ("choco_sgd", 2, {"compressor": "sign"}),
        ("parameter_server", 3, {"compressor": "sign"}),
        ("parameter_server", 3, {"topk": 0.1}),
    ):
        with pytest.raises(LaunchError) as ended:
            launch(scenario, ranks, steps=9, lr=1e30, **options, out=tmp_path / f"{scenario} {options}")
        first, *rest = str(ended.value).splitlines()
        assert re.search(r"rank \d at step \d cannot go on: .* (has|have) a NaN or an infinity", first), scenario
        assert not any("Traceback" in line for line in rest)
        assert ended.value.returncode == 1


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_powersgd_and_half_precision_equal_torchs(under_mpirun: Callable[..., Any], ranks: int) -> None:
    found = under_mpirun("compressed_torch.py", ranks)
    assert found["rounds"] == 6
    assert found["powersgd"] < 1e-4, "the same approximation, step after step"
    assert found["lost"] > 0.01, "and it is one"
    # Sums of 3 numbers are rounded in another order; of 2 they are the same.
    assert found["Float16"] <= (2**-9 if ranks > 2 else 0)
    assert found["BFloat16"] <= (2**-6 if ranks > 2 else 0)


@pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="no Horovod: make setup builds it")
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_half_precision_equals_horovods(under_mpirun: Callable[..., Any], ranks: int) -> None:
    found = under_mpirun("compressed_horovod.py", ranks)
    assert found["lost"] > 2**-14, "16 bits do lose something"
    assert found["apart"] <= (2**-9 if ranks > 2 else 0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [*GATHERED, *ADDED])
def test_a_training_sends_what_the_formula_says(name: str, tmp_path: Path) -> None:
    summary = launch("compressed_sgd", 3, steps=6, hidden=32, compressor=name, out=tmp_path / "run").summary
    assert len(set(summary.params_sha256 or [])) == 1
    assert summary.bytes_sent
    if name in GATHERED:
        assert summary.bytes_sent == [6 * 2 * GATHERED[name]] * 3
        assert summary.messages_sent == [6 * 2] * 3
    else:
        rounds = 2 if name == "powersgd" else 1
        assert summary.bytes_sent == [pytest.approx(6 * 4 / 3 * ADDED[name], abs=6 * rounds * 8)] * 3
        assert summary.messages_sent == [6 * 4 * rounds] * 3
    figures = summary.compression
    assert figures
    assert figures["ring_bytes"] == [pytest.approx(6 * 4 / 3 * 4 * PARAMETERS, abs=6 * 8)] * 3
    for rank in range(3):
        assert 0 < figures["encode_s"][rank] + figures["decode_s"][rank] < summary.compute_s[rank]
        assert 0 < figures["transfer_s"][rank] <= summary.comm_s[rank] * 1.001


def test_a_vote_sends_one_bit_an_entry_each_way_and_shared_scales_cost_no_byte(tmp_path: Path) -> None:
    for name, options, nbytes, messages in (
        ("vote", {"compressor": "majority-vote"}, 2 * 2 * (-(-434 // 3) + 1), 4),
        ("shared", {"compressor": "terngrad", "share_scales": True, "terngrad_clip": 2.5}, 2 * GATHERED["terngrad"], 4),
    ):
        summary = launch("compressed_sgd", 3, steps=6, hidden=32, **options, out=tmp_path / name).summary
        assert summary.bytes_sent == [6 * nbytes] * 3
        assert summary.messages_sent == [6 * messages] * 3
        assert len(set(summary.params_sha256 or [])) == 1


def test_without_compression_it_equals_synchronous_sgd_bitwise(tmp_path: Path) -> None:
    for ranks in (1, 3):
        none = launch("compressed_sgd", ranks, steps=20, compressor="none", out=tmp_path / f"none {ranks}").summary
        plain = launch("sync_sgd", ranks, steps=20, out=tmp_path / f"plain {ranks}").summary
        assert none.params_sha256 == plain.params_sha256
        assert none.bytes_sent == plain.bytes_sent
        assert plain.compression is None


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return launch("sync_sgd", 2, hidden=32, out=tmp_path_factory.mktemp("runs") / "plain")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("options", "margin"),
    [
        ({"compressor": "float16"}, 0.01),
        ({"compressor": "sign"}, 0.03),
        ({"compressor": "qsgd"}, 0.03),
        ({"compressor": "terngrad", "bucket": 64}, 0.05),
        ({"compressor": "terngrad", "bucket": 64, "feedback": True}, 0.05),
        ({"compressor": "terngrad", "terngrad_clip": 2.5, "share_scales": True}, 0.05),
        ({"compressor": "majority-vote", "lr": 0.003}, 0.08),
        ({"compressor": "top-k", "fraction": 0.05}, 0.03),
        ({"compressor": "powersgd"}, 0.03),
    ],
)
def test_compressed_training_learns_nearly_as_well(
    options: dict[str, Any], margin: float, plain: Run, tmp_path: Path
) -> None:
    run = launch("compressed_sgd", 2, hidden=32, **options, out=tmp_path / "run")
    assert plain.summary.test_accuracy
    assert run.summary.test_accuracy
    assert run.summary.test_accuracy >= plain.summary.test_accuracy - margin


def test_top_k_without_error_feedback_learns_less(tmp_path: Path) -> None:
    """Without error feedback the small gradients never count."""
    options: dict[str, Any] = {"steps": 120, "hidden": 32, "compressor": "top-k", "fraction": 0.002}
    kept = launch("compressed_sgd", 2, **options, out=tmp_path / "kept").summary
    lost = launch("compressed_sgd", 2, **options, feedback=False, out=tmp_path / "lost").summary
    assert kept.test_accuracy
    assert lost.test_accuracy
    assert kept.test_accuracy > lost.test_accuracy + 0.1


def test_a_record_of_an_earlier_version_opens(plain: Run, tmp_path: Path) -> None:
    values = json.loads((plain.folder / "summary.json").read_text())
    del values["compression"]
    (tmp_path / "summary.json").write_text(json.dumps(values))
    assert Run.open(tmp_path).summary.compression is None
    del values["steps"]
    (tmp_path / "summary.json").write_text(json.dumps(values))
    with pytest.raises(UsageError, match="lacks steps"):
        _ = Run.open(tmp_path).summary


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compressor": "dgc", "optimizer": "momentum"}, "holds the momentum itself"),
        ({"compressor": "dgc", "feedback": False}, "leave out --feedback and --no-feedback"),
        ({"fraction": 0}, "--fraction"),
        ({"levels": 40000}, "--levels"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        launch("compressed_sgd", 2, steps=2, **options, out=tmp_path / "run")
