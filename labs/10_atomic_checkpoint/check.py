"""Checks of lab 10: after a crash at any point, and damage to any byte, a whole checkpoint is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from farandole_tools.lab import Check, Lab, expect
from farandole_tools.lab.disk import LIMIT, Disk, moments

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

Files = dict[str, bytes]
Happened = tuple[str, Files]  # in words, and what is on the disk then

SAVES = (10, 20, 30, 40)
BETWEEN = 15  # a run that went back to step 10 may save here next
UNEVEN = (0, 1, 2, 3, 9, 10, 11, 12, 99, 100, 2**33)  # of which "10" comes before "9"
PAYLOADS = (b"", bytes(3), b"\n", b"a\r\nb\n", bytes(range(256)), bytes(70_000))

ROUNDS = 24
LARGE = Random(0).randbytes(2000)
FILES, ROOM = 10, 5  # the most files, and the most bytes in checkpoints


def payload_of(step: int) -> bytes:
    """Return the payload of a step. A short one follows a long one, so that remains of the long one are detected."""
    return Random(step).randbytes(24 if step // 10 % 2 else 17)


STEP_OF = {payload_of(step): step for step in (*SAVES, BETWEEN, *UNEVEN)}


def check_load(student: Any, comm: LabCommunicator) -> None:
    expect_loaded(student, {}, (None,), "nothing has been saved")
    for steps in (SAVES, UNEVEN):
        disk = Disk()
        for step in steps:
            save(student, disk, step)
            expect_loaded(student, disk.files(), (step,), f"step {step} has just been saved")
    for payload in PAYLOADS:
        disk = Disk()
        student.save(disk, 7, payload)
        given = student.load(disk)
        right = isinstance(given, tuple | list) and tuple(given) == (7, payload)
        expect(right, f"(7, {payload[:20]!r}) has been saved, and load returns {str(given)[:60]}")
    remembered = student.load(Disk())
    expect(remembered is None, "from an empty disk load returns what was saved on another: keep state only on the disk")


def check_crash(student: Any, comm: LabCommunicator) -> None:
    for number, step in enumerate(SAVES):
        expect_no_crash_loses(student, comm, saved(student, SAVES[:number]), step, (None, *SAVES)[number])


def check_durable(student: Any, comm: LabCommunicator) -> None:
    disk = Disk()
    for step in SAVES:
        save(student, disk, step)
        for crash in disk.after_crash():
            with comm.case(f"the machine stopped right after the save of step {step} had returned, {crash.told}"):
                expect_loaded(student, crash.files, (step,), f"step {step} had been saved")


def check_flipped_bytes(student: Any, comm: LabCommunicator) -> None:
    for steps in (SAVES[:2], SAVES[:3]):
        files = written(student, steps)
        for told, damaged in (*flips(files), *exchanges(files)):
            with comm.case(told):
                expect_newer_or_older(student, damaged, steps, files)
        random = Random(0)
        for _ in range(200):
            everywhere = {name: flipped(data, random.randrange(8 * len(data))) for name, data in files.items() if data}
            with comm.case("a bit of every file flipped"):
                expect_loaded(student, files | everywhere, (None, *steps), "")


def check_truncated(student: Any, comm: LabCommunicator) -> None:
    for steps in (SAVES[:2], SAVES[:3]):
        files = written(student, steps)
        for name, data in files.items():
            for length in range(len(data)):
                with comm.case(f"only {length} of the {len(data)} bytes of {name!r} left"):
                    expect_newer_or_older(student, files | {name: data[:length]}, steps, files)
        for length in range(max(map(len, files.values()))):
            with comm.case(f"only the first {length} bytes of every file left"):
                expect_loaded(student, {name: data[:length] for name, data in files.items()}, (None, *steps), "")


def check_good_slot(student: Any, comm: LabCommunicator) -> None:
    for happened, files in mishaps(student):
        with comm.case(happened):
            previous = recognised(student.load(Disk(files)))
        for step in (BETWEEN, 20, 30):
            if previous is not None and step <= previous:
                continue
            with comm.case(f"first {happened}"):
                disk = expect_no_crash_loses(student, comm, Disk(files), step, previous, limit=50, again=True)
            for told, damaged in some_damage(disk.files()):
                with comm.case(f"{happened}; step {step} was saved; then {told}"):
                    lost = partial(why_lost, student, files, disk.files(), step, previous)
                    expect_loaded(student, damaged, (step, previous), f"step {previous} was whole", lost)


def check_room(student: Any, comm: LabCommunicator) -> None:
    """Many saves; in every second one the machine stops somewhere."""
    disk = Disk()
    random = Random(0)
    crashes = one = 0
    for number in range(ROUNDS):
        calls = moments(disk, partial(save, student, step=number, payload=LARGE))
        expect(disk.names(), "save leaves nothing on the disk")
        one = one or sum(map(len, disk.files().values()))
        for _, moment in calls:
            files = moment.files()
            room = sum(map(len, files.values()))
            said = f"in save number {number + 1}, after {crashes} in which the machine stopped, there are"
            names = ", ".join(files)[:80]
            expect(
                len(files) <= FILES, f"{said} {len(files)} files, and more with each: what removes them? ({names} …)"
            )
            expect(
                room <= ROOM * one,
                f"{said} {room:,} bytes on the disk, {room / one:.1f} times what one checkpoint needs ({names})",
            )
        if number % 2:
            crashes += 1
            _, moment = random.choice(calls)
            disk = Disk(random.choice(list(moment.after_crash(limit=16, seed=number))).files)


def check_another_process(student: Any, comm: LabCommunicator) -> None:
    """Rank 0 saves; each of the others has only what is then on the disk."""
    *before, step = SAVES
    files = written(student, tuple(before)) if comm.rank == 0 else {}
    message = json.dumps({name: data.hex() for name, data in files.items()}).encode()
    text = comm.everybodys(np.frombuffer(message, dtype=np.uint8))[0].tobytes()
    files = {name: bytes.fromhex(data) for name, data in json.loads(text).items()}
    if comm.rank == 0 and comm.size > 1:
        return
    save(student, Disk(), 99)  # on another disk, which must make no difference
    loaded = student.load(Disk(files))
    expect(
        loaded is not None,
        f"load returns None, but another process, rank 0, has saved step {before[-1]}: does a variable or a checksum "
        "depend on the process? Python's hash() differs in each; hashlib and zlib are the same everywhere",
    )
    expect_loaded(student, files, (before[-1],), f"another process, rank 0, has saved step {before[-1]}")
    disk = Disk(files)
    save(student, disk, step)
    expect_loaded(student, disk.files(), (step,), f"step {step} has just been saved, after step {before[-1]} by rank 0")


def save(student: Any, disk: Disk, step: int, payload: bytes = b"") -> None:
    student.save(disk, step, payload or payload_of(step))


def saved(student: Any, steps: tuple[int, ...]) -> Disk:
    """The disk after these saves, long enough after each for all of it to be there, synced or not."""
    disk = Disk()
    for step in steps:
        save(student, disk, step)
        disk = Disk(disk.files())
    return disk


def written(student: Any, steps: tuple[int, ...]) -> Files:
    files = saved(student, steps).files()
    expect(any(files.values()), "save leaves nothing on the disk")
    return files


def mishaps(student: Any) -> Iterator[Happened]:
    """Step 10 has been saved, and something went wrong in the save of step 20, or later."""
    for call, moment in moments(saved(student, SAVES[:1]), partial(save, student, step=20)):
        crashes = list(moment.after_crash())
        for crash in crashes[:: len(crashes) // 8 + 1]:
            yield f"the machine stopped in the save of step 20, after {call}, {crash.told}", crash.files
    for told, damaged in some_damage(written(student, SAVES[:2]), bit=1):
        yield f"steps 10 and 20 were saved, then {told}", damaged


def expect_no_crash_loses(
    student: Any,
    comm: LabCommunicator,
    disk: Disk,
    step: int,
    previous: int | None,
    limit: int = LIMIT,
    again: bool = False,
) -> Disk:
    """Wherever the machine stops in the save of `step`, it is loaded, or `previous`. The disk after that save.

    Args:
        again: something has gone wrong before, after which `previous` was loaded.
    """
    files = disk.files()
    calls = moments(disk, partial(save, student, step=step))
    expect(calls, f"the save of step {step} changes nothing on the disk")
    before = "nothing" if previous is None else f"step {previous}"
    reason = f"{before} {'was loaded before it' if again else 'had been saved'}, and step {step} was on its way"
    believed = partial(why_temporary, files, [call for call, _ in calls], disk.files(), previous)
    seen = set()
    for call, moment in calls:
        for crash in moment.after_crash(limit):
            if (state := frozenset(crash.files.items())) not in seen:
                seen.add(state)
                when = f"{'then ' * again}the machine stopped in the save of step {step}, after {call}, {crash.told}"
                with comm.case(when):
                    expect_loaded(student, crash.files, (step, previous), reason, believed)
    return disk


def expect_newer_or_older(student: Any, damaged: Files, steps: tuple[int, ...], files: Files) -> None:
    """The last two of `steps` have been saved, and what has become of the files harmed one of them at most."""
    *before, older, newer = steps
    reason = f"steps {older} and {newer} had been saved and only one is damaged"

    def lost() -> str:
        return why_lost(student, saved(student, (*before, older)).files(), files, newer, older)

    expect_loaded(student, damaged, (older, newer), reason, lost)


def expect_loaded(
    student: Any, files: Files, allowed: tuple[int | None, ...], reason: str, why: Callable[[], str] = str
) -> None:
    """`load` gives one of the steps `allowed` (None: nothing), with its payload; if not, `reason` says why it should.

    Args:
        files: all that is on the disk.
        why: called if not, for what to look at.
    """
    step = recognised(student.load(Disk(files)))
    if step not in allowed:
        expect(False, f"load returns {'None' if step is None else f'step {step}'}, but {reason}{why()}")


def holding(files: Files, step: int | None) -> set[str]:
    """Return the files that contain the step's payload: none if payloads are written in another form."""
    return {name for name, data in files.items() if step is not None and payload_of(step) in data}


def why_lost(student: Any, before: Files, after: Files, step: int, older: int | None) -> str:
    """Return a hint if the save of `step` has left no file with the older checkpoint."""
    if holding(after, older) or not holding(after, step):
        return ""
    disk = Disk(before)
    save(student, disk, step)
    if holding(disk.files(), step) != holding(after, step):
        hint = "does the choice of the file depend on something that is not on the disk?"
    else:
        hint = f"has step {step} overwritten it?"
    return f"; step {older} is in no file any more: {hint}"


def why_temporary(before: Files, calls: list[str], after: Files, older: int | None) -> str:
    """Return a hint if the older checkpoint was only in a file that a save writes first and then renames."""
    written = {name for name in holding(before, older) for call in calls if call.startswith(f"write({name!r},")}
    temporary = holding(before, older) == written - after.keys()
    return ": did load accept a temporary file, which the next save has overwritten?" if written and temporary else ""


def recognised(given: Any) -> int | None:
    """Return the step of the checkpoint that `load` returned; report one that has never been saved."""
    if given is None:
        return None
    expect(
        isinstance(given, tuple | list) and len(given) == 2,
        f"load returns {str(given)[:60]}, where (step, payload) or None is needed",
    )
    step, payload = given
    expect(
        isinstance(step, int) and isinstance(payload, bytes),
        f"load returns ({type(step).__name__}, {type(payload).__name__}), where (int, bytes) is needed",
    )
    owner = STEP_OF.get(payload)
    expect(owner is not None, f"load returns step {step} with a payload that has never been saved: damaged, or mixed")
    expect(step == owner, f"load returns the payload of step {owner} as that of step {step}")
    return owner


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def flips(files: Files) -> Iterator[Happened]:
    for name, data in files.items():
        for bit in range(8 * len(data)):
            yield f"a bit flipped in byte {bit // 8} of {name!r}", files | {name: flipped(data, bit)}


def exchanges(files: Files) -> Iterator[Happened]:
    for name, data in files.items():
        for place in range(len(data) - 1):
            turned = data[:place] + data[place : place + 2][::-1] + data[place + 2 :]
            yield f"bytes {place} and {place + 1} of {name!r} exchanged", files | {name: turned}


def some_damage(files: Files, bit: int = 0) -> Iterator[Happened]:
    """In one file a bit of the first, the middle or the last byte; half of it gone; all of it.

    Args:
        bit: which one; the same twice would be none.
    """
    for name, data in files.items():
        for place in sorted({0, len(data) // 2, len(data) - 1} if data else ()):
            yield f"a bit flipped in byte {place} of {name!r}", files | {name: flipped(data, 8 * place + bit)}
        for length in sorted({0, len(data) // 2} if data else ()):
            yield f"only {length} bytes of {name!r} left", files | {name: data[:length]}


LAB = Lab(
    title="Atomic checkpoint",
    file="atomic_checkpoint.py",
    checks=(
        Check("load", 1, (1,), check_load),
        Check("crash", 2, (1,), check_crash, builds_on=("load",)),
        Check("durable", 2, (1,), check_durable, builds_on=("load",)),
        Check("flipped bytes", 1, (1,), check_flipped_bytes, builds_on=("load",)),
        Check("truncated", 1, (1,), check_truncated, builds_on=("load",)),
        Check(
            "good slot",
            1,
            (1,),
            check_good_slot,
            builds_on=("load", "crash", "durable", "flipped bytes", "truncated"),
        ),
        Check("room", 1, (1,), check_room, needs=("load",)),
        Check("another process", 1, (2,), check_another_process, builds_on=("load",)),
    ),
)
