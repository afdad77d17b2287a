"""The picture of a mixing: every edge a line or an arrow, every weight in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.cli.draw import app
from farandole.decentralised.graph_file import parse
from farandole.decentralised.mixing import pushing
from farandole.decentralised.topologies import TOPOLOGIES, topology
from farandole.errors import UsageError
from farandole.report import topology_picture
from farandole.runtime.command_line import run_app


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_what_is_drawn_is_the_graph_and_its_weights(name: str, ranks: int) -> None:
    graph = topology(name, ranks)
    drawing = topology_picture.figure(graph)
    rounds = len(graph.rounds)
    assert len(drawing.axes) == 2 * rounds
    for number, edges in enumerate(graph.rounds):
        upper, lower = drawing.axes[number], drawing.axes[rounds + number]
        lines = [text.arrow_patch for text in upper.texts if getattr(text, "arrow_patch", None)]
        assert len(lines) == len({frozenset(edge) for edge in edges})
        assert [text.get_text() for text in upper.texts if text.get_text()] == [str(rank) for rank in range(ranks)]
        assert len(lower.texts) == ranks + len(edges), "a weight for every edge, and for what each keeps"


def test_edges_that_lead_one_way_are_arrows() -> None:
    graph = parse("0 1\n1 > 2\n2 > 0", 3, "mixed")
    drawing = topology_picture.figure(graph, pushing)
    assert len([text for text in drawing.axes[0].texts if getattr(text, "arrow_patch", None)]) == 3
    with pytest.raises(UsageError, match="push-sum"):
        topology_picture.figure(graph)
    with pytest.raises(UsageError, match="give 1 to 16"):
        topology_picture.figure(topology("ring", 17))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_app(app, ["mixing", "--topology", "one-peer-exponential", "-n", "4"])
    told = capsys.readouterr().out
    assert "spectral gap, round by round: 0.293, 0.000; of all rounds together: 1.000\n" in told
    assert told.endswith("the picture: mixing-one-peer-exponential-4.png\n")
    assert (tmp_path / "mixing-one-peer-exponential-4.png").stat().st_size > 1000
    with pytest.raises(UsageError, match="cannot be read"):
        run_app(app, ["mixing", "--graph", "nothing"])
