"""The card for tests: what it allows, what it refuses, and the result of a copy that is used too early."""

import copy
import ctypes
import json
import os
import resource
import signal

import torch
from torch import Tensor, nn

from farandole.data_parallel.backward_clock import BackwardClock
from farandole.recovery.horovod_world import HorovodWorld
from farandole.runtime import devices
from farandole.runtime.copy_stream import CopyStream
from farandole.runtime.faults import Slowness
from farandole.runtime.options import RunOptions
from farandole.runtime.trace import Trace
from farandole.runtime.world import World

CARD = torch.device("card", 1)
OTHER = torch.device("card", 0)


def pinned(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).pin_memory()


def refusal(what: object, *arguments: object) -> str:
    """Return how torch refuses the call."""
    try:
        what(*arguments)  # type: ignore[operator]
    except (RuntimeError, TypeError) as error:
        return str(error)
    return "nothing was refused"


def host_cannot_read() -> None:
    """A process that reads the card's memory dies, and numpy gets none of it."""
    there = torch.ones(4, device=CARD)
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(there.data_ptr(), 4)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV
    assert "convert" in refusal(there.numpy)
    assert "devices" in refusal(torch.add, there, torch.ones(4))
    assert "on the host" in refusal(torch.mm, torch.ones(2, 2, device=CARD), torch.ones(2, 2))
    assert "two cards" in refusal(torch.equal, there, torch.ones(4, device=OTHER))
    assert torch.empty(3, device=CARD).isnan().all(), "fresh memory is anything"


def copies_are_late() -> None:
    there, here = torch.arange(4.0, device=CARD), pinned(0, 0, 0, 0)
    here.copy_(there, non_blocking=True)
    assert here.isnan().all(), "the host has not waited"
    there.zero_()
    devices.finish(CARD)
    assert here.tolist() == [0, 1, 2, 3], "what comes later in the stream does not change it"

    source = pinned(1, 2)
    there = torch.zeros(2, device=CARD)
    there.copy_(source, non_blocking=True)
    source.fill_(7)
    assert there.tolist() == [7, 7], "the source was overwritten before it had been copied"
    there.copy_(pinned(3, 4), non_blocking=True)
    assert there.tolist() == [3, 4], "pinned memory is not used again before it has been copied"
    there.copy_(source.clone(), non_blocking=True)
    assert there.tolist() == [7, 7], "memory that is not pinned is copied at once"


def streams_are_apart() -> None:
    beside = torch.Stream(CARD)
    there, source = torch.zeros(2, device=CARD), pinned(5, 5)
    with beside:
        there.copy_(source, non_blocking=True)
        done = beside.record_event()
    assert there.tolist() == [0, 0], "nobody has waited for the other stream"
    torch.accelerator.current_stream(CARD).wait_event(done)
    assert (there + 1).tolist() == [6, 6]

    made, here = there * 2, pinned(0, 0)
    with beside:
        assert "has not waited" in refusal(lambda: here.copy_(made, non_blocking=True))
    copies = CopyStream(CARD)
    copies.follow()
    copied = copies.begin(here, made)
    devices.finish(CARD)
    assert here.isnan().all(), "another stream was waited for"
    copied.synchronize()
    assert here.tolist() == [10, 10]

    third = torch.Stream(CARD)
    with beside:
        there.copy_(pinned(8, 8), non_blocking=True)
    third.wait_stream(beside)
    torch.accelerator.current_stream(CARD).wait_stream(third)
    assert there.tolist() == [8, 8], "waiting is transitive"
    with beside:
        there.copy_(pinned(9, 9), non_blocking=True)
    torch.accelerator.synchronize(CARD)
    assert there.tolist() == [9, 9]
    assert there.to(OTHER).device == OTHER


def results_are_the_processors() -> None:
    torch.manual_seed(0)
    here = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(4 * 36, 5), nn.LayerNorm(5)
    )
    there = copy.deepcopy(here).to(CARD)
    inputs, labels = torch.randn(3, 2, 8, 8), torch.arange(3)
    for model, device in ((here, torch.device("cpu")), (there, CARD)):
        nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device)).backward()
    for own, its in zip(here.parameters(), there.parameters(), strict=True):
        assert own.grad is not None
        assert its.grad is not None
        assert torch.equal(own.grad, its.grad.cpu())


def random_numbers_are_the_cards() -> None:
    devices.seed_everything(3)
    before, host = devices.random_states(CARD), torch.get_rng_state()
    first = torch.rand(5, device=CARD)
    assert torch.equal(torch.get_rng_state(), host), "a card draws from its own generator"
    assert not torch.equal(torch.rand(5, device=CARD), first)
    devices.set_random_states(before, CARD)
    assert torch.equal(torch.rand(5, device=CARD), first)
    assert torch.equal(torch.rand(5, device=OTHER).cpu(), first.cpu()), "both cards were seeded"


def libraries_are_reproducible() -> None:
    devices.make_reproducible(CARD)
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.allow_tf32
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] in devices.arithmetic()


def clocks_wait_for_kernels_alone() -> None:
    """A computation lasts exactly as long as its kernels, which run on after their calls."""
    kernel_s = int(os.environ["FARANDOLE_TEST_CARD_KERNEL_US"]) / 1e6
    inputs, there, here = torch.ones(2, 3, device=CARD), torch.ones(2, device=CARD), pinned(0, 0)
    devices.finish(CARD)
    copies = CopyStream(CARD)
    with World.start(RunOptions(device="auto")) as world:
        world.device = CARD
        horovod = HorovodWorld.__new__(HorovodWorld)
        horovod.device, horovod.trace, horovod._slowness = CARD, Trace(0), Slowness([], 0, 0)
        before = counts()
        with horovod.compute("forward", 0):
            for _ in range(100):
                inputs.add_(1)
        (forward,) = horovod.trace.spans
        assert forward.end - forward.start >= (counts()["kernels"] - before["kernels"]) * kernel_s

        model = nn.Linear(3, 1).to(CARD)
        clock = BackwardClock(world, model)
        devices.finish(CARD)
        before = counts()
        clock.start()
        copies.begin(here, there)
        model(inputs).sum().backward()
        clock.backward_has_ended()
        clock.communicated()
        after = counts()
        computed, communicated = world.trace.spans[-2:]
        assert computed.end - computed.start >= (after["kernels"] - before["kernels"]) * kernel_s
        assert communicated.start == computed.end
        assert here.isnan().all(), "the clock has waited for a copy beside the computation"
        assert after["device_waits"] == before["device_waits"]


def counts() -> dict[str, int]:
    found: dict[str, int] = torch.get_device_module(CARD).counts()
    return found


if __name__ == "__main__":
    rules = (
        host_cannot_read, copies_are_late, streams_are_apart, results_are_the_processors,
        random_numbers_are_the_cards, libraries_are_reproducible, clocks_wait_for_kernels_alone,
    )  # fmt: skip
    for rule in rules:
        rule()
    print(json.dumps([rule.__name__ for rule in rules]))
