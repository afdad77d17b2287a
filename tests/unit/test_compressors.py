"""Compressors: guarantees about values, bytes and errors; one process, no messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from farandole.compression.choices import build
from farandole.compression.compressor import Compressor, Uncompressed, Vector
from farandole.compression.contraction import contraction
from farandole.compression.dgc import DGC
from farandole.compression.error_feedback import ErrorFeedback
from farandole.compression.half_precision import BFloat16, Float16
from farandole.compression.majority_vote import MajorityVote
from farandole.compression.options import CompressionOptions, check, error_below_one
from farandole.compression.packing import pack, packed_bytes, unpack
from farandole.compression.powersgd import PowerSGD, orthogonalised
from farandole.compression.qsgd import QSGD
from farandole.compression.random_k import RandomK, SeededRandomK
from farandole.compression.sign import Sign
from farandole.compression.table import COMPRESSORS, FEEDBACK, MEANT_FOR
from farandole.compression.terngrad import TernGrad
from farandole.compression.top_k import TopK, largest
from farandole.errors import UsageError


def generator(seed: int = 3) -> np.random.Generator:
    return np.random.default_rng(seed)


MAKERS: dict[str, Callable[[], Compressor]] = {
    "none": Uncompressed,
    "float16": Float16,
    "bfloat16": BFloat16,
    "sign": Sign,
    "terngrad": lambda: TernGrad(generator(), bucket=64),
    "qsgd": lambda: QSGD(generator(), levels=4, bucket=64),
    "top-k": lambda: TopK(0.1),
    "random-k": lambda: RandomK(generator(), 0.1),
    "random-k, seeded": lambda: SeededRandomK(generator(), 0.1),
}
# The bytes of a vector of 1000 entries, worked out by hand: 16 buckets of 64; s = 4 has 9 codes, so 4 bits.
BYTES = {
    "none": 4000, "float16": 2000, "bfloat16": 2000, "sign": 4 + 125, "terngrad": 16 * 4 + 250, "qsgd": 16 * 4 + 500,
    "top-k": 800, "random-k": 400, "random-k, seeded": 8 + 400,
}  # fmt: skip


def noise(length: int, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).standard_normal(length).astype(np.float32)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("length", [0, 1, 7, 63, 64, 65, 1000])
def test_the_bytes_are_known_beforehand(name: str, length: int) -> None:
    compressor, vector = MAKERS[name](), noise(length)
    before = vector.copy()
    expected = compressor.nbytes(length)
    payload = compressor.encode(vector)
    assert (payload.dtype, payload.ndim, payload.flags.c_contiguous) == (np.uint8, 1, True)
    assert len(payload) == expected
    assert vector.tobytes() == before.tobytes(), "encoding leaves its argument as it is"
    decoded = compressor.decode(payload, length)
    assert (decoded.dtype, decoded.shape) == (np.float32, (length,))
    assert decoded.tobytes() == compressor.decode(payload, length).tobytes(), "decoding changes nothing"
    assert length != 1000 or len(payload) == BYTES[name]


@pytest.mark.parametrize("name", MAKERS)
def test_zeros_stay_zeros(name: str) -> None:
    compressor = MAKERS[name]()
    assert not compressor.decode(compressor.encode(np.zeros(100, np.float32)), 100).any()


BAD = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("bad", BAD)
def test_what_is_not_finite_is_never_hidden(name: str, bad: float) -> None:
    compressor, vector = MAKERS[name](), noise(200)
    vector[70] = bad
    decoded = compressor.decode(compressor.encode(vector), 200)
    if name.startswith("random-k"):  # 70 itself may not have been drawn
        assert np.isnan(decoded[np.flatnonzero(decoded)]).all()
        assert np.isnan(decoded).sum() == 20
        return
    assert not math.isfinite(decoded[70])
    if name in ("qsgd", "terngrad"):
        assert np.isfinite(decoded[:64]).all(), "nor spread beyond its bucket"
        assert np.isnan(decoded[64:128]).all()


@pytest.mark.parametrize("name", ["sign", "terngrad", "qsgd"])
@pytest.mark.parametrize("power", [-100, 100])
def test_small_and_large_numbers_are_rounded_alike(name: str, power: int) -> None:
    """Although float32 holds neither their squares nor, of the large ones, much of a sum."""
    vector, factor = noise(200), np.float32(2.0**power)
    plain, scaled = MAKERS[name](), MAKERS[name]()
    expected = factor * plain.decode(plain.encode(vector), 200)
    assert scaled.decode(scaled.encode(factor * vector), 200).tolist() == expected.tolist()


def test_a_mean_is_finite_where_the_sum_is_not() -> None:
    vector = np.float32([3e38, -3e38, 3e38, 3e38])
    assert Sign().decode(Sign().encode(vector), 4).tolist() == vector.tolist()


def test_a_norm_that_is_too_large_for_float32_is_seen_in_its_bucket() -> None:
    compressor, vector = MAKERS["qsgd"](), noise(128)
    vector[:64] = 2e38
    decoded = compressor.decode(compressor.encode(vector), 128)
    assert np.isnan(decoded[:64]).all()
    assert np.isfinite(decoded[64:]).all()


@given(st.integers(1, 16), st.integers(0, 50), st.integers(0, 1000))
def test_packing_keeps_the_numbers(bits: int, count: int, seed: int) -> None:
    numbers = np.random.default_rng(seed).integers(0, 1 << bits, count)
    packed = pack(numbers, bits)
    assert len(packed) == packed_bytes(count, bits)
    assert unpack(packed, bits, count).tolist() == numbers.tolist()


def test_half_precision_is_what_torch_rounds_to() -> None:
    vector = np.concatenate([noise(5000) * np.float32(10.0) ** noise(5000, 1), np.float32([1 + 2**-8, 1 + 3 * 2**-8])])
    for compressor, kind in ((Float16(), torch.float16), (BFloat16(), torch.bfloat16)):
        theirs = torch.from_numpy(vector).to(kind).float().numpy()
        assert compressor.decode(compressor.encode(vector), len(vector)).tobytes() == theirs.tobytes()
    normal = vector[(np.abs(vector) > 6.2e-5) & (np.abs(vector) < 65504)]
    assert len(normal) > 4000
    for compressor, bound in ((Float16(), 2**-11), (BFloat16(), 2**-8)):
        error = np.abs(compressor.decode(compressor.encode(normal), len(normal)) - normal) / np.abs(normal)
        assert 0.9 * bound < error.max() <= bound
    assert np.isinf(Float16().decode(Float16().encode(np.float32([1e6])), 1)), "too large for it, and seen to be"
    assert np.isfinite(BFloat16().decode(BFloat16().encode(np.float32([1e6])), 1))


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF])
def test_every_nan_stays_one_in_half_precision(bits: int) -> None:
    """Rounding a NaN's fraction would make it an infinity or a zero."""
    vector = np.array([bits], np.uint32).view(np.float32)
    for compressor in (Float16(), BFloat16()):
        assert np.isnan(compressor.decode(compressor.encode(vector), 1)).all()


def many(compressor: Compressor, vector: Vector, times: int) -> np.ndarray:
    return np.stack([compressor.decode(compressor.encode(vector), len(vector)) for _ in range(times)])


@pytest.mark.parametrize("name", ["terngrad", "qsgd", "random-k", "random-k, seeded"])
def test_unbiased(name: str) -> None:
    """Of 4000 draws each entry's mean is within 5 standard errors: by chance not so once in 9,000 such tests of 200."""
    vector, times = noise(200), 4000
    drawn = many(MAKERS[name](), vector, times)
    errors = np.maximum(drawn.std(axis=0, ddof=1), 1e-6) / np.sqrt(times)
    assert (np.abs(drawn.mean(axis=0, dtype=np.float64) - vector) < 5 * errors + 1e-6).all()


@pytest.mark.parametrize("compressor", [TernGrad(generator(), bucket=64), QSGD(generator(), levels=4, bucket=64)])
def test_equal_entries_are_rounded_each_by_its_own_draw(compressor: Compressor) -> None:
    """64 entries that are rounded up with probability 1/2: one draw for all would give all the same value."""
    vector = np.ones(64, np.float32)
    if isinstance(compressor, TernGrad):
        vector[0] = 2
    drawn = compressor.decode(compressor.encode(vector), 64)
    assert set(drawn[1:].tolist()) == {0, 2}


@pytest.mark.parametrize("name", ["sign", "top-k"])
def test_biased_and_said_to_be(name: str) -> None:
    vector = noise(200)
    assert np.abs(many(MAKERS[name](), vector, 3).mean(axis=0) - vector).max() > 0.1


@pytest.mark.parametrize(("levels", "length"), [(1, 64), (4, 64), (4, 16), (16, 64)])
def test_the_variance_of_qsgd_is_within_its_bound(levels: int, length: int) -> None:
    vector = noise(length)
    drawn = many(QSGD(generator(), levels, bucket=length), vector, 2000)
    variance = np.square(drawn - vector, dtype=np.float64).sum(axis=1).mean()
    bound = min(length / levels**2, math.sqrt(length) / levels) * np.square(vector).sum()
    assert 0.05 * bound < variance <= bound
    # By the formula of the rounding itself: Σ (‖v‖/s)²·f(1 − f), f the part above the lower level.
    norm = np.linalg.norm(vector.astype(np.float64))
    above = (levels * np.abs(vector) / norm) % 1
    assert variance == pytest.approx(((norm / levels) ** 2 * above * (1 - above)).sum(), rel=0.05)


def test_qsgd_gives_levels_of_the_norm() -> None:
    vector = np.float32([3, 0, -4, 0])  # its norm is 5
    drawn = many(QSGD(generator(), levels=5, bucket=4), vector, 50)
    assert (drawn == vector).all(), "levels of 1: nothing to round"
    drawn = many(QSGD(generator(), levels=2, bucket=4), vector, 200)
    assert [set(column.tolist()) for column in drawn.T] == [{2.5, 5.0}, {0.0}, {-2.5, -5.0}, {0.0}]
    unit = np.float32([0, -1, 0, 0])
    assert (many(QSGD(generator(), levels=2, bucket=4), unit, 5) == unit).all()


@pytest.mark.parametrize(
    ("levels", "bits"), [(1, 2), (2, 3), (3, 3), (4, 4), (7, 4), (8, 5), (127, 8), (128, 9), (32767, 16)]
)
def test_a_level_of_qsgd_takes_the_bits_that_tell_all_of_them_apart(levels: int, bits: int) -> None:
    """2s + 1 of them, from −s to s."""
    compressor, ends = QSGD(generator(), levels, bucket=8), np.float32([0, 5, 0, 0, 0, 0, 0, 0])
    assert compressor.nbytes(8) == 4 + bits
    for vector in (ends, -ends):
        assert compressor.decode(compressor.encode(vector), 8).tolist() == vector.tolist()


def test_terngrad_gives_three_values_with_the_paper_variance() -> None:
    vector = noise(64)
    drawn, scale = many(TernGrad(generator(), bucket=64), vector, 3000), np.abs(vector).max()
    assert set(np.unique(drawn)) == {-scale, 0, scale}
    assert (drawn[:, np.abs(vector).argmax()] == vector[np.abs(vector).argmax()]).all(), "the largest is never lost"
    expected = (np.abs(vector) * (scale - np.abs(vector))).sum()
    assert np.square(drawn - vector).sum(axis=1).mean() == pytest.approx(expected, rel=0.05)


def test_terngrad_sends_zero_where_the_vector_is_zero() -> None:
    vector = np.float32([1, 0, -1, 0])
    assert (many(TernGrad(generator(), bucket=4), vector, 20) == vector).all()


def test_terngrad_clips_at_standard_deviations_of_the_bucket() -> None:
    """By hand: 63 entries of ±1 and one of 30 have σ = 3.89; 2.5σ = 9.73 is the scale, and 30 becomes it."""
    vector = np.float32([1, -1] * 31 + [1, 30])
    bound = 2.5 * vector.astype(np.float64).std()
    assert bound == pytest.approx(9.32, abs=0.5)
    drawn = many(TernGrad(generator(), bucket=64, clip=2.5), vector, 4000)
    np.testing.assert_allclose(np.unique(np.abs(drawn)), [0, bound], rtol=1e-6)
    assert (drawn[:, 63] == drawn.max()).all()
    np.testing.assert_allclose(drawn.mean(axis=0, dtype=np.float64)[:63], vector[:63], atol=0.25)
    plain = many(TernGrad(generator(), bucket=64), vector, 4000)
    assert drawn[:, :63].var() < 0.5 * plain[:, :63].var(), "what it is for"
    clipping = TernGrad(generator(), bucket=64, clip=2.5)
    assert clipping.scales(vector[:3]) == pytest.approx(1), "what fills the bucket does not count"
    assert clipping.scales(np.append(vector, vector[:3])).reshape(-1) == pytest.approx([bound, 1])
    small = -vector / 1024
    assert clipping.scales(small) == pytest.approx(bound / 1024), "below 0 as above, and however small"
    assert clipping.decode(clipping.encode(noise(0)), 0).shape == (0,)


def test_the_scales_of_terngrad_are_the_largest_magnitudes_however_small() -> None:
    vector = noise(100) / 16
    own = [np.abs(vector[:64]).max(), np.abs(vector[64:]).max()]
    assert TernGrad(generator(), 64).scales(vector).reshape(-1).tolist() == own
    shared = TernGrad(generator(), 64, shared=True)
    shared.share(np.float32([0.25, 0.125, 0.0625, 0.5]), 100)  # of two ranks, two buckets each
    drawn = np.abs(many(shared, vector, 20))
    assert (set(drawn[:, :64].flat), set(drawn[:, 64:].flat)) == ({0, 0.25}, {0, 0.5})


def test_shared_scales_are_the_largest_of_all_ranks_and_right_on_average() -> None:
    vectors, length = [noise(100, 1), 5 * noise(100, 2)], 100
    sides = [TernGrad(generator(rank), 64, shared=True) for rank in range(2)]
    together = np.concatenate([side.scales(vector) for side, vector in zip(sides, vectors, strict=True)])
    for side in sides:
        side.share(together, length)
    largest_of = np.maximum(*(side.scales(vector).reshape(-1) for side, vector in zip(sides, vectors, strict=True)))
    draws = []
    for _ in range(3000):
        payloads = [side.encode(vector) for side, vector in zip(sides, vectors, strict=True)]
        assert [len(payload) for payload in payloads] == [25, 25] == [side.nbytes(length) for side in sides]
        draws.append([sides[1 - rank].decode(payload, length) for rank, payload in enumerate(payloads)])
    for rank, vector in enumerate(vectors):
        drawn = np.stack([draw[rank] for draw in draws])
        assert set(np.unique(drawn[:, :64])) == {-largest_of[0], 0, largest_of[0]}
        assert set(np.unique(drawn[:, 64:])) == {-largest_of[1], 0, largest_of[1]}
        scale = np.repeat(largest_of, 64)[:100]
        errors = np.sqrt(np.abs(vector) * (scale - np.abs(vector)) / 3000)
        assert (np.abs(drawn.mean(axis=0, dtype=np.float64) - vector) < 5 * errors + 1e-4).all()
    sides[0].share(np.float32([1, np.nan, 2, 3]), length)
    assert np.isnan(sides[0].decode(sides[0].encode(vectors[0]), length)[64:]).all(), "of one rank, and all see it"


def voted(vectors: list[Vector], seed: int = 0) -> list[Vector]:
    """Return each rank's result, all in one process."""
    ranks, length = len(vectors), len(vectors[0])
    sides = [MajorityVote(length, ranks, generator(seed + rank)) for rank in range(ranks)]
    ballots = [side.ballots(vector) for side, vector in zip(sides, vectors, strict=True)]
    verdicts = [side.count(np.stack([rows[rank] for rows in ballots])) for rank, side in enumerate(sides)]
    return [side.decode(np.concatenate(verdicts)) for side in sides]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("length", [0, 1, 9, 1000])
def test_the_majority_of_signs(ranks: int, length: int) -> None:
    vectors = [noise(length, rank) for rank in range(ranks)]
    found = voted(vectors)
    assert all(each.tobytes() == found[0].tobytes() for each in found)
    balance = np.sum(np.sign(vectors), axis=0)
    decided = balance != 0
    assert (found[0][decided] == np.sign(balance)[decided]).all()
    assert set(np.abs(found[0])) <= {1.0}
    if length == 1000 and ranks % 2 == 0:
        ties = np.concatenate([voted(vectors, seed)[0][~decided] for seed in range(0, 80, 8)])
        assert np.abs(ties.mean()) < 5 / math.sqrt(len(ties)), "ties push nowhere"
        assert not decided.all()
    part = math.ceil(math.ceil(length / 8) / ranks)
    assert MajorityVote(length, ranks, generator()).nbytes() == 2 * (ranks - 1) * (part + 1)


def test_a_vote_by_hand() -> None:
    vectors = [np.float32(each) for each in ([1, -1, 0, 5], [-9, -1, 0, -1], [2, 1, 0, -1])]
    assert voted(vectors)[2].tolist() == [1, -1, 1, -1], "9 against is one vote, and 0 counts as +"


@pytest.mark.parametrize("bad", BAD)
def test_a_vote_does_not_hide_what_is_not_finite(bad: float) -> None:
    vectors = [noise(50, rank) for rank in range(3)]
    vectors[1][40] = bad
    assert np.isnan(voted(vectors)).all()


def test_one_rank_that_sends_the_opposite_ruins_a_mean_and_loses_a_vote() -> None:
    """Seven ranks see ∇(x²/2) with noise; the last one sends −10 times its own."""
    ends = {}
    for name in ("mean", "vote"):
        x = np.ones(20, np.float32)
        for step in range(300):
            gradients = [x + np.float32(0.3) * noise(20, 7 * step + rank) for rank in range(7)]
            gradients[6] *= -10
            x = x - np.float32(0.01) * (np.mean(gradients, axis=0) if name == "mean" else voted(gradients, step)[0])
        ends[name] = float(np.abs(x).max())
    assert ends["vote"] < 0.2 < 1 < ends["mean"]


def test_sign_sends_the_mean_magnitude() -> None:
    vector = np.float32([1, -2, 0, 5])
    assert Sign().decode(Sign().encode(vector), 4).tolist() == [2, -2, 2, 2]


@given(st.integers(1, 40), st.floats(0.01, 1), st.integers(0, 1000))
def test_top_k_sends_the_largest(length: int, fraction: float, seed: int) -> None:
    vector = noise(length, seed)
    decoded = TopK(fraction).decode(TopK(fraction).encode(vector), length)
    sent = np.flatnonzero(decoded)
    assert len(sent) == max(1, round(fraction * length))
    assert (decoded[sent] == vector[sent]).all()
    assert np.abs(np.delete(vector, sent)).max(initial=0) <= np.abs(vector[sent]).min()
    assert set(sent) == set(np.argsort(-np.abs(vector), kind="stable")[: len(sent)])


def test_more_than_all_is_all() -> None:
    assert largest(noise(5), 5).tolist() == [0, 1, 2, 3, 4]
    for compressor in (TopK(1.0), RandomK(generator(), 1.0)):
        vector = noise(5)
        assert compressor.decode(compressor.encode(vector), 5).tolist() == vector.tolist()


def test_a_seeded_payload_is_decoded_by_whoever_gets_it() -> None:
    ours, theirs = SeededRandomK(generator(), 0.25), SeededRandomK(np.random.default_rng(99), 0.25)
    for step in range(3):
        vector = noise(40, step)
        decoded = theirs.decode(ours.encode(vector), 40)
        sent = np.flatnonzero(decoded)
        assert len(sent) == 10
        assert decoded[sent].tolist() == (4 * vector[sent]).tolist()
    assert ours.encode(vector)[:8].tobytes() != ours.encode(vector)[:8].tobytes(), "other entries each time"


def test_random_k_draws_alike_on_all_ranks_and_adds_up() -> None:
    one, other = RandomK(generator(), 0.25), RandomK(generator(), 0.25)
    for _ in range(3):
        a, b = noise(40, 1), noise(40, 2)
        summed = (one.encode(a).view(np.float32) + other.encode(b).view(np.float32)).view(np.uint8)
        decoded = one.decode(summed, 40)
        assert decoded.tolist() == other.decode(summed, 40).tolist()
        assert np.count_nonzero(decoded) == 10
        drawn = np.flatnonzero(decoded)
        np.testing.assert_allclose(decoded[drawn], 4 * (a + b)[drawn], rtol=1e-6)


@pytest.mark.parametrize("name", MAKERS)
def test_with_feedback_what_is_sent_and_what_is_kept_is_all(name: str) -> None:
    biased = {"random-k": RandomK, "random-k, seeded": SeededRandomK}
    inner = biased[name](generator(), 0.1, unbiased=False) if name in biased else MAKERS[name]()
    feedback = ErrorFeedback(inner, 100)
    sent, total = np.zeros(100), np.zeros(100)
    exact = name in ("none", "float16", "bfloat16", "top-k", "random-k", "random-k, seeded")
    most = 30_000 if exact else 50  # more bits than 16-bit formats have, and sums that float32 still has
    for step in range(20):
        gradient = np.random.default_rng(step).integers(-most, most, 100).astype(np.float32)
        sent += feedback.decode(feedback.encode(gradient), 100)
        total += gradient
    assert feedback.residual.any() == (name != "none"), "something was lost on the way"
    if exact:
        assert (sent + feedback.residual == total).all(), "whole numbers, only moved about: exact"
    else:
        np.testing.assert_allclose(sent + feedback.residual, total, atol=1e-3)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("bad", BAD)
def test_no_memory_keeps_what_is_not_finite(name: str, bad: float) -> None:
    """The next step is as if it had not happened, but for the random numbers drawn."""
    vector = noise(64)
    vector[3] = bad
    sides = [ErrorFeedback(MAKERS[name](), 64), DGC(64, 0.1, warm_up=9, clip=1.0)]
    for side in sides[: 2 if name == "top-k" else 1]:
        side.encode(noise(64, 1))
        kept = [array.copy() for array in vars(side).values() if isinstance(array, np.ndarray)]
        expected = side.nbytes(64)
        payload = side.encode(vector)
        assert len(payload) == expected
        assert not np.isfinite(side.decode(payload, 64)).all()
        now = [array for array in vars(side).values() if isinstance(array, np.ndarray)]
        assert kept
        assert all(a.tobytes() == b.tobytes() for a, b in zip(kept, now, strict=True))
        assert np.isfinite(side.decode(side.encode(noise(64, 2)), 64)).all()


def test_no_memory_keeps_what_is_too_large_for_16_bits() -> None:
    feedback = ErrorFeedback(Float16(), 2)
    assert np.isinf(feedback.decode(feedback.encode(np.float32([1e6, 1])), 2)[0])
    assert not feedback.residual.any()


UNBIASED: dict[str, Callable[[], Compressor]] = {
    "qsgd, 1 level": lambda: QSGD(generator(), levels=1, bucket=64),
    "qsgd, 4 levels of 256": lambda: QSGD(generator(), levels=4, bucket=256),
    "terngrad": lambda: TernGrad(generator(), bucket=256),
    "random-k": lambda: RandomK(generator(), 0.1),
    "random-k, seeded": lambda: SeededRandomK(generator(), 0.1),
}


@pytest.mark.parametrize("name", UNBIASED)
def test_kept_by_feedback_an_unbiased_compressor_grows_unless_it_is_scaled(name: str) -> None:
    """2,000 steps, against Karimireddy et al.'s bound 2√(1 − δ)/δ·G with δ = 1/(1 + ω) and gradients of length G."""
    length, steps = 256, 2000
    scaled, plain = ErrorFeedback(UNBIASED[name](), length), UNBIASED[name]()
    delta = 1 / (1 + plain.variance(length))
    residual, largest_kept, grown = np.zeros(length, np.float32), 0.0, 0.0
    for step in range(steps):
        gradient = noise(length, step)
        gradient /= np.linalg.norm(gradient)
        scaled.encode(gradient)
        largest_kept = max(largest_kept, float(np.linalg.norm(scaled.residual)))
        if grown < 1e6:  # by hand, without the factor
            residual += gradient
            residual -= plain.decode(plain.encode(residual), length)
            grown = max(grown, float(np.linalg.norm(residual)))
    bound = 2 * math.sqrt(1 - delta) / delta
    assert 0.1 < largest_kept < bound
    # TernGrad's loss falls as the residual's entries grow alike, so its residual is larger, but not without a bound.
    assert grown > (1.5 * largest_kept if name == "terngrad" else 5 * bound)


@pytest.mark.parametrize(("name", "kind"), [*((name, "noise") for name in UNBIASED), ("terngrad", "one large")])
def test_the_variance_is_a_bound_and_scaled_it_is_a_contraction(name: str, kind: str) -> None:
    plain, length = UNBIASED[name](), 256
    vector = noise(length)
    if kind == "one large":  # terngrad's worst case: m/(√d + 1) beside an m
        vector = np.full(length, 1 / 17, np.float32)
        vector[0] = 1
    squared = float(np.square(vector, dtype=np.float64).sum())
    omega = plain.variance(length)
    lost = np.square(many(plain, vector, 800) - vector, dtype=np.float64).sum(axis=1).mean()
    assert omega >= 1
    assert lost <= 1.05 * omega * squared
    if kind == "one large":
        assert lost == pytest.approx(omega * squared, rel=0.05), "and no bound is lower"
    scaled = contraction(plain, length)
    kept = np.square(many(scaled, vector, 800) - vector, dtype=np.float64).sum(axis=1).mean()
    assert kept <= 1.02 * omega / (1 + omega) * squared
    assert scaled.nbytes(length) == plain.nbytes(length)


def test_what_is_a_contraction_as_it_is_is_not_scaled() -> None:
    for each in (
        QSGD(generator(), levels=9, bucket=64),
        RandomK(generator(), 0.1, False),
        Sign(),
        TopK(0.1),
        Float16(),
    ):
        assert contraction(each, 256) is each
    assert QSGD(generator(), levels=9, bucket=64).variance(256) == pytest.approx(64 / 81)
    assert QSGD(generator(), levels=9, bucket=64).variance(16) == pytest.approx(16 / 81), "a bucket that is not full"


def test_the_variances_by_hand_and_what_is_scaled_at_the_bound() -> None:
    assert QSGD(generator(), levels=4, bucket=64).variance(256) == 2, "the root of 64 over 4"
    for make in (RandomK, SeededRandomK):
        assert make(generator(), 0.1).variance(100) == 9
    at_the_bound = QSGD(generator(), levels=8, bucket=64)
    scaled = contraction(at_the_bound, 64)
    assert at_the_bound.variance(64) == 1
    assert scaled is not at_the_bound
    payload = scaled.encode(noise(64))
    assert (scaled.decode(payload, 64) == at_the_bound.decode(payload, 64) / 2).all()


@pytest.mark.parametrize(("levels", "bucket"), [(8, 64), (9, 64), (2, 3), (2, 4), (2, 5)])
def test_the_error_of_qsgd_is_below_one_where_its_variance_is(levels: int, bucket: int) -> None:
    assert error_below_one(levels, bucket) == (QSGD(generator(), levels, bucket).variance(bucket) < 1)


def test_what_is_wrapped_keeps_its_way_of_adding_and_is_wrapped_once() -> None:
    plain = RandomK(generator(), 0.1)
    scaled = contraction(plain, 100)
    assert scaled is not plain
    assert contraction(scaled, 100) is scaled
    for compressor in (plain, Float16()):
        feedback = ErrorFeedback(compressor, 100)
        assert compressor.sums_as is not None
        assert feedback.sums_as == compressor.sums_as
        assert contraction(feedback, 100) is feedback
    assert scaled.sums_as == plain.sums_as
    assert ErrorFeedback(Sign(), 100).sums_as is None


def test_an_empty_vector_has_nothing_to_lose() -> None:
    assert {name: make().variance(0) for name, make in MAKERS.items()} == dict.fromkeys(MAKERS, 0)


# The bytes of 1000 entries, worked out by hand: 10 buckets of 100; 30 levels have 61 codes, so 6 bits.
CHOSEN_BYTES = {
    "none": 4000, "float16": 2000, "bfloat16": 2000, "sign": 4 + 125, "terngrad": 10 * 4 + 250, "qsgd": 10 * 4 + 750,
    "top-k": 8 * 50, "random-k": 4 * 50,
}  # fmt: skip


def chosen(options: CompressionOptions, rank: int = 0) -> Compressor:
    """Options of a run on two ranks, with a gradient of 1000 entries."""
    return cast(Compressor, build(options, [(20, 40), (200,)], seed=1, rank=rank, ranks=2))


@pytest.mark.parametrize("name", [name for name, row in COMPRESSORS.items() if row.is_plain])
def test_a_run_has_the_compressor_that_its_options_name(name: str) -> None:
    options, vector = CompressionOptions(compressor=name, levels=30, bucket=100, fraction=0.05), noise(1000)
    one, other = chosen(options, rank=0), chosen(options, rank=1)
    assert isinstance(one, ErrorFeedback) == (name in FEEDBACK)
    assert one.nbytes(1000) == CHOSEN_BYTES[name]
    alike = one.encode(vector).tobytes() == other.encode(vector).tobytes()
    assert alike == (name not in ("qsgd", "terngrad")), "these draw on each rank by itself"


@pytest.mark.parametrize(("name", "different"), [("terngrad", 6), ("qsgd", 6), ("random-k", 2)])
def test_equal_seeds_draw_alike_and_another_seed_draws_others(name: str, different: int) -> None:
    options, vector = CompressionOptions(compressor=name, feedback=False), noise(1000)  # type: ignore[arg-type]
    first, again, other = (
        [cast(Compressor, build(options, [(1000,)], seed, rank, 3)).encode(vector).tobytes() for rank in range(3)]
        for seed in (0, 0, 1)
    )
    assert first == again
    assert len({*first, *other}) == different


def test_what_a_run_draws_on_each_rank_is_independent_of_what_it_draws_on_all() -> None:
    def drawn(name: str, rank: int) -> float:
        options = CompressionOptions(compressor=name, feedback=False)  # type: ignore[arg-type]
        made = cast(Any, build(options, [(10,)], 3, rank, 4))
        return float(made.generator.random())

    common, own = ([drawn(name, rank) for rank in range(4)] for name in ("random-k", "qsgd"))
    assert (len({*common}), len({*common, *own})) == (1, 5)


def test_a_run_scales_random_k_up_only_if_nothing_is_fed_back() -> None:
    vector = noise(1000)
    for feedback, factor in ((True, 1), (False, 4)):
        compressor = chosen(CompressionOptions(compressor="random-k", fraction=0.25, feedback=feedback))
        decoded = compressor.decode(compressor.encode(vector), 1000)
        sent = np.flatnonzero(decoded)
        assert decoded[sent].tolist() == (factor * vector[sent]).tolist()


def test_a_run_has_the_papers_options_of_terngrad() -> None:
    compressor = chosen(CompressionOptions(compressor="terngrad", terngrad_clip=2.0, share_scales=True))
    assert isinstance(compressor, TernGrad)
    assert (compressor.clip, compressor.shared) == (2.0, True)


def descend(compressor: Compressor, steps: int = 4000) -> float:
    """Return how far from the minimum SGD ends, on a sum of absolute values whose gradients' signs never point there.

    Karimireddy et al. 2019: f(x) = ε|x₁ + x₂| + |x₁ − x₂|, 0 < ε < 1, has its minimum 0 at the origin; the signs of
    its subgradients are ±(1, −1), so x₁ + x₂ never changes.
    """
    x, epsilon = np.float32([1.0, 1.0]), 0.25
    for step in range(steps):
        along, across = (1 if x[0] + x[1] >= 0 else -1), (1 if x[0] >= x[1] else -1)
        gradient = epsilon * along * np.ones(2) + across * np.array([1, -1])
        rate = np.float32(0.1 / np.sqrt(step + 1))
        x = x - compressor.decode(compressor.encode((rate * gradient).astype(np.float32)), 2)
    return float(epsilon * abs(x[0] + x[1]) + abs(x[0] - x[1]))


def test_plain_sign_fails_where_sign_with_feedback_converges() -> None:
    assert descend(Uncompressed()) < 0.02
    assert descend(Sign()) > 0.3
    assert descend(ErrorFeedback(Sign(), 2)) < 0.02


def test_dgc_without_momentum_is_top_k_with_feedback() -> None:
    dgc, feedback = DGC(50, 0.1, momentum=0.0), ErrorFeedback(TopK(0.1), 50)
    for step in range(10):
        vector = noise(50, step)
        assert dgc.encode(vector).tolist() == feedback.encode(vector).tolist()


def test_dgc_that_sends_all_is_momentum_without_memory_of_what_was_sent() -> None:
    """Everything is sent, so everything is masked: plain SGD; a fraction sees its own momentum, by hand here."""
    dgc = DGC(4, 1.0, momentum=0.9)
    for step in range(3):
        vector = noise(4, step)
        assert dgc.decode(dgc.encode(vector), 4).tolist() == vector.tolist()
    dgc = DGC(2, 0.5, momentum=0.5)
    first = dgc.decode(dgc.encode(np.float32([4, 1])), 2)
    assert first.tolist() == [4, 0]
    assert (dgc.velocity.tolist(), dgc.residual.tolist()) == ([0, 1], [0, 1])
    second = dgc.decode(dgc.encode(np.float32([1, 1])), 2)  # velocity [1, 1.5], accumulated [1, 2.5]
    assert second.tolist() == [0, 2.5]
    assert (dgc.velocity.tolist(), dgc.residual.tolist()) == ([1, 0], [1, 0])


def test_dgc_warms_up_and_clips() -> None:
    dgc, sizes = DGC(1000, 0.001, warm_up=3), []
    for step in range(5):
        expected = dgc.nbytes(1000)
        sizes.append(len(dgc.encode(noise(1000, step))) // 8)
        assert sizes[-1] * 8 == expected
    assert sizes == [100, 10, 1, 1, 1]
    skipped = DGC(1000, 0.001, warm_up=3)
    for size in (100, 10, 1, 1):
        assert skipped.nbytes(1000) == 8 * size, "a gradient that is not finite takes a step of the warm-up, too"
        skipped.encode(np.full(1000, np.nan, np.float32))
    clipped = DGC(2, 1.0, clip=1.0)
    np.testing.assert_allclose(clipped.decode(clipped.encode(np.float32([3, 4])), 2), [0.6, 0.8], rtol=1e-6)
    assert clipped.decode(clipped.encode(np.float32([0.3, 0.4])), 2).tolist() == np.float32([0.3, 0.4]).tolist()
    huge = DGC(2, 1.0, clip=1.0)
    np.testing.assert_allclose(huge.decode(huge.encode(np.float32([3e20, 4e20])), 2), [0.6, 0.8], rtol=1e-6)


SHAPES = [(12, 20), (12,), (5, 12), (5,), (6, 4, 3, 3), (2, 2)]
ENTRIES = sum(math.prod(shape) for shape in SHAPES)


def one_round(sides: list[PowerSGD], vectors: list[Vector]) -> list[Vector]:
    """Return every rank's result."""
    left = np.sum([side.project(vector) for side, vector in zip(sides, vectors, strict=True)], axis=0)
    right = np.sum([side.project_back(left) for side in sides], axis=0)
    assert (left.nbytes, right.nbytes) == sides[0].nbytes()
    return [side.decode(right) for side in sides]


def low_rank(rank: int, seed: int) -> Vector:
    """Every tensor as a matrix of that rank."""
    parts = []
    for number, shape in enumerate(SHAPES):
        rows, columns = shape[0], math.prod(shape[1:])
        parts.append((noise(rows * rank, seed + number).reshape(rows, rank)
                      @ noise(rank * columns, seed + 50 + number).reshape(rank, columns)).reshape(-1))  # fmt: skip
    return np.concatenate(parts)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_powersgd_is_exact_where_the_rank_is_low_enough(rank: int, ranks: int) -> None:
    sides = [PowerSGD(SHAPES, rank, ranks, generator()) for _ in range(ranks)]
    vector = low_rank(rank, 7)
    weights = np.float32([1, 2, 4][:ranks])
    results = one_round(sides, [vector * weight for weight in weights])
    for result in results:
        assert result.tobytes() == results[0].tobytes()
        np.testing.assert_allclose(result, vector * weights.sum(), atol=1e-3)


def test_powersgd_depends_on_the_sum_alone_and_its_q_is_the_same_everywhere() -> None:
    whole, parts = [PowerSGD(SHAPES, 1, 1, generator())], [PowerSGD(SHAPES, 1, 3, generator()) for _ in range(3)]
    total, lost = np.zeros(ENTRIES), np.zeros(ENTRIES)
    for step in range(5):
        vectors = [noise(ENTRIES, 10 * step + rank) for rank in range(3)]
        alone = one_round(whole, [np.sum(vectors, axis=0)])[0]
        together = one_round(parts, vectors)
        np.testing.assert_allclose(together[0], alone, atol=2e-3)
        assert len({each.tobytes() for each in together}) == 1
        assert len({np.concatenate([q.reshape(-1) for q in side.right]).tobytes() for side in parts}) == 1
        total += np.sum(vectors, axis=0)
        lost += together[0]
    kept = np.sum([side.residual for side in parts], axis=0)
    np.testing.assert_allclose(lost + kept, total, atol=1e-3, err_msg="Σ sent + residuals = Σ gradients")
    assert np.abs(kept).max() > 0.5, "something was lost at all"


def test_powersgd_leaves_vectors_and_small_matrices_alone() -> None:
    side = PowerSGD(SHAPES, 2, 1, generator())
    assert [(rows, columns) for _, rows, columns in side.matrices] == [(12, 20), (5, 12), (6, 36)]
    vector = noise(ENTRIES)
    result = one_round([side], [vector])[0]
    for place in side.plain:
        assert result[place].tobytes() == vector[place].tobytes()
    assert side.nbytes() == (4 * (2 * (12 + 5 + 6) + 12 + 5 + 4), 4 * 2 * (20 + 12 + 36))
    assert PowerSGD([(3,)], 1, 1, generator()).nbytes() == (12, 0)
    assert PowerSGD([(4, 4)], 2, 1, generator()).nbytes() == (4 * 16, 0), "two factors as large as the matrix: no gain"
    assert len(one_round([PowerSGD([], 1, 1, generator())], [noise(0)])[0]) == 0


def test_a_warm_start_approaches_the_best_approximation() -> None:
    """Without feedback, the same matrix again and again: the power iteration, against the SVD."""
    matrix = noise(30 * 40).reshape(30, 40)
    side = PowerSGD([(30, 40)], 2, 1, generator(), feedback=False)
    errors = [np.linalg.norm(one_round([side], [matrix.reshape(-1)])[0] - matrix.reshape(-1)) for _ in range(200)]
    best = np.sqrt((np.linalg.svd(matrix)[1][2:] ** 2).sum())
    assert best - 1e-3 < errors[-1] < 1.001 * best < 1.05 * best < errors[0]


def test_powersgd_hides_nothing_and_divides_by_no_zero() -> None:
    side = PowerSGD([(10, 10)], 1, 1, generator())
    assert not one_round([side], [np.zeros(100, np.float32)])[0].any()
    vector = noise(100)
    vector[5] = math.nan
    assert np.isnan(one_round([side], [vector])[0]).all()
    plain = noise(112)
    plain[110] = math.inf  # in the uncompressed part
    for bad in (np.append(vector, noise(12)), plain):
        sides = [PowerSGD([(10, 10), (12,)], 1, 2, generator()) for _ in range(2)]
        one_round(sides, [noise(112, 1), noise(112, 2)])
        kept = [(side.residual.tobytes(), [q.tobytes() for q in side.right]) for side in sides]
        assert not np.isfinite(one_round(sides, [bad, noise(112, 3)])[1]).any()
        assert kept == [(side.residual.tobytes(), [q.tobytes() for q in side.right]) for side in sides]
        assert np.isfinite(one_round(sides, [noise(112, 4), noise(112, 5)])[0]).all()
    basis = orthogonalised(noise(30).reshape(10, 3))
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-6)


# A value of each option that is not its default.
GIVEN: dict[str, Any] = {
    "levels": 30, "bucket": 64, "fraction": 0.1, "matrix_rank": 3, "dgc_momentum": 0.5, "sparsity_warm_up": 9,
    "clip": 1.0, "terngrad_clip": 2.5, "share_scales": True,
}  # fmt: skip


@pytest.mark.parametrize("option", GIVEN)
@pytest.mark.parametrize("name", COMPRESSORS)
def test_an_option_that_says_nothing_to_the_compressor_is_refused(name: str, option: str) -> None:
    options = CompressionOptions(compressor=name, **{option: GIVEN[option]})
    if name in MEANT_FOR[option]:
        check(options, "sgd")
        return
    others = " or ".join(MEANT_FOR[option])
    with pytest.raises(UsageError) as refusal:
        check(options, "sgd")
    shown = option.replace("_", "-")
    assert str(refusal.value) == f"--{shown} is for --compressor {others}, not for {name}: leave it out"


def test_every_compressor_takes_the_defaults_and_none_has_nothing_to_feed_back() -> None:
    for name in COMPRESSORS:
        check(CompressionOptions(compressor=name), "sgd")
    for feedback in (True, False):
        with pytest.raises(UsageError, match="majority-vote has no residual"):
            check(CompressionOptions(compressor="majority-vote", feedback=feedback), "sgd")
        with pytest.raises(UsageError, match="none loses nothing: leave out --feedback and --no-feedback"):
            check(CompressionOptions(compressor="none", feedback=feedback), "sgd")


@pytest.mark.parametrize(
    ("options", "optimizer", "refusal"),
    [
        ({"share_scales": True, "feedback": True}, "sgd", "--share-scales does not go with --feedback: "),
        ({}, "adam", "--compressor dgc holds the momentum itself, so not with --optimizer adam: leave it sgd"),
        ({"feedback": True}, "sgd", "--compressor dgc keeps what it does not send, always: leave out --feedback"),
        ({"feedback": False}, "sgd", "--compressor dgc keeps what it does not send, always: leave out --feedback"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], optimizer: str, refusal: str) -> None:
    name = "terngrad" if "share_scales" in options else "dgc"
    with pytest.raises(UsageError, match=f"^{refusal}"):
        check(CompressionOptions(compressor=name, **options), optimizer)
    check(CompressionOptions(compressor="top-k", feedback=True), "adam")
