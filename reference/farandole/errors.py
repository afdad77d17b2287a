"""The errors a user can meet, apart from bugs."""

from __future__ import annotations


class PlainError(Exception):
    """An error whose message says it all: a notebook shows that, and no frames of ours."""

    def _render_traceback_(self) -> list[str]:  # IPython asks an exception for this
        return str(self).splitlines()


class UsageError(PlainError):
    """Something the user gave does not fit.

    The message is one line: what is wrong, and what would be right. The command line prints it
    and exits with 2; nothing has been changed or lost by then.
    """


class FlawedRun(PlainError):
    """A training ended and its summary was printed, but it diverged or a part of its record could not be written."""


class LaunchError(PlainError):
    """A launch ended without finishing its work.

    Attributes:
        message: what happened, which rank and at which step, its traceback where there is one.
        returncode: the launch's exit status (124: the time-out).
        output: what each rank had printed, in rank order.
    """

    def __init__(self, message: str, returncode: int = 1, output: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.returncode = returncode
        self.output = output


class LaunchInterrupted(KeyboardInterrupt):
    """Ctrl-C has ended a launch and all of its ranks.

    Attributes:
        output: each rank's output, in rank order.
    """

    def __init__(self, output: str = "") -> None:
        super().__init__("every rank has been ended")
        self.output = output

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


class FlawedLaunch(LaunchError):
    """A launch whose training ended with a `FlawedRun`: it diverged, or its record is incomplete."""
