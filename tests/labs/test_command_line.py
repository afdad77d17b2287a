"""`farandole lab list | start | check`, as a learner and an instructor use it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from farandole_tools.lab import command as lab_command
from farandole_tools.lab import labs, mutants, tables
from farandole_tools.lab.grading import Grade, Result
from tests.labs.labs_for_tests import on

LAB = labs.find("1")  # the quicker one
NAME = "01_sharding"


@pytest.fixture
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a file that fails one check, of one point."""
    return mutants.write(LAB, tmp_path_factory.mktemp("wrong"))["not_shuffled"]


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def farandole(command: Command) -> Command:
    """Run `farandole lab WORDS` in `folder`."""
    return lambda *words, folder: command("lab", *map(str, words), cwd=folder)


def test_list_shows_every_lab_and_whether_it_is_started(tmp_path: Path, farandole: Command) -> None:
    farandole("start", "2", folder=tmp_path)
    shown = farandole("list", folder=tmp_path)
    assert shown.returncode == 0
    lines = {line.split()[0]: line for line in shown.stdout.splitlines() if ".py" in line}
    there = [labs.load(folder) for folder in labs.folders()]
    assert list(lines) == [str(lab.number) for lab in there], "in order; numbers may be left out"
    for lab in there:
        line = lines[str(lab.number)]
        assert lab.title in line
        assert lab.file in line
        assert line.split()[-2:] == (["10", "started"] if lab.number == 2 else ["not", "started"])
    assert "farandole lab start N" in shown.stdout


@pytest.mark.parametrize("number", ["1", "01", NAME])
def test_a_lab_goes_by_number_and_by_name(tmp_path: Path, number: str, farandole: Command) -> None:
    assert farandole("start", number, folder=tmp_path).returncode == 0
    handed_out = tmp_path / "my_labs" / NAME
    assert {path.name for path in handed_out.iterdir()} == {"README.md", "lab.ipynb", "sharding.py"}
    for path in handed_out.iterdir():
        assert path.read_bytes() == (LAB.folder / path.name).read_bytes()


def test_start_again_adds_what_is_missing_and_overwrites_nothing(tmp_path: Path, farandole: Command) -> None:
    farandole("start", "1", "--dir", "work", folder=tmp_path)
    folder = tmp_path / "work" / NAME
    (folder / "sharding.py").write_text("my work")
    (folder / "README.md").unlink()
    again = farandole("start", "1", "--dir", "work", folder=tmp_path)
    assert again.returncode == 0
    assert (folder / "sharding.py").read_text() == "my work"
    assert "sharding.py: there already with changes of yours" in again.stdout
    assert "lab.ipynb: there already\n" in again.stdout
    assert "README.md: new" in again.stdout
    assert "farandole lab check 1 --dir work" in again.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("check", "99"), "there is no lab '99': choose from 1 (01_sharding), 2 (02_ring_all_reduce)"),
        (("start", "ring"), "there is no lab 'ring': choose from"),
        (("check", "1"), "begin with farandole lab start 1, or name a file"),
        (("check", "1", "gone.py"), "gone.py is not there: name the completed sharding.py"),
        (("check", "1", "notes.txt"), "notes.txt is not a Python file"),
        (("check", "1", "nothing"), "nothing holds no submission"),
        (("check", "1", "notes.txt", "--with", "reference"), "give one of the two"),
        (("check", "1", "--time-limit", "0"), "Must be > 0"),
        (("check",), ""),
        (("start", "1", "--dir", "notes.txt"), "--dir chooses another place"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    tmp_path: Path, words: tuple[str, ...], message: str, farandole: Command
) -> None:
    (tmp_path / "notes.txt").write_text("none")
    (tmp_path / "nothing").mkdir()
    done = farandole(*words, folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_check_finds_the_learners_file_from_outside_and_from_within(tmp_path: Path, farandole: Command) -> None:
    farandole("start", "1", folder=tmp_path)
    folder = tmp_path / "my_labs" / NAME
    untouched = farandole("check", "1", folder=tmp_path)
    assert untouched.returncode == 1
    assert "not implemented yet" in untouched.stdout
    assert "0 of 10 points" in untouched.stdout
    (folder / "sharding.py").write_text(mutants.original(LAB))
    within = farandole("check", "1", folder=folder)
    assert within.returncode == 0, within.stdout
    assert "10 of 10 points: sharding.py" in within.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "lab.ipynb", "sharding.py"]


def test_json_of_a_file_is_one_object_and_nothing_else(tmp_path: Path, wrong: Path, farandole: Command) -> None:
    done = farandole("check", "1", wrong, "--json", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr == ""
    grade = json.loads(done.stdout)
    assert set(grade) == {"submission", "lab", "points", "max_points", "checks"}
    assert (grade["submission"], grade["lab"]) == (str(wrong), NAME)
    assert (grade["points"], grade["max_points"]) == (9, 10)
    failed = [check for check in grade["checks"] if not check["passed"]]
    assert [set(check) for check in failed] == [{"name", "passed", "points", "max_points", "message"}]
    assert failed[0]["name"] == "shuffled"
    assert "in their own order" in failed[0]["message"]


def test_a_folder_of_submissions_is_judged_as_a_list(tmp_path: Path, wrong: Path, farandole: Command) -> None:
    folder = tmp_path / "submissions"
    (folder / "grace").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "grace" / "sharding.py").write_text(mutants.original(LAB))
    shutil.copy(wrong, folder / "ada.py")
    (folder / "broken [bold].py").write_text("def f(:\n")
    (folder / ".hidden.py").write_text("1 / 0")
    (folder / "notes.txt").write_text("none")
    done = farandole("check", "1", folder, "--json", folder=tmp_path)
    assert done.returncode == 1
    grades = json.loads(done.stdout)
    assert [(grade["submission"], grade["points"]) for grade in grades] == [
        ("ada.py", 9),
        ("broken [bold].py", 0),
        ("grace", 10),
    ]
    assert done.stderr == "Not submissions of this lab, and left out: empty, notes.txt\n"


def test_the_reference_can_be_seen(tmp_path: Path) -> None:
    """As a learner runs it: each command in a new process."""
    command = [sys.executable, "-m", "farandole", "lab", "check", "1", "--with", "reference", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["points"] == 10


def test_the_known_wrong_answers_can_be_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(labs, "find", lambda number: on(LAB, 1, checks=("shares", "mean gradient")))
    with pytest.raises(SystemExit) as ended:
        lab_command.check("1", with_="wrong", json_=True)
    assert ended.value.code == 1
    grades = {grade["submission"]: grade for grade in json.loads(capsys.readouterr().out)}
    assert list(grades) == [mutant.name for mutant in mutants.mutants(LAB)]
    assert (grades["plain_mean"]["points"], grades["not_shuffled"]["points"]) == (1, 2)


def test_a_folder_is_shown_as_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    good = Result("shares", True, 1, 1)
    bad = Result("shares", False, 0, 1, "2 samples [bold] never\x1b[2J used")
    grades = [Grade("ada", NAME, (good, good)), Grade("[red]grace.py", NAME, (good, bad))]
    tables.show_all(LAB, grades)
    shown = capsys.readouterr().out
    ada, grace = (line for line in shown.splitlines() if " of 2" in line)
    assert "2 of 2" in ada
    assert "1 of 2   shares   2 samples [bold] never�[2J used" in grace
    assert "[red]grace.py" in grace
    assert "2 submissions, 1 with full marks" in shown


def test_what_the_code_printed_cannot_command_the_terminal(tmp_path: Path, farandole: Command) -> None:
    (tmp_path / "loud.py").write_text("print('\\x1b[2J[red]here')\nraise ValueError('\\x1b[2J[/bold]')\n")
    done = farandole("check", "1", "loud.py", folder=tmp_path)
    assert done.returncode == 1
    assert "rank 0 | �[2J[red]here" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_command_starts_no_mpi_of_its_own(tmp_path: Path) -> None:
    """Otherwise MPI's signal handlers would replace ours: a closed terminal did not end `lab check 12`."""
    program = (
        "import sys\n"
        "from farandole import cli\n"
        "from farandole_tools.lab import labs\n"
        "sys.argv = ['farandole', 'list']\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "labs.find('12')\n"
        "print('mpi4py.MPI' in sys.modules and not sys.modules['mpi4py.MPI'].Is_initialized())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "True", done.stderr
