"""Cards: which one each rank computes on.

Read `assignment` first, a pure function of what all ranks report. `detection` finds the cards that torch can use in a
process, `near_cores` the cores near each. `marks` tells a process that joins later which cards are taken. `rank_device`
puts these together for one rank.
"""
