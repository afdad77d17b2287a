"""Known wrong answers of lab 10, as changes of `ORIGINAL`, a right answer written out."""

from __future__ import annotations

from farandole_tools.lab.mutants import Mutant, Sentences

ORIGINAL = """\
import hashlib

SLOTS = ("slot-0", "slot-1")


def packed(step, payload):
    content = step.to_bytes(8, "big") + payload
    return hashlib.sha256(content).digest() + content


def unpacked(disk, name):
    if name not in disk.names():
        return None
    data = disk.read(name)
    digest, content = data[:32], data[32:]
    if len(content) < 8 or hashlib.sha256(content).digest() != digest:
        return None
    return int.from_bytes(content[:8], "big"), content[8:]


def save(disk, step, payload):
    steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
    slot = min(SLOTS, key=steps.get)
    disk.write("new", packed(step, payload))
    disk.sync("new")
    disk.rename("new", slot)
    disk.sync_folder()


def load(disk):
    return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)
"""

MUTANTS = [
    Mutant(
        name="adds_up_the_bytes",
        says="The checksum is the sum of all bytes, which does not detect that two are swapped.",
        fails={"flipped bytes": "exchanged: load returns the payload of step 10 as that of step 2560"},
        changes={
            "import hashlib": "",
            "return hashlib.sha256(content).digest() + content": """
            return sum(content).to_bytes(32, "big") + content
            """,
            "if len(content) < 8 or hashlib.sha256(content).digest() != digest:": """
            if len(content) < 8 or sum(content).to_bytes(32, "big") != digest:
            """,
        },
    ),
    Mutant(
        name="alternates_after_damage",
        says="Trusts the step in a damaged file, and so overwrites the intact one.",
        fails={"good slot": "a bit flipped in byte 32 of 'slot-0'; step 30 was saved; then"},
        changes={
            "def save(disk, step, payload):": """
            def step_in(disk, name):
                return int.from_bytes(disk.read(name)[32:40], "big") if name in disk.names() else -1


            def save(disk, step, payload):
            """,
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            """: "slot = min(SLOTS, key=lambda name: step_in(disk, name))",
        },
    ),
    Mutant(
        name="checksum_without_the_step",
        says="The checksum covers only the payload: a flipped bit in the step is not detected.",
        fails={
            "flipped bytes": "a bit flipped in byte 32 of 'slot-0': load returns the payload of step 10 as that",
            "good slot": "returns the payload of step 10 as that of step",
        },
        changes={
            """
            content = step.to_bytes(8, "big") + payload
            return hashlib.sha256(content).digest() + content
            """: 'return hashlib.sha256(payload).digest() + step.to_bytes(8, "big") + payload',
            "if len(content) < 8 or hashlib.sha256(content).digest() != digest:": """
            if len(content) < 8 or hashlib.sha256(content[8:]).digest() != digest:
            """,
        },
    ),
    Mutant(
        name="expects_a_checkpoint",
        says="Assumes that some file is whole: where nothing has been saved, or all is damaged, load fails.",
        fails=dict.fromkeys(("load", "crash", "flipped bytes", "truncated"), "ValueError: max()"),
        changes={", default=None": ""},
    ),
    Mutant(
        name="expects_a_whole_header",
        says="Assumes that a file is long enough for its header.",
        fails={
            "truncated": "only 0 of the 36 bytes of 'slot-0' left: error: unpack requires a buffer of 12",
            "good slot": "only 0 bytes of 'slot-0' left: error: unpack",
        },
        changes={
            "import hashlib": """
            import struct
            import zlib
            """,
            """
            content = step.to_bytes(8, "big") + payload
            return hashlib.sha256(content).digest() + content
            """: """
            content = struct.pack(">Q", step) + payload
            return struct.pack(">I", zlib.crc32(content)) + content
            """,
            """
            digest, content = data[:32], data[32:]
            if len(content) < 8 or hashlib.sha256(content).digest() != digest:
                return None
            return int.from_bytes(content[:8], "big"), content[8:]
            """: """
            checksum, step = struct.unpack(">IQ", data[:12])
            return (step, data[12:]) if zlib.crc32(data[4:]) == checksum else None
            """,
        },
    ),
    Mutant(
        name="hash_of_this_process",
        says="The checksum is hash(), which differs in every process.",
        fails={"another process": "Python's hash() differs in each"},
        changes={
            "import hashlib": "",
            "return hashlib.sha256(content).digest() + content": """
            return hash(content).to_bytes(32, "big", signed=True) + content
            """,
            "if len(content) < 8 or hashlib.sha256(content).digest() != digest:": """
            if len(content) < 8 or hash(content).to_bytes(32, "big", signed=True) != digest:
            """,
        },
    ),
    Mutant(
        name="keeps_everything",
        says="A file for every step, and none is ever removed.",
        fails={"room": "6.0 times what one checkpoint needs (new, step-0, step-1"},
        changes={
            'SLOTS = ("slot-0", "slot-1")': "",
            "def save(disk, step, payload):": """
            def checkpoints(disk):
                \"\"\"Name and content of all that are whole, the newest last.\"\"\"
                whole = ((unpacked(disk, name), name) for name in disk.names() if name.startswith("step-"))
                return sorted((found, name) for found, name in whole if found)


            def save(disk, step, payload):
            """,
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            """: "",
            'disk.rename("new", slot)': 'disk.rename("new", f"step-{step}")',
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            return checkpoints(disk)[-1][0] if checkpoints(disk) else None
            """,
        },
    ),
    Mutant(
        name="keeps_the_two_highest_steps",
        says="Keeps the two files with the highest steps in their names, whether they are intact or not.",
        fails={"good slot": "of 'step-15': load returns None, but step 10 was whole"},
        changes={
            'SLOTS = ("slot-0", "slot-1")': "",
            "def save(disk, step, payload):": """
            def checkpoints(disk):
                \"\"\"Name and content of all that are whole, the newest last.\"\"\"
                whole = ((unpacked(disk, name), name) for name in disk.names() if name.startswith("step-"))
                return sorted((found, name) for found, name in whole if found)


            def save(disk, step, payload):
            """,
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            """: "",
            'disk.rename("new", slot)': 'disk.rename("new", f"step-{step}")',
            "disk.sync_folder()": """
            disk.sync_folder()
            steps = sorted(int(name.partition("-")[2]) for name in disk.names() if name.startswith("step-"))
            for old in steps[:-2]:
                disk.remove(f"step-{old}")
            """,
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            return checkpoints(disk)[-1][0] if checkpoints(disk) else None
            """,
        },
    ),
    Mutant(
        name="leaves_temporaries",
        says="Names its temporary file by the step: what a crash leaves is never used again, nor removed.",
        fails={"room": "times what one checkpoint needs (new-11, new-12"},
        changes={
            """
            disk.write("new", packed(step, payload))
            disk.sync("new")
            disk.rename("new", slot)
            """: """
            disk.write(f"new-{step}", packed(step, payload))
            disk.sync(f"new-{step}")
            disk.rename(f"new-{step}", slot)
            """,
        },
    ),
    Mutant(
        name="length_in_two_bytes",
        says="Writes the payload's length into two bytes, which are too few for more than 65,535.",
        fails={"load": "int too big to convert"},
        changes={
            'content = step.to_bytes(8, "big") + payload': """
            content = step.to_bytes(8, "big") + len(payload).to_bytes(2, "big") + payload
            """,
            'return int.from_bytes(content[:8], "big"), content[8:]': """
            return int.from_bytes(content[:8], "big"), content[10:]
            """,
        },
    ),
    Mutant(
        name="loads_slot_0",
        says="Loads slot 0 if it is intact, even when the other is newer.",
        fails={
            "load": "load returns step 10, but step 20 has just been saved",
            "crash": "load returns step 10, but step 20 had been saved",
            "durable": "with everything on the disk: load returns step 10, but step 20",
            "good slot": "load returns step 20, but step 10 was whole",
            "another process": "load returns step 30, but step 40 has just been saved",
        },
        changes={
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            return unpacked(disk, "slot-0") or unpacked(disk, "slot-1")
            """,
        },
    ),
    Mutant(
        name="no_checksum",
        says="Accepts any content of a file that is long enough.",
        fails={
            "flipped bytes": "a bit flipped in byte 0 of 'slot-0': load returns the payload of step 10 as that of step",
            "truncated": "with a payload that has never been saved",
            "good slot": "load returns the payload of step 10 as that of step",
        },
        changes={
            "import hashlib": "",
            """
            def packed(step, payload):
                content = step.to_bytes(8, "big") + payload
                return hashlib.sha256(content).digest() + content


            def unpacked(disk, name):
            """: "def unpacked(disk, name):",
            "if name not in disk.names():": "if name not in disk.names() or len(disk.read(name)) < 8:",
            """
            digest, content = data[:32], data[32:]
            if len(content) < 8 or hashlib.sha256(content).digest() != digest:
                return None
            return int.from_bytes(content[:8], "big"), content[8:]
            """: 'return int.from_bytes(data[:8], "big"), data[8:]',
            'disk.write("new", packed(step, payload))': 'disk.write("new", step.to_bytes(8, "big") + payload)',
        },
    ),
    Mutant(
        name="no_payload_is_no_checkpoint",
        says="Treats an empty payload as no checkpoint.",
        fails={"load": "(7, b'') has been saved, and load returns None"},
        changes={
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            found = max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)
            return found if found and found[1] else None
            """,
        },
    ),
    Mutant(
        name="no_sync_before_the_rename",
        says="Renames a file that is not on the disk yet: the name may be there without its content.",
        fails={
            "durable": "had returned, with 0 of the 64 bytes of 'slot-0' on the disk: load returns None",
            "good slot": "with an older content of 'slot-1' on the disk: load returns step 20",
        },
        changes={'disk.sync("new")': ""},
    ),
    Mutant(
        name="no_sync_of_the_folder",
        says="Syncs the file's content, but not its new name.",
        fails={"durable": "without rename('new', 'slot-0') on the disk: load returns None, but step 10"},
        changes={"disk.sync_folder()": ""},
    ),
    Mutant(
        name="one_slot",
        says="Has one file, correctly replaced: but if it is damaged there is no other.",
        fails={
            "flipped bytes": "only one is damaged",
            "truncated": "only one is damaged",
            "good slot": "is in no file any more: has step 15 overwritten it?",
        },
        changes={
            'SLOTS = ("slot-0", "slot-1")': "",
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            """: "",
            'disk.rename("new", slot)': 'disk.rename("new", "checkpoint")',
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            return unpacked(disk, "checkpoint")
            """,
        },
    ),
    Mutant(
        name="overwrites_in_place",
        says="Writes over the only checkpoint: from then until it is synced there may be none.",
        fails={
            "crash": "with 0 of the 57 bytes of 'checkpoint' on the disk: load returns None",
            "flipped bytes": "only one is damaged",
            "truncated": "only one is damaged",
            "good slot": "load returns None, but step 20 was loaded before it",
        },
        changes={
            'SLOTS = ("slot-0", "slot-1")': "",
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            disk.write("new", packed(step, payload))
            disk.sync("new")
            disk.rename("new", slot)
            """: """
            disk.write("checkpoint", packed(step, payload))
            disk.sync("checkpoint")
            """,
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            return unpacked(disk, "checkpoint")
            """,
        },
    ),
    Mutant(
        name="overwrites_the_newest",
        says="Replaces the slot with the newest checkpoint, and keeps the oldest for ever.",
        fails={
            "flipped bytes": "step 10 is in no file any more: has step 20 overwritten it?",
            "truncated": "step 10 is in no file any more: has step 20 overwritten it?",
            "good slot": "step 10 is in no file any more: has step 15 overwritten it?",
        },
        changes={"slot = min(SLOTS, key=steps.get)": "slot = max(SLOTS, key=steps.get)"},
    ),
    Mutant(
        name="believes_the_temporary_file",
        says="Loads the newest of all files, the temporary one too, which the next save overwrites.",
        fails={"good slot": "did load accept a temporary file, which the next save has overwritten?"},
        changes={
            "(unpacked(disk, name) for name in SLOTS)), default=None)": """
            (unpacked(disk, name) for name in disk.names())), default=None)
            """,
        },
    ),
    Mutant(
        name="raises_when_the_checksum_differs",
        says="Treats a damaged file as an error, and does not read the other.",
        fails={
            "flipped bytes": "ValueError: slot-0 is damaged, at line",
            "truncated": "ValueError: slot-0 is damaged, at line",
            "good slot": "ValueError: slot-0 is damaged, at line",
        },
        changes={
            """
            if len(content) < 8 or hashlib.sha256(content).digest() != digest:
                return None
            """: """
            if len(content) < 8 or hashlib.sha256(content).digest() != digest:
                raise ValueError(f"{name} is damaged")
            """,
        },
    ),
    Mutant(
        name="remembers_the_checkpoint",
        says="Keeps the last checkpoint in a variable, too, and loads that: a restarted process has no such variable.",
        fails={
            "load": "keep state only on the disk",
            "another process": "load returns step 99, but another process, rank 0, has saved step 30",
        },
        changes={
            'SLOTS = ("slot-0", "slot-1")': """
            SLOTS = ("slot-0", "slot-1")
            last = None
            """,
            "steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}": """
            global last
            last = step, payload
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            """,
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            return last or max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)
            """,
        },
    ),
    Mutant(
        name="remembers_the_slot",
        says="Keeps in a variable which slot is next, and does not check which one is intact.",
        fails={"good slot": "does the choice of the file depend on something that is not on the disk?"},
        changes={
            'SLOTS = ("slot-0", "slot-1")': """
            SLOTS = ("slot-0", "slot-1")
            saves = 0
            """,
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            """: """
            global saves
            slot = SLOTS[saves % 2]
            saves += 1
            """,
        },
    ),
    Mutant(
        name="removes_before_the_folder_is_synced",
        says="Removes the old file before the new name is on the disk: only the removal may have happened.",
        fails={
            "crash": "without rename('new', 'step-20') on the disk: load returns None",
            "flipped bytes": "only one is damaged",
            "truncated": "only one is damaged",
            "good slot": "without rename('new', 'step-15') on the disk",
        },
        changes={
            'SLOTS = ("slot-0", "slot-1")': "",
            "def save(disk, step, payload):": """
            def checkpoints(disk):
                \"\"\"Name and content of all that are whole, the newest last.\"\"\"
                whole = ((unpacked(disk, name), name) for name in disk.names() if name.startswith("step-"))
                return sorted((found, name) for found, name in whole if found)


            def save(disk, step, payload):
            """,
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            """: "",
            'disk.rename("new", slot)': """
            disk.rename("new", f"step-{step}")
            for _, old in checkpoints(disk)[:-1]:
                disk.remove(old)
            """,
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            return checkpoints(disk)[-1][0] if checkpoints(disk) else None
            """,
        },
    ),
    Mutant(
        name="slot_by_the_step",
        says="The slot is step % 2: with a save every ten steps it is always the same one.",
        fails={
            "flipped bytes": "step 10 is in no file any more: has step 20 overwritten it?",
            "truncated": "step 10 is in no file any more: has step 20 overwritten it?",
            "good slot": "is in no file any more: has step 20 overwritten it?",
        },
        changes={
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            """: "slot = SLOTS[step % 2]",
        },
    ),
    Mutant(
        name="sorts_the_names",
        says="Loads the last name in alphabetical order, where step-9 comes after step-10.",
        fails={
            "load": "load returns step 9, but step 10 has just been saved",
            "good slot": "is in no file any more: has step",
        },
        changes={
            'SLOTS = ("slot-0", "slot-1")': "",
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            """: "",
            'disk.rename("new", slot)': 'disk.rename("new", f"step-{step}")',
            "disk.sync_folder()": """
            disk.sync_folder()
            for old in disk.names()[:-2]:
                disk.remove(old)
            """,
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            found = [unpacked(disk, name) for name in disk.names() if name.startswith("step-")]
            return ([None] + [checkpoint for checkpoint in found if checkpoint])[-1]
            """,
        },
    ),
    Mutant(
        name="step_0_is_no_checkpoint",
        says="Treats step 0 as no checkpoint.",
        fails={"load": "load returns None, but step 0 has just been saved"},
        changes={
            'return int.from_bytes(content[:8], "big"), content[8:]': """
            step = int.from_bytes(content[:8], "big")
            return (step, content[8:]) if step else None
            """,
        },
    ),
    Mutant(
        name="step_in_a_file_of_its_own",
        says="Replaces first the payload and then the step: in between they do not belong together.",
        fails={
            "crash": "load returns the payload of step 20 as that of step 10",
            "flipped bytes": "only one is damaged",
            "truncated": "only one is damaged",
            "good slot": "load returns the payload of step 15 as that of step 10",
        },
        changes={
            'SLOTS = ("slot-0", "slot-1")': "",
            """
            def packed(step, payload):
                content = step.to_bytes(8, "big") + payload
                return hashlib.sha256(content).digest() + content
            """: """
            def packed(data):
                return hashlib.sha256(data).digest() + data
            """,
            """
            if name not in disk.names():
                return None
            data = disk.read(name)
            digest, content = data[:32], data[32:]
            if len(content) < 8 or hashlib.sha256(content).digest() != digest:
                return None
            return int.from_bytes(content[:8], "big"), content[8:]
            """: """
            data = disk.read(name) if name in disk.names() else b""
            return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None
            """,
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            disk.write("new", packed(step, payload))
            disk.sync("new")
            disk.rename("new", slot)
            disk.sync_folder()
            """: """
            for name, content in (("payload", payload), ("step", b"%d" % step)):
                disk.write("new", packed(content))
                disk.sync("new")
                disk.rename("new", name)
                disk.sync_folder()
            """,
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            step, payload = unpacked(disk, "step"), unpacked(disk, "payload")
            return None if step is None or payload is None else (int(step), payload)
            """,
        },
    ),
    Mutant(
        name="zero_length_file",
        says="Replaces its one file by one that is synced only afterwards: for a while there may be an empty one.",
        fails={
            "crash": "after rename('new', 'checkpoint'), with 0 of the 57 bytes of 'checkpoint' on the disk",
            "flipped bytes": "only one is damaged",
            "truncated": "only one is damaged",
            "good slot": "but step 10 was loaded before it, and step 15 was on its way",
        },
        changes={
            'SLOTS = ("slot-0", "slot-1")': "",
            """
            steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
            slot = min(SLOTS, key=steps.get)
            """: "",
            """
            disk.sync("new")
            disk.rename("new", slot)
            """: 'disk.rename("new", "checkpoint")',
            "disk.sync_folder()": """
            disk.sync_folder()
            disk.sync("checkpoint")
            """,
            "return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)": """
            return unpacked(disk, "checkpoint")
            """,
        },
    ),
]

SENTENCES: Sentences = {
    "save": {
        "Save the state of the training": "names what the function does",
        "If the machine crashes during this call": [
            "overwrites_in_place",
            "removes_before_the_folder_is_synced",
            "step_in_a_file_of_its_own",
            "zero_length_file",
        ],
        "the new one is on the disk": ["no_sync_before_the_rename", "no_sync_of_the_folder"],
        "the one that `load` returned before is still there": [
            "one_slot",
            "overwrites_the_newest",
            "slot_by_the_step",
            "alternates_after_damage",
            "keeps_the_two_highest_steps",
        ],
        "Only the disk keeps state": ["remembers_the_checkpoint", "remembers_the_slot", "hash_of_this_process"],
        "files of a save that was interrupted": ["believes_the_temporary_file", "leaves_temporaries"],
        "The number of files is bounded": ["keeps_everything"],
        "data that is not synced may be lost": ["no_sync_before_the_rename"],
        "step: 0 or more": ["step_0_is_no_checkpoint"],
        "and above the step": "says what the caller keeps to",
        "as any number of bytes": ["length_in_two_bytes", "no_payload_is_no_checkpoint"],
    },
    "load": {
        "Return the step and the payload of the newest checkpoint": ["loads_slot_0", "sorts_the_names"],
        "A file with changed bytes": ["no_checksum", "adds_up_the_bytes", "checksum_without_the_step"],
        "with bytes missing at the end": ["expects_a_whole_header"],
        "it never raises an error": ["raises_when_the_checksum_differs"],
        "Return None if no checkpoint is whole": ["expects_a_checkpoint"],
    },
}
