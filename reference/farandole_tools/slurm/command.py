"""`farandole slurm up | status | down`: a real Slurm on this one machine, for trying job scripts."""

from __future__ import annotations

import dataclasses
import socket
import sys
from pathlib import Path
from typing import Annotated

import cyclopts
from rich.console import Console
from rich.table import Table

from farandole.runtime.files import json_text
from farandole.runtime.numbers import AtLeastOne
from farandole_tools.slurm import layout, sandbox

app = cyclopts.App(name="slurm", help="A real Slurm cluster on this one machine, for trying job scripts.")

Folder = Annotated[
    Path | None,
    cyclopts.Parameter(name="--dir", help="The sandbox's folder (default: ~/.local/state/farandole/slurm)."),
]


@app.command
def up(*, nodes: AtLeastOne = 4, folder: Folder = None) -> None:
    """Start munge, the controller and the nodes, and wait until the nodes are idle.

    Parameters
    ----------
    nodes
        How many nodes, n1, n2, …: each declares 16 cores and 4 GPUs.
    """
    folder = folder or layout.default_folder()
    already = sandbox.status(folder).up
    try:
        cluster = sandbox.up(folder, nodes)
    except sandbox.SandboxError as error:
        print(f"The sandbox did not come up: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    count = f"{nodes} node{'s' if nodes > 1 else ''}"
    print(f"{'Already up' if already else 'Up'}: {count}, in {cluster.folder}. Now type")
    for name, value in cluster.environment().items():
        print(f"    export {name}={value}")
    print("and then, for instance: sinfo; sbatch slurm/sync_sgd.sbatch")
    if not already and not layout.loopback_only():
        name = socket.gethostname()
        print(f"It listens on all interfaces (munge lets only you in); for loopback only, /etc/hosts: 127.0.0.1 {name}")


@app.command
def status(
    *, folder: Folder = None, json_: Annotated[bool, cyclopts.Parameter(name="--json", negative="")] = False
) -> None:
    """Show the daemons and the nodes.

    Parameters
    ----------
    json_
        Print {folder, up, daemons, nodes, jobs} as JSON and nothing else.
    """
    now = sandbox.status(folder or layout.default_folder())
    if json_:
        print(json_text(dataclasses.asdict(now) | {"folder": str(now.folder)}))
        return
    if not layout.is_sandbox(now.folder):
        print(f"No sandbox in {now.folder}. Start one: farandole slurm up")
        return
    print(f"{'Up' if now.up else 'Not up'}: {now.folder}; jobs waiting or running: {now.jobs}")
    table = Table()
    table.add_column("daemon")
    table.add_column("process", justify="right")
    table.add_column("node's state")
    for name, process in now.daemons.items():
        node = name if name.startswith("n") else None
        table.add_row(
            f"slurmd {name}" if node else name,
            "missing" if process is None else str(process),
            now.nodes.get(name, "unknown") if node else "",
        )
    Console().print(table)


@app.command
def down(*, folder: Folder = None) -> None:
    """End the sandbox's jobs and daemons, and delete its folder."""
    folder = folder or layout.default_folder()
    try:
        found = sandbox.down(folder)
    except sandbox.SandboxError as error:
        print(f"The sandbox did not go down: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    print(f"Down; {folder} is deleted." if found else f"No sandbox in {folder}; nothing to do.")
