"""The container files have what a build needs, checked without a builder: stages, user, sources, ignored folders."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = {"FROM", "ARG", "RUN", "WORKDIR", "COPY", "USER", "ENV", "CMD"}


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, without comments, with continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines.splitlines() if line.strip()]


def flaws(text: str, root: Path = ROOT) -> list[str]:
    """Return what is wrong with a Dockerfile."""
    steps, found, stages = instructions(text), [], []
    found += [f"unknown instruction {name}" for name, _ in steps if name not in INSTRUCTIONS]
    for name, rest in steps:
        words = [word for word in rest.split() if not word.startswith("--")]
        if name == "FROM":
            stages.append(rest.partition(" AS ")[2] or str(len(stages)))
            if not re.search(r":\d", words[0]):
                found.append(f"{words[0]}: no version")
        if name == "COPY":
            source = re.search(r"--from=(\S+)", rest)
            if source and source[1] not in stages[:-1]:
                found.append(f"no stage {source[1]}")
            found += [f"no file {word}" for word in words[:-1] if not source and not (root / word).exists()]
        if name == "RUN" and "apt-get install" in rest:
            found += [f"apt-get without {each}" for each in ("--no-install-recommends", "rm -rf /var/lib/apt/lists")
                      if each not in rest]  # fmt: skip
    last = [rest for name, rest in steps[max(i for i, (name, _) in enumerate(steps) if name == "FROM") :]
            if name == "USER"]  # fmt: skip
    if not last or last[-1] in ("root", "0"):
        found.append("runs as root")
    if len(stages) < 2:
        found.append("one stage: the compiler would stay in the image")
    return found


def test_the_dockerfile_has_no_flaw() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert flaws(text) == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in re.findall(r"RUN make (\w+)", text))
    needed = re.findall(r"\$\(READY\): (.+)", makefile)[-1].split()
    build = text.split("\nFROM ")[1]
    copied = [word for name, rest in instructions(f"FROM {build}") if name == "COPY" for word in rest.split()]
    assert [file for file in needed if not {file, f"{Path(file).parent}/"} & {*copied}] == []


@pytest.mark.parametrize(
    ("old", "new", "flaw"),
    [
        ("USER learner\n", "", "runs as root"),
        ("USER learner\n", "USER root\n", "runs as root"),
        ("--from=build", "--from=nothing", "no stage nothing"),
        ("COPY reference ", "COPY references ", "no file references"),
        ("python:3.12-slim-bookworm AS", "python:latest AS", "python:latest: no version"),
        ("--no-install-recommends g++", "g++", "apt-get without --no-install-recommends"),
        ("CMD [", "ADD [", "unknown instruction ADD"),
    ],
)
def test_a_flaw_is_found(old: str, new: str, flaw: str) -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert old in text
    assert flaws(text.replace(old, new)) == [flaw]


def test_what_must_not_travel_into_the_image_is_ignored() -> None:
    """Above all .venv, which would replace that of the first stage."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {".venv", ".git", "runs"} <= set(ignored)
    tracked_out = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert {line.strip("/") for line in tracked_out if line.startswith("/") and "*" not in line} - set(ignored) == set()


def test_the_dev_container_sets_up_what_the_package_needs() -> None:
    about = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert about["remoteUser"] not in ("root", "0")
    assert about["postCreateCommand"] == "make setup"
    major, minor = map(int, re.findall(r"python:(\d+)\.(\d+)", about["image"])[0])
    least = re.findall(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))[0]
    assert (major, minor) >= tuple(map(int, least))
