"""Checkpoints on disk: they are restored bitwise, and a damaged one is never used."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI
from torch import Tensor, nn

from farandole.errors import UsageError
from farandole.recovery import checkpoint, checkpoint_part
from farandole.recovery.checkpoint import Checkpoint, describe, newest, part, read, write
from farandole.recovery.checkpoint_part import Damaged
from farandole.recovery.options import ReplicaOptions
from farandole.recovery.replica import Replica
from farandole.recovery.snapshot import Snapshot
from farandole.recovery.state import TrainingState, misfit_of
from farandole.runtime.communicator import Communicator
from farandole.runtime.world import World

DTYPES = [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16]
SHAPES = [(), (0,), (1,), (2, 0, 3), (3, 5), (17,)]
WRITERS = [1, 2, 3, 4, 7]
OPERATIONS = 6  # of one `write`: for each of two files fsync, rename, and fsync of the folder
FIRST_OPERATIONS = OPERATIONS + 2  # before them, in a new slot: fsync of the folder above, and of that above it
QUICK = settings(max_examples=25, deadline=None)


def bits(tensor: Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    """Return type, shape and every bit, so that NaN equals itself and −0 is not 0."""
    return tensor.dtype, tuple(tensor.shape), tensor.detach().flatten().view(torch.uint8).numpy().tobytes()


def random_tensor(dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Any bits at all, except in what must be 0 or 1."""
    if dtype == torch.bool:
        return torch.randint(2, shape, generator=generator).bool()
    raw = torch.randint(256, (*shape, dtype.itemsize), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).reshape(shape)


def states(step: int, ranks: int, seed: int = 0) -> list[TrainingState]:
    """Every rank's state before `step`: tensors of all types and shapes."""
    generator = torch.Generator().manual_seed(1000 * seed + step)
    kinds = [(dtype, shape) for dtype in DTYPES for shape in SHAPES]
    shared = {f"{dtype}/{shape}": random_tensor(dtype, shape, generator) for dtype, shape in kinds}
    values = {"lr": 1e-05, "loss": 0.1 + 0.2, "scenario": "naïve", "step": step, "seen": [step, None, True]}
    own = [
        {"random": random_tensor(torch.uint8, (11,), generator), "a/b": random_tensor(torch.float32, (), generator)}
        for _ in range(ranks)
    ]
    return [TrainingState(step, shared, its, values) for its in own]


def small_states(step: int, ranks: int) -> list[TrainingState]:
    """The same for little files."""
    values = {"lr": 1e-05, "loss": 0.1 + 0.2, "name": "é"}
    shared = {"parameters": torch.arange(5.0) + step}
    return [TrainingState(step, shared, {"random": torch.tensor([rank, step])}, values) for rank in range(ranks)]


def save(folder: Path, slot: int, whole: list[TrainingState], writers: int, only: int | None = None) -> None:
    """Write as all writers, or only one of them: each its own rank's tensors, or a single writer all."""
    own = {rank: state.own for rank, state in enumerate(whole)}
    for writer in range(writers) if only is None else [only]:
        state = whole[writer]
        tensors = part(state, own if writers == 1 else {writer: state.own}, writer, writers)
        write(folder, slot, Snapshot(tensors), describe(state, len(whole), writer, writers))


def assert_same(found: Checkpoint | None, whole: list[TrainingState]) -> None:
    """Check that `found` is the saved state of these ranks, to the bit."""
    assert found is not None
    assert (found.step, found.ranks, found.values) == (whole[0].step, len(whole), whole[0].values)
    for rank, saved in enumerate(whole):
        restored = found.of_rank(rank)
        assert restored.step == saved.step
        assert restored.values == saved.values
        for back, gone in ((restored.shared, saved.shared), (restored.own, saved.own)):
            assert {name: bits(tensor) for name, tensor in back.items()} == {
                name: bits(tensor) for name, tensor in gone.items()
            }


class Crash(Exception):
    """The end of the process."""


@contextmanager
def crashing_at(operation: int) -> Iterator[None]:
    """Let the process die just before that fsync or rename, counted from 0."""
    done = 0

    def dying(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            nonlocal done
            if done == operation:
                raise Crash
            done += 1
            return call(*arguments)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", dying(os.fsync))
        patch.setattr(Path, "replace", dying(Path.replace))
        with suppress(Crash):
            yield


@pytest.mark.parametrize(("ranks", "writers"), sorted({(n, n) for n in WRITERS} | {(n, 1) for n in WRITERS}))
def test_parts_joined_are_the_whole_to_the_bit(ranks: int, writers: int, tmp_path: Path) -> None:
    whole = states(30, ranks)
    save(tmp_path, 1, whole, writers)
    found, troubles = newest(tmp_path)
    assert_same(found, whole)
    assert found is not None
    assert (found.slot, troubles) == (1, [])


@QUICK
@given(
    st.lists(
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 6), max_size=3).map(tuple)), min_size=1, max_size=5
    ),
    st.sampled_from(WRITERS),
    st.integers(0, 2**16),
)
def test_parts_of_any_tensors_are_joined_to_the_bit(
    kinds: list[tuple[torch.dtype, tuple[int, ...]]], writers: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    shared = {str(number): random_tensor(*kind, generator) for number, kind in enumerate(kinds)}
    whole = [TrainingState(seed, shared, {"rank": torch.tensor(rank)}, {}) for rank in range(writers)]
    lengths = [
        sum(tensor.numel() for name, tensor in part(whole[0], {}, writer, writers).items()) for writer in range(writers)
    ]
    assert sum(lengths) == sum(tensor.numel() for tensor in shared.values()), "nothing is kept twice"
    assert max(lengths) - min(lengths) <= len(shared), "everybody has as much to write"
    with TemporaryDirectory() as folder:
        save(Path(folder), 0, whole, writers)
        assert_same(read(Path(folder), 0), whole)


def test_parameters_that_are_learned_or_lie_across_memory_are_kept_as_they_look(tmp_path: Path) -> None:
    parameter = nn.Parameter(torch.arange(12.0).view(3, 4))
    whole = [
        TrainingState(1, {"p": parameter, "q": parameter.detach().clone().T}, {"r": torch.arange(12.0).view(3, 4).T})
        for _ in range(2)
    ]
    save(tmp_path, 0, whole, writers=2)
    found = read(tmp_path, 0)
    assert_same(found, whole)
    assert not found.shared["p"].requires_grad


def test_a_rank_that_was_not_there_gets_what_is_shared_and_nothing_of_its_own(tmp_path: Path) -> None:
    whole = small_states(20, ranks=2)
    save(tmp_path, 0, whole, writers=2)
    found = read(tmp_path, 0)
    assert found.of_rank(2).own == {}
    assert torch.equal(found.of_rank(2).shared["parameters"], whole[0].shared["parameters"])


def test_without_a_checkpoint_there_is_none_and_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "slot-0").mkdir()  # as after a start that ends before its first file
    assert newest(tmp_path) == (None, [])
    assert newest(tmp_path / "nowhere") == (None, [])
    with pytest.raises(FileNotFoundError):
        read(tmp_path, 0)


@pytest.mark.parametrize("first", [0, 1])
def test_the_slot_with_more_steps_is_the_newest(first: int, tmp_path: Path) -> None:
    save(tmp_path, first, small_states(20, 2), writers=2)
    save(tmp_path, 1 - first, small_states(9, 2), writers=2)
    found, troubles = newest(tmp_path)
    assert_same(found, small_states(20, 2))
    assert troubles == []


@pytest.fixture
def two_slots(tmp_path: Path) -> Path:
    """Step 10 in slot 0 and step 20 in slot 1, by two writers."""
    for slot, step in enumerate((10, 20)):
        save(tmp_path, slot, small_states(step, 2), writers=2)
    return tmp_path


def assert_falls_back(folder: Path, because: str) -> None:
    """Slot 1 is detected as damaged, one line reports this, and slot 0 is used."""
    found, troubles = newest(folder)
    assert_same(found, small_states(10, 2))
    [line] = troubles
    assert line.startswith(f"the checkpoint in {folder / 'slot-1'} is damaged and passed over: ")
    assert because in line
    assert "\n" not in line


EVERY_FILE = pytest.mark.parametrize("name", [f"rank-{n}.{kind}" for n in (0, 1) for kind in ("json", "safetensors")])


@EVERY_FILE
def test_a_file_that_ends_too_early_is_found_out_wherever_it_ends(name: str, two_slots: Path) -> None:
    file = two_slots / "slot-1" / name
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert_falls_back(two_slots, name)
    file.write_bytes(whole)
    assert_same(newest(two_slots)[0], small_states(20, 2))


@EVERY_FILE
def test_a_wrong_byte_is_found_out_wherever_it_is(name: str, two_slots: Path) -> None:
    file = two_slots / "slot-1" / name
    whole = file.read_bytes()
    for position in range(len(whole)):
        wrong = bytearray(whole)
        wrong[position] ^= 0xFF
        file.write_bytes(wrong)
        assert_falls_back(two_slots, name)


@pytest.mark.parametrize("name", ["rank-0.json", "rank-0.safetensors"])
def test_a_flipped_bit_is_found_out_or_changes_nothing(name: str, two_slots: Path) -> None:
    file = two_slots / "slot-1" / name
    whole = file.read_bytes()
    harmless = 0
    for position in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            file.write_bytes(flipped)
            try:
                found = read(two_slots, 1)
            except Damaged as damage:
                because = str(damage)
                assert name in because, (position, bit)
            else:
                harmless += 1
                assert json.loads(flipped) == json.loads(whole)
                assert_same(found, small_states(20, 2))
    assert harmless > 0 if name.endswith("json") else harmless == 0, "JSON can say the same otherwise: 1E-05 is 1e-05"


@EVERY_FILE
def test_a_missing_file_is_named(name: str, two_slots: Path) -> None:
    (two_slots / "slot-1" / name).unlink()
    assert_falls_back(two_slots, f"{name} is missing")


def test_a_file_that_is_longer_is_found_out(two_slots: Path) -> None:
    with (two_slots / "slot-1" / "rank-1.safetensors").open("ab") as file:
        file.write(b"\0")
    assert_falls_back(two_slots, "rank-1.safetensors")


def test_both_slots_damaged_is_no_checkpoint_and_two_lines(two_slots: Path) -> None:
    for slot in (0, 1):
        (two_slots / f"slot-{slot}" / "rank-1.json").unlink()
    found, troubles = newest(two_slots)
    assert found is None
    assert [f"slot-{slot}" in line for slot, line in enumerate(troubles)] == [True, True]


@pytest.mark.parametrize(
    ("kinds", "because"),
    [
        (["json"], "rank-1.safetensors is not what rank-1.json promises"),
        (["safetensors"], "rank-1.safetensors is not what rank-1.json promises"),
        (["json", "safetensors"], "rank-1 is of step 10, rank-0 of 20"),
    ],
)
def test_files_of_another_step_are_found_out(kinds: list[str], because: str, two_slots: Path) -> None:
    for kind in kinds:
        shutil.copy(two_slots / "slot-0" / f"rank-1.{kind}", two_slots / "slot-1")
    assert_falls_back(two_slots, because)


def test_files_that_have_changed_places_are_found_out(two_slots: Path) -> None:
    place = two_slots / "slot-1"
    for kind in ("json", "safetensors"):
        (place / f"rank-0.{kind}").rename(place / "aside")
        (place / f"rank-1.{kind}").rename(place / f"rank-0.{kind}")
        (place / "aside").rename(place / f"rank-1.{kind}")
    assert_falls_back(two_slots, "rank-0")


def test_one_writers_files_in_the_place_of_anothers_are_found_out(two_slots: Path) -> None:
    for kind in ("json", "safetensors"):
        shutil.copy(two_slots / "slot-1" / f"rank-0.{kind}", two_slots / "slot-1" / f"rank-1.{kind}")
    assert_falls_back(two_slots, "rank-1")


def test_parts_for_another_number_of_writers_or_ranks_are_found_out(two_slots: Path) -> None:
    save(two_slots, 1, small_states(20, 3), writers=3, only=1)
    assert_falls_back(two_slots, "rank-1 is of writers 3, rank-0 of 2")
    state = small_states(20, 2)[1]
    write(two_slots, 1, Snapshot(part(state, {1: state.own}, 1, 2)), describe(state, 5, 1, 2))
    assert_falls_back(two_slots, "rank-1 is of ranks 5, rank-0 of 2")


def test_parts_of_different_trainings_are_found_out(two_slots: Path) -> None:
    state = small_states(20, 2)[1]
    state.values = state.values | {"lr": 0.5}
    write(two_slots, 1, Snapshot(part(state, {1: state.own}, 1, 2)), describe(state, 2, 1, 2))
    assert_falls_back(two_slots, "rank-1")


def test_parts_of_different_models_are_found_out(two_slots: Path) -> None:
    state = small_states(20, 2)[1]
    state.shared = {"parameters": torch.arange(6.0), "more": torch.zeros(2)}
    write(two_slots, 1, Snapshot(part(state, {1: state.own}, 1, 2)), describe(state, 2, 1, 2))
    assert_falls_back(two_slots, "rank-1")


def test_files_of_more_writers_from_an_earlier_start_are_not_mixed_in(tmp_path: Path) -> None:
    save(tmp_path, 0, small_states(20, 4), writers=4)
    save(tmp_path, 0, small_states(20, 2), writers=2)
    assert_same(read(tmp_path, 0), small_states(20, 2))
    save(tmp_path, 0, small_states(20, 7), writers=1)
    assert_same(read(tmp_path, 0), small_states(20, 7))
    save(tmp_path, 0, small_states(30, 4), writers=4, only=0)
    with pytest.raises(Damaged, match="rank-1 is of step 20, rank-0 of 30"):
        read(tmp_path, 0)


def test_unfinished_files_are_left_alone_and_written_over(two_slots: Path) -> None:
    for slot in (0, 1):
        for kind in ("json", "safetensors"):
            (two_slots / f"slot-{slot}" / f"rank-0.{kind}.unfinished").write_bytes(b"half a fi")
    assert_same(newest(two_slots)[0], small_states(20, 2))
    save(two_slots, 0, small_states(30, 2), writers=2)
    assert_same(newest(two_slots)[0], small_states(30, 2))
    assert not list((two_slots / "slot-0").glob("*.unfinished"))


def test_a_slot_with_an_unfinished_file_alone_has_nothing_to_go_on_from(tmp_path: Path) -> None:
    save(tmp_path, 0, small_states(10, 1), writers=1)
    (tmp_path / "slot-1").mkdir()
    (tmp_path / "slot-1" / "rank-0.safetensors.unfinished").write_bytes(b"half a fi")
    found, _ = newest(tmp_path)
    assert_same(found, small_states(10, 1))


def test_another_versions_format_is_refused_by_name(two_slots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 3)
        save(two_slots, 1, small_states(20, 2), writers=2)
    assert_falls_back(two_slots, "rank-0.json has format 3, and this version reads 2")


@pytest.mark.parametrize("slots", [(0,), (0, 1)])
def test_what_only_another_version_can_read_is_not_begun_anew(slots: tuple[int, ...], tmp_path: Path) -> None:
    """Format 1 had another checksum, too. A new start would overwrite it."""
    for slot in slots:
        save(tmp_path, slot, small_states(20, 1), writers=1)
        file = tmp_path / f"slot-{slot}" / "rank-0.json"
        described = json.loads(file.read_bytes()) | {"format": 1, "tensors_sha256": "0"}
        del described["sha256"], described["tensors_crc32"]
        file.write_text(json.dumps(described | {"sha256": checkpoint_part._digest(described)}))
    with pytest.raises(UsageError, match=r"slot-\d: rank-0.json has format 1, and this version reads 2: continue"):
        newest(tmp_path)


def test_what_is_right_to_the_byte_but_holds_no_tensors_is_found_out(
    two_slots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "take", lambda self, _: self.data.extend(b"no tensors at all"))
        save(two_slots, 1, small_states(20, 2), writers=2)
    assert_falls_back(two_slots, "rank-0.safetensors holds no tensors")


def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_checksums_come_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        seen.append("folder on the disk" if is_folder else f"{os.fstat(descriptor).st_size} bytes on the disk")
        fsync(descriptor)

    def noted_replace(file: Path, target: Path) -> Path:
        seen.append(f"{target.name}, {file.stat().st_size} bytes")
        return replace(file, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    save(tmp_path, 0, small_states(10, 1), writers=1)
    tensors, described = ((tmp_path / "slot-0" / f"rank-0.{kind}").stat().st_size for kind in ("safetensors", "json"))
    assert seen == [
        "folder on the disk",
        "folder on the disk",
        f"{tensors} bytes on the disk",
        f"rank-0.safetensors, {tensors} bytes",
        "folder on the disk",
        f"{described} bytes on the disk",
        f"rank-0.json, {described} bytes",
        "folder on the disk",
    ]


def test_the_names_are_on_the_disk_before_a_checkpoint_is_relied_on(
    two_slots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
        newest(two_slots)
    assert set(synced) == {(two_slots / f"slot-{slot}").stat().st_ino for slot in (0, 1)}


@pytest.mark.parametrize("operation", range(FIRST_OPERATIONS + 1))
def test_a_first_checkpoint_that_is_interrupted_is_whole_or_none_at_all(operation: int, tmp_path: Path) -> None:
    whole = small_states(10, 1)
    with crashing_at(operation):
        save(tmp_path, 0, whole, writers=1)
    found, troubles = newest(tmp_path)
    if (tmp_path / "slot-0" / "rank-0.json").exists():
        assert_same(found, whole)
        assert troubles == []
    else:
        assert found is None
        assert len(troubles) <= 1
        assert operation < FIRST_OPERATIONS
    save(tmp_path, 0, whole, writers=1)  # over whatever was left
    assert_same(newest(tmp_path)[0], whole)


@QUICK
@given(st.lists(st.integers(0, OPERATIONS), min_size=1, max_size=4))
def test_wherever_the_writers_are_interrupted_the_other_slot_stays_and_nothing_is_mixed(reached: list[int]) -> None:
    writers = len(reached)
    before, other, new = (small_states(step, writers) for step in (10, 20, 30))
    with TemporaryDirectory() as name:
        folder = Path(name)
        save(folder, 0, before, writers)
        save(folder, 1, other, writers)
        for writer, operation in enumerate(reached):
            with crashing_at(operation):
                save(folder, 0, new, writers, only=writer)

        assert_same(read(folder, 1), other)
        try:
            left = read(folder, 0)
        except Damaged:
            assert max(reached) > 0
            assert min(reached) < OPERATIONS
            assert_same(newest(folder)[0], other)
        else:
            assert left.step in (10, 30)
            assert_same(left, before if left.step == 10 else new)
            assert_same(newest(folder)[0], other if left.step == 10 else new)
        save(folder, 0, new, writers)  # over whatever was left
        assert_same(newest(folder)[0], new)


def test_no_space_on_the_disk_is_said_and_costs_one_slot_at_most(
    two_slots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            save(two_slots, 0, small_states(30, 2), writers=2)
    assert_same(newest(two_slots)[0], small_states(20, 2))


@pytest.mark.parametrize("change", ["empty", "torn", "flipped", "binary", "a list", "a folder", "gone"])
@pytest.mark.parametrize("name", ["rank-0.json", "rank-0.safetensors", "rank-1.json", "rank-1.safetensors"])
def test_whatever_becomes_of_one_file_the_older_slot_is_read(tmp_path: Path, name: str, change: str) -> None:
    for slot, step in ((0, 10), (1, 20)):
        state = TrainingState(step, {"parameters": torch.arange(7.0) + step})
        for writer in range(2):
            tensors = checkpoint.part(state, {writer: {"random": torch.tensor([writer])}}, writer, 2)
            checkpoint.write(tmp_path, slot, Snapshot(tensors), checkpoint.describe(state, 2, writer, 2))
    found, troubles = checkpoint.newest(tmp_path)
    assert found is not None
    assert (found.step, troubles) == (20, [])
    file = tmp_path / "slot-1" / name
    whole = file.read_bytes()
    file.unlink()
    if change == "a folder":
        file.mkdir()
    elif change != "gone":
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        said = {"empty": b"", "torn": whole[:middle], "flipped": flipped, "binary": bytes(range(256)), "a list": b"[1]"}
        file.write_bytes(said[change])
    found, [trouble] = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.step == 10
    assert "slot-1" in trouble
    assert "\n" not in trouble


def test_a_checkpoint_of_another_model_does_not_fit_and_it_is_said_why() -> None:
    ours = TrainingState(0, {"parameters": torch.zeros(5)}, {"random": torch.zeros(2)}, {"lr": 0.1})
    assert not misfit_of(replace(ours, step=9), ours, with_own=True)
    assert not misfit_of(replace(ours, own={}), ours, with_own=False)
    for other, why in (
        (replace(ours, shared={"parameters": torch.zeros(4)}), "parameters: [4]"),
        (replace(ours, shared={"parameters": torch.zeros(5).double()}), "float64"),
        (replace(ours, shared={}), "has no parameters"),
        (replace(ours, own={}), "has no random"),
        (replace(ours, values={}), "has no lr"),
    ):
        assert why in misfit_of(other, ours, with_own=True)
        assert "\n" not in misfit_of(other, ours, with_own=True)


@pytest.mark.parametrize(
    ("found", "fits"),
    [
        ({"lr": 1}, True),
        ({"lr": "0.1"}, False),
        ({"lr": None}, False),
        ({"lr": 0.1, "scale": {"value": 2.0, "good": 3}}, True),
        ({"lr": 0.1, "scale": {"value": 2.0}}, False),
        ({"lr": 0.1, "scale": {"value": [], "good": 3}}, False),
        ({"lr": 0.1, "scale": 2.0}, False),
    ],
)
def test_values_of_another_kind_do_not_fit(found: dict[str, Any], fits: bool) -> None:
    wanted = {"lr": 0.1} | ({"scale": {"value": 1.0, "good": 0}} if "scale" in found else {})
    misfit = misfit_of(TrainingState(0, {}, {}, found), TrainingState(0, {}, {}, wanted), with_own=True)
    assert (misfit == "") is fits


@pytest.mark.parametrize(
    ("field", "value"),
    [("step", "20"), ("step", -1), ("ranks", 0), ("writers", "two"), ("shapes", [7]), ("shapes", {"parameters": ["x"]}),
     ("shapes", {"parameters": 7}), ("values", 3)],
)  # fmt: skip
def test_a_description_that_is_whole_but_foreign_is_passed_over_in_one_line(
    tmp_path: Path, field: str, value: Any
) -> None:
    [state] = small_states(20, 1)
    write(tmp_path, 0, Snapshot(part(state, {0: state.own}, 0, 1)), describe(state, 1, 0, 1) | {field: value})
    found, [trouble] = newest(tmp_path)
    assert found is None
    assert "\n" not in trouble


def test_a_tensor_of_a_rank_without_a_number_is_foreign(tmp_path: Path) -> None:
    [state] = small_states(20, 1)
    tensors = part(state, {0: state.own}, 0, 1) | {"own/x/random": torch.zeros(1)}
    write(tmp_path, 0, Snapshot(tensors), describe(state, 1, 0, 1))
    assert newest(tmp_path)[1][0].endswith("slot-0 is damaged and passed over: own/x/random is of no rank")


FOREIGN: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "another optimizer": lambda own: {"random": own["random"]},
    "no random": lambda own: {name: tensor for name, tensor in own.items() if name != "random"},
    "another length": lambda own: own | {"optimizer/velocity": own["optimizer/velocity"][1:]},
    "another shape": lambda own: own | {"optimizer/velocity": own["optimizer/velocity"][None]},
    "another type": lambda own: own | {"optimizer/velocity": own["optimizer/velocity"].double()},
    "nothing": lambda own: {},
}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_divided_optimizer_refuses_a_foreign_checkpoint_in_one_line(foreign: str) -> None:
    comm = Communicator(MPI.COMM_SELF, None, None)
    world = cast(World, SimpleNamespace(rank=0, comm=comm, device=torch.device("cpu")))
    replica = Replica(world, ReplicaOptions(hidden=4), sharded=True)
    state = replica.state(3)
    replica.restore(Checkpoint(0, 3, 1, state.shared, {0: state.own}, state.values))
    with pytest.raises(UsageError, match="slot-0 belongs to another training") as refused:
        replica.restore(Checkpoint(0, 3, 1, state.shared, {0: FOREIGN[foreign](state.own)}, state.values))
    assert "\n" not in str(refused.value)
