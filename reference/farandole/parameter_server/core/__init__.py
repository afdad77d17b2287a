"""What a server decides, without values and without messages: pure objects.

Start with ``ledger``: the bookkeeping of pulls, grants and pushes. ``events`` is what it returns, ``staleness`` what it
counts. The server's ``Shard`` and the property tests drive the same ``Ledger``.
"""
