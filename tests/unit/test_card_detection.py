"""Which cards torch can use here, under which name, and why it can use none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from farandole.runtime.cards import detection, near_cores
from farandole.runtime.cards.assignment import Card
from farandole.runtime.cards.detection import usable_cards


def cards(monkeypatch: pytest.MonkeyPatch, *about: dict[str, Any]) -> None:
    """A machine with these cards, as far as torch can tell."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(about))
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(about) or 8)  # it counts what cannot be used, too
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(**about[number]))


def test_a_card_is_known_by_its_uuid_and_the_kernel_knows_its_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "bus/pci/devices/0000:17:00.0"
    place.mkdir(parents=True)
    (place / "local_cpulist").write_text("0-15,32-47\n")
    monkeypatch.setattr(near_cores, "SYS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    pci = {"pci_domain_id": 0, "pci_bus_id": 0x17, "pci_device_id": 0}
    cards(monkeypatch, {"uuid": "aaaa", **pci}, {"uuid": "bbbb"})
    assert usable_cards("auto", "") == ([Card("aaaa", "0-15,32-47"), Card("bbbb", "")], "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2")
    found, _ = usable_cards("auto", "")
    assert [card.name for card in found] == ["MIG-1", "MIG-2"], "parts of a card are cards"
    assert detection.device_of(1) == torch.device("cuda", 1)


def test_why_cards_cannot_be_used_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch)
    monkeypatch.setattr(detection, "DEVICE_FILES", tmp_path)
    assert usable_cards("auto", "") == ([], ""), "nothing to say where there is no card"
    monkeypatch.setattr(torch.version, "cuda", None)
    _, why = usable_cards("auto", "SLURM_JOB_GPUS=0,1")
    assert why == f"there are cards (SLURM_JOB_GPUS=0,1), but torch {torch.__version__} is built for the CPU only"
    (tmp_path / "nvidia0").touch()
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    _, why = usable_cards("auto", "")
    assert why.startswith(f"there are cards ({tmp_path / 'nvidia0'}), but torch ")
    for name, value in (("SLURM_JOB_ID", "7"), ("CUDA_VISIBLE_DEVICES", "")):
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            assert usable_cards("auto", "") == ([], ""), "cards that were not requested, or hidden, are not missed"

    def init() -> None:
        raise RuntimeError("The NVIDIA driver is too old (found version 11040). Please update it")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", init)
    _, why = usable_cards("auto", "CUDA_VISIBLE_DEVICES=0")
    assert why.endswith("cannot use them: The NVIDIA driver is too old (found version 11040)")
