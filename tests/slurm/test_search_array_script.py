"""search_array.sbatch: every element of the array is a separate training with its own learning rate."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from farandole.runtime.record import Run
from farandole_tools.slurm.sandbox import Sandbox
from tests.slurm.jobs import PATIENCE, programs, run_it, words_of

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "search_array.sbatch"


def test_each_element_leaves_a_record_of_its_own(cluster: Sandbox, checkout: Path) -> None:
    elements = (0, 7)
    number = cluster.submit(SCRIPT, "--array=0,7", arguments=["--steps", "20", "--hidden", "16"], cwd=checkout)
    results = [cluster.wait(f"{number}_{element}", timeout=PATIENCE) for element in elements]
    outputs = [result.output.read_text() for result in results]
    assert [result.state for result in results] == ["COMPLETED"] * 2, outputs
    job = f"search_array-{number}"
    assert [result.output for result in results] == [checkout / f"{job}_{element}.out" for element in elements]
    folders = sorted((checkout / "runs" / job).iterdir())
    assert [folder.name for folder in folders] == [str(element) for element in elements]

    runs = [Run.open(folder) for folder in folders]
    for element, run, output in zip(elements, runs, outputs, strict=True):
        assert (run.summary.scenario, run.summary.ranks, run.summary.steps) == ("sync_sgd", 2, 20)
        assert len(set(run.summary.params_sha256 or [])) == 1
        assert f"element {element} trains with --lr {run.config['lr']:g}\n" in output
    assert len({run.config["lr"] for run in runs}) == len({(run.summary.params_sha256 or [""])[0] for run in runs}) == 2

    command = [sys.executable, "-m", "farandole", "compare", *map(str, folders), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [row["run"] for row in json.loads(done.stdout)] == ["0", "7"]


def test_there_is_a_learning_rate_for_each_element_and_no_more(tmp_path: Path) -> None:
    asked = re.search(r"^#SBATCH --array=0-(\d+)$", SCRIPT.read_text(), re.MULTILINE)
    assert asked
    rates = []
    for element in range(int(asked[1]) + 1):
        [words] = programs(words_of(SCRIPT, tmp_path / str(element), SLURM_ARRAY_TASK_ID=str(element)))
        rates.append(float(words[words.index("--lr") + 1]))
    assert rates == sorted(set(rates))

    folder = tmp_path / "beyond"
    (folder / "reference" / "farandole").mkdir(parents=True)
    done = run_it(SCRIPT, folder, SLURM_ARRAY_TASK_ID=str(len(rates)))
    assert (done.returncode, done.stdout) == (2, "")
    said = f"search_array: element {len(rates)} has no learning rate: there are {len(rates)}, from 0 on\n"
    assert done.stderr == said
