"""The few models that the scenarios train, each small enough for a laptop's cores.

Reading order: ``classifiers`` (for images), ``transformer`` (a language model), ``choices`` (which of
them the options mean), ``options`` (what they have in common wherever a model is trained),
``optimizers`` and ``layerwise`` (what moves their parameters), ``sparse_logistic`` (for text as sparse
features; its parameters are a table on servers). In numbers alone: ``operations`` (what a forward pass
computes), ``shape`` (a transformer of any size), ``training_state`` (what is kept for each parameter).
"""
