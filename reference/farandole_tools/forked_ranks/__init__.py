"""Ranks that start without importing torch, since they are forked from a process that has imported it.

Read ``fork_server`` first: it holds the idea and the picture, and starts the server. ``forks`` is the server's program,
and ``fork_client`` runs in each process that mpirun has started. `farandole.runtime.rank_starter` is the hook by which
launches use them.
"""
