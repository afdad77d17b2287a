"""The table of which kind of message uses which field, against every header that the parameter server makes."""

from __future__ import annotations

import ast
from pathlib import Path

import farandole.parameter_server
from farandole.parameter_server.header import FIELDS, USES, Header, Kind
from farandole.parameter_server.message_queue import pack, unpack

ROOM = Path(farandole.parameter_server.__file__).parent


def made() -> list[tuple[str, Kind, set[str]]]:
    """Return where a header is made in the room, its kind, and its fields."""
    found = []
    for path in sorted(ROOM.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "Header"
                and node.args
            ):
                kind = node.args[0]
                if isinstance(kind, ast.Attribute):  # otherwise the kind is a variable
                    fields = {keyword.arg for keyword in node.keywords if keyword.arg}
                    found.append((f"{path.name}:{node.lineno}", Kind[kind.attr], fields))
    return found


def test_every_kind_has_its_fields() -> None:
    assert USES.keys() == set(Kind)
    assert all(set(fields) <= set(FIELDS) - {"kind", "source"} for fields in USES.values())


def test_no_header_sets_a_field_that_its_kind_does_not_use() -> None:
    headers = made()
    assert len(headers) > 20
    wrong = [
        (where, kind.name, fields - set(USES[kind])) for where, kind, fields in headers if fields - set(USES[kind])
    ]
    assert wrong == []


def test_a_header_arrives_as_it_was_sent() -> None:
    header = Header(Kind.PUSH, worker=3, partition=1, request_id=7, clock=2**40, share=0.1, timestamp=1.5)
    assert unpack(pack(header), source=3) == Header(
        Kind.PUSH, source=3, worker=3, partition=1, request_id=7, clock=2**40, share=0.1, timestamp=1.5
    )
