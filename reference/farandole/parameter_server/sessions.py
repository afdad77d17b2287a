"""Client sessions: a request that arrives twice is carried out once.

A client that gets no answer sends its request again, and cannot know whether the first one was carried out. Every
request has a number of its client's. A server keeps the number until a later request of that client acknowledges the
answer (`Header.acked_through`). It also keeps the answer itself where another server is to send it, exactly as that
server sends it: later parameters would not be those that the policy has noted as read. Memory: one header per open
request, and for each client the parameters that it was granted last. As in the sessions of replicated state machines
(Liskov & Cowling, "Viewstamped replication revisited", 2012).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from numpy.typing import NDArray

from farandole.parameter_server.header import Header, Kind

Answer = tuple[Header, NDArray[Any] | None]  # with its payload


class Sessions:
    """The open requests of all clients of one partition."""

    def __init__(self) -> None:
        # client → request → answer; None: not answered yet, acknowledged, or sent by this server itself
        self._answers: defaultdict[int, dict[int, Answer | None]] = defaultdict(dict)
        self._acked_through: dict[int, int] = {}

    def open(self, request: Header) -> bool:
        """Note a request; return whether it is new."""
        client, answers = request.worker, self._answers[request.worker]
        acked = self._acked_through[client] = max(request.acked_through, self._acked_through.get(client, 0))
        for request_id in [request_id for request_id in answers if request_id <= acked]:
            del answers[request_id]
        if request.request_id in answers or request.request_id <= acked:
            return False
        if request.kind == Kind.PULL:  # a client that pulls has received the parameters of its last pull
            for request_id, answer in answers.items():
                if answer and answer[0].kind == Kind.GRANT:
                    answers[request_id] = None
        answers[request.request_id] = None
        return True

    def note(self, answer: Header, values: NDArray[Any] | None = None) -> None:
        """Keep the answer to an open request; `values` must not change."""
        if answer.request_id in self._answers[answer.worker]:
            self._answers[answer.worker][answer.request_id] = answer, values

    def answers(self) -> list[Answer]:
        """Return all answers that may not have arrived."""
        return [answer for answers in self._answers.values() for answer in answers.values() if answer]

    def forget(self, client: int) -> None:
        """Remove a client that has left or died."""
        self._answers.pop(client, None)
