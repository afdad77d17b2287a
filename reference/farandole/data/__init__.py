"""The data: each rank's samples, and the order in which they are used.

Reading order: ``shares`` (how many samples each rank gets), ``label_skew`` (shares that are not alike), ``shards``
(sent from a root, or read from memory-mapped files), ``sampler`` (the order of an
epoch, which can be saved and restored), ``samples`` (arrays and data sets of torch, of which a method
asks batches), ``batch`` (tensors, nested as a model wants them), ``datasets`` (real digits and text that ship inside
packages), ``documentation`` (the text), ``characters`` (it for a language model), ``text`` (it as
sparse features), ``streams`` (digits that rotate over time).
"""
