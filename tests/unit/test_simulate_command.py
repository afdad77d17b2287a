"""``farandole simulate``: its output, and its one-line refusals. And a record, predicted from itself."""

from __future__ import annotations

import json
from dataclasses import fields
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import cyclopts
import numpy as np
import pytest

from farandole.cli.simulate import simulate
from farandole.cli.simulate_options import SimulateOptions
from farandole.cost import comparison
from farandole.cost.choice import FAMILIES, MEANT_FOR
from farandole.cost.setting import Draws, Setting
from farandole.cost.stragglers import LogNormal, parse
from farandole.cost.validation import Recorded, against, recorded
from farandole.errors import UsageError
from farandole.methods import simulated
from farandole.runtime.command_line import run_app
from farandole.runtime.record import Summary

ROOT = Path(__file__).parents[2]


def call(words: str, *more: str) -> None:
    app = cyclopts.App(name="farandole")
    app.command(simulate)
    run_app(app, ["simulate", *words.split(), *more])


def test_json_has_a_run_for_each_method_and_number(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "scaling.png"
    words = "ssp ring --workers 1 4 --steps 20 --straggler lognormal:0.5 --json --out"
    call(words, str(picture))
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["method"], run["workers"]) for run in runs] == [("ssp", 1), ("ring", 1), ("ssp", 4), ("ring", 4)]
    assert all(0 < run["efficiency"] <= 1 for run in runs)
    assert picture.stat().st_size > 5000


def test_without_options_there_are_servers_in_proportion_and_the_assumptions_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call("ssp ring --steps 5 --json --workers 1 8 9")
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["servers"] for run in runs] == [1, None, 2, None, 3, None]
    call("ssp --steps 5")
    said = capsys.readouterr().out
    assert "assumed: a server for every 4 workers; links of 100 Gbit/s, both directions at once, 10 µs" in said
    assert "busy all the time" not in said
    call("ring --steps 5")
    assert "server" not in capsys.readouterr().out.splitlines()[0]


def test_many_methods_come_in_families_and_the_best_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(method for methods in FAMILIES.values() for method in methods) == sorted(simulated())
    call("all --workers 8 --steps 10 --straggler lognormal:0.5 --target 0.8")
    _, heading, *lines = capsys.readouterr().out.splitlines()
    assert {line.strip() for line in lines} >= FAMILIES.keys()
    assert max(map(len, [heading, *lines])) <= 80, "a narrow terminal shows it"
    shown = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert list(shown) == [method for methods in FAMILIES.values() for method in methods]
    steps = {method: float(line.split()[2].rstrip("*")) for method, line in shown.items()}
    [fastest] = [method for method, line in shown.items() if "*" in line.split()[2]]
    assert steps[fastest] == min(steps.values())
    assert sum("s*" in line for line in shown.values()) == 1


def test_a_few_methods_are_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    call("ssp ring --workers 4 8 --steps 10 --straggler lognormal:0.5")
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[2:6]] == ["ssp", "ring"] * 2
    assert [line.split()[2][-1] == "*" for line in said.splitlines()[2:6]] == [True, False] * 2
    call("ssp --workers 4 --steps 10")
    assert "*" not in capsys.readouterr().out, "there is nothing to compare it with"


def test_where_the_servers_links_decide_a_sentence_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    call("bsp ring --workers 64 --steps 3 --servers 1 --link-gbps 10 --no-duplex")
    said = capsys.readouterr().out
    assert "assumed: 1 server; links of 10 Gbit/s, one direction at a time" in said
    assert "\nbsp with 64: the servers' links are busy all the time" in said


def test_over_a_network_a_table_has_the_factor_and_the_bottleneck(capsys: pytest.CaptureFixture[str]) -> None:
    words = "ring halving-doubling bsp --workers 64 --steps 3 --network two-level:rack=8,over=4"
    call(words)
    said = capsys.readouterr().out
    assert "; network two-level:rack=8,over=4; " in said
    ring, halving = (line.split() for line in said.splitlines() if line.split()[2:3] in (["7.69"], ["8.53"]))
    assert ring == ["ring", "64", "7.69", "7.56", "1.02×", "none"]
    assert halving == ["halving-doubling", "64", "8.53", "6.42", "1.33×", "rack", "0", "up", "(16)"]
    assert "\nbsp: simulated with one switch, since --network cannot place their messages" in said
    call(words + " --json")
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert ["network" in run for run in runs] == [True, True, False]
    assert runs[1]["network"]["bottleneck"] == "rack 0 up"


def test_a_map_says_who_is_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "map.png"
    call("ring async --map --workers 8 --steps 60 --json --out", str(picture))
    found = json.loads(capsys.readouterr().out)["map"]
    first = {(place["link_gbps"], place["sigma"]): place["method"] for place in found}
    assert first[0.1, 0.1] == "ring", "where one server's link is slow"
    assert first[100, 1] == "async", "where steps scatter and the link does not matter"
    assert picture.stat().st_size > 5000


def test_a_map_in_parts_is_the_map(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = "ring async --map --workers 4 --steps 30 --json"
    parts = []
    for gbps in ("0.1", "1 100"):
        call(f"{words} --map-gbps {gbps}")
        parts.append(tmp_path / f"{len(parts)}.json")
        parts[-1].write_text(capsys.readouterr().out)
    call(f"{words} --map-gbps 0.1 1 100")
    whole = json.loads(capsys.readouterr().out)
    picture = tmp_path / "map.png"
    call("--json --out", str(picture), "--collect", *map(str, parts))
    assert json.loads(capsys.readouterr().out) == whole
    assert picture.stat().st_size > 5000


def test_what_is_no_part_of_the_map_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("ring async --map --workers 4 --steps 30 --json --map-gbps 1")
    part = json.loads(capsys.readouterr().out)
    right, picture = tmp_path / "right.json", tmp_path / "map.png"
    right.write_text(json.dumps(part))
    for name, text, says in (
        ("other", json.dumps(part | {"title": "8 workers"}), "is of another map than"),
        ("fewer", json.dumps(part | {"map": [part["map"][0] | {"link_gbps": 9}]}), "the parts leave out 9 Gbit/s and"),
        ("empty", "{}", "is no part of a map"),
        ("list", "[1]", "is no part of a map"),
        ("text", "no", "is no part of a map"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match=says):
            call("--out", str(picture), "--collect", str(right), str(tmp_path / name))
    with pytest.raises(UsageError, match="cannot be read"):
        call("--out", str(picture), "--collect", str(tmp_path / "nothing"))
    assert not picture.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "name a method"),
        ("stael", "'stael' is no method"),
        ("ssp --workers 0", "--workers. Must be >= 1"),
        ("ssp --straggler gamma", "--straggler gamma does not fit"),
        ("ssp --straggler pareto:0.5", "the shape is above 1"),
        ("ssp --straggler slow:worker=16,factor=3", "--straggler slow:worker=16: with --workers 16 there is none"),
        (
            "ssp --workers 8 2 --straggler slow:worker=2,factor=3",
            "with --workers 2 there is none: give one from 0 to 1",
        ),
        ("ssp --workers 100000 --steps 1000", "give fewer"),
        ("hierarchical --workers 9 --per-node 4", "do not fill nodes of 4"),
        ("ssp --out x.txt", ".png"),
        ("ssp --fail-every 0.01", "--fail-every 0.01: a worker that lives for less than 0.5 steps"),
        ("--record nowhere", "not a run's folder"),
        ("--fit nowhere", "not a run's folder"),
        ("--sides nowhere", "not a run's folder"),
        ("ring --map --workers 10 100", "--map is for one number of workers, not for 2"),
        ("ring --map --straggler pareto:2", "--map is over lognormal scatters, not --straggler pareto:2"),
        ("ring --map --link-gbps 1", "--map is over bandwidths: give --map-gbps"),
        ("ring --map-gbps 1", "--map-gbps is for --map"),
        ("ring --record nowhere", "--record simulates no method: leave ring out"),
        ("ring ssp --fit nowhere", "--fit simulates no method: leave ring out"),
        ("all --sides nowhere", "--sides simulates no method: leave all out"),
        ("ring --collect nowhere", "--collect simulates no method: leave ring out"),
        ("--fit nowhere --workers 9", "--workers says nothing to --fit"),
        ("--record nowhere --fit elsewhere", "--fit says nothing to --record"),
        ("--record nowhere --out x.png", "--out says nothing to --record"),
        ("ring --alone nowhere", "--alone is for --sides"),
        ("--record nowhere --alone elsewhere", "--alone says nothing to --record"),
        ("ring --validate --steps 3", "--steps says nothing to --validate"),
        ("--validate --record nowhere", "--validate says nothing to --record"),
        ("ring --folder x", "--folder is for --validate"),
        ("push_sum --validate", "push_sum has no run for --validate"),
        ("ring --goal 1", "--goal is for --sides"),
        ("ring --recover-s 1", "--recover-s is for --fail-every"),
        ("bsp --network torus", "--network is for tree or halving-doubling or ring or"),
        ("ring --network torus:sides=2x2", "--network torus:sides=2x2 has 4 hosts, too few for 16 workers"),
        ("ring --network rings", "--network rings does not fit: write it as single-switch,"),
        ("ring bsp --map --network torus", "--map over --network torus: bsp is simulated with one switch"),
        ("ring ssp --topology torus", "--topology is for gossip or ad-psgd: leave it out"),
        ("ring --fraction 0.1", "--fraction is for top-k or random-k or dgc"),
        ("ring --encode-ms 2", "--encode-ms is for float16 or"),
        ("ring --model gpt-1.7b --parameters 5", "--parameters is given by --model gpt-1.7b"),
        ("gpipe --model gpt-1.7b --activation-mb 5", "--activation-mb is given by --model gpt-1.7b"),
        ("gpipe --micro-batch 2", "--micro-batch is for --model"),
        ("gpipe --workers 6 --stages 4", "6 workers do not fill pipelines of 4 stages: give a multiple"),
        ("grid --workers 6 --tensor 4", "6 workers are not whole groups of --tensor 4"),
        ("grid --workers 12 --tensor 2 --stages 4", "do not fill pipelines of 4 stages × 2 tensor ranks"),
        ("gpipe --tensor 2", "--tensor is for grid"),
        (
            "grid --workers 6 --shard-ranks 2 --context-ranks 2",
            "not whole groups of --shard-ranks 2 × --context-ranks 2",
        ),
        ("grid --workers 12 --shard-ranks 2 --stages 4", "do not fill pipelines of 4 stages × 2 shard ranks"),
        ("grid --expert-ranks 2", "--expert-ranks 2 have no experts to divide: give --experts"),
        ("grid --expert-ranks 4 --experts 6", "--expert-ranks 4 does not divide 6 experts: give 3"),
        ("grid --experts 2 --top-k 3", "--top-k 3 is more than --experts 2"),
        ("grid --top-k 3", "--top-k is for --experts"),
        (
            "grid --workers 12 --context-ranks 3 --model gpt-1.7b",
            "--context-ranks 3 does not divide 2048 positions: give 2",
        ),
        (
            "grid --shard-ranks 2 --schedule zb-v",
            "--schedule zb-v: a grid with shard, expert or context ranks runs naive",
        ),
        (
            "grid --context-ranks 2 --network torus",
            "--network torus: shard, expert and context ranks are simulated with",
        ),
        ("1f1b --shard-ranks 2", "--shard-ranks is for grid"),
        ("zero-3 --experts 4", "--experts is for grid"),
        ("grid --chunks 3", "--chunks of a grid is for --schedule interleaved"),
        ("interleaved --stages 4 --micro-batches 6", "6 micro-batches are not whole groups of 4"),
        ("1f1b --workers 32 --stages 32 --model gpt-1.7b", "24 layers cannot be cut into 32 pieces"),
        ("grid --workers 10 --tensor 5 --model gpt-1.7b", "--tensor 5 does not divide 24 heads"),
        ("gpipe --micro-batches 1000000", "3,200,000,000 passes of micro-batches are more than 20,000,000"),
        ("bsp --network torus:placement=by-stage", "--network is for tree or"),
        ("ring --network torus:placement=by-stage", "ring has no stages, so leave placement=by-stage out"),
        ("ad-psgd --mix-after-update", "--mix-after-update is for gossip"),
        ("ring --servers 2", "--servers is for bsp or ssp or"),
        ("gossip --topology complete --workers 5000", "--topology complete has 24,995,000 edges with 5000 workers"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError) as error:
        call(words)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert capsys.readouterr().out == ""


def test_every_option_that_is_meant_for_some_is_one_and_they_are_methods() -> None:
    assert MEANT_FOR.keys() <= {field.name for field in fields(SimulateOptions)}
    assert {method for methods in MEANT_FOR.values() for method in methods} <= set(simulated())


def test_all_are_simulated_and_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "scaling.svg"
    call("all --topology torus --kappa 2 --workers 4 9 --steps 10 --json --out", str(picture))
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["method"] for run in runs] == [*list(simulated()), *list(simulated())]
    apart = {run["method"] for run in runs if run["consensus_error"] is not None}
    assert apart == {"gossip", "ad-psgd"}
    assert all(f"<!-- {method} -->" in picture.read_text() for method in simulated()), (
        "matplotlib's comment beside a text"
    )


def test_topologies_and_rounds_are_drawn_into_a_map(capsys: pytest.CaptureFixture[str]) -> None:
    call("ring gossip ad-psgd dynamic-rounds --map --workers 8 --steps 40 --map-gbps 0.01 100 --topology exponential "
         "--json")  # fmt: skip
    found = {
        (place["link_gbps"], place["sigma"]): place["method"] for place in json.loads(capsys.readouterr().out)["map"]
    }
    assert found[0.01, 0.1] == "dynamic-rounds", "where messages are dear"
    assert found[100, 1.0] == "ad-psgd", "where the slow are"


def a_run(scenario: str = "parameter_server") -> Any:
    """Two workers of a mini-batch training; the slower one took 0.2 and 0.4 s in turn."""
    times = {2: [0.1] * 10, 3: [0.2, 0.4] * 5}
    trace = [
        {"name": "forward and backward", "pid": rank, "ts": at, "dur": seconds * 1e6}
        for rank, own in times.items()
        for at, seconds in enumerate(own)
    ]
    config = {"sync": "bsp", "staleness": 4, "least_staleness": 1, "longest_wait": 0.02, "enough": None,
              "patience": 0.5, "servers": 1}  # fmt: skip
    summary = SimpleNamespace(scenario=scenario, staleness={"0": 20}, wall_s=3.3, seed=0)
    return cast(Any, SimpleNamespace(trace=trace, config=config, summary=summary, folder=Path("runs/some")))


def test_a_record_is_predicted_from_its_own_times() -> None:
    verdict = against(a_run())
    assert verdict.predicted_s == pytest.approx(0.3)
    assert verdict.measured_s == pytest.approx(0.33)
    assert verdict.error == pytest.approx(-1 / 11)
    drawn = recorded(a_run()).sample(np.random.default_rng(0), 12, 2)
    assert drawn[:, 0].tolist() == [0.1] * 12
    assert drawn[:3, 1].tolist() == [0.2, 0.4, 0.2]


def test_who_has_computed_less_often_begins_again_at_its_own_end() -> None:
    times = Recorded(((1.0, 2.0, 3.0), (4.0, 5.0, 6.0, 7.0, 8.0)))
    draws = Draws(Setting(workers=2, steps=5, compute_s=1.0, straggler=times))
    for worker, own in enumerate(times.seconds):
        assert [draws.seconds(worker, iteration) for iteration in range(11)] == list(islice(cycle(own), 11))
    assert draws.block().shape == (5, 2), "of a collective method so many steps, however many were recorded"


def test_only_a_parameter_servers_run_can_be() -> None:
    with pytest.raises(UsageError, match="is a run of sync_sgd"):
        against(a_run("sync_sgd"))


def with_a_link(nbytes: int = 50_000, **options: Any) -> Any:
    """`a_run` over links of 4 Mbit/s, on which a message of 50,000 bytes takes 0.1 s."""
    run = a_run()
    run.config |= {"link_mbps": 4} | options
    run.summary.bytes_sent = [0, 20 * nbytes, 10 * nbytes, 10 * nbytes]
    return run


def test_a_link_is_in_the_prediction() -> None:
    """A round of two workers: two reads that queue, the slower computation, and its push."""
    assert against(with_a_link()).predicted_s == pytest.approx(0.3 + 3 * 0.1)
    assert against(with_a_link(nbytes=5_000)).predicted_s == pytest.approx(0.3 + 3 * 0.01)


@pytest.mark.parametrize("options", [{"link_change": ["step=1,mbps=2"]}, {"tree": 2}, {"replicas": 2}])
def test_a_link_that_cannot_be_simulated_is_refused(options: dict[str, Any]) -> None:
    [name] = options
    with pytest.raises(UsageError, match=f"has a slow link and --{name.replace('_', '-')}, which"):
        against(with_a_link(**options))
    run = a_run()
    run.config |= options
    assert against(run).predicted_s == against(a_run()).predicted_s, "without the link it is taken as before"


def write_record(folder: Path, name: str = "forward and backward") -> Path:
    """Three ranks with 400 lognormal times each, the last one's twice as long."""
    times = 0.02 * LogNormal(0.4).sample(np.random.default_rng(5), 400, 3) * [1, 1, 2]
    events = [
        {"ph": "X", "name": name, "cat": "compute", "pid": rank, "tid": 0, "ts": at, "dur": seconds * 1e6, "args": {}}
        for rank, own in enumerate(times.T.tolist())
        for at, seconds in enumerate(own)
    ]
    folder.mkdir()
    (folder / "summary.json").write_text("{}")
    (folder / "trace.json").write_text(json.dumps({"traceEvents": [{"ph": "M", "pid": 0, "args": {}}, *events]}))
    return folder


def test_a_record_is_fitted_as_the_options_take_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = write_record(tmp_path / "run")
    call("--json --fit", str(folder))
    found = json.loads(capsys.readouterr().out)
    straggler = parse(found["straggler"])
    assert isinstance(straggler, LogNormal)
    between = np.log(2) ** 2 * 2 / 9  # the variance between the ranks' logarithms
    assert straggler.sigma == pytest.approx((0.4**2 + between) ** 0.5, rel=0.05)
    assert found["compute_ms"] == pytest.approx(20 * 4 / 3, rel=0.05)
    assert found["compute_ms_by_rank"] == pytest.approx([20, 20, 40], rel=0.1)
    assert found["computations"] == 1200
    assert found["distance"] < 0.05
    call("--fit", str(folder))
    line = f"--straggler {found['straggler']} --compute-ms {found['compute_ms']:.4g}\n"
    said = capsys.readouterr().out
    assert line in said
    assert "--fit runs/A runs/B" in said, "how α and β are found"
    assert found["link"] is None


def test_a_record_without_computations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no computation called 'forward and backward'"):
        call("--fit", str(write_record(tmp_path / "run", name="stage 0")))


def write_summary(folder: Path, ranks: int, samples_per_s: float, steps: int = 4) -> Path:
    """Ranks that each computed for 3 s, communicated for 0.4 s and waited for 0.6 s."""
    of_each = {"compute_s": [3.0] * ranks, "comm_s": [0.4] * ranks, "wait_s": [0.6] * ranks}
    summary = dict.fromkeys(field.name for field in fields(Summary)) | of_each
    summary |= {"ranks": ranks, "steps": steps, "samples_per_s": samples_per_s, "wall_s": 4.0, "seed": 0}
    summary |= {"scenario": "sync_sgd", "device": "cpu", "members": list(range(ranks)), "versions": {}}
    summary |= {key: [] for key in ("faults", "joined", "server_changes", "places", "unwritten")}
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps(summary))
    lines = [{"step": step, "loss": 1 / (step + 1), "wall_s": float(step)} for step in range(4)]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


def test_the_sides_of_a_record_and_how_many_times_as_fast_it_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    four, one = write_summary(tmp_path / "four", 4, 300.0), write_summary(tmp_path / "one", 1, 100.0)
    call("--json --goal 0.4 --sides", str(four), "--alone", str(one))
    found = json.loads(capsys.readouterr().out)
    assert found == {"communication_s": 0.1, "computing_share": 0.75, "steps_to_loss": 2, "speed_up": 3.0}
    call("--goal 0.1 --sides", str(four))
    said = capsys.readouterr().out
    assert "never at a training loss of 0.1" in said
    assert "scalability" not in said, "there is nothing to compare with"
    with pytest.raises(UsageError, match="no step was taken"):
        call("--sides", str(write_summary(tmp_path / "none", 1, 0.0, steps=0)))


def test_the_documentation_counts_the_methods() -> None:
    said = f"{len(simulated())} methods"
    assert f"computes C of {said}" in (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    assert (comparison.__doc__ or "").startswith(said)
