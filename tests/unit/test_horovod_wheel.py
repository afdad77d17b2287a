"""What Horovod is built for: the CPU, or cards if torch, the CUDA toolkit and NCCL are there; and under which key."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "horovod_wheel.py"


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Load the script as on a machine without CUDA whose torch is built for it."""
    spec = importlib.util.spec_from_file_location("horovod_wheel", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    of_torch(tmp_path, "cuda: Optional[str] = '13.0'")
    found = importlib.util.spec_from_file_location("torch", tmp_path / "torch" / "__init__.py")
    monkeypatch.setattr(module.util, "find_spec", lambda name: found)
    monkeypatch.setattr(module, "mpi_version", lambda mpicxx: "mpi5.0.11")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(module, "USUAL_CUDA", str(tmp_path / "nothing"))
    monkeypatch.setattr(module, "SYSTEM", str(tmp_path / "nothing"))
    for name in ("CUDA_HOME", "CUDA_PATH", "NCCL_HOME", "HOROVOD_NCCL_HOME"):
        monkeypatch.delenv(name, raising=False)
    return module


def of_torch(folder: Path, line: str) -> None:
    (folder / "torch" / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\nhip: Optional[str] = None\n")


def toolkit(folder: Path, release: str) -> Path:
    """A CUDA toolkit, as far as this script looks."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "nvcc").write_text(
        f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.48'\n"
    )
    (folder / "bin" / "nvcc").chmod(0o755)
    return folder


def test_for_the_cpu_nothing_has_changed(wheel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "cuda", "13.0")))
    of_torch(tmp_path, "cuda: Optional[str] = None")
    assert wheel.for_cards() == ([], {})
    assert "cuda" not in wheel.cache_folder("mpicxx").name


def test_each_cuda_has_a_wheel_of_its_own_which_reduces_by_nccl(
    wheel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {wheel.cache_folder("mpicxx").name}
    assert names.pop().endswith("cuda13.0_without-cards"), "torch is for cards, and this Horovod is not"
    for release in ("12.6", "13.0"):
        home = toolkit(tmp_path / f"cuda-{release}", release)
        monkeypatch.setenv("CUDA_HOME", str(home))
        names.add(wheel.cache_folder("mpicxx").name)
        assert wheel.for_cards()[1] == {}, "no NCCL"
        for file in ("include/nccl.h", "lib64/libnccl.so"):
            (home / file).parent.mkdir()
            (home / file).touch()
        names.add(wheel.cache_folder("mpicxx").name)
        flags = wheel.for_cards()[1]
        assert (flags["HOROVOD_GPU_OPERATIONS"], flags["HOROVOD_CUDA_HOME"]) == ("NCCL", str(home))
        assert flags["HOROVOD_NCCL_HOME"] == str(home)
    assert len(names) == 3, "for the CPU, and for each toolkit"


@pytest.mark.parametrize("it_loads", [True, False])
def test_a_kept_wheel_that_does_not_load_is_compiled_again(
    it_loads: bool, wheel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose libraries were in an environment that no longer exists."""
    done: list[str] = []
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "horovod-0.28.1-any.whl").touch()
    monkeypatch.setattr(wheel.shutil, "which", lambda name, path="": f"/bin/{name}")
    monkeypatch.setattr(wheel, "cache_folder", lambda mpicxx: tmp_path / "kept")
    monkeypatch.setattr(wheel, "loads", lambda: it_loads)
    monkeypatch.setattr(wheel, "install", lambda folder, *options: done.append(" ".join(["install", *options])))
    monkeypatch.setattr(wheel, "compile_into", lambda folder, bin_folder: done.append("compile"))
    monkeypatch.setattr(wheel.sys, "argv", ["horovod_wheel.py"])
    wheel.main()
    assert done == ["install"] + ([] if it_loads else ["compile", "install --force-reinstall --no-deps"])
