"""Which card each rank computes on: a card for each rank that computes, unless `--share-cards` is given.

Every rank reports to all others whether it computes, and which cards it sees. From these reports every rank derives, by
the same pure function, which card each rank gets; `rank_device` does the rest.

A card has the same name in all processes of a host: its UUID. Its number does not: Slurm may show each task one card,
which is number 0 there (`--gpus-per-task`, MIG). A rank that computes nothing, as a parameter server's manager, does
not touch a card, which a card in the mode EXCLUSIVE_PROCESS would then refuse to the rank that needs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from farandole.errors import UsageError

NO_CARD = "no CUDA device is usable here"
VISIBLE = "CUDA_VISIBLE_DEVICES"
NONE_VISIBLE = ("", "-1", "NoDevFiles")  # its values that hide all cards; the last is Slurm's
OF_SLURM = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE")  # the last is a number of cards


@dataclass(frozen=True)
class Card:
    """A card as a process sees it.

    Attributes:
        name: its UUID, or that of the part of it (MIG) that this process was given.
        cores: those near it, as "0-15,32-47"; "": not known.
    """

    name: str
    cores: str = ""


@dataclass(frozen=True)
class Report:
    """The report of a rank to the others.

    Attributes:
        host: the lowest rank of its host.
        computes: it has use for a card.
        required: `--device cuda` was given.
        cards: those that it can use, in torch's order.
        requested: the sign that cards were requested for this job, as NAME=value; "": there is none.
        unusable: why it can use no card, though there seem to be some; "": there seem to be none.
        allowed: the cores that it may use.
    """

    host: int
    computes: bool
    required: bool = False
    cards: list[Card] = field(default_factory=list)
    requested: str = ""
    unusable: str = ""
    allowed: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Report:
        return cls(**values | {"cards": [Card(**each) for each in values["cards"]]})


@dataclass(frozen=True)
class Assignment:
    """Which of its cards each rank computes on, by its number there; None: on the CPU.

    Attributes:
        note: a line for the user, if ranks compute on the CPU though there are cards; else "".
    """

    numbers: list[int | None]
    note: str = ""


def assign(reports: Sequence[Report], share: bool) -> Assignment:
    """Give each rank that computes the least used of the cards that it sees.

    Args:
        reports: of all ranks, in order.
        share: several ranks may compute on one card.

    Raises:
        UsageError: `--device cuda` without a usable card; or more ranks than cards on a host, where cards were
            requested: by `--device cuda`, from Slurm, or by CUDA_VISIBLE_DEVICES.
    """
    users: Counter[tuple[int, str]] = Counter()
    numbers: list[int | None] = []
    for each in reports:
        number = None
        if each.computes and each.cards:
            used = [users[each.host, card.name] for card in each.cards]
            number = used.index(min(used))
            users[each.host, each.cards[number].name] += 1
        elif each.computes and each.required:
            raise UsageError(f"--device cuda: {each.unusable or NO_CARD}; use --device cpu")
        numbers.append(number)
    crowded = {host for (host, _), count in users.items() if count > 1}
    if crowded and not share:
        note = _refused([each for each in reports if each.host == min(crowded)])
        return Assignment([None] * len(reports), note)
    return Assignment(numbers, _note(reports))


def requested(environ: Mapping[str, str]) -> str:
    """Return the environment variable that shows that cards were requested, as NAME=value; "": there is none.

    CUDA_VISIBLE_DEVICES decides where it is set, by Slurm or by the user: it may also hide all cards.
    """
    if (visible := environ.get(VISIBLE)) is not None:
        return "" if visible in NONE_VISIBLE else f"{VISIBLE}={visible}"
    for name in OF_SLURM:
        value = environ.get(name, "")
        if value and not (name == OF_SLURM[-1] and value == "0"):
            return f"{name}={value}"
    return ""


def _refused(there: Sequence[Report]) -> str:
    """Return why all ranks compute on the CPU: on a host there are more ranks that compute than cards.

    Raises:
        UsageError: cards were requested.
    """
    computing = [each for each in there if each.computes and each.cards]
    cards = len({card.name for each in computing for card in each.cards})
    text = f"{len(computing)} ranks of a host would compute on {cards} card{'s' if cards > 1 else ''}"
    by = next((each.requested for each in computing if each.requested), "")
    if any(each.required for each in computing):
        by = "--device cuda"
    if by:
        raise UsageError(f"{text} ({by}): start one per card, or let them share cards with --share-cards")
    return f"{text}, so all ranks compute on the CPU; --share-cards lets them share"


def _note(reports: Sequence[Report]) -> str:
    """Return a line about ranks that compute on the CPU though there seem to be cards, or though others have cards."""
    computing = [each for each in reports if each.computes]
    without = [each for each in computing if not each.cards]
    why = next((each.unusable for each in without if each.unusable), "")
    if len(without) == len(computing):
        return f"all ranks compute on the CPU: {why}" if why else ""
    if not without:
        return ""
    return f"{len(without)} of {len(computing)} ranks compute on the CPU: {why or 'their hosts have no card'}"
