"""The record of `make gpu-check`: one page to read, with all figures as JSON at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from farandole.runtime.files import json_text
from farandole_tools.gpu_check.execution import Outcome
from farandole_tools.gpu_check.plan import Check

MEASURED = {"step_ms": "step", "computing_ms": "computing", "communicating_ms": "communicating"}
APART = 0.01  # how far final losses may be apart: cards add up in another order with another system
AGREEMENT = "the same loss by all systems"


def markdown(machine: Mapping[str, Any], ended: Sequence[Outcome]) -> str:
    """Return the record's text.

    Args:
        machine: as `execution.machine` returns it.
        ended: what has been run.
    """
    about = {name: value for name, value in machine.items() if name != "cards"}
    about |= {f"card {number}": ", ".join(card.values()) for number, card in enumerate(machine["cards"])}
    about |= {name: value for name, value in versions(ended).items() if name not in about}
    others = [each for each in ended if each.check.kind != "training"]
    checks = [[str(each.check), each.state, f"{each.seconds:.0f}", each.note] for each in others + agreement(ended)]
    failures = [[name, why] for each in ended for name, why in each.figures.get("failures", {}).items()]
    findings = [
        [each["name"], "works" if each["works"] else "missing", each["seen"]]
        for outcome in ended
        for each in outcome.figures.get("findings", [])
    ]
    everything = {
        "machine": machine,
        "outcomes": [
            {"check": str(each.check), "command": " ".join(each.check.arguments), "state": each.state}
            | {"seconds": each.seconds, "note": each.note, "figures": each.figures}
            for each in ended
        ],
    }
    parts = [
        "# GPU check",
        _table(["", ""], [[name, str(value)] for name, value in about.items()]),
        "## Checks",
        _table(["check", "result", "seconds", "note"], checks),
        *(["## Failed tests", _table(["test", "error"], failures)] if failures else []),
        "## Trainings",
        "Medians of runs in which the systems alternate; times in ms a step, of the slowest rank.",
        _table(["ranks", "system", *MEASURED.values(), "samples/s", "final loss"], _trainings(ended)),
        "## Doctor",
        _table(["", "", "found"], findings),
        f"## All figures\n\n<details>\n\n```json\n{json_text(everything, indent=1)}\n```\n\n</details>",
    ]
    return "\n\n".join(parts) + "\n"


def versions(ended: Sequence[Outcome]) -> dict[str, str]:
    """Return what computed and communicated in the trainings."""
    return {name: text for each in ended for name, text in each.figures.get("versions", {}).items()}


def agreement(ended: Sequence[Outcome]) -> list[Outcome]:
    """Return for each number of ranks whether all systems came to the same loss; nothing where fewer than two ran."""
    found = []
    for ranks in sorted({each.check.ranks for each in ended if each.check.ranks}):
        losses = {
            each.check.name: each.figures["final_loss"]
            for each in ended
            if each.check.ranks == ranks and each.state == "passed"
        }
        if len(losses) < 2:
            continue
        numbers = [value for value in losses.values() if value is not None]
        same = len(numbers) == len(losses) and max(numbers) - min(numbers) <= APART * max(numbers)
        note = "" if same else ", ".join(f"{name} {value}" for name, value in losses.items())
        check = Check("agreement", AGREEMENT, "", (), 0, ranks)
        found.append(Outcome(check, "passed" if same else "failed", 0, note))
    return found


def _trainings(ended: Sequence[Outcome]) -> list[list[str]]:
    """Return a row for each system and number of ranks, in the order in which they ran first."""
    rows = []
    done = [each for each in ended if each.check.kind == "training"]
    for ranks, name in dict.fromkeys((each.check.ranks, each.check.name) for each in done):
        its = [each for each in done if (each.check.ranks, each.check.name) == (ranks, name)]
        measured = [each.figures for each in its if each.state == "passed"]
        if not measured:
            rows.append([str(ranks), name, *[""] * (len(MEASURED) + 1), f"{its[-1].state}: {its[-1].note}"])
            continue
        times = [f"{median(each[figure] for each in measured):.2f}" for figure in MEASURED]
        speed = f"{median(each['samples_per_s'] for each in measured):,.0f}"
        note = "" if its[-1].state == "passed" else f"; then {its[-1].state}: {its[-1].note}"
        rows.append([str(ranks), name, *times, speed, f"{measured[-1]['final_loss']}{note}"])
    return rows


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
