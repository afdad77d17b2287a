"""Trainings that end with the same bits every time, and their results: parameters, bytes and messages of each rank.

A change of the code that must keep the methods' results is compared with this record. Bytes and messages hold
everywhere (those of a mixture of experts, unless rounding decides which expert a token goes to). The parameters are
recorded for each way of rounding that has been met, named by the digest of a small computation
(`programs/numerics.py`); on a machine that rounds otherwise they are not compared. After a change that is meant to
change results:

    python -m tests.parallel.same_parameters              trains, and lists what differs from the record
    python -m tests.parallel.same_parameters --record     trains twice, and records what is the same both times

Both do so for all numbers of ranks, or those that are named, as in `--record 3 4`. Where a training's results are
recorded anew and differ, its parameters of other machines are removed, since they no longer hold.

Not here is what differs from run to run. Trainings that follow measured times: `adaptive`, `sync_cost`, `dynamic_sync`
without --period, a pipeline with --balance time. Several workers that do not wait for each other: `parameter_server` is
here with one worker, or where each step waits for all (--sync bsp), and heartbeats do not count; `ad_psgd` has no
common steps. `downpour` and `online`, whose number of messages varies with the load, though with one worker their
parameters do not. What a library sums, in its own order: `ddp_sgd`, `horovod_sgd`, `elastic_horovod`, and
--collective mpi.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from farandole.parameter_server.header import FIELDS
from farandole.runtime.launcher import run_ranks
from farandole_tools.forked_ranks import fork_server

HERE = Path(__file__).parent
RECORDED = HERE / "same_parameters.json"
PROGRAM = HERE / "programs" / "recorded_trainings.py"
GRAPH = "tests/parallel/programs/one_way.graph"
KINDS = ("parameters", "bytes", "messages")
HEADER_BYTES = 8 * len(FIELDS)
Trainings = dict[str, dict[str, Any]]

OURS = ["central", "tree", "doubling", "halving-doubling", "ring", "bidirectional-ring", "segmented-ring"]
OURS += ["hierarchical", "shared-memory"]
GRID_SCHEDULES = ["naive", "gpipe", "1f1b", "interleaved", "zero-bubble"]
TEXT = "--data pydoc --model transformer --hidden 32 --batch 8"
SMALL = "--hidden 64 --depth 1 --batch 8"


def each(option: str, values: str) -> list[str]:
    return [f"{option} {value}" for value in values.split()]


# Which number of ranks, which scenario and its usual steps, and the options beside.
TABLE: list[tuple[str, str, list[str]]] = [
    ("1 2 3 4 7", "sync_sgd --steps 5", ["", "--bucket-kb 16 --overlap"]),
    ("2 3 4 7", "sync_sgd --steps 5", [f"--collective {name}" for name in [*OURS, "window"] if name != "ring"]),
    (
        "3",
        "sync_sgd --steps 5",
        [
            *each("--optimizer", "momentum adam lars lars-normalised lamb"),
            *each("--precision", "float16 bfloat16"),
            *each("--lr-schedule", "cosine plateau"),
            "--warm-up 3 --lr-batch 32",
            "--l2 0.01 --weight-decay 0.1",
            "--capabilities 1 2 4",
            "--loading files",
            "--random-factors 0.5",
            "--background-metrics",
            "--model cnn --batch 16 --lr 0.1",
            "--bucket-kb 16",
            TEXT,
            f"{TEXT} --precision bfloat16 --float32-layers norms",
            "--slow rank=1,factor=2",
            "--seed 7",
        ],
    ),
    (
        "1 3 4",
        "compressed_sgd --steps 5",
        each("--compressor", "none float16 bfloat16 qsgd terngrad sign majority-vote top-k random-k dgc powersgd"),
    ),
    (
        "3",
        "compressed_sgd --steps 5",
        [
            *[f"--compressor {name} --feedback" for name in ("qsgd", "terngrad", "float16")],
            *[f"--compressor {name} --no-feedback" for name in ("sign", "top-k", "random-k", "powersgd")],
            "--compressor qsgd --levels 127 --bucket 64",
            "--compressor terngrad --terngrad-clip 2.5 --share-scales",
            "--compressor dgc --sparsity-warm-up 3 --clip 1 --dgc-momentum 0.5",
            "--compressor powersgd --matrix-rank 4 --optimizer momentum",
            "--compressor top-k --fraction 0.1",
        ],
    ),
    (
        "1 2 3 4 7",
        "local_sgd --steps 6 --period 2",
        ["", "--alpha 0.5", "--once", "--synchronous 3"],
    ),
    ("4", "local_sgd --steps 6 --period 2 --collective", OURS),
    ("3", "local_sgd --steps 6 --period 2 --optimizer", ["momentum", "adam"]),
    (
        "3",
        "agnostic_sgd --steps 5 --local-batch 4",
        ["", "--capabilities 1 2 4", "--capabilities 1 2 4 --rule plain", "--paces 1 0.5 0.25", "--collective tree"],
    ),
    ("2 3 4", "dynamic_sync --steps 6 --period 2 --equal-steps", ["", "--concentration 0.1", "--collective doubling"]),
    (
        "2 3 4 7",
        "dpsgd --steps 5",
        [*each("--topology", "ring torus exponential one-peer-exponential complete"), "--mix-after-update"],
    ),
    (
        "2 4 7",
        "push_sum --steps 5 --topology",
        ["ring", "torus", "exponential", "one-peer-exponential", "complete"],
    ),
    ("4", "dpsgd --steps 5", ["--mixing-every 2", "--optimizer momentum"]),
    ("4", "push_sum --steps 5", [f"--graph {GRAPH}"]),
    (
        "4",
        "choco_sgd --steps 5",
        [
            *each("--compressor", "float16 bfloat16 sign top-k random-k"),
            "--compressor qsgd --levels 32",
            "--compressor top-k --fraction 0.1 --consensus-step 0.2",
        ],
    ),
    ("2 3 4 7", "central_directions --steps 5", [""]),
    ("4", "central_directions --steps 5", ["--own-weight 0.2"]),
    ("1 3 4", "federated --steps 3", ["", "--concentration 0.1 --epochs 2", "--lost 0.3", "--server-lr 0.5"]),
    ("3", "federated --steps 1 --secure", ["", "--lost 0.3 --threshold 3"]),
    ("3", "search --trials 4 --steps 8", ["", "--widths 32 64"]),
    ("1 2 3", "small_network --epochs 1", [""]),
    ("1 2 3 4", "tensor_split --steps 3", ["", "--precision float64"]),
    ("2", "tensor_split --steps 3", [TEXT, "--optimizer adam"]),
    ("1 2 3", "layer_split --steps 3 --balance", ["layers", "memory"]),
    ("2", "layer_split --steps 3 --balance layers", [TEXT, "--model cnn", "--precision float64"]),
    (
        "1 2 3 4",
        "pipeline --steps 3 --balance layers --depth 8 --batch 60 --micro-batches 12 --schedule",
        ["naive", "gpipe", "1f1b", "interleaved", "pipedream", "zero-bubble"],
    ),
    (
        "3",
        "pipeline --steps 3 --balance layers --depth 6",
        [
            "--recompute",
            "--micro-batches 3",
            "--schedule interleaved --chunks 2 --micro-batches 6",
            "--schedule pipedream --vertical-sync",
            "--optimizer adam",
            "--spares 1",
        ],
    ),
    (
        "4",
        "hybrid --steps 3 --balance layers --depth 4",
        [
            "",
            "--shard-optimizer --optimizer adam",
            "--tensor-ranks 2",
            "--tensor-ranks 2 --pipeline-ranks 2",
            "--tensor-ranks 4",
            "--pipeline-ranks 2 --shard-optimizer --optimizer momentum",
            *[
                f"--pipeline-ranks 2 --schedule {name}"
                for name in ["naive", "gpipe", "1f1b", "interleaved", "zero-bubble"]
            ],
        ],
    ),
    (
        "3 4",
        "parameter_server --steps 4 --sync bsp",
        ["", *each("--update", "momentum adagrad adam staleness-aware delay-compensated blend elastic twice")],
    ),
    (
        "4 7",
        "parameter_server --steps 4 --sync bsp --servers 2",
        ["", "--assignment hashing", "--replicas 2", "--transport window", "--topk 0.1", "--compressor sign"],
    ),
    (
        "4",
        "parameter_server --steps 4 --sync bsp",
        [
            *each("--compressor", "float16 bfloat16 qsgd terngrad random-k"),
            "--update elastic --period 2",
            "--data text --lr 30",
            "--place servers=3,workers=1+2",
            "--capabilities 1 2",
            TEXT,
        ],
    ),
    (
        "7",
        "parameter_server --steps 6 --sync bsp",
        ["--tree 2", "--applications 2", "--servers 2 --server-change step=3,servers=3 --assignment hashing"],
    ),
    ("3", "parameter_server --steps 4 --sync", ["ssp", "async", "half", "dssp"]),
    (
        "3 4",
        "hybrid_parameters --steps 3",
        ["", "--hot 0", "--hot 0.1 --cold clients", "--shards shuffled"],
    ),
    (
        "1 2 3 4 7",
        "restart --steps 6 --checkpoint-every 2",
        [""],
    ),
    (
        "3",
        "restart --steps 6 --checkpoint-every 2",
        ["--checkpoint-by rank-0", "--no-checkpoint-async", "--optimizer adam --precision float16"],
    ),
    ("2 4 7", "membership --steps 6", [""]),
    ("3", "membership --steps 6", ["--optimizer adam", "--adapt-lr", "--adapt-lr --adapt-lr-by gradients"]),
    ("2 3 4", "backup --steps 6", ["", "--spares 1", "--shard-optimizer --optimizer adam"]),
    ("2 4", "diloco --steps 6 --period 3", ["", "--fragments 3 --delay 1"]),
    ("2 4", "elastic_diloco --steps 6 --period 3", ["", "--outer-lr 1 --outer-momentum 0 --optimizer sgd"]),
    ("2 4", "sharded --steps 3", ["", "--stage 1"]),
    (
        "4",
        "sharded --steps 3",
        [
            "--shard-over 2 --prefetch --precision bfloat16",
            "--stage 2 --optimizer momentum --lr 0.05",
            "--max-norm 1 --accumulate 2",
            "--stage 2 --offload disk",
        ],
    ),
    ("2 4", f"context_parallel --steps 3 {SMALL}", ["", "--attention ulysses --placement contiguous"]),
    ("2 4", f"expert_parallel --steps 3 {SMALL} --experts 4", ["", "--top-k 1 --capacity 1"]),
    (
        "4",
        f"grid --steps 3 {SMALL}",
        [
            "--shard-ranks 2 --pipeline-ranks 2 --experts 2",
            "--data-ranks 2 --tensor-ranks 2",
            "--context-ranks 2 --tensor-ranks 2",
            "--pipeline-ranks 2 --expert-ranks 2 --experts 4",
        ],
    ),
    ("2", f"grid --steps 3 {SMALL}", ["--pipeline-ranks 2", "--shard-ranks 2"]),
]


def commands() -> dict[int, list[str]]:
    """Return for each number of ranks the trainings, as words after `farandole run`."""
    found: dict[int, list[str]] = {}
    for sizes, scenario, options in TABLE:
        for size in map(int, sizes.split()):
            found.setdefault(size, []).extend(f"{scenario} {each}".strip() for each in options)
    return found


def train(ranks: int, trainings: list[str], timeout_s: float = 570) -> dict[str, Any]:
    """Train all of them in one launch; return "numerics", and in "trainings" the result of each command."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(trainings))
        file.flush()
        output = run_ranks([str(PROGRAM), file.name], ranks, timeout_s=timeout_s)
    return json.loads(output.stdout[0].strip().splitlines()[-1])


def recorded() -> dict[str, Trainings]:
    """Return the record: number of ranks → command → its results, with the parameters by machine."""
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {}


def on_machine(trainings: Mapping[str, Any], numerics: str) -> Trainings:
    """Return recorded trainings as `train` returns them where the arithmetic has this digest.

    Their parameters are None if none have been recorded there.
    """
    return {name: found | {"parameters": found["parameters"].get(numerics)} for name, found in trainings.items()}


def entered(before: Mapping[str, Any], numerics: str, found: Mapping[str, Any]) -> Trainings:
    """Return these results for the record; what other machines have recorded stays if nothing has changed here."""
    here, record = on_machine(before, numerics), {}
    for name, results in found.items():
        same = name in here and not [*differences({name: here[name]}, {name: results}, KINDS)]
        others = before[name]["parameters"] if same else {}
        record[name] = {**results, "parameters": others | {numerics: results["parameters"]}}
    return record


def differences(expected: Mapping[str, Any], found: Mapping[str, Any], what: tuple[str, ...]) -> Iterator[str]:
    """Yield a line for each training that is missing, or in which one of `what` differs from the expected, if known."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found or name not in expected:
            yield f"{name}: {'not recorded' if name in found else 'not trained'}"
            continue
        differing = [kind for kind in what if expected[name][kind] not in (None, found[name][kind])]
        if name.startswith("parameter_server ") and differ_by_heartbeats(expected[name], found[name]):
            differing = [kind for kind in differing if kind == "parameters"]
        for kind in differing:
            yield f"{name}: {kind} {found[name][kind]}, not {expected[name][kind]}"


def differ_by_heartbeats(expected: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Return whether each rank's bytes differ by one header per message.

    A client that waits long tells the manager that it is alive: how often depends on the time, not on the method.
    """
    return all(
        sent - as_sent == HEADER_BYTES * (messages - as_many)
        for sent, as_sent, messages, as_many in zip(
            found["bytes"], expected["bytes"], found["messages"], expected["messages"], strict=True
        )
    )


def main() -> None:
    """Train twice and record what both agree on, or once and compare with the record."""
    fork_server.start()
    record = "--record" in sys.argv[1:]
    chosen = [int(word) for word in sys.argv[1:] if word.isdigit()]
    known = recorded()
    for ranks, trainings in commands().items():
        if chosen and ranks not in chosen:
            continue
        first, *others = [train(ranks, trainings) for _ in range(2 if record else 1)]
        for answer in others:
            if changing := [*differences(first["trainings"], answer["trainings"], KINDS)]:
                sys.exit("\n".join([f"on {ranks} ranks, two runs differ:", *changing]))
        before, numerics = known.get(str(ranks), {}), first["numerics"]
        for line in differences(on_machine(before, numerics), first["trainings"], KINDS):
            print(f"{ranks} ranks: {line}", flush=True)
        if record:
            known[str(ranks)] = entered(before, numerics, first["trainings"])
            write(known)


def write(known: Mapping[str, Any]) -> None:
    """Write the record, a line for each training."""
    groups = []
    for ranks, trainings in sorted(known.items(), key=lambda each: int(each[0])):
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in trainings.items())
        groups.append(f" {json.dumps(ranks)}: {{\n{lines}\n }}")
    RECORDED.write_text("{\n" + ",\n".join(groups) + "\n}\n")


if __name__ == "__main__":
    main()
