"""The cards that torch can use in this process, or why it can use none though there seem to be some."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from farandole.runtime.cards.assignment import VISIBLE, Card
from farandole.runtime.cards.near_cores import near_cores
from farandole.runtime.devices import kind_of_card

DEVICE_FILES = Path("/dev")
IN_SLURM = "SLURM_JOB_ID"


def usable_cards(wanted: str, requested: str) -> tuple[list[Card], str]:
    """Return the cards that torch can use, in its order, and why there are none where there seem to be some.

    Args:
        wanted: "cuda", or "auto": any kind of card.
        requested: the sign that cards were requested (`assignment.requested`); "": there is none.
    """
    kind = kind_of_card()
    if kind == "cuda":
        return [_card(number) for number in range(torch.cuda.device_count())], ""
    if kind and wanted == "auto":
        return [Card(f"{kind}:{number}") for number in range(torch.get_device_module(kind).device_count())], ""
    sign = requested or _device_file()
    return [], f"there are cards ({sign}), but {_why_unusable()}" if sign else ""


def device_of(number: int) -> torch.device:
    """Return the device of a card, by its number among the usable ones."""
    return torch.device(kind_of_card() or "cuda", number)


def _card(number: int) -> Card:
    about: Any = torch.cuda.get_device_properties(number)
    visible = os.environ.get(VISIBLE, "").split(",")
    name = visible[number] if len(visible) > number else ""
    if not name.startswith("MIG-"):  # a part of a card, of which torch may know the whole card's name only
        name = str(getattr(about, "uuid", number))
    if not hasattr(about, "pci_domain_id"):  # an older torch
        return Card(name)
    return Card(name, near_cores(f"{about.pci_domain_id:04x}:{about.pci_bus_id:02x}:{about.pci_device_id:02x}.0"))


def _device_file() -> str:
    """Return a card's device file; "": there is none, or this process is not meant to use the cards of this host."""
    if VISIBLE in os.environ or IN_SLURM in os.environ:  # they were hidden, or not requested
        return ""
    return next((str(file) for file in sorted(DEVICE_FILES.glob("nvidia[0-9]*"))), "")


def _why_unusable() -> str:
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built for the CPU only"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f"torch {torch.__version__} cannot use them: {str(error).partition('. ')[0]}"
    return f"torch {torch.__version__} finds none"
