"""The project's own 1F1B: farandole/model_parallel/schedules/one_f_one_b.py."""

from __future__ import annotations

from farandole.model_parallel.schedules.one_f_one_b import computations

__all__ = ["computations"]
