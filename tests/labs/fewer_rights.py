"""Run a command with fewer rights than this process has, in the two ways in which graders have fewer.

    python fewer_rights.py WAY COMMAND…

WAY is a list of words with commas. "ordinary": as another user. "unprivileged": as root without any capability.
"alone": no namespaces may be made, as in a container with Docker's usual profile. "unlocked": no Landlock, as with an
older kernel. A seccomp filter refuses the calls. This program takes root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from pathlib import Path

import farandole
import farandole_tools
from farandole_tools import material

ORDINARY = 59_998  # a user without an account, so that no other process is its own
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 24, 38, 22, 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
REFUSED = {"x86_64": (272, 165, 308, 155), "aarch64": (97, 40, 268, 41)}  # unshare, mount, setns, pivot_root
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3, LANDLOCK = 435, 444
NAMESPACES = 0x7E020000

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def make_readable() -> None:
    """Let every user reach this Python and this checkout, in a mount namespace that ends with the command."""
    packages = (Path(each.__file__ or "").parent for each in (farandole, farandole_tools))
    places = {Path(each).resolve() for each in (sys.base_prefix, sys.prefix, *packages, material.folder("labs"))}
    closed = {place: _closed(place) for place in sorted(places)}
    call("unshare", CLONE_NEWNS)
    call("mount", b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
    originals = {place: os.open(place, os.O_PATH) for place, folder in closed.items() if folder}
    for folder in {each for each in closed.values() if each}:
        call("mount", b"none", bytes(folder), b"tmpfs", ctypes.c_ulong(0), b"mode=755")
    for place, original in originals.items():
        place.mkdir(parents=True, exist_ok=True)
        source = f"/proc/self/fd/{original}".encode()
        call("mount", source, bytes(place), None, ctypes.c_ulong(MS_BIND | MS_REC), None)


def _closed(place: Path) -> Path | None:
    """Return the outermost folder above it through which other users cannot pass."""
    return next((each for each in reversed(place.parents) if not each.stat().st_mode & 0o001), None)


def refuse(namespaces: bool, landlock: bool) -> None:
    """Refuse to this process and its children the calls with which namespaces are made, or Landlock is used."""
    machine = platform.machine()

    def statement(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_so, if_not, value)

    load, equal, any_bit, return_ = 0x20, 0x15, 0x45, 0x06
    program = [statement(load, 0)]
    if landlock:
        program += [statement(equal, LANDLOCK, 0, 1), statement(return_, REFUSE | errno.ENOSYS)]
    if namespaces:
        for number in REFUSED[machine]:
            program += [statement(equal, number, 0, 1), statement(return_, REFUSE | errno.EPERM)]
        # A newer call has its flags in memory, where no filter sees them: libc then uses the older one.
        program += [statement(equal, CLONE3, 0, 1), statement(return_, REFUSE | errno.ENOSYS)]
        program += [statement(equal, CLONE[machine], 0, 3), statement(load, 16), statement(any_bit, NAMESPACES, 0, 1)]
        program += [statement(return_, REFUSE | errno.EPERM)]
    program += [statement(return_, ALLOW)]
    text = b"".join(program)
    kept = ctypes.create_string_buffer(text, len(text))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(kept)))
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0)


def main(way: str, *command: str) -> None:
    words = set(way.split(","))
    make_readable()
    if "unprivileged" in words:
        for number in range(64):
            libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # those that this kernel has
    if "ordinary" in words:
        os.setgroups([])
        os.setresgid(ORDINARY, ORDINARY, ORDINARY)
        os.setresuid(ORDINARY, ORDINARY, ORDINARY)
    refuse("alone" in words, "unlocked" in words)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
