"""What becomes of a request that is made just as all requests end."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from farandole.parameter_server.client import Client
from farandole.parameter_server.conversation import Conversation
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.succession import Succession

LONG_ENOUGH_S = 0.2  # for the other thread to do what it can at that moment
LATE_S = 20


class Meanwhile(dict[int, Any]):
    """Requests; when one is added another thread is let do something first, if it may."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self.thread = thread

    def __setitem__(self, number: int, request: Any) -> None:
        self.thread.start()
        self.thread.join(LONG_ENOUGH_S)
        super().__setitem__(number, request)


def interrupted(comm: Any, last: Any) -> Client:
    """A client whose communication thread does `last` while a first request is being made."""
    client = Client(comm, {}, np.zeros(2), Succession(Placement.usual(3)))
    conversation = client._conversation
    conversation._requests = Meanwhile(threading.Thread(target=lambda: last(conversation), daemon=True))
    return client


def test_a_request_as_the_end_comes_is_answered() -> None:
    client = interrupted(SimpleNamespace(rank=2), lambda conversation: conversation._take(Header(Kind.STOP)))
    future = client.progress()
    assert future.result(timeout=LATE_S) is None


def test_a_request_as_the_communication_fails_fails() -> None:
    def fail(*_: object) -> None:
        raise OSError("no network")

    def communicate(conversation: Conversation) -> None:
        conversation._commands.put(fail)
        conversation._communicate()

    client = interrupted(SimpleNamespace(rank=2), communicate)
    with pytest.raises(OSError, match="no network"):
        client.progress().result(timeout=LATE_S)
    with pytest.raises(OSError, match="no network"):
        client.progress()
