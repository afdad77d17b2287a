"""Lab 10: a correct answer may be written differently, and an invalid one gets a plain message."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole_tools.lab import labs
from farandole_tools.lab.grading import grade
from tests.labs.labs_for_tests import LIMIT_S, on

LAB = labs.find("10")

# No rename: the slot that is not needed is overwritten in place. JSON, and a CRC.
IN_PLACE = """
import base64, json, zlib

def slots(disk):
    found = {}
    for name in ("a", "b"):
        try:
            text = disk.read(name)
            checksum, content = json.loads(text)
            step, payload = json.loads(content)
            if zlib.crc32(content.encode()) == checksum and json.dumps([checksum, content]).encode() == text:
                found[name] = step, base64.b64decode(payload)
        except (FileNotFoundError, ValueError, TypeError):
            pass
    return found

def save(disk, step, payload):
    found = slots(disk)
    name = "b" if "a" in found and ("b" not in found or found["b"] < found["a"]) else "a"
    content = json.dumps([step, base64.b64encode(payload).decode()])
    disk.write(name, json.dumps([zlib.crc32(content.encode()), content]).encode())
    disk.sync_folder()
    disk.sync(name)

def load(disk):
    return max(slots(disk).values(), default=None)
"""

# A file for every step; all but the new one and the one before are removed, without a sync.
BY_STEP = """
import hashlib

def whole(disk):
    found = {}
    for name in disk.names():
        data = disk.read(name)
        if name.isdecimal() and data[:64] == hashlib.sha256(name.encode() + data[64:]).hexdigest().encode():
            found[int(name)] = data[64:]
    return found

def save(disk, step, payload):
    before = max(whole(disk), default=None)
    digest = hashlib.sha256(str(step).encode() + payload).hexdigest().encode()
    disk.write("unfinished", digest + payload)
    disk.sync("unfinished")
    disk.rename("unfinished", str(step))
    disk.sync_folder()
    for name in disk.names():
        if name not in (str(step), str(before)):
            disk.remove(name)

def load(disk):
    return max(whole(disk).items(), default=None)
"""

# As in the project: the data in one file, and the step and the checksums in another, which is written last.
TWO_FILES = """
import hashlib, json

def digest(described):
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

def read(disk, slot):
    try:
        data, described = disk.read(f"{slot}.data"), json.loads(disk.read(f"{slot}.json"))
        promised = described.pop("sha256")
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return -1, b""
    right = promised == digest(described) and described["data"] == hashlib.sha256(data).hexdigest()
    return (described["step"], data) if right else (-1, b"")

def replace(disk, name, data):
    disk.write(name + ".unfinished", data)
    disk.sync(name + ".unfinished")
    disk.rename(name + ".unfinished", name)
    disk.sync_folder()

def save(disk, step, payload):
    slot = min((0, 1), key=lambda slot: read(disk, slot))
    described = {"step": step, "data": hashlib.sha256(payload).hexdigest()}
    described["sha256"] = digest(described)
    replace(disk, f"{slot}.data", payload)
    replace(disk, f"{slot}.json", json.dumps(described).encode())

def load(disk):
    newest = max(read(disk, 0), read(disk, 1))
    return newest if newest[0] >= 0 else None
"""


@pytest.mark.parametrize("answer", [IN_PLACE, BY_STEP, TWO_FILES], ids=["in place", "by step", "two files"])
def test_a_right_answer_need_not_look_like_ours(tmp_path: Path, answer: str) -> None:
    (tmp_path / "mine.py").write_text(answer)
    result = grade(on(LAB, 2), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert [check.message for check in result.results if not check.passed] == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("    def load(disk): return 7", "load returns 7, where (step, payload) or None is needed"),
        ("    def load(disk): return '10', b''", "load returns (str, bytes), where (int, bytes) is needed"),
        ("    def load(disk): return 3, b'?'", "load returns step 3 with a payload that has never been saved"),
        ("    def save(disk, step, payload): pass", "the save of step 10 changes nothing on the disk"),
        ("    def save(disk, step, payload): disk.write('a', 'text')", "TypeError: write takes bytes, not str"),
        ("    def save(disk, step, payload): disk.sync('a')", "FileNotFoundError: there is no file 'a'; there are []"),
    ],
)
def test_what_is_no_answer_is_told(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(f"{BY_STEP}\nif True:\n{line}\n")
    result = grade(on(LAB, 1, checks=("crash",)), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True).results[0]
    assert message in result.message
