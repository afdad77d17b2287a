"""The simulated disk of lab 10: after a crash it has everything that was synced, and any part of the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from farandole_tools.lab.disk import Disk, moments

Files = dict[str, bytes]


def left(disk: Disk, limit: int = 4096) -> list[Files]:
    return [crash.files for crash in disk.after_crash(limit)]


def test_what_is_there_in_the_beginning_stays() -> None:
    assert left(Disk({"a": b"1", "b": b""})) == [{"a": b"1", "b": b""}]


def test_of_a_file_written_over_the_old_content_is_left_or_any_beginning_of_the_new() -> None:
    disk = Disk({"a": b"old"})
    disk.write("a", b"xyz")
    assert disk.read("a") == b"xyz"
    assert [files["a"] for files in left(disk)] == [b"xyz", b"old", b"", b"x", b"xy"]
    disk.sync("a")
    assert left(disk) == [{"a": b"xyz"}]


def test_a_new_file_needs_a_sync_of_its_content_and_of_its_name() -> None:
    def written() -> Disk:
        disk = Disk()
        disk.write("a", b"xy")
        return disk

    disk = written()
    assert left(disk) == [{"a": b"xy"}, {"a": b""}, {"a": b"x"}, {}]
    disk.sync("a")
    assert left(disk) == [{"a": b"xy"}, {}]
    disk = written()
    disk.sync_folder()
    assert left(disk) == [{"a": b"xy"}, {"a": b""}, {"a": b"x"}]
    disk.sync("a")
    assert left(disk) == [{"a": b"xy"}]


def test_a_rename_replaces_all_or_nothing() -> None:
    disk = Disk({"new": b"2", "a": b"1"})
    disk.rename("new", "a")
    assert disk.files() == {"a": b"2"}
    assert left(disk) == [{"a": b"2"}, {"a": b"1", "new": b"2"}]
    disk.sync_folder()
    assert left(disk) == [{"a": b"2"}]


def test_a_file_renamed_before_its_sync_may_be_empty() -> None:
    disk = Disk({"a": b"old"})
    disk.write("new", b"xy")
    disk.rename("new", "a")
    disk.sync_folder()
    assert left(disk) == [{"a": b"xy"}, {"a": b""}, {"a": b"x"}]


def test_changes_of_names_happen_in_any_combination() -> None:
    disk = Disk({"a": b"1", "b": b"2"})
    disk.rename("b", "c")
    disk.remove("a")
    assert disk.names() == ["c"]
    assert left(disk) == [{"c": b"2"}, {"a": b"1", "c": b"2"}, {"b": b"2"}, {"a": b"1", "b": b"2"}]


def test_it_is_told_what_was_on_the_disk() -> None:
    disk = Disk({"a": b"old"})
    disk.write("new", b"xyz")
    disk.rename("new", "a")
    told = [crash.told for crash in disk.after_crash()]
    assert told[0] == "with everything on the disk"
    assert "with 2 of the 3 bytes of 'a' on the disk" in told
    assert "with 1 of the 3 bytes of 'new' and without rename('new', 'a') on the disk" in told


def test_too_many_states_are_sampled_and_always_the_same_ones() -> None:
    disk = Disk()
    for name in "abcd":
        disk.write(name, bytes(100))
    states = left(disk, limit=50)
    assert 10 < len(states) <= 50
    assert states == left(disk, limit=50)
    assert states[0] == disk.files()
    assert {} in states
    assert [crash.files for crash in disk.after_crash(50, seed=1)] != states


def test_a_moment_is_after_each_call_that_changes_something() -> None:
    def work(disk: Disk) -> None:
        disk.write("a", b"xy")
        disk.read("a")
        disk.sync("a")
        disk.rename("a", "b")
        disk.sync_folder()
        disk.remove("b")

    disk = Disk()
    found = moments(disk, work)
    assert [call for call, _ in found] == [
        *("write('a', 2 bytes)", "sync('a')", "rename('a', 'b')", "sync_folder()", "remove('b')")
    ]
    assert [moment.names() for _, moment in found] == [["a"], ["a"], ["b"], ["b"], []]
    assert [len(left(moment)) for _, moment in found] == [4, 2, 3, 1, 2]
    disk.write("c", b"")
    assert len(found) == 5, "what comes later is not noted"


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda disk: disk.read("b"), FileNotFoundError, "there is no file 'b'; there are \\['a'\\]"),
        (lambda disk: disk.remove("b"), FileNotFoundError, "no file 'b'"),
        (lambda disk: disk.rename("b", "c"), FileNotFoundError, "no file 'b'"),
        (lambda disk: disk.write("a", "text"), TypeError, "write takes bytes, not str"),
        (lambda disk: disk.write("a/b", b""), ValueError, "'a/b' is no name of a file"),
        (lambda disk: disk.rename("a", ""), ValueError, "'' is no name of a file"),
    ],
)
def test_wrong_use_is_told(use: Callable[[Disk], object], error: type[Exception], message: str) -> None:
    disk = Disk({"a": b"1"})
    with pytest.raises(error, match=message):
        use(disk)
    assert disk.files() == {"a": b"1"}
