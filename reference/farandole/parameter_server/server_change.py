"""The option `--server-change`: more or fewer servers from a step on.

    --server-change step=20,servers=3     3 servers share the parameters from iteration 20 on

All servers are launched with the job, as all MPI processes are; those that have no keys yet stand by. `server_manager`
and `resharding` carry out the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farandole.errors import UsageError
from farandole.parameter_server.core.policies import POLICIES
from farandole.runtime.faults import named_values
from farandole.runtime.numbers import parse_integer

if TYPE_CHECKING:
    from farandole.parameter_server.options import PolicyOptions

FORM = "--server-change step=20,servers=3 (a step of 1 or more, at least 1 server)"


@dataclass(frozen=True)
class ServerChange:
    """From iteration `step` on (they count from 0) the first `servers` of the launched servers have all keys."""

    step: int
    servers: int

    @classmethod
    def parse(cls, text: str) -> ServerChange:
        """Return the change that a text like ``step=20,servers=3`` describes.

        Raises:
            UsageError: `text` is not of this form.
        """
        pairs = named_values(text, FORM, {"step", "servers"})
        try:
            change = cls(parse_integer(pairs["step"]), parse_integer(pairs["servers"]))
        except (KeyError, ValueError) as error:
            raise UsageError(f"{text!r} does not fit: write it as {FORM}") from error
        if change.step < 1 or change.servers < 1:
            raise UsageError(f"{text!r} does not fit: write it as {FORM}")
        return change

    def __str__(self) -> str:
        return f"step={self.step},servers={self.servers}"


def most_servers(servers: int, changes: Sequence[ServerChange]) -> int:
    """Return how many servers to launch: the largest number at any time."""
    return max([servers, *(change.servers for change in changes)])


def check(options: PolicyOptions) -> None:
    """Refuse changes that cannot be carried out.

    Raises:
        UsageError: changes out of order, beyond the last step, without effect, or with an option that excludes them.
    """
    changes = options.server_change
    before = options.servers
    for earlier, change in zip([None, *changes], changes, strict=False):
        if earlier and change.step <= earlier.step:
            raise UsageError(f"--server-change {change} comes after {earlier}: give them in ascending order of steps")
        if change.step >= options.steps:
            raise UsageError(f"--server-change {change}: the last of --steps {options.steps} is {options.steps - 1}")
        if change.servers == before:
            raise UsageError(f"--server-change {change} changes nothing: there are {before} server(s) at that step")
        before = change.servers
    for given, what in (
        (
            not POLICIES[options.sync].applies_each_once,
            f"--sync {options.sync}, where servers may be at different steps",
        ),
        (options.replicas > 1, "--replicas, whose copies would have to move too"),
        (options.transport == "window", "--transport window, whose memory is laid out once"),
        (options.tree, "--tree, whose aggregators know only the initial servers"),
        (options.compressor != "none", "--compressor, which encodes each server's part of a gradient by itself"),
        (options.applications > 1, "--applications: change the servers of one application"),
        (options.place, "--place: the first --servers of the usual placement are servers at the start"),
    ):
        if changes and given:
            raise UsageError(f"--server-change does not go with {what}; leave out one of them")
