"""Collective communication: algorithms as schedules, run, checked, counted and drawn from one text.

Reading order: ``steps`` (the vocabulary), ``central`` (everybody through one rank), ``ring``
(everybody a neighbour), ``checker`` (is it right for every number of ranks?), ``executor`` (the
same schedule over MPI).
"""
