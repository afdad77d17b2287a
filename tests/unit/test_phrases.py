"""The check of phrases finds them in any wrapping, names file and line, and reads only texts and programs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("phrases", ROOT / "tools" / "phrases.py")
assert spec
assert spec.loader
phrases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(phrases)

DICTIONARY = phrases.phrases((ROOT / "tools" / "phrases.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("It ends after so many steps.", 1),
        ("It ends after so\nmany steps.", 1),
        ("x = 1\n    # It ends after so\n    # many steps.\n", 2),
        ("Ranks start in their order.", 1),
        ("The sum is handed on at once.", 1),
        ("Then nobody waits.", 1),
        ('def f():\n    """What the sum is."""\n', 2),
        ('"""That all ranks agree."""', 1),
    ],
)
def test_a_phrase_is_found_with_its_line(text: str, line: int) -> None:
    assert [found[0] for found in phrases.find(text, DICTIONARY)] == [line]


@pytest.mark.parametrize(
    "text",
    [
        "So many micro-batches are good.",
        "It takes so many more.",
        "It failed for so many ranks that it ended.",
        "Messages to and from the server; what has become of it.",
        "They wait in the order of their arrival.",
        "Ranks on the other hand, on a host.",
        "comm.everybodys(array)",
        '"""Return what the sum is."""',
    ],
)
def test_ordinary_english_is_left_alone(text: str) -> None:
    assert not list(phrases.find(text, DICTIONARY))


def test_hits_are_printed_with_advice_and_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.md").write_text("one\nand nobody\n", encoding="utf-8")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "b.py").write_text("# in their order\n", encoding="utf-8")
    (tmp_path / "c.ipynb").write_text("nobody", encoding="utf-8")
    assert phrases.main([str(tmp_path)]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{tmp_path}/a.md:2: nobody → ")
    assert second == f"{tmp_path}/inside/b.py:1: in their order → in order"


def test_a_text_without_such_phrases_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.md").write_text("No rank waits.\n", encoding="utf-8")
    assert phrases.main([str(tmp_path / "a.md")]) == 0
    assert not capsys.readouterr().out
