"""Published results: a verdict follows from the figures by the row's rule, and the page from the kept results."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path

import cyclopts
import pytest

from farandole.claims import page, results, table
from farandole.claims.claim import KINDS, Bound, Claim, Measured, Picture, Source, not_met, verdict
from farandole.cli.reproduce import reproduce
from farandole.errors import LaunchError, UsageError
from farandole.runtime.command_line import run_app

ROOT = Path(__file__).parents[2]
PAGE, KEPT = ROOT / "docs" / "published_results.md", ROOT / "docs" / "published_results"
QUICK = [claim for claim in table.CLAIMS.values() if claim.kind == "computed"]
RULE = (Bound("a", "a core one", 1, 2, core=True), Bound("b", "another", most=3, otherwise="b differs"))


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"a": 1, "b": 3}, "holds"),
        ({"a": 2, "b": -9}, "holds"),
        ({"a": 2, "b": 3.1}, "partly holds"),
        ({"a": 0.9, "b": 3}, "does not hold"),
        ({"a": 2.1, "b": 4}, "does not hold"),
        ({"a": nan, "b": 3}, "does not hold"),
        ({"a": None, "b": 3}, "does not hold"),
        ({"b": 3}, "does not hold"),
        ({"a": 1}, "partly holds"),
    ],
)
def test_the_verdict_follows_from_the_rule(figures: dict[str, float | None], expected: str) -> None:
    assert verdict(RULE, figures) == expected


@pytest.mark.parametrize("name", table.CLAIMS)
def test_each_row_has_a_rule_that_a_wrong_figure_breaks(name: str) -> None:
    claim = table.CLAIMS[name]
    assert claim.name == name
    assert claim.kind in KINDS
    assert (ROOT / "reference" / "farandole" / claim.module).is_file()
    assert {bound.core for bound in claim.rule[:1]} == {True}, "core bounds come first"
    inside = {bound.figure: bound.least if bound.least > -inf else bound.most for bound in claim.rule}
    for bound in claim.rule:
        assert bound.least > -inf or bound.most < inf, bound
        wrong = bound.most + 1 if bound.most < inf else bound.least - 1
        expected = "does not hold" if bound.core else "partly holds"
        broken = verdict(claim.rule, inside | {bound.figure: wrong})
        assert broken in (expected, "does not hold"), bound
        assert broken != "holds"


def test_each_row_is_on_the_concept_map_beside_its_method() -> None:
    lines = (ROOT / "docs" / "concept_map.md").read_text(encoding="utf-8").splitlines()
    for name, claim in table.CLAIMS.items():
        assert any(f"`farandole reproduce {name}`" in line and f"`{claim.module}`" in line for line in lines), name


@pytest.mark.parametrize("name", [claim.name for claim in QUICK])
def test_what_is_computed_is_what_the_kept_result_says(name: str) -> None:
    """So is its verdict: the counted objects have not changed since."""
    claim = table.CLAIMS[name]
    kept = results.kept(claim, KEPT)
    assert kept is not None
    measured = claim.measure()
    assert measured.figures == pytest.approx(kept.measured.figures, rel=1e-6, abs=1e-9)
    assert verdict(claim.rule, measured.figures) == kept.verdict


def test_the_page_is_what_the_kept_results_say() -> None:
    found = {name: results.kept(claim, KEPT) for name, claim in table.CLAIMS.items()}
    assert all(found.values()), "farandole reproduce all --out docs/published_results"
    given = {name: result for name, result in found.items() if result}
    assert page.text(given, Path(KEPT.name)) == PAGE.read_text(encoding="utf-8"), "write it anew with --page"
    assert {file.stem for file in KEPT.iterdir()} == set(table.CLAIMS), "no result of a row that is gone"
    for result in given.values():
        assert "no reason is known" not in result.reasons, result.claim.name
        assert (KEPT / f"{result.claim.name}.png").exists() == (result.measured.picture is not None)


SOURCE = Source("A. Author", 1999, "Of nothing", "table 1")


class Counted:
    """A claim that counts its measurements, and may be interrupted."""

    def __init__(self, name: str, interrupted: bool = False) -> None:
        self.times, self.interrupted = 0, interrupted
        self.claim = Claim(name, SOURCE, "a is 1", "computed", "here", 1, self.measure, RULE, "cost/memory.py")

    def measure(self) -> Measured:
        self.times += 1
        if self.interrupted:
            raise KeyboardInterrupt
        picture = Picture("x", "y", {"line": [(1, inf), (2, 3.0)]}) if self.claim.name == "drawn" else None
        return Measured({"a": 1.0, "b": 4.0, "seen": self.times}, picture)


def test_a_finished_row_is_not_measured_again(tmp_path: Path) -> None:
    rows = [Counted("one"), Counted("two")]
    claims = [row.claim for row in rows]
    first = list(results.run(claims, tmp_path))
    assert [result.verdict for result in first] == ["partly holds"] * 2
    assert first[0].reasons == ["b differs"]
    second = list(results.run(claims, tmp_path))
    assert [row.times for row in rows] == [1, 1]
    assert [result.measured.figures for result in second] == [result.measured.figures for result in first]
    list(results.run(claims[:1], tmp_path, again=True))
    assert [row.times for row in rows] == [2, 1]
    values = json.loads((tmp_path / "two.json").read_text())
    assert "verdict" not in values, "it follows from the rule each time"
    del values["figures"]["b"]
    (tmp_path / "two.json").write_text(json.dumps(values))
    list(results.run(claims, tmp_path))
    assert [row.times for row in rows] == [2, 2], "a row whose rule has a new figure is measured again"


def test_an_interrupt_keeps_what_is_finished(tmp_path: Path) -> None:
    rows = [Counted("drawn"), Counted("two", interrupted=True)]
    with pytest.raises(KeyboardInterrupt):
        list(results.run([row.claim for row in rows], tmp_path))
    rows[1].interrupted = False
    list(results.run([row.claim for row in rows], tmp_path))
    assert [row.times for row in rows] == [1, 2]
    assert {file.name for file in tmp_path.iterdir()} == {"drawn.json", "drawn.png", "two.json"}


def test_after_a_failed_training_the_next_row_follows(tmp_path: Path) -> None:
    def measure() -> Measured:
        raise LaunchError("rank 1 failed", 1, "")

    failing = Claim("failing", SOURCE, "a is 1", "real ranks", "here", 1, measure, RULE, "cost/memory.py")
    failed: list[str] = []
    rows = [failing, Counted("two").claim]
    found = list(results.run(rows, tmp_path, fails=lambda claim, error: failed.append(f"{claim.name}: {error}")))
    assert [result.claim.name for result in found] == ["two"]
    assert failed == ["failing: rank 1 failed"]
    with pytest.raises(LaunchError):
        list(results.run(rows, tmp_path))


def call(*words: str) -> None:
    app = cyclopts.App(name="farandole")
    app.command(reproduce)
    run_app(app, ["reproduce", *words])


def test_the_command_lists_runs_and_writes_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    call()
    listed = capsys.readouterr().out
    assert all(name in listed for name in table.CLAIMS)
    call("megatron-days", "zero-table-1", "--out", str(tmp_path))
    said = capsys.readouterr().out
    assert "megatron-days: holds" in said
    assert "zero-table-1: holds" in said
    assert "2 × holds" in said
    call("megatron-days", "--out", str(tmp_path), "--json")
    [row] = json.loads(capsys.readouterr().out)
    assert (row["verdict"], row["figures"]["days of a trillion"]) == ("holds", 84)
    assert [bound["met"] for bound in row["rule"]] == [True, True]
    call("--out", str(KEPT), "--page", str(tmp_path / "page.md"))
    assert (tmp_path / "page.md").read_text(encoding="utf-8").count("\n### ") == len(table.CLAIMS)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["ring-bandwith"], "did you mean ring-bandwidth"),
        (["quite another thing"], "no claim 'quite another thing'"),
        (["--again"], "name what to run"),
        (["--page", "nowhere/page.md"], "nowhere/page.md cannot be written"),
        (["--page", "page.md", "--out", "empty"], r"needs all rows, and empty lacks .* and \d+ more"),
        (["megatron-days", "--out", "full"], "full/megatron-days.json is damaged"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    words: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "megatron-days.json").write_text("{}")
    with pytest.raises(UsageError, match=reason) as refused:
        call(*words)
    assert "\n" not in str(refused.value)


def test_what_is_not_met_is_named() -> None:
    assert [bound.figure for bound in not_met(RULE, {"a": 0, "b": 9})] == ["a", "b"]
