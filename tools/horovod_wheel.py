"""Build Horovod against the torch and the MPI of this environment, once, and install the wheel.

Horovod 0.28.1 is the last release. Its build asks for C++14, torch from 2.1 on needs 17 or
newer, so the three lines that fix the standard are raised to 20 before compiling. The wheel is
kept outside the checkout, keyed by every version it was compiled against, and used again by the
next environment with the same versions.

Where torch is built for CUDA and this machine has the CUDA toolkit (CUDA_HOME, nvcc on PATH or
/usr/local/cuda) and NCCL with its header, Horovod is built for cards, and reduces by NCCL. Without
them it is built for the CPU only, and the scenarios refuse to train with it on a card.

    python tools/horovod_wheel.py            build if needed, install
    python tools/horovod_wheel.py --where    print the folder that holds the wheel

Without a C++ compiler or an MPI compiler wrapper it says so and exits 0: everything but the
Horovod twin works without Horovod.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from importlib import metadata, util
from pathlib import Path

VERSION = "0.28.1"
BUILD_TOOLS = ["cmake", "packaging", "setuptools", "wheel"]
FLAGS = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_CPU_OPERATIONS": "MPI",
}
USUAL_CUDA, SYSTEM = "/usr/local/cuda", "/usr"
CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"


def say(text: str) -> None:
    print(f"horovod: {text}", flush=True)


def mpi_version(mpicxx: str) -> str:
    """Return the MPI behind the compiler wrapper, as one word for a folder name."""
    shown = subprocess.run([mpicxx, "--showme:version"], capture_output=True, text=True)
    text = shown.stdout if shown.returncode == 0 else subprocess.check_output(["mpirun", "--version"], text=True)
    for word in text.replace("(", " ").split():
        if word[0].isdigit():
            return f"mpi{word}"
    return "mpi-unknown"


def torch_cuda() -> str | None:
    """Return the CUDA version that torch is built for, without importing it (3 s); None: it is built for the CPU."""
    found = util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    text = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    match = re.search(r"^cuda\b.*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return match[1] if match else None


def cuda_home() -> Path | None:
    """Return the folder of the CUDA toolkit; None: there is no nvcc."""
    nvcc = shutil.which("nvcc")
    named = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), nvcc and Path(nvcc).parents[1]]
    homes = [Path(place) for place in (*named, USUAL_CUDA) if place]
    return next((home for home in homes if (home / "bin" / "nvcc").exists()), None)


def cuda_version(home: Path) -> str:
    shown = subprocess.check_output([home / "bin" / "nvcc", "--version"], text=True)
    match = re.search(r"release ([\d.]+)", shown)
    return match[1] if match else "unknown"


def nccl_home(cuda: Path) -> Path | None:
    """Return the folder with NCCL's header and a library that can be linked; None: there is none."""
    named = [os.environ.get("HOROVOD_NCCL_HOME"), os.environ.get("NCCL_HOME")]
    for place in (Path(folder) for folder in (*named, cuda, SYSTEM) if folder):
        libraries = [*place.glob("lib*/libnccl.so"), *place.glob("lib*/*-linux-gnu/libnccl.so")]
        if (place / "include" / "nccl.h").exists() and libraries:
            return place
    return None


def for_cards() -> tuple[list[str], dict[str, str]]:
    """Return what CUDA adds to the cache key and the build's environment; nothing if torch is built for the CPU."""
    wanted, home = torch_cuda(), cuda_home()
    if wanted is None:
        return [], {}
    nccl = nccl_home(home) if home else None
    if home is None or nccl is None:
        return [f"cuda{wanted}", "without-cards"], {}
    flags = {
        "HOROVOD_GPU": "CUDA",
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_CUDA_HOME": str(home),
        "HOROVOD_NCCL_HOME": str(nccl),
    }
    return [f"cuda{wanted}", f"toolkit{cuda_version(home)}", "nccl"], flags


def cache_folder(mpicxx: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = "_".join(
        [
            f"horovod{VERSION}",
            f"torch{metadata.version('torch')}",
            f"python{platform.python_version()}",
            mpi_version(mpicxx),
            platform.machine(),
            *for_cards()[0],
        ]
    )
    return cache / "farandole" / "wheels" / key


def raise_cxx_standard(source: Path) -> None:
    changed = 0
    for file in [source / "CMakeLists.txt", source / "horovod" / "torch" / "CMakeLists.txt"]:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        for number, line in enumerate(lines):
            if "CMAKE_CXX_STANDARD 14" in line:
                lines[number] = line.replace("CMAKE_CXX_STANDARD 14", "CMAKE_CXX_STANDARD 20")
                changed += 1
        file.write_text("".join(lines), encoding="utf-8")
    if not changed:
        raise SystemExit("horovod: no line to raise the C++ standard in; this is not the source of 0.28.1")


def leave_out_debug_info(source: Path) -> None:
    """As optimised, and compiled in two thirds of the time."""
    setup = source / "setup.py"
    setup.write_text(setup.read_text(encoding="utf-8").replace("'RelWithDebInfo'", "'Release'"), encoding="utf-8")


def pip(*arguments: str, log: Path, **environment: str) -> None:
    """Run pip; on failure show the end of its log, where the compiler's message is."""
    command = [sys.executable, "-m", "pip", *arguments, "--constraint", str(CONSTRAINTS)]
    with log.open("a", encoding="utf-8") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment)
    if done.returncode:
        print("".join(log.read_text(encoding="utf-8").splitlines(keepends=True)[-40:]), file=sys.stderr)
        raise SystemExit(f"horovod: '{' '.join(command)}' failed; its last lines are above")


def relocatable() -> dict[str, str]:
    """Let Horovod look for libmpi in the environment in which it is installed, not in the one that has built it."""
    installed = Path(sysconfig.get_path("platlib"), "horovod", "torch")
    libraries = os.path.relpath(Path(sys.prefix, "lib"), installed)
    return {"LDFLAGS": f"-Wl,-rpath,$ORIGIN/{libraries} {os.environ.get('LDFLAGS', '')}".strip()}


def build(folder: Path, bin_folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        log = work / "log"
        pip("install", "--quiet", *BUILD_TOOLS, log=log)
        # The sdist's own metadata step needs setuptools, hence no isolation here either.
        pip("download", f"horovod=={VERSION}", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
            "--dest", str(work), log=log)  # fmt: skip
        with tarfile.open(next(work.glob("horovod-*.tar.gz"))) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.0 to 3.11.3 have none
            archive.extractall(work)
        source = work / f"horovod-{VERSION}"
        raise_cxx_standard(source)
        leave_out_debug_info(source)
        path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
        pip("wheel", str(source), "--no-deps", "--no-build-isolation", "--wheel-dir", str(work / "wheel"),
            log=log, PATH=path, MAKEFLAGS=f"-j{os.cpu_count()}",
            **FLAGS, **relocatable(), **for_cards()[1])  # fmt: skip
        # Into place by one rename: an interrupted build never leaves half a wheel in the cache.
        folder.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(dir=folder.parent))
        shutil.copy(next((work / "wheel").glob("horovod-*.whl")), staged)
        shutil.rmtree(folder, ignore_errors=True)
        staged.rename(folder)


def main() -> None:
    bin_folder = Path(sys.executable).parent
    search = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    mpicxx = shutil.which("mpicxx", path=search)
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if mpicxx is None or compiler is None:
        missing = "MPI compiler wrapper (mpicxx)" if mpicxx is None else "C++ compiler"
        say(f"no {missing} found: going on without Horovod. Mend: apt-get install g++, then make setup")
        return
    folder = cache_folder(mpicxx)
    if "--where" in sys.argv:
        print(folder)
        return
    was_kept = bool(list(folder.glob("horovod-*.whl")))
    if not was_kept:
        compile_into(folder, bin_folder)
    install(folder)
    if was_kept and not loads():
        say("it does not load here")
        compile_into(folder, bin_folder)
        install(folder, "--force-reinstall", "--no-deps")  # otherwise pip would keep the installed one of this version


def compile_into(folder: Path, bin_folder: Path) -> None:
    cards = "for cards, by NCCL" if for_cards()[1] else "for the CPU"
    say(f"compiling {cards}, against this torch and this MPI: usually 2 minutes on 2 cores, once per machine")
    start = time.monotonic()
    build(folder, bin_folder)
    say(f"compiled in {time.monotonic() - start:.0f} s, kept in {folder}")


def install(folder: Path, *options: str) -> None:
    wheel = next(folder.glob("horovod-*.whl"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", str(wheel), "--constraint", str(CONSTRAINTS)]
    subprocess.run([*command, *options], check=True)
    say(f"{VERSION} installed from {wheel.name}")


def loads() -> bool:
    """Return whether the installed Horovod finds the libraries that it was linked with."""
    return subprocess.run([sys.executable, "-c", "import horovod.torch"], capture_output=True).returncode == 0


if __name__ == "__main__":
    main()
