"""The doctor's report about MPI (ULFM, its network, memory of cards) and about the cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.runtime.cards import detection
from farandole.runtime.mpirun import Mpi
from farandole_tools.doctor import cards, checks, networks


@pytest.mark.parametrize(
    ("launcher_has_it", "library_has_it", "works"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_fault_tolerance_takes_the_launcher_and_the_library(
    launcher_has_it: bool, library_has_it: bool, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Mpi(Path("mpirun"), "Open MPI", (5, 0, 11), launcher_has_it)
    probe = {"library": "Open MPI v5.0.11", "threads": "multiple", "fault_tolerance": library_has_it}
    probe |= {"cuda_aware": False}
    monkeypatch.setattr(checks.mpirun, "detect", lambda: found)
    monkeypatch.setattr(checks, "_probe", lambda code: probe)
    [finding] = [finding for finding in checks.mpi() if finding.name == "MPI fault tolerance"]
    assert finding.works == works
    assert finding.seen == ("ULFM" if works else "none: a job does not outlive its ranks")
    assert "Open MPI 5" in finding.mend


FAST = ["mlx5_0", "mlx5_1"]


@pytest.mark.parametrize(
    ("devices", "components", "verbs", "works", "said"),
    [
        ([], None, True, True, "TCP: this host has no InfiniBand or similar"),
        (FAST, ["pml:ob1", "pml:ucx"], True, True, "mlx5_0, mlx5_1 by UCX; mpirun --with-ft"),
        (FAST, ["mtl:ofi", "pml:cm", "pml:ob1"], True, True, "mlx5_0, mlx5_1 by libfabric; "),
        (FAST, ["pml:cm", "pml:ob1"], True, False, "TCP, though there is mlx5_0, mlx5_1: this Open MPI has neither"),
        (FAST, ["pml:ob1", "pml:ucx"], False, False, "TCP, though there is mlx5_0, mlx5_1: libibverbs.so.1 is missing"),
        (FAST, None, True, True, "mlx5_0, mlx5_1: this MPI chooses by itself"),
    ],
)
def test_an_mpi_that_leaves_a_fast_network_unused_is_found(
    devices: list[str], components: list[str] | None, verbs: bool, works: bool, said: str
) -> None:
    finding = networks.between_hosts(devices, components, verbs)
    assert finding.works == works
    assert finding.seen.startswith(said)
    assert works or "load the cluster's MPI module" in finding.mend


@pytest.mark.parametrize(
    ("lines", "verbs", "missing"), [("pml:ob1", True, "neither UCX nor libfabric"), ("pml:ucx", False, "libibverbs")]
)
def test_on_infiniband_an_open_mpi_from_pip_would_use_tcp(
    lines: str, verbs: bool, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its wheel has no UCX, or the node lacks the library by which UCX reaches the network."""
    (tmp_path / "infiniband" / "mlx5_0").mkdir(parents=True)
    (tmp_path / "ompi_info").write_text(f"#!/bin/sh\necho mca:{lines}:version:mca:2.1.0\n")
    (tmp_path / "ompi_info").chmod(0o755)
    monkeypatch.setattr(networks, "DEVICES", tmp_path / "infiniband")
    monkeypatch.setattr(networks, "has_verbs", lambda: verbs)
    aware, between = networks.findings(Mpi(tmp_path / "mpirun", "Open MPI", (5, 0, 11), True), is_cuda_aware=False)
    assert aware.seen.startswith("no: ")
    assert not between.works
    assert between.seen.startswith("TCP, though there is mlx5_0: ")
    assert missing in between.seen
    assert "load the cluster's MPI module" in between.mend


def test_open_mpi_names_its_components(tmp_path: Path) -> None:
    lines = [f"mca:{name}:version:mca:2.1.0" for name in ("pml:ucx", "pml:ucx", "mtl:ofi", "btl:tcp")]
    (tmp_path / "ompi_info").write_text("#!/bin/sh\n" + "".join(f"echo {line}\n" for line in lines))
    (tmp_path / "ompi_info").chmod(0o755)
    assert networks.components(Mpi(tmp_path / "mpirun", "Open MPI", (5, 0, 11), True)) == ["mtl:ofi", "pml:ucx"]
    assert networks.components(Mpi(tmp_path / "mpirun", "MPICH", (4, 2), False)) is None


def test_a_card_that_torch_cannot_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(detection, "kind_of_card", lambda: None)
    monkeypatch.setattr(cards.surroundings, "nodes", lambda environ: 1)
    [finding] = cards.findings()
    assert not finding.works
    assert finding.seen.startswith("there are cards (CUDA_VISIBLE_DEVICES=0,1), but torch ")


@pytest.mark.parametrize(("counts", "works"), [((4, 4), True), ((4, 3), False)])
def test_cards_are_counted_on_each_host_of_a_job(
    counts: tuple[int, int], works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "srun").write_text(f"#!/bin/sh\necho n2 {counts[1]}\necho n1 {counts[0]}\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    [finding] = cards.of_the_job()
    assert (finding.works, finding.seen) == (works, f"n1 {counts[0]}, n2 {counts[1]}")
