"""Real text: passages of the documentation as sparse features, the same in every process."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.data import text
from farandole.errors import UsageError


@pytest.fixture(scope="module")
def passages() -> text.SparseDataset:
    return text.load()


def entries_of(dataset: text.SparseDataset, sample: int) -> tuple[list[int], list[float]]:
    part = slice(dataset.indptr[sample], dataset.indptr[sample + 1])
    return dataset.indices[part].tolist(), dataset.values[part].tolist()


def test_passages_are_those_of_eight_topics_in_reading_order(passages: text.SparseDataset) -> None:
    assert 900 < len(passages) < 2000
    assert passages.targets.tolist() == sorted(passages.targets)
    per_topic = Counter(passages.targets.tolist())
    assert sorted(per_topic) == list(range(8))
    assert min(per_topic.values()) >= 40
    assert max(per_topic.values()) < len(passages) / 3, "no answer is right too often by itself"


def test_features_are_ascending_unique_and_of_length_one(passages: text.SparseDataset) -> None:
    assert [passages.indptr.dtype, passages.indices.dtype, passages.targets.dtype] == [np.int64] * 3
    assert passages.values.dtype == np.float32
    assert passages.indptr[0] == 0
    assert passages.indptr[-1] == len(passages.indices) == len(passages.values)
    for sample in range(len(passages)):
        indices, values = entries_of(passages, sample)
        assert indices == sorted(set(indices))
        assert 0 <= indices[0] <= indices[-1] < 1 << 16
        assert 1 <= len(indices) <= 32 + 31, "words and pairs of words"
        assert math.isclose(sum(value**2 for value in values), 1, rel_tol=1e-5)
        assert min(values) > 0


def test_no_topic_is_a_chapter_of_another(passages: text.SparseDataset) -> None:
    """Some passages are repeated, and could be memorised; unrelated ones share less than half."""
    features = [set(passages[passages.targets == topic].indices.tolist()) for topic in range(8)]
    for topic, own in enumerate(features):
        assert all(len(own & larger) < 0.7 * len(own) for larger in features[:topic])


def test_a_frequent_word_counts_less_than_a_rare_one(passages: text.SparseDataset) -> None:
    passages_with = np.bincount(passages.indices, minlength=1 << 16)
    the_most_frequent = passages_with.argmax()
    assert passages_with[the_most_frequent] > len(passages) / 2
    frequent = passages.values[passages.indices == the_most_frequent].mean()
    rare = passages.values[passages_with[passages.indices] == 1].mean()
    assert frequent < rare / 2


def test_hashing_does_not_depend_on_the_process() -> None:
    program = "from farandole.data import text; import zlib; print(zlib.crc32(text.load(classes=2).indices.tobytes()))"
    checksums = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(checksums) == 1


def test_loading_needs_no_scikit_learn() -> None:
    program = "import sys; from farandole.data import text; text.load(); print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


@given(st.data())
def test_rows_can_be_taken_in_any_order(passages: text.SparseDataset, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(passages) - 1), max_size=12))
    taken = passages[np.array(rows, dtype=np.int64)]
    assert len(taken) == len(rows)
    assert taken.targets.tolist() == passages.targets[rows].tolist()
    assert taken.documents.tolist() == passages.documents[rows].tolist()
    assert [entries_of(taken, place) for place in range(len(rows))] == [entries_of(passages, row) for row in rows]


def test_a_slice_is_taken_like_its_rows(passages: text.SparseDataset) -> None:
    for rows in (slice(3, 9), slice(None, None, 200), slice(5, 5)):
        by_slice, by_rows = passages[rows], passages[np.arange(len(passages))[rows]]
        assert all(np.array_equal(part, vars(by_rows)[name]) for name, part in vars(by_slice).items())


def test_splits_are_disjoint_and_complete(passages: text.SparseDataset) -> None:
    splits = text.split(passages, seed=3)
    tenth = len(passages) / 10
    assert [round(len(part) / tenth) for part in splits] == [8, 1, 1]

    def contents(dataset: text.SparseDataset) -> Counter[tuple[int, ...]]:
        return Counter(tuple(entries_of(dataset, sample)[0]) for sample in range(len(dataset)))

    assert sum((contents(part) for part in splits), Counter()) == contents(passages)


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
def test_shards_by_document_hold_whole_documents(passages: text.SparseDataset, workers: int) -> None:
    train = text.split(passages, seed=0).train
    shards = text.shards_by_document(train, workers)
    assert len(shards) == workers
    assert sum(len(shard) for shard in shards) == len(train)
    documents = [set(shard.documents.tolist()) for shard in shards]
    assert set.union(*documents) == set(train.documents.tolist())
    assert sum(len(own) for own in documents) == len(set.union(*documents)), "no document is with two workers"
    largest_document = max(Counter(train.documents.tolist()).values())
    assert all(abs(len(shard) - len(train) / workers) <= largest_document for shard in shards)


def test_rows_belong_to_one_worker_more_often_than_with_shuffled_shards(passages: text.SparseDataset) -> None:
    def rows_of_one(shards: list[text.SparseDataset]) -> int:
        workers_with = np.bincount(np.concatenate([np.unique(shard.indices) for shard in shards]))
        return int((workers_with == 1).sum())

    shuffled = [passages[np.random.default_rng(0).permutation(len(passages))[worker::3]] for worker in range(3)]
    by_document = rows_of_one(text.shards_by_document(passages, 3))
    assert by_document > rows_of_one(shuffled)
    assert by_document > len(np.unique(passages.indices)) / 2


def test_shorter_passages_are_more() -> None:
    assert len(text.load(words=16)) > 1.9 * len(text.load(words=32))


def test_one_bucket_is_enough_to_load() -> None:
    assert text.load(buckets=1, classes=2).values.tolist() == [1.0] * len(text.load(buckets=1, classes=2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": 1}, "1 classes: must be from 2"),
        ({"classes": 1000}, "1000 classes: must be from 2"),
        ({"buckets": 0}, "0 buckets"),
        ({"words": 0}, "0 words"),
        ({"words": 100_000}, "passages of fewer words"),
    ],
)
def test_impossible_sizes_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        text.load(**arguments)


@pytest.mark.parametrize("workers", [-1, 0, 1000])
def test_impossible_numbers_of_workers_are_refused(passages: text.SparseDataset, workers: int) -> None:
    with pytest.raises(UsageError, match=f"{workers} workers"):
        text.shards_by_document(passages, workers)
