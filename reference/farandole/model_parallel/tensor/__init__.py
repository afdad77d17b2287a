"""The tensor split: every matrix in blocks, and every rank works on every layer (Megatron).

Reading order: ``exchange`` (the messages between the ranks of a layer, forward and backward),
``linear`` (a matrix by columns, the next one by rows), ``embedding``, ``transformer`` (attention by
heads, and the rest of the language model), ``cross_entropy`` (the loss, from logits that
are divided over the ranks), ``division`` (which parameters are divided, and how), ``units`` (where activations
are whole), ``sequence`` (norms and sums by position), ``split`` (a model into parts, and parts into a model).
"""
