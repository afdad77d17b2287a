"""Federated averaging in one process, compared with torch's own gradient descent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from farandole.data.samples import in_memory
from farandole.federated.averaging import Client, LocalTraining, averaged
from farandole.tasks import classification

SIZES = [4, 7, 1]
LR = 0.5


def samples() -> list[tuple[torch.Tensor, torch.Tensor]]:
    noise = torch.Generator().manual_seed(0)
    return [(torch.randn(size, 6, generator=noise), torch.randint(3, (size,), generator=noise)) for size in SIZES]


def clients() -> list[Client]:
    cpu = torch.device("cpu")
    return [Client(number, in_memory(own, cpu), len(own[1])) for number, own in enumerate(samples())]


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def descended(steps: int) -> np.ndarray:
    """Return the parameters after `steps` steps of gradient descent on all clients' samples, by torch."""
    single = model()
    optimizer = torch.optim.SGD(single.parameters(), lr=LR)
    inputs, targets = (torch.cat(parts) for parts in zip(*samples(), strict=True))
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(single(inputs), targets).backward()
        optimizer.step()
    return np.concatenate([parameter.detach().numpy().reshape(-1) for parameter in single.parameters()])


def rounds(count: int, epochs: int, batch: int) -> np.ndarray:
    training = LocalTraining(model(), classification, LR, epochs, batch, seed=0)
    values = training.flat.values_np.copy()
    for number in range(count):
        parts = [training.contribution(client, values, number)[0] for client in clients()]
        values = averaged(values, np.sum(parts, axis=0), server_lr=1.0)
    return values


def test_one_step_on_all_they_have_is_gradient_descent_on_everybodys_samples() -> None:
    assert np.allclose(rounds(5, epochs=1, batch=100), descended(5), atol=1e-6)


def test_a_plain_mean_of_the_clients_would_be_something_else() -> None:
    training = LocalTraining(model(), classification, LR, 1, 100, seed=0)
    values = training.flat.values_np.copy()
    for number in range(5):
        parts = [training.contribution(client, values, number)[0] for client in clients()]
        values = values + np.mean([part[:-1] / part[-1] for part in parts], axis=0).astype(np.float32)
    assert np.abs(values - descended(5)).max() > 1e-3


def test_more_local_steps_drift_away_from_it() -> None:
    assert np.abs(rounds(1, epochs=5, batch=100) - descended(5)).max() > 1e-3


def test_one_client_alone_trains_as_it_would_without_a_server() -> None:
    client, (inputs, targets) = clients()[0], samples()[0]
    training = LocalTraining(model(), classification, LR, epochs=3, batch=4, seed=0)
    start = training.flat.values_np.copy()
    contribution, loss = training.contribution(client, start, number=0)
    single = model()
    optimizer = torch.optim.SGD(single.parameters(), lr=LR)
    assert loss == pytest.approx(cross_entropy(single(inputs), targets).item())
    for _ in range(3):
        optimizer.zero_grad()
        cross_entropy(single(inputs), targets).backward()
        optimizer.step()
    expected = np.concatenate([parameter.detach().numpy().reshape(-1) for parameter in single.parameters()])
    assert np.allclose(averaged(start, contribution, 1.0), expected, atol=1e-6)


def test_the_server_goes_its_part_of_the_way_and_nowhere_if_all_are_lost() -> None:
    values = np.array([1.0, 2.0], np.float32)
    assert averaged(values, np.array([6.0, -6.0, 3.0]), server_lr=0.5).tolist() == [2.0, 1.0]
    assert averaged(values, np.array([0.0, 0.0, 3.0]), server_lr=1.0).tolist() == [1.0, 2.0], "no client has moved"
    assert averaged(values, np.array([4.0, 4.0, 0.0]), server_lr=1.0) is values, "the last entry counts the samples"
    assert averaged(values, np.array([4.0, 0.0, 2.0]), server_lr=0.5).dtype == np.float32
    assert averaged(values, np.array([4.0, 0.0, 2.0]), server_lr=0.5).tolist() == [2.0, 2.0]


def test_the_seed_the_client_and_the_round_each_change_the_order_of_samples() -> None:
    other, client, _ = clients()  # 7 samples: two orders are equal once in 5,040 times

    def contributed(seed: int, client: Client, number: int) -> tuple[float, ...]:
        training = LocalTraining(model(), classification, LR, epochs=2, batch=2, seed=seed)
        return tuple(training.contribution(client, training.flat.values_np.copy(), number)[0].tolist())

    alias = Client(other.number, client.reader, client.samples)
    assert contributed(0, client, 0) == contributed(0, client, 0)
    different = [(0, client, 0), (1, client, 0), (0, client, 1), (0, alias, 0)]
    assert len({contributed(*each) for each in different}) == 4
