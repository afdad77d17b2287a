"""The calculators reproduce the papers' printed numbers, and refuse impossible input in one line."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import cyclopts
import pytest

from farandole.claims import printed
from farandole.cli.flops import flops
from farandole.cli.memory import memory as memory_command
from farandole.collectives.costs import Link
from farandole.cost import memory, paper_tables, utilisation
from farandole.cost.memory import Numbers
from farandole.cost.paper_tables import MIXED
from farandole.cost.published import A100, KORTHIKANTI, MODELS
from farandole.cost.training_plan import TrainingPlan
from farandole.cost.volumes import gradients, volumes
from farandole.errors import UsageError
from farandole.models.shape import Shape
from farandole.models.training_state import BytesPerParameter
from farandole.runtime.command_line import run_app
from farandole.sharded.options import Sharding
from farandole.sharded.stages import Sizes, by_formula, held

PAGE = Path(__file__).parents[2] / "docs" / "calculators.md"
# Narayanan et al. 2021, table 1: billions of parameters. Korthikanti et al. 2022, table 3: 22B, 175B, 530B, 1T.
SIZES = {
    "gpt-1.7b": "1.7", "gpt-3.6b": "3.6", "gpt-7.5b": "7.5", "gpt-18.4b": "18.4", "gpt-39.1b": "39.1",
    "gpt-76.1b": "76.1", "gpt-145.6b": "145.6", "gpt-310.1b": "310.1", "mt-nlg-530b": "529.6", "gpt-1t": "1008.0",
}  # fmt: skip
SMALL = Shape(layers=6, hidden=256, heads=8, sequence=128, vocabulary=1000)
NUMBERS = Numbers(MIXED)


def test_zeros_table_1() -> None:
    assert paper_tables.zero()[1:] == printed.zero()


def test_the_sizes_of_megatrons_table_1() -> None:
    found = {row[0]: row[-1] for row in paper_tables.sizes()[1:]}
    assert {name: found[name] for name in SIZES} == SIZES
    assert [round(MODELS[name].parameters / 1e9) for name in ("gpt-22b", "gpt3-175b")] == [22, 175]


@pytest.mark.parametrize("name", ["gpt3-175b", "mt-nlg-530b", "gpt-22b"])
def test_the_activations_of_korthikantis_table_2(name: str) -> None:
    """The formulas, as printed, in units of sbh."""
    shape, t = MODELS[name], 8
    square = 5 * shape.heads * shape.sequence / shape.hidden
    printed = [34 + square, 10 + 24 / t + square / t, 34 / t + square / t, 10 + 24 / t, 34 / t, 2]
    plans = [
        TrainingPlan(ranks, ranks, sequence_parallel=sequence, recompute=recompute, micro_batch=3)
        for ranks, sequence, recompute in paper_tables.TECHNIQUES.values()
    ]
    assert [paper_tables.per_layer(name, plan) for plan in plans] == pytest.approx(printed)


def test_the_figures_of_korthikantis_section_5() -> None:
    """5as/h is 80 and 64; computing it again saves 70 % and 65 % of the activations for 2.7 % and 1.6 % more work."""
    for name, square, saved, more in (("gpt3-175b", 80, 0.70, 0.027), ("mt-nlg-530b", 64, 0.65, 0.016)):
        whole = paper_tables.per_layer(name, TrainingPlan())
        without = paper_tables.per_layer(name, TrainingPlan(recompute="selective"))
        assert whole - without == square
        assert round(1 - without / whole, 2) == saved
        model = utilisation.model_operations(MODELS[name], 1)
        assert round(utilisation.equation_8(MODELS[name], 1) / model - 1, 3) == more
        hardware = utilisation.hardware_operations(MODELS[name], 1, "selective")
        assert 3 * (hardware - model) == utilisation.equation_8(MODELS[name], 1) - model, "one forward pass, not three"


def test_a_pipelines_first_stage_holds_what_korthikantis_equations_say() -> None:
    """As much as all L layers of one micro-batch, interleaved 1 + (p − 1)/(pm) times; and the embedding's mask."""
    for name, m in (("gpt3-175b", 3), ("mt-nlg-530b", 3), ("gpt-1t", 1)):
        shape, plan = MODELS[name], replace(KORTHIKANTI[name], recompute="none")
        stages = memory.by_stage(shape, replace(plan, batch=2 * plan.pipeline), NUMBERS)
        sbh = shape.sequence * shape.hidden
        p, square = plan.pipeline, 5 * shape.heads * shape.sequence / shape.hidden
        layers = shape.layers * (1 + (p - 1) / (p * m) if m > 1 else 1)
        mask = p * sbh / 8 * (1 if m == 1 else m)  # of the first chunk's micro-batches under way, at most
        assert stages[0].activations is not None
        assert 0 <= stages[0].activations - sbh * layers / 8 * (34 + square) <= mask
        assert stages[0].activations == max(stage.activations or 0 for stage in stages)


def test_the_utilisation_of_korthikantis_table_5() -> None:
    found = {name: (float(mfu[:-1]), float(hfu[:-1])) for name, _, _, mfu, hfu, _ in paper_tables.utilisations()[1:]}
    assert {name: found[name] for name in printed.UTILISATION} == printed.UTILISATION
    plan = KORTHIKANTI["gpt-22b"]
    for stated, count in ((0.415, utilisation.model_operations), (0.437, utilisation.equation_8)):
        operations = count(MODELS["gpt-22b"], 4)
        least, most = (utilisation.utilisation(operations, step_s, plan.ranks, A100) for step_s in (1.105, 1.095))
        assert least - 0.0005 < stated < most + 0.0005, "within what 1.10 s may stand for"


def test_operations_are_the_papers_equations() -> None:
    """Narayanan et al. 2021, equation 3, and Korthikanti et al. 2022, equations 7 and 8."""
    for shape in (*MODELS.values(), SMALL):
        s, h, layers, words = shape.sequence, shape.hidden, shape.layers, shape.vocabulary
        each, head = 24 * s * layers * h**2, words / (12 * h * layers)
        printed = {
            "none": 3 * each * (1 + s / (6 * h) + head),
            "full": 4 * each * (1 + s / (6 * h) + words / (16 * layers * h)),
        }
        for recompute, operations in printed.items():
            found = utilisation.hardware_operations(shape, 7, recompute)  # type: ignore[arg-type]
            assert found == pytest.approx(7 * operations, rel=1e-12)
        equation_8 = 3 * each * (1 + s / (3 * h) + head)
        assert utilisation.equation_8(shape, 7) == pytest.approx(7 * equation_8, rel=1e-12)


def test_the_days_of_megatrons_equation_4() -> None:
    assert [row[-1] for row in paper_tables.days()[1:]] == ["34", "84"]


def test_volumes_are_megatrons() -> None:
    """8bsh(t − 1)/t per layer and micro-batch; bsh per border and direction; a ring; ZeRO-3 half as much again."""
    plan = TrainingPlan(64, 8, 2, micro_batch=2, batch=16)
    bsh = 2 * 2 * SMALL.sequence * SMALL.hidden  # bytes
    found = volumes(SMALL, plan)
    assert plan.micro_batches == 2
    assert found["tensor"].nbytes == pytest.approx(3 * 2 * 8 * bsh * 7 / 8)
    assert found["pipeline"].nbytes == 2 * bsh
    assert found["data"].nbytes == pytest.approx(2 * 3 / 4 * 2 * SMALL.parameters / 16)
    interleaved = volumes(SMALL, replace(plan, schedule="interleaved", chunks=3))["pipeline"]
    assert interleaved.nbytes == (2 * 3 - 1) * 2 * bsh, "of the border that each rank shares with the other, v times"
    again = volumes(SMALL, replace(plan, recompute="full"))
    assert again["tensor"].nbytes == pytest.approx(1.5 * found["tensor"].nbytes)
    assert [gradients(1000, stage, 4).nbytes for stage in (0, 1, 2, 3)] == [1500, 1500, 1500, 2250]


def test_a_step_is_computing_and_the_schedules_bubble_and_messages() -> None:
    plan = TrainingPlan(8, pipeline=4, batch=16)
    alone = utilisation.step_time(SMALL, plan, 1e12)
    work = utilisation.model_operations(SMALL, 16) / 8 / 1e12
    assert alone.compute_s == pytest.approx(work)
    assert alone.bubble_s == pytest.approx(work * 3 / 8), "(p − 1)/m"
    linked = utilisation.step_time(SMALL, plan, 1e12, across=Link(0, 1e-9))
    assert linked.data_s == pytest.approx(2 * SMALL.parameters / 4 * 1e-9)
    assert utilisation.step_time(SMALL, replace(plan, pipeline=1), 1e12).bubble_s == 0
    mfu = utilisation.utilisation(utilisation.model_operations(SMALL, 16), alone.step_s, 8, 2e12)
    assert mfu == pytest.approx(0.5 / (1 + 3 / 8))


def test_a_rank_that_trains_holds_zeros_formula_and_what_is_gathered() -> None:
    """The formula of `sharded`, in float32 and in half precision, agrees with the calculator's."""
    parameters, ranks, units = 1200, 4, [100, 700, 400]
    adam = 2 * 4 * parameters // ranks
    for stage in (1, 2, 3):
        sizes = Sizes([4 * each for each in units], 4 * parameters // ranks, 0, adam)
        whole = asdict(BytesPerParameter.of("adam", mixed=False))
        divided = held({kind: size * parameters for kind, size in whole.items()}, stage, ranks)
        trained = by_formula(Sharding(stage), sizes, on_device=True)  # type: ignore[arg-type]
        gathered = {"gradients": 4 * 700 * (stage > 1), "parameters": 4 * 700 * (stage > 2)}
        assert trained == {kind: nbytes + gathered.get(kind, 0) for kind, nbytes in divided.items()}
    halves = Sizes([2 * each for each in units], 4 * parameters // ranks, 0, adam)
    trained = by_formula(Sharding(3, half=True), halves, on_device=True)
    added_up = by_formula(Sharding(3, half=True), replace(halves, widened=2), on_device=True)
    assert added_up == trained | {"gradients": trained["gradients"] + 4 * 700}, "in float32"
    paper = held({kind: size * parameters for kind, size in asdict(MIXED).items()}, 3, ranks)
    assert sum(trained.values()) - 2 * 2 * 700 == sum(paper.values()), "its kinds differ, their sum does not"


def test_what_is_divided_falls_and_what_is_not_stays() -> None:
    plan = TrainingPlan(64, 2, 2, batch=64)
    first = memory.by_stage(SMALL, plan, NUMBERS)[0]
    for zero, kind in ((1, "optimizer_state"), (2, "gradients"), (3, "parameters")):
        divided = memory.by_stage(SMALL, replace(plan, zero=zero), NUMBERS)[0]
        assert getattr(divided, kind) == pytest.approx(getattr(first, kind) / 16)
        assert divided.activations == first.activations
        assert (divided.gathered or 0) > 0 if zero > 1 else divided.gathered == 0
    long = memory.by_stage(SMALL, replace(plan, context=2), NUMBERS)[0]
    assert long.activations == pytest.approx((first.activations or 0) / 2)
    total = sum(stage.parameters for stage in memory.by_stage(SMALL, TrainingPlan(3, pipeline=3), NUMBERS))
    assert total == 2 * (SMALL.parameters + SMALL.vocabulary * SMALL.hidden), "the last stage has a copy of the words"


def test_the_page_shows_these_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in paper_tables.TABLES.items():
        assert paper_tables.markdown(table()) in text, f"python -m farandole.cost.paper_tables prints {name}"


def call(words: str) -> None:
    app = cyclopts.App(name="farandole")
    app.command(memory_command, name="memory")
    app.command(flops)
    run_app(app, words.split())


def answer(words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    call(f"{words} --json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_memory_answers(capsys: pytest.CaptureFixture[str]) -> None:
    alone = answer("memory --params 70e9 --ranks 512 --tensor 8 --pipeline 4 --zero 1", capsys)
    assert alone["grid"] == {"data": 16, "context": 1, "pipeline": 4, "tensor": 8}
    [each] = alone["stages"]
    own = 70e9 / 32
    assert each["total"] == pytest.approx(own * (2 + 2 + 12 / 16))
    assert each["activations"] is None
    stages = answer("memory --model gpt3-175b -n 64 --tensor 8 --pipeline 8 --batch 64", capsys)["stages"]
    assert len(stages) == 8
    assert stages[0]["activations"] > stages[6]["activations"]
    call("memory --params 70e9 -n 512 --tensor 8 --pipeline 4")
    said = capsys.readouterr().out
    assert "70,000,000,000 parameters, 512 ranks = data 16 × pipeline 4 × tensor 8\n" in said
    assert "not known" in said


def test_flops_answers(capsys: pytest.CaptureFixture[str]) -> None:
    words = "flops --model gpt-1t -n 512 --tensor 8 --pipeline 64 --batch 512 --recompute selective --peak-tflops 312"
    step = answer(f"{words} --step-s 71.49", capsys)["step"]
    assert (round(step["mfu"], 3), round(step["hfu"], 3)) == (0.563, 0.565)
    found = answer(
        "flops --params 175e9 --tokens 300e9 -n 1024 --recompute full --peak-tflops 280 --efficiency 0.5", capsys
    )
    assert found["training"]["days"] == pytest.approx(33.9, abs=0.05)
    assert found["training"]["model_flops"] == 6 * 175e9 * 300e9
    linked = "--layers 6 --hidden 256 -n 8 --pipeline 4 --peak-tflops 1 --efficiency 0.5 --link-gbps 10"
    call(f"flops {linked} --tokens 1e9")
    said = capsys.readouterr().out
    assert "MFU, HFU" in said
    assert "days" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("memory", "which model"),
        ("memory --params 7e9 --model gpt-22b", "--model both say"),
        ("memory --model gpt-22b --layers 4", "leave out --layers"),
        ("memory --layers 4 --hidden 100", "give --heads"),
        ("memory --layers 4 --hidden 96 --heads 5", "give a divisor"),
        ("memory --params 7e9 --ranks 12 --tensor 8", "give 8 or 16 ranks"),
        ("memory --params 7e9 --recompute full", "--recompute says nothing"),
        ("memory --model gpt-22b --ranks 8 --batch 12", "give 8 or 16"),
        ("memory --model gpt-22b --ranks 96 --pipeline 96", "smaller --pipeline"),
        ("memory --model gpt-22b --ranks 6 --tensor 6", "does not divide 64 heads: give 4"),
        ("memory --model gpt-22b -n 4 --pipeline 4 --batch 6 --schedule interleaved", "a multiple, as 8"),
        ("memory --params -1", "--params"),
        ("flops --params 7e9", "give --tokens"),
        ("flops --model gpt-22b --step-s 1", "add --peak-tflops"),
        ("flops --model gpt-22b --peak-tflops 312", "needs --step-s"),
        ("flops --model gpt-22b --peak-tflops 312 --step-s 1 --efficiency 0.5", "leave out one"),
        ("flops --model gpt-22b --peak-tflops 312 --efficiency 1.5", "--efficiency"),
        ("flops --model gpt-22b -n 8 --peak-tflops 312 --step-s 0.01", "times the peak of 8"),
        ("flops --model gpt-22b --schedule pipedream", "--schedule"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(words: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        call(words)
    assert "\n" not in str(refused.value)
