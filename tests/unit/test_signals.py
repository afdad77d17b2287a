"""Termination signals: handled once, after uninterruptible work; the caller's handlers stay."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from farandole.runtime import signals
from farandole.runtime.signals import Held, Terminated, held, raised
from tests.children import heeds_signals


@pytest.fixture
def handle() -> Iterator[Callable[[int, Any], None]]:
    """Set a handler for the test's duration."""
    before: dict[int, Any] = {}

    def install(number: int, handler: Any) -> None:
        before.setdefault(number, signal.signal(number, handler))

    yield install
    for number, handler in before.items():
        signal.signal(number, handler)


Handle = Callable[[int, Any], None]


def works(signals_held: Held, while_it_works: int, later: Sequence[int], done: list[str]) -> None:
    """Get a signal at work, and others while it cleans up."""
    try:
        with signals_held.delivered():
            signal.raise_signal(while_it_works)
            done.append("went on")
    finally:
        for number in later:
            signal.raise_signal(number)
        done.append("cleaned up")


def launches(while_it_works: int, later: Sequence[int], done: list[str]) -> None:
    with held() as signals_held:
        works(signals_held, while_it_works, later, done)


@pytest.mark.parametrize("later", [[], [signal.SIGINT], [signal.SIGINT, signal.SIGINT]])
def test_a_second_ctrl_c_does_not_interrupt_the_clean_up(later: list[int], handle: Handle) -> None:
    handle(signal.SIGINT, signal.default_int_handler)
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        launches(signal.SIGINT, later, done)
    assert done == ["cleaned up"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("where", ["before", "after"])
def test_what_came_while_it_was_held_is_delivered_once(where: str, handle: Handle) -> None:
    calls: list[str] = []
    handle(signal.SIGTERM, lambda *_: calls.append("handled"))
    with held() as signals_held:
        if where == "before":
            signal.raise_signal(signal.SIGTERM)
        assert calls == []
        with signals_held.delivered():
            calls.append("watched")
        if where == "after":
            signal.raise_signal(signal.SIGTERM)
        calls.append("cleaned up")
    order = ["handled", "watched", "cleaned up"] if where == "before" else ["watched", "cleaned up", "handled"]
    assert calls == order


def test_a_handler_that_only_takes_notice_is_called_each_time_and_all_goes_on(handle: Handle) -> None:
    calls: list[int] = []
    handle(signal.SIGHUP, lambda number, _: calls.append(number))
    with held() as signals_held, signals_held.delivered():
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        assert calls == [signal.SIGHUP] * 2
    assert len(calls) == 2


def test_another_signal_during_the_clean_up_is_not_lost(handle: Handle) -> None:
    handle(signal.SIGINT, signal.default_int_handler)
    calls: list[int] = []
    handle(signal.SIGTERM, lambda number, _: calls.append(number))
    with pytest.raises(KeyboardInterrupt):
        launches(signal.SIGINT, [signal.SIGTERM], [])
    assert calls == [signal.SIGTERM]


def test_an_ignored_signal_stays_ignored(handle: Handle) -> None:
    """As POSIX requires for background jobs of a shell."""
    handle(signal.SIGINT, signal.SIG_IGN)
    with raised(), held() as signals_held, signals_held.delivered():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)


def test_a_block_within_another_is_part_of_it(handle: Handle) -> None:
    handle(signal.SIGINT, signal.default_int_handler)
    done: list[str] = []

    def outer() -> None:
        with held():
            try:
                launches(signal.SIGINT, [signal.SIGINT], done)
            finally:
                signal.raise_signal(signal.SIGINT)
                done.append("cleaned up, too")

    with pytest.raises(KeyboardInterrupt):
        outer()
    assert done == ["cleaned up", "cleaned up, too"]


def test_a_thread_leaves_the_handlers_alone(handle: Handle) -> None:
    mine = lambda *_: None  # noqa: E731
    handle(signal.SIGTERM, mine)
    found = []

    def in_a_thread() -> None:
        with held() as signals_held, signals_held.delivered(), raised():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert found == [mine]


def test_a_program_is_ended_by_the_first_signal_only(handle: Handle) -> None:
    handle(signal.SIGTERM, signal.SIG_DFL)
    done = []

    def program() -> None:
        with raised():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)
                done.append("cleaned up")

    with pytest.raises(Terminated) as ended:
        program()
    assert (ended.value.code, done) == (128 + signal.SIGTERM, ["cleaned up"])
    signal.raise_signal(signal.SIGTERM)  # still ignored, until the program has exited


def test_a_program_that_swallowed_the_first_is_ended_by_a_later_one(
    handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(signals, "OBEYED_WITHIN_S", 0.0)
    with raised():
        for _ in range(2):
            with pytest.raises(Terminated):
                signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_without_a_handler_the_process_ends_by_the_signal_but_cleans_up_first(number: signal.Signals) -> None:
    program = f"""
import resource, signal
from farandole.runtime.signals import held
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
signal.signal(signal.SIGINT, signal.SIG_DFL)
with held() as signals_held:
    try:
        with signals_held.delivered():
            signal.raise_signal({number})
            print("went on")
    finally:
        signal.raise_signal({number})
        print("cleaned up", flush=True)
print("went on")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, preexec_fn=heeds_signals)
    assert (done.returncode, done.stdout, done.stderr) == (-number, "cleaned up\n", "")
