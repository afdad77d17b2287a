"""Which workers the manager declares dead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from farandole.parameter_server import manager as module
from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.manager import Manager
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.survivors import note_excluded

SILENCE_S = 30.0


def test_whoever_is_silent_is_taken_for_dead_but_not_by_one_who_has_not_listened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, sent = [0.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    messages: Any = SimpleNamespace(send=lambda to, tag, header: sent.append((header.kind, header.worker)))
    replication = ChainReplication(Placement.usual(4))
    manager = Manager(0, messages, replication, {2: 0, 3: 0}, (0, 1), cast(Any, None), SILENCE_S)

    now[0] += 2 * SILENCE_S  # the manager was delayed, while the messages were waiting
    manager.tick()
    assert manager.silent == []
    while now[0] < 4 * SILENCE_S:
        now[0] += 1
        manager.handle(Header(Kind.ALIVE, source=3))
        manager.tick()
    assert manager.silent == [2]
    assert sent == [(Kind.GONE, 2)]


def test_a_training_says_which_workers_it_went_on_without(capsys: pytest.CaptureFixture[str]) -> None:
    note_excluded([], SILENCE_S)
    assert capsys.readouterr().err == ""
    note_excluded([2], SILENCE_S)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("farandole: rank 2 sent nothing for 30 s (--hang-after); the others went on without it")
