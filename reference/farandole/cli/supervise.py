"""``farandole supervise -- COMMAND``: start a training again from its last checkpoint until it is done."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from farandole.errors import LaunchError, UsageError
from farandole.runtime.numbers import NotNegative, Positive

OURS = [sys.executable, "-P", "-m", "farandole"]
USAGE_ERROR = 2  # exit status of a command whose options were refused
GRACE_S = 15.0  # time for the command to end its ranks after a signal
FOLLOWS_S = 3.0  # time for the command to end after the terminal's own SIGINT


def supervise(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    restarts: NotNegative = 3,
    backoff: Positive = 1.0,
) -> None:
    """Run a command, and run it again when it fails, so that it continues from its last checkpoint.

    COMMAND is "run SCENARIO …" of this program, or any other, as "mpirun … python -m farandole.scenarios.restart …";
    write -- before it. Every start must be given the same --out: for "run" a new one is added if there is none.

    Args:
        command: what to run.
        restarts: largest number of restarts.
        backoff: seconds before the first restart; each following pause is twice as long, up to a minute.
    """
    from farandole import launching
    from farandole.recovery import supervisor
    from farandole.runtime import folders

    words = list(command)
    if words[:1] == ["farandole"]:
        del words[0]
    if not words:
        raise UsageError("supervise what? Write, for instance: farandole supervise -- run restart -n 4")
    if words[0].startswith("-"):
        raise UsageError(f"{words[0]} is no option of supervise: give --restarts or --backoff, then -- and the command")
    has_out = any(word.split("=")[0] == "--out" for word in words)
    with ExitStack() as until_the_end:
        if words[0] == "run":
            if len(words) < 2 or words[1].startswith("-"):
                raise UsageError("which scenario? Write its name after run, for instance: run restart -n 4")
            launching.check_resumes(words[1])
            new = [] if has_out else ["--out", str(until_the_end.enter_context(folders.reserved(words[1])))]
            words = [*OURS, *words, *new]
        elif not has_out:
            raise UsageError("give the command an --out: every start has to find the same checkpoints")
        supervisor.supervise(
            lambda: _run(words),
            restarts=restarts,
            backoff_s=backoff,
            announce=lambda line: print(f"supervise: {line}", file=sys.stderr, flush=True),
        )


def _out(words: list[str]) -> Path:
    """Return the folder that the command is given for its record."""
    place = next(place for place, word in enumerate(words) if word.split("=")[0] == "--out")
    given = words[place].partition("=")[2] or "".join(words[place + 1 : place + 2])
    return Path(given)


def _written(file: Path) -> tuple[int, int] | None:
    """Return the inode and the time of modification (ns), which change when the file is written; None: no such file.

    To compare the time with a clock would not do: a file system's may be some milliseconds late.
    """
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _run(words: list[str]) -> None:
    """Run it to its end; its output is this program's.

    Raises:
        LaunchError: it failed.
        SystemExit: another start would not help, and the command has said why.
        UsageError: there is no such program.
    """
    from farandole.runtime import processes, signals

    is_ours, summary = words[: len(OURS)] == OURS, _out(words) / "summary.json"
    before = _written(summary)
    with signals.held() as held:
        try:
            process = subprocess.Popen(words, preexec_fn=processes.end_with_parent)
        except OSError as error:
            raise UsageError(f"{words[0]} cannot be run ({error.strerror})") from error
        try:
            with held.delivered():
                code = process.wait()
        except BaseException as asked:
            _end(process, interrupted=isinstance(asked, KeyboardInterrupt))
            if is_ours and process.returncode > 0:
                raise SystemExit(process.returncode) from None  # the command has printed the reason
            raise
    if code > 0 and _written(summary) not in {None, before}:
        # The training is complete: it diverged, or a file could not be written.
        raise SystemExit(code)
    if is_ours and code == USAGE_ERROR:
        raise SystemExit(code)
    if code:
        how = f"with {code}" if code > 0 else f"by {signal.Signals(-code).name}"
        raise LaunchError(f"the command ended {how}", code if code > 0 else 128 - code)


def _end(process: subprocess.Popen[bytes], interrupted: bool) -> None:
    """End the command by the signal that ended this process, and kill it if it does not end.

    A terminal sends its SIGINT to the command as well. So the command is sent another only if it does not end.
    """
    if interrupted:
        with suppress(subprocess.TimeoutExpired):
            process.wait(FOLLOWS_S)
    for number in (signal.SIGINT, signal.SIGTERM) if interrupted else (signal.SIGTERM,):
        if process.poll() is None:
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
    process.kill()
    process.wait()
