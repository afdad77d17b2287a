"""The cost of synchronising: scattered step times, each method's cost under them, and simulations of 10,000 workers.

Reading order: ``stragglers`` (how long a step takes; ``straggler_fit``: which distribution a record fits),
``cost_function`` (T_comm, T_comp and what follows from them), ``setting`` and ``quadratic`` (what a simulation is given
and what it trains), ``networks`` and ``messages`` (how long messages take if they share links), ``simulator`` (the
policies of the parameter server, driven by events instead of messages), ``rounds``, ``outer_rounds``, ``sharding``,
``compressed``, ``pipelines`` with ``division``, ``stage_clock``, ``stage_messages`` and ``stage_flows``, ``gossip`` and
``pairs`` (methods in rounds, DiLoCo's and ZeRO's, with compressed gradients, stage by stage, on a graph, in pairs),
``failures``, ``choice`` (the methods' options), ``comparison`` (38 methods on one axis), ``validation`` and
``measured_link`` (a real run, predicted from its own computing times; α and β from two). Then ``sync_cost``:
``methods`` (its table), ``predictions``, ``calibration`` (what is measured before), ``strategies`` (what trains),
``options``. Then the choice of a parallel mode: ``layer_costs`` (from shapes), ``machine`` (measured), ``modes``
(predicted), ``adaptive`` (the ranks choose theirs), ``advice`` (how many devices). Last, the calculators for trainings
that are too large for this machine: ``training_plan``, ``memory``, ``volumes``, ``utilisation``, ``published`` and
``paper_tables``.
"""
