"""The bully election: a member asks all with higher numbers; if none answers, it leads.

    the leader is missed             send "election" to every member with a higher number
    "election" from a lower number   answer, and start as well
    no answer in time                lead, and send "coordinator" to all
    answered                         wait for "coordinator"; if it does not come, start again

The highest living number wins, provided that living members answer in time. Members that cannot be reached count
as dead: a partitioned network elects one leader in each part. With n members of which the highest is
dead, it takes n messages if the second highest starts, n(n − 1) if the lowest does (those to the dead
counted). Source: Garcia-Molina, "Elections in a distributed computing system", 1982.
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole.recovery.election.steps import Action, Message, Timer


class Bully:
    """One member.

    Args:
        number: distinct from the others'; the highest wins.
        members: all, dead or alive, itself included.
        answer_s: a living member answers within this time: at least a message there and one back.
    """

    def __init__(self, number: int, members: Sequence[int], answer_s: float = 3.0) -> None:
        self.number = number
        self.others = [member for member in members if member != number]
        self.answer_s = answer_s
        self.leader: int | None = None
        self.term = 0
        self.asking = False
        self.answered = False

    def start(self) -> list[Action]:
        self.leader, self.asking, self.answered = None, True, False
        stronger = [other for other in self.others if other > self.number]
        if not stronger:
            return self._lead()
        return [*(self._say("election", other) for other in stronger), Timer(self.answer_s)]

    def receive(self, message: Message) -> list[Action]:
        match message.kind:
            case "election":
                return [self._say("answer", message.sender), *([] if self.asking else self.start())]
            case "answer" if self.asking and not self.answered:
                self.answered = True
                # The election may reach the highest number last: each asks the next one, in the worst case.
                return [Timer(self.answer_s * (len(self.others) + 1))]
            case "coordinator" if message.sender > self.number:
                self.leader, self.asking = message.sender, False
                return [Timer(None)]
            case "coordinator":  # a lower number has not received this one's answer
                return self.start()
        return []

    def timeout(self) -> list[Action]:
        if not self.asking:
            return []
        return self.start() if self.answered else self._lead()

    def _lead(self) -> list[Action]:
        self.leader, self.asking = self.number, False
        return [*(self._say("coordinator", other) for other in self.others), Timer(None)]

    def _say(self, kind: str, to: int) -> Message:
        return Message(kind, self.number, to)
