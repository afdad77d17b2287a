"""The %%mpi cell: its output when it works, and above all when it does not."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from farandole.errors import LaunchError, LaunchInterrupted, UsageError
from farandole.runtime import kept, magic
from farandole.runtime.launcher import Output
from farandole.runtime.magic import Line, MpiMagics, parse, run_cell


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", Line(4, 60.0)),
        ("-n 2", Line(2, 60.0)),
        ("-n2 --timeout 5", Line(2, 5.0)),
        ("--timeout=0.5 -n 3", Line(3, 0.5)),
        ("-n 3  # three are enough", Line(3, 60.0)),
        ("-n 2 --keep loss", Line(2, 60.0, ("loss",))),
        ("--keep=loss,steps", Line(4, 60.0, ("loss", "steps"))),
    ],
)
def test_arguments(line: str, expected: Line) -> None:
    assert parse(line) == expected


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("-n", "argument -n: expected one argument"),
        ("-n two", "invalid int value: 'two'"),
        ("-n 0", "0 ranks: there must be at least 1"),
        ("-n -3", "-3 ranks: there must be at least 1"),
        ("--timeout 0", "a time-out of 0 s: it must be above 0"),
        ("--timeout nan", "a time-out of nan s: it must be above 0"),
        ("--time 5", "unrecognized arguments: --time 5"),
        ("-n 4 python x.py", "unrecognized arguments: python x.py"),
        ("-n '4", "No closing quotation"),
        ("--keep loss,", "--keep : this is not the name of a variable"),
        ("--keep loss steps", "unrecognized arguments: steps"),
        ("--keep 2x", "--keep 2x: this is not the name of a variable"),
    ],
)
def test_wrong_arguments_are_named_in_one_line(line: str, what: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(line)
    message = str(refused.value)
    assert message.startswith("%%mpi: ")
    assert what in message
    assert message.endswith("; write it as %%mpi -n 4, or %%mpi -n 4 --timeout 60 --keep loss,steps")
    assert "\n" not in message


def test_output_comes_in_rank_order_and_on_its_own_stream(capsys: pytest.CaptureFixture[str]) -> None:
    run_cell(
        "import sys, time\n"
        "from mpi4py import MPI\n"
        "rank = MPI.COMM_WORLD.rank\n"
        "time.sleep(0.1 * (2 - rank))\n"  # the last rank is the first to print
        "print('out', rank)\n"
        "print('error', rank, file=sys.stderr)\n",
        ranks=3,
        timeout_s=60,
    )
    shown = capsys.readouterr()
    assert shown.out == "out 0\nout 1\nout 2\n"
    assert shown.err == "error 0\nerror 1\nerror 2\n"


def test_a_failing_rank_fails_the_cell_and_its_traceback_is_all_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    cell = (
        "from mpi4py import MPI\n"
        "rank = MPI.COMM_WORLD.rank\n"
        "print('rank', rank, 'is here')\n"
        "if rank == 1:\n"
        "    {}['missing']\n"
        "MPI.COMM_WORLD.Barrier()\n"
    )
    with pytest.raises(LaunchError) as failed:
        run_cell(cell, ranks=2, timeout_s=60)
    lines = failed.value._render_traceback_()
    assert lines[:4] == [
        "rank 1 raised KeyError: 'missing'",
        "Traceback (most recent call last):",
        '  File "cell", line 6, in <module>',  # %%mpi is line 1
        "    {}['missing']",
    ]
    assert lines[-1] == "KeyError: 'missing'"
    assert "rank 1 is here\n" in capsys.readouterr().out


def test_the_time_out_ends_the_cell() -> None:
    start = time.monotonic()
    with pytest.raises(LaunchError, match="cell was ended after 2 s") as failed:
        run_cell("import time\ntime.sleep(600)", ranks=1, timeout_s=2)
    assert failed.value.returncode == 124
    assert time.monotonic() - start < 600, "which it would have slept"


def test_what_was_printed_before_an_interrupt_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    cell = (
        "import os, signal, time\n"
        "from mpi4py import MPI\n"
        "from farandole.runtime import rank\n"
        "print('before')\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "if MPI.COMM_WORLD.rank == 0:\n"
        "    os.kill(rank.launcher_pid(), signal.SIGINT)\n"
        "time.sleep(600)\n"
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as interrupted:
            run_cell(cell, ranks=2, timeout_s=60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert isinstance(interrupted.value, LaunchInterrupted)
    assert interrupted.value._render_traceback_() == ["KeyboardInterrupt: every rank has been ended"]
    assert capsys.readouterr().out == "before\nbefore\n"


def test_what_is_not_python_is_not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(magic, "run_ranks", lambda *_, **__: pytest.fail("launched"))
    with pytest.raises(LaunchError) as failed:
        run_cell("x = 1\nfor x in\n", ranks=2, timeout_s=60)
    assert failed.value._render_traceback_()[0] == '  File "cell", line 3'
    assert failed.value._render_traceback_()[-1] == "SyntaxError: invalid syntax"


def test_the_temporary_file_is_called_cell_wherever_it_appears(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warns(program: list[str], ranks: int, **_: object) -> Output:
        return Output([f"{program[0]}\n"] * ranks, [f"{program[0]}:2: UserWarning\n"] * ranks)

    def fails(program: list[str], ranks: int, **_: object) -> Output:
        raise LaunchError(f"rank 0 raised in {program[0]}", 1, f"{program[0]} printed")

    monkeypatch.setattr(magic, "run_ranks", warns)
    run_cell("pass", ranks=2, timeout_s=60)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("cell\ncell\n", "cell:2: UserWarning\ncell:2: UserWarning\n")

    monkeypatch.setattr(magic, "run_ranks", fails)
    with pytest.raises(LaunchError) as failed:
        run_cell("pass", ranks=1, timeout_s=60)
    assert (failed.value.message, failed.value.output) == ("rank 0 raised in cell", "cell printed")
    assert capsys.readouterr().out == "cell printed"


def test_wrong_arguments_fail_the_cell_too() -> None:
    """Not IPython's own UsageError: IPython only prints it, and nbval would continue as without an error."""
    with pytest.raises(UsageError, match="%%mpi: 0 ranks") as failed:
        MpiMagics(None).mpi("-n 0", "pass")
    assert len(failed.value._render_traceback_()) == 1


def test_load_ext_brings_the_magic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = InteractiveShell(ipython_dir=str(tmp_path), config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "farandole")
    result = shell.run_cell("%%mpi -n 2\nprint('hello')")
    assert result.success
    assert capsys.readouterr().out == "hello\nhello\n"

    cell = "from mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\nname = 'abc'[rank]"
    assert shell.run_cell(f"%%mpi -n 3 --keep rank,name\n{cell}").success
    assert (shell.user_ns["rank"], shell.user_ns["name"]) == ([0, 1, 2], ["a", "b", "c"])
    assert capsys.readouterr().out == ""

    assert not shell.run_cell("%%mpi -n 1\nraise ValueError('no')").success
    shown = capsys.readouterr()
    assert "rank 0 raised ValueError: no" in shown.out
    assert "magic.py" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("cell", "with_torch"),
    [
        ("from mpi4py import MPI\nimport os, numpy as np\nprint('torch')", False),
        ("from farandole_tools.lab.communicator import LabCommunicator", False),
        ("import mine\nmine.train()", True),
        ("def train():\n    from farandole.runtime.world import World", True),
        ("import torch.nn as nn", True),
    ],
)
def test_ranks_share_torch_where_a_cell_imports_what_may_need_it(
    cell: str, with_torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {}

    def run_ranks(program: list[str], ranks: int, **options: object) -> Output:
        given.update(options)
        return Output([], [])

    monkeypatch.setattr(magic, "run_ranks", run_ranks)
    run_cell(cell, 1, 10)
    assert given["with_torch"] is with_torch


def test_a_rank_without_which_the_others_continue_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_ranks(program: list[str], ranks: int, **options: object) -> Output:
        kept.write(str(Path(program[0]).parent), ["loss"], {"loss": 0.5})
        return Output([""] * ranks, [""] * ranks, frozenset({1}))

    monkeypatch.setattr(magic, "run_ranks", run_ranks)
    assert run_cell("pass", 2, 60, keep=["loss"]) == {"loss": [0.5, None]}


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("other = 1", "%%mpi --keep mine: rank 0 has no variable mine at its end"),
        ("mine = lambda: 1", "%%mpi --keep mine: its value cannot be kept: "),
        ("import sys\nmine = 1\nsys.exit()", "%%mpi --keep: rank 0 ended before the end of the cell"),
        ("class Mine: pass\nmine = Mine()", "%%mpi --keep mine: its value cannot be read here: "),
    ],
)
def test_what_cannot_be_kept_is_named_in_one_line(cell: str, says: str) -> None:
    with pytest.raises((UsageError, LaunchError)) as refused:
        run_cell(cell, 1, 60, keep=["mine"])
    assert str(refused.value).startswith(says)
    assert "\n" not in str(refused.value)
