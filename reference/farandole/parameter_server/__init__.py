"""The parameter server: servers keep and move the parameters, workers pull them and push gradients.

Reading order: ``keys`` (which server has which parameters), ``policies`` (when a gradient counts and who may go on),
``update_rules`` and ``corrections`` (what a gradient does), ``shard`` (these put together: one server's part, without
messages), ``header`` and ``mailbox`` (what is said, and how it travels), ``server``, ``client`` and its thread's
``conversation``, ``manager``, ``cleaning``, ``tree`` (the roles), ``placement`` and ``cluster`` (all roles on their
ranks), ``succession``, ``sessions`` and ``departures`` (when ranks die), ``server_change``, ``server_manager`` and
``resharding`` (when servers come or go on purpose), ``training`` and ``classification`` (a worker's iterations on
real data). Then what builds on that: ``downpour`` and ``labels`` (replicas that talk to the servers now and then),
``sparse`` (only the rows that a batch of text touches travel), ``frequency`` and ``hybrid`` (rows that one worker
alone updates live there), ``online`` and ``serving`` (learning from a stream, and answering with what has been
learned so far).
"""
