"""Checkpoints that another layout can read: saved by four stages of a pipeline, loaded by two tensor ranks, or by one.

Each rank saves the pieces that it holds, and says which part of which tensor of the unsplit model each of them is. A
rank of another layout takes the parts that it needs out of them. Read in this order:

1. ``pieces``: where a rank's values lie in the tensors of the unsplit model.
2. ``storage``: the files, and how they are written.
3. ``reader``: how they are read, by any layout or as whole tensors, which may be exported to one file.

4. ``saving``: what --load and --save do.

How a layout names its pieces is written beside it: `model_parallel.pieces`, `sharded.pieces`.
"""
