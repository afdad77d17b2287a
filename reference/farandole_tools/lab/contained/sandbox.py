"""A submission's sandbox: what is visible in it, its limits, and which means of isolation this machine has."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil

from farandole.runtime import rank
from farandole_tools import material
from farandole_tools.lab.contained import start
from farandole_tools.lab.contained.fork_client import Fork, fork
from farandole_tools.lab.contained.start import NAMESPACES

Mode = Literal["root", "user", "landlock", "account", "none"]

MODES: dict[Mode, str] = {
    "root": "Linux namespaces (unshare: mount, pid, net, ipc, uts) and another user",
    "user": "Linux namespaces (unshare: user, mount, pid, net, ipc, uts)",
    "landlock": "Landlock (files, signals, TCP) and limits, and no namespaces: this machine permits none to this user",
    "account": "another user and limits, and no namespaces: a submission can read what every user of this machine can",
    "none": "a separate process with limits, and no namespaces: a submission may do what you may",
}

MEMORY = 2**30  # bytes a submission may take, per rank
FILE_SIZE = 2**26  # bytes it may write into one file, and print
SCRATCH = FILE_SIZE + 2**24  # bytes of all its files
FILES = 2000
PROCESSES = 64  # with threads
LIMITS = {
    "DATA": MEMORY + 2**26,
    "AS": 4 * 2**30,
    "FSIZE": FILE_SIZE,
    "NOFILE": 128,
    "CORE": 0,
    "NPROC": PROCESSES,
    "MSGQUEUE": 0,
    "MEMLOCK": 0,
}
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime")
FIRST_USER = 20_000  # a number per process, which no account has
USERS = 40_000
TORCH_SPACE = 2**36  # bytes of addresses: torch for GPUs has files of several GB, which take memory only where read
TORCH = (
    "torch", "torchgen", "functorch", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock",
    "typing_extensions", "triton", "nvidia",
)  # fmt: skip
STARTER = Path(__file__).with_name("start.py")
PROBE_S = 30.0
PREFIX = "farandole-lab-"  # of the folder of a launch
OTHERS_TASKS = 128  # processes and threads that this user may start elsewhere meanwhile
CAP_CHOWN, CAP_SETGID, CAP_SETUID = 0, 6, 7


@dataclass(frozen=True)
class Sandbox:
    """A place for one program.

    Attributes:
        mode: the means of isolation.
        folder: a folder of this sandbox alone, in which the grader may write.
        shown: files and folders that are visible inside, read-only, at their own places.
        descriptors: file descriptors that the program inherits.
        writable: folders in which the program may write, and other sandboxes read.
        with_torch: torch is visible.
    """

    mode: Mode
    folder: Path
    shown: tuple[Path, ...] = ()
    descriptors: tuple[int, ...] = ()
    writable: tuple[Path, ...] = ()
    with_torch: bool = False

    @property
    def scratch(self) -> Path:
        """Return the only folder in which the program may write, and in which it begins."""
        return self.folder / "scratch"

    def start(self, command: list[str], output: int) -> subprocess.Popen[bytes]:
        """Start `command`; what it prints goes to the file descriptor `output`."""
        specification = json.dumps(self._specification() | {"command": command})
        return subprocess.Popen(
            [python(), "-I", "-S", "-B", str(STARTER), specification],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=self.descriptors,
            cwd="/",
        )

    def start_python(self, program: str, output: int) -> subprocess.Popen[bytes] | Fork:
        """Start a Python that runs the text `program`: if torch is visible, a fork of one that has imported it."""
        if self.with_torch and (forked := fork(self._specification() | {"program": program}, output)):
            return forked
        return self.start([*python_command(), "-c", program], output)

    def _specification(self) -> dict[str, Any]:
        """Make the folders of the sandbox; return what `start.py` has to know."""
        root = self.folder / "root"
        for folder in (root, self.scratch):
            folder.mkdir(exist_ok=True)
        user = FIRST_USER + self._number() % USERS if self._changes_user() else 0
        for folder in self.writable if user else ():
            os.chown(folder, user, user)
        limits = LIMITS | ({"AS": TORCH_SPACE} if self.with_torch else {})
        if self.mode not in NAMESPACES:
            if user:
                os.chown(self.scratch, user, user)
                self._let_through()
            else:
                limits["NPROC"] += _tasks() + OTHERS_TASKS  # all of this user's count
        return {
            "mode": self.mode,
            "parent": os.getpid(),
            "user": user,
            "root": str(root),
            "readable": [*SYSTEM, *_python(), *self._for_torch()],
            "hidden": [*_own(), *_packages()],
            "writable": [str(path) for path in self.writable],
            "placed": [[str(self._accounts(user)), "/etc/passwd"]],
            "shown": [str(path) for path in (*_resolved(packages(self.with_torch)), *self.shown)],
            "scratch": str(self.scratch),
            "scratch_bytes": SCRATCH,
            "scratch_files": FILES,
            "limits": limits,
            "descriptors": list(self.descriptors),
            "environment": self._environment(),
        }

    def _number(self) -> int:
        """Return what makes the user's number: sandboxes that write into the same folder have the same user."""
        return zlib.crc32(str(self.writable[0]).encode()) if self.writable else os.getpid()

    def _for_torch(self) -> list[str]:
        """Return what torch reads to choose how it computes: with another choice sums would be rounded differently."""
        return ["/proc/cpuinfo"] if self.with_torch and self.mode not in NAMESPACES else []

    def _accounts(self, user: int) -> Path:
        """Write a list of accounts with this user alone; MPI looks up its name."""
        path = self.folder / "passwd"
        number = user or 1000
        path.write_text(f"submission:x:{number}:{number}::{self.scratch}:/bin/sh\n", encoding="utf-8")
        path.chmod(0o644)
        return path

    def _changes_user(self) -> bool:
        return self.mode == "root" or (self.mode in ("landlock", "account") and may_change_user())

    def _let_through(self) -> None:
        """Let another user pass, not look, through the folders of a launch to this one."""
        above = [self.folder, *self.folder.parents]
        launch = next(number for number, path in enumerate(above) if path.name.startswith(PREFIX))
        for path in above[: launch + 1]:
            path.chmod(path.stat().st_mode | 0o011)

    def _environment(self) -> dict[str, str]:
        scratch = str(self.scratch)
        found = {
            "PATH": "/usr/bin:/bin",
            "HOME": scratch,
            "TMPDIR": scratch,
            "USER": "submission",
            "LANG": "C.UTF-8",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        if number := os.environ.get(rank.LAUNCH):  # so the launcher finds it if all else fails
            found[rank.LAUNCH] = number
        return found


@cache
def mode(folder: Path) -> Mode:
    """Return the best means that work here, found by trying them.

    Args:
        folder: for temporary files; its name begins with `PREFIX`.
    """
    candidates: list[Mode] = ["root"] if os.geteuid() == 0 else []
    candidates.append("user")
    # Other users cannot be signalled anyway; of the same user's processes Landlock knows from its version 6.
    if start.landlock_version() >= (4 if may_change_user() else 6):
        candidates.append("landlock")
    if may_change_user():
        candidates.append("account")
    program = [python(), "-I", "-S", "-c", "import json, sys; open(sys.argv[1]).close()", np.__file__]
    for candidate in candidates if sys.platform == "linux" else []:
        trial = folder / f"probe-{candidate}"
        trial.mkdir(parents=True, exist_ok=True)
        probe = Sandbox(candidate, trial).start(program, subprocess.DEVNULL)
        try:
            if probe.wait(PROBE_S) == 0:
                return candidate
        except subprocess.TimeoutExpired:
            probe.kill()
            probe.wait()
    return "none"


@cache
def may_change_user() -> bool:
    """Return whether this process may become another user, and that user could read this Python where it is."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    capabilities = int(status.split("CapEff:")[1].split()[0], 16)
    places = [Path(python()), *numpy_folders()]
    passable = all(parent.stat().st_mode & 0o001 for place in places for parent in place.resolve().parents)
    return passable and all(capabilities >> number & 1 for number in (CAP_CHOWN, CAP_SETGID, CAP_SETUID))


def _tasks() -> int:
    """Return how many processes and threads this user has."""
    number = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            number += process.num_threads() if process.uids().real == os.getuid() else 0
    return number


def python() -> str:
    """Return the interpreter itself, outside any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable) or sys.executable)


def python_command() -> list[str]:
    """Return the command of an interpreter without packages, whose output is not held back."""
    return [python(), "-I", "-S", "-B", "-u", "-X", "utf8"]


def numpy_folders() -> list[Path]:
    """numpy, and the libraries that its wheel has beside it."""
    package = Path(np.__file__).parent
    return [path for path in (package, package.parent / "numpy.libs") if path.is_dir()]


def packages(with_torch: bool) -> list[Path]:
    """Return files and folders of what a submission can import beside Python: numpy, and torch with what that needs."""
    found = numpy_folders()
    for name in TORCH if with_torch else ():
        if spec := importlib.util.find_spec(name):
            places = [Path(each) for each in spec.submodule_search_locations or [spec.origin or ""]]
            found += [each for each in places if each.exists()]
    return found


def _resolved(paths: Iterable[Path]) -> list[Path]:
    return [path.resolve() for path in paths]


def _python() -> list[str]:
    """Return the interpreter's own files, where they are not the system's."""
    prefixes = {os.path.realpath(each) for each in (sys.base_prefix, sys.base_exec_prefix)}
    return sorted(each for each in prefixes if not each.startswith("/usr/") and each not in ("/", "/usr"))


def _package(name: str) -> Path:
    """Return the folder of one of the project's packages."""
    return Path(importlib.util.find_spec(name).origin).parent  # type: ignore[union-attr, arg-type]


def _own() -> list[str]:
    """Return folders with methods and right answers, which could lie within what is visible."""
    found = {_package("farandole"), _package("farandole_tools"), material.folder("labs")}
    if (material.CHECKOUT / "pyproject.toml").is_file():
        folders = {each for each in material.CHECKOUT.iterdir() if each.is_dir()}
        found |= folders.difference([Path(sys.prefix).resolve(), *Path(sys.prefix).resolve().parents])
    return sorted(str(path) for path in found)


def _packages() -> list[str]:
    """Folders of installed packages within what is visible: nothing in them can be imported."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = sysconfig.get_paths(vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix})
    fixed = ("/usr/lib/python3/dist-packages", f"/usr/local/lib/{version}/dist-packages")
    found = {base["purelib"], base["platlib"], *fixed, f"{sys.base_prefix}/lib/{version}/site-packages"}
    return sorted(os.path.realpath(each) for each in found)
