"""The measurements of all ranks, written to summary.json and trace.json (`record` describes their contents)."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from farandole import __version__
from farandole.runtime import devices, trace, traffic
from farandole.runtime.files import json_text, read_lines, write
from farandole.runtime.options import RunOptions
from farandole.runtime.record import Summary

# What spans are called in which something compressed travels: all together, between neighbours, to a server.
TRANSFERS = ("transfer", "send to", "receive from", "have sent", "push and pull", "receive a gradient")


def write_summary(
    folder: Path,
    scenario: str,
    options: RunOptions,
    ranks: Sequence[dict[str, Any]],
    spans: Sequence[trace.Span],
    operations: Sequence[traffic.Operation] = (),
    *,
    samples: int,
    bytes_are_counted: bool,
    faults: Sequence[dict[str, Any]] = (),
    roles: Sequence[str] = (),
    joined: Sequence[dict[str, Any]] = (),
    test_metrics: Mapping[str, float | None] | None = None,
    **figures: Any,
) -> Summary:
    """Write summary.json and then trace.json from all ranks' measurements; `Summary.unwritten` names files that fail.

    Args:
        ranks: of each: rank, sha256, wall_s, bytes, messages, memory, place (`RankDevice.described`), where gradients
            are compressed ring_bytes; in the order of their numbers; with message faults also delivery and struck.
        spans: of all ranks, on one clock.
        operations: what they have sent and received, on that clock.
        faults: the failures of ranks.
        joined: the ranks that joined later.
        test_metrics: of the final model.
        figures: the fields of `Summary` that do not follow from these.
    """
    numbers = [rank["rank"] for rank in ranks]
    spans = trace.split_waits(spans)
    seconds = trace.seconds_by_category(spans, numbers)
    wall_s = max(rank["wall_s"] for rank in ranks)
    memory = [rank["memory"] for rank in ranks]
    places = [rank["place"] for rank in ranks]
    device = next((place["device"] for place in places if place["device"] != "cpu"), "cpu")
    per_sample = options.flops_per_sample()
    again = options.recomputed_flops_per_sample()
    flops = None if per_sample is None else float(per_sample * samples)
    hardware_flops = None if flops is None or again is None else flops + again * samples
    peak = wall_s * len(ranks) * options.peak_flops if options.peak_flops else None
    summary = Summary(
        scenario=scenario,
        ranks=len(ranks),
        members=numbers,
        seed=options.seed,
        device=device,
        places=places,
        wall_s=wall_s,
        test_metrics=dict(test_metrics) if test_metrics else None,
        test_accuracy=(test_metrics or {}).get("accuracy"),
        samples_per_s=samples / wall_s if wall_s else 0.0,
        bytes_sent=[rank["bytes"] for rank in ranks] if bytes_are_counted else None,
        messages_sent=[rank["messages"] for rank in ranks] if bytes_are_counted else None,
        compute_s=seconds["compute"],
        comm_s=seconds["communicate"],
        wait_s=seconds["wait"],
        memory=_by_kind(memory) if all(memory) else None,
        params_sha256=[rank["sha256"] for rank in ranks],
        versions=versions() | ({"arithmetic": devices.arithmetic()} if device != "cpu" else {}),
        faults=[*faults, *message_faults(options, ranks)],
        joined=list(joined),
        compression=_compression(ranks, spans),
        delivery=_delivery(ranks),
        flops=flops,
        mfu=flops / peak if flops and peak else None,
        hardware_flops=hardware_flops,
        hfu=hardware_flops / peak if hardware_flops and peak else None,
        **figures,
    )
    # The summary comes first: it is small and holds the results, while the trace is the largest file.
    for name, content in (
        ("summary.json", summary.to_json),
        ("trace.json", lambda: json_text(trace.chrome_trace(spans, numbers, roles, operations))),
    ):
        try:
            write(folder / name, content())
        except OSError as error:
            summary = summary.without(error)
    return summary


def divergence_in(folder: Path) -> dict[str, int | None] | None:
    """Return the first step in metrics.jsonl whose loss is not finite, as `Summary.diverged` has it; None: no step is.

    For workers that do not measure with a `Recorder`: of which rank it was is not known.
    """
    lines = read_lines(folder / "metrics.jsonl", "start again")
    return next(({"step": line["step"], "rank": None} for line in lines if line["loss"] is None), None)


def versions() -> dict[str, str]:
    """Return the versions of the software that computes and communicates here."""
    found = {
        "farandole": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "mpi": MPI.Get_library_version().split(",")[0].strip(),
        "mpi4py": metadata.version("mpi4py"),
    }
    with suppress(metadata.PackageNotFoundError):
        found["horovod"] = metadata.version("horovod")
    return found


def _by_kind(held: Sequence[dict[str, dict[str, int | None]]]) -> dict[str, dict[str, list[int | None]]]:
    """Every rank's memory by kind becomes a list, one entry a rank, of each kind."""
    return {how: {kind: [rank[how][kind] for rank in held] for kind in kinds} for how, kinds in held[0].items()}


def _delivery(ranks: Sequence[dict[str, Any]]) -> dict[str, list[int]] | None:
    """Return each rank's counts of resent and discarded messages, by name; None without message faults."""
    found: list[dict[str, int]] = [rank["delivery"] for rank in ranks if "delivery" in rank]
    return {name: [each[name] for each in found] for name in found[0]} if found else None


def message_faults(options: RunOptions, ranks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return an entry of the record's `faults` per `--fail …,how=drop`, with the number of messages it has struck.

    A partition strikes those of all ranks.
    """
    struck: Counter[str] = Counter()
    for rank in ranks:
        struck.update(rank.get("struck") or {})
    unknown = {"detected_s": None, "resumed_s": None, "steps_lost": 0}
    return [
        {"rank": fail.rank, "step": fail.step, "kind": fail.how, **unknown, "messages": struck[str(fail)]}
        for fail in options.fail
        if str(fail) in struck
    ]


def _compression(ranks: Sequence[dict[str, Any]], spans: Sequence[trace.Span]) -> dict[str, list[float]] | None:
    """Return what compression has cost and saved; waiting for others is no part of the transfer."""
    before: list[float] = [rank["ring_bytes"] for rank in ranks if rank.get("ring_bytes") is not None]
    if len(before) < len(ranks):
        return None
    figures: dict[str, list[float]] = {}
    for name, spans_of in (("encode", ("encode",)), ("transfer", TRANSFERS), ("decode", ("decode",))):
        figures[f"{name}_s"] = [
            sum(span.end - span.start for span in spans if span.rank == rank["rank"] and span.name.startswith(spans_of))
            for rank in ranks
        ]
    return {**figures, "ring_bytes": before}
