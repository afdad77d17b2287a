"""The program in the sandbox: imports the submission, and serves the calls of the checks.

    guest.main(CONNECTION, QUESTIONS)

are the numbers of two sockets. On the second one a thread answers at which line of the submission the program is, which
the checks ask when it takes too long.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from socket import socket
from typing import Any

from farandole_tools.lab import learner
from farandole_tools.lab.contained.wire import Ended, Malformed, Offer, Peer, builtin_error

EVERYTHING = Offer(everything=True)


class ByValue(Mapping[str, type]):
    """The classes whose objects are sent by value; their modules are imported when the first one is met."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def __getitem__(self, name: str) -> type:
        if name not in self.names:
            raise KeyError(name)
        module, _, kind = name.partition(":")
        found: type = getattr(import_module(module), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names


class Guest(Peer):
    """The submission's side of the connection."""

    def __init__(self, connection: socket) -> None:
        self.path = Path()
        self.notes = ""  # what the next call is to be watched for
        self.peak: list[int] = [0]
        self.warned: list[str] = []
        self.lists: list[list[Any]] = []
        super().__init__(
            connection,
            offer=lambda thing: EVERYTHING,
            values={},
            explain=self._explained,
            raised=self._raised,
            lives_by_call=True,
        )

    def do_load(self, path: str, values: list[str], harness: str) -> Any:
        """Import the submission."""
        self.path, self.values.by_value = Path(path), ByValue(frozenset(values))
        return learner.load(self.path, harness)

    def do_peak(self, begins: bool) -> int:
        """Note how much memory the next call takes at most, beside its arguments; or return what was noted."""
        self.notes = "peak" if begins else ""
        return self.peak[-1]

    def do_warned(self, begins: bool) -> list[str]:
        """Note what the next call is warned of; or return what was noted."""
        self.notes = "warned" if begins else ""
        if begins:
            self.warned = []
        return self.warned

    def do_lists(self, begins: bool) -> list[list[Any]]:
        """Note the lists among the next call's arguments; or return them, as the call has left them."""
        self.notes = "lists" if begins else ""
        if begins:
            self.lists = []
        return self.lists

    def do_method(self, number: int, name: str, args: Any, kwargs: Any) -> Any:
        if self.notes == "lists":
            self.notes, self.lists = "", [each for each in args if isinstance(each, list)]
        if not self.notes:
            return super().do_method(number, name, args, kwargs)
        watched = learner.peak_memory(self.peak) if self.notes == "peak" else learner.kept_warnings(self.warned)
        self.notes = ""
        with watched:
            return super().do_method(number, name, args, kwargs)

    def _explained(self, error: BaseException) -> tuple[str, str]:
        kind = "not implemented" if isinstance(error, NotImplementedError) else "error"
        return kind, learner.explain(error, self.path)

    def _raised(self, kind: str, text: str, name: str, own: BaseException | None) -> BaseException:
        if own is None and kind == "explained":
            return learner.explained("error", text, name)
        return own or (builtin_error(name) or type(name, (Exception,), {}))(text)


def answer_questions(questions: socket, guest: Guest, worker: int) -> None:
    """Send, for each byte that comes, the number of the submission's line at which the program is; 0 for none."""
    while questions.recv(1):
        frame = sys._current_frames().get(worker)
        while frame is not None and frame.f_code.co_filename != str(guest.path):
            frame = frame.f_back
        questions.sendall((frame.f_lineno if frame else 0).to_bytes(4, "little"))


def main(connection: str, questions: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    guest = Guest(socket(fileno=int(connection)))
    arguments: Any = (socket(fileno=int(questions)), guest, threading.get_ident())
    threading.Thread(target=answer_questions, args=arguments, daemon=True).start()
    try:
        guest.serve()
    except (Ended, Malformed):
        os._exit(0)
