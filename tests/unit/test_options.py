"""Options: accepted values, refused values, and the messages."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest

from farandole import scenarios
from farandole.cli.run import changed
from farandole.data_parallel.options import SearchOptions
from farandole.data_parallel.search import rounds
from farandole.errors import UsageError
from farandole.launching import launch
from farandole.runtime import command_line
from farandole.runtime.chaos import Chaos
from farandole.runtime.faults import Fail, Slow, Slowness, check_ranks, check_steps
from farandole.runtime.links import Link, LinkChange
from farandole.runtime.record import Run, new_folder
from farandole.runtime.recorder import without_effect
from farandole.scenarios.sync_sgd import Config


def test_defaults_are_the_dataclass_itself() -> None:
    assert command_line.parse(Config, []) == Config()


def test_options_survive_the_way_to_the_ranks() -> None:
    config = Config(
        steps=7,
        lr=0.05,
        collective="central",
        slow=(Slow(3, 2.5), Slow(1, 2, 0.5, first=3, end=9)),
        fail=(Fail(2, 30, "hang"),),
        chaos=Chaos(20.0, 7),
        link_mbps=100.0,
        link_change=(LinkChange(5, 20), LinkChange(9, 0.5)),
        link_latency_ms=0.5,
        capabilities=(1.0, 0.5),
        json=True,
        out=Path("x y"),
    )
    assert command_line.parse(Config, command_line.to_arguments(changed(config))) == config


WORDS = (
    *("3", "+3", "03", " 3", "1_0", "-1", "0.5", "1e-3", "inf", "nan", "None", "True", "", "a b", "ü", "x.py", "a//b"),
    *("auto", "cpu", "Cpu", "scatter", "digits", "adam", "constant", "ring", "bsp", "minibatch", "rank=1,step=2"),
    *("rank=1,factor=2", "mtbf=20s,seed=7", "step=2,mbps=3"),
)


@pytest.mark.parametrize("scenario", scenarios.names())
def test_words_read_without_cyclopts_are_read_as_by_cyclopts(scenario: str) -> None:
    config = scenarios.load(scenario).Config
    read = set()
    for field in dataclasses.fields(config):
        flag = "--" + field.name.replace("_", "-")
        forms = [form for word in WORDS for form in ([flag, word], [f"{flag}={word}"], [flag, word, flag, word])]
        for words in [[flag], [flag, flag], *forms]:
            if (values := command_line._plain_values(config, words)) is not None:
                assert values == command_line._values(config, [field.name], words), words
                read.add(field.name)
    assert {"out", "seed", "device", "slow", "fail", "json"} <= read
    assert len(read) > 10


@pytest.mark.parametrize("scenario", scenarios.names())
def test_what_is_off_by_default_can_be_given_as_off(scenario: str) -> None:
    """As with launch(…, overlap=False) from Python, although the command line has no --no-overlap."""
    config = scenarios.load(scenario).Config
    off = {each.name: False for each in dataclasses.fields(config) if each.default is False}
    assert len(off) > 2
    assert command_line.parse(config, command_line.to_arguments(off)) == config()


def test_on_and_off_together_are_refused() -> None:
    with pytest.raises(UsageError, match="multiple times"):
        command_line.parse(Config, ["--share-cards", "--no-share-cards"])


def test_a_value_that_begins_with_a_hyphen_is_no_option() -> None:
    config = Config(out=Path("-x"))
    assert command_line.parse(Config, command_line.to_arguments(changed(config))) == config


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"ranks": 2.5}, "2.5 ranks: give a whole number"),
        ({"ranks": "2"}, "'2' ranks: give a whole number"),
        ({"ranks": None}, "None ranks: give a whole number"),
        ({"ranks": True}, "True ranks: give a whole number"),
        ({"ranks": 0}, "0 ranks: give 1 or more"),
        ({"timeout_s": math.nan}, "a time-out of nan s: give a number above 0"),
        ({"timeout_s": 0}, "a time-out of 0 s"),
        ({"timeout_s": "5"}, "a time-out of '5' s"),
        ({"steps": 2.7}, "'2.7' is not a whole number"),
        ({"seed": -1}, ">= 0"),
    ],
)
def test_a_launch_from_python_is_as_strict(given: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        launch("sync_sgd", out=tmp_path / "run", **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--stepz", "3"], "--stepz"),
        (["--steps", "many"], "whole number"),
        (["--steps", "0"], ">= 1"),
        (["--lr", "-1"], "> 0"),
        (["--collective", "star"], "ring"),
        (["--data", "imagenet"], "mnist5k"),
        (["--slow", "rank=3"], "rank=3,factor=3"),
        (["--slow", "rank=3,factor=0.5"], "factor 1 or more"),
        (["--slow", "rank=3,factor=nan"], "factor 1 or more"),
        (["--slow", "rank=3,factor=1e7"], "up to a million"),
        (["--slow", "rank=3,factor=4,share=0"], "share=0.25 (above 0, up to 1)"),
        (["--slow", "rank=3,factor=4,share=1.5"], "share=0.25 (above 0, up to 1)"),
        (["--slow", "rank=3,factor=4,share=nan"], "share=0.25 (above 0, up to 1)"),
        (["--slow", "rank=3,factor=4,share=often"], "share=0.25 (above 0, up to 1)"),
        (["--slow", "rank=3,rank=3,factor=2"], "write it as"),
        (["--slow", "rank=3,factor=4,from=-1"], "from=100 or until=200"),
        (["--slow", "rank=3,factor=4,from=9,until=9"], "from=100 or until=200"),
        (["--slow", "rank=3,factor=4,from=soon"], "from=100 or until=200"),
        (["--link-change", "mbps=20"], "step=200,mbps=20"),
        (["--link-change", "step=-1,mbps=20"], "step=200,mbps=20"),
        (["--link-change", "step=5,mbps=0"], "above 0 Mbit/s"),
        (["--fail", "rank=2"], "how=kill"),
        (["--fail", "rank=2,step=3,how=explode"], "how=kill"),
        (["--fail", "rank=-1,step=3"], "how=kill"),
        (["--chaos", "20s"], "--chaos mtbf=20s,seed=7"),
        (["--chaos", "mtbf=2", "--chaos", "mtbf=3"], "multiple times"),
        (["--steps"], "--steps"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(arguments: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        command_line.parse(Config, arguments)
    message = str(refused.value)
    assert complaint in message
    assert "\n" not in message


def test_a_fault_for_a_rank_that_is_not_there_is_refused() -> None:
    check_ranks([Slow(3, 2), Fail(0, 1)], ranks=4)
    with pytest.raises(UsageError, match="there is no rank 4; ranks are 0 to 3"):
        check_ranks([Fail(4, 1)], ranks=4)


@pytest.mark.parametrize("scenario", sorted(set(scenarios.names()) - {"online"}))  # there a reader's steps have no end
@pytest.mark.parametrize(
    "given", [["--fail", "rank=0,step=2000000000"], ["--slow", "rank=0,factor=2,from=2000000000"]], ids=["fail", "slow"]
)
def test_a_fault_beyond_the_last_step_is_refused(scenario: str, given: list[str]) -> None:
    config = command_line.parse(scenarios.load(scenario).Config, given)
    with pytest.raises(
        UsageError, match=r"would never strike: the last step is \d+; give that or an earlier one"
    ) as no:
        check_steps(config.first_steps, config.steps_at_most(7))
    assert given[0] in str(no.value)
    assert "\n" not in str(no.value)


@pytest.mark.parametrize(
    ("scenario", "options", "steps"),
    [
        ("sync_sgd", [], 20),
        ("restart", [], 20),
        ("pipeline", [], 20),
        ("federated", [], 20),
        ("elastic_horovod", [], 20),
        ("dpsgd", [], 20),
        ("ad_psgd", [], 20 * 4),
        ("parameter_server", ["--sync", "bsp"], 20),
        ("parameter_server", ["--sync", "bsp", "--update", "twice"], 2 * 20),
        ("parameter_server", ["--sync", "async"], 20 * 4),
        ("sync_cost", ["--methods", "ring", "gossip"], 2 * 20),
        ("search", ["--trials", "16"], 4),
        ("search", ["--trials", "3"], 2),
        ("search", ["--trials", "1"], 1),
        ("dynamic_sync", ["--longest", "8"], 19 + 8),
        ("online", [], None),
    ],
)
def test_how_many_steps_a_rank_may_come_to(scenario: str, options: list[str], steps: int | None) -> None:
    given = [] if scenario == "online" else ["--steps", "20"]
    config = command_line.parse(scenarios.load(scenario).Config, [*given, *options])
    assert config.steps_at_most(4) == steps
    check_steps({"--link-change step=19,mbps=2": 19} if scenario != "search" else {}, steps)
    if steps is not None:
        check_steps({"--fail rank=1,step=…": steps - 1}, steps)
        with pytest.raises(UsageError, match=f"the last step is {steps - 1}"):
            check_steps({"--fail rank=1,step=…": steps}, steps)


@pytest.mark.parametrize("trials", range(1, 40))
def test_a_searchs_steps_are_its_rounds(trials: int) -> None:
    assert SearchOptions(trials=trials).steps_at_most(2) == len(rounds(trials, steps=1 << 20))


def test_what_has_not_happened_is_said_at_the_end() -> None:
    changes = (LinkChange(5, 2), LinkChange(50, 3))
    options = Config(link_change=changes, chaos=Chaos(1e6, 7))
    at_the_end = [
        {"never struck": [], "unused": ["--link-change step=50,mbps=3"]},
        {
            "never struck": ["--fail rank=1,step=30,how=kill never struck: rank 1 takes no steps"],
            "unused": [f"--link-change {change}" for change in changes],
        },
    ]
    assert without_effect(at_the_end, options, faults=[]) == [
        "--fail rank=1,step=30,how=kill never struck: rank 1 takes no steps",
        "--link-change step=50,mbps=3 changed nothing: no rank came to that step",
        "--chaos mtbf=1e+06s,seed=7 never struck: the training was over before",
    ]
    assert len(without_effect(at_the_end, options, faults=[{"rank": 2}])) == 2


def test_slowness_and_links_know_what_has_not_happened_yet() -> None:
    slowness = Slowness([Slow(3, 4, first=2), Slow(3, 2, first=5)], 3, seed=0)
    for step in range(3):
        slowness.next_factor(step)
    assert slowness.never_struck == [Slow(3, 2, first=5)]
    link = Link(1.0, [LinkChange(9, 3), LinkChange(1, 2)])
    link.change(2)
    assert link.unused == [LinkChange(9, 3)]


@pytest.mark.parametrize("fault", [Slow(3, 2.5), Slow(3, 4, 0.25, 7, 9), Fail(2, 30, "raise"), LinkChange(5, 2.5)])
def test_faults_are_written_as_they_are_read(fault: Any) -> None:
    assert type(fault).parse(str(fault)) == fault


def test_a_transient_straggler_is_slow_in_its_share_of_computations_and_the_seed_says_in_which() -> None:
    def factors(slow: list[Slow], rank: int = 3, seed: int = 0) -> list[float]:
        slowness = Slowness(slow, rank, seed)
        return [slowness.next_factor(step) for step in range(4000)]

    transient = factors([Slow(3, 4, 0.25)])
    assert set(transient) == {1, 4}
    assert transient.count(4) == pytest.approx(1000, abs=100)
    assert factors([Slow(3, 4, 0.25)]) == transient
    assert factors([Slow(3, 4, 0.25)], seed=1) != transient
    assert set(factors([Slow(3, 4, 0.25)], rank=2)) == {1}
    assert set(factors([Slow(3, 2), Slow(3, 4, 0.25)])) == {2, 4}, "always 2, now and then 4"
    assert set(factors([Slow(3, 2.5)])) == {2.5}


def test_a_rank_may_be_slow_for_a_while() -> None:
    slowness = Slowness([Slow(3, 4, first=2, end=4), Slow(3, 2, first=5)], 3, seed=0)
    assert [slowness.next_factor(step) for step in range(7)] == [1, 1, 4, 4, 1, 2, 2]


def test_every_scenario_has_a_title_and_a_config() -> None:
    assert {"compressed_sgd", "ddp_sgd", "horovod_sgd", "local_sgd", "search", "sync_sgd"} <= set(scenarios.names())
    for name in scenarios.names():
        module = scenarios.load(name)
        assert scenarios.title(module).endswith(".")
        assert module.Config()


def test_an_unknown_scenario_is_refused_with_the_list() -> None:
    with pytest.raises(UsageError, match="sync_sgd"):
        scenarios.load("sync_sdg")


def test_a_folder_with_something_in_it_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="not empty"):
        new_folder("sync_sgd", tmp_path)


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = new_folder("sync_sgd", None)
    first.mkdir(parents=True)
    assert new_folder("sync_sgd", None) != first


def test_opening_what_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run's folder"):
        Run.open(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="did not finish"):
        Run.open(tmp_path)
