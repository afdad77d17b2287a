"""`farandole hosts up | status | down`: several hosts on this one machine, with a network of a chosen speed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from farandole.runtime.files import json_text
from farandole.runtime.numbers import Positive, whole
from farandole.runtime.placement import COMMAND, HOSTS
from farandole_tools.hosts import network

app = cyclopts.App(name="hosts", help="Several hosts on this machine, and a network of a chosen speed between them.")

Folder = Annotated[
    Path | None, Parameter(name="--dir", help="Where their description lies (default: ~/.local/state/farandole/hosts).")
]
Count = Annotated[int, whole(gte=1, lte=network.MAX_HOSTS)]


@app.command
def up(count: Count = 2, *, mbps: Positive | None = None, subnet: str = network.SUBNET, folder: Folder = None) -> None:
    """Make the hosts h1, h2, …; Linux, as root.

    Parameters
    ----------
    count
        How many.
    mbps
        Million bits a second that each can send, and receive. [default: no limit]
    subnet
        The addresses of the network between them.
    """
    try:
        now = network.up(folder or network.default_folder(), count, mbps, subnet)
    except network.HostsError as error:
        print(f"The hosts did not come up: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    names = list(now.hosts)
    said = names[0] if count == 1 else f"{names[0]} to {names[-1]}"
    print(f"Up: {said}, each connected {f'by {mbps:g} Mbit/s' if mbps else 'without a limit'}. Now type")
    if "SUDO_USER" in os.environ:  # sudo would pass on nothing that was exported
        print(f"    sudo {HOSTS}={now.folder} {COMMAND} run sync_sgd -n 4 --collective hierarchical")
        print("and ranks are put on them, which only root may do.")
        return
    print(f"    export {HOSTS}={now.folder}")
    print("and ranks are put on them, for instance: farandole run sync_sgd -n 4 --collective hierarchical")


@app.command
def status(*, folder: Folder = None, json_: Annotated[bool, Parameter(name="--json", negative="")] = False) -> None:
    """Show the hosts.

    Parameters
    ----------
    json_
        Print {folder, up, mbps, hosts} as JSON and nothing else.
    """
    now = network.status(folder or network.default_folder())
    if json_:
        print(json_text({"folder": str(now.folder), "up": now.up, "mbps": now.mbps, "hosts": now.hosts}))
        return
    if not now.hosts:
        print(f"No hosts in {now.folder}. Make some: farandole hosts up 2")
        return
    print(f"{'Up' if now.up else 'Not up'}: {now.folder}; links: {f'{now.mbps:g} Mbit/s' if now.mbps else 'no limit'}")
    table = Table("host", "process")
    for name, process in now.hosts.items():
        table.add_row(name, "missing" if process is None else str(process))
    Console().print(table)


@app.command
def down(*, folder: Folder = None) -> None:
    """End the hosts, and what runs on them."""
    folder = folder or network.default_folder()
    try:
        found = network.down(folder)
    except network.HostsError as error:
        print(f"The hosts did not go down: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    print("Down." if found else f"No hosts in {folder}; nothing to do.")
