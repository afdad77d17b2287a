"""The part of this project that a submission can import: the imports of the handed-out file, and names for annotations.

The real classes stay in the process of the checks; in the sandbox their names are those of empty classes. A module that
the handed-out file needs, for instance the messages of an election, is copied as it is, with what it imports itself.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from farandole_tools.lab.contained import sandbox
from farandole_tools.lab.labs import Lab

PROJECT = ("farandole", "farandole_tools")
NAMES_ONLY = {  # module → classes
    "farandole_tools.lab.background": ("BackgroundCommunicator", "Reduction"),
    "farandole_tools.lab.collective_calls": ("CollectiveCommunicator",),
    "farandole_tools.lab.communicator": ("LabCommunicator",),
    "farandole_tools.lab.disk": ("Disk",),
    "farandole_tools.lab.half_network": ("HalfNetwork",),
    "farandole_tools.lab.instrumented_network": ("Network",),
    "farandole_tools.lab.summing": ("SummingCommunicator",),
}
INSIDE = (
    "farandole_tools.lab.learner",
    *(f"farandole_tools.lab.contained.{name}" for name in ("arrays", "channel", "guest", "remote", "values", "wire")),
)
RAISED = {  # module → the exception of it that is raised in the sandbox, and its base
    "farandole_tools.lab.labs": ("Wrong", "Exception"),
    "farandole.runtime.failure": ("PeerLost", "RuntimeError"),
}
PACKAGES = "packages"  # the folder with numpy, and torch if the lab is with it


def write(folder: Path, lab: Lab) -> None:
    """Put the kit of a lab into `folder`, which is to be first on the guest's path."""
    for name, classes in NAMES_ONLY.items():
        text = "\n\n".join(
            f'class {each}:\n    """The real one is in the process of the checks."""' for each in classes
        )
        put(folder, name, f"{text}\n")
    for name, (error, base) in RAISED.items():
        put(folder, name, f'class {error}({base}):\n    """The real one is in the process of the checks."""\n')
    for name in (*INSIDE, *given(lab)):
        put(folder, name, source(name).read_text(encoding="utf-8"))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    packages = folder / PACKAGES
    packages.mkdir()
    packages.chmod(0o755)
    for path in sandbox.packages(lab.with_torch):
        (packages / path.name).symlink_to(path.resolve())


def given(lab: Lab) -> list[str]:
    """The project's modules that the handed-out file imports, the lab's harness, and what these import.

    Those of names only are left out.
    """
    handed_out = lab.folder / lab.file
    wanted = list(imported(handed_out.read_text(encoding="utf-8"))) if handed_out.is_file() else []
    wanted += [lab.harness] if lab.harness else []
    found: list[str] = []
    while wanted:
        name = wanted.pop()
        if name not in found and name not in {*NAMES_ONLY, *RAISED}:
            found.append(name)
            wanted += imported(source(name).read_text(encoding="utf-8"))
    return sorted(found)


def imported(text: str) -> Iterator[str]:
    """The project's modules that a file imports when it is run, those for type checkers left out."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.module.split(".")[0] in PROJECT:
            yield statement.module
        elif isinstance(statement, ast.Import):
            yield from (each.name for each in statement.names if each.name.split(".")[0] in PROJECT)


def source(name: str) -> Path:
    """Return the file of one of the project's modules."""
    found = find_spec(name)
    assert found
    assert found.origin
    return Path(found.origin)


def files(submission: Path, helpers: bool) -> list[Path]:
    """Return the files of a submission: itself, and the other files of its folder if `helpers`. Links are left out."""
    found, budget = [submission], sandbox.FILE_SIZE
    for path in sorted(submission.parent.rglob("*")) if helpers else ():
        relative = path.relative_to(submission.parent)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
        if hidden or path.is_symlink() or not path.is_file() or path == submission or len(relative.parts) > 3:
            continue
        budget -= path.stat().st_size
        if budget < 0:
            break
        found.append(path)
    return found


def copy_submission(submission: Path, folder: Path, helpers: bool) -> Path:
    """Copy the files of a submission; return the copy of the one to judge."""
    folder.mkdir()
    for path in files(submission, helpers):
        place = folder / path.relative_to(submission.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place, follow_symlinks=path == submission)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder / submission.name


def put(folder: Path, name: str, text: str) -> None:
    """Write a module where Python finds it if `folder` is on its path."""
    *packages, module = name.split(".")
    place = folder
    for package in packages:
        place /= package
        place.mkdir(exist_ok=True)
        (place / "__init__.py").touch()
    (place / f"{module}.py").write_text(text, encoding="utf-8")
