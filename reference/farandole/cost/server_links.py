"""The links of a parameter server, through which all workers' messages pass one after the other.

Each of S servers has 1/S of the P bytes and its own link, which is busy with a message for P/S·β; α later the message
arrives. A worker's own link takes Pβ for the whole. A link that carries both directions at the same time is two.
"""

from __future__ import annotations

from farandole.cost.setting import Setting

READS = 0  # the link that reads pass


class Links:
    """The links of one server, which stand for those of all.

    Attributes:
        pushes: the link that pushes pass.
        share: for how long a message keeps one busy.
        comm_s: seconds of all messages, with their time in the queue.
    """

    def __init__(self, setting: Setting) -> None:
        self._own = setting.nbytes * setting.link.beta  # a message on the worker's own link
        self.share = setting.link_busy_s
        self.comm_s = 0.0
        self.pushes = int(setting.duplex)
        self._alpha = setting.link.alpha
        self._free = [0.0, 0.0]  # when each will be

    def passed(self, link: int, now: float) -> float:
        """Return when a message that is given to this link now will have arrived."""
        free = self._free[link]
        free = (free if free > now else now) + self.share
        self._free[link] = free
        own = now + self._own
        arrives = (free if free > own else own) + self._alpha
        self.comm_s += arrives - now
        return arrives
