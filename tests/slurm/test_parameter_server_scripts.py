"""The parameter server's batch scripts: each rank is on the kind of node that its role needs."""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from farandole.runtime.record import Run
from farandole_tools.slurm.sandbox import Sandbox
from tests.slurm.jobs import programs, run, words_of

SLURM = Path(__file__).resolve().parents[2] / "slurm"
HET = SLURM / "parameter_server_het.sbatch"
ON_EACH_NODE = ("parameter_server", "downpour", "hybrid_parameters", "online")
ROLE = re.compile(r"rank (\d) is a (\w+), on (\w+)(?:, CUDA_VISIBLE_DEVICES=(\d))?$", re.MULTILINE)

WHERE_AM_I = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
local = world.Split_type(MPI.COMM_TYPE_SHARED)
gpus = len(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
os.write(1, f"{world.rank} {os.environ['SLURMD_NODENAME']} {local.rank % gpus}\\n".encode())
"""


# --- two kinds of nodes ------------------------------------------------------------------------------------


def test_manager_and_servers_on_cpu_nodes_and_workers_on_gpu_nodes(cluster: Sandbox, checkout: Path) -> None:
    job = run(cluster, checkout, HET, "--steps", "40")
    assert job.state == "COMPLETED", job.output
    said = sorted(ROLE.findall(job.output))
    assert [role for _, role, *_ in said] == ["manager", "server", "worker", "worker", "worker", "worker"]

    nodes: dict[str, set[str]] = defaultdict(set)
    for _, role, node, gpu in said:
        nodes[role].add(node)
        assert bool(gpu) == (role == "worker")
    assert len(nodes["manager"] | nodes["server"]) == 1
    assert len(nodes["worker"]) == 2
    assert not nodes["worker"] & (nodes["manager"] | nodes["server"])
    assert len({(node, gpu) for _, role, node, gpu in said if role == "worker"}) == 4, "a GPU for each worker"

    record = Run.open(job.folder)
    assert record.config["place"] == "cleaner=0,servers=1-1,workers=2-5"
    assert {event["pid"] for event in record.trace if event["name"] == "forward and backward"} == {2, 3, 4, 5}
    assert record.summary.steps == 160, "one for the gradient of each of 4 workers"
    assert len(record.summary.params_sha256 or []) == 6
    assert len(set(record.summary.params_sha256 or [])) == 1
    assert record.summary.test_accuracy is not None
    assert record.summary.test_accuracy >= 0.5, "of ten classes"


def test_the_placement_follows_the_sizes_of_the_components(tmp_path: Path) -> None:
    words = words_of(HET, tmp_path, SLURM_NTASKS_HET_GROUP_0="4", SLURM_NTASKS_HET_GROUP_1="6")
    middle = words.index(":")
    service, workers = words[:middle], words[middle + 1 :]
    assert service[service.index("slurm/as_role.sh") + 1 :][:3] == ["server", "0-3", "cpu1"]
    assert workers[workers.index("slurm/as_role.sh") + 1 :][:3] == ["worker", "4-9", "gpu[1-2]"]
    first, second = programs(words)
    assert first[1:3] == second[1:3] == ["--place", "cleaner=0,servers=1-3,workers=4-9"]
    assert first == [*second, "--device", "cpu"]


def test_workers_without_gpus_are_refused(cluster: Sandbox, checkout: Path) -> None:
    text = HET.read_text()
    without = checkout / "without.sbatch"
    without.write_text(text.replace("#SBATCH --gpus-per-node=2\n", "").replace(" --gpus-per-task=1", ""))
    assert "--gpus-per-" not in without.read_text().replace("# --gpus-per-task", "")
    job = run(cluster, checkout, without)
    assert job.state == "FAILED"
    assert "a worker needs a GPU" in job.output
    assert not list(checkout.glob("runs/*"))


def test_one_component_is_refused(cluster: Sandbox, checkout: Path) -> None:
    one = checkout / "one.sbatch"
    one.write_text(HET.read_text().replace("#SBATCH hetjob\n", ""))
    job = run(cluster, checkout, one)
    assert (job.state, job.exit_code) == ("FAILED", 2)
    assert "has made 1 component(s) of it; it takes 2" in job.output


def as_role(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run as_role.sh on a node; the only other nodes are gpu1 and gpu2."""
    scontrol = folder / "scontrol"
    scontrol.write_text("#!/bin/sh\nprintf 'gpu1\\ngpu2\\n'\n")
    scontrol.chmod(0o755)
    path = os.pathsep.join([str(folder), os.defpath])
    return subprocess.run(
        ["bash", str(SLURM / "as_role.sh"), *words, "echo", "as", "the program"],
        env={"PATH": path, "SLURMD_NODENAME": "gpu1", "SLURM_PROCID": "0", "PMIX_RANK": "3", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_rank_where_it_belongs_becomes_the_program(tmp_path: Path) -> None:
    done = as_role(tmp_path, "worker", "2-5", "gpu[1-2]", CUDA_VISIBLE_DEVICES="1")
    assert done.stdout == "rank 3 is a worker, on gpu1, CUDA_VISIBLE_DEVICES=1\nas the program\n"
    assert done.returncode == 0
    assert "rank 0 is a manager" in as_role(tmp_path, "server", "0-1", "gpu[1-2]", PMIX_RANK="0").stdout


@pytest.mark.parametrize(
    ("words", "environment", "why"),
    [
        (("worker", "4-7"), {}, "rank 3 on gpu1: as worker expected are ranks 4 to 7: start the components in order"),
        (("worker", "0-2"), {}, "rank 3 on gpu1: as worker expected are ranks 0 to 2: start the components in order"),
        (("worker", "2-5"), {"SLURMD_NODENAME": "gpu11"}, "rank 3 on gpu11: a worker belongs on gpu[1-2]"),
        (("worker", "2-5"), {"CUDA_VISIBLE_DEVICES": ""}, "rank 3 on gpu1: a worker needs a GPU"),
    ],
)
def test_a_rank_where_it_does_not_belong_is_refused(
    words: tuple[str, ...], environment: dict[str, str], why: str, tmp_path: Path
) -> None:
    done = as_role(tmp_path, *words, "gpu[1-2]", **{"CUDA_VISIBLE_DEVICES": "1", **environment})
    assert done.returncode == 2
    assert done.stderr.startswith(why)
    assert done.stdout == ""


# --- one kind of nodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ON_EACH_NODE)
def test_each_node_has_one_that_serves_and_two_that_compute(name: str, cluster: Sandbox, checkout: Path) -> None:
    (checkout / "where.py").write_text(WHERE_AM_I)
    where = checkout / "where.sbatch"
    script = (SLURM / f"{name}.sbatch").read_text()
    where.write_text(script.replace(f"python -m farandole.scenarios.{name}", "python where.py"))
    assert where.read_text() != script
    job = run(cluster, checkout, where)
    assert job.state == "COMPLETED", job.output

    ranks: dict[str, list[int]] = defaultdict(list)
    cards: dict[str, set[str]] = defaultdict(set)
    for rank, node, card in sorted(line.split() for line in job.output.splitlines()):
        ranks[node].append(int(rank))
        if int(rank) > 1:
            cards[node].add(card)
    assert sorted(ranks.values()) == [[0, 2, 4], [1, 3, 5]]
    if "--gpus-per-node" in script:
        assert [len(found) for found in cards.values()] == [2, 2], "two GPUs for two workers"


def test_the_record_says_who_was_what(cluster: Sandbox, checkout: Path) -> None:
    job = run(cluster, checkout, SLURM / "parameter_server.sbatch", "--steps", "20")
    assert job.state == "COMPLETED", job.output
    record = Run.open(job.folder)
    assert (record.summary.scenario, record.summary.ranks) == ("parameter_server", 6)
    assert (record.summary.steps, record.summary.faults) == (4 * 20, []), "an update for the gradient of each worker"
    assert len(record.summary.params_sha256 or []) == 6
    assert len(set(record.summary.params_sha256 or [])) == 1
    assert {event["pid"] for event in record.trace if event["name"] == "forward and backward"} == {2, 3, 4, 5}
    sent = record.summary.bytes_sent
    assert sent is not None
    assert sent.index(max(sent)) == 1, "the server answers all workers"
