"""Benchmarks: our speed as a ratio to that of a named peer measured in the same run.

A benchmark is a module with ``rows(ranks)``, which returns rows
``{name, size, ranks, median_s, peers: {peer: {median_s, ratio}}}`` with ratio = peer's median over
ours, so above 1 we are faster; for a peer that cannot run here, ``{error}`` instead of the numbers.
`median_s` is None where ours does not come to what is measured. Its `TUNING` says how the peers are set: with that
`versions` adds to each peer its ``version`` and ``tuning``. It may have `notes(rows)`, what is said below.
It runs in the launching process, loads no MPI, and starts what it measures. Absolute times say
little on a shared machine; the ratio of two things measured turn by turn says more.
"""

from __future__ import annotations

# Name → the module whose `rows` does `farandole bench NAME`.
BENCHMARKS = {
    "allreduce": "farandole_tools.bench.allreduce",
    "step": "farandole_tools.bench.step",
    "ps": "farandole_tools.bench.ps",
    "pipeline": "farandole_tools.bench.pipeline",
    "dynamic": "farandole_tools.bench.dynamic",
    "methods": "farandole_tools.bench.methods",
    "recovery": "farandole_tools.bench.recovery",
    "chaos": "farandole_tools.bench.chaos",
    "checkpoint": "farandole_tools.bench.checkpoint",
    "launch": "farandole_tools.bench.launch",
}
