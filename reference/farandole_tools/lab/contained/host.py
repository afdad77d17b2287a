"""The checks' side: start a guest, offer it what a submission may use, and judge what it returns."""

from __future__ import annotations

import linecache
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Literal, NamedTuple

from farandole.runtime.failure import PeerLost
from farandole_tools.lab.contained import kit
from farandole_tools.lab.contained.sandbox import Mode, Sandbox
from farandole_tools.lab.contained.wire import Ended, Malformed, Offer, Peer, Remote
from farandole_tools.lab.labs import Lab, Wrong
from farandole_tools.lab.learner import Explained, explained

MODULE = "farandole_tools.lab."
# What a submission may use of the objects that it is given. All else stays out of its reach, for instance
# `LabCommunicator.mpi` and `everybodys`, which are not counted.
OFFERED = {
    f"{MODULE}communicator:LabCommunicator": Offer(
        ("rank", "size"), ("bytes_sent", "messages_sent", "current_case"), ("send", "receive", "exchange")
    ),
    f"{MODULE}collective_calls:CollectiveCommunicator": Offer(("rank", "size"), (), ("all_reduce", "broadcast")),
    f"{MODULE}loop.watch:Watch": Offer((), (), ("before_step", "after_step", "interrupts_save", "half_saved")),
    f"{MODULE}background:BackgroundCommunicator": Offer(("rank", "size"), (), ("begin",)),
    f"{MODULE}background:Reduction": Offer((), ("parameters",), ("wait",)),
    f"{MODULE}instrumented_network:Network": Offer(
        (), ("lengths", "places", "values", "gradients", "route"), ("backward", "update")
    ),
    f"{MODULE}half_network:HalfNetwork": Offer((), ("unit",), ("backward",)),
    f"{MODULE}summing:SummingCommunicator": Offer(("rank", "size"), (), ("all_reduce",)),
    "farandole.data_parallel.loss_scale:LossScale": Offer((), ("value",), ("observe",)),
    f"{MODULE}disk:Disk": Offer((), (), ("write", "sync", "rename", "remove", "sync_folder", "read", "names", "files")),
}
FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, partial)
VALUES = {  # modules whose dataclasses are sent by value, if the lab gives them to the submission
    "farandole.model_parallel.steps": ("Forward", "Backward", "Update"),
    "farandole.recovery.election.steps": ("Message", "Timer"),
    f"{MODULE}rank_threads": ("Made", "Ended", "Computes", "Answer"),
    f"{MODULE}recorded_training": ("Begin", "NotSurvived"),
    f"{MODULE}single_process": ("Part",),
}
TORCH = "torch._dynamo"  # with torch; its optimizers import it
ASKED_S = 1.0  # how long the guest may take to say at which line it is


class Origin(NamedTuple):
    """The parts of which a guest was made, so that a check can start others."""

    mode: Mode | Literal[""]
    lab: str
    submission: str
    helpers: bool


def origin_of(student: Any) -> Origin:
    """Return what a harness's process was made of; without a mode if that is this process."""
    origin: Origin | None = student._peer.origin if isinstance(student, Remote) else None
    return origin or Origin("", "", str(student.submission.__file__), helpers=False)


def offer(thing: Any) -> Offer | None:
    if isinstance(thing, FUNCTIONS):
        return Offer()
    if hasattr(type(thing), "__next__"):
        return Offer()
    names = (f"{kind.__module__}:{kind.__qualname__}" for kind in type(thing).__mro__)
    return next((OFFERED[name] for name in names if name in OFFERED), None)


class Guest:
    """A submission in its sandbox.

    Args:
        folder: of this guest alone.
        files: where it may write what other guests, with the same folder, can read.
        gone: called, and does not return, when the guest has ended or sends what is no message.
    """

    def __init__(
        self,
        mode: Mode,
        folder: Path,
        lab: Lab,
        submission: Path,
        helpers: bool,
        gone: Callable[[], None],
        files: Path | None = None,
    ) -> None:
        folder.mkdir()
        self.gone, self.harness = gone, lab.harness
        self.path = kit.copy_submission(submission, folder / "code", helpers)
        kit.write(_made(folder / "kit"), lab)
        self._values = {
            f"{module}:{name}": getattr(import_module(module), name)
            for module in kit.given(lab)
            for name in VALUES.get(module, ())
        }
        ours, theirs = socket.socketpair()
        self._questions, answers = socket.socketpair()
        self._questions.settimeout(ASKED_S)
        descriptors = theirs.fileno(), answers.fileno()
        shown, writable = (folder / "code", folder / "kit"), (files,) if files else ()
        box = Sandbox(mode, folder, shown, descriptors, writable=writable, with_torch=lab.with_torch)
        paths = [str(folder / "kit"), str(folder / "kit" / kit.PACKAGES)]
        program = (
            f"import sys; sys.path[:0] = {paths}\n"
            f"{f'import {TORCH}' if lab.with_torch else ''}\n"
            "from farandole_tools.lab.contained import guest\n"
            f"guest.main(*{[str(each) for each in descriptors]})"
        )
        self._output = folder / "output"
        with self._output.open("ab") as output:
            self.process = box.start_python(program, output.fileno())
        theirs.close()
        answers.close()
        self._peer = _Host(ours, offer=offer, values=self._values, explain=_explained, raised=_raised)
        self._peer.gone = self._gone
        self._peer.origin = Origin(mode, str(lab.folder), str(submission), helpers)
        self._peer.request("peak", False)  # it is there: starting it is not the submission's time

    def load(self) -> Any:
        """Import the submission; return what stands for its module, or for the harness that calls it."""
        return self._peer.request("load", str(self.path), list(self._values), self.harness)

    def current_line(self) -> str:
        """ ", at line 3: `while True:`", or what keeps the guest from answering."""
        with suppress(OSError):
            self._questions.sendall(b"?")
            if len(answer := self._questions.recv(4)) == 4:
                number = int.from_bytes(answer, "little")
                code = linecache.getline(str(self.path), number).strip()
                return f", at line {number}: `{code}`" if number else ""
        return ", inside compiled code"

    def printed(self) -> int:
        """Bytes that it has printed so far."""
        return self._output.stat().st_size

    def save_printed(self, since: int, path: Path, most: int) -> None:
        """Copy the first `most` bytes of what it has printed since then."""
        with self._output.open("rb") as file:
            file.seek(since)
            path.write_bytes(file.read(most))

    def end(self) -> None:
        self._peer.close()
        for stop in (self.process.terminate, self.process.kill):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(ASKED_S)
            stop()
        self.process.wait()

    def _gone(self) -> None:
        self.gone()
        os._exit(0)


class _Host(Peer):
    gone: Callable[[], None]
    origin: Origin

    def request(self, *body: Any) -> Any:
        try:
            return super().request(*body)
        except (Ended, Malformed):
            self.gone()
            raise

    @contextmanager
    def noting_peak(self, found: list[int]) -> Iterator[None]:
        self.request("peak", True)
        try:
            yield
        finally:
            found.append(int(self.request("peak", False)))

    @contextmanager
    def noting_warnings(self, found: list[str]) -> Iterator[None]:
        self.request("warned", True)
        try:
            yield
        finally:
            found.extend(str(each)[:200] for each in self.request("warned", False))

    @contextmanager
    def sharing_lists(self, given: Sequence[list[Any]]) -> Iterator[None]:
        self.request("lists", True)
        try:
            yield
        finally:
            for ours, theirs in zip(given, self.request("lists", False), strict=False):
                ours[:] = theirs


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _explained(error: BaseException) -> tuple[str, str]:
    """Return what the submission may know of an error in an object that it was given, or of its own in a callback."""
    if isinstance(error, Explained):
        return "explained", error.text
    return "error", str(error)[:1000]


def _raised(kind: str, text: str, name: str, own: BaseException | None) -> BaseException:
    """Return the exception that a check sees.

    What was ours comes back as it was where it concerns the checks. Of a mistake in a call the submission's side knows
    more: at which line it was made.
    """
    of_checks = isinstance(own, Wrong | PeerLost) or type(own).__module__.startswith("mpi4py")
    if own is not None and (of_checks or not isinstance(own, Exception)):
        return own
    return explained(kind, text, name)
