"""Gradient compression: fewer bytes for a gradient, at the price of time to encode it and of some error.

All compressors have one small interface, `compressor.Compressor`: encode a vector as a known number of bytes, and
decode bytes to a vector. `error_feedback` keeps the error of any of them for the next gradient.

Read `compressor`, then the quantisers (fewer bits an entry): `half_precision`, `sign`, `terngrad`, `qsgd`, which share
`packing`, and `majority_vote`, which counts signs; the sparsifiers (fewer entries): `top_k`, `random_k`, `dgc`;
`powersgd`, which compresses whole matrices; `error_feedback`, with `contraction`; last `exchange` (how encoded vectors
travel) and `non_finite` (which must not). `choices` makes one by its name.
"""
