"""What a record looks like: a table in the terminal, the timeline of the ranks, curves, a page.

Everything here reads finished records (`runtime.record`) and draws; nothing here trains.
"""
