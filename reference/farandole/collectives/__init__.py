"""Collective communication: algorithms as schedules, run, checked, counted, costed and drawn from one text.

Reading order: ``steps`` (the vocabulary), ``central`` (all through one rank), ``ring`` (each rank with
its neighbours), ``checker`` (is it right for every number of ranks?), ``executor`` (the same schedule over MPI); then
``bidirectional_ring`` (both directions at once), ``tree``, ``doubling`` and ``halving_doubling`` with ``folding``
(fewer rounds), ``double_binary_tree`` (few rounds and all links), ``recursive`` and ``pat`` (the halves, for any number
of ranks), ``all_to_all``, ``hierarchical`` (several nodes),
``costs`` with ``fitting`` (which one when?), ``schedules`` (all by name), ``automatic`` (chooses by what it has
measured); and, beside the schedules, ``shared_memory`` and ``node_aware``.
"""
