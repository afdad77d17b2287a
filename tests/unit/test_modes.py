"""Which mode fits: formulas by hand, and the effect of memory, links and speeds on the choice."""

from __future__ import annotations

import json

import cyclopts
import pytest

from farandole.cli.advise import advise
from farandole.collectives.costs import Link
from farandole.cost.advice import Kind, advised, verdicts
from farandole.cost.layer_costs import LayerCost, ModelCost, of_model
from farandole.cost.machine import fitted
from farandole.cost.modes import Device, Mode, predicted, ranked
from farandole.errors import UsageError
from farandole.models.options import TrainingOptions
from farandole.runtime.command_line import run_app
from farandole.tasks import built_in

FAST, SLOW = Link(1e-6, 1e-11), Link(1e-4, 1e-7)
GB = 1e9
FOUR_LAYERS = [LayerCost(weights=1000, vectors=0, operations=1e6, outputs=40, exchanged=(40, 40))] * 4


def kept(first: int, last: int, rows: int, tensor: int) -> int:
    return (last - first) * rows * 100 // tensor


SIMPLE = ModelCost(FOUR_LAYERS, kept, most_tensor_ranks=4)
BOTH = SIMPLE, SIMPLE


def device(link: Link = FAST, memory: float = GB, flops: float = 1e9, overhead_s: float = 0.0) -> Device:
    return Device(flops, memory, link, overhead_s)


def best(link: Link = FAST, memory: float = GB, ranks: int = 4, batch: int = 64) -> Mode:
    return ranked(BOTH, [device(link, memory)] * ranks, batch, "sgd")[0]


def test_data_parallel_by_hand() -> None:
    """16 samples on each of 4: 3·4·10⁶·16/10⁹ s; ring of 16,000 bytes: 6α + 1.5nβ; parameters and gradients 32,000."""
    mode = predicted(SIMPLE, [device()] * 4, 64, "sgd", (4, 1, 1), 1)
    assert mode.compute_s == pytest.approx(0.192)
    assert mode.communicate_s == pytest.approx(6e-6 + 1.5 * 16_000 * 1e-11)
    assert mode.idle_s == 0
    assert mode.memory == 2 * 16_000 + 4 * 16 * 100
    assert mode.name == "data"


def test_pipeline_by_hand() -> None:
    """8 micro-batches of 8 through 4 stages: a pass takes 0.024 s and two messages of 320 bytes; 3 passes of bubble."""
    mode = predicted(SIMPLE, [device()] * 4, 64, "adam", (1, 4, 1), 8)
    message_s = 2 * (1e-6 + 320 * 1e-11)
    assert mode.compute_s == pytest.approx(8 * 0.024)
    assert mode.communicate_s == pytest.approx(8 * message_s)
    assert mode.idle_s == pytest.approx(3 * (0.024 + message_s)), "(p − 1) passes"
    assert mode.memory == 4 * 4000 + 4 * 8 * 100, "parameters, gradients and Adam's two; four micro-batches under way"
    assert mode.name == "pipeline"


def test_tensor_by_hand() -> None:
    """A quarter of each layer's work; per layer two all-reduces of 64·40 bytes over 4."""
    mode = predicted(SIMPLE, [device(overhead_s=1e-3)] * 4, 64, "sgd", (1, 1, 4), 1)
    assert mode.compute_s == pytest.approx(4 * (1e-3 + 3e6 * 64 / 4e9))
    assert mode.communicate_s == pytest.approx(8 * (6e-6 + 1.5 * 64 * 40 * 1e-11))
    assert mode.name == "tensor"


def test_a_fast_link_prefers_data_parallel() -> None:
    assert best().name == "data"


def test_a_slow_link_prefers_what_sends_little() -> None:
    """16,000 bytes of gradients against activations of 40 bytes a sample."""
    assert best(Link(0, 1e-5), batch=64).name == "pipeline"


def test_memory_forces_a_split() -> None:
    """Parameters and gradients alone are 32,000 bytes: a fourth of them fits, the whole does not."""
    whole = best(memory=100_000)
    assert (whole.name, whole.fits) == ("data", True)
    cut = best(memory=20_000)
    assert cut.fits
    assert cut.pipeline * cut.tensor > 1
    assert cut.memory <= 20_000
    nothing = best(memory=5_000)
    assert not nothing.fits, "and if nothing fits, the one that needs least comes first"
    assert nothing.memory == min(mode.memory for mode in ranked(BOTH, [device(memory=5_000)] * 4, 64, "sgd"))


def test_small_memory_takes_more_micro_batches() -> None:
    one = ranked((SIMPLE, None), [device()], 64, "sgd")[0]
    assert (one.micro_batches, one.memory) == (1, 32_000 + 4 * 64 * 100)
    small = ranked((SIMPLE, None), [device(memory=40_000)], 64, "sgd")[0]
    assert (small.micro_batches, small.memory) == (4, 32_000 + 4 * 16 * 100)


def test_the_slowest_device_sets_the_pace() -> None:
    even = predicted(SIMPLE, [device()] * 4, 64, "sgd", (4, 1, 1), 1)
    uneven = predicted(SIMPLE, [device()] * 3 + [device(flops=1e8)], 64, "sgd", (4, 1, 1), 1)
    assert uneven.compute_s == pytest.approx(10 * even.compute_s)


def test_what_cannot_be_divided_is_not_offered() -> None:
    alone = ranked((SIMPLE, None), [device()] * 8, 64, "sgd")
    assert {mode.grid for mode in alone} == {"8×1×1", "4×2×1", "2×4×1"}, "four layers, no tensor split"
    assert {mode.grid for mode in ranked(BOTH, [device()] * 4, 2, "sgd")} == {
        "2×2×1",
        "2×1×2",
        "1×4×1",
        "1×2×2",
        "1×1×4",
    }


# How many, and which.


def test_advice_names_the_smallest_number_that_reaches_the_target() -> None:
    rows = advised(BOTH, [Kind("A", device(SLOW), 8), Kind("B", device(flops=1e8), 8)], 64, "sgd")
    assert [(row.kind, row.count) for row in rows] == [(kind, n) for kind in "AB" for n in (1, 2, 4, 8)]
    assert rows[0].step_s == pytest.approx(0.768), "one device, no communication"
    assert verdicts(rows, target_s=0.25)[0] == "A: 4 reach 0.25 s a step, by data 4×1×1"
    assert "B: none of 1 to 8 reaches 0.25 s a step" in " ".join(verdicts(rows, target_s=0.25))


def test_advice_says_where_more_is_not_worth_it() -> None:
    """Ring latency grows with the ranks, and computing shrinks: by hand, steps of 4.1, 2.25, 1.62 and 1.9 s."""
    flat = ModelCost([LayerCost(1000, 0, 1e6, 40)], kept)
    rows = advised((flat, None), [Kind("A", Device(4.7e7, GB, Link(0.1, 0)), 8)], 64, "sgd")
    assert [row.step_s for row in rows] == pytest.approx([4.085, 2.243, 1.621, 1.911], abs=1e-3)
    assert verdicts(rows)[0] == "A: beyond 2, twice as many make it 1.38 times as fast: not worth it"


def test_advice_names_what_does_not_fit() -> None:
    rows = advised(BOTH, [Kind("A", device(memory=20_000), 4)], 64, "sgd")
    assert rows[0].mode is None
    assert rows[-1].mode
    assert "A: 1 do not have the memory" in " ".join(verdicts(rows))


def test_a_kind_of_device_is_read_from_text() -> None:
    kind = Kind.parse("name=A,memory-gb=80,tflops=300,count=8,gbps=200,latency-us=5,overhead-us=20")
    assert kind == Kind("A", Device(3e14, 8e10, Link(5e-6, 8 / 200e9), 2e-5), 8)


@pytest.mark.parametrize("rest", ["", ",memory-gb=0,tflops=1,count=1", ",memory-gb=1,tflops=1,count=1.5"])
def test_a_kind_that_does_not_fit_is_refused(rest: str) -> None:
    with pytest.raises(UsageError, match="write it as --device name=A"):
        Kind.parse("name=A" + rest)


def test_speed_and_overhead_from_two_batches() -> None:
    """2 layers of 1,000 operations a sample in all: t = 2·0.1 + 3·1000·rows/10⁵."""
    flops, overhead_s = fitted((10, 0.2 + 0.3), (80, 0.2 + 2.4), operations=1000, layers=2)
    assert flops == pytest.approx(1e5)
    assert overhead_s == pytest.approx(0.1)
    assert fitted((10, 0.5), (80, 0.4), 1000, 2) == (pytest.approx(6e5), 0.0), "noise: no slower, so no overhead"


def test_a_real_model() -> None:
    """A transformer of 6 blocks: ranks with room for 60 % of parameters, gradients and Adam's state must split it."""
    model = of_model(built_in(TrainingOptions(data="pydoc", model="transformer", hidden=64, depth=6)))
    states = 4 * 4 * sum(layer.weights + layer.vectors for layer in model[0].layers)
    [split, *_] = ranked(model, [device(memory=0.6 * states)] * 4, 4, "adam")
    assert split.fits
    assert split.pipeline * split.tensor > 1
    assert ranked(model, [device(memory=2 * states)] * 4, 4, "adam")[0].name == "data"


def call(words: str) -> None:
    app = cyclopts.App(name="farandole")
    app.command(advise)
    run_app(app, ["advise", *words.split()])


def test_advise_prints_rows_and_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--device name=[b],memory-gb=1,tflops=0.001,count=2 --hidden 64 --target-ms 1000"
    call(words)
    table = capsys.readouterr().out
    assert "[b]" in table, "a name is no markup"
    assert "[b]: 1 reach 1 s a step, by single 1×1×1" in table
    call(words + " --json")
    found = json.loads(capsys.readouterr().out)
    assert [row["count"] for row in found["rows"]] == [1, 2]
    assert found["rows"][0]["mode"]["name"] == "single"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--device name=A,memory-gb=1,tflops=1,count=1 -n 3", "--ranks is for the ranks of this machine"),
        ("--device name=A,memory-gb=1,tflops=1,count=1 --device name=A,memory-gb=1,tflops=1,count=1", "the same name"),
        ("--device name=A,memory-gb=1,tflops=1,count=1 --model transformer", "--model transformer reads text"),
    ],
)
def test_advice_that_makes_no_sense_is_refused(words: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        call(words)
