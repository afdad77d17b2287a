"""The cores near a card: those of the same NUMA node, whose memory the card reaches without crossing to another."""

from __future__ import annotations

import os
import re
from pathlib import Path

SYS = Path("/sys")
LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def near_cores(address: str) -> str:
    """Return the cores near a PCI device, as the kernel writes them ("0-15,32-47"); "": it does not know.

    Args:
        address: of the device, as 0000:17:00.0.
    """
    try:
        text = (SYS / "bus/pci/devices" / address / "local_cpulist").read_text(encoding="ascii").strip()
    except OSError:
        return ""
    return text if LIST.fullmatch(text) else ""


def allowed_cores() -> str:
    """Return the cores that this process may use; "": the system cannot restrict them."""
    return as_text(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ""


def best_cores(allowed: str, near: str) -> str:
    """Return those of the `allowed` cores that are `near` a card; if there are none, all that are allowed."""
    return as_text(numbers(allowed) & numbers(near)) or allowed


def bind(cores: str) -> None:
    """Keep this process on these of its cores."""
    if cores != allowed_cores():
        os.sched_setaffinity(0, numbers(cores))


def numbers(text: str) -> set[int]:
    """Return the numbers in a list as the kernel writes it: "0-3,8" is 0, 1, 2, 3, 8."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def as_text(found: set[int]) -> str:
    """Return numbers as the kernel writes them."""
    runs: list[list[int]] = []
    for number in sorted(found):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
