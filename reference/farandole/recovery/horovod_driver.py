"""Elastic Horovod's driver (弹性 Horovod): starts the workers, detects their deaths, and lets the others continue.

The driver is a separate process, elsewhere `horovodrun`. It queries the hosts every second
(`horovod_hosts`), holds the rendezvous where workers learn their ranks, and after each failure:

    barrier       all workers have reported that they are ready again, or have ended
    blacklist     hosts where a worker has failed are not used again, and their other workers are ended
    ranks         are assigned anew, the lowest to the workers that were there first
    new workers   are started where a host is new, or off the blacklist again

Horovod's own driver does this. This module adds what it leaves to its caller: how a worker is started
(`horovod_workers`), what its end means, and the record. Horovod knows workers by host and rank; here each has a number
that stays, as under MPI: at first its rank, and later workers have the next numbers. `elastic_horovod` is how they
train.

Horovod's public `horovod.run` (0.28.1) does the same, but does not suffice for these workers:

- It starts a worker on this host only if the host's name resolves to one of its addresses, else by ssh. So a worker
  cannot have its own host name here (worker-0), without which the first failure ends the job, nor be a Slurm step.
- It does not tell a worker a number that stays, by which --fail, --chaos and the record name it.
- It waits in `ElasticDriver.get_results`, which may wait for a worker that was never started.
- It does not report which worker ended when, and whether it died or was ended by the driver.

Source: Horovod 0.28, `horovod.runner.elastic`; Sergeev & Del Balso, "Horovod", 2018.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import horovod.torch as hvd
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.gloo_run import create_run_env_vars
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.util.network import get_driver_ip
from mpi4py import MPI

from farandole import tasks
from farandole.data.sampler import check_filled, samples_used
from farandole.data.samples import Samples
from farandole.data.shares import equal_shares
from farandole.data_parallel.accumulation import check_micro_batches
from farandole.errors import PlainError, UsageError
from farandole.models import choices
from farandole.recovery.batches import divide_data
from farandole.recovery.event_log import EventLog
from farandole.recovery.horovod_hosts import Hosts, discover
from farandole.recovery.horovod_workers import POLL_S, Workers
from farandole.recovery.horovod_world import WORKERS, Finished
from farandole.recovery.options import ElasticHorovodOptions
from farandole.runtime.command_line import to_arguments
from farandole.runtime.faults import check_ranks, check_steps
from farandole.runtime.record import Summary
from farandole.runtime.recorder import open_folder
from farandole.runtime.summary import divergence_in, write_summary
from farandole.runtime.trace import from_json

NO_WORKER_S = 5.0  # without any worker the training is over, whatever Horovod still waits for


class HorovodGaveUp(PlainError):
    """The training is not complete, and no worker is left."""


def drive(scenario: str, options: ElasticHorovodOptions) -> Summary:
    """Have workers train to the end, whichever of them die; return the record's summary.

    Raises:
        UsageError: hosts or options that do not fit.
        HorovodGaveUp: the training is not complete, and no worker is left.
    """
    if MPI.COMM_WORLD.size > 1:
        raise UsageError("Horovod's driver is one process: start it without mpirun, and say --workers")
    if not hvd.gloo_built():
        raise UsageError(
            "this Horovod has no gloo, which its elastic mode needs: python tools/horovod_wheel.py builds one that has"
        )
    hosts = discover(options)
    options = replace(options, workers=options.workers or sum(hosts.slots().values()))
    check(options, hosts)
    train = _checked_data(options)
    interface = hosts.interface()
    assert options.workers
    folder = open_folder(scenario, options)  # only now, so that refused options leave it free
    shares = divide_data(train, options.workers, folder)
    (folder / WORKERS).mkdir()
    # Without MPI, since the workers talk by gloo.
    worker = [sys.executable, "-P", "-m", "farandole.runtime", "--without-mpi", "-m", f"farandole.scenarios.{scenario}"]
    workers = Workers(hosts, folder, [*worker, *_words(options, folder)])
    _drive(options, workers, interface)
    left = [Finished.read(file) for file in sorted((folder / WORKERS).glob("*.json"))]
    if not any(each.leader for each in left):
        raise HorovodGaveUp(_why(workers, options))
    summary = _write_summary(scenario, options, folder, left, shares)
    shutil.rmtree(folder / WORKERS)
    return summary


def check(options: ElasticHorovodOptions, hosts: Hosts) -> None:
    """Refuse options that Elastic Horovod cannot follow.

    Raises:
        UsageError: with what would fit.
    """
    assert options.workers
    choices.check(options)
    if options.device == "cuda" and (why := options.unfit_for_cards()):
        raise UsageError(f"--device cuda: {why}; use --device cpu")
    check_ranks([*options.slow, *options.fail], options.workers)
    check_steps(options.first_steps, options.steps_at_most(options.workers))
    options.refuse_resending("it is for our own messages, and Horovod sends none of them")
    if options.link_mbps or options.link_change or options.link_latency_ms:
        raise UsageError("--link-mbps slows down our own messages, and Horovod sends none of them: leave it out")
    found = sum(hosts.slots().values())
    if options.expect_ranks not in (None, found):
        raise UsageError(f"the hosts take {found} worker(s), not the {options.expect_ranks} expected")
    if found < options.workers:
        raise UsageError(f"the hosts take {found} worker(s): give -n {found}, or more hosts")
    if options.min_workers > options.workers:
        raise UsageError(f"--min-workers {options.min_workers}: there are {options.workers}; give as many or fewer")
    for name in ("cooldown", "gloo_timeout"):
        if getattr(options, name) >= options.wait_timeout:
            raise UsageError(
                f"--{name.replace('_', '-')} {getattr(options, name)}: a waiting worker is ended after --wait-timeout "
                f"{options.wait_timeout:g}; give less"
            )


def _drive(options: ElasticHorovodOptions, workers: Workers, interface: str) -> None:
    """Have Horovod's driver start workers, and replace those that have died, to the end."""
    rendezvous = RendezvousServer()
    driver = ElasticDriver(
        rendezvous,
        workers.hosts.discovery,
        options.min_workers,
        options.workers,
        timeout=int(options.wait_timeout),
        cooldown_range=(options.cooldown, options.cooldown) if options.cooldown else None,
    )
    try:
        port = rendezvous.start(create_rendezvous_handler(driver))
        listening = create_run_env_vars(get_driver_ip([interface]), [interface], port, elastic=True)
        workers.environment = {name: str(value) for name, value in listening.items()}
        workers.environment["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(options.gloo_timeout)
        driver.start(options.workers, workers.run)
        # Not driver.get_results(): it can wait for a worker that was never started.
        last_seen = time.monotonic()
        while not driver.finished() and time.monotonic() - last_seen < NO_WORKER_S:
            time.sleep(POLL_S)
            if workers.living:
                last_seen = time.monotonic()
    finally:
        driver.stop()
        while workers.living:
            time.sleep(POLL_S)


def _checked_data(options: ElasticHorovodOptions) -> Samples:
    """Return the training set.

    Raises:
        UsageError: the batch is too small for these workers: some step or micro-batch would have no sample.
    """
    assert options.workers
    train = tasks.of(options).data(options.seed).train
    shares = equal_shares(len(train), options.workers)
    check_filled(shares, options.batch, options.steps)
    check_micro_batches(shares, options.batch, options.steps, options.accumulate)
    return train


def _words(options: ElasticHorovodOptions, folder: Path) -> list[str]:
    """Return the options as words for the workers' command line; the folder exists already."""
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    return to_arguments(given | {"out": folder.absolute()})


def _write_summary(
    scenario: str, options: ElasticHorovodOptions, folder: Path, left: list[Finished], shares: list[int]
) -> Summary:
    [leader] = [each for each in left if each.leader]
    left.sort(key=lambda each: each.number)
    return write_summary(
        folder,
        scenario,
        options,
        [
            {
                "rank": each.number,
                "sha256": each.sha256,
                "wall_s": each.wall_s,
                "bytes": 0,
                "messages": 0,
                "memory": None,
                "place": each.place,
            }
            for each in left
        ],
        [span for each in left for span in from_json(each.spans)],
        samples=samples_used(shares, options.batch, options.steps),
        bytes_are_counted=False,
        steps=options.steps,
        final_loss=leader.final_loss,
        test_metrics=leader.test_metrics,
        staleness=None,
        lead=None,
        cleaned=None,
        faults=EventLog(folder / "logbook.jsonl").faults(),
        diverged=divergence_in(folder),
    )


def _why(workers: Workers, options: ElasticHorovodOptions) -> str:
    """Return why the training is not complete, in one line."""
    if workers.waited_in_vain.is_set():
        return f"a worker has waited for the others longer than --wait-timeout {options.wait_timeout:g}"
    if workers.ended:
        return (
            f"Horovod has ended the workers that were left ({', '.join(map(str, sorted(workers.ended)))}): it takes no "
            "host again where one has failed (its blacklist), and "
            f"other hosts have not enough workers for --min-workers {options.min_workers}: let each worker have a host "
            "of its own, or give more hosts"
        )
    return f"all workers have failed ({', '.join(map(str, sorted(workers.failed)))})"
