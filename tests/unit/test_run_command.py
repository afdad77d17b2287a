"""``farandole run`` prepares the launch before it reads the options, and shows them in panels."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import fields
from typing import get_args

import pytest

from farandole import cli, scenarios
from farandole.cli import run
from farandole.cli.panels import in_panels
from farandole.errors import UsageError
from farandole.runtime import crowding
from farandole.runtime.command_line import parse


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("run sync_sgd", 4),
        ("run sync_sgd -n 2 --steps 3", 2),
        ("run sync_sgd --steps 3 --ranks 7", 7),
        ("run ssp --ranks=5", 5),
        ("run sinc_sgd", None),
        ("run sync_sgd -n x", None),
        ("run sync_sgd -n -3", None),
        ("run sync_sgd --help", None),
        ("run", None),
        ("compare bsp ssp -n 2", None),
    ],
)
def test_it_prepares_as_many_ranks_as_are_given(words: str, ranks: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[int] = []
    monkeypatch.setattr(crowding, "prepare", prepared.append)
    run.prepare(words.split())
    assert prepared == ([] if ranks is None else [ranks])


@pytest.mark.parametrize("name", scenarios.names())
def test_panels_change_no_option_and_their_names_fit_into_a_terminal(name: str) -> None:
    plain = scenarios.load(name).Config
    panelled = in_panels(plain)
    for each in fields(panelled):
        _, parameter = get_args(each.type)[-2:]
        assert len(parameter.group[0].name) <= 73, "of 80 columns, seven are the frame"
    names = {each.name for each in fields(plain)}
    assert {each.name for each in fields(panelled)} == names
    assert {each: getattr(panelled(), each) for each in names} == {each: getattr(plain(), each) for each in names}
    read = [parse(kind, ["--slow", "rank=1,factor=2", "--seed", "7"]) for kind in (plain, panelled)]
    assert {each: getattr(read[1], each) for each in names} == {each: getattr(read[0], each) for each in names}
    with pytest.raises(UsageError, match="--seed"):
        parse(panelled, ["--seed", "-1"])


def test_help_begins_with_the_launch_and_the_methods_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):
        cli.main(["run", "parameter_server", "--help"])
    shown = capsys.readouterr().out
    options = re.findall(r"^│ (--[\w-]+)", shown, re.M)
    wanted = ["--ranks", "--buckets", "--sync", "--update", "--servers", "--batch", "--out", "--device", "--slow"]
    assert [each for each in options if each in wanted] == wanted
    panels = re.findall(r"^╭─ (.*?) ─", shown, re.M)
    assert panels[0] == "The launch"
    assert panels[-1].startswith("Faults")
    assert len(set(panels)) == len(panels)
