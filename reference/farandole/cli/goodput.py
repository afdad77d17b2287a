"""``farandole goodput``: what failures leave of a large training's time, by the method of recovery."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from farandole.errors import UsageError
from farandole.runtime.files import json_text
from farandole.runtime.numbers import AtLeastOne, NotNegative, NotNegativeReal, Positive, Seed

DAY_S, HOUR_S = 86_400.0, 3_600.0
A_SPARE_FOR = 1000  # workers, by default
MOST_EVENTS = 5e6  # failures and saves of one method: some ten seconds


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GoodputOptions:
    """The machine, and what each method of recovery takes on it."""

    workers: Annotated[AtLeastOne, Parameter(alias="-n")] = 10_000
    """Workers that train."""

    mtbf_days: Positive = 2_100.0
    """Days after which a worker fails on average. 2,100 follow from 419 interruptions of 16,384 GPUs in 54 days
    (Grattafiori et al., "The Llama 3 herd of models", 2024)."""

    repair_hours: NotNegativeReal = 24.0
    """Hours from a worker's failure until it is back."""

    restart_s: NotNegativeReal = 600.0
    """Restart: seconds from a failure to the next step: it is noticed, all start anew, and load the checkpoint."""

    checkpoint_s: Positive = 30.0
    """Restart: seconds for which a checkpoint holds up the training."""

    checkpoint_every_s: Positive | None = None
    """Restart: seconds of work between two checkpoints. [default: Daly's optimum]"""

    regroup_s: NotNegativeReal = 20.0
    """Membership: seconds from a failure, or a return, to the next step, the interrupted step included."""

    takeover_s: NotNegativeReal = 20.0
    """Backup: seconds from a failure until a spare works with the dead worker's state."""

    backup_every_s: Positive = 60.0
    """Backup: seconds of work between two backups."""

    backup_s: NotNegativeReal = 0.5
    """Backup: seconds for which a backup holds up the training."""

    spares: NotNegative | None = None
    """Backup: spares. [default: one for every 1,000 workers]"""

    islands: AtLeastOne = 8
    """Groups of workers that exchange parameters now and then only (DiLoCo, decoupled), and recover by themselves."""

    days: Positive = 30.0
    """Simulated days."""

    seed: Seed = 0
    """Seed of the failures."""

    json: Annotated[bool, Parameter(show_default=False)] = False
    """Print JSON."""


def goodput(*, options: GoodputOptions | None = None) -> None:
    """Compute what failures leave of a training's time, with restart, membership, backup, and islands.

    Simulated from failure to failure. It tells nothing of how well fewer workers, or islands, learn.
    """
    from farandole.report import goodput_table

    options = options or GoodputOptions()
    if options.islands > options.workers:
        raise UsageError(f"--islands {options.islands} is more than --workers {options.workers}: give at most as many")
    between_s = options.mtbf_days * DAY_S / options.workers
    every_s = [between_s, options.backup_every_s, *([options.checkpoint_every_s] if options.checkpoint_every_s else [])]
    if (events := options.days * DAY_S * sum(1 / each for each in every_s)) > MOST_EVENTS:
        raise UsageError(
            f"{options.days:g} days would have {events:.2g} failures and saves: give fewer --days, at most "
            f"{options.days * MOST_EVENTS / events:.2g}"
        )
    rows = shares(options)
    if options.json:
        print(json_text({"seconds_between_failures": between_s, "rows": rows}, indent=2))
        return
    Console().print(goodput_table.goodput(options.workers, between_s, rows))


def shares(options: GoodputOptions) -> list[dict[str, Any]]:
    """Return for each method its name, the seconds between two saves of the state, and where the workers' time went."""
    from farandole.cost.goodput import Recovery, goodput
    from farandole.recovery.interval import daly

    def restart(workers: int) -> Recovery:
        mtbf_s = options.mtbf_days * DAY_S / workers
        every_s = options.checkpoint_every_s or max(daly(options.checkpoint_s, mtbf_s), 1.0)
        return Recovery(options.restart_s, every_s, options.checkpoint_s, spares=None)

    spares = options.workers // A_SPARE_FOR if options.spares is None else options.spares
    membership = Recovery(options.regroup_s)
    backup = Recovery(options.takeover_s, options.backup_every_s, options.backup_s, spares)
    islands, one = options.islands, options.workers // options.islands
    methods: list[tuple[str, Recovery, int]] = [
        ("restart", restart(options.workers), 1),
        ("membership", membership, 1),
        (f"backup, {spares} spare{'s' * (spares != 1)}", backup, 1),
    ]
    if islands > 1:
        methods += [
            (f"{islands} islands, restart", restart(one), islands),
            (f"{islands} islands, membership", membership, islands),
        ]
    times = options.mtbf_days * DAY_S, options.repair_hours * HOUR_S, options.days * DAY_S
    return [
        {"method": name, "save_every_s": recovery.save_every_s or None,
         **asdict(goodput(recovery, options.workers, *times, options.seed, number))}
        for name, recovery, number in methods
    ]  # fmt: skip
