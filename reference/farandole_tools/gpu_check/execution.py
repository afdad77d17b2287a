"""Running one check after the other, and what each came to."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from farandole.errors import UsageError
from farandole_tools.gpu_check.plan import Check

REFUSED = 2  # the exit code for what is not possible here
PROBE_S = 120
QUERY = "name,uuid,driver_version,memory.total,compute_mode,mig.mode.current"
# In a process of its own: one that has used a card would keep it from the ranks in the mode EXCLUSIVE_PROCESS.
PROBE = """
import json, os, platform, torch
from farandole import __version__
from farandole.runtime.cards.assignment import NO_CARD, requested
from farandole.runtime.cards.detection import usable_cards
found, why = usable_cards("cuda", requested(os.environ))
about = {"farandole": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
about |= {"torch's CUDA": torch.version.cuda, "machine": platform.machine(), "cores": len(os.sched_getaffinity(0))}
cards = [{"card": torch.cuda.get_device_name(n), "UUID": card.name} for n, card in enumerate(found)]
print(json.dumps({"about": about, "cards": cards, "why": why or NO_CARD}))
"""


@dataclass(frozen=True)
class Outcome:
    """The result of a check.

    Attributes:
        state: "refused" is what this machine cannot do, as NCCL with two ranks on one card.
        seconds: how long it took.
        note: the reason, of one that did not pass.
        figures: what it has measured or counted.
    """

    check: Check
    state: Literal["passed", "failed", "refused"]
    seconds: float
    note: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.state}, {self.seconds:.0f} s{': ' if self.note else ''}{self.note}"


def machine(checkout: Path) -> dict[str, Any]:
    """Return what stands at the head of the record: the cards, the driver, and the versions.

    Raises:
        UsageError: torch can use no CUDA card here.
    """
    command = [sys.executable, "-P", "-c", PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S)
    except subprocess.TimeoutExpired:
        raise UsageError(f"torch has not found its cards within {PROBE_S} s: try nvidia-smi") from None
    if done.returncode:
        raise UsageError(f"torch cannot look for cards ({last_line(done.stderr)}): make setup")
    found: dict[str, Any] = json.loads(done.stdout)
    if not found["cards"]:
        raise UsageError(f"{found['why']}: run make gpu-check on a machine with a card")
    lists = _said(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"])
    commit = _said(["git", "-C", str(checkout), "describe", "--always", "--dirty"])
    return {**found["about"], "commit": commit, "cards": found["cards"], "nvidia-smi": lists.splitlines()}


def _said(command: Sequence[str]) -> str:
    """Return what a command prints; "": it is not there, or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def refused_before(check: Check, ended: Sequence[Outcome]) -> bool:
    """Return whether an earlier sweep of this training did not pass, so that another one shows nothing new."""
    return any(
        each.check.kind == "training" and (each.check.name, each.check.ranks) == (check.name, check.ranks)
        for each in ended
        if each.state != "passed"
    )


def run(check: Check, checkout: Path) -> Outcome:
    """Run a check in the checkout, and return what it came to."""
    started = time.monotonic()
    command = [sys.executable, "-m", check.module, *check.arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=check.timeout_s, cwd=checkout)
    except subprocess.TimeoutExpired:
        return Outcome(check, "failed", time.monotonic() - started, f"ended after {check.timeout_s:g} s, its time-out")
    seconds = time.monotonic() - started
    if check.writes:
        return of_tests(check, seconds, check.writes, f"{done.stdout}\n{done.stderr}")
    if done.returncode:
        refused = check.kind == "training" and done.returncode == REFUSED
        said = last_line(done.stderr).removeprefix("farandole: ")
        return Outcome(check, "refused" if refused else "failed", seconds, said)
    return Outcome(check, "passed", seconds, figures=figures(check, json.loads(done.stdout)))


def figures(check: Check, printed: Any) -> dict[str, Any]:
    """Return what the record has of what a check prints: the doctor's findings, or figures of a training.

    The times are those of the rank that computes longest, and of the one that communicates longest, in ms a step.
    """
    if check.kind == "doctor":
        return {"findings": printed}
    per_step = 1e3 / printed["steps"]
    return {
        "step_ms": printed["wall_s"] * per_step,
        "computing_ms": max(printed["compute_s"]) * per_step,
        "communicating_ms": max(printed["comm_s"]) * per_step,
        "samples_per_s": printed["samples_per_s"],
        "final_loss": printed["final_loss"],
        "versions": printed["versions"],
        "places": printed["places"],
    }


def of_tests(check: Check, seconds: float, results: Path, said: str) -> Outcome:
    """Return what pytest has written: passed if a test has passed, and none has failed."""
    try:
        cases = [*ElementTree.parse(results).iter("testcase")]
    except (OSError, ElementTree.ParseError):
        return Outcome(check, "failed", seconds, last_line(said))
    failures = {
        f"{case.get('classname')}::{case.get('name')}": last_line(fault.get("message") or fault.text or "")
        for case in cases
        for fault in case
        if fault.tag in ("failure", "error")
    }
    skipped = sum(1 for case in cases if case.find("skipped") is not None)
    passed = len(cases) - skipped - len(failures)
    counts = {"passed": passed, "failed": len(failures), "skipped": skipped, "failures": failures}
    note = f"{passed} passed, {len(failures)} failed, {skipped} skipped"
    return Outcome(check, "failed" if failures or not passed else "passed", seconds, note, counts)


def last_line(text: str) -> str:
    """Return the last line that is not empty, which names the error; "nothing was printed" where there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing was printed"
