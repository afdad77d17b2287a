"""The pictures of README.md: the moving ring shows each step, and the terminal plays the recording."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from farandole.collectives.checker import execute
from farandole.collectives.ring import RING

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools" / "pictures.py")
assert spec
assert spec.loader
pictures = sys.modules["pictures"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pictures)

MOST_BYTES = 500_000


def recording(*events: tuple[float, str], command: str = "farandole tour") -> str:
    header = {"version": 2, "width": 84, "height": 26, "command": command}
    return "\n".join(json.dumps(part) for part in (header, *([at, "o", text] for at, text in events))) + "\n"


def played(svg: str) -> list[tuple[float, str]]:
    """Return when each line appears, and its text."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return [(float(re.findall(r"delay:([\d.]+)s", text.get("style", ""))[0]), text.text or "") for text in texts]


def test_a_line_is_complete_when_it_ends_and_a_bar_shows_its_last_state() -> None:
    _, lines = pictures.read(recording((1, "a\x1b[1mb\x1b[0m"), (2, "c\r\nd\r\n"), (3, "10 %\r50 %"), (4, "\r100 %\n")))
    assert [(line.at, line.text) for line in lines] == [(2, "abc"), (2, "d"), (4, "100 %")]


def test_the_terminal_plays_all_lines_in_order_in_the_time_it_has() -> None:
    lines = [(float(at), f"step <{at}> & more\r\n") for at in range(0, 200, 10)]
    table = [(200.0, "".join(f"row {row}\r\n" for row in range(30)))]
    shown = played(pictures.terminal(recording(*lines, *table)))
    assert [text for _, text in shown] == [
        "$ farandole tour",
        *(text.strip() for _, text in lines),
        *(f"row {row}" for row in range(30)),
    ]
    times = [at for at, _ in shown]
    assert times == sorted(times)
    assert times[20] < pictures.SECONDS  # the last line before the table
    assert times[-1] <= pictures.SECONDS + 30 * pictures.LEAST_S + 0.01
    assert all(later - at >= pictures.LEAST_S - 0.011 for at, later in pairwise(times))


def test_the_window_ends_at_the_last_line() -> None:
    svg = pictures.terminal(recording((1.0, "".join(f"{row}\n" for row in range(100)))))
    assert f"100.00% {{ transform: translateY({-(101 - pictures.ROWS) * pictures.LINE}px); }}" in svg
    assert "translateY(0px); animation" in pictures.terminal(recording((1.0, "a\n")))


def test_a_command_is_recorded_as_it_prints(tmp_path: Path) -> None:
    file = tmp_path / "it.cast"
    pictures.record(file, ("printf", "first\\nsecond – ☂\\n"))
    header, lines = pictures.read(file.read_text(encoding="utf-8"))
    assert header["command"].startswith("printf")
    assert [line.text for line in lines] == ["first", "second – ☂"]
    with pytest.raises(SystemExit, match="ended with 1"):
        pictures.record(tmp_path / "other.cast", ("false",))
    assert not (tmp_path / "other.cast").exists()


def test_the_committed_pictures_are_small_and_of_this_code() -> None:
    with Image.open(IMAGES / "ring.gif") as ring:
        assert ring.n_frames == len(execute(RING, 4).rounds) + 1  # a picture that stays for longer is one frame
    assert (IMAGES / "tour.svg").read_text("utf-8") == pictures.terminal((IMAGES / "tour.cast").read_text("utf-8"))
    assert {file.name: size for file in IMAGES.iterdir() if (size := file.stat().st_size) > MOST_BYTES} == {}
