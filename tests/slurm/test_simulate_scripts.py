"""simulate_map.sbatch and simulate_collect.sbatch: an array makes the parts of a map, a job puts them together."""

from __future__ import annotations

import json
import re
from pathlib import Path

import cyclopts
import pytest

from farandole.cli import simulate_map
from farandole.cli.simulate import simulate
from farandole.cli.simulate_options import MAP_GBPS
from farandole_tools.slurm.sandbox import Sandbox
from tests.slurm.jobs import PATIENCE, run_it

SLURM = Path(__file__).resolve().parents[2] / "slurm"
MAP, COLLECT = SLURM / "simulate_map.sbatch", SLURM / "simulate_collect.sbatch"
SMALL = ["--workers", "4", "--steps", "40"]


def test_an_array_makes_the_parts_and_a_job_puts_them_together(cluster: Sandbox, checkout: Path) -> None:
    elements = (0, 4, 6)
    number = cluster.submit(MAP, "--array=0,4,6", arguments=SMALL, cwd=checkout)
    after = cluster.submit(COLLECT, f"--dependency=afterok:{number}", arguments=[str(number)], cwd=checkout)
    parts = [cluster.wait(f"{number}_{element}", timeout=PATIENCE) for element in elements]
    assert [part.state for part in parts] == ["COMPLETED"] * 3, [part.output.read_text() for part in parts]
    collected = cluster.wait(after, timeout=PATIENCE)
    assert collected.state == "COMPLETED", collected.output.read_text()

    folder = checkout / "runs" / f"simulate_map-{number}"
    assert sorted(path.name for path in folder.iterdir()) == ["0.json", "4.json", "6.json", "map.png"]
    read = [json.loads((folder / f"{element}.json").read_text()) for element in elements]
    assert [{place["link_gbps"] for place in part["map"]} for part in read] == [{0.1}, {10.0}, {100.0}]
    table = collected.output.read_text()
    assert "first to the loss: 4 workers, 40 MB, 100 ms a step" in table
    assert re.search(r"^sigma +0\.1 +10 +100 *$", table, re.MULTILINE)
    assert len(re.findall(r"^ *[\d.]+  ", table, re.MULTILINE)) == len(simulate_map.SIGMAS)
    assert (folder / "map.png").stat().st_size > 5000


def test_a_part_that_fails_takes_the_collecting_job_away(cluster: Sandbox, checkout: Path) -> None:
    number = cluster.submit(MAP, "--array=0", arguments=["--workers", "0"], cwd=checkout)
    after = cluster.submit(COLLECT, f"--dependency=afterok:{number}", arguments=[str(number)], cwd=checkout)
    part = cluster.wait(f"{number}_0", timeout=PATIENCE)
    assert (part.state, part.exit_code) == ("FAILED", 2)
    assert 'value "0" for --workers' in part.output.read_text()
    assert cluster.wait(after, timeout=PATIENCE).state == "CANCELLED"


def test_there_is_a_bandwidth_for_each_element_and_no_more(tmp_path: Path) -> None:
    asked = re.search(r"^#SBATCH --array=0-(\d+)$", MAP.read_text(), re.MULTILINE)
    assert asked
    speeds = []
    for element in range(int(asked[1]) + 1):
        folder = tmp_path / str(element)
        (folder / "reference" / "farandole").mkdir(parents=True)
        done = run_it(MAP, folder, "--workers", "16", SLURM_ARRAY_TASK_ID=str(element))
        assert done.returncode == 0, done.stderr
        [part] = (folder / "runs" / "simulate_map-7").iterdir()
        assert part.name == f"{element}.json"
        words = part.read_text().split()
        assert words[:3] == ["python", "-m", "farandole"]
        app = cyclopts.App()
        app.command(simulate)
        _, bound, *_ = app.parse_args(words[3:], exit_on_error=False, print_error=False)
        options = bound.kwargs["options"]
        assert options.map
        assert options.json
        assert options.workers == (16,)
        speeds += options.map_gbps
    assert tuple(speeds) == MAP_GBPS

    folder = tmp_path / "beyond"
    (folder / "reference" / "farandole").mkdir(parents=True)
    done = run_it(MAP, folder, SLURM_ARRAY_TASK_ID=str(len(speeds)))
    said = f"simulate_map: element {len(speeds)} has no bandwidth: there are {len(speeds)}, from 0 on\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize("arguments", [[], ["8"]])
def test_an_array_that_is_not_there_is_said_to_be_missing(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "reference" / "farandole").mkdir(parents=True)
    done = run_it(COLLECT, tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.endswith("give the number of the array job\n")
