"""Build the card for tests, once for each torch, Python, machine and source.

The folder that it returns holds the library, the module `card_for_tests` and the entry point by which torch loads it:
a process that has this folder in PYTHONPATH has two cards, and needs no other preparation. It lies in the user's cache
and outlives the checkout, as Horovod's wheel does.
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


class NoCompiler(Exception):
    """The card cannot be built here."""


def folder() -> Path:
    """Return the folder for PYTHONPATH; build it if it is not there."""
    found = cache_folder()
    found.parent.mkdir(parents=True, exist_ok=True)
    with (found.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test processes, one builds
        if not found.exists():
            build(found)
    return found


def cache_folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    source = hashlib.sha256(b"".join(file.read_bytes() for file in SOURCES)).hexdigest()[:12]
    versions = f"torch{metadata.version('torch')}_python{platform.python_version()}_{platform.machine()}"
    return cache / "farandole" / "card" / f"{versions}_{source}"


def build(into: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise NoCompiler("no C++ compiler for the card for tests. Mend: apt-get install g++")
    torch = Path(str(metadata.distribution("torch").locate_file("torch")))
    staged = Path(tempfile.mkdtemp(dir=into.parent))
    libraries = torch / "lib"
    subprocess.run(
        [compiler, *FLAGS, str(HERE / "card.cpp"), "-o", str(staged / "card.so"),
         "-isystem", str(torch / "include"), "-isystem", str(torch / "include/torch/csrc/api/include"),
         f"-L{libraries}", "-lc10", "-ltorch_cpu"],
        check=True,
    )  # fmt: skip
    shutil.copy(HERE / "card_for_tests.py", staged)
    about = staged / "card_for_tests-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: card_for_tests\nVersion: 1\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    staged.rename(into)  # an interrupted build never leaves half a folder in the cache


if __name__ == "__main__":
    print(folder())
