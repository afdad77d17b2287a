"""The decisions of a server, as pure objects: no messages, no clock, and nothing else of the room but each other.

``ledger`` is the bookkeeping of pulls, grants and pushes. ``events`` is what it returns; ``staleness`` and ``clocks``
are what it counts. ``policies`` decide which worker may start and which gradients count. ``update_rules`` and
``corrections`` are what a gradient does to the parameters, ``updates`` is the table of them, and ``top_k`` chooses the
entries that a worker pushes. The server's ``Shard`` and the property tests drive the same ledger, and the simulator
drives the same policies.
"""
