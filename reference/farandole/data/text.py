"""Real text as sparse features: from which topic of Python's documentation does a passage come?

Each of its largest topics (`documentation`) is cut into passages of `words` words; a passage's
features are its single words and its pairs of neighbouring words, hashed into `buckets` numbers
(Weinberger et al. 2009), so that no vocabulary has to be agreed on. A value is tf–idf: how often the
feature stands in the passage, times ln((1 + passages) / passages with it); each passage is then
scaled to length 1.

A passage touches about 55 of the 65,536 buckets: the workload of a parameter server whose workers
pull and push only the rows they need. Which passages there are depends on Python's version; with
3.11 and the defaults there are 1,111.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from farandole.data import documentation
from farandole.data.datasets import split as split  # it cuts these passages as it cuts images
from farandole.errors import UsageError

WORD = re.compile(r"\w+")
PAGE_PASSAGES = 12  # number of neighbouring passages in one document


@dataclass(frozen=True)
class SparseDataset:
    """Samples as the rows of a sparse matrix (CSR: compressed sparse rows).

    Sample i has the features `indices[indptr[i]:indptr[i + 1]]`, ascending and each once, with the
    `values` at the same places.

    Attributes:
        indptr: int64, (samples + 1,).
        indices: int64, (entries,), each below the number of buckets.
        values: float32, (entries,).
        targets: int64, (samples,).
        documents: int64, (samples,): the number of the document a sample was cut from.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float32]
    targets: NDArray[np.int64]
    documents: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> SparseDataset:
        starts, lengths = self.indptr[:-1][rows], np.diff(self.indptr)[rows]
        indptr = _offsets(lengths)
        entries = np.repeat(starts - indptr[:-1], lengths) + np.arange(indptr[-1])
        return SparseDataset(
            indptr, self.indices[entries], self.values[entries], self.targets[rows], self.documents[rows]
        )


def load(buckets: int = 1 << 16, classes: int = 8, words: int = 32) -> SparseDataset:
    """Return all passages of the `classes` largest topics, topic after topic, in reading order.

    Args:
        buckets: features are numbered from 0 to this.
        words: length of a passage; shorter ones are more, and harder to tell apart.

    Raises:
        UsageError: a number that is too small, or more than the documentation has.
    """
    if min(buckets, words) < 1:
        raise UsageError(f"{buckets} buckets and {words} words a passage: each must be at least 1")
    passages: list[list[str]] = []
    targets: list[int] = []
    documents: list[int] = []
    for target, topic in enumerate(_largest_topics(classes)):
        tokens = WORD.findall(topic.lower())
        count = len(tokens) // words
        if count == 0:
            raise UsageError(f"a topic has only {len(tokens)} words: use fewer classes or passages of fewer words")
        passages += [tokens[number * words : (number + 1) * words] for number in range(count)]
        first_document = documents[-1] + 1 if documents else 0
        documents += [first_document + number // PAGE_PASSAGES for number in range(count)]
        targets += [target] * count
    return _dataset([_hashed(passage, buckets) for passage in passages], np.array(targets), np.array(documents))


def shards_by_document(dataset: SparseDataset, workers: int) -> list[SparseDataset]:
    """Cut along documents: whole documents to each worker, neighbours together, about equally many samples.

    A rare word stands in one document or in two neighbouring ones; so most rows of a table of
    parameters are then touched by one worker only.

    Raises:
        UsageError: a worker would get nothing.
    """
    if workers < 1:
        raise UsageError(f"{workers} workers cannot share the documents: there must be at least 1")
    order = np.argsort(dataset.documents, kind="stable")
    counts = np.unique(dataset.documents, return_counts=True)[1]
    # A document goes where its middle lies when all samples are cut into equal pieces.
    owners = ((np.cumsum(counts) - counts / 2) * workers / len(dataset)).astype(np.int64)
    samples = np.bincount(owners, weights=counts, minlength=workers).astype(np.int64)
    if not samples.all():
        raise UsageError(f"{len(counts)} documents are too few, or too uneven, for {workers} workers: use fewer")
    return [dataset[order[start:stop]] for start, stop in pairwise(_offsets(samples))]


def _largest_topics(count: int) -> list[str]:
    topics = documentation.topics()
    if not 2 <= count <= len(topics):
        raise UsageError(f"{count} classes: must be from 2 to the {len(topics)} topics there are")
    return topics[:count]


def _hashed(passage: Sequence[str], buckets: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the buckets a passage's words and pairs of words fall into, ascending, and how often each."""
    features = [*passage, *(f"{first} {second}" for first, second in pairwise(passage))]
    # A checksum, because Python's own hash of a text differs from process to process.
    hashes = np.array([zlib.crc32(feature.encode()) % buckets for feature in features], dtype=np.int64)
    return np.unique(hashes, return_counts=True)


def _dataset(
    hashed: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    targets: NDArray[np.int64],
    documents: NDArray[np.int64],
) -> SparseDataset:
    lengths = np.array([len(found) for found, _ in hashed])
    indptr = _offsets(lengths)
    indices = np.concatenate([found for found, _ in hashed])
    rarity = np.log((1 + len(hashed)) / np.bincount(indices)[indices])
    values = np.concatenate([counts for _, counts in hashed]) * rarity
    norms = np.sqrt(np.add.reduceat(values**2, indptr[:-1]))
    return SparseDataset(indptr, indices, (values / np.repeat(norms, lengths)).astype(np.float32), targets, documents)


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of some pieces that lie one after the other begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
