"""Right answers as a learner would hand them in: files that import nothing of the project but the lab's own modules."""

from __future__ import annotations

import re
from pathlib import Path

from farandole_tools.lab import mutants
from farandole_tools.lab.contained import kit
from farandole_tools.lab.labs import Lab

FROM = re.compile(r"^from (farandole\.[\w.]+) import (.+)$", re.MULTILINE)


def write(lab: Lab, folder: Path, text: str = "") -> Path:
    """Write the lab's right answer, or `text`, to its file in `folder`, and beside it what it imports."""
    path = folder / lab.file
    path.write_text(_own(lab, text or mutants.original(lab), folder), encoding="utf-8")
    return path


def _own(lab: Lab, text: str, folder: Path) -> str:
    """Make every import of the package one of a file in `folder`."""

    def replaced(found: re.Match[str]) -> str:
        module, names = found.groups()
        if module in (*kit.given(lab), *kit.NAMES_ONLY):
            return found[0]
        if kit.source(module).name == "__init__.py":  # the names are those of modules
            return f"import {_copy(lab, f'{module}.{names}', folder)} as {names}"
        return f"from {_copy(lab, module, folder)} import {names}"

    return FROM.sub(replaced, text)


def _copy(lab: Lab, module: str, folder: Path) -> str:
    name = module.replace(".", "_").replace("farandole", "own")
    copy = folder / f"{name}.py"
    if not copy.exists():
        copy.touch()
        copy.write_text(_own(lab, kit.source(module).read_text(encoding="utf-8"), folder), encoding="utf-8")
    return name
