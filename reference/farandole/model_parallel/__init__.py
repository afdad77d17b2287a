"""Models larger than one device: cut by layers, by matrices, or both, and combined with data parallel.

Reading order: ``partition`` (where to cut), ``layer_split`` (upload, cut, send, gather), then the pipelines:
``placement`` (which stage holds which pieces), ``steps`` (the vocabulary), ``schedules`` (one file each, from the naive
one to DualPipe), ``step_order`` (in which order all stages can take their steps), ``checker`` with ``step_costs`` (is
it right, how much memory, how large the bubble?), ``stage`` (one part of a model; ``deferred`` and ``versions`` for
zero-bubble and PipeDream), ``executor`` (a schedule over MPI). ``tensor`` cuts inside the layers and ``context`` the
sequences; ``expert`` divides the experts of a mixture and ``zero`` the optimizer's state; ``grid`` says which rank
stands where, and ``axes`` has the communicators. For data × pipeline × tensor ``layout`` says which grid is used,
``parts`` puts a rank into it, ``batches`` feeds it and ``training`` runs it. ``memory``, ``activations``, ``footprint``
and ``accounting`` say what each rank holds, measured and by formula; ``activation_offload`` with ``offload_places``
moves some of it to the host or a disk. ``small_network`` is document 003's example.

A *stage* is a rank of a pipeline; a *chunk* is one of the pieces of the model on a stage, which along
the whole model are numbered as *virtual stages*; a *unit* is a group of layers that tensor ranks
divide among them.
"""
