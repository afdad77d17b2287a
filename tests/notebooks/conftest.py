"""The workers of pytest-xdist share one fork server of notebooks."""

from __future__ import annotations

import os

import pytest

from tests.notebooks import forked_program
from tests.notebooks.nbval_runs import notebook_server


@pytest.hookimpl(tryfirst=True)  # pytest-xdist starts its workers in the same hook, and they inherit the environment
def pytest_sessionstart(session: pytest.Session) -> None:
    if getattr(session.config.option, "numprocesses", None):
        os.environ[forked_program.SERVER] = notebook_server()
