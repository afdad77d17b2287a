"""Which files of the parameter server run during one push, from the worker's call to its answer.

Rank 0 is the manager and the server, rank 1 the worker. The answer: for each of them the files, relative to the room,
in the order in which their functions are called; on the server also the one that calls `KVServer.handle`.
"""

import json
import sys
import threading
from pathlib import Path
from types import FrameType

import numpy as np

from farandole import parameter_server
from farandole.parameter_server import cluster
from farandole.parameter_server.header import Kind
from farandole.parameter_server.kv_server import KVServer
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.training import application
from farandole.runtime.communicator import gather_text
from farandole.runtime.world import World

ROOM = Path(parameter_server.__file__).parent
WORKER = 1
files: dict[str, None] = {}  # in order
recording = False


def note(frame: FrameType) -> None:
    path = Path(frame.f_code.co_filename)
    if path.is_relative_to(ROOM):
        files.setdefault(path.relative_to(ROOM).as_posix())


def profile(frame: FrameType, event: str, argument: object) -> None:
    if recording and event == "call":
        note(frame)


handle = KVServer.handle


def handle_recorded(self, header):
    global recording
    recording = header.kind == Kind.PUSH
    if recording:
        note(sys._getframe(1))
    handle(self, header)
    recording = False


def work(kv):
    global recording
    table = np.empty(1000)
    while start := kv.wait(kv.pull(table), "pull"):
        recording = True
        kv.wait(kv.push(np.ones(1000), start.clock, share=1.0), "push")
        recording = False
        kv.report(start.clock, 0.0, 1)


threading.setprofile(profile)
sys.setprofile(profile)
KVServer.handle = handle_recorded
with World.start(PolicyOptions(wait_timeout=30)) as world:
    options = PolicyOptions(sync="bsp", steps=1, lr=1.0)
    placement = Placement.parse("servers=0,workers=1", world.size)
    app = application(options, placement.workers, placement.workers, np.zeros(1000))
    outcome = cluster.run(world, None, options, placement, [app], work, reported=lambda report: None)
    told = [json.loads(text) for text in gather_text(world.control, json.dumps(list(files)))]
    if world.rank == 0:
        print(json.dumps({"worker": told[WORKER], "server": told[0], "moved": sorted(set(outcome.tables[0]))}))
