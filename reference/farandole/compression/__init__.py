"""Gradient compression: fewer bytes for a gradient, at the price of time to encode it and of some error.

Everything stands behind one small contract, `compressor.Compressor`: a vector becomes bytes of a known number, and
bytes become a vector again. What was lost on the way is kept by `error_feedback`, whoever lost it.

Read `compressor`, then the quantisers (fewer bits an entry): `half_precision`, `sign`, `terngrad`, `qsgd`, which share
`packing`, and `majority_vote`, which counts signs; the sparsifiers (fewer entries): `top_k`, `random_k`, `dgc`;
`powersgd`, which compresses whole matrices; `error_feedback`, with `contraction`; last `exchange` (how encoded vectors
travel) and `non_finite` (which must not). `choices` makes one by its name.
"""
