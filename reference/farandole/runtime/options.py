"""The options every scenario has: where the record goes, what is random, what goes wrong."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_type_hints

from cyclopts import Parameter

from farandole.errors import UsageError
from farandole.runtime.chaos import Chaos
from farandole.runtime.faults import PARTITION, Fail, Slow
from farandole.runtime.links import LinkChange
from farandole.runtime.numbers import AtLeastOne, NotNegativeReal, Positive, Seed


def _parsed_by(kind: type[Slow] | type[Fail] | type[LinkChange]) -> Any:
    """Let the command line turn each occurrence of an option into a `kind`."""

    def convert(_: Any, tokens: Any) -> Any:
        return tuple(kind.parse(token.value) for token in tokens)

    return convert


def _chaos(_: Any, tokens: Any) -> Any:
    return Chaos.parse(tokens[0].value)


Options = TypeVar("Options")


def without(*names: str) -> Callable[[type[Options]], type[Options]]:
    """Let the command line of a class of options refuse these that it inherits. They keep their defaults.

    Put it below ``@dataclass``.
    """

    def decorate(options: type[Options]) -> type[Options]:
        inherited = get_type_hints(options, include_extras=True)
        for name in names:
            options.__annotations__[name] = Annotated[inherited[name], Parameter(parse=False)]
            setattr(options, name, getattr(options, name))
        return options

    return decorate


REPEATABLE: dict[str, Any] = {"n_tokens": 1, "negative": "", "show_default": False}
ONCE: dict[str, Any] = {"n_tokens": 1, "accepts_keys": False, "show_default": False}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FaultOptions:
    """Faults: slow and failing ranks, slow links."""

    slow: Annotated[tuple[Slow, ...], Parameter(converter=_parsed_by(Slow), **REPEATABLE)] = ()
    """A slow rank, as rank=3,factor=3; now and then: with share=0.25; in some steps: with from=100 or until=200. May be
    given again."""

    fail: Annotated[tuple[Fail, ...], Parameter(converter=_parsed_by(Fail), **REPEATABLE)] = ()
    """A failure, as rank=2,step=30,how=kill (or raise, or hang). A message fault, as rank=2,step=30,how=drop (or delay,
    duplicate, corrupt),share=0.1. A rank that is cut off, as rank=2,step=30,how=partition,heals=2 (seconds; without
    heals, for good). May be given again."""

    checksum: bool = False
    """Give every message a checksum, and send it again where it arrives changed. For our own messages."""

    chaos: Annotated[Chaos | None, Parameter(converter=_chaos, **ONCE)] = None
    """Kill ranks at random, as mtbf=20s,seed=7: one every 20 seconds on average, the seed decides which and when."""

    link_mbps: Positive | None = None
    """Connect every rank to the others by this many Mbit/s each way, for our own messages. [default: unlimited]"""

    link_change: Annotated[tuple[LinkChange, ...], Parameter(converter=_parsed_by(LinkChange), **REPEATABLE)] = ()
    """Another --link-mbps from a step on, as step=200,mbps=20; may be given again."""

    link_latency_ms: NotNegativeReal = 0.0
    """With --link-mbps: each message occupies the link for this many milliseconds beside its bytes."""

    @property
    def survives_partitions(self) -> bool:
        """Whether the others continue without a rank that is cut off; else messages are resent until it is back."""
        return False

    @property
    def resends(self) -> bool:
        """Whether messages may be lost or changed, and are sent again."""
        struck = (fail for fail in self.fail if fail.is_of_messages)
        return self.checksum or any(fail.how != PARTITION or not self.survives_partitions for fail in struck)

    def refuse_resending(self, why: str) -> None:
        """Refuse faults of messages, and checksums, where no message can be sent again.

        Args:
            why: the reason, for the message.

        Raises:
            UsageError: the options ask for one.
        """
        for fail in self.fail:
            if fail.is_of_messages and not (fail.how == PARTITION and self.survives_partitions):
                raise UsageError(f"--fail {fail} is not supported here, since {why}: leave it out")
        if self.checksum:
            raise UsageError(f"--checksum is not supported here, since {why}: leave it out")

    @property
    def first_steps(self) -> dict[str, int]:
        """Return the step at which each fault begins, by the option as it was given."""
        return {
            **{f"--fail {fail}": fail.step for fail in self.fail},
            **{f"--slow {slow}": slow.first for slow in self.slow},
            **{f"--link-change {change}": change.step for change in self.link_change},
        }


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """The device that computes, and how messages leave it."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """The device that computes. cuda: a card for each rank that computes. auto: cards where
    there are as many as such ranks, else the CPU."""

    share_cards: bool = False
    """Let several ranks compute on one card, if a host has fewer cards than ranks that compute."""

    card_transport: Literal["staged", "direct", "auto"] = "staged"
    """How messages leave a card. staged: through pinned memory of the host, with any MPI. direct: a CUDA-aware MPI
    reads the card's memory. auto: direct where the MPI and the method allow it, else staged."""

    def computes(self, rank: int, ranks: int) -> bool:
        """Return whether this rank of `ranks` computes gradients or predictions, so that it has use for a card."""
        return True

    def unfit_for_cards(self) -> str:
        """Return why this method cannot compute on a card here, though it could elsewhere; "": it can."""
        return ""

    def needs_host_memory(self) -> str:
        """Return why what this method sends has to lie in the host's memory; "": MPI may read it on a card."""
        return "this method adds up or packs its messages in the host's memory"

    def note_on_cards(self) -> str:
        """Return a line for the user of cards about what these options cost there; "": there is nothing to note."""
        return ""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions(DeviceOptions, FaultOptions):
    """Every run: its record, its seed, its time limits."""

    resumes: ClassVar[bool] = False
    """Whether an unfinished run continues when it is started again with the same --out."""

    starts_workers: ClassVar[bool] = False
    """Whether one process is launched, which itself starts the requested number of `workers`."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Former name of a field → its present name; the command line still accepts the former."""

    bare_options: ClassVar[Mapping[str, str]] = {}
    """Field → the value that its option has on the command line without a word after it; `--no-…` leaves it out."""

    incidental: ClassVar[frozenset[str]] = frozenset(
        {"out", "device", "share_cards", "card_transport", "slow", "fail", "chaos", "link_mbps", "link_change"}
        | {"link_latency_ms", "wait_timeout", "expect_ranks", "tensorboard", "peak_flops", "json"}
    )
    """Options that do not affect what is computed, and may differ when a run continues."""

    out: Path | None = None
    """Folder for the record, new or empty. [default: runs/SCENARIO-DATE-TIME]"""

    seed: Seed = 0
    """Seed of every random choice; same seed, same ranks, same method: same parameters."""

    wait_timeout: Positive = 60.0
    """Seconds after which a rank that waits for another gives up and ends the job."""

    expect_ranks: AtLeastOne | None = None
    """Refuse to run with another number of ranks: batch scripts give $SLURM_NTASKS."""

    tensorboard: Path | None = None
    """Folder for TensorBoard's event files, which are written during the run; runs in one folder are shown together."""

    peak_flops: Positive | None = None
    """Operations per second of which each rank's device is capable, as 312e12; the record then has `mfu`, the share
    that the training used. [default: not known]"""

    json: Annotated[bool, Parameter(show_default=False)] = False
    """Print the record's summary as JSON, and nothing else, on standard output."""

    @property
    def joining_at_most(self) -> int:
        """Return the number of processes that may join the launch later."""
        return 0

    @property
    def outlives(self) -> bool:
        """Whether the training continues when a rank has died, for which MPI must let ranks outlive each other."""
        return False

    def least_bytes(self) -> int:
        """Return a lower bound of the memory that all ranks together need for the model; 0 where none is known."""
        return 0

    def flops_per_sample(self) -> int | None:
        """Return the operations of the model's forward and backward pass over a sample; None where they are not known.

        It is called after the training.
        """
        return None

    def recomputed_flops_per_sample(self) -> int | None:
        """Return the operations that the backward pass of a sample computes again; None where they are not known."""
        return 0

    def steps_at_most(self, ranks: int) -> int | None:
        """Return how many steps, as --fail and --slow count them, a rank may come to; None: nothing limits them."""
        return None
