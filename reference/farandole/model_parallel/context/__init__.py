"""The context split: one sequence divided over the ranks, each of which has all parameters.

Reading order: ``minimal`` (ring attention from top to bottom in one file), ``placement`` (which rank has which
positions, and how much work they make), ``blockwise`` (attention from blocks of keys), ``steps`` (the ring as a
schedule), ``ring_attention`` (the schedule over MPI, forward and backward), ``ulysses`` (all-to-all instead of a ring),
``exchange`` (the messages of both), ``split`` (the language model with either), ``traffic`` (bytes and memory by
formula), ``training``.

A *position* is a character's place in its sequence; a *block* is the keys and values of one rank's positions.
"""
