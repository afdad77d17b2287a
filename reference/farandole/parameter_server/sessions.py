"""What clients have asked and been told, so that a request that comes again is not carried out again.

Whoever does not get an answer asks once more, and cannot know whether the first time was in vain. Every
request has a number of its client's; its answer is kept until the client says, in a later request, that
it has come. Memory: a header for each request that is open. As in the sessions of replicated state
machines (Liskov & Cowling, "Viewstamped replication revisited", 2012).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from farandole.parameter_server.header import Header


class Sessions:
    """The open requests of all clients of one part of the parameters."""

    def __init__(self) -> None:
        self._answers: defaultdict[int, dict[int, Header | None]] = defaultdict(dict)  # client → number → answer
        self._settled: dict[int, int] = {}

    def open(self, request: Header) -> bool:
        """Note a request; False if it has come before."""
        client, answers = request.worker, self._answers[request.worker]
        self._settled[client] = max(request.settled, self._settled.get(client, 0))
        for number in [number for number in answers if number <= self._settled[client]]:
            del answers[number]
        if request.number in answers or request.number <= self._settled[client]:
            return False
        answers[request.number] = None
        return True

    def note(self, answer: Header) -> None:
        """A request has been answered."""
        if answer.number in self._answers[answer.worker]:
            self._answers[answer.worker][answer.number] = answer

    def answer(self, request: Header) -> Header | None:
        """What a request that has come before was answered; None: nothing yet, or the answer has come."""
        return self._answers[request.worker].get(request.number)

    def answers(self) -> Iterator[Header]:
        """All answers that may not have come."""
        for answers in self._answers.values():
            yield from (answer for answer in answers.values() if answer)

    def forget(self, client: int) -> None:
        """A client is gone."""
        self._answers.pop(client, None)
