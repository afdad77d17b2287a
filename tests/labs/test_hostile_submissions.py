"""Whatever a submission does, it is judged with a helpful message, and the grader continues."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from farandole.errors import LaunchError
from farandole.runtime import processes, rank
from farandole_tools.lab import labs, launch, mutants
from farandole_tools.lab.grading import Result, grade
from tests.labs.labs_for_tests import LIMIT_S, by_name, on

PATIENCE_S = 120

FUNCTION = "def ring_all_reduce_mean(gradient, comm):\n"
SHORT_S = 2.0  # for a submission that does not end
AROUND = "(comm.rank + 1) % comm.size"
RIGHT = mutants.original(labs.find("2"))
BEGINNING = FUNCTION


def judged(folder: Path, text: str | bytes, ranks: int = 2, limit_s: float = LIMIT_S) -> Result:
    """Return the message of lab 2's check "mean" on `ranks` ranks for a file with this text."""
    path = folder / "submission.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = grade(on(labs.find("2"), ranks, checks=("mean",)), path, limit_s=limit_s)
    assert [entry.name for entry in folder.iterdir()] == ["submission.py"], "something is left beside the file"
    return result.results[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n    pass\n", "not valid Python: invalid syntax, at line 1: `def f(:`"),
        (b"\xff\xfe\x00", "not valid Python"),
        ("", "there is no ring_all_reduce_mean in submission.py"),
        ("import sys\nsys.exit(0)\n", "ends the whole process (sys.exit or SystemExit), at line 2: `sys.exit(0)`"),
        ("import does_not_exist\n", "ModuleNotFoundError: No module named 'does_not_exist', at line 1"),
        ("while True:\n    pass\n", "still running after 2 s, at line 1: `while True:`"),
    ],
    ids=["syntax", "binary", "empty", "exit", "import", "loop"],
)
def test_a_file_that_does_not_import(tmp_path: Path, text: str | bytes, message: str) -> None:
    result = judged(tmp_path, text, limit_s=SHORT_S if "still running" in message else LIMIT_S)
    assert not result.passed
    assert message in result.message


# Mistakes that do not end the process, and the message for each; many in one launch.
MISTAKES = {
    "return 1 / 0": "ZeroDivisionError: division by zero, at line ",
    "raise SystemExit(0)": "the code ends the whole process (sys.exit or SystemExit), at line ",
    "raise KeyboardInterrupt": "KeyboardInterrupt, at line ",
    "return recursion()": "RecursionError: maximum recursion depth exceeded",
    "raise NoText": "NoText, at line ",
    "kept = [np.empty(2**24) for _ in range(100)]": "MemoryError: Unable to allocate ",
    "open('big', 'wb').write(bytes(2**27))": "OSError: [Errno 27] File too large, at line ",
    "comm.send([1, 2], right)": "TypeError: send takes numpy arrays, not list, at line ",
    "comm.send(np.array([None]), right)": "TypeError: send takes arrays of numbers, not of Python objects",
    "comm.receive(np.zeros(4)[::2], right)": "ValueError: receive takes contiguous arrays",
    "comm.send(gradient, 2)": "ValueError: send: there is no rank 2; the ranks are 0 to 1, at line ",
    "comm.send(gradient, comm.rank)": "ValueError: send: rank 0 cannot wait for itself, at line ",
    "comm.exchange(gradient, right, gradient, right)": "ValueError: exchange: the array to send and the array to rec",
    "comm.exchange(gradient, right, np.empty(1), right)": "ValueError: the message from rank 1 has more bytes",
    "comm.exchange(np.empty(0), right, gradient, right)": "ValueError: the message from rank 1 has 0 bytes, the",
}
HELPERS = """
import numpy as np

class NoText(Exception):
    __str__ = None

def recursion():
    return recursion()
"""


def test_a_function_that_raises(tmp_path: Path) -> None:
    """Each mistake is made in a separate check of a lab with one check per mistake."""
    body = "".join(f"    if comm.current_case == {case!r}:\n        {case}\n" for case in MISTAKES)
    path = tmp_path / "submission.py"
    path.write_text(HELPERS + FUNCTION + "    right = (comm.rank + 1) % comm.size\n" + body)
    lab_folder = tmp_path / "01_mistakes"
    lab_folder.mkdir()
    (lab_folder / "check.py").write_text(
        "import numpy as np\n"
        "from farandole_tools.lab import Check, Lab\n"
        f"MISTAKES = {list(MISTAKES)!r}\n"
        "def making(mistake):\n"
        "    def check(student, comm):\n"
        "        with comm.case(mistake):\n"
        "            student.ring_all_reduce_mean(np.zeros(2), comm)\n"
        "    return check\n"
        "LAB = Lab('Mistakes', 'submission.py', tuple(\n"
        "    Check(f'mistake {number}', 1, (2,), making(mistake)) for number, mistake in enumerate(MISTAKES)))\n"
    )
    results = grade(labs.load(lab_folder), path, limit_s=LIMIT_S).results
    for (mistake, message), result in zip(MISTAKES.items(), results, strict=True):
        assert not result.passed
        assert result.message.startswith(f"on 2 ranks: rank 0: {mistake}: {message}")


@pytest.mark.parametrize(
    "body",
    ["    import os\n    os._exit(0)\n", "    import ctypes\n    ctypes.string_at(0)\n"],
    ids=["os-exit", "crash"],
)
def test_a_function_that_ends_its_process(tmp_path: Path, body: str) -> None:
    assert "ranks 0 and 1 ended in the middle" in judged(tmp_path, FUNCTION + body).message


def test_a_loop_in_compiled_code_is_ended_too(tmp_path: Path) -> None:
    """Such a loop lets no other thread of the process run."""
    result = judged(
        tmp_path, "import itertools\n" + FUNCTION + "    sum(itertools.count())\n", ranks=1, limit_s=SHORT_S
    )
    assert "still running after 2 s, inside compiled code" in result.message


def test_a_rank_that_raises_is_the_reason_not_those_that_wait_for_it(tmp_path: Path) -> None:
    body = f"    if comm.rank == 1:\n        raise KeyError('lost')\n    comm.receive(gradient, {AROUND})\n"
    assert "rank 1: KeyError: 'lost', at line 3" in judged(tmp_path, FUNCTION + body).message


def test_a_rank_that_loops_is_the_reason_not_those_that_wait_for_it(tmp_path: Path) -> None:
    body = f"    while comm.rank == 1:\n        pass\n    comm.receive(gradient, {AROUND})\n"
    message = judged(tmp_path, FUNCTION + body, limit_s=SHORT_S).message
    assert "rank 1 is still running after 2 s, at line 2" in message


def test_a_deadlock_is_found_long_before_the_time_limit_and_told_with_its_case(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(RIGHT.replace(BEGINNING, f"{BEGINNING}    if len(gradient) == 1: comm.send(gradient, {AROUND})\n"))
    result = grade(on(labs.find("2"), 3, checks=("any length",)), path, limit_s=1000).results[0]
    assert result.message == "on 3 ranks: length 1: deadlock: ranks 0, 1 and 2 all wait in send: no rank receives"


def test_a_message_that_never_comes_is_a_deadlock(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(RIGHT + "    if comm.rank == 0:\n        comm.receive(gradient, 2)\n")
    result = grade(on(labs.find("2"), 3, checks=("bytes",)), path, limit_s=LIMIT_S).results[0]
    told = "deadlock: rank 0 waits in receive (from rank 2); ranks 1 and 2 have returned"
    assert result.message == f"on 3 ranks: {told}"


def test_after_a_check_that_dies_the_others_still_run(tmp_path: Path) -> None:
    """A submission that dies on the shortest vectors passes the checks with longer ones."""
    path = tmp_path / "submission.py"
    dies = "    import os\n    if len(gradient) == 1: os._exit(0)\n"
    path.write_text(RIGHT.replace(BEGINNING, BEGINNING + dies))
    results = by_name(grade(on(labs.find("2"), 2, checks=("mean", "any length", "bytes")), path, limit_s=LIMIT_S))
    assert [result.passed for result in results.values()] == [True, False, True]
    assert "ended in the middle" in results["any length"].message


def test_what_was_printed_where_it_failed_is_kept_whole_or_cut(tmp_path: Path) -> None:
    garbage = "    sys.stdout.buffer.write(bytes(range(256)))\n    print('\\ud800')\n    print('last words')\n"
    result = judged(tmp_path, "import sys\n" + FUNCTION + garbage + "    raise ValueError\n")
    assert "rank 0 | last words" in result.printed
    assert "rank 1 | last words" in result.printed
    endless = judged(tmp_path, FUNCTION + "    while True:\n        print('x' * 10_000)\n", ranks=1, limit_s=SHORT_S)
    assert 90_000 < len(endless.printed) < 110_000


def test_threads_and_processes_of_a_submission_are_ended(tmp_path: Path) -> None:
    """The fixture around every test asserts that nothing is left."""
    text = (
        "import atexit, subprocess, sys, threading, time\n"
        "atexit.register(time.sleep, 1000)\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
    )
    assert "ValueError" in judged(tmp_path, text + FUNCTION + "    raise ValueError\n").message


def test_when_the_grader_is_killed_its_ranks_end(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text("while True: pass\n")
    command = [sys.executable, "-m", "farandole", "lab", "check", "2", "loop.py", "--time-limit", "1000"]
    grader = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL
    )
    try:
        ranks_of = f"{socket.gethostname()}:{grader.pid}"
        assert eventually(lambda: bool(processes.find(rank.LAUNCHER, ranks_of)))
        (number, *_) = {each.environ()[rank.LAUNCH] for each in processes.find(rank.LAUNCHER, ranks_of)}
        assert eventually(lambda: any(is_guest(each) for each in processes.find(rank.LAUNCH, number)))
    finally:
        grader.kill()
        grader.wait()
    assert eventually(lambda: not processes.find(rank.LAUNCH, number))


def is_guest(process: psutil.Process) -> bool:
    """Return whether a submission runs in it."""
    return process.environ().get("USER") == "submission"


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def test_a_launch_does_not_import_torch(tmp_path: Path) -> None:
    """It would make each launch slower by seconds."""
    body = "    import sys\n    raise ValueError(sorted(sys.modules.keys() & {'numpy', 'torch'}))\n"
    assert "ValueError: ['numpy']" in judged(tmp_path, FUNCTION + body, ranks=1).message


def test_no_folder_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    submission = tmp_path / "submission"
    submission.mkdir()
    judged(submission, FUNCTION + "    open('notes.txt', 'w').write('x')\n    raise ValueError\n")
    assert list(scratch.iterdir()) == []


def test_ranks_that_do_not_start_are_an_error_and_not_a_grade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_ranks(*arguments: object, **options: object) -> None:
        raise LaunchError("mpirun ended with 1")

    monkeypatch.setattr(launch, "run_ranks", no_ranks)
    with pytest.raises(LaunchError, match=r"no fault of submission\.py: mpirun ended with 1"):
        judged(tmp_path, FUNCTION)
