"""A simulated disk: what a real one promises when the machine stops, and nothing beyond it.

Writing, renaming and removing return when the operating system has noted them down in memory; they
are on the disk only after a `sync`, of the file or of the folder. When the machine stops without
that, of everything since

- a file written and not synced has what it had at its last sync, or the first bytes of what was
  written, any number of them (0: it is there and empty);
- each creation, rename and removal has happened or has not, whatever became of the others, and the
  sync of a file says nothing about its name.

What is synced is there, and a rename is never half done. POSIX promises no more: fsync(2) says that a
new name needs a sync of the folder. Real file systems often do better, each in its own way (Pillai
et al. 2014, "All file systems are not created equal"); a program that relies on it is right by luck.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from random import Random

LIMIT = 4096  # states after a crash: more than this are not gone through but sampled


@dataclass(eq=False)
class _File:
    """A file's bytes, whatever its name: on the disk, and each time it was written since."""

    on_disk: bytes = b""
    written: list[bytes] = field(default_factory=list)

    @property
    def newest(self) -> bytes:
        return self.written[-1] if self.written else self.on_disk


@dataclass(frozen=True, eq=False)
class _Change:
    """A change of names that is not on the disk yet: `gone` is no name any more, `new` is that of `file`."""

    call: str
    gone: str | None
    new: str | None
    file: _File

    def apply(self, folder: dict[str, _File]) -> None:
        if self.gone:
            folder.pop(self.gone, None)
        if self.new:
            folder[self.new] = self.file


@dataclass(frozen=True)
class Crash:
    """The state of the disk after the machine has stopped, and in words which of the last calls it contains."""

    files: dict[str, bytes]
    told: str


class Disk:
    """One folder of files. Names have no "/"; nothing is opened or closed.

    Args:
        files: what is on the disk in the beginning.
    """

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self._folder = {name: _File(data) for name, data in (files or {}).items()}
        self._folder_on_disk = dict(self._folder)
        self._changes: list[_Change] = []
        self._after: Callable[[str], None] | None = None

    def write(self, name: str, data: bytes) -> None:
        """Make `data` the whole content of the file, which is created if it is not there."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"write takes bytes, not {type(data).__name__}")
        _check(name)
        call = f"write({name!r}, {len(bytes(data))} bytes)"
        if name not in self._folder:
            self._change(_Change(f"the creation of {name!r}", None, name, _File()))
        self._folder[name].written.append(bytes(data))
        self._done(call)

    def sync(self, name: str) -> None:
        """Return once the file's content is on the disk (fsync of a file). Its name may still not be."""
        file = self._file(name)
        file.on_disk, file.written = file.newest, []
        self._done(f"sync({name!r})")

    def rename(self, old: str, new: str) -> None:
        """Give the file another name. A file that had the name `new` is gone. Atomic: never half done."""
        _check(new)
        if (file := self._file(old)) is not self._folder.get(new):
            self._change(_Change(f"rename({old!r}, {new!r})", old, new, file))
        self._done(f"rename({old!r}, {new!r})")

    def remove(self, name: str) -> None:
        self._change(_Change(f"remove({name!r})", name, None, self._file(name)))
        self._done(f"remove({name!r})")

    def sync_folder(self) -> None:
        """Return once all names are on the disk (fsync of the folder). The files' contents may still not be."""
        self._folder_on_disk, self._changes = dict(self._folder), []
        self._done("sync_folder()")

    def read(self, name: str) -> bytes:
        """Return the content as last written, on the disk or not."""
        return self._file(name).newest

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._folder)

    def files(self) -> dict[str, bytes]:
        """Return all names and contents."""
        return {name: self.read(name) for name in self.names()}

    def after_crash(self, limit: int = LIMIT, seed: int = 0) -> Iterator[Crash]:
        """Yield the states of the disk if the machine stops now, each once, that with everything first.

        Every state if there are no more than `limit` ways to get there, else a random sample of them,
        the same for the same seed.
        """
        files = (*self._folder.values(), *self._folder_on_disk.values(), *(change.file for change in self._changes))
        unsynced = [file for file in {id(file): file for file in files}.values() if file.written]
        contents = [_possible(file) for file in unsynced]
        seen = set()
        for lacking in _choices([2] * len(self._changes) + [len(possible) for possible in contents], limit, seed):
            missing = [change for change, lacks in zip(self._changes, lacking, strict=False) if lacks]
            folder = dict(self._folder_on_disk)
            for change in self._changes:
                if change not in missing:
                    change.apply(folder)
            kept = zip(unsynced, contents, lacking[len(self._changes) :], strict=True)
            content = {id(file): possible[which] for file, possible, which in kept}
            found = {name: content.get(id(file), file.on_disk) for name, file in sorted(folder.items())}
            if (state := tuple(found.items())) not in seen:
                seen.add(state)
                yield Crash(found, _told(found, {name: file.newest for name, file in folder.items()}, missing))

    def _change(self, change: _Change) -> None:
        self._changes.append(change)
        change.apply(self._folder)

    def _file(self, name: str) -> _File:
        if name not in self._folder:
            raise FileNotFoundError(f"there is no file {name!r}; there are {self.names()}")
        return self._folder[name]

    def _done(self, call: str) -> None:
        if self._after:
            self._after(call)


def moments(disk: Disk, work: Callable[[Disk], object]) -> list[tuple[str, Disk]]:
    """Let `work` use the disk; each call that changed something, and a copy of the disk as it was after it."""
    found: list[tuple[str, Disk]] = []

    def note(call: str) -> None:
        disk._after = None  # the copy notes nothing
        found.append((call, copy.deepcopy(disk)))
        disk._after = note

    disk._after = note
    try:
        work(disk)
    finally:
        disk._after = None
    return found


def _possible(file: _File) -> list[bytes]:
    """Return the contents that a file that is not synced may have: all of it, the old ones, or a beginning."""
    beginnings = (data[:length] for data in reversed(file.written) for length in range(len(data) + 1))
    return list(dict.fromkeys((file.newest, file.on_disk, *beginnings)))


def _choices(sizes: list[int], limit: int, seed: int) -> Iterator[tuple[int, ...]]:
    """A number below each size, in all combinations, the last changing first; if those are too many, `limit`."""
    if prod(sizes) <= limit:
        yield from product(*map(range, sizes))
        return
    random = Random(seed)
    yield tuple(0 for _ in sizes)
    yield tuple(size - 1 for size in sizes)
    for _ in range(limit - 2):
        yield tuple(random.randrange(size) for size in sizes)


def _told(found: dict[str, bytes], newest: dict[str, bytes], missing: list[_Change]) -> str:
    parts = []
    for name, content in found.items():
        whole = newest[name]
        if content != whole:
            there = f"{len(content)} of the {len(whole)} bytes" if whole.startswith(content) else "an older content"
            parts.append(f"{there} of {name!r}")
    words = [f"with {' and '.join(parts)}"] if parts else []
    words += [f"without {' and '.join(change.call for change in missing)}"] if missing else []
    return f"{' and '.join(words) or 'with everything'} on the disk"


def _check(name: str) -> None:
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(f"{name!r} is no name of a file: some letters without '/' are needed")
