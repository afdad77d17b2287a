"""Draw the pictures of README.md and docs/index.md: the ring all-reduce that moves, and a terminal that runs the tour.

    python tools/pictures.py ring        docs/images/ring.gif, from the schedule that also runs over MPI
    python tools/pictures.py record      run the tour in a terminal, and keep what it prints, with the times
    python tools/pictures.py terminal    docs/images/tour.svg, from what was recorded

A recording is an asciicast of version 2 (docs.asciinema.org): a header, then one event per line, [seconds, "o", text].
The animated terminal is an SVG that runs without JavaScript, so it also moves where a page includes it as an image.
"""

from __future__ import annotations

import codecs
import json
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
RECORDING = IMAGES / "tour.cast"
COMMAND = ("farandole", "tour")

COLUMNS, ROWS = 84, 26  # of the terminal
SECONDS = 40.0  # that the recording is compressed to
LEAST_S = 0.12  # between two lines: a table that is printed at once scrolls past line by line
CHARACTER, LINE, DESCENT, MARGIN, BAR = 8, 18, 5, 14, 30  # pixels
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STYLE = """
text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d8dee9; white-space: pre;
  visibility: hidden; animation: show 0s forwards; }
.command { fill: #8fd694; }
@keyframes show { to { visibility: visible; } }
@media (prefers-reduced-motion: reduce) { text { animation: none; visibility: visible; } #lines { animation: none; } }
"""


@dataclass(frozen=True)
class Line:
    """A line of a terminal, and the second at which it is complete."""

    at: float
    text: str


def record(file: Path, command: Sequence[str] = COMMAND) -> None:
    """Run `command` in a separate terminal, and write its output to `file`, with the times.

    Raises:
        SystemExit: the command has failed; nothing is written.
    """
    start, events, decoder = time.monotonic(), [], codecs.getincrementaldecoder("utf-8")()
    process, terminal = pty.fork()
    if not process:
        os.execvp(command[0], [*command])
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        while data := os.read(terminal, 1 << 16):
            events.append([round(time.monotonic() - start, 2), "o", decoder.decode(data)])
            os.write(sys.stdout.fileno(), data)
    except OSError:  # so Linux reports that the command has closed its terminal
        pass
    if status := os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
        raise SystemExit(f"pictures: {' '.join(command)} ended with {status}")
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "command": " ".join(command)}
    parts = [json.dumps(part, ensure_ascii=False) for part in (header, *events)]
    file.write_text("\n".join(parts) + "\n", encoding="utf-8")


def read(recording: str) -> tuple[Mapping[str, object], list[Line]]:
    """Return a recording's header, and its completed lines, without colours."""
    header, *events = map(json.loads, recording.splitlines())
    lines, line = [], ""
    for at, _, text in events:
        for piece in re.split(r"(\r?\n|\r)", ESCAPE.sub("", text)):
            if piece.endswith("\n"):
                lines.append(Line(at, line.rstrip()))
            line = "" if piece.endswith(("\n", "\r")) else line + piece
    return header, lines


def paced(lines: Sequence[Line]) -> list[Line]:
    """Compress the times to `SECONDS`, with `LEAST_S` or more between two lines."""
    factor = SECONDS / max(1.0, lines[-1].at)
    result, now = [], 0.0
    for line in lines:
        now = max(line.at * factor, now + LEAST_S)
        result.append(Line(now, line.text))
    return result


def terminal(recording: str) -> str:
    """Return the recording as an animated SVG, which plays once and then shows the last lines."""
    header, lines = read(recording)
    shown = [Line(0.0, f"$ {header['command']}"), *paced(lines)]
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, ROWS * LINE + 2 * MARGIN + BAR
    title = f"A terminal that runs {header['command']}: {lines[-1].at:.0f} seconds, shown in {shown[-1].at:.0f}"
    command = ' class="command"'
    texts = [
        f'<text x="{MARGIN}" y="{(number + 1) * LINE - DESCENT}" textLength="{len(line.text) * CHARACTER}" '
        f'lengthAdjust="spacingAndGlyphs"{"" if number else command} '
        f'style="animation-delay:{line.at:.2f}s">{escape(line.text)}</text>'
        for number, line in enumerate(shown)
        if line.text
    ]
    last = shown[-1].at
    above = range(max(0, len(shown) - ROWS) + 1)  # lines that have left the window
    moves = [(shown[count + ROWS - 1].at / last if count else 0.0, count) for count in above]
    steps = " ".join(f"{share:.2%} {{ transform: translateY({-count * LINE}px); }}" for share, count in moves)
    scroll = (
        f"#lines {{ transform: translateY({-above[-1] * LINE}px); animation: scroll {last:.2f}s step-end forwards; }}\n"
        f"@keyframes scroll {{ {steps} }}\n"
    )
    dots = "".join(
        f'<circle cx="{MARGIN + 6 + 18 * number}" cy="{BAR // 2}" r="5" fill="{colour}"/>'
        for number, colour in enumerate(("#e06c75", "#e5c07b", "#98c379"))
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}{scroll}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#1f2430"/>{dots}',
        f'<svg y="{BAR}" width="{width}" height="{ROWS * LINE + MARGIN}"><g id="lines">',
        *texts,
        "</g></svg>",
        "</svg>\n",
    ])  # fmt: skip


def ring(file: Path) -> None:
    """Draw the ring all-reduce of four ranks, one step after another."""
    from farandole.collectives.ring import RING
    from farandole.report import schedule_picture

    schedule_picture.draw(RING, 4, file)


def main(words: Sequence[str]) -> None:
    """Do what each word says.

    Raises:
        SystemExit: a word says nothing.
    """
    actions: dict[str, Callable[[], object]] = {
        "ring": lambda: ring(IMAGES / "ring.gif"),
        "record": lambda: record(RECORDING),
        "terminal": lambda: (IMAGES / "tour.svg").write_text(terminal(RECORDING.read_text("utf-8")), "utf-8"),
    }
    if not words or set(words) - actions.keys():
        raise SystemExit(__doc__)
    for word in words:
        actions[word]()


if __name__ == "__main__":
    main(sys.argv[1:])
