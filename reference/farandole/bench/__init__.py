"""How fast we are, as a ratio to a named peer measured in the same run.

A benchmark is a program that runs as ranks; its rank 0 prints a JSON list of rows
``{name, size, ranks, median_s, peers: {peer: {median_s, ratio}}}`` with ratio = peer's median over
ours, so above 1 we are faster. ``farandole bench NAME`` launches it. Absolute times say little on a
shared machine; the ratio of two things measured turn by turn says more.
"""

from __future__ import annotations

# Name → the module that `farandole bench NAME` runs on all ranks.
BENCHMARKS = {"allreduce": "farandole.bench.allreduce"}
