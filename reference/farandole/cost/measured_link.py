"""α and β of the network of finished runs, from what their records have counted and timed.

A trace does not contain the length of each message, but a record has each rank's number of messages and bytes. Where a
rank sends one message after the other, and receives as much meanwhile, as in a ring and between neighbours in a graph,

    comm_s = messages_sent·α + bytes_sent·β

since comm_s contains no waiting (`runtime.trace`). The ranks of a run send alike, and so do all its steps: one run
gives the sum, and two with messages of different lengths separate α from β. The α and β found, none below 0, are those
with which the model is nearest to all ranks of all runs, by least squares of the relative errors as in
`collectives.fitting`. β contains the time to add, and α what a machine does for each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from farandole.collectives.costs import Link
from farandole.errors import UsageError
from farandole.runtime.record import Run

SCENARIOS = ("sync_sgd", "local_sgd", "compressed_sgd", "agnostic_sgd", "dpsgd", "push_sum", "choco_sgd", "gossip_sgd")
# Of their options, what leaves a rank's messages one after the other; a scenario has not all of them.
ONE_AFTER_THE_OTHER: dict[str, tuple[object, ...]] = {
    "collective": ("ring", "segmented-ring"),
    "method": ("d-psgd", "push-sum"),  # of gossip_sgd, as dpsgd, push_sum and ad_psgd were called
    "overlap": (False,),
    "link_change": ([],),
}
APART = 2  # times as long as the shortest messages are the longest, at least


@dataclass(frozen=True)
class MeasuredLink:
    """The network that was found.

    Attributes:
        error: the largest relative error of the model over all ranks: 0.1 is a tenth of a rank's seconds.
    """

    link: Link
    error: float


def measured_link(runs: Sequence[Run]) -> MeasuredLink:
    """Fit α and β to all ranks of `runs`.

    Raises:
        UsageError: the runs do not determine them.
    """
    links = {(run.config.get("link_mbps"), run.config.get("link_latency_ms", 0.0)) for run in runs}
    if len(links) > 1:
        raise UsageError(
            f"the runs had links of different speeds ({_names(runs)}): give runs with one --link-mbps and latency"
        )
    rows = np.array([row for run in runs for row in _rows(run)])
    messages, nbytes, seconds = rows.T
    lengths = nbytes / messages
    if lengths.max() < APART * lengths.min():
        raise UsageError(
            f"the messages of {_names(runs)} are about equally long, {lengths.mean():,.0f} bytes: α and β need two "
            "runs that differ, for instance in --hidden"
        )
    columns = np.stack([messages, nbytes], axis=1) / seconds[:, None]
    (alpha, beta), _ = nnls(columns, np.ones(len(rows)))
    return MeasuredLink(Link(float(alpha), float(beta)), float(np.abs(columns @ [alpha, beta] - 1).max()))


def _rows(run: Run) -> list[tuple[float, float, float]]:
    """Return each rank's messages, bytes and seconds.

    Raises:
        UsageError: the ranks did not send one message after the other, or sent none.
    """
    summary, config = run.summary, run.config
    if summary.scenario not in SCENARIOS:
        raise UsageError(f"{run.folder} is a run of {summary.scenario}: for α and β give one of {', '.join(SCENARIOS)}")
    for option, right in ONE_AFTER_THE_OTHER.items():
        if config.get(option, right[0]) not in right:
            raise UsageError(
                f"{run.folder} has --{option.replace('_', '-')} {config[option]}, where a rank's seconds are not those "
                "of its messages one after the other: give a run without"
            )
    counted: list[tuple[float, float, float]] = list(
        zip(summary.messages_sent or [], summary.bytes_sent or [], summary.comm_s, strict=False)
    )
    if not all(messages and seconds for messages, _, seconds in counted) or not counted:
        raise UsageError(f"{run.folder} has sent no messages that were counted: give a run of two ranks or more")
    return counted


def _names(runs: Sequence[Run]) -> str:
    return " and ".join(str(run.folder) for run in runs)
