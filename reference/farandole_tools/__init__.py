"""What serves the methods and is no method: whoever reads `farandole` need not read it.

Rooms: ``bench`` (measurements beside a named peer), ``doctor`` (what works on this machine), ``forked_ranks`` (ranks
that start without importing torch), ``hosts`` (several hosts on one machine), ``slurm`` (a real Slurm on one machine).
Imports go one way: these rooms import `farandole`, which imports nothing of them. Its command line names their commands
as text, and `farandole.runtime.rank_starter` finds the fork server by its entry point.
"""
