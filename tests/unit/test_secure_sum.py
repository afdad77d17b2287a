"""Secure aggregation: the sum is exact for any lost clients, and one vector alone looks random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from farandole.federated import key_agreement, secret_sharing, secure_sum
from farandole.federated.secure_sum import SecureClient, Whole, from_whole, signed_mask, to_whole, unmasked

NUMBERS = [2, 3, 5, 11, 12]
LENGTH = 40


@pytest.fixture(scope="module")
def met() -> list[SecureClient]:
    """Five clients that have shared their secrets, three of which must remain."""
    clients = [SecureClient(number, threshold=3) for number in NUMBERS]
    directory = {client.number: client.keys for client in clients}
    sealed = {client.number: client.sealed_shares(directory) for client in clients}
    for sender, letters in sealed.items():
        for client in clients:
            if client.number != sender:
                client.hold(sender, letters[client.number])
    return clients


def vectors() -> dict[int, Whole]:
    return {number: to_whole(np.random.default_rng(number).normal(size=LENGTH) * 100) for number in NUMBERS}


def summed(clients: Sequence[SecureClient], left: Sequence[int]) -> Whole:
    here = {client.number: client for client in clients}
    directory = {client.number: client.keys for client in clients}
    masked = {number: here[number].masked(vectors()[number]) for number in left}
    return unmasked(masked, directory, {number: here[number].reveal(left) for number in left})


@pytest.mark.parametrize("left", [NUMBERS, [3, 5, 11, 12], [2, 3, 5, 11], [2, 5, 12]])
def test_the_sum_is_exact_whoever_is_lost(met: list[SecureClient], left: list[int]) -> None:
    expected = sum((vectors()[number] for number in left), np.zeros(LENGTH, np.uint64))
    assert np.array_equal(summed(met, left), expected)


def test_with_too_few_left_nothing_is_told(met: list[SecureClient]) -> None:
    with pytest.raises(ValueError, match="only 2 are left, and 3 have to be"):
        met[0].reveal([2, 3])


def test_nobody_tells_both_secrets_of_anybody(met: list[SecureClient]) -> None:
    """Shares of the seed for remaining clients, of the key for lost ones: together they reveal nothing else."""
    left = [2, 3, 5]
    told = {client.number: client.reveal(left) for client in met if client.number in left}
    for number in NUMBERS:
        secret = secret_sharing.recover({by: shares[number] for by, shares in told.items()})
        client = next(client for client in met if client.number == number)
        expected = int.from_bytes(client._seed) if number in left else client._mask_secret
        assert secret == expected


def test_a_pairs_masks_cancel_exactly() -> None:
    one, other = (signed_mask(*pair, b"what the two know", 1000) for pair in ((1, 4), (4, 1)))
    assert not (one + other).any()
    assert one.any()


def test_what_the_server_sees_of_one_client_looks_like_chance(met: list[SecureClient]) -> None:
    """Each of 64 bits is set in half of the numbers: of 10,000 by five deviations (once in 27,000 runs) and no more."""
    zeros = np.zeros(10_000, np.uint64)
    seen = met[0].masked(zeros)
    bits = np.unpackbits(seen.view(np.uint8)).reshape(10_000, 64).mean(axis=0)
    assert np.abs(bits - 0.5).max() < 5 * 0.5 / 100
    assert not np.array_equal(seen, SecureClient(2, 3).masked(zeros))


def test_without_the_own_mask_a_late_vector_would_be_seen(met: list[SecureClient]) -> None:
    """Client 5 is declared lost, its key is revealed, and then its vector arrives: only its own mask hides it."""
    client = met[2]
    shown, left = client.masked(vectors()[5]), [2, 3, 11, 12]
    told = {each.number: each.reveal(left) for each in met if each.number in left}
    key = secret_sharing.recover({by: shares[5] for by, shares in told.items()})
    for other in left:
        public = next(each for each in met if each.number == other).keys.masks
        shown -= signed_mask(5, other, key_agreement.agreed(key, public, "mask"), LENGTH)
    assert np.array_equal(shown - secure_sum.mask(client._seed, LENGTH), vectors()[5])
    assert not np.array_equal(shown, vectors()[5])


def test_the_two_of_a_pair_agree_and_for_another_purpose_on_something_else() -> None:
    a, b = key_agreement.secret(), key_agreement.secret()
    common = key_agreement.agreed(a, key_agreement.public(b), "mask")
    assert common == key_agreement.agreed(b, key_agreement.public(a), "mask")
    assert common != key_agreement.agreed(a, key_agreement.public(b), "seal")


@pytest.mark.parametrize("public", [0, 1, key_agreement.P - 1, key_agreement.P, key_agreement.P + 1])
def test_a_public_number_whose_powers_are_known_is_refused(public: int) -> None:
    """Of 1 they are 1, of P − 1 one of these two, and so on with any multiple of P added."""
    with pytest.raises(ValueError, match="gives any secret away"):
        key_agreement.agreed(key_agreement.secret(), public, "mask")


def test_the_least_and_the_largest_public_number_are_taken() -> None:
    for public in (2, key_agreement.P - 2):
        assert len(key_agreement.agreed(3, public, "mask")) == key_agreement.SECRET_BYTES


def test_a_secret_has_32_bytes_and_is_another_each_time() -> None:
    """That the highest bit is set in none of 40 happens once in 10¹² runs."""
    drawn = {key_agreement.secret() for _ in range(40)}
    assert len(drawn) == 40
    assert max(drawn).bit_length() == 256


def test_the_group_is_that_of_a_safe_prime() -> None:
    for number in (key_agreement.P, (key_agreement.P - 1) // 2):
        assert all(pow(base, number - 1, number) == 1 for base in (2, 3, 5, 7))
    assert key_agreement.P.bit_length() == 2048


@pytest.mark.parametrize(("holders", "threshold"), [(1, 1), (5, 3), (7, 7)])
def test_as_many_shares_as_the_threshold_give_the_secret_and_one_less_does_not(holders: int, threshold: int) -> None:
    secret = key_agreement.secret()
    shares = secret_sharing.share(secret, range(holders), threshold)
    some = dict(list(shares.items())[-threshold:])
    assert secret_sharing.recover(some) == secret == secret_sharing.recover(shares)
    some.popitem()
    assert not some or secret_sharing.recover(some) != secret


def test_fixed_point_is_exact_to_its_digits_also_below_zero() -> None:
    numbers = np.array([0.0, -1.5, 2.0**-32, -(2.0**30), 1 / 3])
    back = from_whole(to_whole(numbers))
    assert np.array_equal(back[:4], numbers[:4])
    assert abs(back[4] - 1 / 3) <= 2.0**-33
    assert from_whole(to_whole(np.array([-3.0])) + to_whole(np.array([1.0]))) == [-2.0]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e9, -(2.0**31)])
def test_what_no_fixed_point_number_stands_for_is_refused(number: float) -> None:
    with pytest.raises(OverflowError, match=r"is not below 2.14748e\+09"):
        to_whole(np.array([1.0, number]))


def test_a_sum_of_vectors_that_are_let_in_never_passes_its_end() -> None:
    for parts in (1, 3, 7):
        largest = np.nextafter([2.0**31 / parts], 0)
        total = np.sum([to_whole(largest, parts)] * parts, axis=0)
        assert from_whole(total) == pytest.approx(parts * largest)
        with pytest.raises(OverflowError):
            to_whole(np.nextafter(largest, np.inf), parts)
