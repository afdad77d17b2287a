"""The last thing a rank does: it shuts MPI down and ends, without waiting for ever or for what it does not need."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import weakref
from typing import NoReturn

FINALIZE_S = 30  # how long MPI may take to shut down
FINALIZE_WITHOUT_THE_DEAD_S = 5  # the same where a rank has died: Open MPI may wait for it in vain

_finalize_s = FINALIZE_S


def do_not_wait_for_the_dead() -> None:
    """From now on MPI's shutdown may take a few seconds only."""
    global _finalize_s
    _finalize_s = FINALIZE_WITHOUT_THE_DEAD_S


def limit_the_end() -> None:
    """All work is done; MPI's shutdown, which waits for every rank, may not take for ever.

    The end may come after Python's own, where no thread of ours runs any more: so the system has to do it.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_finalize_s)


def end() -> NoReturn:
    """End this process as Python would, but without taking every object of torch apart, which takes 0.5 s on each rank.

    Threads that are no daemons are waited for, exit functions called and MPI shut down.
    """
    limit_the_end()
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing ends its processes
    leave_torch_as_it_is()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.Finalize()
    os._exit(0)


def leave_torch_as_it_is() -> None:
    """Cancel torch's own exit functions, which take 50 ms on each rank.

    They unregister 174 operators one by one, and import tabulate to format the compiler's times, which are not printed
    by default.
    """
    if compiler := sys.modules.get("torch._dynamo.utils"):
        atexit.unregister(compiler.dump_compile_times)
    if library := sys.modules.get("torch.library"):
        for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
            kept = finalizer.peek()
            if kept and kept[1] is library._del_library:
                finalizer.detach()
