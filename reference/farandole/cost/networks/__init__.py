"""Networks on which the simulator's messages share links: topologies with their routing, and fair sharing.

Reading order: ``network`` (hosts, wires, routes), ``tree_shaped``, ``fat_tree``, ``dragonfly``, ``torus``;
``fair_sharing`` (the rates of messages that meet), ``stages`` (which messages a schedule sends at the same time),
``passage`` (how long they take); ``named`` (all networks by their names).
"""
