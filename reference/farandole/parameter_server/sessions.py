"""What clients have asked and not been told, so that a request that comes again is not carried out again.

Whoever does not get an answer asks once more, and cannot know whether the first time was in vain. Every
request has a number of its client's, which is kept until the client says, in a later request, that the
answer has come. The answer is kept, too, where another server is to send it, just as that one sends it:
later parameters would not be those that the policy has noted as read. Memory: a header for each request
that is open, and for each client the parameters it was granted last. As in the sessions of replicated
state machines (Liskov & Cowling, "Viewstamped replication revisited", 2012).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from numpy.typing import NDArray

from farandole.parameter_server.header import Header, Kind

Answer = tuple[Header, NDArray[Any] | None]  # and the parameters that belong to it


class Sessions:
    """The open requests of all clients of one part of the parameters."""

    def __init__(self) -> None:
        # client → number → answer; None if there is none yet, or it has come, or this server sends it itself
        self._answers: defaultdict[int, dict[int, Answer | None]] = defaultdict(dict)
        self._settled: dict[int, int] = {}

    def open(self, request: Header) -> bool:
        """Note a request; False if it has come before."""
        client, answers = request.worker, self._answers[request.worker]
        self._settled[client] = max(request.settled, self._settled.get(client, 0))
        for number in [number for number in answers if number <= self._settled[client]]:
            del answers[number]
        if request.number in answers or request.number <= self._settled[client]:
            return False
        if request.kind == Kind.PULL:  # who asks for parameters has had the last ones
            for number, answer in answers.items():
                if answer and answer[0].kind == Kind.GRANT:
                    answers[number] = None
        answers[request.number] = None
        return True

    def note(self, answer: Header, values: NDArray[Any] | None = None) -> None:
        """A request has been answered; `values` must stay as they are."""
        if answer.number in self._answers[answer.worker]:
            self._answers[answer.worker][answer.number] = answer, values

    def answers(self) -> list[Answer]:
        """All answers that may not have come."""
        return [answer for answers in self._answers.values() for answer in answers.values() if answer]

    def forget(self, client: int) -> None:
        """A client is gone."""
        self._answers.pop(client, None)
