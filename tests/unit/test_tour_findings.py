"""The sentences of the tour's page: each follows from the numbers, and an unsupported one is left out."""

from __future__ import annotations

from farandole.report.tour_findings import findings
from tests.unit.test_table import fault, summary_of

EVEN = {
    "ring": summary_of(4, samples_per_s=10_000.0, test_accuracy=0.92, bytes_sent=[90_000_000, 100_000_000] * 2),
    "library": summary_of(4, samples_per_s=4_000.0, test_accuracy=0.95),
    "top-k": summary_of(4, samples_per_s=16_000.0, test_accuracy=0.9, bytes_sent=[2_000_000] * 4),
}
SLOW = {
    "ring": summary_of(4, samples_per_s=4_000.0),
    "library": summary_of(4, samples_per_s=3_000.0),
    "top-k": summary_of(4, samples_per_s=5_000.0),
}


def test_each_sentence_follows_from_the_numbers() -> None:
    assert findings(EVEN, SLOW) == [
        "With equal ranks “top-k” was the fastest, at 16,000 samples/s: 4.0 times as fast as “library”, and 1.6 times "
        "the median.",
        "One slow rank left “library” 75% of its speed, the most of all, “ring” 40%, and “top-k” 31%, the least.",
        "“top-k” sent the fewest bytes in messages, 2.0 MB from its busiest rank; “ring” sent 100.0 MB, 50.0 times as "
        "many.",
        "On the test set the accuracy was between 90.0% (“top-k”) and 95.0% (“library”).",
    ]


def test_a_failure_has_a_sentence() -> None:
    failed = summary_of(4, faults=[fault(step=20, detected_s=0.0204, resumed_s=0.25)])
    assert findings({"killed": failed}) == [
        "Rank 2 died in step 20: the remaining ranks detected this after 0.020 s, and had done the next step after "
        "0.250 s."
    ]


def test_what_the_records_do_not_have_is_not_claimed() -> None:
    none = {"a": summary_of(2, test_accuracy=None, samples_per_s=0.0), "b": summary_of(2, test_accuracy=None)}
    assert findings(none, none) == []
    assert findings({}, {}) == []
    first = {"a": summary_of(2, bytes_sent=[1, 1]), "b": summary_of(2, bytes_sent=[2, 2])}
    assert not any("fewest" in sentence for sentence in findings(first))
