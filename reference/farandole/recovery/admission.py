"""The admission of a process that joins later: the coordinator starts it, and all accept it in a membership update.

    spawn       the coordinator starts a process, in a thread (`runtime.joining`); all others train on
    news        it is ready, or lost: the coordinator detects it, and reports it in an agreement of all
    admit       all accept its connection, and form a communicator with it
    welcome     the coordinator sends it what the others have agreed on

Until it is welcomed no rank depends on it: if anything fails it leaves, and no work is lost. Cost: an agreement per
update while a process is starting; then one collective accept and another agreement.
"""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from farandole.runtime.joining import JoiningProcess, SpawnRequest, Told

# What the coordinator knows of the joining process. The other ranks know nothing, which is 0b11: a bitwise and over all
# ranks is the coordinator's word.
NO_NEWS, READY, NEVER_JOINS = 0b11, 0b10, 0b01


class Invited(Exception):
    """This process, which joins later, may `enter` now."""


class Admission:
    """One member's part in it; only the coordinator has a request.

    Args:
        greeting, welcome: return what the process is told when it starts, and when it is admitted; called on the
            coordinator.
        joining: on a process that joins later, its own side.
    """

    def __init__(
        self, greeting: Callable[[], Told], welcome: Callable[[], Told], joining: JoiningProcess | None
    ) -> None:
        self._greeting, self._welcome, self._joining = greeting, welcome, joining
        self._request: SpawnRequest | None = None
        self._port = ""

    @property
    def has_news(self) -> bool:
        """Whether the requested process is ready, or lost. Only the coordinator knows."""
        return self._request is not None and self._request.news != "none"

    def spawn(self, number: int) -> None:
        """Start the process that will have this number. On the coordinator."""
        self._request = SpawnRequest(number, self._greeting())

    def agree_on_news(self, everyone: MPI.Intracomm) -> int | None:
        """Return the news of the requested process, the same on all; None: a rank has died. Collective."""
        own = NO_NEWS
        if self._request and self._request.news != "none":
            own = READY if self._request.news == "ready" else NEVER_JOINS
        try:
            return everyone.Agree(own)
        except MPI.Exception:  # the same on all
            return None

    def admit(self, everyone: MPI.Intracomm, coordinator: int) -> MPI.Intracomm | None:
        """Return a communicator with the process, as its last rank; None if this failed on any rank. Collective."""
        extended = None
        try:
            port = self._request.invite() if self._request else ""
            between = everyone.Accept(port, root=coordinator)
            extended = MPI.Intracomm(MPI.Intercomm(between).Merge(high=False))
            if self._request:  # a revocation that arrives while the process is still merging would end it
                self._request.sees_it_inside()
        except MPI.Exception:
            everyone.Revoke()
        try:
            return extended if everyone.Agree(int(extended is not None)) else None
        except MPI.Exception:
            return None

    def welcome(self, agreed: Told) -> None:
        """Tell the process that it is admitted, and what all have agreed on."""
        request, self._request = self._request, None
        if request:
            request.welcome(agreed | {"welcome": self._welcome()})

    def give_up(self) -> None:
        """Dismiss the process, which will not join."""
        request, self._request = self._request, None
        if request:
            request.dismiss()

    def dismiss_spawned(self, farewell_s: float) -> None:
        """Dismiss a process that is still starting: the training is over."""
        if self._request:
            self._request.dismiss(farewell_s)

    def wait_for_invitation(self) -> None:
        """As the process, wait until it is dismissed.

        Raises:
            Invited: it may `enter` now.
        """
        assert self._joining is not None
        port = self._joining.wait_for_invitation()
        if port is not None:
            self._port = port
            raise Invited

    def enter(self) -> tuple[MPI.Intracomm, Told]:
        """As the process, connect; return the communicator of all members, and what the coordinator has sent."""
        assert self._joining is not None
        return self._joining.enter(self._port)
