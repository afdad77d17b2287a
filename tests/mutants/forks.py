"""A pytest plugin that tries mutmut's mutants, each in a fork of one session that has collected the tests.

mutmut compiles all mutants of a function beside the original, and one name chooses which of them is called. So a
collected session can be forked for each mutant, which takes a fraction of a second where a new pytest takes several. A
first pass without a mutant notes which functions each test calls and how long it takes; a mutant is tried by the tests
of its function, the quickest first, until one fails.

A mutant that loops for ever fails its test by a limit of processor time, a multiple of what the test took.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

LEAST_S, MULTIPLE = 1.5, 6.0  # a test's limit of processor time: LEAST_S + MULTIPLE · its time without a mutant
LONGEST_S = 90  # a test that waits for ever takes no processor time
KILLED, SURVIVED = 1, 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """In place of running the tests once: run them without a mutant, then for each mutant those that may notice it."""
    terminal = session.config.pluginmanager.getplugin("terminalreporter")
    tests, seconds = _calls(session)
    names = [
        name
        for meta in sorted(Path("src").rglob("*.meta"))
        for name in json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    ]
    results: Counter[str] = Counter()
    for number, name in enumerate(names):
        mine = sorted(tests.get(name.partition("__mutmut_")[0], []), key=seconds.__getitem__)
        result = _tried(name, mine, seconds) if mine else "no tests"
        results[result] += 1
        if result != "killed":
            terminal.write_line(f"{name}: {result}")
        if number % 50 == 49 or number == len(names) - 1:
            terminal.write_line(f"{number + 1} of {len(names)}: {dict(results)}")
    return True


def _calls(session: pytest.Session) -> tuple[dict[str, list[pytest.Item]], dict[pytest.Item, float]]:
    """Run the tests without a mutant; return function → the tests that call it, and test → its processor time."""
    tests: dict[str, list[pytest.Item]] = {}
    seconds = {}
    set_mutant_under_test("stats")
    for item in session.items:
        state()._stats.clear()
        start = time.process_time()
        reports = runtestprotocol(item, log=False, nextitem=None)
        seconds[item] = time.process_time() - start
        if failed := [report for report in reports if report.failed]:
            raise pytest.UsageError(f"{item.nodeid} fails without a mutant:\n{failed[0].longreprtext}")
        for function in state()._stats:
            tests.setdefault(function, []).append(item)
    return tests, seconds


def _tried(name: str, tests: list[pytest.Item], seconds: dict[pytest.Item, float]) -> str:
    """Return whether one of `tests` notices the mutant."""
    child = os.fork()
    if child == 0:
        code = KILLED
        try:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            set_mutant_under_test(name)
            code = SURVIVED
            for item in tests:
                signal.setitimer(signal.ITIMER_PROF, LEAST_S + MULTIPLE * seconds[item])
                signal.alarm(LONGEST_S)
                if any(report.failed for report in runtestprotocol(item, log=False, nextitem=None)):
                    code = KILLED
                    break
        except BaseException:
            code = KILLED
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM) else f"signal {os.WTERMSIG(status)}"
    return "killed" if os.WEXITSTATUS(status) == KILLED else "survived"
