"""What is visible in a submission's sandbox, its limits, and which means of isolation this machine has."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from farandole.runtime import rank
from farandole_tools import material

Mode = Literal["root", "user", "none"]

MODES: dict[Mode, str] = {
    "root": "Linux namespaces (unshare: mount, pid, net, ipc, uts) and another user",
    "user": "Linux namespaces (unshare: user, mount, pid, net, ipc, uts)",
    "none": "a separate process with limits, and no namespaces: this machine permits none to this user",
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
LIMITS_OF_A_LAUNCH = {"CORE": 0, "NPROC": 1024, "NOFILE": 4096}
SHARED_MEMORY = 2**29  # bytes, of a launch
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime")
FIRST_USER = 20_000  # a number per process, which no account has
USERS = 40_000
STARTER = Path(__file__).with_name("start.py")
PROBE_S = 30.0


@dataclass(frozen=True)
class Sandbox:
    """A place for one program.

    Attributes:
        mode: the means of isolation.
        folder: a folder of this sandbox alone, in which the grader may write.
        shown: files and folders that are visible inside, read-only, at their own places.
        descriptors: file descriptors that the program inherits.
        environment: variables beside the few that every program gets.
        whole: the program is a launch of this project's own, with MPI: its packages are visible, and its processes
            limit themselves.
        writable: folders in which the program may write, and which the grader reads afterwards.
    """

    mode: Mode
    folder: Path
    shown: tuple[Path, ...] = ()
    descriptors: tuple[int, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    whole: bool = False
    writable: tuple[Path, ...] = ()

    @property
    def scratch(self) -> Path:
        """The only folder in which the program may write, and in which it begins."""
        return self.folder / "scratch"

    def start(self, command: list[str], output: int) -> subprocess.Popen[bytes]:
        """Start `command`; what it prints goes to the file descriptor `output`."""
        root = self.folder / "root"
        for folder in (root, self.scratch):
            folder.mkdir(exist_ok=True)
        user = FIRST_USER + os.getpid() % USERS if os.geteuid() == 0 and self.mode != "user" else 0
        user = user if self._may_drop() else 0
        for folder in self.writable if user else ():
            os.chown(folder, user, user)
        limits = dict(LIMITS) if not self.whole else dict(LIMITS_OF_A_LAUNCH)
        if self.mode == "none":
            self.scratch.chmod(0o777)
            if not user:
                del limits["NPROC"]  # it would count all of the user's processes
        specification = {
            "mode": self.mode,
            "parent": os.getpid(),
            "user": user,
            "root": str(root),
            "readable": [*SYSTEM, *_python(), *(_project() if self.whole else ())],
            "hidden": [] if self.whole else _packages(),
            "writable": [str(path) for path in self.writable],
            "placed": [[str(self._accounts(user)), "/etc/passwd"]],
            "shared_memory": SHARED_MEMORY if self.whole else 0,
            "shown": [str(path) for path in (*_numpy(), *self.shown)],
            "scratch": str(self.scratch),
            "scratch_bytes": SCRATCH,
            "scratch_files": FILES,
            "limits": limits,
            "descriptors": list(self.descriptors),
            "environment": self._environment(),
            "command": command,
        }
        return subprocess.Popen(
            [python(), "-I", "-S", "-B", str(STARTER), json.dumps(specification)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=self.descriptors,
            cwd="/",
        )

    def _accounts(self, user: int) -> Path:
        """A list of accounts with this user alone; MPI looks up its name."""
        path = self.folder / "passwd"
        number = user or 1000
        path.write_text(f"submission:x:{number}:{number}::{self.scratch}:/bin/sh\n", encoding="utf-8")
        path.chmod(0o644)
        return path

    def _may_drop(self) -> bool:
        """Without namespaces another user has to be able to read this Python where it is."""
        return self.mode != "none" or all(
            path.stat().st_mode & 0o001 for path in Path(python()).resolve().parents if path.is_dir()
        )

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
        return found | self.environment


@cache
def mode(folder: Path) -> Mode:
    """Return the best means that work here, found by trying them. `folder` is one for temporary files."""
    candidates: list[Mode] = ["root", "user"] if os.geteuid() == 0 else ["user"]
    for candidate in candidates if sys.platform == "linux" else []:
        trial = folder / f"probe-{candidate}"
        trial.mkdir(parents=True, exist_ok=True)
        probe = Sandbox(candidate, trial).start([python(), "-I", "-S", "-c", "import json"], subprocess.DEVNULL)
        try:
            if probe.wait(PROBE_S) == 0:
                return candidate
        except subprocess.TimeoutExpired:
            probe.kill()
            probe.wait()
    return "none"


def python() -> str:
    """The interpreter itself, outside any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable) or sys.executable)


def numpy_folders() -> list[Path]:
    """numpy, and the libraries that its wheel has beside it."""
    package = Path(np.__file__).parent
    return [path for path in (package, package.parent / "numpy.libs") if path.is_dir()]


def _numpy() -> list[Path]:
    return [path.resolve() for path in numpy_folders()]


def _python() -> list[str]:
    """The interpreter's own files, where they are not the system's."""
    prefixes = {os.path.realpath(each) for each in (sys.base_prefix, sys.base_exec_prefix)}
    return sorted(each for each in prefixes if not each.startswith("/usr/") and each not in ("/", "/usr"))


def _project() -> list[str]:
    """What a launch of this project needs to be able to read."""
    checkout = material.CHECKOUT / "pyproject.toml"
    packages = (Path(importlib.util.find_spec(name).origin).parent for name in ("farandole", "farandole_tools"))  # type: ignore[union-attr, arg-type]
    places = [Path(sys.prefix), *packages, material.folder("labs"), Path("/sys")]
    return [str(path) for path in (*places, *([checkout] if checkout.is_file() else ()))]


def _packages() -> list[str]:
    """Folders of installed packages within what is visible: nothing in them can be imported."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = sysconfig.get_paths(vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix})
    fixed = ("/usr/lib/python3/dist-packages", f"/usr/local/lib/{version}/dist-packages")
    found = {base["purelib"], base["platlib"], *fixed, f"{sys.base_prefix}/lib/{version}/site-packages"}
    return sorted(os.path.realpath(each) for each in found)
