"""Restarts: how often, after which pause, and when not; by function and by command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from farandole import cli, launching
from farandole.errors import FlawedLaunch, LaunchError, UsageError
from farandole.launching import supervised_launch
from farandole.recovery.supervisor import LONGEST_PAUSE_S, supervise
from farandole.runtime import command_line, processes
from farandole.runtime.record import Run
from tests.children import heeds_signals

SUPERVISE = [sys.executable, "-m", "farandole", "supervise"]
IMPATIENT = """
import sys
from farandole import cli
cli.supervise.GRACE_S = cli.supervise.FOLLOWS_S = 0.2
cli.main(sys.argv[1:])
"""
# Imitates a launch: it begins, and ends as a launch does after each signal.
LAUNCH = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
try:
    print("begun", file=sys.stderr, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(130)
"""
OF_A_LAUNCH = f"""
import sys
from farandole import cli
cli.supervise.FOLLOWS_S = 0.2
cli.supervise.OURS = [sys.executable, "-c", {LAUNCH!r}]
cli.main(sys.argv[1:])
"""
PATIENCE_S = 60
MARK = "FARANDOLE_TEST_SUPERVISED"


class Training:
    """Fails with these exit codes, one start after another, and then succeeds."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.starts = 0

    def __call__(self) -> str:
        self.starts += 1
        if self.codes:
            code = self.codes.pop(0)
            raise LaunchError(f"rank 1 was lost ({code})\nin these words", code)
        return "trained"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the durations of its sleeps."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


def test_what_ends_well_is_not_started_again(pauses: list[float]) -> None:
    training, said = Training(), list[str]()
    assert supervise(training, announce=said.append) == "trained"
    assert (training.starts, pauses, said) == (1, [], [])


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_what_fails_is_started_again_until_it_ends_well(failures: int, pauses: list[float]) -> None:
    training, said = Training(*[1] * failures), list[str]()
    assert supervise(training, restarts=3, announce=said.append) == "trained"
    assert training.starts == failures + 1
    assert len(said) == failures
    assert said[0] == "rank 1 was lost (1); restart 1 of at most 3, in 1 s"


@pytest.mark.parametrize("restarts", [0, 1, 4])
def test_it_is_started_again_so_many_times_and_no_more(restarts: int, pauses: list[float]) -> None:
    training = Training(*range(101, 120))
    with pytest.raises(LaunchError) as last:
        supervise(training, restarts=restarts, announce=lambda _: None)
    assert training.starts == restarts + 1
    assert last.value.returncode == 101 + restarts, "the last start's"
    assert len(pauses) == restarts


def test_pauses_double_up_to_a_minute_and_never_end(pauses: list[float]) -> None:
    training = Training(*[1] * 2000)
    supervise(training, restarts=2000, backoff_s=0.5, announce=lambda _: None)
    assert pauses[:9] == [0.5, 1, 2, 4, 8, 16, 32, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert set(pauses[7:]) == {LONGEST_PAUSE_S}
    assert len(pauses) == 2000


def test_no_pause_is_longer_than_a_minute_though_it_be_asked_for(pauses: list[float]) -> None:
    supervise(Training(1, 1), backoff_s=1000.0, announce=lambda _: None)
    assert pauses == [LONGEST_PAUSE_S] * 2


@pytest.mark.parametrize("code", [2, 130, 75])
def test_bad_input_an_interruption_and_a_stop_as_asked_are_not_for_another_start(
    code: int, pauses: list[float]
) -> None:
    training = Training(1, code, 1)
    with pytest.raises(LaunchError) as last:
        supervise(training, restarts=5, announce=lambda _: None)
    assert (training.starts, last.value.returncode, len(pauses)) == (2, code, 1)


@pytest.mark.parametrize("error", [UsageError("--batch 0"), KeyboardInterrupt(), ValueError("a bug")])
def test_what_is_no_failed_launch_goes_through(error: BaseException, pauses: list[float]) -> None:
    def start() -> None:
        raise error

    with pytest.raises(type(error)):
        supervise(start)
    assert pauses == []


@pytest.mark.parametrize("out", [None, Path("mine")])
def test_every_start_gets_the_same_folder_and_options(
    out: Path | None, pauses: list[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    starts: list[tuple[Any, ...]] = []

    def launch(scenario: str, ranks: int, **options: Any) -> Run:
        starts.append((scenario, ranks, *sorted(options.items())))
        options["out"].mkdir(parents=True, exist_ok=True)
        if len(starts) < 3:
            raise LaunchError("rank 1 was lost")
        return Run(options["out"])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launching, "launch", launch)
    run = supervised_launch("restart", 2, timeout_s=5.0, out=out, steps=9, announce=lambda _: None)
    assert len(starts) == 3
    assert set(starts) == {("restart", 2, ("out", run.folder), ("steps", 9), ("timeout_s", 5.0))}
    assert run.folder == out if out else run.folder.name.startswith("restart-")


@pytest.mark.parametrize("out", [None, Path("mine")])
def test_what_cannot_go_on_from_where_it_was_is_not_even_started(
    out: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "launch", lambda *_, **__: pytest.fail("it was started"))
    with pytest.raises(UsageError, match="sync_sgd cannot go on from where it was; restart can"):
        supervised_launch("sync_sgd", 2, out=out)


def test_a_run_gets_a_folder_that_every_start_finds_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []

    def run(words: list[str]) -> None:
        started.append(words)
        raise LaunchError("the command ended with 1", 1)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.supervise, "_run", run)
    for words in (["farandole", "run"], ["run"]):
        started.clear()
        with pytest.raises(LaunchError):
            cli.supervise.supervise(*words, "restart", "-n", "2", restarts=2, backoff=0.001)
        assert len(started) == 3
        assert started[0] == started[1] == started[2]
        assert started[0][:-1] == [*cli.supervise.OURS, "run", "restart", "-n", "2", "--out"]
        assert Path(started[0][-1]).parent == Path("runs")
    assert len(capsys.readouterr().err.splitlines()) == 2 * 2


def test_a_training_that_has_diverged_is_not_started_again(pauses: list[float]) -> None:
    starts: list[int] = []

    def diverge() -> None:
        starts.append(1)
        raise FlawedLaunch("it diverged", 1)

    with pytest.raises(FlawedLaunch):
        supervise(diverge, restarts=5, announce=pytest.fail)
    assert (len(starts), pauses) == (1, [])


@pytest.mark.parametrize("given", [["--out", "mine"], ["--out=mine"]])
@pytest.mark.parametrize(("writes", "starts"), [("summary.json", 1), ("metrics.jsonl", 3)])
def test_a_command_that_has_written_its_summary_is_not_run_again(
    given: list[str], writes: str, starts: int, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "summary.json").touch()
    os.utime(tmp_path / "mine" / "summary.json", (1, 1))  # an earlier run's
    shell = ["sh", "-c", f"echo started; echo > mine/{writes}; exit 1", *given]
    done = command("--restarts", "2", "--backoff", "0.01", "--", *shell, folder=tmp_path)
    assert (done.returncode, done.stdout.count("started")) == (1, starts), done.stderr


@pytest.mark.parametrize("own", [["--out", "mine"], ["--out=mine"]])
def test_a_run_keeps_the_folder_it_was_given(own: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(cli.supervise, "_run", started.append)
    cli.supervise.supervise("run", "restart", *own)
    assert started == [[*cli.supervise.OURS, "run", "restart", *own]]


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SUPERVISE, *words], capture_output=True, text=True, timeout=PATIENCE_S, cwd=folder)


@pytest.mark.parametrize(
    ("script", "code", "starts"),
    [
        ("exit 3", 3, 3),
        ("kill -KILL $$", 128 + 9, 3),
        ("exit 75", 75, 1),
        ("exit 0", 0, 1),
        ("test $(wc -l < starts) -eq 2", 0, 2),
    ],
)
def test_a_command_is_started_again_where_that_may_help(script: str, code: int, starts: int, tmp_path: Path) -> None:
    script = f"echo begun | tee -a starts; {script}"
    done = command("--restarts", "2", "--backoff", "0.01", "--", "sh", "-c", script, "--out", "x", folder=tmp_path)
    assert done.returncode == code
    assert done.stdout == "begun\n" * starts, "its output is the command's"
    lines = done.stderr.splitlines()
    assert len([line for line in lines if line.startswith("supervise: the command ended ")]) == starts - 1
    assert len(lines) == starts - 1 + (code != 0)
    if code:
        assert lines[-1].startswith("farandole: the command ended ")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "supervise what? Write, for instance: farandole supervise -- run restart -n 4"),
        (["--"], "supervise what? Write, for instance: farandole supervise -- run restart -n 4"),
        (["--", "run"], "which scenario?"),
        (["--", "run", "-n", "4"], "which scenario?"),
        (["--", "run", "moonshot"], "there is no scenario 'moonshot': choose from "),
        (["--", "run", "sync_sgd", "-n", "2"], "sync_sgd cannot go on from where it was; restart can"),
        (["--", "run", "sync_sgd", "--out", "x"], "sync_sgd cannot go on from where it was; restart can"),
        (["--", "sh", "-c", "exit 3"], "give the command an --out: every start has to find the same"),
        (["--", "no-such-program", "--out", "x"], "no-such-program cannot be run (No such file"),
        (["--restarts", "-1", "--", "run", "restart"], 'Invalid value "-1" for --restarts. Must be >= 0'),
        (["--backoff", "0", "--", "run", "restart"], "Invalid value"),
        (["--restart", "1", "--", "sh", "-c", "exit 3", "--out", "x"], "--restart is no option"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    words: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        command_line.run_app(cli.app, ["supervise", *words])
    assert str(refused.value).startswith(complaint)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir()), "nothing has been begun"


def test_the_command_line_says_so_and_ends_with_2(tmp_path: Path) -> None:
    done = command("--", "run", "sync_sgd", "-n", "2", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "farandole: sync_sgd cannot go on from where it was; restart can\n"


def signalled(signal_number: int, whom: str, start: list[str], command: str, folder: Path) -> tuple[int, list[str]]:
    """Return exit code and last lines of a supervised command that gets a signal after its first line; nothing is left.

    Args:
        whom: "all", as the terminal does it, or "supervise" alone.
        command: a shell's, or "run …" of the program itself.
    """
    mark = uuid.uuid4().hex
    words = command.split() if command.startswith("run ") else ["sh", "-c", command]
    process = subprocess.Popen(
        [*start, "--", *words, "--out", "x"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {MARK: mark},
        start_new_session=True,
        preexec_fn=heeds_signals,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline()
        if whom == "all":
            os.killpg(process.pid, signal_number)
        else:
            process.send_signal(signal_number)
        _, said = process.communicate(timeout=PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while processes.find(MARK, mark) and time.monotonic() < deadline:
            time.sleep(0.02)
        left = [each.cmdline() for each in processes.find(MARK, mark)]
    finally:
        processes.end(processes.find(MARK, mark))
    assert left == []
    return process.returncode, said.splitlines()


INTERRUPTED = "farandole: interrupted; every rank has been ended"


@pytest.mark.parametrize(
    ("backoff", "script"),
    [("0.01", "echo begun >&2; exec sleep 60"), ("60", "exit 1")],
    ids=["while it runs", "between two starts"],
)
def test_ctrl_c_ends_it_for_good(backoff: str, script: str, tmp_path: Path) -> None:
    start = [*SUPERVISE, "--backoff", backoff]
    assert signalled(signal.SIGINT, "all", start, script, tmp_path) == (130, [INTERRUPTED])


def test_ctrl_c_ends_even_what_does_not_listen(tmp_path: Path) -> None:
    start = [sys.executable, "-c", IMPATIENT, "supervise"]
    script = "trap '' INT TERM; echo begun >&2; exec sleep 60"
    assert signalled(signal.SIGINT, "all", start, script, tmp_path) == (130, [INTERRUPTED])


def test_when_it_is_ended_itself_the_command_ends_too(tmp_path: Path) -> None:
    script = "echo begun >&2; exec sleep 60"
    code, said = signalled(signal.SIGTERM, "supervise", SUPERVISE, script, tmp_path)
    assert (code, said) == (128 + signal.SIGTERM, ["farandole: ended by SIGTERM; every rank has been ended"])


def test_ctrl_c_that_reached_it_alone_ends_the_command(tmp_path: Path) -> None:
    start = [sys.executable, "-c", IMPATIENT, "supervise"]
    script = "echo begun >&2; exec sleep 60"
    assert signalled(signal.SIGINT, "supervise", start, script, tmp_path) == (130, [INTERRUPTED])


@pytest.mark.parametrize(("signal_number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_launch_ends_by_the_signal_that_reached_supervise_alone(
    signal_number: int, code: int, tmp_path: Path
) -> None:
    start = [sys.executable, "-c", OF_A_LAUNCH, "supervise"]
    ended = signalled(signal_number, "supervise", start, "run restart", tmp_path)
    assert ended == (code, []), "the launch itself says how it has ended"
