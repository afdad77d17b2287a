"""CHOCO-SGD's public copies, of all ranks in one process: compressed messages still converge to the mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from farandole.compression.compressor import Compressor, Uncompressed, Vector
from farandole.compression.half_precision import Float16
from farandole.compression.qsgd import QSGD
from farandole.compression.random_k import RandomK
from farandole.compression.sign import Sign
from farandole.compression.top_k import TopK
from farandole.decentralised.choco import PublicCopies
from farandole.decentralised.mixing import consensus_error, doubly_stochastic, mixing_matrix
from farandole.decentralised.steps import run
from farandole.decentralised.topologies import Topology, topology
from farandole.errors import UsageError
from farandole.scenarios.choco_sgd import Config, check

LENGTH = 60
COMPRESSORS: dict[str, tuple[Callable[[int], Compressor], float]] = {
    "none": (lambda rank: Uncompressed(), 1.0),
    "float16": (lambda rank: Float16(), 1.0),
    "qsgd": (lambda rank: QSGD(np.random.default_rng(rank), levels=15, bucket=60), 0.5),
    "sign": (lambda rank: Sign(), 0.2),
    "top-k": (lambda rank: TopK(0.1), 0.2),
    "random-k": (lambda rank: RandomK(np.random.default_rng(0), 0.2, unbiased=False), 0.2),
}


class Everybody:
    """All ranks' vectors, public copies and compressors; all receivers of a message decode the same."""

    def __init__(self, graph: Topology, make: Callable[[int], Compressor], consensus_step: float) -> None:
        steps = [doubly_stochastic(graph, rank, 0) for rank in range(graph.ranks)]
        zeros = np.zeros(LENGTH, np.float32)
        self.graph = graph
        self.copies = [PublicCopies(zeros, step, consensus_step) for step in steps]
        self.compressors = [make(rank) for rank in range(graph.ranks)]
        self.vectors: NDArray[np.float32] = (
            np.random.default_rng(3).normal(size=(graph.ranks, LENGTH)).astype(np.float32)
        )

    def round(self) -> None:
        sent: list[Vector] = []
        for compressor, copy, vector in zip(self.compressors, self.copies, self.vectors, strict=True):
            sent.append(compressor.decode(compressor.encode(copy.difference(vector)), LENGTH))
        for rank, copy in enumerate(self.copies):
            copy.mix(self.vectors[rank], sent[rank], [sent[source] for source in copy.step.sources])


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_compressed_gossip_comes_to_the_mean(name: str, ranks: int) -> None:
    everybody = Everybody(topology("ring", ranks), *COMPRESSORS[name])
    mean, apart = everybody.vectors.mean(axis=0), consensus_error(everybody.vectors)
    for _ in range(400):
        everybody.round()
    assert np.abs(everybody.vectors.mean(axis=0) - mean).max() < 1e-5, "the mean stays, whatever was lost"
    assert consensus_error(everybody.vectors) <= 0.01 * apart
    weights = mixing_matrix(everybody.graph)
    public = np.array([copy.own for copy in everybody.copies])
    mixed = np.array([copy.mixed for copy in everybody.copies])
    assert np.abs(mixed - weights @ public).max() < 1e-4, "the sum is that of the neighbours' public copies"


def test_sending_compressed_parameters_instead_does_not() -> None:
    graph, compressor = topology("ring", 4), TopK(0.1)
    vectors = Everybody(graph, lambda rank: compressor, 1.0).vectors
    mean = vectors.mean(axis=0)
    weights = mixing_matrix(graph)
    for _ in range(400):
        lossy = np.array([compressor.decode(compressor.encode(vector), LENGTH) for vector in vectors])
        own = np.diag(weights)[:, None]
        vectors = (own * vectors + (weights @ lossy - own * lossy)).astype(np.float32)
    assert np.abs(vectors.mean(axis=0) - mean).max() > 0.1, "the mean has moved"


@pytest.mark.parametrize("name", ["ring", "exponential", "complete"])
def test_uncompressed_it_is_plain_mixing(name: str) -> None:
    graph = topology(name, 5)
    everybody = Everybody(graph, lambda rank: Uncompressed(), 1.0)
    steps = [doubly_stochastic(graph, rank, 0) for rank in range(5)]
    for _ in range(5):
        expected = run(steps, everybody.vectors)
        everybody.round()
        assert np.abs(everybody.vectors - expected).max() < 1e-6


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"graph": Path("mine"), "topology": "torus"}, "--graph takes the place of --topology"),
        (
            {"compressor": "none", "fraction": 0.5},
            "--fraction is for --compressor top-k or random-k, not for none: leave it out",
        ),
        ({"compressor": "sign", "fraction": 0.5}, "--fraction is for --compressor top-k or random-k, not for sign"),
        ({"compressor": "top-k", "bucket": 40}, "--bucket is for --compressor qsgd, not for top-k: leave it out"),
        ({"compressor": "top-k", "levels": 3}, "--levels is for --compressor qsgd, not for top-k: leave it out"),
        ({"compressor": "qsgd", "levels": 7, "bucket": 512}, "give more levels than the root of the bucket"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check(Config(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({"compressor": "sign"}, 0.3),
        ({"compressor": "top-k", "fraction": 0.2}, 0.3),
        ({"compressor": "top-k"}, 0.06),
        ({"compressor": "random-k"}, 0.005),
        ({"compressor": "random-k", "consensus_step": 0.2}, 0.2),
    ],
)
def test_the_more_is_left_out_the_shorter_the_usual_step(options: dict[str, object], step: float) -> None:
    assert Config(**options).moves_by == pytest.approx(step)  # type: ignore[arg-type]
