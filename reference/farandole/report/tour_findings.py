"""The findings of a tour, in a sentence each: speed, a slow rank, bytes, accuracy, a failure.

Every sentence is computed from the records. One that the records do not support is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from farandole.report.table import ACCURACY, percent
from farandole.runtime.record import Summary

Summaries = Mapping[str, Summary]


def findings(even: Summaries, slow: Summaries | None = None) -> list[str]:
    """Return the sentences.

    Args:
        even: method → its summary, with equal ranks.
        slow: the same methods with one slow rank.
    """
    found = (_speed(even), _kept(even, slow or {}), _sent(even), _learned(even), _failed(even))
    return [sentence for sentence in found if sentence]


def _speed(even: Summaries) -> str:
    speeds = {name: summary.samples_per_s for name, summary in even.items() if summary.samples_per_s}
    if len(speeds) < 2:
        return ""
    fastest, slowest = max(speeds, key=speeds.__getitem__), min(speeds, key=speeds.__getitem__)
    return (
        f"With equal ranks “{fastest}” was the fastest, at {speeds[fastest]:,.0f} samples/s: "
        f"{speeds[fastest] / speeds[slowest]:.1f} times as fast as “{slowest}”, and "
        f"{speeds[fastest] / median(speeds.values()):.1f} times the median."
    )


def _kept(even: Summaries, slow: Summaries) -> str:
    """Compare each method's speed with a slow rank with its own speed without."""
    kept = {
        name: slow[name].samples_per_s / each.samples_per_s
        for name, each in even.items()
        if name in slow and each.samples_per_s
    }
    if len(kept) < 2:
        return ""
    most, least, first = max(kept, key=kept.__getitem__), min(kept, key=kept.__getitem__), next(iter(kept))
    other = "" if first in (most, least) else f"“{first}” {kept[first]:.0%}, "
    return (
        f"One slow rank left “{most}” {kept[most]:.0%} of its speed, the most of all, {other}and “{least}” "
        f"{kept[least]:.0%}, the least."
    )


def _sent(even: Summaries) -> str:
    """Compare what the busiest rank has sent, where it is counted."""
    sent = {name: max(each.bytes_sent) for name, each in even.items() if each.bytes_sent and max(each.bytes_sent)}
    if len(sent) < 2:
        return ""
    least, first = min(sent, key=sent.__getitem__), next(iter(sent))
    if least == first:
        return ""
    return (
        f"“{least}” sent the fewest bytes in messages, {sent[least] / 1e6:.1f} MB from its busiest rank; “{first}” "
        f"sent {sent[first] / 1e6:.1f} MB, {sent[first] / sent[least]:.1f} times as many."
    )


def _learned(even: Summaries) -> str:
    accuracies = {name: value for name, each in even.items() if (value := each.test_accuracy) is not None}
    if len(accuracies) < 2:
        return ""
    best, worst = max(accuracies, key=accuracies.__getitem__), min(accuracies, key=accuracies.__getitem__)
    return (
        f"On the test set the {ACCURACY} was between {percent(accuracies[worst])} (“{worst}”) and "
        f"{percent(accuracies[best])} (“{best}”)."
    )


def _failed(even: Summaries) -> str:
    for summary in even.values():
        for fault in summary.faults:
            if fault["detected_s"] is not None and fault["resumed_s"] is not None:
                return (
                    f"Rank {fault['rank']} died in step {fault['step']}: the remaining ranks detected this after "
                    f"{fault['detected_s']:.3f} s, and had done the next step after {fault['resumed_s']:.3f} s."
                )
    return ""
