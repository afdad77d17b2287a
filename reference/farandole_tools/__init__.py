"""Tools that serve the methods and are no methods themselves: `farandole` can be read without them.

Rooms: ``bench`` (measurements beside a named peer), ``doctor`` (what works on this machine), ``forked_ranks`` (ranks
that start without importing torch), ``hosts`` (several hosts on one machine), ``lab`` (hands out the labs and judges
the answers), ``slurm`` (a real Slurm on one machine).
Imports go one way: these rooms import `farandole`, which imports nothing of them. Its command line names their commands
as text, and `farandole.runtime.rank_starter` finds the fork server by its entry point.
"""
