"""The parameter server: servers keep and move the parameters, workers pull them and push gradients.

Start with ``minimal``: a whole stale synchronous training in one file, with blocking messages. The other files have the
same parts, each as an object of its own.

Reading order: ``keys`` (which server has which parameters), ``policies`` (when a gradient counts and which worker may
go on), ``update_rules`` and ``corrections`` (what a gradient does), ``core.ledger`` (the bookkeeping of pulls and
pushes, without values), ``shard`` (these put together: one server's part, without messages), ``header`` and ``mailbox``
(what messages contain, and how they travel), ``server``, ``client`` and
its thread's ``conversation``, ``manager``, ``cleaning``, ``tree`` (the roles), ``placement`` and ``cluster`` (all roles
on their ranks), ``succession``, ``sessions`` and ``departures`` (when ranks die), ``server_change``, ``server_manager``
and ``resharding`` (when servers join or leave as planned), ``training``, ``contributions`` and ``classification`` (a
worker's iterations on real data), ``double_aggregation`` (document 000's two rounds), ``early_stopping`` (a thread that
ends the training). Then what builds on that: ``downpour`` and ``labels`` (replicas that exchange with the servers every
few steps), ``tasks`` and ``task_replica`` (mini-batches assigned during the training), ``sparse`` (only the rows that a
batch of text touches travel), ``frequency``, ``hybrid`` and ``cold_rows`` (rows that live with workers), ``online`` and
``serving`` (learning from a stream, and answering with what has been learned so far).
"""
