"""``farandole simulate --record, --fit, --sides``: what finished runs say to a simulation, and it to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.runtime.files import json_text

if TYPE_CHECKING:
    from farandole.cost.measured_link import MeasuredLink


def against(folder: Path, as_json: bool) -> None:
    """Predict a run of parameter_server from its own computing times."""
    from farandole.cost import validation
    from farandole.runtime.record import Run

    verdict = validation.against(Run.open(folder))
    if as_json:
        _print_json(verdict.to_dict())
    else:
        print(
            f"{folder}: a round of all workers took {verdict.measured_s:.4g} s, the simulator says "
            f"{verdict.predicted_s:.4g} s ({verdict.error:+.0%})"
        )


def fitted(folders: Sequence[Path], as_json: bool) -> None:
    """Print how the first run's computing times scatter, and with further runs the cost of messages in all of them."""
    from farandole.cost import straggler_fit, stragglers
    from farandole.cost.measured_link import measured_link
    from farandole.cost.validation import recorded
    from farandole.runtime.record import Run

    runs = [Run.open(folder) for folder in folders]
    seconds = recorded(runs[0]).seconds
    fit = straggler_fit.fitted([each for own in seconds for each in own])
    link = measured_link(runs) if len(runs) > 1 else None
    straggler, compute_ms, computations = stragglers.written(fit.straggler), 1e3 * fit.mean_s, sum(map(len, seconds))
    by_rank = [1e3 * sum(own) / len(own) for own in seconds]
    if as_json:
        found = {"straggler": straggler, "compute_ms": compute_ms, "distance": fit.distance}
        found |= {"computations": computations, "compute_ms_by_rank": by_rank}
        _print_json(found | {"link": _figures(link) if link else None})
        return
    means = ", ".join(f"{mean:.3g}" for mean in by_rank)
    print(f"{folders[0]}: {computations:,} computations; the means of the ranks are {means} ms")
    print(f"--straggler {straggler} --compute-ms {compute_ms:.4g}")
    print(f"Kolmogorov's distance {fit.distance:.3f}: 0 is a perfect fit, and 1 the worst")
    if link is None:
        print("α and β take a second run, with messages of another length: --fit runs/A runs/B; without, farandole "
              "bench allreduce measures them, and farandole run sync_cost does")  # fmt: skip
        return
    figures = _figures(link)
    gbps = "inf" if figures["link_gbps"] is None else f"{figures['link_gbps']:.4g}"
    print(f"--latency-us {figures['latency_us']:.4g} --link-gbps {gbps}")
    print(f"with these no rank's seconds of communication are off by more than {link.error:.1%}, in any of the runs")


def _figures(measured: MeasuredLink) -> dict[str, float | None]:
    link = measured.link
    gbps = 8e-9 / link.beta if link.beta else None  # None: bytes took no time that could be told
    return {"latency_us": 1e6 * link.alpha, "link_gbps": gbps, "error": measured.error}


def sides(folder: Path, goal: float, alone: Path | None, as_json: bool) -> None:
    """Print what a run has measured of document 002's four sides."""
    from farandole.cost import cost_function
    from farandole.runtime.record import Run

    run = Run.open(folder)
    found = cost_function.sides(run, goal, Run.open(alone).summary if alone else None)
    if as_json:
        _print_json(asdict(found))
        return
    print(f"{folder}, {run.summary.ranks} ranks")
    print(f"communication   {1e3 * found.communication_s:.4g} ms a step and rank, without waiting")
    print(f"computing       {found.computing_share:.0%} of all ranks' time")
    reached = "never" if found.steps_to_loss is None else f"at step {found.steps_to_loss}"
    print(f"convergence     {reached} at a training loss of {goal:g} or less")
    if found.speed_up is not None:
        print(f"scalability     {found.speed_up:.3g} times as many samples a second as {alone}")


def _print_json(figures: object) -> None:
    print(json_text(figures, indent=2))
