"""Others' parameter servers, each doing the round of `ps_task.py` in its own documented way.

Each module but `launching.py`, which starts them, is a program that takes the vector's length and
the number of rounds, and of which one process prints the rounds' seconds as a JSON list.
"""
