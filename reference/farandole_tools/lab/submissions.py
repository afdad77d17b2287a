"""Which files belong to a lab: what a learner starts with, and what there is to judge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from farandole.errors import UsageError
from farandole_tools.lab.labs import Lab

MY_LABS = Path("my_labs")
TASK = "README.md"
NOTEBOOK = "lab.ipynb"


@dataclass(frozen=True)
class Started:
    """The files that `start` has put into `folder`, and those that were there: as handed out, or changed since."""

    folder: Path
    new: list[str]
    kept: list[str]
    changed: list[str]


def start(lab: Lab, my_labs: Path = MY_LABS) -> Started:
    """Copy the task, the notebook and the file to complete; what is there already stays as it is.

    Raises:
        UsageError: the folder cannot be made or written to.
    """
    folder = my_labs / lab.name
    started = Started(folder, [], [], [])
    originals = {name: (lab.folder / name).read_bytes() for name in (TASK, NOTEBOOK, lab.file)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, original in originals.items():
            copy = folder / name
            if not copy.exists():
                with copy.open("xb") as file:  # x: whatever happens, no work is overwritten
                    file.write(original)
                started.new.append(name)
            else:
                unchanged = copy.is_file() and copy.read_bytes() == original
                (started.kept if unchanged else started.changed).append(name)
    except OSError as error:
        text = f"{error.strerror}: {error.filename}"
        raise UsageError(f"the lab cannot be put into {folder} ({text}); --dir chooses another place") from error
    return started


def place(my_labs: Path = MY_LABS) -> Path:
    """Return the folder with a learner's labs: `my_labs`, or the bundle that the current folder is or belongs to.

    A bundle counts only where no other folder was named and `my_labs` has no labs.
    """
    if my_labs == MY_LABS and not _has_labs(my_labs):
        return next((folder for folder in (Path(), Path("..")) if _has_labs(folder)), my_labs)
    return my_labs


def _has_labs(folder: Path) -> bool:
    """Whether labs are in it as they are handed out; in the project's own folder the checks are with them."""
    found = [path.parent for path in folder.glob(f"[0-9][0-9]_*/{NOTEBOOK}")]
    return any(not (each / "check.py").exists() for each in found)


def own(lab: Lab, my_labs: Path = MY_LABS) -> Path:
    """Return the learner's own file: below `my_labs`, or right here when this is the lab's started folder.

    Raises:
        UsageError: it has not been started.
    """
    here = Path.cwd()
    places = [my_labs / lab.name / lab.file, Path(lab.file)]
    for path in reversed(places) if my_labs == Path("..") else places:
        if path.is_file() and (path.parent != Path() or here.name == lab.name):
            return path
    other = "" if my_labs == MY_LABS else f" --dir {my_labs}"
    missing = my_labs / lab.name / lab.file
    raise UsageError(f"there is no {missing}: begin with farandole lab start {lab.number}{other}, or name a file")


def found(lab: Lab, path: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the submissions in a folder, by name, and what in it is none.

    Each Python file is one, and each sub-folder that holds the lab's file.

    Raises:
        UsageError: there is none.
    """
    submissions, left_out = {}, []
    for entry in sorted(path.iterdir()):
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir() and (entry / lab.file).is_file():
            submissions[entry.name] = entry / lab.file
        elif entry.is_file() and entry.suffix == ".py":
            submissions[entry.name] = entry
        else:
            left_out.append(entry.name)
    if not submissions:
        raise UsageError(f"{path} holds no submission: neither Python files nor folders with a {lab.file}")
    return submissions, left_out


def is_started(lab: Lab, path: Path) -> bool:
    """Whether `path` is one learner's folder, as `start` makes it, not a folder of submissions."""
    return (path / lab.file).is_file() and (path / NOTEBOOK).is_file()
