"""Data parallel without copies of everything: optimizer state, gradients and parameters divided over the ranks (ZeRO).

In data-parallel training every rank holds the whole model, its gradient and the optimizer's state, so a model must fit
into one device. Here the ranks divide them, and the training stays that of one process. Read in this order:

1. ``minimal``: a whole training with divided parameters (ZeRO-3, FSDP), in numpy and mpi4py.
2. ``plan``: the units of a model, whose parameters are gathered together.
3. ``flat_parameter`` and ``unit``: one unit's vector, and its collectives.
4. ``hooks``: when a unit is gathered, freed and reduced.
5. ``steps``: the resulting order of passes and collectives, to be counted and simulated.
6. ``training``: the three stages, as one definition with three switches.
7. ``stages`` and ``memory``: what a rank holds, by the formula of the ZeRO paper, and counted.
8. ``fsdp_twin``: the same division by torch's FSDP2.
"""
