"""``farandole draw WHAT …``: a collective, a pipeline, mixing, an election or a layout, and its figures as text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from farandole.cli import draw_layouts, draw_steps
from farandole.cli.pictures import SUFFIXES, save
from farandole.collectives.checker import execute
from farandole.collectives.costs import coefficients
from farandole.collectives.schedules import FAMILIES, SCHEDULES
from farandole.collectives.steps import Schedule as Collective
from farandole.decentralised.options import TopologyName, check_graph
from farandole.errors import UsageError
from farandole.model_parallel.checker import Execution, check
from farandole.model_parallel.schedules import NAMES, choose
from farandole.model_parallel.steps import Schedule
from farandole.recovery.election import ELECTIONS, about
from farandole.runtime.numbers import AtLeastOne, NotNegative, Positive

MOVING = ".gif"
MOST_PARTS = 10_000  # of a vector: what a cost is a fraction of

Numbers = Annotated[tuple[NotNegative, ...], Parameter(consume_multiple=True, negative="")]
Stages = Annotated[AtLeastOne, Parameter(alias="-n")]
Ranks = Annotated[AtLeastOne, Parameter(alias="-n")]

app = cyclopts.App(name="draw", help="Draw a schedule, a layout, a graph or an election; no rank is started.")


def _collective(name: str) -> Callable[..., None]:
    def draw(*, ranks: Ranks = 4, out: Path | None = None) -> None:
        """Draw a collective.

        Args:
            ranks: how many.
            out: the picture, a .png, .svg, .pdf, or a .gif that moves. [default: as ring-4.png, in the current folder]
        """
        _draw_collective(SCHEDULES[name][0], ranks, out or Path(f"{name}-{ranks}.png"))

    return draw


def _in_segments(name: str) -> Callable[..., None]:
    def draw(*, ranks: Ranks = 4, segments: AtLeastOne = 2, out: Path | None = None) -> None:
        """Draw a collective.

        Args:
            ranks: how many.
            segments: messages for each chunk of a ring, or for each half of the vector in a tree.
            out: the picture, a .png, .svg, .pdf, or a .gif that moves. [default: as segmented-ring-4x2.png]
        """
        family, _ = FAMILIES[name]
        _draw_collective(family(segments), ranks, out or Path(f"{name}-{ranks}x{segments}.png"))

    return draw


def _aggregated(name: str) -> Callable[..., None]:
    def draw(*, ranks: Ranks = 4, aggregated: AtLeastOne = 2, out: Path | None = None) -> None:
        """Draw a collective.

        Args:
            ranks: how many.
            aggregated: chunks of a message at most.
            out: the picture, a .png, .svg, .pdf, or a .gif that moves. [default: as all-gather-pat-4x2.png]
        """
        family, _ = FAMILIES[name]
        _draw_collective(family(aggregated), ranks, out or Path(f"{name}-{ranks}x{aggregated}.png"))

    return draw


def _hierarchical(*, ranks: Ranks = 4, per_node: AtLeastOne = 2, out: Path | None = None) -> None:
    """Draw a collective.

    Args:
        ranks: how many, a multiple of those of a node.
        per_node: ranks of each node.
        out: the picture, a .png, .svg, .pdf, or a .gif that moves. [default: as hierarchical-4x2.png]
    """
    if ranks % per_node:
        raise UsageError(f"-n {ranks} --per-node {per_node}: give a multiple of {per_node} ranks")
    family, _ = FAMILIES["hierarchical"]
    _draw_collective(family(per_node), ranks, out or Path(f"hierarchical-{ranks}x{per_node}.png"))


def _pipeline(name: str) -> Callable[..., None]:
    def draw(*, stages: Stages = 4, micro_batches: AtLeastOne = 8, out: Path | None = None) -> None:
        """Draw a pipeline schedule.

        Args:
            stages: parts of the model, one a rank.
            micro_batches: parts of a batch; for pipedream batches, which it does not cut.
            out: the picture, a .png, .svg or .pdf. [default: as 1f1b-4x8.png, in the current folder]
        """
        _draw(choose(name), stages, micro_batches, out or Path(f"{name}-{stages}x{micro_batches}.png"))

    return draw


def _interleaved(
    *, stages: Stages = 4, micro_batches: AtLeastOne = 8, chunks: AtLeastOne = 2, out: Path | None = None
) -> None:
    """Draw a pipeline schedule.

    Args:
        stages: ranks, each with some parts of the model.
        micro_batches: parts of a batch, a multiple of the stages.
        chunks: parts of the model on each rank.
        out: the picture, a .png, .svg or .pdf. [default: as interleaved-4x8x2.png, in the current folder]
    """
    file = out or Path(f"interleaved-{stages}x{micro_batches}x{chunks}.png")
    _draw(choose("interleaved", chunks), stages, micro_batches, file)


for _name in NAMES:
    _module = sys.modules[choose(_name).computations.__module__]
    _about = (_module.__doc__ or "").partition("\n")[0]
    app.command(_interleaved if _name == "interleaved" else _pipeline(_name), name=_name, help=_about)


def _election(name: str) -> Callable[..., None]:
    def draw(
        *,
        members: Annotated[AtLeastOne, Parameter(alias="-n")] = 5,
        dead: Numbers = (),
        start: Numbers = (0,),
        cut: NotNegative | None = None,
        seconds: Positive = 30.0,
        out: Path | None = None,
    ) -> None:
        """Draw an election.

        Args:
            members: how many there are, numbered from 0.
            dead: those that do not live, for instance 4, or 3 4.
            start: those that miss their leader in the beginning.
            cut: members below this number and the others cannot reach each other.
            seconds: at most so long; a message takes 1 second.
            out: the picture, a .png, .svg or .pdf. [default: as bully-election-5.png, in the current folder]
        """
        from farandole.recovery.election import choose
        from farandole.recovery.election.network import Network
        from farandole.report import election_picture

        for option, numbers in (("--dead", dead), ("--start", start)):
            if wrong := [number for number in numbers if not 0 <= number < members]:
                raise UsageError(f"{option} {wrong[0]}: members are 0 to {members - 1}")
        if not set(start) - set(dead):
            raise UsageError("no living member starts the election: give --start a member that is not in --dead")
        network = Network(choose(name, list(range(members)), dead))
        for number in dead:
            network.kill(number)
        if cut is not None:
            network.cut([range(cut), range(cut, members)])
        network.start(*start)
        network.run(until=seconds)
        file = out or Path(f"{name}-{members}.png")
        save(file, lambda: election_picture.draw(network, file))
        table = Table("message", "sent")
        for kind, number in network.sent.items():
            table.add_row(kind, str(number))
        Console().print(table)
        for number, leader in network.leaders().items():
            print(f"member {number} follows {'no leader' if leader is None else f'leader {leader}'}")
        print(f"the picture: {file}")

    return draw


for _name in ELECTIONS:
    app.command(_election(_name), name=_name, help=about(_name))


for _name, (_, _about) in SCHEDULES.items():
    app.command(_collective(_name), name=_name, help=_about)
FORMS = {
    "segmented-ring": _in_segments("segmented-ring"),
    "double-binary-tree": _in_segments("double-binary-tree"),
    "reduce-scatter-pat": _aggregated("reduce-scatter-pat"),
    "all-gather-pat": _aggregated("all-gather-pat"),
    "hierarchical": _hierarchical,
}
for _name, _command in FORMS.items():
    app.command(_command, name=_name, help=FAMILIES[_name][1])


draw_layouts.add_to(app)
draw_steps.add_to(app)


@app.command(name="mixing")
def _mixing(
    *,
    ranks: Ranks = 4,
    topology: TopologyName = "ring",
    graph: Path | None = None,
    push: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
) -> None:
    """Draw which ranks average with each other, and with which weights, in decentralised training.

    Args:
        ranks: how many.
        topology: the graph of neighbours.
        graph: a file with a graph instead: a line for each edge, 0 1 for both ways, 0 > 1 for one way.
        push: the weights of push-sum: each rank gives equal parts of its vector.
        out: the picture, a .png, .svg or .pdf. [default: as mixing-ring-4.png, in the current folder]
    """
    from farandole.decentralised import graph_file, mixing
    from farandole.report import topology_picture

    check_graph(topology, graph)
    network = graph_file.read_or_build(graph, topology, ranks)
    rule = mixing.pushing if push else mixing.doubly_stochastic
    file = out or Path(f"mixing-{graph.stem if graph else topology}-{ranks}.png")
    save(file, lambda: topology_picture.draw(network, file, rule))
    table = Table()
    for heading in ("rank", "round", "messages", "what it does"):
        table.add_column(heading)
    for rank in range(ranks):
        for number in range(len(network.rounds)):
            step = rule(network, rank, number)
            table.add_row(str(rank), str(number), str(len(step.to)), str(step))
    Console().print(table)
    if not push:
        matrices = [mixing.mixing_matrix(network, number) for number in range(len(network.rounds))]
        gaps = ", ".join(f"{mixing.spectral_gap(weights):.3f}" for weights in matrices)
        print(f"spectral gap, round by round: {gaps}; of all rounds together: {mixing.gap_of_all(matrices):.3f}")
    print(f"the picture: {file}")


def _draw_collective(schedule: Collective, ranks: int, file: Path) -> None:
    from farandole.report import schedule_picture

    save(file, lambda: schedule_picture.draw(schedule, ranks, file), suffixes=(*SUFFIXES, MOVING))
    execution = execute(schedule, ranks)
    table = Table()
    for heading in ("rank", "messages sent", "bytes sent", "bytes added"):
        table.add_column(heading, justify="right")
    chunks = schedule.chunks(ranks)
    for rank in range(ranks):
        steps = [step for messages in execution.rounds for sender, step in messages if sender == rank]
        added = sum(len(step.received) for step in steps if step.reduce)
        counts = (Fraction(each, chunks) for each in (execution.chunks_sent[rank], added))
        table.add_row(
            str(rank), str(sum(step.to is not None for step in steps)), *(_times(each, "n") for each in counts)
        )
    Console().print(table)
    print(f"{len(execution.rounds)} rounds; seconds for a vector of n bytes: {cost(schedule, ranks)}")
    if (apart := cost(schedule, ranks, multiport=True)) != cost(schedule, ranks):
        print(f"with a separate link to each partner: {apart}")
    print(f"the picture: {file}")


def cost(schedule: Collective, ranks: int, multiport: bool = False) -> str:
    """Return the seconds of a schedule for a vector of n bytes, as text, for instance 6 α + 3/2 nβ + 3/4 nγ."""
    terms = zip(coefficients(schedule, ranks, multiport), ("α", "nβ", "nγ"), strict=True)
    shown = (_times(Fraction(number).limit_denominator(MOST_PARTS), term) for number, term in terms if number)
    return " + ".join(shown) or "0"


def _times(number: Fraction, unit: str) -> str:
    """For instance 3/2 n."""
    return f"{number} {unit}" if number not in (0, 1) else unit if number else "0"


def _draw(schedule: Schedule, stages: int, micro_batches: int, file: Path) -> None:
    from farandole.report import pipeline_picture

    save(file, lambda: pipeline_picture.draw(file, pipeline_picture.scheduled(schedule, stages, micro_batches)))
    execution = check(schedule, stages, micro_batches)
    console = Console()
    console.print(_bubble(execution))
    console.print(_by_stage(execution, schedule.placement.passes))
    print(f"the picture: {file}")


def _bubble(execution: Execution) -> Table:
    """Return the idle time over the whole time, and over that of a pipeline without idle time.

    Where batches that follow each other overlap, also the idle time over the time of one of them.
    """
    table = Table("bubble")
    table.add_column("counted", justify="right")
    table.add_row("/total", f"{execution.bubble_of_total:.1%}")
    table.add_row("/ideal", f"{execution.bubble_of_ideal:.1%}")
    if execution.overlaps:
        table.add_row("/period", f"{execution.bubble_of_period:.1%}")
    return table


def _by_stage(execution: Execution, passes: int) -> Table:
    """Return what each stage holds at most, in micro-batches' activations, and how many messages it sends.

    Args:
        passes: through how many pieces of the model on each stage a micro-batch goes.
    """
    table = Table()
    for heading in ("stage", "holds", "messages"):
        table.add_column(heading, justify="right")
    for stage, (held, messages) in enumerate(zip(execution.stash, execution.messages, strict=True)):
        table.add_row(str(stage), f"{held / passes:.3g}", str(messages))
    return table
