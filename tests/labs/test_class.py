"""A class's results: every entry has a row, nothing is lost, and other systems can read them."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from farandole.errors import LaunchError, UsageError
from farandole_tools.lab import (
    bundle,
    command,
    course,
    entries,
    gradebook,
    grading,
    hints,
    labs,
    mutants,
    submissions,
    suspicions,
)
from farandole_tools.lab.gradebook import Results, Row
from farandole_tools.lab.grading import Grade, Result
from farandole_tools.lab.labs import Lab

LAB = labs.find("2")
RIGHT = mutants.original(LAB)

# Gradescope's documented format of results.json (Autograder Specifications, "Output Format"), without the leaderboard.
VISIBILITY = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
GRADESCOPE = {
    "type": "object",
    "required": ["tests"],
    "additionalProperties": False,
    "properties": {
        "score": {"type": "number"},
        "execution_time": {"type": "number"},
        "output": {"type": "string"},
        "output_format": {"enum": ["text", "html", "simple_format", "md", "ansi"]},
        "test_output_format": {"enum": ["text", "html", "simple_format", "md", "ansi"]},
        "test_name_format": {"enum": ["text", "html", "simple_format", "md", "ansi"]},
        "visibility": VISIBILITY,
        "stdout_visibility": VISIBILITY,
        "extra_data": {"type": "object"},
        "tests": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "score": {"type": "number"},
                    "max_score": {"type": "number"},
                    "status": {"enum": ["passed", "failed"]},
                    "name": {"type": "string"},
                    "name_format": {"enum": ["text", "html", "simple_format", "md", "ansi"]},
                    "number": {"type": "string"},
                    "output": {"type": "string"},
                    "output_format": {"enum": ["text", "html", "simple_format", "md", "ansi"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "visibility": VISIBILITY,
                    "extra_data": {"type": "object"},
                },
            },
        },
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Submissions as students hand them in."""
    found = tmp_path / "submissions"
    for name in ("grace", "misnamed", "empty", "zipped", "deep/inside", "notes"):
        (found / name).mkdir(parents=True)
    (found / "ada.py").write_text(RIGHT)
    (found / "bob.py").write_text("import gc\n" + RIGHT.replace("arriving", "coming").replace("own", "mine"))
    (found / "grace" / LAB.file).write_text("def ring_all_reduce_mean(gradient, comm):\n    return None\n")
    (found / "misnamed" / "ring.py").write_text(RIGHT)
    (found / "zipped" / "work.zip").write_bytes(b"PK")
    (found / "deep" / "inside" / LAB.file).write_text(RIGHT)
    (found / "notes" / "notes.txt").write_text("none")
    (found / "carol.zip").write_bytes(b"PK")
    (found / "readme.txt").write_text("none")
    (found / "huge.py").write_text("#" * 2**21)
    (found / "link.py").symlink_to(found / "ada.py")
    (found / ".hidden.py").write_text("1 / 0")
    return found


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the judged submissions. None is launched; one named `broken` fails at its start."""
    names: list[str] = []

    def grade(lab: Lab, path: Path, *, name: str, **options: Any) -> Grade:
        if name == "broken.py":
            raise LaunchError("mpirun ended with 1")
        names.append(name)
        passed = "return None" not in path.read_text()
        results = [
            Result(check.name, passed, check.points * passed, check.points, "" if passed else "=1 is wrong")
            for check in lab.checks
        ]
        return Grade(name, lab.name, tuple(results), "root")

    monkeypatch.setattr(grading, "grade", grade)
    return names


def test_every_entry_has_a_row_and_a_reason(folder: Path) -> None:
    found = {entry.name: entry for entry in entries.entries(LAB, folder)}
    assert {name: entry.reason for name, entry in found.items() if entry.reason} == {
        "carol.zip": "an archive: unpack it",
        "deep": "ring_all_reduce.py is in inside/: move it up",
        "empty": "empty: ring_all_reduce.py is missing",
        "huge.py": "2,097,152 bytes, where 1,048,576 are allowed",
        "link.py": "a link, which is not followed",
        "misnamed": "holds ring.py where ring_all_reduce.py is needed: rename it",
        "notes": "ring_all_reduce.py is missing",
        "readme.txt": "not a file of Python",
        "zipped": "holds an archive, work.zip, and no ring_all_reduce.py: unpack it",
    }
    assert {name: entry.helpers for name, entry in found.items() if not entry.reason} == {
        "ada.py": False,
        "bob.py": False,
        "grace": True,
    }


@pytest.mark.parametrize(("name", "message"), [("gone", "not a folder"), ("empty", "is empty")])
def test_no_submissions_are_an_error_of_usage(folder: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        entries.entries(LAB, folder / name)


def test_a_class_is_graded_written_and_resumed(
    folder: Path, judged: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.py").write_text(RIGHT)
    results = tmp_path / "results.jsonl"
    files = {"csv": tmp_path / "a.csv", "json_": tmp_path / "a.json", "otter": tmp_path / "o.csv"}
    course.grade("2", folder, results=results, gradescope=tmp_path / "scope", **files)
    assert judged == ["ada.py", "bob.py", "grace"]
    shown = capsys.readouterr()
    assert "broken.py: the" in shown.err or "broken.py: mpirun ended with 1" in shown.err
    assert "13 submissions" not in shown.out
    assert "3 judged: mean 2," in shown.out
    assert "2 have 5 points or more" in shown.out
    assert "imports gc" in shown.out
    assert "Isolation: Linux namespaces" in shown.out
    everything = json.loads(files["json_"].read_text())
    assert everything["class"]["checks"]["bytes"] == 2
    assert {(pair["first"], pair["second"]) for pair in everything["similar"]} >= {("ada.py", "bob.py")}
    assert len(list((tmp_path / "scope").glob("*/results.json"))) == 12

    with results.open("a") as file:
        file.write('{"submission": "ada.py", "points": 1')  # a power cut
    (folder / "bob.py").write_text(RIGHT + "\n# changed\n")
    course.grade("2", folder, results=results)
    assert judged == ["ada.py", "bob.py", "grace", "bob.py"], "only what has changed is judged again"
    assert Results(results).rows["ada.py"].points == 10


def grade_of(lab: Lab, name: str, message: str) -> Grade:
    return Grade(
        name, lab.name, tuple(Result(each.name, False, 0, each.points, message) for each in lab.checks), "root"
    )


def test_a_message_that_utf8_does_not_have_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "class").mkdir()
    for name, message in (("ada", "\udce9"), ("bob", "\ud800 →"), ("carol", "é\u2028→")):
        (tmp_path / "class" / f"{name}.py").write_text(message.encode("unicode_escape").decode())
    monkeypatch.setattr(
        grading,
        "grade",
        lambda lab, path, *, name, **options: grade_of(lab, name, path.read_text().encode().decode("unicode_escape")),
    )
    results = tmp_path / "results.jsonl"
    for _ in range(2):
        course.grade("2", tmp_path / "class", results=results, gradescope=tmp_path, otter=tmp_path / "o.csv")
    messages = {name: row.checks[0]["message"] for name, row in Results(results).rows.items()}
    assert messages == {"ada.py": "\\xe9", "bob.py": "\\ud800 →", "carol.py": "é\u2028→"}


def test_names_that_are_not_utf8_are_written(tmp_path: Path, judged: list[str]) -> None:
    folder, unpacked = tmp_path / "class", os.fsdecode(b"jos\xe9")
    try:
        (folder / unpacked).mkdir(parents=True)
    except OSError:
        pytest.skip("this system has no such names")
    (folder / unpacked / LAB.file).write_text(RIGHT)
    (folder / f"{unpacked}.py").write_text(RIGHT)
    (folder / (unpacked + "é" * 120)).mkdir()
    (folder / "jos\\xe9").mkdir()
    (folder / "zoe.py").write_text(RIGHT)
    scope = tmp_path / "scope"
    course.grade("2", folder, results=tmp_path / "r.jsonl", gradescope=scope, csv=tmp_path / "n.csv")
    assert judged == ["jos\\xe9 (2)", "jos\\xe9.py", "zoe.py"]
    assert {path.parent.name for path in scope.glob("*/results.json")} == {
        "jos\\xe9", "jos\\xe9 (2)", "jos\\xe9.py", "jos\\xe9" + "é" * 120, "zoe"
    }  # fmt: skip


def test_what_cannot_be_read_has_a_row(tmp_path: Path, judged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Root reads everything, so the refusal is made here."""
    folder = tmp_path / "class"
    for name in ("ada", "bob", "closed"):
        (folder / name).mkdir(parents=True)
        (folder / name / LAB.file).write_text(RIGHT)
    (folder / "ada" / "helper.py").write_text("")
    os.mkfifo(folder / "pipe.py")
    usual: dict[str, Callable[..., Any]] = {"open": Path.open, "is_file": Path.is_file}

    def refusing(method: str, refused: set[str]) -> Callable[..., Any]:
        def call(path: Path, *given: Any, **named: Any) -> Any:
            if refused & {path.name, path.parent.name}:
                raise PermissionError(13, "Permission denied", str(path))
            return usual[method](path, *given, **named)

        return call

    monkeypatch.setattr(Path, "open", refusing("open", {"helper.py"}))
    monkeypatch.setattr(Path, "is_file", refusing("is_file", {"closed"}))
    course.grade("2", folder, results=tmp_path / "r.jsonl")
    assert judged == ["bob"]
    assert {name: row.reason for name, row in Results(tmp_path / "r.jsonl").rows.items() if row.reason} == {
        "ada": "helper.py cannot be read: Permission denied",
        "closed": "cannot be read: Permission denied",
        "pipe.py": "not a file",
    }


def test_what_goes_wrong_with_one_submission_does_not_stop_the_others(
    tmp_path: Path, judged: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    for name in ("ada", "bob", "carol"):
        (folder / f"{name}.py").write_text(RIGHT)
    usual = grading.grade
    failures: list[BaseException] = [RuntimeError("no such\nthing"), KeyboardInterrupt(), LaunchError("")]

    def grade(lab: Lab, path: Path, **options: Any) -> Grade:
        if path.name == "bob.py" and failures:
            raise failures.pop(0)
        return usual(lab, path, **options)

    monkeypatch.setattr(grading, "grade", grade)
    results = tmp_path / "r.jsonl"
    course.grade("2", folder, results=results)
    assert judged == ["ada.py", "carol.py"]
    row = Results(results).rows["bob.py"]
    assert (row.points, row.reason) == (0, "could not be judged: RuntimeError: no such")
    with pytest.raises(KeyboardInterrupt):
        course.grade("2", folder, results=results)
    for _ in range(2):
        course.grade("2", folder, results=results)
    assert judged == ["ada.py", "carol.py", "bob.py"]
    assert not Results(results).rows["bob.py"].reason
    failures.append(UsageError("there is no MPI"))
    (folder / "bob.py").write_text("")
    with pytest.raises(UsageError, match="no MPI"):
        course.grade("2", folder, results=results)


def test_a_change_of_any_file_that_is_copied_is_judged(tmp_path: Path, judged: list[str]) -> None:
    ada = tmp_path / "class" / "ada"
    (ada / "data").mkdir(parents=True)
    (ada / ".git").mkdir()
    (ada / LAB.file).write_text(RIGHT)
    table = ada / "data" / "table.txt"
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: table.write_text("1"),
        lambda: table.rename(ada / "table.txt"),
    ]
    for times, change in enumerate(changes, 1):
        change()
        (ada / ".git" / "index").write_text(str(times))
        for _ in range(2):
            course.grade("2", ada.parent, results=tmp_path / "r.jsonl")
        assert judged == ["ada"] * times


def test_helpers_are_scanned_and_compared(tmp_path: Path, judged: list[str]) -> None:
    ada, scope = tmp_path / "class" / "ada", tmp_path / "scope"
    (ada / "more").mkdir(parents=True)
    (ada / LAB.file).write_text("from helper import ring_all_reduce_mean\n")
    (ada / "helper.py").write_text("import gc\n" + RIGHT.replace("arriving", "coming"))
    (ada / "more" / "deep.py").write_text("exec('x')\n")
    (ada / "vast.py").write_text("#" * suspicions.MOST_BYTES)
    (ada.parent / "bob.py").write_text(RIGHT)
    course.grade("2", ada.parent, results=tmp_path / "r.jsonl", gradescope=scope)
    look_at = {
        name: json.loads((scope / name / "results.json").read_text())["extra_data"]["look_at"]
        for name in ("ada", "bob")
    }
    assert set(look_at["ada"]) >= {
        "helper.py: imports gc", "more/deep.py: calls exec", "vast.py: too long to be looked at",
        "100% similar to bob.py", "100% similar to a right answer",
    }  # fmt: skip
    assert "100% similar to ada" in look_at["bob"]


def test_a_file_and_a_folder_of_one_name_are_two_students(tmp_path: Path, judged: list[str]) -> None:
    folder = tmp_path / "class"
    (folder / "ada").mkdir(parents=True)
    (folder / "ada" / LAB.file).write_text("def ring_all_reduce_mean(gradient, comm):\n    return None\n")
    for name in ("ada.py", "ada.py.py", "bob.py"):
        (folder / name).write_text(RIGHT)
    course.grade("2", folder, results=tmp_path / "r", gradescope=tmp_path / "scope", csv=tmp_path / "n.csv")
    scores = {path.parent.name: json.loads(path.read_text())["score"] for path in tmp_path.glob("scope/*/*.json")}
    assert scores == {"ada": 0, "ada.py": 10, "ada.py.py": 10, "bob": 10}
    assert {row["student_id"] for row in csv.DictReader((tmp_path / "n.csv").open())} == scores.keys()


def rows() -> list[Row]:
    checks = [
        {"name": check.name, "passed": check.points == 1, "points": check.points % 2, "max_points": check.points}
        | {"message": "" if check.points == 1 else "wrong"}
        for check in LAB.checks
    ]
    judged = Row("=ada.py", LAB.name, "d", 4, 10, False, "", "root", ["imports gc"], checks)
    return [judged, Row("bob", LAB.name, "d", 0, 10, False, "an archive: unpack it")]


def test_the_csv_is_what_nbgrader_exports() -> None:
    students = gradebook.students([row.submission for row in rows()])
    first, second = csv.DictReader(io.StringIO(gradebook.as_csv(rows(), students)))
    assert ",".join(first) == (
        "assignment,duedate,timestamp,student_id,last_name,first_name,email,raw_score,late_submission_penalty,score,max_score"
    )
    assert first["student_id"] == "'=ada", "no formula of a spreadsheet"
    assert (float(first["score"]), float(first["max_score"]), float(second["score"])) == (4, 10, 0)
    assert first["assignment"] == LAB.name


def test_results_for_gradescope_follow_its_schema() -> None:
    for row in rows():
        found = json.loads(json.dumps(gradebook.as_gradescope(row, row.look_at)))
        jsonschema.validate(found, GRADESCOPE)
        assert found["score"] == sum(test["score"] for test in found["tests"]) == row.points
    assert found["output"] == "an archive: unpack it"


# final_grades.csv as Otter-Grader 7.0.0 wrote it for three questions and four submissions: one with all points, one
# with some, one that is no Python, and one that was ended at a time limit. Containers were replaced by processes.
OTTERS_QUESTIONS = {"mean": 2, "bytes": 2, "messages": 1}
OTTER = """\
file,bytes,mean,messages,total_points_earned,percent_correct,grading_status
points-per-question,2.0,2.0,1.0,5.0,1.0,--
ada.py,2.0,2.0,1.0,5.0,1.0,Completed
bad.py,0.0,0.0,0.0,0.0,0.0,Completed
late.py,0.0,0.0,0.0,0.0,0.0,timed out
zoe.py,0.0,2.0,1.0,3.0,0.6,Completed
"""


def test_the_table_for_otter_is_what_otter_writes() -> None:
    checks = tuple(replace(LAB.checks[0], name=name, points=points) for name, points in OTTERS_QUESTIONS.items())
    lab = replace(LAB, checks=checks)

    def row(name: str, wrong: str, reason: str = "") -> Row:
        points = {name: 0 if name in wrong.split() else points for name, points in OTTERS_QUESTIONS.items()}
        given = [{"name": name, "points": got} for name, got in points.items() if not reason]
        return Row(name, lab.name, "d", sum(points.values()), 5, False, reason, checks=given)

    every = "mean bytes messages"
    zoe, late, ada, bad = (
        row("zoe.py", "bytes"),
        row("late.py", every, "timed out"),
        row("ada.py", ""),
        row("bad.py", every),
    )
    assert gradebook.as_otter(lab, [zoe, late, ada, bad]) == OTTER


def test_a_column_of_otters_is_no_check() -> None:
    names = {check.name for each in labs.folders() for check in labs.load(each).checks}
    assert not names & {"file", *gradebook.OTTER}


def test_the_table_for_otter_has_shares_of_four_digits_and_no_formulas() -> None:
    rows_ = [Row("=ada.py", LAB.name, "d", 1, 3, False, checks=[]), *rows()[1:]]
    _, first, second = csv.DictReader(io.StringIO(gradebook.as_otter(LAB, rows_)))
    assert (first["file"], first["percent_correct"], first["grading_status"]) == ("'=ada.py", "0.3333", "Completed")
    assert (second["percent_correct"], second["grading_status"]) == ("0.0", "an archive: unpack it")


def test_renamed_code_is_similar_and_another_right_answer_is_not() -> None:
    renamed = RIGHT.replace("arriving", "neu").replace("chunks", "teile") + "# end\n"
    other = (
        "import numpy as np\n\ndef ring_all_reduce_mean(gradient, comm):\n"
        "    everything = [np.empty_like(gradient) for each in range(comm.size)]\n"
        "    for peer in range(comm.size):\n        if peer != comm.rank:\n"
        "            comm.exchange(gradient, peer, everything[peer], peer)\n"
        "    everything[comm.rank][:] = gradient\n    gradient[:] = sum(everything) / comm.size\n"
    )
    handed_out = (LAB.folder / LAB.file).read_text()
    classes = {"a": {"a.py": RIGHT}, "b": {"b.py": renamed}, "c": {"c.py": other}}
    found = suspicions.similar(classes, {"a right answer": RIGHT}, handed_out)
    assert {(pair.first, pair.second) for pair in found} == {
        ("a", "b"),
        ("a", "a right answer"),
        ("b", "a right answer"),
    }
    assert all(pair.share > 0.95 for pair in found)
    given = {name: {LAB.file: handed_out} for name in "ab"}
    assert suspicions.similar(given, {}, handed_out) == [], "what all were given"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import gc, numpy", ["imports gc"]),
        ("from mpi4py import MPI", ["imports mpi4py"]),
        ("from farandole.collectives.ring import RING", ["imports farandole.collectives.ring"]),
        ("from farandole_tools.lab.communicator import LabCommunicator", []),
        ("def f(comm):\n    comm.bytes_sent = 3", ["names .bytes_sent"]),
        ("getattr(comm, 'everybodys')", ["names 'everybodys'"]),
        ("exec('x')", ["calls exec"]),
        ("def f(:", []),
        ("-" * 200_000 + "1", []),
        (RIGHT, []),
    ],
)
def test_what_is_worth_a_look(text: str, found: list[str]) -> None:
    assert suspicions.look_at(text, LAB) == found


@pytest.mark.parametrize("folder", labs.folders(), ids=lambda folder: folder.name)
def test_nothing_that_is_handed_out_is_worth_a_look(folder: Path) -> None:
    lab = labs.load(folder)
    assert suspicions.look_at((folder / lab.file).read_text(), lab) == []


def test_a_bundle_has_no_solutions(tmp_path: Path) -> None:
    every = [labs.load(each) for each in labs.folders()]
    written = bundle.write(every, tmp_path / "bundle", classroom=True)
    names = {path.name for path in written}
    assert names == {"README.md", "lab.ipynb", "classroom.yml", *(lab.file for lab in every)}
    for path in written:
        text = path.read_text()
        assert "MUTANTS" not in text
        if path.name == "lab.ipynb":
            cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
            assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
            assert not any("reference" in line for cell in cells for line in cell["source"] if "import" in line)
    assert f"`pip install {shlex.quote(bundle.PACKAGE)}`" in (tmp_path / "bundle" / submissions.TASK).read_text()
    with pytest.raises(UsageError, match="holds something already"):
        bundle.write(every, tmp_path / "bundle", classroom=False)


def test_the_classroom_workflow_grades_each_lab() -> None:
    every = [labs.load(each) for each in labs.folders()]
    job = yaml.safe_load(bundle.workflow(every))["jobs"]["autograding"]
    *_, report = job["steps"]
    graders = [step for step in job["steps"] if "autograding-command-grader" in step.get("uses", "")]
    assert [step["with"]["max-score"] for step in graders] == [lab.max_points for lab in every]
    assert report["with"]["runners"].split(",") == [step["id"] for step in graders]
    assert set(report["env"]) == {f"{step['id'].upper()}_RESULTS" for step in graders}


def test_the_commands_of_the_workflow_run_in_a_fresh_clone(tmp_path: Path) -> None:
    """As handed out a lab has no points, and with a right answer all. The installation is the one of these tests."""
    template, clone = tmp_path / "template", tmp_path / "clone"
    lab = labs.find("1")
    source = "farandole[openmpi] @ file:///somewhere else"
    bundle.write([lab], template, classroom=True, package=source)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "handed out"]):
        subprocess.run([*git, *words], cwd=template, check=True)
    subprocess.run(["git", "clone", "-q", str(template), str(clone)], check=True)

    steps = yaml.safe_load((clone / bundle.WORKFLOW).read_text())["jobs"]["autograding"]["steps"]
    checkout, python, install, grader, report = steps
    assert checkout["uses"].startswith("actions/checkout@")
    assert python["uses"].startswith("actions/setup-python@")
    assert shlex.split(install["run"]) == ["pip", "install", source]
    assert report["uses"].startswith("classroom-resources/autograding-grading-reporter@")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for text, code in (("", 1), (mutants.original(lab), 0)):
        if text:
            (clone / lab.name / lab.file).write_text(text)
        done = subprocess.run(
            ["bash", "-c", grader["with"]["command"]],
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
    assert f"{lab.max_points} of {lab.max_points}" in done.stdout


def test_hints_come_one_by_one_and_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = hints.hints(LAB)
    assert all(each.question and each.answer and "<" not in each.question for each in every)
    mine = tmp_path / "my_labs"
    course.hint("2", my_labs=mine)
    assert f"{len(every)} more" in capsys.readouterr().out
    for _ in range(len(every) + 1):
        course.hint("2", next_=True, my_labs=mine)
    shown = capsys.readouterr().out
    assert "There are no more hints." in shown
    assert hints.progress(mine)[LAB.name].hints == len(every)
    results = tuple(Result(check.name, True, check.points, check.points) for check in LAB.checks)
    hints.log_check(mine, Grade("x", LAB.name, results))
    hints.log_check(mine, Grade("x", LAB.name, results[:1]))
    with (mine / hints.LOG).open("a") as file:
        file.write("{torn")
    assert hints.progress(mine)[LAB.name] == hints.Progress(10, 2, len(every))
    course.progress(my_labs=mine)
    line = next(line for line in capsys.readouterr().out.splitlines() if LAB.title in line)
    assert "10 of 10" in line


def test_checks_in_a_bundle_are_noted(
    tmp_path: Path, judged: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = grading.grade
    monkeypatch.setattr(grading, "grade", lambda lab, path, **options: usual(lab, path, name=str(path), **options))
    mine = tmp_path / "bundle"
    bundle.write([LAB], mine, classroom=False)
    file = mine / LAB.name / LAB.file
    (tmp_path / "other.py").write_text(RIGHT)
    for folder, given in ((mine, None), (mine, file), (mine, file.parent), (file.parent, None), (file.parent, file)):
        monkeypatch.chdir(folder)
        command.check("2", given)
    for folder, elsewhere in ((mine, tmp_path / "other.py"), (tmp_path, file)):
        monkeypatch.chdir(folder)
        command.check("2", elsewhere)
    assert hints.progress(mine)[LAB.name].checks == 5
    assert Path(LAB.file).name in judged, "in the lab's folder it is called as it is"
    monkeypatch.chdir(mine)
    course.hint("2", next_=True)
    capsys.readouterr()
    course.progress()
    line = next(line for line in capsys.readouterr().out.splitlines() if LAB.title in line)
    assert line.split()[-4:-1] == ["5", "1", "of"]
    command.list_labs()
    assert "not started" not in next(line for line in capsys.readouterr().out.splitlines() if LAB.title in line)
    assert {path.name for path in mine.iterdir()} == {"README.md", LAB.name, hints.LOG}


def test_the_projects_own_folder_is_no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (LAB.folder, LAB.folder.parent):
        monkeypatch.chdir(folder)
        assert submissions.place() == submissions.MY_LABS


@pytest.mark.parametrize("folder", labs.folders(), ids=lambda folder: folder.name)
def test_each_lab_has_hints(folder: Path) -> None:
    lab = labs.load(folder)
    assert len(hints.hints(lab)) >= 3
    task = (folder / submissions.TASK).read_text()
    assert f"farandole lab hint {lab.number} --next" in task
    assert not [each for each in hints.hints(lab) if each.answer in task], "a hint is shown when it is asked for"
