"""Standard streams that are closed, full, without a reader, or unable to encode the output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Prints, reports what was lost, and whether the next opened file could be mistaken for standard output.
PROGRAM = """
import os, sys
from farandole.runtime import streams
streams.secure()
print(os.environb[b"TEXT"].decode("utf-8", "surrogateescape"), flush=True)
print("more")
print(streams.lost(), streams.left_by_reader(), os.open(os.devnull, os.O_RDONLY) > 2, file=sys.stderr)
"""


def printed(text: bytes, redirection: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"TEXT": os.fsdecode(text), "PROGRAM": PROGRAM, "PYTHON": sys.executable} | variables
    command = ["bash", "-c", f'"$PYTHON" -c "$PROGRAM" {redirection}']
    return subprocess.run(command, capture_output=True, env=environment)


@pytest.mark.parametrize(
    ("redirection", "told"),
    [
        ("", "None"),
        (">/dev/full", "standard output could not be written: No space left on device"),
        (">&-", "standard output could not be written: it is closed"),
        ("<&-", "None"),
        ("<&- >&-", "standard output could not be written: it is closed"),
    ],
)
def test_what_cannot_be_written_is_told_and_ends_nothing(redirection: str, told: str) -> None:
    done = printed(b"x", redirection)
    assert (done.returncode, done.stderr.decode()) == (0, f"{told} False True\n")


def test_a_reader_that_has_left_is_told_from_others() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, env=os.environ | {"TEXT": "x"})
    os.close(write)
    assert done.stderr == b"standard output could not be written: its reader has left True True\n"


def test_without_standard_error_nothing_fails_and_nothing_goes_to_standard_output() -> None:
    done = printed(b"x", "2>&-")
    assert (done.returncode, done.stdout) == (0, b"x\nmore\n")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "3 × α – é │ …".encode() + b" \xff"),
        ("ascii", b"3 x alpha - e | ... \xff"),
        ("latin-1", "3 × alpha - é | ...".encode("latin-1") + b" \xff"),
    ],
)
def test_what_an_encoding_has_no_code_for_is_printed_as_a_sign_like_it(encoding: str, shown: bytes) -> None:
    done = printed("3 × α – é │ …".encode() + b" \xff", "", PYTHONIOENCODING=encoding)
    assert done.stdout.splitlines()[0] == shown, done.stderr


def test_the_command_says_in_a_line_that_output_is_missing() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "farandole", "list"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"farandole: standard output could not be written: No space left on device\n"
