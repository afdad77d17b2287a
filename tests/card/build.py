"""Build the card for tests, once for each torch, Python, machine and source.

The folder that it returns holds the library, the module `card_for_tests` and the entry point by which torch loads it:
a process that has this folder in PYTHONPATH has two cards, and needs no other preparation. It lies in the user's cache
and outlives the checkout, as Horovod's wheel does; in the checkout, if that cache cannot be written.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = sorted([*HERE.glob("*.cpp"), *HERE.glob("*.h"), HERE / "card_for_tests.py", HERE / "build.py"])
ENTRY_POINTS = "[torch.backends]\ncard_for_tests = card_for_tests:load\n"
FLAGS = ("-shared", "-fPIC", "-std=c++20", "-O1", "-w")


class CannotBuild(Exception):
    """The card cannot be built here; the text says why, and how to fix it."""


def folder() -> Path:
    """Return the folder for PYTHONPATH; build it if it is not there.

    Raises:
        CannotBuild: there is no compiler, or none that can.
    """
    found = cache_folder() / name()
    with (found.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test processes, one builds
        if not found.exists():
            build(found)
    return found


def cache_folder() -> Path:
    """Return the folder in which built cards are kept; it exists, and can be written."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farandole" / "card"
    try:
        user.mkdir(parents=True, exist_ok=True)
    except OSError:
        writable = False
    else:
        writable = os.access(user, os.W_OK | os.X_OK)
    here = HERE.parents[1] / ".pytest_cache" / "card"
    if not writable:
        here.mkdir(parents=True, exist_ok=True)
    return user if writable else here


def name() -> str:
    source = hashlib.sha256(b"".join(file.read_bytes() for file in SOURCES)).hexdigest()[:12]
    versions = f"torch{metadata.version('torch')}_python{platform.python_version()}_{platform.machine()}"
    return f"{versions}_{source}"


def build(into: Path) -> None:
    """Build the card into a folder that does not exist yet.

    Raises:
        CannotBuild: as `folder`.
    """
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise CannotBuild("no C++ compiler for the card for tests. Mend: apt-get install g++")
    torch = Path(str(metadata.distribution("torch").locate_file("torch")))
    staged = Path(tempfile.mkdtemp(dir=into.parent))
    try:
        command = [
            compiler, *FLAGS, str(HERE / "card.cpp"), "-o", str(staged / "card.so"),
            "-isystem", str(torch / "include"), "-isystem", str(torch / "include/torch/csrc/api/include"),
            f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-500:])
            raise CannotBuild(f"{compiler} cannot build the card for tests. Mend: g++ 10 or later. It says: {said}")
        shutil.copy(HERE / "card_for_tests.py", staged)
        about = staged / "card_for_tests-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: card_for_tests\nVersion: 1\n")
        (about / "entry_points.txt").write_text(ENTRY_POINTS)
        staged.rename(into)  # an interrupted build never leaves half a card where it is looked for
    finally:
        shutil.rmtree(staged, ignore_errors=True)


if __name__ == "__main__":
    print(folder())
