"""Chakra execution traces: a record in the format that ASTRA-sim replays.

    FOLDER/NAME.RANK.et        of each rank, numbered from 0: a `GlobalMetadata`, then a `Node` for each node of
                               `replay_graph`; before each message its length, as a varint
    FOLDER/NAME.groups.json    where groups of some ranks communicate: number of the group → its ranks

A computation is a COMP_NODE with its duration. A message is a COMM_SEND_NODE and a COMM_RECV_NODE with the same tag. An
all-reduce, all-gather or reduce-scatter is a COMM_COLL_NODE of each member, for which the simulator has its own
algorithm. All others are exported as the messages that they were, also those with a parameter server, and so are
broadcasts and all-to-alls: ASTRA-sim lacks the former, and takes equal blocks in the latter.

Names and numbers of fields: MLCommons Chakra, `schema/protobuf/et_def.proto`. Attributes, their types, and sizes (that
of an all-gather is one rank's part): ASTRA-sim, `astra-sim/workload/Workload.cc` and `…/collective_algorithm/Ring.cc`,
and Chakra's `src/feeder/et_feeder_node.cpp`, as of 2026. Sridharan et al., "Chakra: advancing performance benchmarking
and co-design using standardized execution traces", 2023; Won et al., "ASTRA-sim2.0", 2023.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.report.replay_graph import Node, graphs
from farandole.runtime.files import write
from farandole.runtime.record import Run
from farandole.runtime.traffic import COLLECTIVES, RECEIVE

VERSION = "0.0.4"  # of the schema, as Chakra's own generator writes it
COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE, COMM_COLL_NODE = 4, 5, 6, 7
COMM_TYPES = {"all-reduce": 0, "all-gather": 2, "reduce-scatter": 7}
# The part of the schema that is written: message → its fields, each with its number and its type. A type in capitals is
# a repeated one; all of those that end in _val are one oneof.
SCHEMA: dict[str, dict[str, tuple[int, str]]] = {
    "AttributeProto": {
        "name": (1, "string"),
        "int32_val": (7, "int32"),
        "int64_val": (9, "int64"),
        "bool_val": (27, "bool"),
        "string_val": (29, "string"),
    },
    "GlobalMetadata": {"version": (1, "string"), "attr": (2, "ATTRIBUTES")},
    "Node": {
        "id": (1, "uint64"),
        "name": (2, "string"),
        "type": (3, "int32"),
        "data_deps": (5, "UINT64"),
        "start_time_micros": (6, "uint64"),
        "duration_micros": (7, "uint64"),
        "attr": (10, "ATTRIBUTES"),
    },
}


def export(run: Run, folder: Path) -> list[Path]:
    """Write the traces of a run to a new folder, and return the files.

    Raises:
        UsageError: protobuf is missing, the folder exists or cannot be written, or as `replay_graph.graphs`.
    """
    try:
        importlib.import_module("google.protobuf")
    except ImportError as error:
        raise UsageError("--format chakra needs a package that is missing: pip install 'protobuf>=5.29'") from error
    if folder.exists():
        raise UsageError(f"--out {folder} exists: give a new folder, or remove that one first")
    nodes, writer, name = graphs(run), Writer(run), run.summary.scenario
    files = {f"{name}.{place}.et": writer.encoded(rank, nodes[rank]) for rank, place in writer.places.items()}
    if writer.named:
        files[f"{name}.groups.json"] = json.dumps(writer.named).encode()
    try:
        folder.mkdir(parents=True)
        for file, content in files.items():
            write(folder / file, content)
    except OSError as error:
        raise UsageError(f"--out {folder} cannot be written ({error.strerror}): give another") from error
    return [folder / file for file in files]


class Writer:
    """Encodes the graphs of one run.

    Attributes:
        places: each rank's number in the simulator, from 0.
        named: the groups that need a definition, which the first one of all ranks does not: number → its ranks.
    """

    def __init__(self, run: Run) -> None:
        self.places = {rank: place for place, rank in enumerate(run.summary.members)}
        self._groups = [[self.places[rank] for rank in group] for group in run.groups or []]
        whole = next((number for number, each in enumerate(self._groups) if len(each) == len(self.places)), None)
        self.named = {str(number + 1): each for number, each in enumerate(self._groups) if number != whole}
        self._types = message_types()
        self._of = run.folder.name

    def encoded(self, rank: int, nodes: Sequence[Node]) -> bytes:
        """Return the content of one rank's file."""
        from google.protobuf.proto import serialize_length_prefixed

        stream = BytesIO()
        metadata = self._types["GlobalMetadata"](version=VERSION)
        metadata.attr.extend(self._attributes(record=self._of, rank=str(rank)))
        serialize_length_prefixed(metadata, stream)
        for number, node in enumerate(nodes):
            kind, attributes = self._described(rank, node)
            message = self._types["Node"](id=number, name=node.name, type=kind, data_deps=node.after)
            message.start_time_micros = max(0, round(node.start))
            message.duration_micros = node.duration_us if kind == COMP_NODE else 0
            message.attr.extend(self._attributes(is_cpu_op=False, **attributes))
            serialize_length_prefixed(message, stream)
        return stream.getvalue()

    def _described(self, rank: int, node: Node) -> tuple[int, dict[str, Any]]:
        """Return a node's type and attributes; a message has at least a byte, and a collective one for each member."""
        if node.kind == "compute":
            return COMP_NODE, {}
        if node.kind in COLLECTIVES:
            group = node.about["group"]
            size = max(node.about["size"], len(self._groups[group]))
            name = str(group + 1)
            named = {"pg_name": name} if name in self.named else {}
            return COMM_COLL_NODE, {"comm_type": COMM_TYPES[node.kind], "comm_size": size, **named}
        source, to = self.places[rank], self.places[node.about["peer"]]
        kind = COMM_SEND_NODE
        if node.kind == RECEIVE:
            kind, source, to = COMM_RECV_NODE, to, source
        size = max(1, node.about["bytes"])
        return kind, {"comm_src": source, "comm_dst": to, "comm_tag": node.about["message"], "comm_size": size}

    def _attributes(self, **values: Any) -> list[Any]:
        """Return attributes of the types in which both of the simulator's readers expect them."""
        found = []
        for name, value in values.items():
            number = "int64_val" if name in ("comm_size", "comm_type") else "int32_val"
            kind = {bool: "bool_val", str: "string_val", int: number}[type(value)]
            found.append(self._types["AttributeProto"](name=name, **{kind: value}))
        return found


def message_types() -> dict[str, Any]:
    """Return the class of each message of `SCHEMA`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="farandole/chakra.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number, label=3 if kind.isupper() else 1)
            if kind == "ATTRIBUTES":
                added.type, added.type_name = field_types.TYPE_MESSAGE, ".ChakraProtoMsg.AttributeProto"
            else:
                added.type = getattr(field_types, f"TYPE_{kind.upper()}")
            if field.endswith("_val"):
                added.oneof_index = 0
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}") for name in SCHEMA}
    return {name: message_factory.GetMessageClass(each) for name, each in found.items()}
