"""Advice on the number and kind of devices: predictions for growing numbers of each kind, in the best mode of each.

Document 003 leaves it at "it depends on data, model and devices" (设备类型). Predicted step times allow three answers:
the smallest number with enough memory, the smallest that reaches a target, and the number beyond which more are not
worth it. Twice as many are not if they bring less than half of the possible gain: t(n)/t(2n) < 1.5. Each kind is judged
separately; a mixture would run at the pace of its slowest device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from farandole.collectives.costs import Link
from farandole.cost.layer_costs import ModelCost
from farandole.cost.modes import Device, Mode, ranked
from farandole.errors import UsageError
from farandole.runtime.faults import named_values
from farandole.runtime.numbers import parse_integer, parse_real

WORTH = 0.5  # the part of the best possible gain that more devices must bring
MOST_DEVICES = 1024


@dataclass(frozen=True)
class Kind:
    """A kind of device, of which there are up to `count`."""

    name: str
    device: Device
    count: int

    @classmethod
    def parse(cls, text: str) -> Kind:
        """Return the kind that a text like ``name=A,memory-gb=80,tflops=300,count=8`` describes.

        Raises:
            UsageError: `text` is not of this form.
        """
        form = (
            "--device name=A,memory-gb=80,tflops=300,count=8 (above 0; a count up to 1024), "
            "optionally with gbps=100, latency-us=10, overhead-us=10"
        )
        numbers = {"memory-gb", "tflops", "count", "gbps", "latency-us", "overhead-us"}
        pairs = named_values(text, form, {"name", *numbers})
        try:
            values = {"gbps": 100.0, "latency-us": 10.0, "overhead-us": 10.0}
            values |= {name: parse_real(value) for name, value in pairs.items() if name in numbers}
            count = parse_integer(pairs["count"])
            link = Link(values["latency-us"] / 1e6, 8 / (values["gbps"] * 1e9))
            flops, memory = values["tflops"] * 1e12, values["memory-gb"] * 1e9
            kind = cls(pairs["name"], Device(flops, memory, link, values["overhead-us"] / 1e6), count)
        except (KeyError, ValueError, ZeroDivisionError) as error:
            raise UsageError(f"{text!r} does not fit: write it as {form}") from error
        zero_or_more = min(values["latency-us"], values["overhead-us"]) >= 0
        positive = min(values["memory-gb"], values["tflops"]) > 0 and 0 < count <= MOST_DEVICES
        if not (zero_or_more and positive and values["gbps"] > 0):
            raise UsageError(f"{text!r} does not fit: write it as {form}")
        return kind


@dataclass(frozen=True)
class Row:
    """A number of devices of one kind, and the best mode for them; None: the training does not fit their memory."""

    kind: str
    count: int
    mode: Mode | None

    @property
    def step_s(self) -> float:
        return self.mode.step_s if self.mode else inf


def advised(model: tuple[ModelCost, ModelCost | None], kinds: Sequence[Kind], batch: int, optimizer: str) -> list[Row]:
    """Return a row for 1, 2, 4, … devices of each kind, and for all of them.

    Args:
        model, batch, optimizer: as of `cost.modes.ranked`.
    """
    rows = []
    for kind in kinds:
        for count in _counts(kind.count):
            modes = ranked(model, [kind.device] * count, batch, optimizer)
            rows.append(Row(kind.name, count, modes[0] if modes and modes[0].fits else None))
    return rows


def verdicts(rows: Sequence[Row], target_s: float | None = None) -> list[str]:
    """Return what the rows show, as sentences.

    Args:
        target_s: the seconds of a step that are to be reached; None: no target.
    """
    sentences = []
    for kind in dict.fromkeys(row.kind for row in rows):
        own = [row for row in rows if row.kind == kind]
        fitting = [row for row in own if row.mode]
        if not fitting:
            sentences.append(f"{kind}: not even {own[-1].count} have the memory")
            continue
        if len(fitting) < len(own):
            sentences.append(f"{kind}: {_last(own, fitting)} do not have the memory")
        if target_s is not None:
            sentences.append(f"{kind}: {_reaching(fitting, target_s)}")
        sentences.append(f"{kind}: {_knee(fitting)}")
    by_speed = min((row for row in rows if row.mode), key=lambda row: row.step_s, default=None)
    if by_speed and by_speed.mode:
        sentences.append(f"the fastest: {by_speed.count} of {by_speed.kind}, {_described(by_speed)}")
    return sentences


def _reaching(rows: Sequence[Row], target_s: float) -> str:
    reaching = next((row for row in rows if row.step_s <= target_s), None)
    if reaching is None:
        return f"none of {rows[0].count} to {rows[-1].count} reaches {target_s:g} s a step"
    assert reaching.mode
    return f"{reaching.count} reach {target_s:g} s a step, by {reaching.mode.name} {reaching.mode.grid}"


def _knee(rows: Sequence[Row]) -> str:
    for fewer, more in pairwise(rows):
        faster, times = fewer.step_s / more.step_s, more.count / fewer.count
        if faster < 1 + (times - 1) * WORTH:
            many = "twice" if times == 2 else f"{times:.2g} times"
            return f"beyond {fewer.count}, {many} as many make it {faster:.2f} times as fast: not worth it"
    return f"all {rows[-1].count} are worth it"


def _described(row: Row) -> str:
    assert row.mode
    return f"{row.mode.name} ({row.mode.grid}), {row.step_s:.3g} s a step"


def _last(own: Sequence[Row], fitting: Sequence[Row]) -> int:
    return max(row.count for row in own if row not in fitting)


def _counts(most: int) -> list[int]:
    counts, number = [], 1
    while number < most:
        counts.append(number)
        number *= 2
    return [*counts, most]
