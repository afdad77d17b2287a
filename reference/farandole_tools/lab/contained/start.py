"""Start a program in a sandbox: namespaces of its own, another user, limits.

    python -I -S start.py SPECIFICATION

SPECIFICATION is JSON (`sandbox.Sandbox` writes it). The standard library alone, and Linux's own calls: nothing else has
to be installed. Three processes follow each other:

    this one ── fork ──→ the first process of the new namespaces ── fork ──→ the program, as another user
    waits, and ends      builds the file system, then waits               has no rights left
    with its parent      when it ends, the kernel kills all in the namespace

The new file system is a small one in memory in which only what the specification names is visible, read-only.

Where the machine permits no namespaces this process supervises the program, and ends whatever that has started. The
program has limits, and is another user where the specification says so. With Landlock, a part of the kernel that every
user may use, it can only open what the specification names, and signal no process but its own.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

CLONE = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446  # the same numbers on every architecture
LANDLOCK_READ, LANDLOCK_LIST = 0b1101, 0b1000  # execute, read files and folders; read folders
LANDLOCK_FILE = 0b111 | 3 << 14  # what concerns files
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
DEVICES = ("null", "zero", "full", "random", "urandom")
NAMESPACES = ("root", "user")  # the modes that have them
INSIDE = 1000  # the user's number inside a user namespace

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    found: int = getattr(libc, name)(*arguments)
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return found


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    coded = [each if each is None else os.fsencode(each) for each in (source, target, kind)]
    call("mount", *coded, ctypes.c_ulong(flags), data if data is None else data.encode())


def bind(source: str, root: str, place: str = "", writable: bool = False) -> None:
    """Show a file or folder in the new file system, at its own place or another, read-only if not `writable`."""
    target = root + (place or source)
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, flags=MS_BIND | MS_REC)
    if writable or source.startswith("/dev/"):
        return
    # What the original mount forbids has to stay forbidden, or the kernel refuses in a user namespace.
    kept = os.statvfs(source).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC | 1024 | 2048)
    mount(None, target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | kept)


def build(spec: dict[str, Any]) -> None:
    """Make the file system and move into it."""
    root = spec["root"]
    mount(None, "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=4m")
    for path in spec["readable"]:
        if os.path.islink(path):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            os.symlink(os.readlink(path), root + path)
        elif os.path.exists(path):
            bind(path, root)
    for path in spec["hidden"]:
        if os.path.isdir(root + path):
            mount("tmpfs", root + path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k")
    for path in spec["writable"]:
        bind(path, root, writable=True)
    for path in spec["shown"]:
        bind(path, root)
    for path in spec["hidden"]:
        if os.path.ismount(root + path):
            mount(None, root + path, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    for path, place in spec["placed"]:
        bind(path, root, place)
    for name in DEVICES:
        bind("/dev/" + name, root)
    os.makedirs(root + spec["scratch"], exist_ok=True)
    options = f"mode=1777,size={spec['scratch_bytes']},nr_inodes={spec['scratch_files']}"
    mount("tmpfs", root + spec["scratch"], "tmpfs", MS_NOSUID | MS_NODEV, options)
    os.makedirs(root + "/proc", exist_ok=True)
    with suppress(OSError):  # some containers forbid it, and nothing here needs it
        mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    old = root + "/.old"
    os.mkdir(old)
    call("pivot_root", os.fsencode(root), os.fsencode(old))
    os.chdir("/")
    call("umount2", b"/.old", MNT_DETACH)
    os.rmdir("/.old")
    if not os.path.lexists("/tmp"):
        os.symlink(spec["scratch"], "/tmp")
    mount(None, "/", flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def map_user(outer_user: int, outer_group: int, inner: int) -> None:
    with open("/proc/self/setgroups", "w") as file:
        file.write("deny")
    with open("/proc/self/uid_map", "w") as file:
        file.write(f"{inner} {outer_user} 1")
    with open("/proc/self/gid_map", "w") as file:
        file.write(f"{inner} {outer_group} 1")


def drop_rights(spec: dict[str, Any]) -> None:
    if spec["mode"] == "user":
        call("unshare", CLONE["user"])
        map_user(0, 0, INSIDE)
    elif spec["user"]:
        os.setgroups([])
        os.setresgid(spec["user"], spec["user"], spec["user"])
        os.setresuid(spec["user"], spec["user"], spec["user"])
    if sys.platform == "linux":
        call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def landlock_version() -> int:
    """Return the version of Landlock that this kernel has; 0 if it has none, or it is switched off."""
    if sys.platform != "linux":
        return 0
    return max(0, int(libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)))


def restrict(spec: dict[str, Any]) -> None:
    """Let this process and its children open only what the specification names, by Landlock.

    From version 4 they can also use no TCP, from version 6 signal no process that is not theirs.
    """
    version = landlock_version()
    rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    handled = struct.pack("=QQQ", rights, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = call("syscall", LANDLOCK_CREATE, handled, ctypes.c_size_t(len(handled)), 0)
    readable = {os.path.realpath(path) for path in (*spec["readable"], *spec["shown"])}
    allowed = dict(part for path in readable for part in parts(path, spec["hidden"]))
    own = (spec["scratch"], *spec["writable"])
    allowed |= dict.fromkeys((*(f"/dev/{name}" for name in DEVICES), *own), rights)
    for path, right in allowed.items():
        with suppress(FileNotFoundError):
            place = os.open(path, os.O_PATH)
            right &= rights if os.path.isdir(path) else rights & LANDLOCK_FILE
            call("syscall", LANDLOCK_ADD, rules, 1, struct.pack("=Qi", right, place), 0)
            os.close(place)
    call("syscall", LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


def parts(path: str, hidden: list[str]) -> Iterator[tuple[str, int]]:
    """Yield what may be read, with the rights, of a path in which something is hidden.

    No rule can take back what another allows, so each of its parts has one. The names of the hidden files stay visible:
    Python has to list the folders that they are in.
    """
    if path in hidden:
        return
    if not any(each.startswith(path.rstrip("/") + "/") for each in hidden):
        yield path, LANDLOCK_READ
        return
    yield path, LANDLOCK_LIST
    for name in os.listdir(path):
        inner = os.path.join(path, name)
        if not os.path.islink(inner):
            yield from parts(inner, hidden)


def become(spec: dict[str, Any]) -> NoReturn:
    """Replace this process by the program."""
    os.setsid()
    for name, value in spec["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            _, hard = resource.getrlimit(kind)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))
    os.chdir(spec["scratch"])
    if run := spec.get("run"):  # of `forks`: the program runs in this process
        run()
    os.execve(spec["command"][0], spec["command"], spec["environment"])


def end_with_parent(parent: int, by: int = signal.SIGKILL) -> None:
    if sys.platform == "linux":
        call("prctl", PR_SET_PDEATHSIG, by, 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(1)


def wait_for(child: int) -> int:
    """Wait for that child, and for orphans that end meanwhile; return the child's exit code."""
    while True:
        try:
            ended, status = os.wait()
        except InterruptedError:
            continue
        if ended == child:
            return os.waitstatus_to_exitcode(status) % 256


def supervise(spec: dict[str, Any]) -> NoReturn:
    """Run the program without namespaces. When it ends, or this process is told to end, end all that it has started."""
    end_with_parent(spec["parent"], signal.SIGTERM)
    if sys.platform == "linux":
        call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of this process
    supervisor = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    program = os.fork()
    if not program:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        drop_rights(spec)
        end_with_parent(supervisor)  # after the change of the user, which would clear it
        if spec["mode"] == "landlock":
            restrict(spec)
        become(spec)

    def stop(*_: object) -> NoReturn:
        end_children(program)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for descriptor in spec["descriptors"]:
        os.close(descriptor)
    code = wait_for(program)
    end_children(program)
    os._exit(code)


def end_children(group: int) -> None:
    """Kill all children of this process, and those that become its children by that, until there are none."""
    while True:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
        with suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children") as children:
            for child in children.read().split():
                with suppress(OSError):
                    os.kill(int(child), signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def main(spec: dict[str, Any]) -> NoReturn:
    os.umask(0o022)  # another user has to be able to read what is made here
    if spec["mode"] not in NAMESPACES:
        supervise(spec)
    end_with_parent(spec["parent"])
    flags = CLONE["mount"] | CLONE["uts"] | CLONE["ipc"] | CLONE["pid"] | CLONE["net"]
    user, group = os.getuid(), os.getgid()
    if spec["mode"] == "user":
        call("unshare", CLONE["user"] | flags)
        map_user(user, group, 0)
    else:
        call("unshare", flags)
    first = os.fork()
    if first:
        for descriptor in spec["descriptors"]:
            os.close(descriptor)  # the other end has to see when the program ends
        os._exit(wait_for(first))
    end_with_parent(0)
    build(spec)
    with suppress(OSError):
        loopback()
    program = os.fork()
    if program:
        for descriptor in spec["descriptors"]:
            os.close(descriptor)
        os._exit(wait_for(program))
    drop_rights(spec)
    become(spec)


def run(spec: dict[str, Any]) -> NoReturn:
    try:
        main(spec)
    except OSError as error:
        print(f"no sandbox: {error}", file=sys.stderr)
        os._exit(125 if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EINVAL, errno.ENOSYS) else 126)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
