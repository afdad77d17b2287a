"""The project's own election: farandole/recovery/election/raft.py."""

from __future__ import annotations

from farandole.recovery.election.raft import Raft as Member

__all__ = ["Member"]
